//! Tables of names whose numbers stay the same over restarts: sources, metrics of a source, instances of a metric.
//!
//! The files are those of PCP's agent (`pickle`), so that numbers also stay the same when one agent replaces the other.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use std::hash::BuildHasher as _;

use hashbrown::{DefaultHashBuilder, HashTable};
use pmapi::file;
use tracing::{error, warn};

use crate::pickle;

/// Largest file that is read, in bytes.
const LONGEST: u64 = 256 << 20;

/// Names, each with the number of its place.
#[derive(Debug)]
pub(crate) struct Table {
    /// File of the table, if it is kept.
    path: Option<PathBuf>,
    /// Each name with its number and a space before it, as the names of many instances are shown.
    names: Vec<Arc<str>>,
    /// Numbers by the hashes of their names.
    numbers: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Whether the names of instances begin with their number.
    prefixed: bool,
    changed: bool,
    /// Most names.
    limit: usize,
}

impl Table {
    /// Reads a table of at most `limit` names. A file that cannot be read is moved aside, and the table is empty.
    pub(crate) fn load(path: PathBuf, limit: usize) -> Table {
        let loaded = match file::read(&path, LONGEST) {
            Ok(bytes) => pickle::read(&bytes).unwrap_or_else(|e| {
                set_aside(&path, &e);
                pickle::Names::default()
            }),
            Err(e) => {
                if e.kind() != io::ErrorKind::NotFound {
                    set_aside(&path, &e);
                }
                pickle::Names::default()
            }
        };
        let mut table = Table { path: Some(path), prefixed: loaded.prefixed, ..Table::unsaved(limit) };
        for name in loaded.names {
            table.push(&name);
        }
        table
    }

    /// Creates a table that is not kept.
    pub(crate) fn unsaved(limit: usize) -> Table {
        let (names, numbers, hasher) = (Vec::new(), HashTable::new(), DefaultHashBuilder::default());
        Table { path: None, names, numbers, hasher, prefixed: false, changed: false, limit }
    }

    fn push(&mut self, name: &str) -> u32 {
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(format!("{number} {name}").into());
        let Table { names, numbers, hasher, .. } = self;
        let name_of = |number: &u32| names.get(*number as usize).map_or("", |name| bare(name));
        let hash = hasher.hash_one(name);
        match numbers.find_mut(hash, |number| name_of(number) == name) {
            // A name that a damaged file has twice keeps its last number, as in PCP's agent.
            Some(known) => *known = number,
            None => _ = numbers.insert_unique(hash, number, |number| hasher.hash_one(name_of(number))),
        }
        number
    }

    /// Returns the number of a name, a new one for a new name. `None` if the table is full.
    pub(crate) fn number(&mut self, name: &str) -> Option<u32> {
        if let Some(number) = self.find(name) {
            return Some(number);
        }
        if self.names.len() >= self.limit {
            return None;
        }
        self.changed = true;
        Some(self.push(name))
    }

    /// Returns the number of a name that the table has.
    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        let is_name = |number: &u32| self.names.get(*number as usize).is_some_and(|known| bare(known) == name);
        self.numbers.find(self.hasher.hash_one(name), is_name).copied()
    }

    /// Makes the names of instances begin with their number.
    pub(crate) fn prefix(&mut self) {
        self.changed |= !self.prefixed;
        self.prefixed = true;
    }

    pub(crate) fn is_prefixed(&self) -> bool {
        self.prefixed
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Iterates over the names from a number on.
    pub(crate) fn names(&self, from: usize) -> impl Iterator<Item = &str> {
        self.names.iter().skip(from).map(|name| bare(name))
    }

    /// Iterates over the names from a number on, each with its number and a space before it.
    pub(crate) fn numbered(&self, from: usize) -> impl Iterator<Item = &Arc<str>> {
        self.names.iter().skip(from)
    }

    /// Writes the table if it has changed.
    pub(crate) fn save(&mut self) {
        let Some(path) = self.path.as_ref().filter(|_| self.changed) else { return };
        match self.write(path) {
            Ok(()) => self.changed = false,
            Err(e) => error!("{}: {e}: new names may get other numbers after a restart", path.display()),
        }
    }

    /// Replaces the file, so that an agent which is killed meanwhile leaves the old one.
    fn write(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("py.new");
        let bytes = pickle::write(self.names(0), self.prefixed);
        fs::File::create(&new)?.write_all(&bytes)?;
        fs::rename(&new, path)
    }
}

/// Returns a name without the number before it.
fn bare(name: &str) -> &str {
    name.split_once(' ').map_or("", |(_, name)| name)
}

fn set_aside(path: &Path, reason: &dyn std::fmt::Display) {
    let aside = path.with_extension("py.unreadable");
    match fs::rename(path, &aside) {
        Ok(()) => warn!("{}: {reason}: moved to {}, the names get new numbers", path.display(), aside.display()),
        Err(e) => warn!("{}: {reason}: the names get new numbers (not moved aside: {e})", path.display()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("144.1.py");
        let mut table = Table::load(path.clone(), 3);
        assert_eq!(["a", "b", "a"].map(|name| table.number(name)), [Some(0), Some(1), Some(0)]);
        table.save();
        let mut table = Table::load(path.clone(), 3);
        assert_eq!(["c", "b", "d"].map(|name| table.number(name)), [Some(2), Some(1), None]);
        table.prefix();
        table.save();
        let table = Table::load(path, 2);
        assert_eq!(table.names(0).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(table.numbered(1).map(|name| &**name).collect::<Vec<_>>(), ["1 b", "2 c"]);
        assert!(table.is_prefixed());
    }

    #[test]
    fn an_unreadable_table_is_kept_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("144.0.py");
        fs::write(&path, "cos\nsystem\n(Vtrue\ntR.").unwrap();
        let mut table = Table::load(path.clone(), 10);
        assert_eq!(table.number("control"), Some(0));
        table.save();
        assert!(fs::read(dir.path().join("144.0.py.unreadable")).unwrap().starts_with(b"cos"));
        assert_eq!(Table::load(path, 10).len(), 1);
    }
}
