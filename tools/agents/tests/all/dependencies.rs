//! The dependencies keep the rules of `deny.toml`: licences, one version of each crate, and the registry.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use toml::Table;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

fn rules() -> Table {
    fs::read_to_string(root().join("deny.toml")).unwrap().parse().unwrap()
}

/// Returns the packages that a build for Linux compiles, with all features, tests and build scripts.
fn packages() -> Vec<Value> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version", "1", "--offline", "--locked", "--all-features"]);
    let output = cargo.args(["--filter-platform", "x86_64-unknown-linux-gnu"]).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let used: BTreeSet<&str> =
        metadata["resolve"]["nodes"].as_array().unwrap().iter().map(|node| node["id"].as_str().unwrap()).collect();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages.filter(|package| used.contains(package["id"].as_str().unwrap())).cloned().collect()
}

fn text<'a>(package: &'a Value, key: &str) -> &'a str {
    package[key].as_str().unwrap_or_default()
}

/// Returns whether a licence expression (SPDX) can be met with the allowed licences.
fn is_allowed(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let expression = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = expression.split_whitespace().collect();
    let mut at = 0;
    let met = any(&words, &mut at, allowed);
    met && at == words.len()
}

fn any(words: &[&str], at: &mut usize, allowed: &BTreeSet<&str>) -> bool {
    let mut met = all(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        met |= all(words, at, allowed);
    }
    met
}

fn all(words: &[&str], at: &mut usize, allowed: &BTreeSet<&str>) -> bool {
    let mut met = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(words, at, allowed);
    }
    met
}

fn one(words: &[&str], at: &mut usize, allowed: &BTreeSet<&str>) -> bool {
    let Some(first) = words.get(*at) else { return false };
    *at += 1;
    if *first == "(" {
        let met = any(words, at, allowed);
        *at += 1;
        return met && words.get(*at - 1) == Some(&")");
    }
    match (words.get(*at), words.get(*at + 1)) {
        (Some(&"WITH"), Some(exception)) => {
            *at += 2;
            allowed.contains(format!("{first} WITH {exception}").as_str())
        }
        _ => allowed.contains(first),
    }
}

#[test]
fn licences() {
    let rules = rules();
    let allowed: BTreeSet<&str> =
        rules["licenses"]["allow"].as_array().unwrap().iter().map(|licence| licence.as_str().unwrap()).collect();
    for package in packages() {
        let (name, licence) = (text(&package, "name"), text(&package, "license"));
        assert!(is_allowed(licence, &allowed), "{name}: the licence {licence:?} is not in deny.toml");
    }
    // The reader of expressions itself.
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0 AND MIT", false),
        ("(MIT OR GPL-3.0) AND Unicode-3.0", true),
        ("(MIT OR GPL-3.0) AND GPL-2.0", false),
        ("Apache-2.0/MIT", true),
        ("GPL-2.0 WITH Classpath-exception-2.0", false),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("(MIT", false),
        ("MIT OR", true),
        ("", false),
    ] {
        assert_eq!(is_allowed(expression, &allowed), expected, "{expression:?}");
    }
}

#[test]
fn one_version_of_each_crate() {
    let rules = rules();
    let skipped: BTreeSet<(&str, &str)> = rules["bans"]["skip"]
        .as_array()
        .unwrap()
        .iter()
        .map(|skip| skip["crate"].as_str().unwrap().split_once('@').unwrap())
        .collect();
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut needed = BTreeSet::new();
    for package in packages() {
        let (name, version) = (text(&package, "name"), text(&package, "version"));
        let excuse = skipped
            .iter()
            .find(|(excused, skipped)| *excused == name && format!("{version}.").starts_with(&format!("{skipped}.")));
        if let Some(excuse) = excuse {
            needed.insert(*excuse);
        } else {
            versions.entry(name.to_owned()).or_default().insert(version.to_owned());
        }
    }
    versions.retain(|_, versions| versions.len() > 1);
    assert!(versions.is_empty(), "several versions of a crate: {versions:?}; deny.toml can excuse one of them");
    for excuse in &skipped {
        assert!(needed.contains(excuse), "deny.toml excuses {excuse:?}, which is not used any more");
    }
}

/// Returns the output of `cargo tree`, one dependency a line.
fn tree(arguments: &[&str]) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--offline", "--locked", "--prefix", "none"]).args(arguments);
    let output = cargo.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Nothing of protocols, of derived metrics or of files that other users can write to.
#[test]
fn applications_that_instrument_themselves_compile_few_crates() {
    let tree = tree(&["-e", "normal", "-p", "pcp-mmv"]);
    let crates: BTreeSet<&str> = tree.lines().collect();
    assert!(crates.len() <= 31, "{crates:#?}");
}

/// Nor is there one in clients, which host agents by `pcp-collector`.
#[test]
fn shared_objects_have_no_command_line() {
    let without = ["-e", "normal", "--no-default-features", "-p"];
    for package in ["pcp-pmda", "pcp-collector", "pcp-context", "pcp-mmv-reader"] {
        let tree = tree(&[&without[..], &[package]].concat());
        let unwanted = |line: &&str| line.starts_with("clap") || line.starts_with("signal-hook");
        assert_eq!(tree.lines().find(unwanted), None, "{package}");
    }
    // The same search finds them in a daemon.
    assert!(tree(&["-e", "normal", "-p", "pcp-pmda"]).lines().any(|line| line.starts_with("clap")));
}

/// The tests of an agent use `pcp-collector`. A crate with other features there would be compiled again, with all above it.
#[test]
fn the_tests_of_an_agent_compile_no_crate_of_the_agent_again() {
    let crates = |packages: &[&str]| {
        let tree = tree(&[&["-e", "normal,build", "--format", "{p} [{f}]"], packages].concat());
        tree.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect::<BTreeSet<_>>()
    };
    let (agent, tests) = (crates(&["-p", "pcp-pmda"]), crates(&["-p", "pcp-pmda", "-p", "pcp-collector"]));
    assert!(agent.iter().any(|line| line.starts_with("nix ")) && tests.len() > agent.len());
    let again: Vec<_> = agent.difference(&tests).collect();
    assert!(again.is_empty(), "{again:?}");
}

/// That hasher waits for ever in some children of forks.
#[test]
fn applications_get_no_default_hasher_of_hashbrown() {
    let features = |package: &str| tree(&["--all-features", "-e", "normal,features", "-p", package]);
    let feature = "hashbrown feature \"default-hasher\"";
    for package in ["pcp-mmv", "pcp-mmv-capi", "pcp-trace"] {
        assert!(!features(package).contains(feature), "{package}");
    }
    // All others that use the crate need the feature. A build of the workspace would have it without that.
    for package in packages().iter().filter(|package| package["source"].is_null()) {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        for hashbrown in dependencies.filter(|dependency| dependency["name"] == "hashbrown") {
            let has_it = hashbrown["features"].as_array().unwrap().contains(&"default-hasher".into());
            assert_eq!(has_it, package["name"] != "pcp-mmv", "{}", package["name"]);
        }
    }
}

#[test]
fn sources() {
    for package in packages().iter().filter(|package| !package["source"].is_null()) {
        let source = text(package, "source");
        let name = text(package, "name");
        assert_eq!(source, "registry+https://github.com/rust-lang/crates.io-index", "{name}");
    }
    // A dependency that crates.io would refuse, because it has no version.
    for package in packages().iter().filter(|package| package["source"].is_null() && package["publish"].is_null()) {
        for dependency in package["dependencies"].as_array().unwrap().iter().filter(|one| one["kind"] != "dev") {
            assert_ne!(dependency["req"], "*", "{}: {}", package["name"], dependency["name"]);
        }
    }
}
