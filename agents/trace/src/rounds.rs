//! Rounds in which the files of each user are read. Many or large files of one user take no time from others.

use std::time::{Duration, Instant};

use pmda::limits::processor_time;

/// Processor time for the files of one user at a time. When it is used up, the files rest ten times as long as they
/// took.
pub(crate) const AT_ONCE: Duration = Duration::from_millis(10);

/// Processor time of a pass over the files of all users. Files that are not reached are read in the next pass.
pub(crate) const PASS: Duration = Duration::from_millis(12);

/// Schedule of one user's files. Each file is read once in a round. A round that took long is followed by a rest.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    round: u64,
    /// Processor time in this pass.
    spent: Duration,
    /// Processor time in the last pass.
    before: Duration,
    rests: Option<Instant>,
    /// Whether some files of this round have not been read yet.
    waiting: bool,
}

impl Rounds {
    /// Begins a pass over the files. Begins a round if all files have been read in the last one.
    pub(crate) fn begin(&mut self, now: Instant) {
        if self.spent > AT_ONCE {
            self.rests = Some(now + 10 * self.spent);
        }
        self.before = std::mem::take(&mut self.spent);
        self.rests = self.rests.filter(|until| *until > now);
        if self.rests.is_none() {
            self.round += u64::from(!std::mem::take(&mut self.waiting));
        }
    }

    /// Returns whether to read a file now. `last` is the last round in which it was read, `is_time` whether the pass
    /// has time left.
    pub(crate) fn has_turn(&mut self, last: &mut u64, is_time: bool) -> bool {
        let waits = *last < self.round;
        let turn = waits && is_time && self.rests.is_none() && self.spent <= AT_ONCE;
        self.waiting |= waits && !turn;
        if turn {
            *last = self.round;
        }
        turn
    }

    /// Returns the processor time in the last pass. Users who need little come first, and need not wait for the others.
    pub(crate) fn before(&self) -> Duration {
        self.before
    }

    pub(crate) fn spend<T>(&mut self, f: impl FnOnce() -> T) -> T {
        let start = processor_time();
        let result = f();
        self.spent += processor_time().saturating_sub(start);
        result
    }
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
        let (short, long) = (Duration::from_millis(1), 3 * AT_ONCE / 4);
        assert_eq!([look(0, short), look(0, short), look(1, long)], [[true; 3], [true; 3], [true, true, false]]);
        // Two files have taken 15 ms: the third is read after 150 ms, and then all of them again.
        assert_eq!([look(2, long), look(150, long)], [[false; 3]; 2]);
        assert_eq!([look(153, long), look(154, short)], [[false, false, true], [true; 3]]);
        // A user whose files took less in the last pass comes first.
        let mut other = Rounds::default();
        for rounds in [&mut rounds, &mut other] {
            rounds.begin(start);
        }
        assert!(other.before() < rounds.before() && rounds.before() == 3 * short);
    }
}
