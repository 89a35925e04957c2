//! Converts the time of this host to the time in the archive.

use std::time::{Duration, Instant};

/// Clock of a recording with a certain length. At the end it starts over or stops.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// Length of the recording from its start to its end.
    length: Duration,
    speed: f64,
    is_paused: bool,
    is_loop: bool,
    /// Duration from the start of the recording to the position at the time `since`. It may be longer than the
    /// recording if the recording has started over.
    base: Duration,
    since: Instant,
}

/// Position in the recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    /// Number of times that the recording has ended.
    pub(crate) round: u64,
    /// Distance from the start.
    pub(crate) offset: Duration,
}

/// Largest speed, in seconds of the recording per second.
pub(crate) const FASTEST: f64 = 1e6;

impl Clock {
    pub(crate) fn new(length: Duration, now: Instant) -> Clock {
        Clock { length, speed: 1.0, is_paused: false, is_loop: false, base: Duration::ZERO, since: now }
    }

    /// Returns the distance from the start. It grows over all rounds of a recording that starts over.
    fn distance(&self, now: Instant) -> Duration {
        if self.is_paused {
            return self.base;
        }
        let passed = now.saturating_duration_since(self.since).as_secs_f64() * self.speed;
        self.base.saturating_add(Duration::try_from_secs_f64(passed).unwrap_or(Duration::MAX))
    }

    pub(crate) fn position(&self, now: Instant) -> Position {
        let distance = self.distance(now);
        if !self.is_loop || self.length.is_zero() {
            return Position { round: 0, offset: distance.min(self.length) };
        }
        let round = distance.as_nanos() / self.length.as_nanos();
        let rest = distance.as_nanos() % self.length.as_nanos();
        let offset = Duration::new((rest / 1_000_000_000) as u64, (rest % 1_000_000_000) as u32);
        Position { round: u64::try_from(round).unwrap_or(u64::MAX), offset }
    }

    /// Sets the base to the present position. Called before a setting changes.
    fn rebase(&mut self, now: Instant) {
        (self.base, self.since) = (self.distance(now), now);
        if !self.is_loop {
            self.base = self.base.min(self.length);
        }
    }

    pub(crate) fn set_offset(&mut self, offset: Duration, now: Instant) {
        (self.base, self.since) = (offset.min(self.length), now);
    }

    pub(crate) fn set_speed(&mut self, speed: f64, now: Instant) {
        self.rebase(now);
        self.speed = speed;
    }

    pub(crate) fn pause(&mut self, now: Instant) {
        self.rebase(now);
        self.is_paused = true;
    }

    pub(crate) fn go_on(&mut self, now: Instant) {
        self.rebase(now);
        self.is_paused = false;
    }

    /// Makes the recording start over at its end.
    pub(crate) fn repeat(&mut self, now: Instant) {
        self.rebase(now);
        self.is_loop = true;
    }

    /// Makes the recording stop at its end.
    pub(crate) fn stop_at_end(&mut self, now: Instant) {
        let offset = self.position(now).offset;
        self.set_offset(offset, now);
        self.is_loop = false;
    }

    pub(crate) fn speed(&self) -> f64 {
        self.speed
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused
    }

    pub(crate) fn is_loop(&self) -> bool {
        self.is_loop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(round: u64, seconds: u64) -> Position {
        Position { round, offset: Duration::from_secs(seconds) }
    }

    #[test]
    fn speed_pause_and_loop() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut clock = Clock::new(Duration::from_secs(100), start);
        assert_eq!(clock.position(after(10)), at(0, 10));
        assert_eq!(clock.position(after(1000)), at(0, 100));
        clock.set_speed(4.0, after(10));
        assert_eq!(clock.position(after(12)), at(0, 18));
        clock.pause(after(12));
        assert_eq!(clock.position(after(50)), at(0, 18));
        clock.go_on(after(50));
        assert_eq!(clock.position(after(60)), at(0, 58));
        clock.repeat(after(60));
        assert_eq!(clock.position(after(80)), at(1, 38));
        clock.set_speed(1.0, after(80));
        assert_eq!(clock.position(after(243)), at(3, 1));
        clock.stop_at_end(after(243));
        assert_eq!(clock.position(after(999)), at(0, 100));
        clock.set_offset(Duration::from_secs(7), after(999));
        assert_eq!(clock.position(after(1000)), at(0, 8));
        let empty = Clock::new(Duration::ZERO, start);
        assert_eq!(empty.position(after(5)), at(0, 0));
    }
}
