//! Instance domains that change while an agent runs (pmdaCache(3)).

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fs, str};

use pmapi::config::Config;
use pmapi::{InDom, Inst};
use thiserror::Error;

use crate::indom::{Instances, key};

mod table;

use table::{Entry, Table};

/// An instance domain that gives each name a number and keeps it, in PCP's own file also over
/// restarts.
///
/// An instance is active, with a value of the agent's, or hidden: then clients do not see it, but
/// its number stays its own. Names are told apart by their part before the first space.
#[derive(Debug)]
pub struct Cache<T> {
    indom: InDom,
    file: Option<PathBuf>,
    table: Table<T>,
    active: usize,
    head: Head,
    /// Instances have been added since the file was read or written.
    changed: bool,
}

/// The first line of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Head {
    /// New instances take the lowest free number instead of the one after the last.
    reuse: bool,
    max: u32,
}

const MAX: u32 = i32::MAX as u32;

/// Why an instance cannot be stored.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum CacheError {
    /// An empty name, or one with a newline or NUL, which the file cannot hold.
    #[error("instance domain {0}: {1:?} cannot be the name of an instance")]
    Name(InDom, String),
    /// Another instance has the same name up to the first space.
    #[error("instance domain {0}: {1:?} cannot be told from {2:?}")]
    Clash(InDom, String, String),
    /// Every number is taken.
    #[error("instance domain {0}: too many instances")]
    Full(InDom),
}

impl From<CacheError> for pmapi::Error {
    fn from(e: CacheError) -> Self {
        match e {
            CacheError::Name(..) | CacheError::Full(_) => pmapi::Error::GENERIC,
            CacheError::Clash(..) => pmapi::Error::from_errno(nix::errno::Errno::EINVAL as i32),
        }
    }
}

/// Why a cache's file cannot be used.
#[derive(Debug, Error)]
pub enum FileError {
    /// It cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is not what PCP writes.
    #[error("{}:{line}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl<T> Cache<T> {
    /// A domain that is kept in memory only.
    pub fn new(indom: InDom) -> Self {
        let head = Head { reuse: false, max: MAX };
        Cache { indom, file: None, table: Table::new(), active: 0, head, changed: false }
    }

    /// A domain that is kept in `$PCP_VAR_DIR/config/pmda/DOMAIN.SERIAL`: what is there is read, and
    /// hidden until it is stored (`PMDA_CACHE_LOAD`).
    ///
    /// A damaged file is reported in the log and moved aside to `FILE.damaged`; the domain then
    /// begins empty.
    pub fn open(indom: InDom, config: &Config) -> Self {
        let file = config.var_dir().join("config/pmda").join(indom.to_string());
        let mut cache = Self::new(indom);
        match cache.load(&file) {
            Ok(()) => {}
            Err(FileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(e) => {
                cache = Self::new(indom);
                let mut aside = file.clone().into_os_string();
                aside.push(".damaged");
                let moved = fs::rename(&file, &aside);
                let fate = if moved.is_ok() { "moved aside to .damaged" } else { "left alone and not written" };
                tracing::error!("instance cache: {e}; {fate}");
                if moved.is_err() {
                    return cache;
                }
            }
        }
        cache.file = Some(file);
        cache
    }

    /// Makes an instance active, with a value (`PMDA_CACHE_ADD`). A name that was there before has
    /// its number again.
    pub fn store(&mut self, name: &str, value: T) -> Result<Inst, CacheError> {
        if key(name).is_empty() || name.contains(['\n', '\0']) {
            return Err(CacheError::Name(self.indom, name.to_owned()));
        }
        let at = match self.table.named(name) {
            Some(at) => at,
            None => {
                let number = self.free_number()?;
                self.changed = true;
                self.table.insert(number, Entry { name: name.into(), stamp: 0, hint: Box::default() })
            }
        };
        // What has a place has its entry.
        if let Some(entry) = self.table.entry_mut(at) {
            if *entry.name != *name && name.contains(' ') {
                return Err(CacheError::Clash(self.indom, name.to_owned(), entry.name.to_string()));
            }
            entry.stamp = 0;
        }
        let instance = self.table.value_mut(at);
        let number = instance.map_or(0, |instance| {
            self.active += usize::from(instance.value.replace(value).is_none());
            instance.number
        });
        Ok(Inst::from_word(number).unwrap_or(Inst::new(0)))
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
        let gap = self.table.iter().zip(0..).find(|((v, _), n)| v.number != *n).map(|(_, n)| n);
        let free = gap.unwrap_or(self.table.len() as u32);
        if free <= self.head.max { Ok(free) } else { Err(CacheError::Full(self.indom)) }
    }

    /// Hides an instance (`PMDA_CACHE_HIDE`). Its value comes back, if it was active.
    pub fn hide(&mut self, inst: Inst) -> Option<T> {
        let value = self.table.value_mut(self.table.place(inst.word())?)?.value.take();
        self.active -= usize::from(value.is_some());
        value
    }

    /// Hides all instances (`PMDA_CACHE_INACTIVE`).
    pub fn hide_all(&mut self) {
        self.table.values_mut().for_each(|instance| instance.value = None);
        self.active = 0;
    }

    /// The value of an active instance (pmdaCacheLookup(3)).
    pub fn get(&self, inst: Inst) -> Option<&T> {
        self.table.value(self.table.place(inst.word())?)?.value.as_ref()
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, inst: Inst) -> Option<&mut T> {
        self.table.value_mut(self.table.place(inst.word())?)?.value.as_mut()
    }

    /// The active instances, by number.
    pub fn iter(&self) -> impl Iterator<Item = (Inst, &str, &T)> {
        self.table.iter().filter_map(|(v, e)| Some((Inst::from_word(v.number)?, &*e.name, v.value.as_ref()?)))
    }

    /// Writes the file if instances have been added since it was read or written
    /// (`PMDA_CACHE_SAVE`).
    pub fn save(&mut self) -> Result<(), FileError> {
        let Some(path) = self.file.clone().filter(|_| self.changed) else { return Ok(()) };
        // `$PCP_VAR_DIR/config/pmda`, of which PCP need not have made the last part yet. Without PCP
        // there is nobody to keep numbers for.
        if let [dir, _, var] = path.ancestors().skip(1).take(3).collect::<Vec<_>>()[..] {
            if !var.exists() {
                return Ok(());
            }
            fs::create_dir_all(dir).map_err(|source| FileError::Io { path: dir.to_owned(), source })?;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let mut text = format!("2 {} {}\n", u8::from(self.head.reuse), self.head.max);
        self.table.entries_mut().filter(|entry| entry.stamp == 0).for_each(|entry| entry.stamp = now);
        for (instance, entry) in self.table.iter() {
            let _ = write!(text, "{} {}", instance.number, entry.stamp);
            if !entry.hint.is_empty() {
                text.push_str(" [");
                entry.hint.iter().for_each(|b| _ = write!(text, "{b:02x}"));
                text.push(']');
            }
            let _ = writeln!(text, " {}", entry.name);
        }
        replace(&path, &text).map_err(|source| FileError::Io { path, source })?;
        self.changed = false;
        Ok(())
    }

    fn load(&mut self, path: &Path) -> Result<(), FileError> {
        let bytes = fs::read(path).map_err(|source| FileError::Io { path: path.to_owned(), source })?;
        // An empty file is what Install leaves for the agent.
        if bytes.is_empty() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&bytes);
        for (n, line) in text.lines().enumerate() {
            let loaded = if n == 0 { head(line).map(|head| self.head = head) } else { self.load_line(line) };
            loaded.map_err(|reason| FileError::Damaged { path: path.to_owned(), line: n + 1, reason })?;
        }
        Ok(())
    }

    fn load_line(&mut self, line: &str) -> Result<(), &'static str> {
        let (id, rest) = number(line).ok_or("no instance number")?;
        let (stamp, mut rest) = number(rest).ok_or("no time")?;
        let mut hint = Vec::new();
        if let Some(tail) = rest.strip_prefix('[') {
            let (digits, tail) = tail.split_once(']').ok_or("key without its end")?;
            hint = unhex(digits).ok_or("key is not hexadecimal")?;
            rest = tail.trim_start();
        }
        let id = u32::try_from(id).ok().filter(|id| *id <= MAX).ok_or("instance number out of range")?;
        if key(rest).is_empty() {
            return Err("no name");
        }
        // As in C, of two entries with one number or name the first stays.
        if self.table.place(id).or(self.table.named(rest)).is_some() {
            tracing::warn!("instance cache {}: {id} {rest:?} is there already", self.indom);
            return Ok(());
        }
        self.table.insert(id, Entry { name: rest.into(), stamp, hint: hint.into() });
        Ok(())
    }
}

fn head(line: &str) -> Result<Head, &'static str> {
    let fields: Vec<u32> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    let (mode, max) = match fields[..] {
        [1, mode, ..] => (mode, MAX),
        [2, mode, max, ..] => (mode, max),
        _ => return Err("not the head of an instance cache"),
    };
    if mode > 1 || max > MAX {
        return Err("not the head of an instance cache");
    }
    Ok(Head { reuse: mode == 1, max })
}

/// A number, and what follows it and the spaces after it.
fn number(text: &str) -> Option<(u64, &str)> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    Some((text[..end].parse().ok()?, text[end..].trim_start()))
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    digits.as_bytes().chunks(2).map(byte).collect()
}

/// Puts a new file in the place of the old one, so that there is always a whole one; where only the
/// file itself may be written, writes into it.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    match fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, path)) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => fs::write(path, text),
        done => done,
    }
}

impl<T> Instances for Cache<T> {
    fn len(&self) -> usize {
        self.active
    }

    fn each(&self, f: &mut dyn FnMut(Inst, &str)) {
        self.iter().for_each(|(inst, name, _)| f(inst, name));
    }

    fn name(&self, inst: Inst) -> Option<&str> {
        let at = self.table.place(inst.word())?;
        self.table.value(at)?.value.as_ref()?;
        Some(&*self.table.entry(at)?.name)
    }

    fn lookup(&self, name: &str) -> Option<Inst> {
        let at = self.table.named(name)?;
        let instance = self.table.value(at).filter(|v| v.value.is_some())?;
        let entry = self.table.entry(at)?;
        if *entry.name == *name || !name.contains(' ') { Inst::from_word(instance.number) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmapi::{Domain, Serial};

    fn indom() -> InDom {
        InDom::new(Domain::new(253).unwrap(), Serial::new(1))
    }

    fn config(dir: &Path) -> Config {
        Config::new(b"", [("PCP_VAR_DIR".into(), dir.into())])
    }

    #[test]
    fn numbers_stay_over_restarts() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("config/pmda")).unwrap();
        let file = dir.path().join("config/pmda/253.1");
        fs::write(&file, "2 0 2147483647\n5 1 hour\n7 1 [0aff] min of hour\n").unwrap();
        let mut cache = Cache::open(indom(), &config(dir.path()));
        assert_eq!((cache.len(), cache.lookup("hour")), (0, None));
        assert_eq!(cache.store("sec", 's'), Ok(Inst::new(8)));
        assert_eq!(cache.store("hour", 'h'), Ok(Inst::new(5)));
        assert!(cache.iter().eq([(Inst::new(5), "hour", &'h'), (Inst::new(8), "sec", &'s')]));
        assert_eq!(cache.lookup("hour"), Some(Inst::new(5)));
        cache.save().unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "2 0 2147483647");
        assert!(lines[1].starts_with("5 ") && lines[1].ends_with(" hour") && !lines[1].starts_with("5 1 "));
        assert_eq!(lines[2], "7 1 [0aff] min of hour");
        assert!(lines[3].starts_with("8 ") && lines[3].ends_with(" sec"));
        assert_eq!(Cache::<()>::open(indom(), &config(dir.path())).table.len(), 3);
    }

    #[test]
    fn names_match_up_to_their_first_space() {
        let mut cache = Cache::new(indom());
        let inst = cache.store("1 minute", 1).unwrap();
        assert_eq!(cache.store("1", 2), Ok(inst));
        assert_eq!(cache.lookup("1"), Some(inst));
        assert_eq!(cache.lookup("1 minute"), Some(inst));
        assert_eq!(cache.lookup("1 hour"), None);
        assert!(matches!(cache.store("1 hour", 3), Err(CacheError::Clash(..))));
        assert!(matches!(cache.store("", 3), Err(CacheError::Name(..))));
        assert!(matches!(cache.store("a\nb", 3), Err(CacheError::Name(..))));
    }

    #[test]
    fn hidden_instances_keep_their_number() {
        let mut cache = Cache::new(indom());
        let a = cache.store("a", 1).unwrap();
        let b = cache.store("b", 2).unwrap();
        cache.hide_all();
        assert_eq!((cache.len(), cache.name(a), cache.get(b)), (0, None, None));
        assert_eq!(cache.store("b", 3), Ok(b));
        assert_eq!((cache.len(), cache.hide(b), cache.hide(b), cache.len()), (1, Some(3), None, 0));
    }

    #[test]
    fn after_the_largest_number_the_lowest_free_one() {
        let mut cache = Cache::new(indom());
        cache.head.max = 3;
        for (number, name) in [(0, "zero"), (3, "three")] {
            cache.table.insert(number, Entry { name: name.into(), stamp: 1, hint: Box::default() });
        }
        assert_eq!(cache.store("x", 0), Ok(Inst::new(1)));
        assert_eq!(cache.store("y", 0), Ok(Inst::new(2)));
        assert_eq!(cache.store("z", 0), Err(CacheError::Full(indom())));
    }

    #[test]
    fn a_damaged_file_is_kept_aside() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("config/pmda")).unwrap();
        let file = dir.path().join("config/pmda/253.1");
        for damaged in
            ["x\n", "3 0 1\n", "2 0\n", "2 0 9\nx y z\n", "2 0 9\n1 2\n", "2 0 9\n1 2 [0\n", "2 0 9\n1 2 [0g] x\n"]
        {
            fs::write(&file, damaged).unwrap();
            let mut cache = Cache::open(indom(), &config(dir.path()));
            assert_eq!(fs::read_to_string(file.with_extension("1.damaged")).unwrap(), damaged);
            assert_eq!(cache.store("a", 1), Ok(Inst::new(0)));
            cache.save().unwrap();
        }
    }
}
