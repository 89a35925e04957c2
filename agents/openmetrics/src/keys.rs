//! The keys of samples, and what became of each of them.

use std::hash::BuildHasher as _;

use hashbrown::{DefaultHashBuilder, HashTable};

/// Keys with values of a type, by numbers from 0 on.
#[derive(Debug)]
pub(crate) struct Keys<T> {
    entries: Vec<(Box<str>, T)>,
    /// Numbers by the hashes of the keys.
    numbers: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl<T: Copy> Keys<T> {
    pub(crate) fn new() -> Keys<T> {
        Keys { entries: Vec::new(), numbers: HashTable::new(), hasher: DefaultHashBuilder::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the key with a number, and its value.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<(&str, T)> {
        self.entries.get(number as usize).map(|(key, value)| (&**key, *value))
    }

    /// Returns the number of a key.
    pub(crate) fn find(&self, key: &str) -> Option<u32> {
        let is_key = |number: &u32| self.get(*number).is_some_and(|(known, _)| known == key);
        self.numbers.find(self.hasher.hash_one(key), is_key).copied()
    }

    /// Adds a key that is new, and returns its number.
    pub(crate) fn add(&mut self, key: &str, value: T) -> u32 {
        let number = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        self.entries.push((key.into(), value));
        let Keys { entries, numbers, hasher } = self;
        let hash_of = |number: &u32| hasher.hash_one(entries.get(*number as usize).map_or("", |(key, _)| key));
        numbers.insert_unique(hasher.hash_one(key), number, hash_of);
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
