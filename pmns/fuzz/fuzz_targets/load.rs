//! Loads any bytes as a name space that can include itself. One that loads must survive being written and loaded again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pmns::{Files, Loader, Tree};
use std::io;
use std::path::Path;

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

fuzz_target!(|text: &[u8]| {
    match Loader::from_files(&Mirror(text)).parse(text, Path::new("in")) {
        Err(e) => drop((e.to_string(), e.diagnostics())),
        Ok(mut tree) => {
            let written = pmns::write::root(&tree);
            let again = Loader::new().parse(written.as_str(), Path::new("out")).unwrap();
            assert_eq!(names(&again), names(&tree));
            assert_eq!(pmns::write::root(&again), written);
            for (name, pmid) in names(&again) {
                assert_eq!(tree.lookup(&name).ok(), pmid);
                assert!(tree.remove(&name));
            }
            assert!(names(&tree).is_empty());
        }
    }
});
