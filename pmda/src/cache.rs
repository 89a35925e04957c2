//! Instance domains that change while an agent runs (pmdaCache(3)).

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pmapi::{Config, InDom, Inst};

use crate::indom::Instances;

mod entries;
mod error;
mod file;
mod key;
mod saved;
mod table;
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

#[cfg(test)]
mod tests;

use entries::Entry;
pub use error::CacheError;
pub use file::CacheFileError;
use file::{Head, MAX};
use table::{State, Table};

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
/// | `PMDA_CACHE_REUSE`, `pmdaCacheResize` | [`Cache::reuse`], [`Cache::resize`] |
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
///     fn new(setup: &mut Setup) -> Start<Self> {
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
/// # Ok::<(), pmda::Failure>(())
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
            table: Table::new(false),
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
        let whole = Cache { table: Table::new(true), active: 0, head: Head::default(), damaged: false, ..self };
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
    pub fn reuse(&mut self) {
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
            match self.table.last() {
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
        let at = match self.find(name)? {
            Some(at) => at,
            None => {
                let number = self.free_number()?;
                self.add(number, name)?
            }
        };
        Ok(self.put(at, &[], value))
    }

    /// Makes an instance active, with a value and a number made from a key (pmdaCacheStoreKey(3)). A key gives the same
    /// number on every host, unless two keys collide. An empty key means the name.
    ///
    /// # Errors
    /// [`CacheError::Key`] when the name has another key or the key another name, [`CacheError::Name`] and
    /// [`CacheError::Clash`] for a bad name, [`CacheError::Full`] when all numbers for the key are taken.
    pub fn store_key(&mut self, name: &str, key: &[u8], value: T) -> Result<Inst, CacheError> {
        let key = if key.is_empty() { name.as_bytes() } else { key };
        let at = match (self.table.named(name), self.table.keyed(key)) {
            (Some(at), Some(same)) if at == same => {
                self.find(name)?;
                at
            }
            (Some(other), _) | (_, Some(other)) => {
                let other = self.table.entry(other).map_or("", |entry| entry.name);
                return Err(CacheError::Key { indom: self.indom, name: name.to_owned(), other: other.to_owned() });
            }
            (None, None) => {
                self.find(name)?;
                let mut numbers = key::numbers(key, self.head.max);
                let free = numbers.find(|number| self.table.place(*number).is_none());
                let number = free.ok_or(CacheError::Full(self.indom))?;
                self.head.reuse = true;
                self.add(number, name)?
            }
        };
        Ok(self.put(at, key, value))
    }

    /// Returns the index of a name in the table, if the name is known.
    fn find(&self, name: &str) -> Result<Option<usize>, CacheError> {
        let strange = self.table.key(name).is_empty() || name.trim_ascii_start() != name;
        if (strange && !self.table.takes_any_name()) || name.contains(['\n', '\0']) {
            return Err(CacheError::Name { indom: self.indom, name: name.to_owned() });
        }
        let Some(at) = self.table.named(name) else { return Ok(None) };
        match self.table.entry(at).filter(|entry| entry.name != name && name.contains(' ')) {
            Some(entry) => {
                Err(CacheError::Clash { indom: self.indom, name: name.to_owned(), other: entry.name.to_owned() })
            }
            None => Ok(Some(at)),
        }
    }

    fn add(&mut self, number: u32, name: &str) -> Result<usize, CacheError> {
        let at = self.table.insert(number, Entry { name, ..Entry::default() }).ok_or(CacheError::Full(self.indom))?;
        self.changed = true;
        Ok(at)
    }

    fn put(&mut self, at: usize, key: &[u8], value: T) -> Inst {
        self.touched = true;
        self.table.touch(at, key);
        let number = self.table.value_mut(at).map_or(0, |instance| {
            self.active += usize::from(instance.state.active().is_none());
            instance.state = State::Active(value);
            instance.number
        });
        inst(number)
    }

    /// Hides an instance (`PMDA_CACHE_HIDE`). Returns whether it was active.
    pub fn hide(&mut self, inst: Inst) -> bool {
        let instance = self.table.place(inst.word()).and_then(|at| self.table.value_mut(at));
        let hidden = instance.is_some_and(|instance| hide(&mut instance.state));
        self.active -= usize::from(hidden);
        hidden
    }

    /// Hides all instances (`PMDA_CACHE_INACTIVE`).
    pub fn hide_all(&mut self) {
        self.table.values_mut().for_each(|instance| _ = hide(&mut instance.state));
        self.active = 0;
    }

    /// Makes all hidden instances with a value active (`PMDA_CACHE_ACTIVE`), and returns their number.
    pub fn activate_all(&mut self) -> usize {
        let before = self.active;
        for instance in self.table.values_mut() {
            let State::Hidden(value) = &mut instance.state else { continue };
            if let Some(value) = value.take() {
                instance.state = State::Active(value);
                self.active += 1;
            }
        }
        self.active - before
    }

    /// Removes an instance, and returns its value (`PMDA_CACHE_CULL`). Returns `None` for an unknown instance, or one
    /// without a value.
    pub fn cull(&mut self, inst: Inst) -> Option<T> {
        let at = self.table.place(inst.word())?;
        self.active -= usize::from(self.table.value(at)?.state.active().is_some());
        self.changed = true;
        let value = self.table.cull(at);
        self.table.compact();
        value
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

    fn cull_where(&mut self, which: impl Fn(Entry<'_>) -> bool) -> usize {
        let numbers: Vec<u32> = self.table.iter().filter(|(_, e)| which(*e)).map(|(v, _)| v.number).collect();
        for number in &numbers {
            drop(self.cull(inst(*number)));
        }
        numbers.len()
    }
}

/// Look-ups of instances.
impl<T> Cache<T> {
    /// Returns the value of an active instance.
    pub fn get(&self, inst: Inst) -> Option<&T> {
        self.table.value(self.table.place(inst.word())?)?.state.active()
    }

    /// Returns the value of an active instance, mutably.
    pub fn get_mut(&mut self, inst: Inst) -> Option<&mut T> {
        match &mut self.table.value_mut(self.table.place(inst.word())?)?.state {
            State::Active(value) => Some(value),
            _ => None,
        }
    }

    /// Finds an active or hidden instance by its number (pmdaCacheLookup(3)).
    pub fn instance(&self, inst: Inst) -> Option<CacheInstance<'_, T>> {
        self.at(self.table.place(inst.word())?)
    }

    /// Finds an active or hidden instance by its name, up to the first space as in C (pmdaCacheLookupName(3)).
    pub fn named(&self, name: &str) -> Option<CacheInstance<'_, T>> {
        self.at(self.table.named(name)?)
    }

    /// Finds an active or hidden instance by its key (pmdaCacheLookupKey(3)).
    pub fn keyed(&self, key: &[u8]) -> Option<CacheInstance<'_, T>> {
        self.at(self.table.keyed(key)?)
    }

    /// Iterates over the active instances, in the order of their numbers.
    pub fn active(&self) -> impl Iterator<Item = (Inst, &str, &T)> {
        self.table.slots().filter_map(|(v, e)| Some((Inst::from_word(v.number)?, e.name, v.state.active()?)))
    }

    /// Iterates over numbers and values of the active instances, in the order of their numbers.
    pub fn values(&self) -> impl Iterator<Item = (Inst, &T)> {
        self.table.values().filter_map(|v| Some((Inst::from_word(v.number)?, v.state.active()?)))
    }

    /// Iterates over all instances, active and hidden, in the order of their numbers.
    pub fn all(&self) -> impl Iterator<Item = CacheInstance<'_, T>> {
        self.table.iter().map(|(v, e)| instance(v, e))
    }

    /// Returns the number of active instances (`PMDA_CACHE_SIZE_ACTIVE`).
    pub fn active_len(&self) -> usize {
        self.active
    }

    /// Returns the number of instances, active and hidden (`PMDA_CACHE_SIZE`).
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether there are no instances, active or hidden.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a description of the domain and of each instance for display, one line each (`PMDA_CACHE_DUMP`).
    pub fn dump(&self) -> impl fmt::Display {
        Dump(self)
    }

    fn at(&self, at: usize) -> Option<CacheInstance<'_, T>> {
        Some(instance(self.table.value(at)?, self.table.entry(at)?))
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

fn instance<'a, T>(numbered: &'a table::Numbered<T>, entry: Entry<'a>) -> CacheInstance<'a, T> {
    CacheInstance {
        inst: inst(numbered.number),
        name: entry.name,
        key: entry.key,
        value: numbered.state.value(),
        is_active: numbered.state.active().is_some(),
    }
}

/// Hides an active instance, and returns whether it was active.
fn hide<T>(state: &mut State<T>) -> bool {
    let active = state.active().is_some();
    if active {
        *state = State::Hidden(state.take());
    }
    active
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
