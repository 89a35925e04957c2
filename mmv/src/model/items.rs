//! Items of metrics.

use crate::format::MAX_METRICS;

/// A set of items.
#[derive(Clone, Debug, Default)]
pub(super) struct Items([u64; WORDS]);

const BITS: usize = u64::BITS as usize;
const WORDS: usize = (MAX_METRICS + 1) / BITS;

impl Items {
    pub(super) fn contains(&self, item: u16) -> bool {
        self.0.get(usize::from(item) / BITS).is_some_and(|word| word & bit(item) != 0)
    }

    /// Adds an item. Returns whether it is new, and not out of range.
    pub(super) fn insert(&mut self, item: u16) -> bool {
        let Some(word) = self.0.get_mut(usize::from(item) / BITS) else { return false };
        let new = *word & bit(item) == 0;
        *word |= bit(item);
        new
    }

    /// Returns the first item outside of the set, from `start` on and then from 0, or `None` if the set has all items.
    pub(super) fn free(&self, start: u16) -> Option<u16> {
        let start = usize::from(start);
        // The word of `start` is visited twice: first for the bits from `start` on, and last for the others.
        (0..=WORDS).find_map(|n| {
            let index = (start / BITS + n) % WORDS;
            let before = if n == 0 { (1 << (start % BITS)) - 1 } else { 0 };
            let taken = self.0.get(index)? | before;
            (taken != u64::MAX).then_some((index * BITS) as u16 + taken.trailing_ones() as u16)
        })
    }
}

/// Returns the item where the search begins for a hash.
pub(super) fn start(hash: u64) -> u16 {
    (hash >> (u64::BITS - START_BITS)) as u16
}

const START_BITS: u32 = (MAX_METRICS + 1).ilog2();

/// Sorts hashes. First sorts them by their start with a counting sort, after which few have to be compared.
pub(super) fn sorted(hashes: Vec<u64>) -> Vec<u64> {
    let mut places = [0u16; MAX_METRICS + 1];
    hashes.iter().for_each(|hash| places[usize::from(start(*hash))] += 1);
    let mut end = 0;
    for count in &mut places {
        end += *count;
        *count = end - *count;
    }
    let mut sorted = vec![0; hashes.len()];
    for hash in hashes {
        let place = &mut places[usize::from(start(hash))];
        sorted[usize::from(*place)] = hash;
        *place += 1;
    }
    sorted.chunk_by_mut(|a, b| start(*a) == start(*b)).for_each(<[u64]>::sort_unstable);
    sorted
}

fn bit(item: u16) -> u64 {
    1 << (usize::from(item) % BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order() {
        let hashes: Vec<u64> = (0..1023u64).map(|n| crate::ids::hash(&(n / 2).to_string()) ^ (n % 2)).collect();
        let mut expected = hashes.clone();
        expected.sort_unstable();
        assert_eq!(sorted(hashes), expected);
        assert!(sorted(Vec::new()).is_empty());
        assert_eq!([0, u64::MAX >> 1, u64::MAX].map(start), [0, 511, 1023]);
    }

    #[test]
    fn free_items() {
        let mut items = Items::default();
        for start in [1000, 70, 70, 1023, 1023, 64] {
            let one_by_one = (start..1024).chain(0..start).find(|item| !items.contains(*item));
            let item = items.free(start).unwrap();
            assert_eq!(Some(item), one_by_one);
            assert!(items.insert(item) && !items.insert(item));
        }
        (0..1024).filter(|item| *item != 70 && *item != 69).for_each(|item| _ = items.insert(item));
        assert_eq!((items.free(71), items.free(3)), (Some(69), Some(69)));
        items.insert(69);
        assert_eq!((items.free(0), items.insert(1024), items.contains(1024)), (None, false, false));
    }
}
