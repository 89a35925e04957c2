//! Maps from names to objects.

use std::hash::{BuildHasher, RandomState};
use std::ops::{Index, IndexMut};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// A map from names to objects, in insertion order. All names are in one allocation, because there can be many names,
/// and they are never removed.
#[derive(Debug)]
pub(crate) struct Named<T> {
    names: String,
    list: Vec<One<T>>,
    /// Indexes of the list, by name.
    index: HashTable<u32>,
    hasher: RandomState,
}

#[derive(Debug)]
struct One<T> {
    /// Offset of the name in `names`.
    start: usize,
    len: u32,
    /// Upper half of the name's hash.
    hash: u32,
    thing: T,
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        let hasher = RandomState::default();
        Named { names: String::new(), list: Vec::new(), index: HashTable::new(), hasher }
    }
}

impl<T> One<T> {
    fn name<'n>(&self, names: &'n str) -> &'n str {
        names.get(self.start..self.start + self.len as usize).unwrap_or_default()
    }
}

fn hash_of<T>(list: &[One<T>], index: u32) -> u64 {
    list.get(index as usize).map_or(0, |one| spread(one.hash))
}

/// Extends half a hash: the table uses bits of both ends.
fn spread(half: u32) -> u64 {
    u64::from(half) << 32 | u64::from(half)
}

impl<T> Named<T> {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Reserves memory for `count` more objects.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.list.reserve(count);
        let list = &self.list;
        self.index.reserve(count, |index| hash_of(list, *index));
    }

    /// Adds an object and returns its index, or `None` if the name exists.
    pub(crate) fn insert(&mut self, name: &str, thing: T) -> Option<usize> {
        let half = self.hash(name);
        let Named { names, list, index, .. } = self;
        let entry = index.entry(
            spread(half),
            |other| list.get(*other as usize).is_some_and(|one| one.name(names) == name),
            |other| hash_of(list, *other),
        );
        match entry {
            Entry::Occupied(_) => None,
            Entry::Vacant(entry) => {
                entry.insert(list.len() as u32);
                list.push(One { start: names.len(), len: name.len() as u32, hash: half, thing });
                names.push_str(name);
                Some(list.len() - 1)
            }
        }
    }

    fn hash(&self, name: &str) -> u32 {
        (self.hasher.hash_one(name) >> 32) as u32
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Returns the index of a name.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        if self.list.is_empty() {
            return None;
        }
        let found = self.index.find(spread(self.hash(name)), |index| self.name(*index as usize) == name);
        found.map(|index| *index as usize)
    }

    /// Returns the name of an index, or the empty text if there is none.
    pub(crate) fn name(&self, index: usize) -> &str {
        self.list.get(index).map_or("", |one| one.name(&self.names))
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &T)> {
        self.list.iter().map(|one| (one.name(&self.names), &one.thing))
    }
}

/// Accesses an object by the index that [`Named::insert`] returned.
impl<T> Index<usize> for Named<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        &self.list[index].thing
    }
}

impl<T> IndexMut<usize> for Named<T> {
    fn index_mut(&mut self, index: usize) -> &mut T {
        &mut self.list[index].thing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_order() {
        let mut named = Named::default();
        assert!(!named.contains("a"));
        let names: Vec<String> = (0..1000).map(|i| format!("name{i}")).collect();
        for (i, name) in names.iter().enumerate() {
            assert_eq!(named.insert(name, i), Some(i));
            assert_eq!(named.insert(name, 0), None);
        }
        named.reserve(5000);
        for (i, name) in names.iter().enumerate() {
            assert_eq!((named.find(name), named[i], named.name(i)), (Some(i), i, name.as_str()));
        }
        assert!(named.iter().eq(names.iter().map(String::as_str).zip(&(0..1000).collect::<Vec<_>>())));
        assert_eq!((named.len(), named.find("name"), named.name(1000)), (1000, None, ""));
    }
}
