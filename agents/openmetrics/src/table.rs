//! Tables that persist the numbers of names: sources, metrics of a source, instances of a metric.
//!
//! The files have the format of PCP's agent (`pickle`), so that numbers also stay the same when one agent replaces the
//! other.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tracing::warn;

use crate::pickle;
use crate::store::{Store, may_pass};

/// List of names. The number of a name is its index.
#[derive(Debug)]
pub(crate) struct Table {
    /// Where the table is kept, and its number there.
    file: Option<(Arc<Store>, u32)>,
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
    /// Whether the names of instances begin with their number.
    prefixed: bool,
    changed: bool,
    /// Largest number of names.
    limit: usize,
    /// Whether only the first names of the file are in memory. Then no name gets a number, and the file stays as it is.
    is_cut: bool,
}

impl Table {
    /// Reads a table of at most `limit` names, up to the first name that does not fit into memory. A file that is damaged
    /// is moved aside, and the table is empty.
    ///
    /// # Errors
    /// Errors that may pass. New names must not get the numbers of others meanwhile.
    pub(crate) fn load(
        store: &Arc<Store>,
        number: u32,
        limit: usize,
        mut fits: impl FnMut(&str) -> bool,
    ) -> io::Result<Table> {
        let loaded = match store.load(number) {
            Ok(bytes) => pickle::read(&bytes).unwrap_or_else(|e| {
                set_aside(&store.path(number), &e);
                pickle::Names::default()
            }),
            Err(e) if may_pass(&e) => {
                let path = store.path(number);
                return Err(io::Error::new(e.kind(), format!("{}: {e}", path.display())));
            }
            Err(e) => {
                if e.kind() != io::ErrorKind::NotFound {
                    set_aside(&store.path(number), &e);
                }
                pickle::Names::default()
            }
        };
        let file = Some((Arc::clone(store), number));
        let mut table = Table { file, prefixed: loaded.prefixed, ..Table::unsaved(limit) };
        let all = loaded.names.len();
        for name in loaded.names.into_iter().take_while(|name| fits(name)) {
            table.push(&name);
        }
        table.is_cut = table.names.len() < all;
        Ok(table)
    }

    /// Returns the table if `name` has number 0, or if the table was empty, after adding the name. Otherwise moves the
    /// file aside, and returns a new table with only this name.
    pub(crate) fn beginning_with(mut self, name: &str) -> Table {
        if self.number(name) == Some(0) {
            return self;
        }
        if let Some((store, number)) = &self.file {
            set_aside(&store.path(*number), &format_args!("{name:?} is not its first name"));
        }
        let mut new = Table { file: self.file, ..Table::unsaved(self.limit) };
        new.number(name);
        new
    }

    /// Creates a table that is not kept.
    pub(crate) fn unsaved(limit: usize) -> Table {
        let (names, numbers) = (Vec::new(), HashMap::new());
        Table { file: None, names, numbers, prefixed: false, changed: false, limit, is_cut: false }
    }

    /// Adds a name. A name that occurs twice in a damaged file keeps its last number, as in PCP's agent.
    fn push(&mut self, name: &str) -> u32 {
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        let name: Arc<str> = name.into();
        self.names.push(Arc::clone(&name));
        self.numbers.insert(name, number);
        number
    }

    /// Returns the number of a name, which is a new number for a new name. Returns `None` if the table is full.
    pub(crate) fn number(&mut self, name: &str) -> Option<u32> {
        if let Some(number) = self.find(name) {
            return Some(number);
        }
        if self.names.len() >= self.limit || self.is_cut {
            return None;
        }
        self.changed = true;
        Some(self.push(name))
    }

    /// Returns the number of a name, or `None` if the table does not have it.
    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// Makes the names of instances begin with their number.
    pub(crate) fn prefix(&mut self) {
        self.changed |= !self.prefixed;
        self.prefixed = true;
    }

    pub(crate) fn is_prefixed(&self) -> bool {
        self.prefixed
    }

    /// Iterates over the names from a number on.
    pub(crate) fn names(&self, from: usize) -> impl Iterator<Item = &Arc<str>> {
        self.names.iter().skip(from)
    }

    /// Returns whether only a part of the names is in memory.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Lets the table be written soon if it has changed.
    pub(crate) fn save(&mut self) {
        let Some((store, number)) = self.file.as_ref().filter(|_| self.changed && !self.is_cut) else { return };
        store.save(*number, pickle::write(self.names.iter().map(|name| &**name), self.prefixed));
        self.changed = false;
    }
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
    use pmapi::Domain;

    use super::*;

    fn store(dir: &Path) -> Arc<Store> {
        Store::new(dir.to_owned(), Domain::new(144).unwrap())
    }

    /// Returns the number in the name of a table's file.
    fn number(path: &Path) -> u32 {
        path.file_stem().unwrap().to_str().unwrap().strip_prefix("144.").unwrap().parse().unwrap()
    }

    /// Saves the table, and waits until it is written.
    fn save(table: &mut Table) {
        table.save();
        table.file.as_ref().unwrap().0.flush();
    }

    #[test]
    fn numbers_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("144.1.py");
        let mut table = Table::load(&store(dir.path()), number(&path), 3, |_| true).unwrap();
        assert_eq!(["a", "b", "a"].map(|name| table.number(name)), [Some(0), Some(1), Some(0)]);
        save(&mut table);
        let mut table = Table::load(&store(dir.path()), number(&path), 3, |_| true).unwrap();
        assert_eq!(["c", "b", "d"].map(|name| table.number(name)), [Some(2), Some(1), None]);
        table.prefix();
        save(&mut table);
        let table = Table::load(&store(dir.path()), number(&path), 2, |_| true).unwrap();
        assert_eq!(table.names(0).map(|name| &**name).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert!(table.is_prefixed());
    }

    #[test]
    fn links_in_its_place_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("144.1.py"), dir.path().join("other"));
        fs::write(&other, "kept").unwrap();
        let mut table = Table::load(&store(dir.path()), number(&path), 3, |_| true).unwrap();
        table.number("a");
        for name in ["144.1.py", "144.1.py.new", ".144.1.py.new"] {
            std::os::unix::fs::symlink(&other, dir.path().join(name)).unwrap();
        }
        save(&mut table);
        assert_eq!(fs::read(&other).unwrap(), b"kept");
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(Table::load(&store(dir.path()), number(&path), 3, |_| true).unwrap().find("a"), Some(0));
    }

    /// A table that cannot be read for a while stays where it is, and gives no numbers.
    #[test]
    fn errors_that_pass() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("144.1.py");
        // Reading it fails with EIO.
        std::os::unix::fs::symlink("/proc/self/mem", &path).unwrap();
        let failed = Table::load(&store(dir.path()), number(&path), 3, |_| true).unwrap_err().to_string();
        assert!(failed.contains("144.1.py: Input/output error"), "{failed}");
        fs::remove_file(&path).unwrap();
        fs::write(&path, "(lp0\nVa\np1\na.I00\n.").unwrap();
        assert_eq!(Table::load(&store(dir.path()), number(&path), 3, |_| true).unwrap().find("a"), Some(0));
    }

    #[test]
    fn an_unreadable_table_is_kept_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("144.0.py");
        fs::write(&path, "cos\nsystem\n(Vtrue\ntR.").unwrap();
        let mut table = Table::load(&store(dir.path()), number(&path), 10, |_| true).unwrap();
        assert_eq!(table.number("control"), Some(0));
        save(&mut table);
        assert!(fs::read(dir.path().join("144.0.py.unreadable")).unwrap().starts_with(b"cos"));
        assert_eq!(Table::load(&store(dir.path()), number(&path), 10, |_| true).unwrap().names(0).count(), 1);
    }

    /// In a table whose first name is another one, the expected name would get another number, and could not be
    /// exported.
    #[test]
    fn a_table_with_another_first_name_is_kept_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("144.0.py");
        for (text, kept) in [
            ("(lp0\nVcontrol\np1\naVhonest\np2\na.", true),
            ("(lp0\nVhonest\np1\naVcontrol\np2\na.", false),
            ("(lp0\nVcontrol\np1\naVcontrol\np2\na.", false),
            ("(lp0\nVhonest\np1\na.", false),
        ] {
            fs::write(&path, text).unwrap();
            let mut table =
                Table::load(&store(dir.path()), number(&path), 3, |_| true).unwrap().beginning_with("control");
            assert_eq!(table.find("control"), Some(0), "{text}");
            assert_eq!(table.number("honest"), Some(1), "{text}");
            let aside = dir.path().join("144.0.py.unreadable");
            assert_eq!(aside.exists(), !kept, "{text}");
            fs::remove_file(aside).ok();
        }
    }

    /// The numbers of names that do not fit into memory are not lost.
    #[test]
    fn a_table_that_does_not_fit_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("144.1.py");
        let text = "(lp0\nVa\np1\naVb\np2\naVc\np3\na.I00\n.";
        fs::write(&path, text).unwrap();
        let mut table = Table::load(&store(dir.path()), number(&path), 9, |name| name != "b").unwrap();
        assert_eq!(["a", "b", "c", "d"].map(|name| table.number(name)), [Some(0), None, None, None]);
        table.prefix();
        save(&mut table);
        assert!(table.is_cut() && fs::read_to_string(&path).unwrap() == text);
    }
}
