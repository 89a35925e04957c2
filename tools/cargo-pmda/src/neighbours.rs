//! Agents in the folders beside a new one, and in the workspace around it. They are found by the constant `DOMAIN` in their
//! sources, so that nothing is built or run.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::names;

/// Largest number of folders that are searched.
const MOST_FOLDERS: usize = 2000;

/// Levels of folders below a workspace that are searched, as in `agents/hello`.
const DEPTH: usize = 2;

/// An agent that was found by its source.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Neighbour {
    folder: PathBuf,
    pub(crate) domain: u16,
}

/// Completes the sentence "domain 444 belongs to …".
impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the agent in {}", self.folder.display())
    }
}

/// Finds the agents of the packages in a folder, and in the folders of the workspace around it.
pub(crate) fn find(folder: &Path) -> Vec<Neighbour> {
    let mut packages = Vec::new();
    let mut left = MOST_FOLDERS;
    collect(folder, 1, &mut left, &mut packages);
    if let Some(workspace) = workspace(folder) {
        collect(workspace, DEPTH, &mut left, &mut packages);
    }
    packages.sort();
    packages.dedup();
    packages.iter().flat_map(|package| agents(package)).collect()
}

/// Returns the folder of the workspace that a folder belongs to.
pub(crate) fn workspace(folder: &Path) -> Option<&Path> {
    folder.ancestors().find(|dir| names::text(&dir.join("Cargo.toml")).lines().any(|line| line == "[workspace]"))
}

/// Adds the folders of packages below a folder. Hidden folders and cargo's `target` have none.
fn collect(folder: &Path, depth: usize, left: &mut usize, packages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_folder || name == "target" || name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let Some(less) = left.checked_sub(1) else { return };
        *left = less;
        let path = entry.path();
        if depth > 1 {
            collect(&path, depth - 1, left, packages);
        }
        if path.join("Cargo.toml").is_file() {
            packages.push(path);
        }
    }
}

/// Returns the agents of a package.
fn agents(package: &Path) -> Vec<Neighbour> {
    let files = ["src/lib.rs", "src/main.rs"].map(|file| names::text(&package.join(file)));
    let domains = files.iter().flat_map(|text| text.lines()).filter_map(domain);
    domains.map(|domain| Neighbour { folder: package.to_owned(), domain }).collect()
}

/// Returns the domain that a line of an agent's source declares.
fn domain(line: &str) -> Option<u16> {
    line.trim().strip_prefix("const DOMAIN: u16 = ")?.strip_suffix(';')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, file: &str, text: &str) {
        let path = dir.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn agents_beside_and_in_the_workspace_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let agent = |folder: &str, domain: u16| {
            write(dir.path(), &format!("{folder}/Cargo.toml"), "[package]\n");
            write(dir.path(), &format!("{folder}/src/lib.rs"), &format!("    const DOMAIN: u16 = {domain};\n"));
        };
        agent("a/one", 501);
        agent("a/.hidden", 502);
        agent("a/target", 503);
        agent("b/two", 504);
        agent("b/c/three", 505);
        write(dir.path(), "a/text/src/lib.rs", "const DOMAIN: u16 = 506;\n");
        // Another user's trap.
        write(dir.path(), "a/trap/Cargo.toml", "[package]\n");
        fs::create_dir(dir.path().join("a/trap/src")).unwrap();
        nix::unistd::mkfifo(&dir.path().join("a/trap/src/lib.rs"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let domains =
            |folder: &str| -> Vec<u16> { find(&dir.path().join(folder)).iter().map(|found| found.domain).collect() };
        assert_eq!((domains("a"), domains("b/c"), domains("none")), (vec![501], vec![505], vec![]));
        assert_eq!(workspace(&dir.path().join("a")), None);
        write(dir.path(), "Cargo.toml", "[workspace]\nmembers = []\n");
        assert_eq!((domains("a"), domains("b/c")), (vec![501, 504], vec![501, 505, 504]));
        assert_eq!(find(&dir.path().join("a"))[0].to_string(), format!("the agent in {}/a/one", dir.path().display()));
    }
}
