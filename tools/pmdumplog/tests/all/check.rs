//! Verdicts of `pmdumplog --check` compared with those of PCP's pmlogcheck over the archives of its tests.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::Pcp;

/// Archives whose blocks have no type code: PCP reads their 64-bit counters in the wrong byte order, and reports wraps.
/// The others have derived metrics, about which pmlogcheck 6 complains, but not 7.2.
const DIFFERENT: [&str; 6] =
    ["960624.08.17_v2", "bozo.client_v2", "babylon.pmview_v2", "log-derived", "bozo-vm-disk", "old611"];

fn add(dir: &Path, found: &mut BTreeSet<PathBuf>) {
    for path in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if let Some((base, _)) = path.to_str().unwrap().split_once(".meta") {
            found.insert(base.into());
        }
    }
}

/// Returns the exit code, and whether there was any output.
fn verdict(program: &str, option: &str, archive: &Path) -> (Option<i32>, bool) {
    let output = Command::new(program).args(option.split_whitespace()).arg(archive).output().unwrap();
    (output.status.code(), !(output.stderr.is_empty() && output.stdout.is_empty()))
}

#[test]
#[ignore = "needs PCP"]
// Slow: pmlogcheck and ours check each archive of the test suite.
fn verdicts_as_those_of_pmlogcheck() {
    let wants_all = std::env::var_os("ARCHIVES").is_some_and(|what| what == "all");
    let suite = Pcp::required().testsuite();
    let mut archives = BTreeSet::new();
    add(&suite.join("archives"), &mut archives);
    add(&suite.join("badarchives"), &mut archives);
    let len = |base: &Path, suffix: &str| Path::new(&format!("{}{suffix}", base.display())).metadata().map(|f| f.len());
    let (mut compared, mut bad) = (0, 0);
    for archive in &archives {
        let is_small = len(archive, ".0").or_else(|_| len(archive, ".0.xz")).unwrap_or(0) < 100_000;
        if !(is_small || wants_all) || DIFFERENT.iter().any(|name| archive.ends_with(name)) {
            continue;
        }
        let theirs = verdict("pmlogcheck", "", archive);
        assert_eq!(verdict(env!("CARGO_BIN_EXE_pmdumplog"), "--check", archive), theirs, "{}", archive.display());
        (compared, bad) = (compared + 1, bad + usize::from(theirs.1));
    }
    assert!(compared > 100 && bad > 30, "{compared} compared, {bad} bad");
}
