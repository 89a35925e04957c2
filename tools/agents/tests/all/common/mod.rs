//! Sources of the repository, for tests that read them.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

/// Folders and files that are not part of programs and libraries.
const OTHERS: [&str; 7] = ["target", ".git", "tests", "tests.rs", "examples", "benches", "fuzz"];

/// Calls `visit` with the path below the repository, and the text, of each source of a program or library. `left_out` has
/// names of further folders and files to leave out.
pub(crate) fn each_source(left_out: &[&str], visit: &mut dyn FnMut(&Path, &str)) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|dir| dir.join("check").exists()).unwrap();
    let mut files = 0;
    walk(root, left_out, &mut |path| {
        files += 1;
        visit(path.strip_prefix(root).unwrap(), &fs::read_to_string(path).unwrap());
    });
    assert!(files > 100, "{files} files");
}

fn walk(dir: &Path, left_out: &[&str], visit: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name());
        if OTHERS.iter().chain(left_out).any(|other| name == *other) {
            continue;
        }
        if path.is_dir() {
            walk(&path, left_out, visit);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            visit(&path);
        }
    }
}
