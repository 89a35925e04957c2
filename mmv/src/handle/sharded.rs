//! Counters whose threads do not contend for one cache line.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::available_parallelism;

use pmapi::{Semantics, Units};

use super::{Flush, FromSlot, Number, SlotContext};
use crate::fork::is_torn;
use crate::format::ValueType;
use crate::map::{Slot, Word};
use crate::model::Kind;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::thread_number;

/// A counter for many threads that increment it all the time.
///
/// Each thread adds to its own shard. The registry's [`flush`](crate::Registry::flush) sums the shards into the file,
/// every second unless [`flush_every`](crate::RegistryBuilder::flush_every) sets another period. No update is lost.
#[derive(Clone)]
pub struct ShardedCounter<T: Number = u64> {
    shards: Arc<Shards<T>>,
}

impl<T: Number> ShardedCounter<T> {
    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.add(T::ONE);
    }

    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: T) {
        n.add_to(self.shards.own());
    }

    /// Sums the shards into the file and returns the count.
    pub fn get(&self) -> T {
        self.shards.flush();
        let slot = &self.shards.slot;
        slot.gate().read_unmoved(|| T::from_word(slot.word().load(Relaxed)))
    }
}

impl<T: Number> FromSlot for ShardedCounter<T> {
    const TYPE: ValueType = T::TYPE;
    const KIND: Kind = Kind::Added;
    const SEMANTICS: Semantics = Semantics::Counter;
    const UNITS: Units = Units::COUNT;

    fn from_slot(mut context: SlotContext<'_>) -> Self {
        let slot = context.slot.clone();
        ShardedCounter { shards: context.flushed_state(|| Shards { shards: shards(), slot, number: PhantomData::<T> }) }
    }
}

impl<T: Number> fmt::Debug for ShardedCounter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ShardedCounter").field(&self.get()).finish()
    }
}

struct Shards<T> {
    shards: Box<[Shard]>,
    slot: Slot,
    number: PhantomData<T>,
}

/// A shard. It takes two cache lines, because some processors fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Shard(Word);

/// Returns a power of two of shards, at least one for each processor (at most 128).
fn shards() -> Box<[Shard]> {
    (0..shard_count()).map(|_| Shard::default()).collect()
}

pub(super) fn shard_count() -> usize {
    // Cached, because finding the limits of a container opens files.
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    if cfg!(mmv_loom) {
        return 2;
    }
    if COUNT.load(Relaxed) == 0 {
        COUNT.store(available_parallelism().map_or(8, |n| n.get()).next_power_of_two().min(128), Relaxed);
    }
    COUNT.load(Relaxed)
}

impl<T: Number> Shards<T> {
    #[inline]
    fn own(&self) -> &Word {
        // The number of shards is a power of two.
        match self.shards.get(thread_number() & (self.shards.len() - 1)) {
            Some(shard) => &shard.0,
            None => self.slot.word(),
        }
    }
}

impl<T: Number> Flush for Shards<T> {
    fn flush(&self) {
        // In a torn child, the shards may hold counts that its parent flushes.
        if is_torn() {
            return;
        }
        // While the gate is held, readers do not see the sum without the count that has just been taken from a shard.
        let _held = self.slot.gate().hold();
        for shard in &self.shards {
            let word = shard.0.swap(T::ZERO.word(), Relaxed);
            if word != T::ZERO.word() {
                T::from_word(word).add_to(self.slot.word());
            }
        }
    }

    fn forget(&self) {
        // A write would copy the page that the child shares with its parent.
        let pending = self.shards.iter().filter(|shard| shard.0.load(Relaxed) != T::ZERO.word());
        pending.for_each(|shard| shard.0.store(T::ZERO.word(), Relaxed));
    }
}
