//! Comparison of lookups with those of the installed PCP, in the compiled help text of its agents and in ours.

#![allow(clippy::unwrap_used)]

use pcp_help::{Compiled, Entry, Target};
use pmapi::{InDom, PmId};
use std::fmt::Write as _;
use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::process::Command;

/// Returns the results of lookups in compiled files, by this crate and by `tests/support/oracle.c`, for every target in
/// the files and for some targets that are not there.
fn lookups(tmp: &Path, base: &Path) -> (String, String) {
    let oracle = tmp.join("oracle");
    if !oracle.exists() {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/oracle.c");
        let gcc = Command::new("gcc").arg("-o").arg(&oracle).args([source, "-lpcp_pmda", "-lpcp"]).status().unwrap();
        assert!(gcc.success());
    }
    let help = Compiled::open(base).unwrap();
    let (mut ids, mut ours) = (String::new(), String::new());
    for target in help.targets() {
        let (Target::Metric(pmid), Target::InDom(indom)) = (match target {
            Target::Metric(pmid) => (target, Target::InDom(InDom::from_word(pmid.word()).unwrap())),
            Target::InDom(indom) => (Target::Metric(PmId::from_word(indom.word()).unwrap()), target),
        }) else {
            unreachable!();
        };
        writeln!(ids, "m {}\ni {}\nm {}", pmid.word(), indom.word(), pmid.word() ^ 0x10_0000).unwrap();
        let absent = PmId::from_word(pmid.word() ^ 0x10_0000).unwrap();
        for target in [pmid.into(), indom.into(), absent.into()] {
            let [oneline, text] = [help.oneline(target), help.text(target)].map(|text| match text {
                Some(text) => format!("+{}", String::from_utf8_lossy(text).replace('\n', "\\n")),
                None => "-".into(),
            });
            writeln!(ours, "{oneline}\t{text}").unwrap();
        }
    }
    let mut input = tempfile::tempfile().unwrap();
    input.write_all(ids.as_bytes()).unwrap();
    input.rewind().unwrap();
    let theirs = Command::new(&oracle).arg(base).stdin(input).output().unwrap().stdout;
    (ours, String::from_utf8_lossy(&theirs).into_owned())
}

#[test]
#[ignore = "needs PCP"]
fn lookups_in_files_of_agents() {
    let tmp = tempfile::tempdir().unwrap();
    let mut found = 0;
    for agent in testkit::agents_with("help.dir") {
        let (ours, theirs) = lookups(tmp.path(), &agent.join("help"));
        assert_eq!(ours, theirs, "{}", agent.display());
        found += ours.lines().filter(|line| line.starts_with('+')).count();
    }
    assert!(found > 1_000, "only {found} texts");
}

#[test]
#[ignore = "needs PCP"]
fn c_reads_our_files() {
    let tmp = tempfile::tempdir().unwrap();
    // Texts that exceed the limits of PCP's newhelp, of several domains, with metrics and instance domains mixed.
    let entries: Vec<Entry> = (0..3_000_u32)
        .map(|n| {
            let word = ((n % 7 + 1) << 22) + n * 1_001;
            let target = match n % 3 {
                0 => Target::InDom(InDom::from_word(word).unwrap()),
                _ => Target::Metric(PmId::from_word(word).unwrap()),
            };
            let text = "a line of some length\n\n".repeat(n as usize % 500);
            Entry::new(target.to_string(), target, "x".repeat(n as usize % 300), text)
        })
        .collect();
    let base = tmp.path().join("help");
    pcp_help::compile(&entries).unwrap().write(&base).unwrap();
    let (ours, theirs) = lookups(tmp.path(), &base);
    assert!(ours == theirs);
    assert!(ours.lines().count() == 9_000);
}
