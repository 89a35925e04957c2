//! Handles of counters.

use std::fmt;
use std::marker::PhantomData;

use pmapi::{Semantics, Units};

use super::{FromSlot, Number, SlotContext};
use crate::format::ValueType;
use crate::model::Kind;
use crate::os::pages::Slot;
use std::sync::atomic::Ordering::Relaxed;

/// A count that only increases, exact from any number of threads (`mmv_inc(3)`).
///
/// An update is one atomic addition to the mapped page (a compare-and-swap for floating point).
#[derive(Clone)]
pub struct Counter<T: Number = u64> {
    slot: Slot,
    number: PhantomData<T>,
}

impl<T: Number> Counter<T> {
    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.add(T::ONE);
    }

    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: T) {
        n.add_to(self.slot.word());
    }

    /// Returns the count.
    pub fn get(&self) -> T {
        T::from_word(self.slot.word().load(Relaxed))
    }
}

impl<T: Number> FromSlot for Counter<T> {
    const TYPE: ValueType = T::TYPE;
    const KIND: Kind = Kind::Added;
    const SEMANTICS: Semantics = Semantics::Counter;
    const UNITS: Units = Units::COUNT;

    fn from_slot(context: SlotContext<'_>) -> Self {
        Counter { slot: context.slot, number: PhantomData }
    }
}

impl<T: Number> fmt::Debug for Counter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counter").field(&self.get()).finish()
    }
}

/// A count that only one owner updates, at the cost of a plain store.
///
/// It cannot be cloned, and updates need `&mut self`, so the compiler ensures that there is one writer:
///
/// ```compile_fail
/// fn twice(requests: mmv::CounterWriter) {
///     let again = requests.clone();
/// }
/// ```
///
/// ```compile_fail
/// fn shared(requests: &mmv::CounterWriter) {
///     requests.inc();
/// }
/// ```
pub struct CounterWriter<T: Number = u64> {
    slot: Slot,
    number: PhantomData<T>,
}

impl<T: Number> CounterWriter<T> {
    /// Adds one.
    #[inline]
    pub fn inc(&mut self) {
        self.add(T::ONE);
    }

    /// Adds `n`.
    #[inline]
    pub fn add(&mut self, n: T) {
        let word = self.slot.word();
        word.store(T::from_word(word.load(Relaxed)).plus(n).word(), Relaxed);
    }

    /// Returns the count.
    pub fn get(&self) -> T {
        T::from_word(self.slot.word().load(Relaxed))
    }
}

impl<T: Number> FromSlot for CounterWriter<T> {
    const TYPE: ValueType = T::TYPE;
    const KIND: Kind = Kind::Counted;
    const SEMANTICS: Semantics = Semantics::Counter;
    const UNITS: Units = Units::COUNT;
    const UNIQUE: bool = true;

    fn from_slot(context: SlotContext<'_>) -> Self {
        CounterWriter { slot: context.slot, number: PhantomData }
    }
}

impl<T: Number> fmt::Debug for CounterWriter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CounterWriter").field(&self.get()).finish()
    }
}
