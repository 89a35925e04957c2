//! Timers: counters of elapsed time.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pmapi::{Semantics, Units};

use super::{FromSlot, Number, SlotContext};
use crate::format::ValueType;
use crate::model::Kind;
use crate::os::pages::Slot;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Time spent on an activity, added from any number of threads. It is exported in microseconds.
///
/// Durations below a microsecond accumulate: no nanosecond is lost.
#[derive(Clone)]
pub struct Timer {
    slot: Slot,
    nanos: Arc<AtomicU64>,
}

impl Timer {
    /// Adds a duration.
    pub fn observe(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // The sum may wrap around. Only its remainder is used.
        let before = self.nanos.fetch_add(nanos, Relaxed);
        let micros = nanos / 1000 + (before % 1000 + nanos % 1000) / 1000;
        micros.add_to(self.slot.word());
    }

    /// Starts timing; dropping the guard adds the elapsed time.
    pub fn start(&self) -> Running<'_> {
        Running { timer: self, start: Instant::now() }
    }

    /// Runs `work` and adds the time that it takes.
    pub fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let _running = self.start();
        work()
    }

    /// Returns the accumulated time, in whole microseconds.
    pub fn get(&self) -> Duration {
        Duration::from_micros(self.slot.word().load(Relaxed))
    }
}

impl FromSlot for Timer {
    const TYPE: ValueType = ValueType::Elapsed;
    const KIND: Kind = Kind::Added;
    const SEMANTICS: Semantics = Semantics::Counter;
    const UNITS: Units = Units::MICROSECONDS;

    fn from_slot(mut context: SlotContext<'_>) -> Self {
        Timer { nanos: context.state(AtomicU64::default), slot: context.slot }
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Timer").field(&self.get()).finish()
    }
}

/// A guard that adds the time since [`Timer::start`] when it is dropped.
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
/// Readers see a running interval grow. Only one interval can run at a time, hence the single owner.
pub struct Interval {
    slot: Slot,
    total: u64,
    running: Option<Instant>,
}

impl Interval {
    /// Starts an interval; a running interval continues.
    pub fn start(&mut self) {
        if self.running.is_none() {
            self.running = Some(Instant::now());
            // Readers add the present wall-clock time to this word.
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
            self.slot.extra().store(now.wrapping_neg(), Relaxed);
        }
    }

    /// Ends the running interval, if there is one.
    pub fn stop(&mut self) {
        if let Some(start) = self.running.take() {
            self.total += start.elapsed().as_micros() as u64;
            self.slot.word().store(self.total, Relaxed);
            self.slot.extra().store(0, Relaxed);
        }
    }

    /// Returns the accumulated time, including a running interval.
    pub fn get(&self) -> Duration {
        let running = self.running.map_or(Duration::ZERO, |start| start.elapsed());
        Duration::from_micros(self.total) + running
    }
}

impl FromSlot for Interval {
    const TYPE: ValueType = ValueType::Elapsed;
    const KIND: Kind = Kind::Interval;
    const SEMANTICS: Semantics = Semantics::Counter;
    const UNITS: Units = Units::MICROSECONDS;
    const UNIQUE: bool = true;

    fn from_slot(context: SlotContext<'_>) -> Self {
        Interval { slot: context.slot, total: 0, running: None }
    }
}

impl fmt::Debug for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Interval").field(&self.get()).finish()
    }
}
