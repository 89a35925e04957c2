//! Handles of values.

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
pub(crate) use text::{Room, Texts};
pub use timer::{Interval, Running, Timer};

use crate::format::ValueType;
use crate::map::Slot;
use crate::model::Kind;

/// What updates a metric's value: [`Counter`], [`CounterWriter`], [`ShardedCounter`], [`Gauge`],
/// [`GaugeWriter`], [`Timer`], [`Interval`] or [`Text`].
///
/// A handle stays valid whatever becomes of the registry and its file.
pub trait Handle: Seated {}

impl<H: Seated> Handle for H {}

/// What [`Handle`] is to this crate.
pub trait Seated: Sized + Send + Sync + 'static {
    /// Type of the value.
    const TYPE: ValueType;
    /// How it is updated.
    const KIND: Kind;
    /// Semantics, unless the registration says otherwise.
    const SEMANTICS: Semantics;
    /// Units, unless the registration says otherwise.
    const UNITS: Units;
    /// Whether a value has only one handle.
    const UNIQUE: bool = false;

    /// The handle of a value.
    fn seated(seat: Seat<'_>) -> Self;
}

/// What a handle needs of its registry.
#[derive(Debug)]
pub struct Seat<'a> {
    pub(crate) slot: Slot,
    pub(crate) value: usize,
    /// Number of the text, if it is one.
    pub(crate) text: usize,
    pub(crate) sentinel: bool,
    pub(crate) texts: &'a Arc<Texts>,
    pub(crate) shared: &'a mut Shared,
}

impl Seat<'_> {
    /// What all handles of the value share.
    fn companion<T: Send + Sync + 'static>(&mut self, new: impl FnOnce() -> T) -> Arc<T> {
        self.shared.companion(self.value, new).0
    }

    /// What all handles of the value share, and a flush writes.
    fn flushed_companion<T: Flush + 'static>(&mut self, new: impl FnOnce() -> T) -> Arc<T> {
        let (companion, is_new) = self.shared.companion(self.value, new);
        if is_new {
            self.shared.add_flush(&companion);
        }
        companion
    }
}

/// Something that the file shows only after a flush.
pub(crate) trait Flush: Send + Sync {
    /// Brings it up to date in the file.
    fn flush(&self);

    /// Leaves what a flush would bring to the parent, in a child that was forked just now.
    fn forget(&self);
}

/// What handles leave with their registry.
#[derive(Default)]
pub(crate) struct Shared {
    companions: HashMap<usize, Arc<dyn Any + Send + Sync>>,
    flushes: Vec<Weak<dyn Flush>>,
}

impl Shared {
    fn companion<T: Send + Sync + 'static>(&mut self, value: usize, new: impl FnOnce() -> T) -> (Arc<T>, bool) {
        if let Some(Ok(companion)) = self.companions.get(&value).cloned().map(Arc::downcast) {
            return (companion, false);
        }
        let companion = Arc::new(new());
        self.companions.insert(value, Arc::clone(&companion) as _);
        (companion, true)
    }

    pub(crate) fn add_flush<T: Flush + 'static>(&mut self, what: &Arc<T>) {
        let what = Arc::downgrade(what);
        self.flushes.push(what);
    }

    /// What is to be flushed.
    pub(crate) fn flushes(&mut self) -> Vec<Arc<dyn Flush>> {
        self.flushes.retain(|flush| flush.strong_count() > 0);
        self.flushes.iter().filter_map(Weak::upgrade).collect()
    }

    /// See [`Flush::forget`]; it does not allocate.
    pub(crate) fn forget(&self) {
        self.flushes.iter().filter_map(Weak::upgrade).for_each(|what| what.forget());
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
    fn the_mark_is_a_number_like_any_other() {
        use crate::layout::MARK;
        let registry = Registry::new("test").unwrap();
        let gauge: Gauge<u64> = registry.metric("gauge").register().unwrap();
        let mut counter: CounterWriter<u64> = registry.metric("counter").register().unwrap();
        gauge.set(MARK);
        assert_eq!(gauge.get(), MARK);
        gauge.inc();
        assert_eq!(gauge.get(), MARK + 1);
        gauge.dec();
        gauge.sub(1);
        assert_eq!(gauge.get(), MARK - 1);
        counter.add(MARK - 1);
        for expected in [MARK, MARK + 1] {
            counter.inc();
            assert_eq!(counter.get(), expected);
        }
    }
}
