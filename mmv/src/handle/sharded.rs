//! Counters whose threads do not contend for one cache line.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::thread::available_parallelism;

use pmapi::{Semantics, Units};

use super::{Flush, FromSlot, Number, SlotContext};
use crate::format::ValueType;
use crate::model::Kind;
use crate::os::forks::forks;
use crate::os::pages::Slot;
use crate::sync::{Lock, thread_number};
use std::sync::atomic::Ordering::Relaxed;

/// A counter for many threads that increment it all the time.
///
/// Each thread adds to its own shard. The registry's [`flush`](crate::Registry::flush) sums the shards into the file,
/// every second unless [`flush_every`](crate::RegistryBuilder::flush_every) sets another period. No update is lost. In a
/// forked child, where nothing flushes, an update adds to the file.
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
        T::from_word(self.shards.slot.word().load(Relaxed))
    }
}

impl<T: Number> FromSlot for ShardedCounter<T> {
    const TYPE: ValueType = T::TYPE;
    const KIND: Kind = Kind::Added;
    const SEMANTICS: Semantics = Semantics::Counter;
    const UNITS: Units = Units::COUNT;

    fn from_slot(mut context: SlotContext<'_>) -> Self {
        let slot = context.slot.clone();
        ShardedCounter {
            shards: context.flushed_state(|| Shards {
                shards: shards(),
                slot,
                flushing: Lock::default(),
                forks: forks(),
                number: PhantomData::<T>,
            }),
        }
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
    /// Held while the shards are summed, so that no reader misses a count that was just taken from a shard.
    flushing: Lock<()>,
    /// Number of forks before the process that flushes.
    forks: u32,
    number: PhantomData<T>,
}

/// A shard. It takes two cache lines, because some processors fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Shard(AtomicU64);

/// Returns a power of two of shards, at least one for each processor (at most 128).
fn shards() -> Box<[Shard]> {
    (0..shard_count()).map(|_| Shard::default()).collect()
}

pub(super) fn shard_count() -> usize {
    // Cached, because finding the limits of a container opens files.
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    if COUNT.load(Relaxed) == 0 {
        COUNT.store(available_parallelism().map_or(8, |n| n.get()).next_power_of_two().min(128), Relaxed);
    }
    COUNT.load(Relaxed)
}

impl<T: Number> Shards<T> {
    #[inline]
    fn own(&self) -> &AtomicU64 {
        if forks() != self.forks {
            return self.slot.word();
        }
        // The number of shards is a power of two.
        match self.shards.get(thread_number() & (self.shards.len() - 1)) {
            Some(shard) => &shard.0,
            None => self.slot.word(),
        }
    }
}

impl<T: Number> Flush for Shards<T> {
    fn flush(&self) {
        // In a forked child, the shards have counts that the parent flushes.
        let Some(_held) = self.flushing.lock() else { return };
        for shard in &self.shards {
            let word = shard.0.swap(T::ZERO.word(), Relaxed);
            if word != T::ZERO.word() {
                T::from_word(word).add_to(self.slot.word());
            }
        }
    }
}
