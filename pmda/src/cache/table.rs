//! The entries of a cache in memory, found by number, name or key.

use std::hash::BuildHasher as _;
use std::sync::OnceLock;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::entries::{Entries, Entry};

/// The entries of a cache, with indexes by number, name and key.
///
/// `values` holds the part of the entries that a fetch reads, in a separate vector. Its index is sorted by number while
/// new numbers ascend. Then all entries are visited in the order of memory, and the index of a number is often the
/// number itself. Numbers cease to ascend when they are made from keys or are reused.
#[derive(Debug)]
pub(super) struct Table<T> {
    values: Vec<Numbered<T>>,
    /// The rest of each entry, at the same index as in `values`.
    entries: Entries,
    /// Order of the entries, after numbers have ceased to ascend.
    scattered: Option<Scattered>,
    /// Index of each name, by its identifying part.
    names: HashTable<u32>,
    /// Index of each key.
    keys: HashTable<u32>,
    hasher: DefaultHashBuilder,
    culled: usize,
    /// Largest number that has ever been used.
    last: Option<u32>,
    /// All numbers below this one are in use.
    lowest: u32,
    /// Whole names identify entries, not only their part before the first space.
    whole_names: bool,
}

#[derive(Debug, Default)]
struct Scattered {
    /// Index of each number.
    places: HashTable<u32>,
    /// Indexes sorted by number. Created at the first walk.
    order: OnceLock<Box<[u32]>>,
}

#[derive(Debug)]
pub(super) struct Numbered<T> {
    pub(super) number: u32,
    pub(super) state: State<T>,
}

#[derive(Debug)]
pub(super) enum State<T> {
    Active(T),
    /// Inactive. An instance that was loaded from a file has no value yet.
    Hidden(Option<T>),
    /// Removed; the entry awaits compaction.
    Culled,
}

impl<T> State<T> {
    pub(super) fn active(&self) -> Option<&T> {
        match self {
            State::Active(value) => Some(value),
            _ => None,
        }
    }

    pub(super) fn value(&self) -> Option<&T> {
        match self {
            State::Active(value) | State::Hidden(Some(value)) => Some(value),
            _ => None,
        }
    }

    pub(super) fn is_culled(&self) -> bool {
        matches!(self, State::Culled)
    }

    /// Removes the value, and hides the entry.
    pub(super) fn take(&mut self) -> Option<T> {
        match std::mem::replace(self, State::Hidden(None)) {
            State::Active(value) => Some(value),
            State::Hidden(value) => value,
            State::Culled => None,
        }
    }
}

impl<T> Table<T> {
    pub(super) fn new(whole_names: bool) -> Self {
        Table {
            values: Vec::new(),
            entries: Entries::default(),
            scattered: None,
            names: HashTable::new(),
            keys: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            culled: 0,
            last: None,
            lowest: 0,
            whole_names,
        }
    }

    /// Returns the number of entries, without culled ones.
    pub(super) fn len(&self) -> usize {
        self.values.len() - self.culled
    }

    /// Returns the largest number that has ever been used.
    pub(super) fn last(&self) -> Option<u32> {
        self.last
    }

    /// Returns the largest number in use.
    pub(super) fn largest(&self) -> Option<u32> {
        let live = self.values.iter().filter(|v| !v.state.is_culled());
        if self.scattered.is_some() { live.map(|v| v.number).max() } else { live.last().map(|v| v.number) }
    }

    /// Returns the lowest free number.
    pub(super) fn lowest_free(&mut self) -> u32 {
        while self.place(self.lowest).is_some() {
            self.lowest += 1;
        }
        self.lowest
    }

    /// Returns the part of a name that identifies it.
    pub(super) fn key<'n>(&self, name: &'n str) -> &'n str {
        if self.whole_names { name } else { pmapi::names::instance_key(name) }
    }

    /// Returns whether names may be any strings.
    pub(super) fn takes_any_name(&self) -> bool {
        self.whole_names
    }

    /// Returns the index of a number in use.
    pub(super) fn place(&self, number: u32) -> Option<usize> {
        match &self.scattered {
            Some(scattered) => scattered.place(&self.values, &self.hasher, number),
            None => self.straight(number).ok().filter(|at| !self.values[*at].state.is_culled()),
        }
    }

    /// Returns the index of a number, culled or not, or the index where it belongs. Valid while numbers ascend.
    fn straight(&self, number: u32) -> Result<usize, usize> {
        // Numbers without a gap equal their indexes.
        match self.values.get(number as usize) {
            Some(v) if v.number == number => Ok(number as usize),
            _ => self.values.binary_search_by_key(&number, |v| v.number),
        }
    }

    /// Returns the index of a name, compared by its identifying part.
    pub(super) fn named(&self, name: &str) -> Option<usize> {
        let key = self.key(name);
        self.names
            .find(self.hasher.hash_one(key), |&at| self.entry(at as usize).is_some_and(|e| self.key(e.name) == key))
            .map(|at| *at as usize)
    }

    /// Returns the index of a key.
    pub(super) fn keyed(&self, key: &[u8]) -> Option<usize> {
        self.keys
            .find(self.hasher.hash_one(key), |&at| self.entry(at as usize).is_some_and(|e| e.key == key))
            .map(|at| *at as usize)
    }

    pub(super) fn value(&self, at: usize) -> Option<&Numbered<T>> {
        self.values.get(at)
    }

    pub(super) fn value_mut(&mut self, at: usize) -> Option<&mut Numbered<T>> {
        self.values.get_mut(at)
    }

    pub(super) fn entry(&self, at: usize) -> Option<Entry<'_>> {
        self.entries.get(at)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Numbered<T>> {
        self.values.iter_mut()
    }

    /// Stamps the entries that have no stamp.
    pub(super) fn stamp(&mut self, now: u32) {
        self.entries.stamp(now);
    }

    /// Records that an entry has been seen, and the key of its number.
    pub(super) fn touch(&mut self, at: usize, key: &[u8]) {
        let Some(entry) = self.entries.get(at) else { return };
        if entry.key == key {
            self.entries.set_stamp(at, 0);
            return;
        }
        remove(&mut self.keys, self.hasher.hash_one(entry.key), at);
        let name = entry.name.to_owned();
        self.entries.set(at, Entry { name: &name, key, stamp: 0 });
        self.insert_key(at);
    }

    /// Adds a hidden entry without a value, and returns its index. Returns `None` when the table is full. Number and
    /// name must not be in use.
    pub(super) fn insert(&mut self, number: u32, entry: Entry<'_>) -> Option<usize> {
        if self.entries.is_full(entry) {
            return None;
        }
        self.last = self.last.max(Some(number));
        let at = self.make_place(number, entry);
        self.insert_name(at);
        self.insert_key(at);
        Some(at)
    }

    fn make_place(&mut self, number: u32, entry: Entry<'_>) -> usize {
        if self.scattered.is_none() {
            match self.straight(number) {
                Ok(at) => {
                    // The number belonged to a culled entry.
                    self.culled -= 1;
                    self.values[at].state = State::Hidden(None);
                    self.entries.set(at, entry);
                    return at;
                }
                Err(at) if at == self.values.len() => {}
                Err(_) => self.scatter(),
            }
        }
        let at = self.values.len();
        self.values.push(Numbered { number, state: State::Hidden(None) });
        self.entries.push(entry);
        if let Some(scattered) = &mut self.scattered {
            scattered.insert(&self.values, &self.hasher, at);
        }
        at
    }

    fn scatter(&mut self) {
        let mut scattered = Scattered::default();
        for (at, _) in self.values.iter().enumerate().filter(|(_, v)| !v.state.is_culled()) {
            scattered.insert(&self.values, &self.hasher, at);
        }
        self.scattered = Some(scattered);
    }

    fn insert_name(&mut self, at: usize) {
        let Some(entry) = self.entries.get(at) else { return };
        let whole = self.whole_names;
        let hash = |e: Entry<'_>| {
            let key = if whole { e.name } else { pmapi::names::instance_key(e.name) };
            self.hasher.hash_one(key)
        };
        self.names.insert_unique(hash(entry), at as u32, |&at| self.entries.get(at as usize).map_or(0, hash));
    }

    fn insert_key(&mut self, at: usize) {
        let Some(entry) = self.entries.get(at).filter(|entry| !entry.key.is_empty()) else { return };
        let hash = |e: Entry<'_>| self.hasher.hash_one(e.key);
        self.keys.insert_unique(hash(entry), at as u32, |&at| self.entries.get(at as usize).map_or(0, hash));
    }

    /// Removes an entry, and returns its value.
    pub(super) fn cull(&mut self, at: usize) -> Option<T> {
        let numbered = self.values.get_mut(at).filter(|v| !v.state.is_culled())?;
        let number = numbered.number;
        let value = numbered.state.take();
        numbered.state = State::Culled;
        self.culled += 1;
        self.lowest = self.lowest.min(number);
        let entry = self.entries.get(at)?;
        let (name, key) = (self.hasher.hash_one(self.key(entry.name)), self.hasher.hash_one(entry.key));
        remove(&mut self.names, name, at);
        remove(&mut self.keys, key, at);
        self.entries.set(at, Entry::default());
        if let Some(scattered) = &mut self.scattered {
            remove(&mut scattered.places, self.hasher.hash_one(number), at);
        }
        value
    }

    /// Frees the memory of culled entries once they are the majority. This makes all indexes invalid.
    pub(super) fn compact(&mut self) {
        if self.culled < 64 || self.culled < self.values.len() / 2 {
            return;
        }
        let entries = std::mem::take(&mut self.entries);
        let mut live: Vec<_> = std::mem::take(&mut self.values).into_iter().zip(entries.iter()).collect();
        live.retain(|(v, _)| !v.state.is_culled());
        live.sort_by_key(|(v, _)| v.number);
        let (last, lowest) = (self.last, self.lowest);
        *self = Table { last, lowest, hasher: self.hasher.clone(), ..Table::new(self.whole_names) };
        for (at, (value, entry)) in live.into_iter().enumerate() {
            self.values.push(value);
            self.entries.push(entry);
            self.insert_name(at);
            self.insert_key(at);
        }
    }

    /// Iterates over the entries in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Numbered<T>, Entry<'_>)> {
        self.slots().filter(|(v, _)| !v.state.is_culled())
    }

    /// Iterates over the entries in the order of their numbers, culled ones included.
    pub(super) fn slots(&self) -> impl Iterator<Item = (&Numbered<T>, Entry<'_>)> {
        let straight = self.scattered.is_none().then(|| self.values.iter().zip(self.entries.iter()));
        let places = self.scattered.iter().flat_map(|scattered| scattered.order(&self.values));
        let sorted = places.filter_map(|&at| self.values.get(at as usize).zip(self.entries.get(at as usize)));
        straight.into_iter().flatten().chain(sorted)
    }

    /// Iterates over numbers and states in the order of the numbers, culled ones included.
    pub(super) fn values(&self) -> impl Iterator<Item = &Numbered<T>> {
        let straight = self.scattered.is_none().then(|| self.values.iter());
        let places = self.scattered.iter().flat_map(|scattered| scattered.order(&self.values));
        let sorted = places.filter_map(|&at| self.values.get(at as usize));
        straight.into_iter().flatten().chain(sorted)
    }
}

impl Scattered {
    fn place<T>(&self, values: &[Numbered<T>], hasher: &DefaultHashBuilder, number: u32) -> Option<usize> {
        self.places
            .find(hasher.hash_one(number), |&at| values.get(at as usize).is_some_and(|v| v.number == number))
            .map(|at| *at as usize)
    }

    fn insert<T>(&mut self, values: &[Numbered<T>], hasher: &DefaultHashBuilder, at: usize) {
        let hash = |&at: &u32| values.get(at as usize).map_or(0, |v| hasher.hash_one(v.number));
        self.places.insert_unique(hash(&(at as u32)), at as u32, hash);
        self.order.take();
    }

    fn order<T>(&self, values: &[Numbered<T>]) -> &[u32] {
        self.order.get_or_init(|| {
            let mut places: Vec<u32> = self.places.iter().copied().collect();
            places.sort_unstable_by_key(|at| values.get(*at as usize).map(|v| v.number));
            places.into()
        })
    }
}

fn remove(places: &mut HashTable<u32>, hash: u64, at: usize) {
    if let Ok(entry) = places.find_entry(hash, |other| *other as usize == at) {
        entry.remove();
    }
}
