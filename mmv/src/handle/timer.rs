//! Accumulated time.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pmapi::{Semantics, Units};

use super::counter::put;
use super::{Number, Seat, Seated};
use crate::format::ValueType;
use crate::map::Slot;
use crate::model::Kind;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Time spent on something, from any number of threads; exported in microseconds.
///
/// Nanoseconds are not lost, however short the times are that are added.
#[derive(Clone)]
pub struct Timer {
    slot: Slot,
    nanos: Arc<AtomicU64>,
}

impl Timer {
    /// Adds a duration.
    pub fn observe(&self, time: Duration) {
        let nanos = time.as_nanos() as u64;
        let before = self.nanos.fetch_add(nanos, Relaxed);
        let micros = before.wrapping_add(nanos) / 1000 - before / 1000;
        micros.add_to(self.slot.word());
    }

    /// Adds the time until the guard is dropped.
    pub fn start(&self) -> Running<'_> {
        Running { timer: self, start: Instant::now() }
    }

    /// Runs something and adds the time that it takes.
    pub fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let _running = self.start();
        work()
    }

    /// The time so far, in whole microseconds.
    pub fn get(&self) -> Duration {
        Duration::from_micros(self.slot.gate().settled(|| self.slot.word().load(Relaxed)))
    }
}

impl Seated for Timer {
    const TYPE: ValueType = ValueType::Elapsed;
    const KIND: Kind = Kind::Added;
    const SEMANTICS: Semantics = Semantics::Counter;
    const UNITS: Units = Units::MICROSECONDS;

    fn seated(mut seat: Seat<'_>) -> Self {
        Timer { nanos: seat.companion(AtomicU64::default), slot: seat.slot }
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Timer").field(&self.get()).finish()
    }
}

/// Adds the time since [`Timer::start`] when dropped.
#[derive(Debug)]
#[must_use = "the time ends when this is dropped"]
pub struct Running<'a> {
    timer: &'a Timer,
    start: Instant,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.timer.observe(self.start.elapsed());
    }
}

/// Time spent by one owner, exported while it runs (`mmv_stats_interval_start(3)`).
///
/// Readers see a running interval grow; there can be one at a time, hence one owner.
pub struct Interval {
    slot: Slot,
    total: u64,
    running: Option<Instant>,
}

impl Interval {
    /// Begins an interval; one that runs goes on.
    pub fn start(&mut self) {
        if self.running.is_none() {
            self.running = Some(Instant::now());
            // Readers compare with the wall clock.
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
            put(&self.slot, self.slot.extra(), now.wrapping_neg());
        }
    }

    /// Ends the interval, if one runs.
    pub fn stop(&mut self) {
        if let Some(start) = self.running.take() {
            self.total += start.elapsed().as_micros() as u64;
            put(&self.slot, self.slot.word(), self.total);
            put(&self.slot, self.slot.extra(), 0);
        }
    }

    /// The time so far, a running interval included.
    pub fn get(&self) -> Duration {
        let running = self.running.map_or(Duration::ZERO, |start| start.elapsed());
        Duration::from_micros(self.total) + running
    }
}

impl Seated for Interval {
    const TYPE: ValueType = ValueType::Elapsed;
    const KIND: Kind = Kind::Interval;
    const SEMANTICS: Semantics = Semantics::Counter;
    const UNITS: Units = Units::MICROSECONDS;
    const UNIQUE: bool = true;

    fn seated(seat: Seat<'_>) -> Self {
        Interval { slot: seat.slot, total: 0, running: None }
    }
}

impl fmt::Debug for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Interval").field(&self.get()).finish()
    }
}
