//! Instance domains that change while an agent runs (pmdaCache(3)).

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pmapi::config::Config;
use pmapi::file::Dir;
use pmapi::{InDom, Inst};

use crate::indom::Instances;

mod entries;
mod error;
mod file;
mod key;
mod table;
#[cfg(test)]
mod tests;

use entries::Entry;
pub use error::CacheError;
pub use file::FileError;
use file::{Head, Line, MAX};
use table::{State, Table};

/// An instance domain that gives each name a number and keeps it, in PCP's own file also over
/// restarts.
///
/// An instance is active, or hidden: then clients do not see it, but its number and its value stay.
/// Names are told apart by their part before the first space.
///
/// | in C | here |
/// |---|---|
/// | `pmdaCacheStore` with `PMDA_CACHE_ADD`, `_HIDE`, `_CULL` | [`Cache::store`], [`Cache::hide`], [`Cache::cull`] |
/// | `pmdaCacheStoreKey` | [`Cache::store_key`] |
/// | `pmdaCacheLookup`, `pmdaCacheLookupName`, `pmdaCacheLookupKey` | [`Cache::instance`], [`Cache::named`], [`Cache::keyed`]; of active instances [`Cache::get`] |
/// | `PMDA_CACHE_ACTIVE`, `_INACTIVE`, `_CULL` | [`Cache::activate_all`], [`Cache::hide_all`], [`Cache::cull_all`] |
/// | `pmdaCachePurge`, `pmdaCachePurgeCallback` | [`Cache::purge`]: values are dropped |
/// | `PMDA_CACHE_WALK_REWIND` and `_WALK_NEXT` | [`Cache::iter`], and of all instances [`Cache::all`] |
/// | `PMDA_CACHE_SIZE`, `_SIZE_ACTIVE`, `_SIZE_INACTIVE` | [`Cache::size`], [`len`](Instances::len), their difference |
/// | `PMDA_CACHE_REUSE`, `pmdaCacheResize` | [`Cache::reuse`], [`Cache::resize`] |
/// | `PMDA_CACHE_LOAD` | [`Cache::open`], [`Cache::load`] |
/// | `PMDA_CACHE_SAVE`, `_SYNC`, `_WRITE` | [`Cache::save`], [`Cache::sync`], [`Cache::write`] |
/// | `PMDA_CACHE_STRINGS` | [`Cache::strings`] |
/// | `PMDA_CACHE_DUMP` | [`Cache::dump`] |
/// | `PMDA_CACHE_CHECK`, `_REORG`, `_DUMP_ALL` | nothing: a cache is a value, and keeps itself in order |
///
/// Whatever concerns one instance takes the same time however many there are.
#[derive(Debug)]
pub struct Cache<T> {
    indom: InDom,
    file: Option<PathBuf>,
    table: Table<T>,
    active: usize,
    head: Head,
    /// Instances have been added or removed since the file was read or written.
    changed: bool,
    /// Instances have been stored, or the head has changed, since the file was read or written.
    touched: bool,
    /// The file has lines that could not be read: it is kept when a new one is written.
    damaged: bool,
}

/// An instance of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Instance<'a, T> {
    /// Its number.
    pub inst: Inst,
    /// Its name.
    pub name: &'a str,
    /// What its number was made from, see [`Cache::store_key`]; else empty.
    pub key: &'a [u8],
    /// Its value; none as long as it comes from the file and has not been stored.
    pub value: Option<&'a T>,
    /// Whether clients see it.
    pub is_active: bool,
}

/// Making one, and its numbers.
impl<T> Cache<T> {
    /// A domain that is kept in memory only.
    pub fn new(indom: InDom) -> Self {
        Self::with(indom, Table::new(false))
    }

    /// Strings rather than instances: they are told apart as a whole, and may be empty
    /// (`PMDA_CACHE_STRINGS`).
    pub fn strings(indom: InDom) -> Self {
        Self::with(indom, Table::new(true))
    }

    fn with(indom: InDom, table: Table<T>) -> Self {
        let head = Head::default();
        Cache { indom, file: None, table, active: 0, head, changed: false, touched: false, damaged: false }
    }

    /// A domain that is kept in `$PCP_VAR_DIR/config/pmda/DOMAIN.SERIAL`: what is there is read, and
    /// hidden until it is stored (`PMDA_CACHE_LOAD`).
    ///
    /// What is wrong with the file goes into the log; see [`Cache::load`].
    pub fn open(indom: InDom, config: &Config) -> Self {
        let mut cache = Self::new(indom);
        cache.file = Some(config.var_dir().join("config/pmda").join(indom.to_string()));
        if let Err(e) = cache.load() {
            tracing::error!("instance cache: {e}");
        }
        cache
    }

    /// New instances take the lowest free number from now on, instead of the one after the last
    /// (`PMDA_CACHE_REUSE`).
    pub fn reuse(&mut self) {
        self.touched |= !self.head.reuse;
        self.head.reuse = true;
    }

    /// Numbers go up to `max` and no further, at most 2³¹-1 (pmdaCacheResize(3)).
    pub fn resize(&mut self, max: u32) -> Result<(), CacheError> {
        match self.table.largest().filter(|largest| *largest > max) {
            Some(largest) => Err(CacheError::TooSmall(self.indom, max, largest)),
            None => {
                self.head.max = max.min(MAX);
                self.touched = true;
                Ok(())
            }
        }
    }

    /// The number after the last, or the lowest free one.
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

/// Storing and removing.
impl<T> Cache<T> {
    /// Makes an instance active, with a value (`PMDA_CACHE_ADD`). A name that was there before has
    /// its number again.
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

    /// Makes an instance active, with a value, whose number comes from a key (pmdaCacheStoreKey(3)):
    /// the same key has the same number everywhere, unless two keys lead to one number. An empty key
    /// stands for the name.
    pub fn store_key(&mut self, name: &str, key: &[u8], value: T) -> Result<Inst, CacheError> {
        let key = if key.is_empty() { name.as_bytes() } else { key };
        let at = match (self.table.named(name), self.table.keyed(key)) {
            (Some(at), Some(same)) if at == same => {
                self.find(name)?;
                at
            }
            (Some(other), _) | (_, Some(other)) => {
                let other = self.table.entry(other).map_or("", |entry| entry.name);
                return Err(CacheError::Key(self.indom, name.to_owned(), other.to_owned()));
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

    /// The place of a name, if it is there.
    fn find(&self, name: &str) -> Result<Option<usize>, CacheError> {
        let strange = self.table.key(name).is_empty() || name.trim_ascii_start() != name;
        if (strange && !self.table.takes_any_name()) || name.contains(['\n', '\0']) {
            return Err(CacheError::Name(self.indom, name.to_owned()));
        }
        let Some(at) = self.table.named(name) else { return Ok(None) };
        match self.table.entry(at).filter(|entry| entry.name != name && name.contains(' ')) {
            Some(entry) => Err(CacheError::Clash(self.indom, name.to_owned(), entry.name.to_owned())),
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

    /// Hides an instance (`PMDA_CACHE_HIDE`); whether it was active.
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

    /// Makes all hidden instances active that have a value (`PMDA_CACHE_ACTIVE`); how many.
    pub fn activate_all(&mut self) -> usize {
        let before = self.active;
        for instance in self.table.values_mut() {
            if let State::Hidden(value @ Some(_)) = &mut instance.state
                && let Some(value) = value.take()
            {
                instance.state = State::Active(value);
                self.active += 1;
            }
        }
        self.active - before
    }

    /// Removes an instance (`PMDA_CACHE_CULL`). Its value comes back; `None` when there is no such
    /// instance, or it had none.
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

    /// Removes the instances that have not been stored for some time (pmdaCachePurge(3)); how many.
    /// The time is known of instances that have been in the file since they were stored last.
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

/// Looking up.
impl<T> Cache<T> {
    /// The value of an active instance.
    pub fn get(&self, inst: Inst) -> Option<&T> {
        self.table.value(self.table.place(inst.word())?)?.state.active()
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, inst: Inst) -> Option<&mut T> {
        match &mut self.table.value_mut(self.table.place(inst.word())?)?.state {
            State::Active(value) => Some(value),
            _ => None,
        }
    }

    /// The instance of a number, active or hidden (pmdaCacheLookup(3)).
    pub fn instance(&self, inst: Inst) -> Option<Instance<'_, T>> {
        self.at(self.table.place(inst.word())?)
    }

    /// The instance of a name, active or hidden (pmdaCacheLookupName(3)). As in C, what comes after
    /// the first space does not count.
    pub fn named(&self, name: &str) -> Option<Instance<'_, T>> {
        self.at(self.table.named(name)?)
    }

    /// The instance of a key, active or hidden (pmdaCacheLookupKey(3)).
    pub fn keyed(&self, key: &[u8]) -> Option<Instance<'_, T>> {
        self.at(self.table.keyed(key)?)
    }

    /// The active instances, by number.
    pub fn iter(&self) -> impl Iterator<Item = (Inst, &str, &T)> {
        self.table.slots().filter_map(|(v, e)| Some((Inst::from_word(v.number)?, e.name, v.state.active()?)))
    }

    /// Numbers and values of the active instances, by number.
    pub fn values(&self) -> impl Iterator<Item = (Inst, &T)> {
        self.table.values().filter_map(|v| Some((Inst::from_word(v.number)?, v.state.active()?)))
    }

    /// All instances, active and hidden, by number.
    pub fn all(&self) -> impl Iterator<Item = Instance<'_, T>> {
        self.table.iter().map(|(v, e)| instance(v, e))
    }

    /// How many instances there are, active and hidden (`PMDA_CACHE_SIZE`).
    pub fn size(&self) -> usize {
        self.table.len()
    }

    /// The domain and a line for each instance, to be read by people (`PMDA_CACHE_DUMP`).
    pub fn dump(&self) -> impl fmt::Display {
        fmt::from_fn(|f| {
            let Head { reuse, max } = self.head;
            let numbers = if reuse { "lowest free" } else { "next" };
            write!(f, "instance domain {}: {} instances, {} active, ", self.indom, self.size(), self.active)?;
            writeln!(f, "{numbers} number up to {max}")?;
            self.all().try_for_each(|i| {
                let state = if i.is_active { "active" } else { "hidden" };
                write!(f, "{:>10} {state} {}", i.inst, i.name)?;
                if !i.key.is_empty() {
                    f.write_str(" key ")?;
                    i.key.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                }
                writeln!(f)
            })
        })
    }

    fn at(&self, at: usize) -> Option<Instance<'_, T>> {
        Some(instance(self.table.value(at)?, self.table.entry(at)?))
    }
}

/// The file.
impl<T> Cache<T> {
    /// Reads the file again: instances that are not there yet come in, hidden (`PMDA_CACHE_LOAD`).
    /// Memory-only domains and files that do not exist have none.
    ///
    /// Of a damaged file the lines are taken that can be read, and the error tells the first of the
    /// others. The file itself stays as it is until the cache is to be written; then it is kept aside
    /// as `FILE.damaged`.
    pub fn load(&mut self) -> Result<(), FileError> {
        let Some(path) = self.file.clone() else { return Ok(()) };
        let bytes = match pmapi::file::read(&path, file::LONGEST) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            read => read.map_err(|source| FileError::Io { path: path.clone(), source })?,
        };
        // An empty file is what Install leaves for the agent.
        let mut wrong = None;
        let lines = bytes.strip_suffix(b"\n").unwrap_or(&bytes).split(|b| *b == b'\n');
        for (line, text) in (1..).zip(lines).filter(|_| !bytes.is_empty()) {
            let loaded = if line == 1 {
                Head::parse(text).map(|head| self.head = head)
            } else {
                Line::parse(text).map(|line| self.load_line(&line))
            };
            if let Err(reason) = loaded {
                self.damaged = true;
                wrong.get_or_insert_with(|| FileError::Damaged { path: path.clone(), line, reason });
                if line == 1 {
                    // What follows may mean anything.
                    break;
                }
            }
        }
        wrong.map_or(Ok(()), Err)
    }

    /// As in C, of two entries with one number or name the first stays.
    fn load_line(&mut self, line: &Line<'_>) {
        let Line { number, name, .. } = *line;
        let present = self.table.place(number).or(self.table.named(name));
        match present.and_then(|at| self.at(at)) {
            None => _ = self.table.insert(number, line.entry()),
            Some(other) if other.inst.word() == number && other.name == name => {}
            Some(other) => {
                let Instance { inst, name: first, .. } = other;
                tracing::warn!("instance cache {}: {number} {name:?} left out for {inst} {first:?}", self.indom);
            }
        }
    }

    /// Writes the file if instances have been added or removed since it was read or written
    /// (`PMDA_CACHE_SAVE`).
    pub fn save(&mut self) -> Result<(), FileError> {
        if self.changed { self.write() } else { Ok(()) }
    }

    /// Writes the file if instances have been stored since it was read or written, so that it tells
    /// when each was last seen (`PMDA_CACHE_SYNC`).
    pub fn sync(&mut self) -> Result<(), FileError> {
        if self.changed || self.touched { self.write() } else { Ok(()) }
    }

    /// Writes the file (`PMDA_CACHE_WRITE`). A memory-only domain has none.
    ///
    /// Whatever happens meanwhile, the file has the old content or the new one; when this returns, the new one is on the
    /// disk. Its directory has to be one that the agent may write to.
    ///
    /// # Errors
    /// When the directory or the file cannot be written.
    pub fn write(&mut self) -> Result<(), FileError> {
        let Some(path) = self.file.clone() else { return Ok(()) };
        // `$PCP_VAR_DIR/config/pmda`, of which PCP need not have made the last part yet. Without PCP
        // there is nobody to keep numbers for.
        if let [dir, _, var] = path.ancestors().skip(1).take(3).collect::<Vec<_>>()[..] {
            if !var.exists() {
                return Ok(());
            }
            Dir::create(dir).map_err(|source| FileError::Io { path: dir.to_owned(), source })?;
        }
        if self.damaged {
            let aside = file::keep_aside(&path).map_err(|source| FileError::Io { path: path.clone(), source })?;
            tracing::warn!("instance cache: {}: what was damaged is in {}", path.display(), aside.display());
            self.damaged = false;
        }
        let mut text = String::new();
        self.head.write(&mut text);
        let now = now();
        self.table.stamp(u32::try_from(now).unwrap_or(u32::MAX));
        self.table.iter().for_each(|(instance, entry)| entry.write(instance.number, &mut text));
        pmapi::file::replace(&path, text.as_bytes()).map_err(|source| FileError::Io { path, source })?;
        (self.changed, self.touched) = (false, false);
        Ok(())
    }
}

/// Seconds since the epoch.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// Numbers go up to 2³¹-1 at most.
fn inst(number: u32) -> Inst {
    Inst::from_word(number).unwrap_or(Inst::new(0))
}

fn instance<'a, T>(numbered: &'a table::Numbered<T>, entry: Entry<'a>) -> Instance<'a, T> {
    Instance {
        inst: inst(numbered.number),
        name: entry.name,
        key: entry.key,
        value: numbered.state.value(),
        is_active: numbered.state.active().is_some(),
    }
}

/// Whether the state was active.
fn hide<T>(state: &mut State<T>) -> bool {
    let active = state.active().is_some();
    if active {
        *state = State::Hidden(state.take());
    }
    active
}

impl<T> Instances for Cache<T> {
    fn len(&self) -> usize {
        self.active
    }

    fn each(&self, f: &mut dyn FnMut(Inst, &str)) {
        self.iter().for_each(|(inst, name, _)| f(inst, name));
    }

    fn name(&self, inst: Inst) -> Option<&str> {
        self.instance(inst).filter(|instance| instance.is_active).map(|instance| instance.name)
    }

    fn lookup(&self, name: &str) -> Option<Inst> {
        self.named(name).filter(|instance| instance.is_active).map(|instance| instance.inst)
    }
}
