//! Comparison with libpcp: names, PMIDs, children and error messages, for the name spaces of the installed PCP and for
//! random ones.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::Cell;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const PMNS_DIR: &str = "/var/lib/pcp/pmns";

/// Compiles `tests/support/oracle.c` and returns the program's path.
fn oracle(dir: &Path) -> PathBuf {
    testkit::compile(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/oracle.c"), dir, &["-lpcp"])
}

/// Returns the text that `oracle dump` prints for the same name space.
fn dump(tree: &pmns::Tree) -> String {
    let mut text = String::new();
    for leaf in tree.root().leaves() {
        let path = leaf.path();
        let pmid = tree.lookup(&path).unwrap();
        writeln!(text, "name\t{path}\t{pmid}").unwrap();
        // libpcp returns no names for the PMID of a root of dynamic names.
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
        // An empty current directory, because relative paths of included files are tried there first.
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
    // The metrics of agent linux alone are more.
    assert!(lookups > 1_000, "only {lookups} lookups compared");
}

/// For random texts, libpcp and this crate load the same name spaces, or report the same problems.
#[test]
#[ignore = "needs PCP"]
// Slow: libpcp and this crate load many random name spaces.
fn random_name_spaces() {
    let tmp = tempfile::tempdir().unwrap();
    let oracle = oracle(tmp.path());
    std::fs::write(tmp.path().join("inc"), "#define INC 6\n e INC:1:1 /* in\n").unwrap();
    let lines = [
        "root {",
        "root {",
        "a {",
        "a.b {",
        "b {",
        "}",
        "}",
        "}",
        "a",
        "b",
        "c 1:2:3",
        "b 1:2:4 c",
        "d 7:*:*",
        "x SYM:1:1",
        "#define SYM 5",
        "#undef SYM",
        "#ifdef SYM",
        "#ifndef SYM",
        "#endif",
        "/* c",
        "*/",
        "/* x */ e 1:1:1",
        "#include \"inc\"",
        "#include <inc>",
        "f 1 : 2 : 3",
        "  \tg 600:1:1 ",
        "h 1:4096:1",
        "i 1:1:1024 }",
        "@",
        "",
        "root { a b c 1:2:3 } a { x 1:1:1 } b { y 2:2:2 }",
        "#define a aa",
        "#define X 'q 9:9:9'",
        "X",
        "p X }",
        "1:2:3",
        "#define",
        "#define 1",
        "#define A B C",
        "#include",
        "#include \"nosuch\"",
        "#define Y \"z",
        "#ifdef",
        "a.b 1:1:2",
        "j *:1:1",
        "k 1:*:*",
        "l 600:*:*",
        "m 1:*:2",
        "n:1",
        "o /* */ 3:3:3",
        "{",
        "}{",
        "a {}",
    ];
    let valid = [
        "c 1:2:3",
        "d 7:*:*",
        "x SYM:1:1",
        "#ifdef SYM\ny 1:1:1\n#endif",
        "#ifndef SYM\nz\n1:1:1\n#endif",
        "/* # { */",
        "e /* } */ 1:1:1",
        "/*\n#define SYM 8\n*/",
        "#define SYM 6\r",
        "f 1 : 2 :\t3 g 1:2:3",
        "#undef SYM",
        "#undef NO",
        "#define A \"h 1:2:8 i\"",
        "A 1:2:4",
        "j SYM:SYM:SYM",
        "#define CD",
        "CD k 5:6CD:7",
        "l 510:4095:1023",
        "m 0:0:0",
    ];
    let lines = proptest::collection::vec(proptest::sample::select(lines.to_vec()), 0..10);
    let invalid = lines.prop_map(|lines| lines.join("\n") + "\n");
    let rare = proptest::option::weighted(0.3, invalid.clone());
    let valid =
        (proptest::sample::subsequence(valid.to_vec(), 0..12).prop_shuffle(), rare).prop_map(|(lines, rare)| {
            let (lines, rare) = (lines.join("\n"), rare.unwrap_or_default());
            format!(
                "#define SYM 5\nroot {{\na\nb\n}}\na {{\nb }}\na.b {{\nc 1:1:1\n}}\n{rare}b {{\n{lines}\nq 1:1:1\n}}\n"
            )
        });
    let texts = prop_oneof![invalid, valid];
    let config = ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() };
    let loaded = Cell::new(0);
    TestRunner::new(config)
        .run(&texts, |text| {
            let file = tmp.path().join("in");
            std::fs::write(&file, &text).unwrap();
            for unique in [false, true] {
                let mut oracle = Command::new(&oracle);
                let dups = if unique { "0" } else { "1" };
                let theirs = oracle.args(["dump", "in", dups]).current_dir(tmp.path()).output().unwrap();
                let said = String::from_utf8_lossy(&theirs.stderr);
                let files = Below(tmp.path());
                let loader = pmns::Loader::from_files(&files);
                let loader = if unique { loader.unique_pmids() } else { loader };
                match loader.load(Path::new("in")) {
                    // libpcp treats an empty node as a metric without PMID.
                    Ok(tree) if has_empty_node(tree.root()) => prop_assert!(theirs.status.success(), "{}", said),
                    Ok(tree) => {
                        prop_assert_eq!(dump(&tree), String::from_utf8_lossy(&theirs.stdout));
                        loaded.set(loaded.get() + 1);
                    }
                    Err(pmns::Error::Problems(problems)) if is_ours_alone(&problems[0].reason, &said) => {}
                    Err(e) => {
                        let ours = e.diagnostics() + "error: Problems parsing PMNS definitions\n";
                        // pmcpp runs in parallel to libpcp's parser, and may report a later problem as well.
                        let is_later = |line: &&str| line.starts_with("pmcpp") && !ours.contains("pmcpp");
                        let theirs: String = said.split_inclusive('\n').filter(|line| !is_later(line)).collect();
                        // For an unterminated construct this crate names the file and the line of its start. pmcpp
                        // names the first file, and no line for an #ifdef whose condition holds.
                        let ours = ours.replace("pmcpp: inc:\n", "pmcpp: in:\n");
                        let head = |text: &str| text.split("at line ").next().unwrap().to_owned();
                        prop_assert_eq!(head(&ours), head(&theirs));
                    }
                }
            }
            Ok(())
        })
        .unwrap();
    assert!(loaded.get() > 20, "only {} are valid", loaded.get());
}

/// Returns whether only this crate reports the problem. libpcp accepts a path at the end of a text as an empty block,
/// and does not search for duplicate names in a last block without `}`.
fn is_ours_alone(reason: &str, said: &str) -> bool {
    ["{ expected", "Duplicate name"].iter().any(|ours| reason.starts_with(ours) && !said.contains(ours))
}

fn has_empty_node(node: pmns::Node<'_>) -> bool {
    node.pmid().is_none() && (!node.has_children() || node.children().any(has_empty_node))
}

/// Resolves relative paths against a directory, like a process whose current directory it is.
struct Below<'a>(&'a Path);

impl pmns::Files for Below<'_> {
    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        pmns::FileSystem.read(&self.0.join(path))
    }

    fn shell(&self, _: &str) -> std::io::Result<Vec<u8>> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

/// libpcp loads the files of an agent with the same names, whether or not `stdpmid` defines the symbol.
#[test]
#[ignore = "needs PCP"]
fn files_of_agents() {
    let tmp = tempfile::tempdir().unwrap();
    let oracle = oracle(tmp.path());
    for (symbol, number) in [("SIMPLE", 253), ("NOBODY", 400)] {
        let domain = pmapi::Domain::new(number).unwrap();
        let pmid = |cluster, item| pmapi::PmId::new(domain, pmapi::Item::new(cluster, item));
        for names in [
            vec![
                ("simple.numfetch", pmid(0, 0)),
                ("simple.time.user", pmid(1, 2)),
                ("simple.dyn", pmns::dynamic_root(domain)),
            ],
            vec![("top", pmid(0, 0)), ("simple.x.y", pmid(4095, 1023)), ("dyn", pmns::dynamic_root(domain))],
        ] {
            let mut tree = pmns::Tree::new();
            names.iter().for_each(|(name, pmid)| tree.insert(name, *pmid).unwrap());
            let files = pmns::write::agent(&tree, domain, symbol).unwrap();
            std::fs::write(tmp.path().join("pmns"), files.pmns).unwrap();
            std::fs::write(tmp.path().join("root"), files.root).unwrap();
            let theirs = Command::new(&oracle).args(["dump", "root", "1"]).current_dir(tmp.path()).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&theirs.stdout), dump(&tree), "{symbol}");
        }
    }
}
