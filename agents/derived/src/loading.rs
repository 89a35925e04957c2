//! When the configuration may be loaded again.

use std::time::{Duration, Instant};

/// Limits loading to a part of the agent's time, which is pmcd's in a shared object.
///
/// Whoever has a reason to load stores or signals seldom: that is answered at once. A loop that does so all the time is
/// one load after another no more, but each as soon as there is time for it, and the last of them counts.
#[derive(Debug, Default)]
pub(crate) struct Loading {
    asked: bool,
    /// When the time that loading has taken will be forgotten.
    busy: Option<Instant>,
}

/// So many times as long as loading takes it rests, in the long run.
const REST: u32 = 5;
/// Rest that may be owed.
const OWED: Duration = Duration::from_secs(20);

impl Loading {
    /// The configuration is to be loaded.
    pub(crate) fn ask(&mut self) {
        self.asked = true;
    }

    /// When it is to be loaded, if at all.
    pub(crate) fn due(&self, now: Instant) -> Option<Instant> {
        self.asked.then(|| self.busy.and_then(|busy| busy.checked_sub(OWED)).map_or(now, |due| due.max(now)))
    }

    /// It has been loaded.
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
        let a_second_ago = || Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        // Each takes a second.
        let mut at_once = 0;
        loop {
            loading.ask();
            let now = Instant::now();
            if loading.due(now).unwrap() > now {
                break;
            }
            loading.done(a_second_ago());
            assert!(loading.due(now).is_none());
            at_once += 1;
        }
        assert!((4..=6).contains(&at_once), "{at_once}");
        let due = loading.due(start).unwrap();
        assert!(due > start && due < start + Duration::from_secs(60));
    }
}
