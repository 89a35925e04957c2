//! Instance domains that change while an agent runs (pmdaCache(3)).

use std::fmt;
use std::hash::BuildHasher as _;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use pmapi::names::instance_key;
use pmapi::{Config, InDom, Inst};

use crate::indom::Instances;

mod error;
mod file;

#[cfg(test)]
mod tests;

pub use error::{CacheError, CacheFileError};
use file::{Head, MAX};

/// An instance domain that gives each name a number and keeps it, over restarts in PCP's own file format.
///
/// An instance is active or hidden. Clients do not see a hidden instance, but its number and its value stay. The part
/// of a name before its first space identifies the instance.
///
/// | in C | here |
/// |---|---|
/// | `pmdaCacheStore` with `PMDA_CACHE_ADD`, `_HIDE`, `_CULL` | [`Cache::store`], [`Cache::hide`], [`Cache::cull`] |
/// | `pmdaCacheStoreKey` | [`Cache::store_key`] |
/// | `pmdaCacheLookup`, `pmdaCacheLookupName`, `pmdaCacheLookupKey` | [`Cache::instance`], [`Cache::named`], [`Cache::keyed`]; of active instances [`Cache::get`] |
/// | `PMDA_CACHE_ACTIVE`, `_INACTIVE`, `_CULL` | [`Cache::activate_all`], [`Cache::hide_all`], [`Cache::cull_all`] |
/// | `pmdaCachePurge`, `pmdaCachePurgeCallback` | [`Cache::purge`]: values are dropped |
/// | `PMDA_CACHE_WALK_REWIND` and `_WALK_NEXT` | [`Cache::active`], and of all instances [`Cache::all`] |
/// | `PMDA_CACHE_SIZE`, `_SIZE_ACTIVE`, `_SIZE_INACTIVE` | [`Cache::len`], [`Cache::active_len`], their difference |
/// | `PMDA_CACHE_REUSE`, `pmdaCacheResize` | [`Cache::reuse_numbers`], [`Cache::resize`] |
/// | `PMDA_CACHE_LOAD` | [`Cache::persistent`], [`Cache::load`] |
/// | `PMDA_CACHE_SAVE`, `_SYNC`, `_WRITE` | [`Cache::save`], [`Cache::sync`], [`Cache::write`] |
/// | `PMDA_CACHE_STRINGS` | [`Cache::whole_names`] |
/// | `PMDA_CACHE_DUMP` | [`Cache::dump`] |
/// | `PMDA_CACHE_CHECK`, `_REORG`, `_DUMP_ALL` | not needed: a cache is a value, and keeps itself in order |
///
/// Operations on one instance take about the same time, however many instances there are.
///
/// An agent whose instances are the files of a directory:
///
/// ```
/// use pmda::prelude::*;
///
/// const FILE: Serial = Serial::new(0);
///
/// struct Files {
///     sizes: Cache<u64>,
/// }
///
/// impl Agent for Files {
///     const NAME: &'static str = "files";
///     const DOMAIN: u16 = 400;
///
///     fn new(setup: &mut Setup) -> Result<Self, BoxError> {
///         setup.indom(FILE).help("Files", "The files of the agent's directory.");
///         let size = setup.metric("files.size", Item::new(0, 0), Type::U64).indom(FILE).units(Units::BYTES);
///         size.help("Size of a file", "In bytes.");
///         Ok(Files { sizes: setup.cache(FILE) })
///     }
///
///     fn instances(&self, _: Serial) -> Option<&dyn Instances> {
///         Some(&self.sizes)
///     }
///
///     // Not for every request: a client that asks for names has numbers from an earlier answer.
///     fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
///         if matches!(request, Request::Fetch(_)) || self.sizes.is_empty() {
///             self.sizes.hide_all();
///             for file in std::fs::read_dir(".")?.flatten() {
///                 let size = file.metadata().map_or(0, |file| file.len());
///                 // A file of the same name gets the number that it had before.
///                 self.sizes.store(&file.file_name().to_string_lossy(), size)?;
///             }
///         }
///         Ok(())
///     }
///
///     fn fetch(&mut self, _: Item, out: &mut Values<'_>) -> Result {
///         out.put_each(&self.sizes, |size| *size)
///     }
/// }
///
/// let mut files = pcp_collector::Local::<Files>::collector()?;
/// let size = files.metric("files.size")?;
/// assert!(files.values(size)?.iter().count() > 1);
/// # Ok::<(), pmda::BoxError>(())
/// ```
#[derive(Debug)]
pub struct Cache<T> {
    indom: InDom,
    /// Path of the file.
    path: PathBuf,
    /// Whether the file is read and written.
    is_persistent: bool,
    table: Table<T>,
    active: usize,
    head: Head,
    /// Instances have been added or removed since the file was read or written.
    changed: bool,
    /// Instances have been stored, or the head has changed, since the file was read or written.
    touched: bool,
    /// The file has lines that could not be read. It is kept when a new one is written.
    damaged: bool,
    /// Longest file that is written, in bytes.
    longest: u64,
}

/// An instance of a [`Cache`], active or hidden.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CacheInstance<'a, T> {
    /// Number of the instance.
    pub inst: Inst,
    /// Name of the instance.
    pub name: &'a str,
    /// Key from which the number was made, see [`Cache::store_key`]. Empty if there is none.
    pub key: &'a [u8],
    /// Value; `None` while the instance comes from the file and has not been stored.
    pub value: Option<&'a T>,
    /// Whether clients see the instance.
    pub is_active: bool,
}

/// Creation, and allocation of numbers.
impl<T> Cache<T> {
    /// Creates a cache that is kept in memory only. [`Setup::cache`](crate::Setup::cache) creates that of an agent's
    /// domain; `config` locates the file of a [persistent](Cache::persistent) one.
    #[must_use]
    pub fn new(indom: InDom, config: &Config) -> Self {
        Cache {
            indom,
            path: config.var_dir().join("config/pmda").join(indom.to_string()),
            is_persistent: false,
            table: Table::default(),
            active: 0,
            head: Head::default(),
            changed: false,
            touched: false,
            damaged: false,
            longest: file::LONGEST,
        }
    }

    /// Makes whole names identify instances, and not only their part before the first space. A name may then be empty,
    /// or begin with a space (`PMDA_CACHE_STRINGS`). Use it for names with spaces, such as paths.
    ///
    /// This comes before any instance is stored: instances are dropped, and those of the file are read again.
    #[must_use]
    pub fn whole_names(self) -> Self {
        let table = Table { whole_names: true, ..Table::default() };
        let whole = Cache { table, active: 0, head: Head::default(), damaged: false, ..self };
        if whole.is_persistent { whole.persistent() } else { whole }
    }

    /// Opens the file of the cache, `$PCP_VAR_DIR/config/pmda/DOMAIN.SERIAL`, so that instances keep their numbers over
    /// restarts. Instances of the file are hidden until they are stored (`PMDA_CACHE_LOAD`). Errors in the file are
    /// logged. [`Cache::save`] writes the file.
    #[must_use]
    pub fn persistent(mut self) -> Self {
        self.is_persistent = true;
        if let Err(e) = self.load() {
            tracing::error!("instance cache: {e}");
        }
        self
    }

    /// Returns the path of the file, unless the cache is kept in memory only.
    fn file(&self) -> Option<PathBuf> {
        self.is_persistent.then(|| self.path.clone())
    }

    /// Gives new instances the lowest free number, instead of the one after the last (`PMDA_CACHE_REUSE`).
    pub fn reuse_numbers(&mut self) {
        self.touched |= !self.head.reuse;
        self.head.reuse = true;
    }

    /// Sets the largest number of an instance, at most 2³¹-1 (pmdaCacheResize(3)).
    ///
    /// # Errors
    /// [`CacheError::TooSmall`] when an instance has a larger number.
    pub fn resize(&mut self, max: u32) -> Result<(), CacheError> {
        match self.table.largest().filter(|largest| *largest > max) {
            Some(largest) => Err(CacheError::TooSmall { indom: self.indom, max, largest }),
            None => {
                self.head.max = max.min(MAX);
                self.touched = true;
                Ok(())
            }
        }
    }

    /// Returns the number after the last, or the lowest free one.
    fn free_number(&mut self) -> Result<u32, CacheError> {
        if !self.head.reuse {
            match self.table.last {
                None => return Ok(0),
                Some(last) if last < self.head.max => return Ok(last + 1),
                Some(_) => self.head.reuse = true,
            }
        }
        let free = self.table.lowest_free();
        if free <= self.head.max { Ok(free) } else { Err(CacheError::Full(self.indom)) }
    }
}

/// Storing and removing instances.
impl<T> Cache<T> {
    /// Makes an instance active, with a value (`PMDA_CACHE_ADD`). A known name keeps its number.
    ///
    /// # Errors
    /// [`CacheError::Name`] for an invalid name, [`CacheError::Clash`] when the part before the first space is that of
    /// another name, [`CacheError::Full`] when no number is free.
    pub fn store(&mut self, name: &str, value: T) -> Result<Inst, CacheError> {
        let slot = match self.find(name)? {
            Some(slot) => slot,
            None => {
                let number = self.free_number()?;
                self.add(number, name)
            }
        };
        Ok(self.put(slot, &[], value))
    }

    /// Makes an instance active, with a value and a number made from a key (pmdaCacheStoreKey(3)). A key gives the same
    /// number on every host, unless two keys collide. An empty key means the name.
    ///
    /// # Errors
    /// [`CacheError::Key`] when the name has another key or the key another name, [`CacheError::Name`] and
    /// [`CacheError::Clash`] for a bad name, [`CacheError::Full`] when all numbers for the key are taken.
    pub fn store_key(&mut self, name: &str, key: &[u8], value: T) -> Result<Inst, CacheError> {
        let key = if key.is_empty() { name.as_bytes() } else { key };
        let slot = match (self.table.named(name), self.table.keyed(key)) {
            (Some(slot), Some(same)) if slot == same => {
                self.find(name)?;
                slot
            }
            (Some(other), _) | (_, Some(other)) => {
                let other = self.table.entries[other].name.to_string();
                return Err(CacheError::Key { indom: self.indom, name: name.to_owned(), other });
            }
            (None, None) => {
                self.find(name)?;
                let mut numbers = key_numbers(key, self.head.max);
                let free = numbers.find(|number| !self.table.numbers.contains_key(number));
                let number = free.ok_or(CacheError::Full(self.indom))?;
                self.head.reuse = true;
                self.add(number, name)
            }
        };
        Ok(self.put(slot, key, value))
    }

    /// Returns the slot of a name, if the name is known.
    fn find(&self, name: &str) -> Result<Option<usize>, CacheError> {
        let strange = self.table.part(name).is_empty() || name.trim_ascii_start() != name;
        if (strange && !self.table.whole_names) || name.contains(['\n', '\0']) {
            return Err(CacheError::Name { indom: self.indom, name: name.to_owned() });
        }
        let Some(slot) = self.table.named(name) else { return Ok(None) };
        let other = &self.table.entries[slot].name;
        if **other != *name && name.contains(' ') {
            return Err(CacheError::Clash { indom: self.indom, name: name.to_owned(), other: other.to_string() });
        }
        Ok(Some(slot))
    }

    fn add(&mut self, number: u32, name: &str) -> usize {
        self.changed = true;
        self.table.insert(Entry { number, name: name.into(), ..Entry::default() })
    }

    fn put(&mut self, slot: usize, key: &[u8], value: T) -> Inst {
        self.touched = true;
        self.table.set_key(slot, key);
        self.table.entries[slot].stamp = 0;
        self.active += usize::from(self.table.states[slot].active().is_none());
        self.table.states[slot] = State::Active(value);
        inst(self.table.entries[slot].number)
    }

    /// Hides an instance (`PMDA_CACHE_HIDE`). Returns whether it was active.
    pub fn hide(&mut self, inst: Inst) -> bool {
        let hidden = self.table.slot(inst).is_some_and(|slot| self.table.states[slot].hide());
        self.active -= usize::from(hidden);
        hidden
    }

    /// Hides all instances (`PMDA_CACHE_INACTIVE`).
    pub fn hide_all(&mut self) {
        self.table.states.iter_mut().for_each(|state| _ = state.hide());
        self.active = 0;
    }

    /// Makes all hidden instances with a value active (`PMDA_CACHE_ACTIVE`), and returns their number.
    pub fn activate_all(&mut self) -> usize {
        let before = self.active;
        for state in &mut self.table.states {
            if let State::Hidden(value) = state {
                if let Some(value) = value.take() {
                    *state = State::Active(value);
                    self.active += 1;
                }
            }
        }
        self.active - before
    }

    /// Removes an instance, and returns its value (`PMDA_CACHE_CULL`). Returns `None` for an unknown instance, or one
    /// without a value.
    pub fn cull(&mut self, inst: Inst) -> Option<T> {
        let slot = self.table.slot(inst)?;
        self.active -= usize::from(self.table.states[slot].active().is_some());
        self.changed = true;
        self.table.remove(slot)
    }

    /// Removes all instances (`PMDA_CACHE_CULL` with pmdaCacheOp(3)).
    pub fn cull_all(&mut self) {
        self.cull_where(|_| true);
    }

    /// Removes the instances that have not been stored for the time `unused`, and returns their number
    /// (pmdaCachePurge(3)). Instances that have not been written to the file since they were last stored are kept.
    pub fn purge(&mut self, unused: Duration) -> usize {
        let limit = now().saturating_sub(unused.as_secs());
        self.cull_where(|entry| entry.stamp != 0 && u64::from(entry.stamp) < limit)
    }

    fn cull_where(&mut self, which: impl Fn(&Entry) -> bool) -> usize {
        let culled: Vec<Inst> = self.table.iter().filter(|(e, _)| which(e)).map(|(e, _)| inst(e.number)).collect();
        for inst in &culled {
            drop(self.cull(*inst));
        }
        culled.len()
    }
}

/// Look-ups of instances.
impl<T> Cache<T> {
    /// Returns the value of an active instance.
    pub fn get(&self, inst: Inst) -> Option<&T> {
        self.table.states[self.table.slot(inst)?].active()
    }

    /// Returns the value of an active instance, mutably.
    pub fn get_mut(&mut self, inst: Inst) -> Option<&mut T> {
        let slot = self.table.slot(inst)?;
        match &mut self.table.states[slot] {
            State::Active(value) => Some(value),
            State::Hidden(_) => None,
        }
    }

    /// Finds an active or hidden instance by its number (pmdaCacheLookup(3)).
    pub fn instance(&self, inst: Inst) -> Option<CacheInstance<'_, T>> {
        Some(self.table.instance(self.table.slot(inst)?))
    }

    /// Finds an active or hidden instance by its name, up to the first space as in C (pmdaCacheLookupName(3)).
    pub fn named(&self, name: &str) -> Option<CacheInstance<'_, T>> {
        Some(self.table.instance(self.table.named(name)?))
    }

    /// Finds an active or hidden instance by its key (pmdaCacheLookupKey(3)).
    pub fn keyed(&self, key: &[u8]) -> Option<CacheInstance<'_, T>> {
        Some(self.table.instance(self.table.keyed(key)?))
    }

    /// Iterates over the active instances, in the order of their numbers.
    pub fn active(&self) -> impl Iterator<Item = (Inst, &str, &T)> {
        self.table.iter().filter_map(|(entry, state)| Some((inst(entry.number), &*entry.name, state.active()?)))
    }

    /// Iterates over numbers and values of the active instances, in the order of their numbers.
    pub fn values(&self) -> impl Iterator<Item = (Inst, &T)> {
        let states = &self.table.states;
        let order = self.table.order().iter();
        order.filter_map(|(number, slot)| Some((inst(*number), states[*slot as usize].active()?)))
    }

    /// Iterates over all instances, active and hidden, in the order of their numbers.
    pub fn all(&self) -> impl Iterator<Item = CacheInstance<'_, T>> {
        self.table.order().iter().map(|(_, slot)| self.table.instance(*slot as usize))
    }

    /// Returns the number of active instances (`PMDA_CACHE_SIZE_ACTIVE`).
    pub fn active_len(&self) -> usize {
        self.active
    }

    /// Returns the number of instances, active and hidden (`PMDA_CACHE_SIZE`).
    pub fn len(&self) -> usize {
        self.table.numbers.len()
    }

    /// Returns whether there are no instances, active or hidden.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a description of the domain and of each instance for display, one line each (`PMDA_CACHE_DUMP`).
    pub fn dump(&self) -> impl fmt::Display {
        Dump(self)
    }
}

/// Returns the seconds since the epoch.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// Converts a number of the table, which is at most 2³¹-1.
fn inst(number: u32) -> Inst {
    Inst::from_word(number).unwrap_or(Inst::new(0))
}

impl<T> Instances for Cache<T> {
    fn each<'a>(&'a self, f: &mut dyn FnMut(Inst, &'a str)) {
        self.active().for_each(|(inst, name, _)| f(inst, name));
    }

    fn name(&self, inst: Inst) -> Option<&str> {
        self.instance(inst).filter(|instance| instance.is_active).map(|instance| instance.name)
    }

    fn lookup(&self, name: &str) -> Option<Inst> {
        self.named(name).filter(|instance| instance.is_active).map(|instance| instance.inst)
    }
}

/// A description for display.
struct Dump<'a, T>(&'a Cache<T>);

impl<T> fmt::Display for Dump<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Dump(cache) = self;
        let Head { reuse, max } = cache.head;
        let numbers = if reuse { "lowest free" } else { "next" };
        write!(f, "instance domain {}: {} instances, {} active, ", cache.indom, cache.len(), cache.active)?;
        writeln!(f, "{numbers} number up to {max}")?;
        cache.all().try_for_each(|i| {
            let state = if i.is_active { "active" } else { "hidden" };
            write!(f, "{:>10} {state} {}", i.inst, i.name)?;
            if !i.key.is_empty() {
                f.write_str(" key ")?;
                i.key.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
            }
            writeln!(f)
        })
    }
}

/// The instances of a cache, found by number, name and key.
///
/// Each instance has a slot. Names and the rest are apart from the states, so that a fetch, which reads the states alone,
/// passes over less memory.
#[derive(Debug)]
struct Table<T> {
    /// Slots by the numbers of their instances. Other slots are free.
    numbers: HashMap<u32, u32>,
    /// Numbers in their order, each with its slot. Made by the first walk, and kept while new numbers are the largest.
    order: OnceLock<Vec<(u32, u32)>>,
    states: Vec<State<T>>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// Slots by the parts of names that identify instances.
    names: HashTable<u32>,
    /// Slots by key, of instances that have one.
    keys: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Largest number that has ever been used.
    last: Option<u32>,
    /// All numbers below this one are in use.
    lowest: u32,
    /// Whole names identify instances, not only their part before the first space.
    whole_names: bool,
}

/// An instance without its state.
#[derive(Debug)]
struct Entry {
    /// [`FREE`] for a free slot.
    number: u32,
    /// Seconds since the epoch when the instance was last seen; 0 until the file is written.
    stamp: u32,
    name: Box<str>,
    /// Key from which the number was made (pmdaCacheStoreKey(3)). Empty if there is none.
    key: Box<[u8]>,
}

/// No number of an instance.
const FREE: u32 = u32::MAX;

/// Number of slots that are kept whether they are in use or not.
const FEW: usize = 64;

impl Default for Entry {
    fn default() -> Entry {
        Entry { number: FREE, stamp: 0, name: Box::default(), key: Box::default() }
    }
}

#[derive(Debug)]
enum State<T> {
    Active(T),
    /// Inactive. An instance that was loaded from a file has no value yet.
    Hidden(Option<T>),
}

impl<T> State<T> {
    fn active(&self) -> Option<&T> {
        match self {
            State::Active(value) => Some(value),
            State::Hidden(_) => None,
        }
    }

    /// Hides an active instance, and returns whether it was active.
    fn hide(&mut self) -> bool {
        let is_active = self.active().is_some();
        if is_active {
            *self = State::Hidden(self.take());
        }
        is_active
    }

    /// Removes the value, and hides the instance.
    fn take(&mut self) -> Option<T> {
        match std::mem::replace(self, State::Hidden(None)) {
            State::Active(value) => Some(value),
            State::Hidden(value) => value,
        }
    }
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table {
            numbers: HashMap::new(),
            order: OnceLock::new(),
            states: Vec::new(),
            entries: Vec::new(),
            free: Vec::new(),
            names: HashTable::new(),
            keys: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            last: None,
            lowest: 0,
            whole_names: false,
        }
    }
}

impl<T> Table<T> {
    /// Returns the part of a name that identifies the instance.
    fn part<'n>(&self, name: &'n str) -> &'n str {
        part(name, self.whole_names)
    }

    fn slot(&self, inst: Inst) -> Option<usize> {
        self.numbers.get(&inst.word()).map(|slot| *slot as usize)
    }

    /// Returns the slot of a name, compared by its identifying part.
    fn named(&self, name: &str) -> Option<usize> {
        let part = self.part(name);
        let is_it = |slot: &u32| self.part(&self.entries[*slot as usize].name) == part;
        self.names.find(self.hasher.hash_one(part), is_it).map(|slot| *slot as usize)
    }

    fn keyed(&self, key: &[u8]) -> Option<usize> {
        let is_it = |slot: &u32| *self.entries[*slot as usize].key == *key;
        self.keys.find(self.hasher.hash_one(key), is_it).map(|slot| *slot as usize)
    }

    fn instance(&self, slot: usize) -> CacheInstance<'_, T> {
        let (entry, state) = (&self.entries[slot], &self.states[slot]);
        let value = match state {
            State::Active(value) => Some(value),
            State::Hidden(value) => value.as_ref(),
        };
        let is_active = state.active().is_some();
        CacheInstance { inst: inst(entry.number), name: &entry.name, key: &entry.key, value, is_active }
    }

    /// Returns the numbers in their order, each with its slot.
    fn order(&self) -> &[(u32, u32)] {
        self.order.get_or_init(|| {
            let numbers = self.entries.iter().map(|entry| entry.number);
            let mut order: Vec<_> = numbers.zip(0..).filter(|(number, _)| *number != FREE).collect();
            // Most numbers ascend already, which a stable sort makes use of.
            order.sort_by_key(|(number, _)| *number);
            order
        })
    }

    /// Returns the largest number in use.
    fn largest(&self) -> Option<u32> {
        self.order().last().map(|(number, _)| *number)
    }

    /// Iterates over the instances in the order of their numbers.
    fn iter(&self) -> impl Iterator<Item = (&Entry, &State<T>)> {
        self.order().iter().map(|(_, slot)| (&self.entries[*slot as usize], &self.states[*slot as usize]))
    }

    /// Returns the lowest free number.
    fn lowest_free(&mut self) -> u32 {
        while self.numbers.contains_key(&self.lowest) {
            self.lowest += 1;
        }
        self.lowest
    }

    /// Adds a hidden instance without a value, and returns its slot. Number, name and key must not be in use.
    fn insert(&mut self, entry: Entry) -> usize {
        let is_largest = self.last < Some(entry.number);
        self.last = self.last.max(Some(entry.number));
        let slot = self.free.pop().unwrap_or_else(|| {
            self.states.push(State::Hidden(None));
            self.entries.push(Entry::default());
            // There are at most 2^31 numbers.
            (self.entries.len() - 1) as u32
        });
        match self.order.get_mut() {
            Some(order) if is_largest => order.push((entry.number, slot)),
            _ => _ = self.order.take(),
        }
        self.numbers.insert(entry.number, slot);
        self.entries[slot as usize] = entry;
        self.insert_name(slot);
        self.insert_key(slot);
        slot as usize
    }

    fn insert_name(&mut self, slot: u32) {
        let Table { names, entries, hasher, whole_names, .. } = self;
        let hash = |slot: &u32| hasher.hash_one(part(&entries[*slot as usize].name, *whole_names));
        names.insert_unique(hash(&slot), slot, hash);
    }

    fn insert_key(&mut self, slot: u32) {
        let Table { keys, entries, hasher, .. } = self;
        let hash = |slot: &u32| hasher.hash_one(&entries[*slot as usize].key);
        if !entries[slot as usize].key.is_empty() {
            keys.insert_unique(hash(&slot), slot, hash);
        }
    }

    /// Sets the key of an instance.
    fn set_key(&mut self, slot: usize, key: &[u8]) {
        if *self.entries[slot].key != *key {
            remove(&mut self.keys, self.hasher.hash_one(&self.entries[slot].key), slot);
            self.entries[slot].key = key.into();
            self.insert_key(slot as u32);
        }
    }

    /// Removes an instance, and returns its value.
    fn remove(&mut self, slot: usize) -> Option<T> {
        let Entry { number, name, key, .. } = std::mem::take(&mut self.entries[slot]);
        self.order.take();
        let part = self.hasher.hash_one(self.part(&name));
        remove(&mut self.names, part, slot);
        remove(&mut self.keys, self.hasher.hash_one(&key), slot);
        self.numbers.remove(&number);
        self.free.push(slot as u32);
        self.lowest = self.lowest.min(number);
        let value = self.states[slot].take();
        if self.entries.len() > FEW && self.numbers.len() < self.entries.len() / 4 {
            self.drop_free();
        }
        value
    }

    /// Gives back the memory of the free slots: memory and walks are those of the instances that there are, not of the
    /// most that there ever were. Slots change.
    fn drop_free(&mut self) {
        let slots = std::mem::take(&mut self.entries).into_iter().zip(std::mem::take(&mut self.states));
        (self.entries, self.states) = slots.filter(|(entry, _)| entry.number != FREE).unzip();
        (self.free, self.order) = (Vec::new(), OnceLock::new());
        self.numbers = self.entries.iter().map(|entry| entry.number).zip(0..).collect();
        (self.names, self.keys) = (HashTable::new(), HashTable::new());
        for slot in 0..self.entries.len() as u32 {
            self.insert_name(slot);
            self.insert_key(slot);
        }
    }
}

fn part(name: &str, is_whole: bool) -> &str {
    if is_whole { name } else { instance_key(name) }
}

fn remove(slots: &mut HashTable<u32>, hash: u64, slot: usize) {
    if let Ok(entry) = slots.find_entry(hash, |other| *other as usize == slot) {
        entry.remove();
    }
}

/// Returns the numbers that an instance with this key may have, in the order in which they are tried. They are hashes
/// of the key, each seeded with the previous one, scaled to 0 to `max` (pmdaCacheStoreKey(3)).
///
/// The hashes are those of `libpcp_pmda`, so that an instance has the same number in C and here.
fn key_numbers(key: &[u8], max: u32) -> impl Iterator<Item = u32> {
    let seeds = std::iter::successors(Some(0), |seed| Some(hash(key, *seed)));
    seeds.skip(1).take(TRIES).map(move |hash| (u64::from(hash) % (u64::from(max) + 1)) as u32)
}

/// Largest number of numbers that are tried for a key.
const TRIES: usize = 10;

/// Bob Jenkins' hash of 1996, over signed bytes.
fn hash(key: &[u8], seed: u32) -> u32 {
    const GOLDEN: u32 = 0x9e37_79b9;
    let mut state = [GOLDEN, GOLDEN, seed];
    let blocks = key.chunks_exact(12);
    let rest = blocks.remainder();
    for block in blocks {
        for (i, byte) in block.iter().enumerate() {
            add(&mut state, i, *byte);
        }
        mix(&mut state);
    }
    // The lowest byte of the last word holds the length.
    state[2] = state[2].wrapping_add(key.len() as u32);
    for (i, byte) in rest.iter().enumerate() {
        add(&mut state, if i < 8 { i } else { i + 1 }, *byte);
    }
    mix(&mut state);
    state[2]
}

fn add(state: &mut [u32; 3], at: usize, byte: u8) {
    let signed = i32::from(byte as i8) as u32;
    if let Some(word) = state.get_mut(at / 4) {
        *word = word.wrapping_add(signed << (8 * (at % 4)));
    }
}

fn mix(state: &mut [u32; 3]) {
    const ROUNDS: [[u32; 3]; 3] = [[13, 8, 13], [12, 16, 5], [3, 10, 15]];
    let [mut a, mut b, mut c] = *state;
    for [to_a, to_b, to_c] in ROUNDS {
        a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> to_a);
        b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << to_b);
        c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> to_c);
    }
    *state = [a, b, c];
}
