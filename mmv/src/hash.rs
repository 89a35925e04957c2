//! Hash tables that work in a child which was forked while another thread created its first table.
//!
//! The default hasher of `hashbrown` has one seed for the process. While a thread writes it, all others wait. In a child
//! that thread does not exist, and the wait is endless. Therefore this package leaves the feature `default-hasher` off.

use std::hash::BuildHasher;

use foldhash::SharedSeed;
use foldhash::fast::{FoldHasher, SeedableRandomState};
use once_cell::race::OnceBox;

pub(crate) type HashMap<K, V> = hashbrown::HashMap<K, V, RandomState>;
pub(crate) type HashSet<T> = hashbrown::HashSet<T, RandomState>;

/// Creates hashers with a seed of this process.
#[derive(Clone, Debug)]
pub(crate) struct RandomState(SeedableRandomState);

impl Default for RandomState {
    fn default() -> RandomState {
        // Two threads may both create a seed. Both then use the first that is stored.
        static SEED: OnceBox<(u64, SharedSeed)> = OnceBox::new();
        let (seed, shared) = SEED.get_or_init(|| {
            let random = std::hash::RandomState::new();
            Box::new((random.hash_one(0), SharedSeed::from_u64(random.hash_one(1))))
        });
        RandomState(SeedableRandomState::with_seed(*seed, shared))
    }
}

impl BuildHasher for RandomState {
    type Hasher = FoldHasher<'static>;

    #[inline]
    fn build_hasher(&self) -> FoldHasher<'static> {
        self.0.build_hasher()
    }
}
