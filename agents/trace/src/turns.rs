//! Users have turns: somebody's many or large files take no time from those of others.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// When the files of a user take more of the processor's time at once, they rest ten times as long.
pub(crate) const AT_ONCE: Duration = Duration::from_millis(20);

/// Time of a pass over the files of all users: what is left has its turn in the next one.
pub(crate) const PASS: Duration = Duration::from_millis(60);

/// What it costs to read the files of a user: each has one turn in a round, and when that has taken long there is a rest.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    round: u64,
    /// Of the processor's time, since the last rest.
    spent: Duration,
    rests: Option<Instant>,
    /// Some have not had their turn yet.
    waiting: bool,
}

impl Turns {
    /// Another look at all files.
    pub(crate) fn begin(&mut self, now: Instant) {
        if self.spent > AT_ONCE {
            self.rests = Some(now + 10 * self.spent);
        }
        self.spent = Duration::ZERO;
        self.rests = self.rests.filter(|until| *until > now);
        if self.rests.is_none() {
            self.round += u64::from(!std::mem::take(&mut self.waiting));
        }
    }

    /// Whether a file is to be read, of which this is the last round in which it was, if there is time in this pass.
    pub(crate) fn has_turn(&mut self, last: &mut u64, is_time: bool) -> bool {
        let waits = *last < self.round;
        let turn = waits && is_time && self.rests.is_none() && self.spent <= AT_ONCE;
        self.waiting |= waits && !turn;
        if turn {
            *last = self.round;
        }
        turn
    }

    pub(crate) fn spend<T>(&mut self, f: impl FnOnce() -> T) -> T {
        let start = processor_time();
        let result = f();
        self.spent += processor_time().saturating_sub(start);
        result
    }
}

/// The processor's time of this thread.
pub(crate) fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files, of three, that have a turn when each takes some time.
    fn look(turns: &mut Turns, files: &mut [u64; 3], now: Instant, time: Duration) -> [bool; 3] {
        turns.begin(now);
        files.each_mut().map(|last| {
            let turn = turns.has_turn(last, true);
            turns.spent += if turn { time } else { Duration::ZERO };
            turn
        })
    }

    #[test]
    fn who_takes_long_rests() {
        let (mut turns, mut files, start) = (Turns::default(), [0; 3], Instant::now());
        let mut look = |ms, time| look(&mut turns, &mut files, start + Duration::from_millis(ms), time);
        let (short, long) = (Duration::from_millis(1), Duration::from_millis(15));
        assert_eq!([look(0, short), look(0, short), look(1, long)], [[true; 3], [true; 3], [true, true, false]]);
        // Two have taken 30 ms: the third has its turn after 300, and then all of them have again.
        assert_eq!([look(2, long), look(300, long)], [[false; 3]; 2]);
        assert_eq!([look(302, long), look(303, short)], [[false, false, true], [true; 3]]);
    }
}
