//! Properties of every name space. The fuzz target `load` and the stage `texts` of `qa/campaign` share it.

use std::error::Error;
use std::io;
use std::path::Path;

use pmns::{Files, Loader, Tree};

/// Files and commands that all have the same text.
struct Mirror<'a>(&'a [u8]);

impl Files for Mirror<'_> {
    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Ok(self.0.into())
    }

    fn shell(&self, _: &str) -> io::Result<Vec<u8>> {
        Ok(self.0.into())
    }
}

fn names(tree: &Tree) -> Vec<(String, Option<pmapi::PmId>)> {
    tree.root().leaves().map(|leaf| (leaf.path(), leaf.pmid())).collect()
}

/// Loads a name space that can include itself. If the name space loads, it must survive being written and loaded again,
/// and each of its names can be looked up and removed.
pub(crate) fn check(text: &[u8]) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut tree = match Loader::from_files(&Mirror(text)).parse(text, Path::new("in")) {
        Ok(tree) => tree,
        Err(e) => {
            let _ = (e.to_string(), e.diagnostics());
            return Ok(());
        }
    };
    let written = pmns::write::root(&tree);
    let again = Loader::new().parse(written.as_str(), Path::new("out"))?;
    if names(&again) != names(&tree) || pmns::write::root(&again) != written {
        return Err("a name space that was written loads as another one".into());
    }
    for (name, pmid) in names(&again) {
        if tree.lookup(&name).ok() != pmid || !tree.remove(&name) {
            return Err(format!("{name} is listed and cannot be looked up and removed").into());
        }
    }
    if names(&tree).is_empty() { Ok(()) } else { Err("names are left after all were removed".into()) }
}
