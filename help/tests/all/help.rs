//! Help sources and compiled files, including malformed ones.

#![allow(clippy::unwrap_used)]

use pcp_help::source::{self, Resolver};
use pcp_help::{Compiled, Entry, Error, Target};
use pmapi::{Domain, InDom, Item, PmId, Serial};
use proptest::prelude::*;
use std::path::Path;

/// Resolves `simple.now` and `SIMPLE`.
struct Simple;

impl Resolver for Simple {
    fn metric(&self, name: &str) -> Option<PmId> {
        (name == "simple.now").then(|| metric(2, 4))
    }

    fn domain(&self, symbol: &str) -> Option<Domain> {
        (symbol == "SIMPLE").then(simple)
    }
}

fn simple() -> Domain {
    Domain::new(253).unwrap()
}

fn metric(cluster: u16, item: u16) -> PmId {
    PmId::new(simple(), Item::new(cluster, item))
}

fn indom(serial: u32) -> InDom {
    InDom::new(simple(), Serial::new(serial))
}

fn parse(text: &str) -> Result<Vec<Entry>, Error> {
    source::parse(text.as_bytes(), Path::new("help"), &Simple)
}

#[test]
fn source() {
    let entries = parse(
        "# a comment\nignored\n\n@ simple.now   Time of day  \n\nfirst\n# no text\n  second @\n\n\n\
         @SIMPLE.1 Colours\n@\t253.0.7\n@ SIMPLE.0.8\tx\n253.1",
    );
    let expected = [
        Entry::new("simple.now", metric(2, 4), "Time of day  ", "\nfirst\n  second @"),
        Entry::new("SIMPLE.1", indom(1), "Colours", ""),
        Entry::new("253.0.7", metric(0, 7), "", ""),
        Entry::new("SIMPLE.0.8", metric(0, 8), "x", "253.1"),
    ];
    assert_eq!(entries.unwrap(), expected);
    assert_eq!(parse("").unwrap(), []);
}

#[test]
fn problems_of_sources() {
    for (text, problem) in [
        ("@\ntext", "help:1: an entry without a name"),
        ("\n@ nosuch text\n", "help:2: nosuch: neither a metric's name nor DOMAIN.CLUSTER.ITEM nor DOMAIN.SERIAL"),
        ("@ OTHER.1 text\n", "help:1: OTHER.1: neither"),
        ("@ 253.1.2.3 text\n", "help:1: 253.1.2.3: neither"),
        ("@ 253.1.x text\n", "help:1: 253.1.x: neither"),
        ("@ 253. text\n", "help:1: 253.: neither"),
        ("@ 511.1 text\n", "help:1: 511.1: the domain is not 1 to 510"),
        ("@ 99999999999.1 text\n", "help:1: 99999999999.1: the domain is not 1 to 510"),
        ("@ 253.4194304 text\n", "help:1: 253.4194304: the serial number has more than 22 bits"),
        ("@ 253.4096.0 text\n", "help:1: 253.4096.0: the cluster is over 4095 or the item over 1023"),
        ("@ 253.0.1024 text\n", "help:1: 253.0.1024: the cluster is over 4095 or the item over 1023"),
        ("@ 253.0.1 a\n@ 253.0.2 b\n@ SIMPLE.0.1 c\n", "help:3: SIMPLE.0.1: line 1 already has an entry for 253.0.1"),
        ("@ 253.0.1 a\0b\n", "help:1: 253.0.1: the entry contains a NUL byte"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.starts_with(problem), "{text:?}: {error}");
    }
}

#[test]
fn what_cannot_be_written() {
    let entry = |name: &str, oneline: &str, text: &str| Entry::new(name, metric(0, 0), oneline, text);
    for (entry, reason) in [
        (entry("", "x", "y"), "the name is empty or has white space"),
        (entry("a b", "x", "y"), "the name is empty or has white space"),
        (entry("a", "x\ny", "y"), "the summary has more than one line"),
        (entry("a", "x", "y\0z"), "a NUL byte would end it"),
    ] {
        for error in
            [pcp_help::compile(std::slice::from_ref(&entry)).unwrap_err(), source::write([&entry]).unwrap_err()]
        {
            assert!(error.to_string().ends_with(reason), "{error}");
        }
    }
    for text in ["x\n# y", "@x"] {
        let error = source::write([&entry("a", "x", text)]).unwrap_err();
        assert!(error.to_string().ends_with("a line of the text begins with # or @"), "{error}");
        assert!(pcp_help::compile(&[entry("a", "x", text)]).is_ok());
    }
    let error = pcp_help::compile(&[entry("a", "x", "y"), entry("b", "x", "y")]).unwrap_err();
    assert_eq!(error.to_string(), "help text of b (253.0.0): another entry has this identifier");
}

#[test]
fn malformed_files() {
    let files = pcp_help::compile(&[
        Entry::new("a", metric(0, 0), "one", "text"),
        Entry::new("253.1", indom(1), "two", "more"),
    ])
    .unwrap();
    let open = |dir: &[u8], pag: &[u8]| Compiled::from_bytes(dir.to_vec(), pag.to_vec());
    assert!(open(&files.dir, &files.pag).is_ok());
    for dir in [&files.dir[..0], &files.dir[..11], &[0; 64]] {
        assert!(matches!(open(dir, &files.pag), Err(Error::Version { .. })));
    }
    let error = open(&files.dir[..35], &files.pag).unwrap_err().to_string();
    assert_eq!(error, "help.dir: the header says 2 entries, the file has 1");
    let error = open(&files.dir, &files.pag[..files.pag.len() - 5]).unwrap_err().to_string();
    assert!(error.starts_with("help.pag: the text of entry 2 (253.1) is not terminated (offset "), "{error}");
    let error = open(&files.dir, b"").unwrap_err();
    assert_eq!(pmapi::Error::from(error), pmapi::Error::from_errno(22));

    // Surplus bytes after the index and another order of records are accepted.
    let mut dir = files.dir.clone();
    let (first, second) = dir[12..36].split_at_mut(12);
    first.swap_with_slice(second);
    dir.extend_from_slice(b"rest");
    let help = open(&dir, &files.pag).unwrap();
    assert_eq!(help.targets().collect::<Vec<_>>(), [indom(1).into(), Target::from(metric(0, 0))]);
    assert_eq!(help.text(metric(0, 0).into()), Some(&b"text"[..]));
}

#[test]
fn files_that_change_are_no_matter() {
    let tmp = tempfile::tempdir().unwrap();
    let base = tmp.path().join("help.en");
    let files = |text: &str| pcp_help::compile(&[Entry::new("a", metric(0, 0), "one", text)]).unwrap();
    files("old").write(&base).unwrap();
    let help = Compiled::open(&base).unwrap();
    std::fs::write(tmp.path().join("help.en.pag"), "").unwrap();
    assert_eq!(help.text(metric(0, 0).into()), Some(&b"old"[..]));
    assert!(matches!(Compiled::open(&base), Err(Error::Format { .. })));
    files("new").write(&base).unwrap();
    assert_eq!(Compiled::open(&base).unwrap().text(metric(0, 0).into()), Some(&b"new"[..]));
    let mut names: Vec<_> = std::fs::read_dir(tmp.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["help.en.dir", "help.en.pag"]);
    assert!(matches!(files("x").write(&tmp.path().join("no/help")), Err(Error::Io { .. })));
    assert!(matches!(Compiled::open(&tmp.path().join("no")), Err(Error::Io { .. })));
}

proptest! {
    /// The property of the fuzz target `source`.
    #[test]
    fn no_source_does_harm(text in "([@#\n \t.a0-9]|@ [1-9]{1,3}\\.[0-9]{1,4}(\\.[0-9]{1,4})? ?|\\PC|\\x00){0,80}") {
        let text = text.as_bytes();
        for raw in source::raw_entries(text) {
            prop_assert!(raw.line < raw.end && !raw.name.contains(&b'\n') && !raw.oneline.contains(&b'\n'));
        }
        if let Ok(entries) = source::parse(text, Path::new("help"), &Simple) {
            let files = pcp_help::compile(&entries).unwrap();
            let help = Compiled::from_bytes(files.dir, files.pag).unwrap();
            for entry in &entries {
                prop_assert_eq!(help.oneline(entry.target), Some(&entry.oneline[..]));
                prop_assert_eq!(help.text(entry.target), Some(&entry.text[..]));
            }
            let written = source::write(&entries).unwrap();
            prop_assert_eq!(source::parse(&written, Path::new("help"), &Simple).unwrap(), entries);
        }
    }

    /// The property of the fuzz target `compiled`, for an index with arbitrary records and bytes.
    #[test]
    fn no_compiled_file_does_harm(
        count in 0..6_u32,
        records in proptest::collection::vec((any::<u32>(), 0..40_u32, 0..40_u32), 0..6),
        pag in proptest::collection::vec(prop_oneof![Just(0), any::<u8>()], 0..40),
        noise in proptest::option::of((any::<proptest::sample::Index>(), any::<u8>())),
    ) {
        let words = records.iter().flat_map(|(key, oneline, text)| [*key, *oneline, *text]);
        let header = [0x5063_5068, 0x3132_0000, count];
        let mut dir: Vec<u8> = header.into_iter().chain(words).flat_map(u32::to_ne_bytes).collect();
        if let Some((at, byte)) = noise {
            let at = at.index(dir.len());
            dir[at] = byte;
        }
        if let Ok(help) = Compiled::from_bytes(dir, pag) {
            for target in help.targets() {
                prop_assert!(help.oneline(target).is_some() && help.text(target).is_some());
            }
        }
    }
}

#[test]
fn a_link_in_the_place_of_compiled_help_is_not_followed() {
    let name = |suffix: &str| format!("help.{suffix}.{}.new", std::process::id());
    let (pag, dir) = (name("pag"), name("dir"));
    let attacker = testkit::Attacker::swaps(["help.pag", "help.dir", ".help.pag.new", ".help.dir.new", &pag, &dir]);
    let files = pcp_help::Files { dir: vec![1; 100], pag: vec![2; 100] };
    for _ in 0..200 {
        // The write may fail, because the attacker may remove files from its own directory.
        let _ = files.write(&attacker.dir().join("help"));
    }
    attacker.has_failed();
}

#[test]
fn help_that_cannot_be_written_leaves_the_old_pair() {
    let dir = tempfile::tempdir().unwrap();
    let [base, pag, index] = ["help", "help.pag", "help.dir"].map(|name| dir.path().join(name));
    pcp_help::Files { dir: vec![1; 100], pag: vec![2; 100] }.write(&base).unwrap();
    // A file that cannot be created is an error before the other one is replaced.
    std::fs::remove_file(&index).unwrap();
    std::fs::create_dir_all(index.join("full")).unwrap();
    assert!(pcp_help::Files { dir: vec![3; 100], pag: vec![4; 100] }.write(&base).is_err());
    assert_eq!(std::fs::read(&pag).unwrap(), [2; 100]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn files_that_do_not_end_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("help");
    let refused = || {
        let Err(Error::Io { path, source }) = Compiled::open(&base) else { panic!("opened") };
        (path.extension().unwrap().to_owned(), source.kind())
    };
    let files = pcp_help::compile(&[Entry::new("simple.now", metric(2, 4), "The time", "")]).unwrap();
    files.write(&base).unwrap();
    assert!(Compiled::open(&base).is_ok());
    // Nothing reads or writes the FIFO, whose opening would block.
    let pag = base.with_extension("pag");
    std::fs::remove_file(&pag).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&pag).status().unwrap().success());
    assert_eq!(refused(), ("pag".into(), std::io::ErrorKind::InvalidInput));
    std::fs::File::options().write(true).open(base.with_extension("dir")).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(refused(), ("dir".into(), std::io::ErrorKind::FileTooLarge));
}
