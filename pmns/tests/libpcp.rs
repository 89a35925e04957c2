//! Name spaces of the installed PCP: the same names, PMIDs and children as libpcp's.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const PMNS_DIR: &str = "/var/lib/pcp/pmns";

/// The program `tests/support/oracle.c`.
fn oracle(dir: &Path) -> PathBuf {
    let program = dir.join("oracle");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/oracle.c");
    let gcc = Command::new("gcc").args(["-O2", "-o"]).arg(&program).args([source, "-lpcp"]).status().unwrap();
    assert!(gcc.success());
    program
}

/// What `oracle dump` prints.
fn dump(tree: &pmns::Tree) -> String {
    let mut text = String::new();
    for leaf in tree.root().leaves() {
        let path = leaf.path();
        let pmid = tree.lookup(&path).unwrap();
        writeln!(text, "name\t{path}\t{pmid}").unwrap();
        // libpcp tells no names of the roots of dynamic names.
        for name in tree.names(pmid).filter(|_| pmid.dynamic_root().is_none()) {
            writeln!(text, "pmid\t{pmid}\t{name}").unwrap();
        }
    }
    children(tree, "", &mut text);
    text
}

fn children(tree: &pmns::Tree, path: &str, text: &mut String) {
    let node = tree.node(path).unwrap();
    if node.has_children() {
        let is_inner = |child: pmns::Node<'_>| child.pmid().is_none_or(|pmid| pmid.dynamic_root().is_some());
        let names: String = node
            .children()
            .map(|child| format!("\t{}{}", child.name(), if is_inner(child) { "." } else { "" }))
            .collect();
        writeln!(text, "children\t{path}{names}").unwrap();
    }
    for child in node.children() {
        children(tree, &child.path(), text);
    }
}

#[test]
#[ignore = "needs PCP"]
fn installed_name_spaces() {
    let tmp = tempfile::tempdir().unwrap();
    let oracle = oracle(tmp.path());
    let mut files = vec![PathBuf::from(PMNS_DIR).join("root")];
    for dir in [PMNS_DIR, "/usr/lib/pcp/pmns"] {
        let is_root = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("root_");
        files.extend(std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).filter(is_root));
    }
    let agents = std::fs::read_dir("/var/lib/pcp/pmdas").unwrap();
    files.extend(agents.map(|entry| entry.unwrap().path().join("root")).filter(|root| root.is_file()));
    let mut lookups = 0;
    for file in files {
        // Relative names of included files are looked for in the current directory first.
        let dump_of_c = Command::new(&oracle).arg("dump").arg(&file).arg("1").current_dir(tmp.path()).output().unwrap();
        let expected = String::from_utf8(dump_of_c.stdout).unwrap();
        let tree = pmns::Loader::new().include_dir(PMNS_DIR).load(&file);
        match tree {
            Ok(tree) => {
                let dump = dump(&tree);
                let differ = dump.lines().zip(expected.lines()).find(|(ours, theirs)| ours != theirs);
                assert_eq!(differ, None, "{}", file.display());
                assert_eq!(dump.len(), expected.len(), "{}", file.display());
            }
            Err(e) => assert!(!dump_of_c.status.success(), "{e}"),
        }
        lookups += expected.lines().count();
    }
    assert!(lookups > 10_000, "only {lookups} lookups compared");
}
