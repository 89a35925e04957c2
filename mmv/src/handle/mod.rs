//! Handles: the types through which an application updates values.

mod counter;
mod gauge;
mod histogram;
mod number;
mod quantiles;
mod sharded;
mod text;
mod timer;
mod window;

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use pmapi::{Semantics, Units};

pub use counter::{Counter, CounterWriter};
pub use gauge::{Gauge, GaugeWriter};
pub use histogram::Buckets;
pub use number::Number;
pub(crate) use number::no_value;
pub use quantiles::Quantiles;
pub(crate) use quantiles::{Distributions, Output};
pub use sharded::ShardedCounter;
pub use text::Text;
pub(crate) use text::read_text;
pub use timer::{Interval, Running, Timer};

use crate::format::ValueType;
use crate::model::Kind;
use crate::os::pages::Slot;

/// A handle of a metric's value: [`Counter`], [`CounterWriter`], [`ShardedCounter`], [`Gauge`], [`GaugeWriter`],
/// [`Timer`], [`Interval`] or [`Text`].
///
/// A handle stays valid when its registry is stopped or dropped, or its file is removed. Its updates are then
/// invisible.
pub trait Handle: FromSlot {}

impl<H: FromSlot> Handle for H {}

/// The part of [`Handle`] that only this crate can implement.
pub trait FromSlot: Sized + Send + Sync + 'static {
    /// Type of the value in the file.
    const TYPE: ValueType;
    /// The way in which the value is updated.
    const KIND: Kind;
    /// Semantics, unless the registration overrides them.
    const SEMANTICS: Semantics;
    /// Units, unless the registration overrides them.
    const UNITS: Units;
    /// Whether a value has only one handle.
    const UNIQUE: bool = false;

    /// Creates a handle of the value with this slot.
    fn from_slot(context: SlotContext<'_>) -> Self;
}

/// The value slot for which a registry creates a handle, and the state that its handles share.
#[derive(Debug)]
pub struct SlotContext<'a> {
    pub(crate) slot: Slot,
    pub(crate) value: usize,
    /// Offset of the first of the two buffers of a text value.
    pub(crate) buffers: u64,
    pub(crate) sentinel: bool,
    pub(crate) shared: &'a mut Shared,
}

impl SlotContext<'_> {
    /// Returns the state that all handles of this value share; the first handle creates it.
    fn state<T: Send + Sync + 'static>(&mut self, new: impl FnOnce() -> T) -> Arc<T> {
        self.shared.state(self.value, new).0
    }

    /// Returns the shared state of this value's handles, and registers it for flushing.
    fn flushed_state<T: Flush + 'static>(&mut self, new: impl FnOnce() -> T) -> Arc<T> {
        let (state, is_new) = self.shared.state(self.value, new);
        if is_new {
            self.shared.add_flush(&state);
        }
        state
    }
}

/// A value that the file shows only after a flush.
pub(crate) trait Flush: Send + Sync {
    /// Writes the pending updates to the file.
    fn flush(&self);
}

/// What the handles of a registry share: a state for each value, and the flushes.
#[derive(Default)]
pub(crate) struct Shared {
    states: HashMap<usize, Arc<dyn Any + Send + Sync>>,
    flushes: Vec<Weak<dyn Flush>>,
}

impl Shared {
    fn state<T: Send + Sync + 'static>(&mut self, value: usize, new: impl FnOnce() -> T) -> (Arc<T>, bool) {
        if let Some(Ok(state)) = self.states.get(&value).cloned().map(Arc::downcast) {
            return (state, false);
        }
        let state = Arc::new(new());
        self.states.insert(value, Arc::clone(&state) as _);
        (state, true)
    }

    pub(crate) fn add_flush<T: Flush + 'static>(&mut self, what: &Arc<T>) {
        let what = Arc::downgrade(what);
        self.flushes.push(what);
    }

    /// Returns the values to flush whose handles still exist.
    pub(crate) fn flushes(&mut self) -> Vec<Arc<dyn Flush>> {
        self.flushes.retain(|flush| flush.strong_count() > 0);
        self.flushes.iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn has_flushes(&self) -> bool {
        !self.flushes.is_empty()
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("flushes", &self.flushes.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::Registry;

    #[test]
    fn handles_before_there_is_a_file() {
        let registry = Registry::new("test").unwrap();
        let counter: Counter = registry.counter("counter").register().unwrap();
        let small: Counter<i32> = registry.metric("small").register().unwrap();
        let float: Counter<f32> = registry.metric("float").register().unwrap();
        let gauge: Gauge<i64> = registry.metric("gauge").register().unwrap();
        let timer: Timer = registry.timer("timer").register().unwrap();
        let text: Text = registry.text("text").register().unwrap();
        let sharded: ShardedCounter = registry.metric("sharded").register().unwrap();
        let mut writer: CounterWriter<u32> = registry.metric("writer").register().unwrap();
        let mut set: GaugeWriter = registry.metric("set").register().unwrap();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for i in 0..50u32 {
                        counter.inc();
                        small.add(-2);
                        float.add(0.5);
                        if i % 2 == 0 {
                            gauge.add(3)
                        } else {
                            gauge.sub(1)
                        }
                        timer.observe(Duration::from_nanos(500));
                        text.set("x");
                        sharded.add(2);
                    }
                });
            }
            for i in 0..50 {
                writer.inc();
                set.set(f64::from(i));
            }
        });
        assert_eq!((counter.get(), small.get(), float.get(), gauge.get()), (150, -300, 75.0, 150));
        assert_eq!((timer.get(), text.get().as_str(), sharded.get()), (Duration::from_micros(75), "x", 300));
        assert_eq!((writer.get(), set.get()), (50, 49.0));
        drop(registry);
        counter.inc();
        assert_eq!(counter.get(), 151);
    }

    #[test]
    fn a_high_water_mark_is_exact_from_any_number_of_threads() {
        let most: Gauge<u64> = Registry::new("test").unwrap().metric("most").register().unwrap();
        thread::scope(|scope| {
            for first in 0..4 {
                let most = &most;
                scope.spawn(move || (0..1000).rev().for_each(|n| most.raise(4 * n + first)));
            }
        });
        most.raise(17);
        assert_eq!(most.get(), 3999);
    }

    #[test]
    fn a_file_can_be_for_its_group_alone() {
        use std::os::unix::fs::MetadataExt as _;
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::builder("test").directory(dir.path()).group_only().build().unwrap();
        let count: Counter = registry.counter("count").register().unwrap();
        registry.try_start().unwrap();
        let mode = || std::fs::metadata(dir.path().join("test")).unwrap().mode() & 0o777;
        assert_eq!(mode(), 0o640);
        // A removed file is written again.
        std::fs::remove_file(dir.path().join("test")).unwrap();
        count.inc();
        registry.flush();
        assert_eq!(mode(), 0o640);
    }

    #[test]
    fn a_time_that_is_too_long_is_no_panic() {
        let timer: Timer = Registry::builder("test").build().unwrap().timer("timer").register().unwrap();
        timer.observe(Duration::from_nanos(1500));
        timer.observe(Duration::MAX);
        timer.observe(Duration::MAX);
        let before = timer.get();
        timer.observe(Duration::from_micros(7));
        assert_eq!(timer.get().checked_sub(before), Some(Duration::from_micros(7)));
    }
}
