//! Keys of samples (name and labels), each with a value.

use std::hash::BuildHasher as _;

use hashbrown::{DefaultHashBuilder, HashTable};
use pmapi::Type;

/// Use of the samples with a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// Samples with the key are not exported.
    Excluded,
    Slot {
        slot: u32,
        ty: Type,
        metric: u16,
    },
}

/// Keys with their values, numbered from 0. The keys of a document are adjacent in memory, so the next key is in the
/// processor's cache when it is compared.
#[derive(Debug)]
pub(crate) struct Keys<T> {
    text: String,
    entries: Vec<Entry<T>>,
    /// Numbers by the hashes of the keys.
    numbers: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

/// A key, as its position in the text, and its value.
#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    start: u32,
    len: u32,
    value: T,
}

impl<T: Copy> Keys<T> {
    pub(crate) fn new() -> Keys<T> {
        Keys {
            text: String::new(),
            entries: Vec::new(),
            numbers: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the memory for a key, in bytes: its text, its entry, its number, and its place in the order of samples.
    pub(crate) fn bytes_of(key: &str) -> usize {
        key.len() + size_of::<Entry<T>>() + 4 * size_of::<u32>()
    }

    /// Returns the memory for all keys, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len() + self.entries.len() * Keys::<T>::bytes_of("")
    }

    /// Returns the key with a number, and the key's value.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<(&str, T)> {
        let Entry { start, len, value } = *self.entries.get(number as usize)?;
        Some((self.text.get(start as usize..start as usize + len as usize)?, value))
    }

    /// Returns the number of a key.
    pub(crate) fn find(&self, key: &str) -> Option<u32> {
        self.numbers
            .find(self.hasher.hash_one(key), |number| self.get(*number).is_some_and(|(known, _)| known == key))
            .copied()
    }

    /// Adds a new key, and returns its number.
    pub(crate) fn add(&mut self, key: &str, value: T) -> u32 {
        let number = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        // A key beyond 4 GiB is not found again, and its sample is parsed each time.
        let start = u32::try_from(self.text.len()).unwrap_or(u32::MAX);
        let len = u32::try_from(key.len()).unwrap_or(0);
        self.entries.push(Entry { start, len, value });
        self.text.push_str(key);
        let mut numbers = std::mem::take(&mut self.numbers);
        numbers.insert_unique(self.hasher.hash_one(key), number, |number| {
            self.hasher.hash_one(self.get(*number).map_or("", |(key, _)| key))
        });
        self.numbers = numbers;
        number
    }

    /// Removes all keys except those with these numbers. The remaining keys get new numbers, which replace the old ones
    /// in `numbers`.
    pub(crate) fn keep(&mut self, numbers: &mut [u32]) {
        let before = std::mem::replace(self, Keys::new());
        for number in numbers {
            let Some((key, value)) = before.get(*number) else { continue };
            *number = self.find(key).unwrap_or_else(|| self.add(key, value));
        }
    }

    /// Replaces all values, and removes the keys without a new one. The remaining keys get new numbers, which replace the
    /// old ones in `numbers`.
    pub(crate) fn replace(&mut self, numbers: &mut Vec<u32>, value: impl Fn(T) -> Option<T>) {
        let before = std::mem::replace(self, Keys::new());
        let mut new = vec![u32::MAX; before.len()];
        for (number, new) in (0..).zip(&mut new) {
            let Some((key, old)) = before.get(number) else { continue };
            if let Some(value) = value(old) {
                *new = self.add(key, value);
            }
        }
        numbers.retain_mut(|number| {
            *number = new.get(*number as usize).copied().unwrap_or(u32::MAX);
            *number != u32::MAX
        });
    }

    /// Gives back memory that is not needed.
    pub(crate) fn shrink(&mut self) {
        self.text.shrink_to_fit();
        self.entries.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_and_forgotten() {
        let mut keys = Keys::new();
        for n in 0..1000 {
            assert_eq!(keys.add(&format!("key{n}"), n), n);
        }
        assert!((0..1000).all(|n| keys.find(&format!("key{n}")) == Some(n)));
        assert_eq!((keys.find("key"), keys.get(7)), (None, Some(("key7", 7))));
        let mut order = [5, 999, 5, 0];
        keys.keep(&mut order);
        assert_eq!((order, keys.len()), ([0, 1, 0, 2], 3));
        assert_eq!((keys.find("key999"), keys.get(1), keys.find("key7")), (Some(1), Some(("key999", 999)), None));
        let mut order = vec![1, 0, 2, 1, 0];
        keys.replace(&mut order, |value| (value != 5).then_some(value + 1));
        assert_eq!((order, keys.len(), keys.bytes() > 0), (vec![0, 1, 0], 2, true));
        assert_eq!((keys.find("key5"), keys.get(0), keys.get(1)), (None, Some(("key999", 1000)), Some(("key0", 1))));
    }
}
