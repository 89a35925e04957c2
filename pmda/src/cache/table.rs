//! The entries of an instance domain in memory.

use std::collections::BTreeMap;
use std::hash::BuildHasher as _;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::indom::key;

/// Entries by number and by name.
///
/// What a fetch needs of the entries stands side by side, in the order of their numbers as long as
/// these ascend, which they do unless an agent chooses them: then going through all is going
/// through memory, and a number is found at its own place.
#[derive(Debug)]
pub(super) struct Table<T> {
    values: Vec<Numbered<T>>,
    /// The rest of each entry, at the same place.
    entries: Vec<Entry>,
    /// The place of each number, since numbers ceased to ascend.
    sorted: Option<BTreeMap<u32, usize>>,
    /// The place of each name, up to the first space.
    names: HashTable<usize>,
    hasher: DefaultHashBuilder,
}

#[derive(Debug)]
pub(super) struct Numbered<T> {
    pub(super) number: u32,
    /// Of an active instance.
    pub(super) value: Option<T>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Box<str>,
    /// Seconds since the epoch when the instance was last seen; 0 until the file is written.
    pub(super) stamp: u64,
    /// What the number was made from, if it was (pmdaCacheStoreKey(3)).
    pub(super) hint: Box<[u8]>,
}

impl<T> Table<T> {
    pub(super) fn new() -> Self {
        Table {
            values: Vec::new(),
            entries: Vec::new(),
            sorted: None,
            names: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// The largest number.
    pub(super) fn last(&self) -> Option<u32> {
        match &self.sorted {
            None => self.values.last().map(|v| v.number),
            Some(sorted) => sorted.keys().next_back().copied(),
        }
    }

    /// The place of a number.
    pub(super) fn place(&self, number: u32) -> Option<usize> {
        if let Some(sorted) = &self.sorted {
            return sorted.get(&number).copied();
        }
        // Numbers that have no gap are their own places.
        match self.values.get(number as usize) {
            Some(v) if v.number == number => Some(number as usize),
            _ => self.values.binary_search_by_key(&number, |v| v.number).ok(),
        }
    }

    /// The place of a name, compared up to the first space.
    pub(super) fn named(&self, name: &str) -> Option<usize> {
        let same = |&at: &usize| self.entry(at).is_some_and(|e| key(&e.name) == key(name));
        self.names.find(self.hasher.hash_one(key(name)), same).copied()
    }

    pub(super) fn value(&self, at: usize) -> Option<&Numbered<T>> {
        self.values.get(at)
    }

    pub(super) fn value_mut(&mut self, at: usize) -> Option<&mut Numbered<T>> {
        self.values.get_mut(at)
    }

    pub(super) fn entry(&self, at: usize) -> Option<&Entry> {
        self.entries.get(at)
    }

    pub(super) fn entry_mut(&mut self, at: usize) -> Option<&mut Entry> {
        self.entries.get_mut(at)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Numbered<T>> {
        self.values.iter_mut()
    }

    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut()
    }

    /// Adds an entry, not active, of a number and a name that are not there yet; its place.
    pub(super) fn insert(&mut self, number: u32, entry: Entry) -> usize {
        let at = self.len();
        if self.sorted.is_none() && self.last().is_some_and(|last| number < last) {
            self.sorted = Some(self.values.iter().map(|v| v.number).zip(0..).collect());
        }
        if let Some(sorted) = &mut self.sorted {
            sorted.insert(number, at);
        }
        let hash = |name: &str| self.hasher.hash_one(key(name));
        let rehash = |&at: &usize| self.entries.get(at).map_or(0, |e| hash(&e.name));
        self.names.insert_unique(hash(&entry.name), at, rehash);
        self.values.push(Numbered { number, value: None });
        self.entries.push(entry);
        at
    }

    /// The entries by number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Numbered<T>, &Entry)> {
        let straight = self.sorted.is_none().then(|| self.values.iter().zip(&self.entries));
        let places = self.sorted.iter().flat_map(BTreeMap::values);
        let sorted = places.filter_map(|&at| self.values.get(at).zip(self.entries.get(at)));
        straight.into_iter().flatten().chain(sorted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(name: &str) -> Entry {
        Entry { name: name.into(), stamp: 0, hint: Box::default() }
    }

    proptest! {
        #[test]
        fn any_order_of_numbers(numbers in prop::collection::hash_set(0..300u32, 0..100), ascending in any::<bool>()) {
            let mut inserted: Vec<u32> = numbers.iter().copied().collect();
            if ascending {
                inserted.sort_unstable();
            }
            let mut table = Table::new();
            for (at, &number) in inserted.iter().enumerate() {
                prop_assert_eq!(table.insert(number, entry(&format!("n{number} x"))), at);
                table.value_mut(at).unwrap().value = Some(number);
            }
            let mut sorted = inserted.clone();
            sorted.sort_unstable();
            prop_assert_eq!(table.last(), sorted.last().copied());
            let listed: Vec<(u32, String)> = table.iter().map(|(v, e)| (v.number, e.name.to_string())).collect();
            prop_assert_eq!(listed, sorted.iter().map(|n| (*n, format!("n{n} x"))).collect::<Vec<_>>());
            for number in 0..301 {
                let at = inserted.iter().position(|n| *n == number);
                prop_assert_eq!(table.place(number), at);
                prop_assert_eq!(table.named(&format!("n{number}")), at);
            }
        }
    }
}
