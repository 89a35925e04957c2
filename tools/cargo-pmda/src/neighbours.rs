//! Agents in the folders beside a new one, and in the workspace around it. They are found by the constant `DOMAIN` in their
//! sources, so that nothing is built or run.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::manifest::Workspace;
use crate::names;

/// Largest number of folders that are searched.
const MOST_FOLDERS: usize = 2000;

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

/// Finds the agents of the packages in a folder, and of the workspace around it.
pub(crate) fn find(folder: &Path, workspace: Option<&Workspace>) -> Vec<Neighbour> {
    let mut folders = folders_in(folder);
    if let Some(workspace) = workspace {
        folders.extend(workspace.named_members());
        folders.extend(below(&workspace.folder));
    }
    folders.retain(|folder| folder.join("Cargo.toml").is_file());
    folders.sort();
    folders.dedup();
    folders.iter().flat_map(|package| agents(package)).collect()
}

/// Returns a folder and those below it, the upper levels first.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut next = 0;
    while let Some(folder) = found.get(next).filter(|_| found.len() < MOST_FOLDERS) {
        found.extend(folders_in(folder));
        next += 1;
    }
    found
}

/// Returns the folders in a folder that may have packages. Hidden folders and cargo's `target` have none.
fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| {
        let name = entry.file_name();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        is_folder && name != "target" && !name.as_encoded_bytes().starts_with(b".")
    });
    folders.take(MOST_FOLDERS).map(|entry| entry.path()).collect()
}

/// Returns the agents of a package.
fn agents(package: &Path) -> Vec<Neighbour> {
    let files = ["src/lib.rs", "src/main.rs"].map(|file| names::text(&package.join(file)));
    let domains = files.iter().flat_map(|text| text.lines()).filter_map(domain);
    domains.map(|domain| Neighbour { folder: package.to_owned(), domain }).collect()
}

/// Returns the domain that a line of an agent's source declares.
fn domain(line: &str) -> Option<u16> {
    let line = line.trim();
    let value = line.strip_prefix("pub ").unwrap_or(line).strip_prefix("const DOMAIN: u16 =")?;
    value.split_once(';')?.0.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_in(folder: &Path) -> Vec<Neighbour> {
        find(folder, Workspace::around(folder).as_ref())
    }

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
            |folder: &str| -> Vec<u16> { find_in(&dir.path().join(folder)).iter().map(|found| found.domain).collect() };
        assert_eq!((domains("a"), domains("b/c"), domains("none")), (vec![501], vec![505], vec![]));
        let outside = tempfile::tempdir().unwrap();
        write(outside.path(), "Cargo.toml", "[package]\n");
        write(outside.path(), "src/main.rs", "pub const DOMAIN: u16 =\t507 ; // outside\n");
        let members = format!("[workspace] # all\nmembers = [{:?}]\n", outside.path());
        write(dir.path(), "Cargo.toml", &members);
        let sorted = |folder: &str| {
            let mut domains = domains(folder);
            domains.sort_unstable();
            domains
        };
        assert_eq!((sorted("a"), sorted("b/c")), (vec![501, 504, 505, 507], vec![501, 504, 505, 507]));
        let found = find_in(&dir.path().join("a"));
        assert!(found.iter().any(|found| found.to_string() == format!("the agent in {}/a/one", dir.path().display())));
    }
}
