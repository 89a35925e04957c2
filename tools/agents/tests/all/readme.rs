//! The table of folders in ARCHITECTURE.md agrees with the manifests, and its paths exist.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Package name and workspace dependencies (as folders) of each folder with a package.
type Folders = BTreeMap<String, (String, BTreeSet<String>)>;

fn manifests(root: &Path) -> Folders {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).current_dir(root);
    let metadata: Value = serde_json::from_slice(&cargo.output().unwrap().stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let folder = |package: &Value| {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
        manifest.strip_prefix(root).unwrap().to_str().unwrap().to_owned()
    };
    let folders: BTreeMap<String, String> = packages.iter().map(|package| (name(package), folder(package))).collect();
    let dependencies = |package: &Value| {
        let normal =
            package["dependencies"].as_array().unwrap().iter().filter(|dependency| dependency["kind"].is_null());
        normal.filter_map(|dependency| folders.get(&name(dependency)).cloned()).collect()
    };
    packages.iter().map(|package| (folder(package), (name(package), dependencies(package)))).collect()
}

fn table(root: &Path) -> Folders {
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let rows = text.split_once("## Folders").unwrap().1.lines().filter(|line| line.starts_with("| `"));
    let words = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<_>>();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').collect();
        let word = |at: usize| cells[at].trim().trim_matches('`').to_owned();
        (word(1), (word(2), words(cells[4])))
    };
    rows.take_while(|line| line.matches('|').count() == 6).map(row).collect()
}

#[test]
fn the_table_of_folders_agrees_with_the_manifests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().canonicalize().unwrap();
    let mut manifests = manifests(&root);
    // The page names these beside the table.
    let beside = ["agents/", "tools/agents", "packaging/"];
    manifests.retain(|folder, _| !beside.iter().any(|other| folder.starts_with(other)));
    // Any crate may use this one, and the table does not repeat it.
    manifests.values_mut().for_each(|(_, dependencies)| _ = dependencies.remove("pmapi/base"));
    assert_eq!(table(&root), manifests);
}

#[test]
fn the_paths_of_the_page_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let quoted = text.split('`').skip(1).step_by(2);
    let paths: Vec<_> = quoted.filter(|word| word.contains('/') && !word.contains([' ', '*', ':'])).collect();
    assert!(paths.len() > 30, "{paths:?}");
    let missing: Vec<_> = paths.iter().filter(|path| !root.join(path).exists()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
