//! Names of derived metrics, which exist for clients but not for agents.

use std::fs;
use std::path::{Path, PathBuf};

use pmapi::{Config, Domain, Item, PmId};

/// Names of derived metrics, in the order of their definitions. Expressions do not matter, because no agent knows them.
#[derive(Debug)]
pub(crate) struct Derived(Vec<String>);

impl Derived {
    /// Loads libpcp's own names, and those of the files in `$PCP_DERIVED_CONFIG` or PCP's configuration. A file that
    /// cannot be read counts as empty.
    pub(crate) fn load() -> Self {
        let mut derived = Derived::own();
        let config = Config::load();
        match config.var("PCP_DERIVED_CONFIG") {
            Some(paths) => std::env::split_paths(paths).for_each(|path| derived.add_path(&path)),
            None => derived.add_path(&config.var_dir().join("config").join("derived")),
        }
        derived
    }

    fn own() -> Self {
        Derived(vec!["event.flags".to_owned(), "event.missed".to_owned()])
    }

    /// Adds a file, or all files below a directory, in the order of the directory as in C.
    fn add_path(&mut self, path: &Path) {
        if path.is_file() {
            self.add(&String::from_utf8_lossy(&fs::read(path).unwrap_or_default()));
        } else if let Ok(entries) = fs::read_dir(path) {
            let entries: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
            entries.iter().for_each(|path| self.add_path(path));
        }
    }

    /// Adds the definitions of a file: a line each, except for texts between quotes.
    fn add(&mut self, text: &str) {
        let mut rest = text;
        while let Some((line, after)) = rest.split_once('\n') {
            rest = after;
            let Some((left, right)) = line.split_once('=').filter(|_| !line.starts_with('#')) else { continue };
            let right = right.trim_start();
            if left.contains(['(', ')']) {
                if let Some(quote @ ('"' | '\'')) = right.chars().next() {
                    rest = after_quoted(text.get(text.len() - after.len() - right.len()..).unwrap_or_default(), quote);
                }
                continue;
            }
            let name = left.trim();
            if !right.is_empty() && pmns::is_name(name) && !self.0.iter().any(|known| known == name) {
                self.0.push(name.to_owned());
            }
        }
    }

    /// Returns the PMID of a name.
    pub(crate) fn lookup(&self, name: &str) -> Option<PmId> {
        let at = self.0.iter().position(|known| known == name)?;
        // Item 0 marks a root of dynamic names.
        let (cluster, item) = (at / ITEMS, at % ITEMS + 1);
        Item::try_new(u16::try_from(cluster).ok()?, u16::try_from(item).ok()?)
            .map(|item| PmId::new(Domain::DYNAMIC, item))
    }

    /// Returns the name of a PMID.
    pub(crate) fn name(&self, pmid: PmId) -> Option<&str> {
        let item = pmid.item();
        let at = usize::from(item.cluster()) * ITEMS + usize::from(item.item()).checked_sub(1)?;
        self.0.get(at).map(String::as_str).filter(|_| pmid.domain() == Domain::DYNAMIC)
    }
}

/// Number of items in a cluster.
const ITEMS: usize = 1023;

/// Returns the text after a quoted text and its line.
fn after_quoted(text: &str, quote: char) -> &str {
    let mut escaped = false;
    let end = text.char_indices().skip(1).find(|(_, c)| {
        let is_end = *c == quote && !escaped;
        escaped = *c == '\\' && !escaped;
        is_end
    });
    let after = end.and_then(|(at, c)| text.get(at + c.len_utf8()..)).unwrap_or_default();
    after.split_once('\n').map_or("", |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions() {
        let mut derived = Derived::own();
        derived.add(
            "# a = comment\n a.b = c\na.b(oneline) = \"x\"\na.b(helptext) = 'several\nx = \\'lines\ny = 1'\n\
             d=e\nd = again\n1 = f\nno\ng =\nlast = line",
        );
        assert_eq!(derived.0, ["event.flags", "event.missed", "a.b", "d"]);
        let pmid = derived.lookup("d").unwrap();
        assert_eq!((pmid.to_string().as_str(), derived.name(pmid)), ("511.0.4", Some("d")));
        assert_eq!(derived.name("511.0.5".parse().unwrap()), None);
        assert_eq!(derived.name("510.0.1".parse().unwrap()), None);
    }

    #[test]
    fn clusters() {
        let derived = Derived((0..1025).map(|i| format!("m{i}")).collect());
        for (name, pmid) in [("m0", "511.0.1"), ("m1022", "511.0.1023"), ("m1023", "511.1.1")] {
            assert_eq!(derived.lookup(name).unwrap().to_string(), pmid);
            assert_eq!(derived.name(pmid.parse().unwrap()), Some(name));
        }
    }
}
