//! Rate limit for reloading the configuration.

use std::time::{Duration, Instant};

/// Limits reloads to a fraction of the agent's time. In a shared object that time is pmcd's.
///
/// Occasional requests, by a store or a signal, are served at once. Requests in a loop are merged: each load begins as
/// soon as the limit admits it, and the last request is always served.
#[derive(Debug, Default)]
pub(crate) struct Loading {
    asked: bool,
    /// Time until which the agent pauses between loads, by the time that all loads so far have taken.
    busy: Option<Instant>,
}

/// Rest after a load, as a multiple of the time that the load took.
const REST: u32 = 5;
/// Rest that may be outstanding when a load begins.
const OWED: Duration = Duration::from_secs(20);

impl Loading {
    /// Requests a load.
    pub(crate) fn ask(&mut self) {
        self.asked = true;
    }

    /// Returns when the requested load may begin. `None` if no load is requested.
    pub(crate) fn due(&self, now: Instant) -> Option<Instant> {
        self.asked.then(|| self.busy.and_then(|busy| busy.checked_sub(OWED)).map_or(now, |due| due.max(now)))
    }

    /// Records the end of a load that began at `start`.
    pub(crate) fn done(&mut self, start: Instant) {
        let now = Instant::now();
        self.asked = false;
        self.busy = Some(self.busy.map_or(now, |busy| busy.max(now)) + now.duration_since(start) * REST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_loads_all_the_time_has_a_part_of_it() {
        let mut loading = Loading::default();
        assert!(loading.due(Instant::now()).is_none());
        let start = Instant::now();
        // Pretends that each load takes a second.
        let mut at_once = 0;
        loop {
            loading.ask();
            let now = Instant::now();
            if loading.due(now).unwrap() > now {
                break;
            }
            loading.done(Instant::now().checked_sub(Duration::from_secs(1)).unwrap());
            assert!(loading.due(now).is_none());
            at_once += 1;
        }
        assert!((4..=6).contains(&at_once), "{at_once}");
        let due = loading.due(start).unwrap();
        assert!(due > start && due < start + Duration::from_secs(60));
    }
}
