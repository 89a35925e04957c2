//! Handles of counters.

use std::fmt;
use std::marker::PhantomData;

use pmapi::{Semantics, Units};

use super::{FromSlot, Number, SlotContext};
use crate::format::ValueType;
use crate::layout::MARK;
use crate::map::{Slot, Word};
use crate::model::Kind;
use crate::sync::atomic::Ordering::Relaxed;

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
        self.slot.gate().read_unmoved(|| T::from_word(self.slot.word().load(Relaxed)))
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
        update_alone(&self.slot, |count| T::from_word(count).plus(n).word());
    }

    /// Returns the count.
    pub fn get(&self) -> T {
        self.slot.gate().read_unmoved(|| T::from_word(self.slot.word().load(Relaxed)))
    }
}

/// Updates a value that has one writer by a load and a store. While values move to another file, `MARK` stands for a
/// value that has not moved yet; such values are updated while holding the gate.
#[inline]
pub(super) fn update_alone(slot: &Slot, change: impl Fn(u64) -> u64) {
    let old = slot.word().load(Relaxed);
    let new = change(old);
    if old == MARK || new == MARK {
        return update_alone_settled(slot, change);
    }
    slot.word().store(new, Relaxed);
}

#[cold]
fn update_alone_settled(slot: &Slot, change: impl Fn(u64) -> u64) {
    let _held = slot.gate().hold();
    slot.word().store(change(slot.word().load(Relaxed)), Relaxed);
}

/// Stores a word, regardless of the previous value.
#[inline]
pub(super) fn put(slot: &Slot, place: &Word, word: u64) {
    if word == MARK {
        return put_mark(slot, place);
    }
    place.store(word, Relaxed);
}

/// Stores `MARK` as a number. While values move, `MARK` in the new file stands for a value that has not moved yet.
#[cold]
fn put_mark(slot: &Slot, place: &Word) {
    let _held = slot.gate().hold();
    place.store(MARK, Relaxed);
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
