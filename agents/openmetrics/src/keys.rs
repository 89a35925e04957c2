//! Keys of samples (name and labels), each with a value of the caller's.

use std::hash::BuildHasher as _;

use hashbrown::{DefaultHashBuilder, HashTable};

/// Keys with values of a type, by numbers from 0 on. The keys of a document stand one behind the other, so that the
/// processor has the next one in its cache when it is compared.
#[derive(Debug)]
pub(crate) struct Keys<T> {
    text: String,
    entries: Vec<Entry<T>>,
    /// Numbers by the hashes of the keys.
    numbers: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

/// A key by its place in the text.
#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    start: usize,
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

    /// Returns the key with a number, and its value.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<(&str, T)> {
        let Entry { start, len, value } = *self.entries.get(number as usize)?;
        Some((self.text.get(start..start + len as usize)?, value))
    }

    /// Returns the number of a key.
    pub(crate) fn find(&self, key: &str) -> Option<u32> {
        let is_key = |number: &u32| self.get(*number).is_some_and(|(known, _)| known == key);
        self.numbers.find(self.hasher.hash_one(key), is_key).copied()
    }

    /// Adds a key that is new, and returns its number.
    pub(crate) fn add(&mut self, key: &str, value: T) -> u32 {
        let number = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        // A document, and thus a key, is shorter than 4 GiB.
        let len = u32::try_from(key.len()).unwrap_or(0);
        self.entries.push(Entry { start: self.text.len(), len, value });
        self.text.push_str(key);
        let mut numbers = std::mem::take(&mut self.numbers);
        let hash_of = |number: &u32| self.hasher.hash_one(self.get(*number).map_or("", |(key, _)| key));
        numbers.insert_unique(self.hasher.hash_one(key), number, hash_of);
        self.numbers = numbers;
        number
    }

    /// Forgets all keys but those with these numbers, which get new ones.
    pub(crate) fn keep(&mut self, numbers: &mut [u32]) {
        let before = std::mem::replace(self, Keys::new());
        for number in numbers {
            let Some((key, value)) = before.get(*number) else { continue };
            *number = self.find(key).unwrap_or_else(|| self.add(key, value));
        }
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
    }
}
