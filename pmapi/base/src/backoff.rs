//! Growing pauses between attempts that fail.

use std::time::{Duration, Instant};

/// Pauses after failed attempts to reach a peer. The first success resets them.
///
/// ```
/// use pcp_base::backoff::Backoff;
/// use std::time::Duration;
///
/// const PAUSES: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(10)];
/// let mut backoff = Backoff::default();
/// assert!(backoff.is_due());
/// backoff.failed(&PAUSES);
/// assert!(!backoff.is_due() && backoff.wait() <= PAUSES[0]);
/// backoff.succeeded();
/// assert!(backoff.is_due());
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Backoff {
    failures: u32,
    next: Option<Instant>,
}

impl Backoff {
    /// Longest pause: longer than any process lives, and within the range of clocks.
    const LONGEST: Duration = Duration::from_secs(u32::MAX as u64);

    /// Returns whether the next attempt may be made now.
    pub fn is_due(&self) -> bool {
        self.wait().is_zero()
    }

    /// Returns the time until the next attempt may be made; zero if it may be made now.
    pub fn wait(&self) -> Duration {
        self.next.map_or(Duration::ZERO, |next| next.saturating_duration_since(Instant::now()))
    }

    /// Returns the number of attempts that have failed since the last success.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Records a failed attempt, and returns the pause after it. `pauses` has the pause after each attempt, and the
    /// last one holds for all further attempts. Without pauses the next attempt may be made at once.
    pub fn failed(&mut self, pauses: &[Duration]) -> Duration {
        let pause =
            pauses.get(self.failures as usize).or(pauses.last()).copied().unwrap_or_default().min(Self::LONGEST);
        self.failures = self.failures.saturating_add(1);
        self.next = Some(Instant::now() + pause);
        pause
    }

    /// Records a success.
    pub fn succeeded(&mut self) {
        *self = Backoff::default();
    }
}

/// Returns pauses of which each is twice as long as the one before it.
///
/// ```
/// use pcp_base::backoff::doubling;
/// use std::time::Duration;
///
/// const PAUSES: [Duration; 3] = doubling(Duration::from_secs(5));
/// assert_eq!(PAUSES, [5, 10, 20].map(Duration::from_secs));
/// ```
pub const fn doubling<const N: usize>(first: Duration) -> [Duration; N] {
    let mut pauses = [first; N];
    let mut at = 1;
    while at < N {
        pauses[at] = pauses[at - 1].saturating_mul(2);
        at += 1;
    }
    pauses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pause_holds() {
        let pauses = [100, 200].map(Duration::from_secs);
        let mut backoff = Backoff::default();
        for pause in [pauses[0], pauses[1], pauses[1]] {
            assert_eq!(backoff.failed(&pauses), pause);
            assert!(!backoff.is_due() && backoff.wait() <= pause && backoff.wait() > pause / 2, "{backoff:?}");
        }
        assert_eq!(backoff.failures(), 3);
        backoff.succeeded();
        assert_eq!(backoff, Backoff::default());
    }

    #[test]
    fn extreme_pauses() {
        let mut backoff = Backoff::default();
        backoff.failed(&[]);
        assert!(backoff.is_due());
        backoff.failed(&[Duration::MAX]);
        assert!(!backoff.is_due());
    }
}
