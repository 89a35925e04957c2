//! Counters.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pmapi::{Semantics, Units};

use super::{Number, Seat, Seated};
use crate::format::ValueType;
use crate::layout::MARK;
use crate::map::Slot;
use crate::model::Kind;

/// A count that goes up, exact from any number of threads (`mmv_inc(3)`).
///
/// An update is one atomic addition to the mapped page (for floating point a compare-and-swap).
#[derive(Clone)]
pub struct Counter<T: Number = u64> {
    slot: Slot,
    number: std::marker::PhantomData<T>,
}

impl<T: Number> Counter<T> {
    /// Counts one.
    #[inline]
    pub fn inc(&self) {
        self.add(T::ONE);
    }

    /// Counts `n`.
    #[inline]
    pub fn add(&self, n: T) {
        n.add_to(self.slot.word());
    }

    /// The count.
    pub fn get(&self) -> T {
        self.slot.gate().settled(|| T::from_word(self.slot.word().load(Relaxed)))
    }
}

impl<T: Number> Seated for Counter<T> {
    const TYPE: ValueType = T::TYPE;
    const KIND: Kind = Kind::Added;
    const SEMANTICS: Semantics = Semantics::Counter;
    const UNITS: Units = Units::COUNT;

    fn seated(seat: Seat<'_>) -> Self {
        Counter { slot: seat.slot, number: std::marker::PhantomData }
    }
}

impl<T: Number> fmt::Debug for Counter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counter").field(&self.get()).finish()
    }
}

/// A count that one owner alone updates, at the cost of a plain store.
///
/// It cannot be cloned and updates need `&mut`, so that the compiler sees to there being one writer:
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
    count: T,
}

impl<T: Number> CounterWriter<T> {
    /// Counts one.
    #[inline]
    pub fn inc(&mut self) {
        self.add(T::ONE);
    }

    /// Counts `n`.
    #[inline]
    pub fn add(&mut self, n: T) {
        self.count = self.count.plus(n);
        put(&self.slot, self.slot.word(), self.count.word());
    }

    /// The count.
    pub fn get(&self) -> T {
        self.count
    }
}

/// Stores a word of a value that is set, not added to.
#[inline]
pub(super) fn put(slot: &Slot, place: &AtomicU64, word: u64) {
    if word == MARK {
        return put_mark(slot, place);
    }
    place.store(word, Relaxed);
}

/// While values move, the mark in a new place says that its value has not come yet.
#[cold]
fn put_mark(slot: &Slot, place: &AtomicU64) {
    let _held = slot.gate().hold();
    place.store(MARK, Relaxed);
}

impl<T: Number> Seated for CounterWriter<T> {
    const TYPE: ValueType = T::TYPE;
    const KIND: Kind = Kind::Set;
    const SEMANTICS: Semantics = Semantics::Counter;
    const UNITS: Units = Units::COUNT;
    const UNIQUE: bool = true;

    fn seated(seat: Seat<'_>) -> Self {
        CounterWriter { slot: seat.slot, count: T::ZERO }
    }
}

impl<T: Number> fmt::Debug for CounterWriter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CounterWriter").field(&self.count).finish()
    }
}
