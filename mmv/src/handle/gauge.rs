//! Values that rise and fall.

use std::fmt;
use std::marker::PhantomData;

use pmapi::{Semantics, Units};

use super::{FromSlot, Number, SlotContext};
use crate::format::ValueType;
use crate::model::Kind;
use crate::os::pages::Slot;
use std::sync::atomic::Ordering::Relaxed;

/// A value that rises and falls, updated from any number of threads (`mmv_set(3)`).
///
/// Setting is one store. Adding and subtracting are exact, by compare-and-swap.
#[derive(Clone)]
pub struct Gauge<T: Number = f64> {
    slot: Slot,
    sentinel: bool,
    number: PhantomData<T>,
}

impl<T: Number> Gauge<T> {
    /// Sets the value.
    #[inline]
    pub fn set(&self, value: T) {
        self.slot.word().store(value.word(), Relaxed);
    }

    /// Adds `n` to the value.
    #[inline]
    pub fn add(&self, n: T) {
        self.update(|value| value.plus(n));
    }

    /// Subtracts `n` from the value.
    #[inline]
    pub fn sub(&self, n: T) {
        self.update(|value| value.minus(n));
    }

    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.add(T::ONE);
    }

    /// Subtracts one.
    #[inline]
    pub fn dec(&self) {
        self.sub(T::ONE);
    }

    /// Sets the value if it is larger than the present one, as for a high-water mark. Exact from any number of threads.
    #[inline]
    pub fn raise(&self, value: T) {
        let word = self.slot.word();
        let mut old = word.load(Relaxed);
        while value > self.value_of(old) {
            match word.compare_exchange_weak(old, value.word(), Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// Clears the value: the metric has no value until the next update. Without
    /// [sentinels](crate::RegistryBuilder::sentinels) the value becomes 0.
    pub fn clear(&self) {
        let word = if self.sentinel { T::NO_VALUE } else { T::ZERO.word() };
        self.slot.word().store(word, Relaxed);
    }

    /// Returns the value, or 0 when it is cleared.
    pub fn get(&self) -> T {
        self.value_of(self.slot.word().load(Relaxed))
    }

    fn value_of(&self, word: u64) -> T {
        let none = self.sentinel && word == T::NO_VALUE;
        if none { T::ZERO } else { T::from_word(word) }
    }

    #[inline]
    fn update(&self, change: impl Fn(T) -> T) {
        let word = self.slot.word();
        let mut old = word.load(Relaxed);
        while let Err(now) = word.compare_exchange_weak(old, change(self.value_of(old)).word(), Relaxed, Relaxed) {
            old = now;
        }
    }

    /// Updates a value that has one writer, by a load and a store.
    #[inline]
    fn update_alone(&self, change: impl Fn(T) -> T) {
        let word = self.slot.word();
        word.store(change(self.value_of(word.load(Relaxed))).word(), Relaxed);
    }
}

impl<T: Number> FromSlot for Gauge<T> {
    const TYPE: ValueType = T::TYPE;
    const KIND: Kind = Kind::Set;
    const SEMANTICS: Semantics = Semantics::Instant;
    const UNITS: Units = Units::NONE;

    fn from_slot(context: SlotContext<'_>) -> Self {
        Gauge { slot: context.slot, sentinel: context.sentinel, number: PhantomData }
    }
}

impl<T: Number> fmt::Debug for Gauge<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gauge").field(&self.get()).finish()
    }
}

/// A value that only one owner sets, at the cost of a plain store; see [`CounterWriter`](crate::CounterWriter).
pub struct GaugeWriter<T: Number = f64> {
    gauge: Gauge<T>,
}

impl<T: Number> GaugeWriter<T> {
    /// Sets the value.
    #[inline]
    pub fn set(&mut self, value: T) {
        self.gauge.set(value);
    }

    /// Adds `n` to the value.
    #[inline]
    pub fn add(&mut self, n: T) {
        self.gauge.update_alone(|value| value.plus(n));
    }

    /// Subtracts `n` from the value.
    #[inline]
    pub fn sub(&mut self, n: T) {
        self.gauge.update_alone(|value| value.minus(n));
    }

    /// Clears the value, as [`Gauge::clear`] does.
    pub fn clear(&mut self) {
        self.gauge.clear();
    }

    /// Returns the value, or 0 when it is cleared.
    pub fn get(&self) -> T {
        self.gauge.get()
    }
}

impl<T: Number> FromSlot for GaugeWriter<T> {
    const TYPE: ValueType = T::TYPE;
    const KIND: Kind = Kind::Set;
    const SEMANTICS: Semantics = Semantics::Instant;
    const UNITS: Units = Units::NONE;
    const UNIQUE: bool = true;

    fn from_slot(context: SlotContext<'_>) -> Self {
        GaugeWriter { gauge: Gauge::from_slot(context) }
    }
}

impl<T: Number> fmt::Debug for GaugeWriter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GaugeWriter").field(&self.get()).finish()
    }
}
