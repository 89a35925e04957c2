//! The table of symbols, compared with `exports.map` and with the installed library.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

fn output(program: &str, arguments: &[&str], path: &Path) -> String {
    let output = Command::new(program).args(arguments).arg(path).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(output.status.success(), "{program} {}", path.display());
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the functions of a library that programs call, as `name@@version`.
fn functions(path: &Path) -> BTreeSet<String> {
    let table = output("nm", &["-D", "--defined-only", "--with-symbol-versions"], path);
    let names = table.lines().filter_map(|line| line.rsplit_once([' '])).filter(|(rest, _)| rest.ends_with('T'));
    names.map(|(_, name)| name.to_owned()).filter(|name| name.starts_with("mmv_")).collect()
}

/// Returns the values of the entries of the dynamic section with a tag.
fn dynamic(path: &Path, tag: &str) -> Vec<String> {
    let table = output("readelf", &["-d", "-W"], path);
    let lines = table.lines().filter(|line| line.contains(&format!("({tag})")));
    lines.map(|line| line.split(['[', ']']).nth(1).unwrap().to_owned()).collect()
}

/// Returns the versions that a library defines, each with the version that it builds upon.
fn versions(path: &Path) -> BTreeSet<String> {
    let table = output("readelf", &["-V", "-W"], path);
    let own = table.split("Version definition section").nth(1).unwrap().split("Version needs section").next().unwrap();
    own.lines()
        .filter_map(|line| line.split_once("Name: ").or(line.split_once("Parent 1: ")))
        .map(|(_, n)| n.to_owned())
        .collect()
}

/// Every function of the version script has its version.
#[test]
fn functions_are_those_of_the_version_script() {
    let script = include_str!("../exports.map");
    let mut version = "";
    let mut expected = BTreeSet::new();
    for line in script.lines().map(str::trim) {
        if let Some(name) = line.strip_suffix(" {") {
            version = name;
        } else if let Some(name) = line.strip_suffix(';').filter(|name| name.starts_with("mmv_")) {
            expected.insert(format!("{name}@@{version}"));
        }
    }
    assert_eq!(expected.len(), 32);
    assert_eq!(functions(&common::own_path()), expected);
}

/// A program that unloads the library keeps its code, which handles a signal.
#[test]
fn the_library_stays_loaded() {
    let flags = output("readelf", &["-d", "-W"], &common::own_path());
    assert!(flags.lines().any(|line| line.contains("(FLAGS_1)") && line.contains("NODELETE")), "{flags}");
}

/// The library has the functions, versions and name of the installed one, and `mmv_stats_reset` of PCP 7. It needs none
/// of PCP's libraries.
#[test]
#[ignore = "needs PCP"]
fn functions_are_those_of_the_installed_library() {
    let (own, theirs) = (common::own_path(), common::c_path());
    let mut expected = functions(&theirs);
    assert!(expected.len() >= 31, "{expected:?}");
    expected.insert("mmv_stats_reset@@PCP_MMV_1.5".into());
    assert_eq!(functions(&own), expected);
    let mut expected = versions(&theirs);
    expected.insert("PCP_MMV_1.5".into());
    assert_eq!(versions(&own), expected);
    assert_eq!(dynamic(&own, "SONAME"), dynamic(&theirs, "SONAME"));
    let needed = dynamic(&own, "NEEDED");
    assert!(needed.iter().all(|name| !name.contains("pcp")), "{needed:?}");
}
