//! Rounds in which the files of each user are read. Many or large files of one user take no time from others.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// Processor time for the files of one user at a time. Beyond it they rest ten times as long as they took.
pub(crate) const AT_ONCE: Duration = Duration::from_millis(20);

/// Processor time of a pass over the files of all users. Files that are left are read in the next pass.
pub(crate) const PASS: Duration = Duration::from_millis(60);

/// Schedule of one user's files. Each file is read once in a round, and a rest follows when they took long.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    round: u64,
    /// Processor time in this pass.
    spent: Duration,
    rests: Option<Instant>,
    /// Some files of this round were not read yet.
    waiting: bool,
}

impl Rounds {
    /// Begins a pass over the files, and a round if all files of the last one were read.
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

    /// Whether to read a file now. `last` is the last round in which it was read, `is_time` whether the pass has time
    /// left.
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

/// The processor time of this thread.
pub(crate) fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a pass over three files, each of which takes `time`. Returns which of them were read.
    fn look(rounds: &mut Rounds, files: &mut [u64; 3], now: Instant, time: Duration) -> [bool; 3] {
        rounds.begin(now);
        files.each_mut().map(|last| {
            let turn = rounds.has_turn(last, true);
            rounds.spent += if turn { time } else { Duration::ZERO };
            turn
        })
    }

    #[test]
    fn files_that_take_long_rest() {
        let (mut rounds, mut files, start) = (Rounds::default(), [0; 3], Instant::now());
        let mut look = |ms, time| look(&mut rounds, &mut files, start + Duration::from_millis(ms), time);
        let (short, long) = (Duration::from_millis(1), Duration::from_millis(15));
        assert_eq!([look(0, short), look(0, short), look(1, long)], [[true; 3], [true; 3], [true, true, false]]);
        // Two files have taken 30 ms: the third is read after 300 ms, and then all of them again.
        assert_eq!([look(2, long), look(300, long)], [[false; 3]; 2]);
        assert_eq!([look(302, long), look(303, short)], [[false, false, true], [true; 3]]);
    }
}
