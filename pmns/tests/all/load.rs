//! Loading of texts: accepted syntax, positions of problems, and robustness against any text.

#![allow(clippy::unwrap_used)]

use pmns::{Error, Files, Loader, Tree};
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// Files in memory. A command of `#shell` prints its own text.
#[derive(Default)]
struct Memory(HashMap<PathBuf, String>);

impl Files for Memory {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.get(path).map(|text| text.clone().into_bytes()).ok_or(io::ErrorKind::NotFound.into())
    }

    fn shell(&self, command: &str) -> io::Result<Vec<u8>> {
        Ok(command.into())
    }
}

fn files<const N: usize>(files: [(&str, &str); N]) -> Memory {
    Memory(files.map(|(path, text)| (path.into(), text.into())).into())
}

fn load(text: &str) -> Result<Tree, Error> {
    Loader::from_files(&Memory::default()).parse(text, Path::new("in"))
}

/// Loads a valid text and returns its names and PMIDs.
fn names(text: &str) -> String {
    listing(&load(text).unwrap())
}

fn listing(tree: &Tree) -> String {
    let names: Vec<_> = tree.root().leaves().map(|leaf| format!("{}={}", leaf.path(), leaf.pmid().unwrap())).collect();
    names.join(" ")
}

#[test]
fn format() {
    let text = "#define FOO 387\n#define NETWORK \"26\"\nroot {\n network dynamic FOO:*:*\n}\n/* not\nin order */\n\
                network.packetrate { in 1:NETWORK:35\n out 1 : NETWORK:\t36 }\nnetwork { intrate 1:26:1 packetrate }";
    assert_eq!(
        names(text),
        "network.intrate=1.26.1 network.packetrate.in=1.26.35 network.packetrate.out=1.26.36 dynamic=387.*.*"
    );
}

#[test]
fn the_last_block_needs_no_end() {
    assert_eq!(names("root { a }\na { b 1:1:1"), "a.b=1.1.1");
    assert_eq!(names("root {"), "");
}

#[test]
fn conditions_and_macros() {
    assert_eq!(names("#ifdef A\nnonsense\n#else\nroot { a 1:1:1 }\n#endif\n"), "a=1.1.1");
    assert_eq!(names("#define A\n#ifndef A\nnonsense\n#endif\nroot { a A 1:1:1 }\n"), "a=1.1.1");
    // Values of macros are not expanded again.
    assert_eq!(names("#define A B\n#define B 2\nroot { A B:1:1\n#undef B\nB1 1:1:1 }\n"), "B=2.1.1 B1=1.1.1");
    // Digits before a name do not belong to the word.
    assert_eq!(names("#define A 5\nroot { a 1A:A:2A }\n"), "a=15.5.25");
}

#[test]
fn included_files() {
    let files = files([
        ("dir/in", "root {\n#include \"names\"\n b }\n#include <blocks>\n#shell 'c { x 1:1:9 }'\n"),
        ("dir/names", "a 1:1:1 /* c\n"),
        ("names", "ignored */ c\n"),
        ("std/blocks", "b { d 2:2:2 }\n#include \"more\"\n"),
        ("std/more", "/* nothing */"),
    ]);
    let loader = Loader::from_files(&files).include_dir("std");
    // The unmodified path is tried before the path relative to the directory of the first file.
    let error = loader.load(Path::new("dir/in")).unwrap_err();
    assert_eq!(error.to_string(), "names:1:9: Expected NAME, PMID or }");
    let mut files = files;
    files.0.remove(Path::new("names"));
    files.0.insert("dir/names".into(), "a 1:1:1 c".into());
    let tree = Loader::from_files(&files).include_dir("std").load(Path::new("dir/in")).unwrap();
    assert_eq!(listing(&tree), "a=1.1.1 c.x=1.1.9 b.d=2.2.2");
}

#[test]
fn problems_and_their_places() {
    for (text, problem) in [
        ("", "in: No name space entry for \"root\""),
        ("root {\n  a 1:1:1\n\tb 600:1:1\n}\n", "in:3:4: Illegal domain field in PMID"),
        ("root {\n  a 1:5000:1 }\n", "in:2:5: Illegal cluster field in PMID"),
        ("root {\n  a 1:1:9999999999 }\n", "in:2:5: Illegal item field in PMID"),
        ("root { a 1:2 }\n", "in:1:10: Illegal PMID"),
        ("root { a 1:2:3:4 }\n", "in:1:10: Illegal PMID"),
        ("root {\n\n /* c */ a b 1:1:1 }}\n", "in:3:20: Expected NAME or }"),
        ("root { a }\na", "in:2:1: { expected"),
        ("root { a 1:1:1 b 1:1:1 a 1:1:1", "in:1:1: Duplicate name \"a\" in subtree for \"root\""),
        ("root { a 1:1:1 b a }\n", "in:1:20: Duplicate name \"a\" in subtree for \"root\""),
        ("root {\n a }\n", "in:2:2: Cannot find definition for non-terminal node \"a\" in name space"),
        ("root { }\na.b { }\n", "in:2:1: Disconnected subtree (\"a.b\") in name space"),
        ("root { }\nroot { }\n", "in:1:1: Multiple name space entries for \"root\""),
        ("#define A 1 2\n", "in:1:13: Unexpected extra text in a control line"),
        ("#define A 1\n#define A 1\n", "in:2:9: Macro redefinition"),
        ("#define 1A\n", "in:1:9: Illegal character in macro name"),
        ("#define A '1\n", "in:1:13: Unterminated value string in #define"),
        ("\n#endif\n", "in:2:1: No matching #ifdef or #ifndef for #endif"),
        ("#ifdef A\n#ifdef B\n", "in:2:1: Nested #ifdef or #ifndef"),
        ("\n#ifdef A\n", "in:2:1: End of input and no matching #endif for #ifdef or #ifndef at line 2"),
        ("\nroot { /* a */ /* b\n\n", "in:2:16: Comment at line 2 not terminated before end of file"),
        ("#include \"nosuch\"\n", "in:1:10: Cannot open file for #include"),
        ("#include nosuch\n", "in:1:10: Expected \" or < after #include"),
        ("#pragma x\n", "in:1:1: Illegal line number control number"),
        ("# 7 \"other\"\nroot }\n", "other:7:6: { expected"),
        // Columns in the file, at the name of a macro and after it.
        ("#define LONG aaaaaaaaaaaa\nroot { LONG 1:1:1 LONG }\n", "in:2:24: Duplicate name"),
        ("#define LONG aaaaaaaaaaaa\nroot { LONG 1:1:1 { }\n", "in:2:19: Expected NAME or }"),
        ("#define X 1:x\nroot { a X }\n", "in:2:10: Expected NAME, PMID or }"),
    ] {
        let error = load(text).unwrap_err().to_string();
        assert!(error.starts_with(problem), "{text:?}: {error}");
    }
}

#[test]
fn all_disconnected_blocks_are_told() {
    let error = load("root { }\na { }\nb { }\n").unwrap_err();
    assert_eq!(error.to_string().lines().count(), 2);
    assert_eq!(pmapi::Error::from(error), pmapi::Error::PMNS);
}

#[test]
fn errors_can_go_to_another_thread() {
    fn is_send<T: Send + Sync + 'static>(_: &T) {}
    is_send(&load("").unwrap_err());
    let directory = Loader::new().load(Path::new("/")).unwrap_err();
    assert!(matches!(&directory, Error::Open { .. }));
    assert_eq!(pmapi::Error::from(directory), pmapi::Error::from_errno(2));
}

#[test]
fn pmids_can_have_to_be_unique() {
    let load = |text: &str| {
        let memory = Memory::default();
        Loader::from_files(&memory).unique_pmids().parse(text, Path::new("in")).map(|tree| listing(&tree))
    };
    assert_eq!(load("root { a 7:*:* b 7:*:* }").unwrap(), "a=7.*.* b=7.*.*");
    let error = load("root { a 7:1:1 b }\nb { c 7:1:1 }").unwrap_err().to_string();
    assert_eq!(error, "in:2:5: Duplicate metric id (7.1.1) in name space for metrics \"b.c\" and \"a\"");
}

/// Files and commands that all have the same text. Counts the reads.
struct Mirror<'a>(&'a str, Cell<usize>);

impl Files for Mirror<'_> {
    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        self.1.set(self.1.get() + 1);
        Ok(self.0.into())
    }

    fn shell(&self, _: &str) -> io::Result<Vec<u8>> {
        self.read(Path::new(""))
    }
}

#[test]
fn few_lines_cannot_ask_for_much() {
    // Depth: 5 files open, including the first one.
    let text = "#include \"x\"\n";
    let mirror = Mirror(text, Cell::new(0));
    let error = Loader::from_files(&mirror).parse(text, Path::new("in")).unwrap_err().to_string();
    assert_eq!(error, "x:1:1: #include and/or #shell nesting too deep");
    assert_eq!(mirror.1.get(), 4);
    // Breadth.
    let text = "#include \"x\"\n".repeat(2_000);
    let mirror = Mirror("", Cell::new(0));
    let error = Loader::from_files(&mirror).parse(text, Path::new("in")).unwrap_err().to_string();
    assert_eq!(error, "in:1001:1: over 1000 files included");
    // Size.
    let long = format!("{}\n", " ".repeat(4_000)).repeat(10_000);
    let large = files([("x", &long)]);
    let error =
        Loader::from_files(&large).parse("#include \"x\"\n".repeat(2), Path::new("in")).unwrap_err().to_string();
    assert_eq!(error, "in:2:1: over 64 MiB of text");
    // Complaints.
    let Err(Error::Problems(problems)) = load(&format!("root {{ }}\n{}", "a { }\n".repeat(100_000))) else { panic!() };
    assert_eq!(problems.len(), 1_000);
    assert_eq!(problems[0].place.line, 100_001);
    // Growth.
    let text = format!("#define A {}\n{}\n", "x".repeat(10_000), "A ".repeat(1_000_000));
    let error = load(&text).unwrap_err().to_string();
    assert_eq!(error, "in:2:1: Absurdly long line, cannot recover");
    assert!(load(&"root {\n}".replace(' ', &" ".repeat(4_000))).is_ok());
}

/// Files whose owner is not trusted in the working directory.
struct Strangers(Memory);

impl Files for Strangers {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.read(path)
    }

    fn read_relative(&self, _: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    /// Adds a name, which no test expects.
    fn shell(&self, _: &str) -> io::Result<Vec<u8>> {
        Ok("root { wrong 1:2:3 }".into())
    }
}

#[test]
fn a_stranger_who_owns_the_working_directory_is_not_included() {
    let trap = "#shell \"trap\"\n";
    let all = [("x", trap), ("/dir/x", "root { right 1:2:3 }\n"), ("/abs/y", "")];
    let strangers = Strangers(files(all));
    let loaded = Loader::from_files(&strangers).parse("#include \"x\"\n#include \"/abs/y\"\n", Path::new("/dir/in"));
    assert_eq!(listing(&loaded.unwrap()), "right=1.2.3");
}

proptest! {
    /// The property of the fuzz target `load`.
    #[test]
    fn no_text_does_harm(text in proptest::collection::vec(any::<u8>(), 0..300)) {
        harmless(&text);
    }

    #[test]
    fn no_text_of_tokens_does_harm(
        words in proptest::collection::vec(
            proptest::sample::select(vec![
                "root", "{", "}", "a", "b", "a.b", "1:2:3", "7:*:*", ":", "\n", "\n", "#define A", "A", "#undef A",
                "#ifdef A", "#endif", "#else", "/*", "*/", "#include \"a\"", "#shell 'a'", "# 3 \"f\"", "\0", "é",
            ]),
            0..60,
        ),
    ) {
        harmless(words.join(" ").replace("\n ", "\n").as_bytes());
    }
}

fn harmless(text: &[u8]) {
    let lossy = String::from_utf8_lossy(text);
    let mirror = Mirror(&lossy, Cell::new(0));
    match Loader::from_files(&mirror).parse(text, Path::new("in")) {
        Err(e) => drop((e.to_string(), e.diagnostics())),
        Ok(mut tree) => {
            let written = pmns::write::root(&tree);
            let again = load(&written).unwrap();
            assert_eq!(listing(&again), listing(&tree));
            assert_eq!(pmns::write::root(&again), written);
            for leaf in again.root().leaves() {
                assert_eq!(tree.lookup(&leaf.path()), Ok(leaf.pmid().unwrap()));
                assert!(tree.names(leaf.pmid().unwrap()).any(|name| name == leaf.path()));
                assert!(tree.remove(&leaf.path()));
            }
            assert_eq!(tree.root().leaves().count(), 0);
        }
    }
}
