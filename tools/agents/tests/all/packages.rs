//! Packages for crates.io contain the files that users expect, and no others.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

fn cargo(args: &[&str]) -> String {
    cargo_in(root(), args)
}

fn cargo_in(directory: &Path, args: &[&str]) -> String {
    let output = Command::new(env!("CARGO")).args(args).arg("--offline").current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn published() -> Vec<Value> {
    published_in(root())
}

fn published_in(directory: &Path) -> Vec<Value> {
    let metadata = cargo_in(directory, &["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages.filter(|package| package["publish"].is_null()).cloned().collect()
}

#[test]
fn manifests_have_what_crates_io_shows() {
    for package in published() {
        let name = package["name"].as_str().unwrap();
        assert_eq!(package["documentation"], format!("https://docs.rs/{name}"));
        assert_eq!(package["readme"], "README.md", "{name}");
        assert_eq!(package["license"], "MIT OR Apache-2.0", "{name}");
        assert!(package["description"].as_str().is_some_and(|text| text.contains("Performance Co-Pilot")), "{name}");
        for list in ["keywords", "categories"] {
            assert!((1..=5).contains(&package[list].as_array().unwrap().len()), "{name}: {list}");
        }
        // docs.rs would otherwise leave out the modules of features.
        let has_features = !package["features"].as_object().unwrap().is_empty();
        assert_eq!(package["metadata"]["docs"]["rs"]["all-features"] == true, has_features, "{name}");
    }
}

/// Returns whether a file has unit tests, or a file of a module that it declares.
fn has_tests(file: &Path) -> bool {
    let text = fs::read_to_string(file).unwrap();
    let modules = text.lines().filter_map(|line| {
        let (visibility, name) = line.trim().strip_suffix(';')?.split_once("mod ")?;
        (visibility.is_empty() || visibility.starts_with("pub")).then_some(name)
    });
    let is_root = ["lib.rs", "main.rs", "mod.rs"].iter().any(|name| file.ends_with(name));
    let dir = if is_root { file.parent().unwrap().to_owned() } else { file.with_extension("") };
    let files = modules.flat_map(|name| [dir.join(name).with_extension("rs"), dir.join(name).join("mod.rs")]);
    text.contains("#[test]")
        || text.contains("proptest! {")
        || files.filter(|file| file.exists()).any(|file| has_tests(&file))
}

/// `test = false` saves a program that would be compiled and linked for no test. `check` names the others.
#[test]
fn libraries_and_programs_are_compiled_for_their_unit_tests_if_they_have_any() {
    let check = fs::read_to_string(root().join("check")).unwrap();
    let metadata = cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    for target in packages.flat_map(|package| package["targets"].as_array().unwrap()) {
        let (kind, name) = (target["kind"][0].as_str().unwrap(), target["name"].as_str().unwrap());
        let path = Path::new(target["src_path"].as_str().unwrap());
        if ["lib", "rlib", "bin"].contains(&kind) {
            let has_tests = has_tests(path);
            assert_eq!(target["test"].as_bool().unwrap(), has_tests, "`test` of {}", path.display());
            let is_run = kind != "bin" || check.contains(&format!(" --bin {name} "));
            assert!(is_run || !has_tests, "check does not run the tests of {name}");
        }
    }
}

/// Runs `packaging/crates`, and returns whether it succeeded.
fn prepare(url: &str, directory: &Path) -> bool {
    let output = Command::new(root().join("packaging/crates")).arg(url).arg(directory).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || said.contains("packaging/crates: "), "{said}");
    output.status.success()
}

#[test]
fn the_repository_is_named_when_crates_are_published() {
    let (temporary, url) = (tempfile::tempdir().unwrap(), "https://example.org/pcp-rs");
    let copy = temporary.path().join("with space");
    for bad in
        ["", "ftp://example.org/x", "https://example.org/\nx", "https://example.org/\"x", "https://example.org/|x"]
    {
        assert!(!prepare(bad, &copy) && !copy.exists(), "{bad}");
    }
    assert!(prepare(url, &copy));
    assert!(!prepare(url, &copy), "an existing directory");
    let packages = published_in(&copy);
    assert_eq!(packages.len(), published().len());
    for package in packages {
        assert_eq!(package["repository"], url, "{}", package["name"]);
    }
}

#[test]
// Slow: cargo lists the files of each package.
fn packages_have_licences_and_no_tests() {
    for package in published() {
        let name = package["name"].as_str().unwrap();
        let files = cargo(&["package", "--list", "--allow-dirty", "-p", name]);
        let files: Vec<&str> = files.lines().collect();
        for file in ["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md"] {
            assert!(files.contains(&file), "{name}: no {file}");
        }
        let known = [
            "src",
            "examples",
            "build.rs",
            "Cargo.lock",
            "Cargo.toml.orig",
            ".cargo_vcs_info.json",
            "CHECKED.md",
            "templates",
        ];
        let known = |file: &&str| known.contains(&file.split('/').next().unwrap_or(file));
        let stray: Vec<_> = files.iter().filter(|file| !known(file)).collect();
        assert_eq!(stray, [&"Cargo.toml", &"LICENSE-APACHE", &"LICENSE-MIT", &"README.md"], "{name}");
    }
}

/// crates.io accepts a package only after the packages that it depends on. A dependency without a version is left out.
#[test]
fn packages_can_be_published_one_after_the_other() {
    let published = published();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let names: BTreeSet<String> = published.iter().map(name).collect();
    let mut waiting: BTreeMap<String, BTreeSet<String>> = published
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().unwrap().iter();
            let needed = dependencies.filter(|dependency| dependency["req"] != "*").map(name);
            (name(package), needed.filter(|dependency| names.contains(dependency)).collect())
        })
        .collect();
    while !waiting.is_empty() {
        let ready: BTreeSet<String> =
            waiting.iter().filter(|(_, needed)| needed.is_empty()).map(|(name, _)| name.clone()).collect();
        assert!(!ready.is_empty(), "these depend on each other: {waiting:?}");
        waiting.retain(|name, needed| {
            needed.retain(|dependency| !ready.contains(dependency));
            !ready.contains(name)
        });
    }
}
