//! Agents in the folders beside a new one, and in the workspace around it. They are found by the constant `DOMAIN` in their
//! sources, so that nothing is built or run.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::manifest::{Workspace, below, folders_in};
use crate::names;

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
        folders.extend(workspace.members());
    }
    folders.retain(|folder| folder.join("Cargo.toml").is_file());
    folders.sort();
    folders.dedup();
    folders.iter().flat_map(|package| agents(package)).collect()
}

/// Largest number of source files of a package that are searched.
const MOST_SOURCES: usize = 200;

/// Returns the agents of a package.
fn agents(package: &Path) -> Vec<Neighbour> {
    let folders = below(&package.join("src"));
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let sources = files.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|ext| ext == "rs"));
    let texts = sources.take(MOST_SOURCES).map(|path| names::text(&path));
    texts.flat_map(|text| domains(&text)).map(|domain| Neighbour { folder: package.to_owned(), domain }).collect()
}

/// Returns the domains that a source declares as literals.
fn domains(source: &str) -> Vec<u16> {
    let declared = source.match_indices("const DOMAIN").filter_map(|(at, name)| {
        let (ty, rest) = source.get(at + name.len()..)?.split_once('=')?;
        let value = without_comments(rest.split_once(';')?.0);
        (ty.split_whitespace().collect::<String>() == ":u16").then(|| number(value.trim())).flatten()
    });
    declared.collect()
}

fn without_comments(text: &str) -> String {
    let lines = text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    let text: String = lines.collect::<Vec<_>>().join(" ");
    let mut parts = text.split("/*");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.filter_map(|part| part.split_once("*/")).fold(first, |code, (_, rest)| code + rest)
}

/// Parses a literal of type `u16`.
fn number(literal: &str) -> Option<u16> {
    let digits = literal.strip_suffix("u16").unwrap_or(literal).replace('_', "");
    let (digits, radix) = match digits.get(..2) {
        Some("0x") => (&digits[2..], 16),
        Some("0o") => (&digits[2..], 8),
        Some("0b") => (&digits[2..], 2),
        _ => (&*digits, 10),
    };
    u16::from_str_radix(digits, radix).ok()
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
    fn domains_are_found_however_they_are_written() {
        for text in ["429", "0x1ad", "4_29", "429u16", "\n 429 // mine\n", "/* mine */ 429", "0b1_1010_1101"] {
            assert_eq!(domains(&format!("    pub(crate) const DOMAIN : u16 = {text};")), [429], "{text}");
        }
        assert_eq!(domains("const DOMAIN: u16 = MINE; const DOMAINS: u16 = 7; const DOMAIN: u32 = 8;"), [0; 0]);
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
        fs::rename(dir.path().join("b/c/three/src/lib.rs"), dir.path().join("b/c/three/src/agent.rs")).unwrap();
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
