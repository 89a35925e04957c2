//! Manifests (Cargo.toml) of packages and workspaces. They may be another user's, so that they are read as
//! [`pcp_base::file::read`] reads files: one that is too long, not a file, or not TOML counts as missing.

use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::names;

/// Reads a manifest.
pub(crate) fn read(path: &Path) -> Option<Table> {
    let text = names::text(path);
    // As cargo does.
    text.strip_prefix('\u{feff}').unwrap_or(&text).parse().ok()
}

/// Returns the name of the package of a manifest.
pub(crate) fn package(manifest: &Table) -> Option<&str> {
    manifest.get("package")?.get("name")?.as_str()
}

/// Largest number of folders that are searched.
const MOST_FOLDERS: usize = 2000;

/// A workspace.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) folder: PathBuf,
    members: Vec<String>,
    excluded: Vec<String>,
}

impl Workspace {
    /// Finds the workspace that a folder belongs to: that of the nearest manifest at or above the folder which has one,
    /// or names one.
    pub(crate) fn around(folder: &Path) -> Option<Workspace> {
        folder.ancestors().find_map(|dir| {
            let manifest = read(&dir.join("Cargo.toml"))?;
            if manifest.contains_key("workspace") {
                return Workspace::of(dir, &manifest);
            }
            let root = dir.join(manifest.get("package")?.get("workspace")?.as_str()?);
            Workspace::of(&root, &read(&root.join("Cargo.toml"))?)
        })
    }

    fn of(folder: &Path, manifest: &Table) -> Option<Workspace> {
        let workspace = manifest.get("workspace")?;
        let list = |key: &str| -> Vec<String> {
            let words = workspace.get(key).and_then(Value::as_array).into_iter().flatten();
            words.filter_map(|word| word.as_str().map(str::to_owned)).collect()
        };
        Some(Workspace { folder: folder.to_owned(), members: list("members"), excluded: list("exclude") })
    }

    /// Returns the folders of the members that are named without wildcards. They may be outside of the workspace's own
    /// folder.
    pub(crate) fn named_members(&self) -> impl Iterator<Item = PathBuf> {
        self.members.iter().filter(|member| !member.contains(['*', '?', '['])).map(|member| self.folder.join(member))
    }

    /// Returns the folders that may be members: those that are named, and all below the workspace's own folder.
    pub(crate) fn members(&self) -> Vec<PathBuf> {
        self.named_members().chain(below(&self.folder)).collect()
    }

    /// Returns whether a package in this folder would be a member.
    pub(crate) fn would_have(&self, package: &Path) -> bool {
        let Ok(path) = package.strip_prefix(&self.folder) else { return false };
        let words: Vec<_> = path.iter().map(|word| word.to_string_lossy()).collect();
        let is_at = |pattern: &String| {
            let pattern: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
            is_like(
                &pattern,
                &words,
                |part| *part == "**",
                |part, word| {
                    let [part, word] = [*part, word].map(|text| text.chars().collect::<Vec<_>>());
                    is_like(&part, &word, |c| *c == '*', |one, other| *one == '?' || one == other)
                },
            )
        };
        let is_excluded = self.excluded.iter().any(|excluded| path.starts_with(excluded));
        !is_excluded && self.members.iter().any(is_at)
    }
}

/// Returns whether a text is like a pattern, in which a star stands for any number of items. Needs at most the product of
/// their lengths.
fn is_like<P, T>(pattern: &[P], text: &[T], is_star: fn(&P) -> bool, is_same: impl Fn(&P, &T) -> bool) -> bool {
    let (mut at, mut rest) = (pattern, text);
    // What is behind the last star, and the text that it has to be like.
    let mut again: Option<(&[P], &[T])> = None;
    loop {
        (at, rest) = match (at, rest) {
            ([], []) => return true,
            ([star, behind @ ..], _) if is_star(star) => {
                again = Some((behind, rest));
                (behind, rest)
            }
            ([one, behind @ ..], [item, left @ ..]) if is_same(one, item) => (behind, left),
            _ => match again {
                Some((behind, [_, left @ ..])) => {
                    again = Some((behind, left));
                    (behind, left)
                }
                _ => return false,
            },
        };
    }
}

/// Returns a folder and those below it, the upper levels first.
pub(crate) fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut next = 0;
    while let Some(folder) = found.get(next).filter(|_| found.len() < MOST_FOLDERS) {
        found.extend(folders_in(folder));
        next += 1;
    }
    found
}

/// Returns the folders in a folder that may have packages. Hidden folders and cargo's `target` have none.
pub(crate) fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| {
        let name = entry.file_name();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        is_folder && name != "target" && !name.as_encoded_bytes().starts_with(b".")
    });
    folders.take(MOST_FOLDERS).map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn workspaces_are_found_however_they_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("agents/mine");
        fs::create_dir_all(&inner).unwrap();
        for manifest in [
            "[workspace]\nmembers = [\"agents/*\"]\n",
            "[workspace] # all agents\nmembers = [\"agents/*\"]\n",
            "  [ workspace ]\n  members = [ 'agents/*', ]\n",
            "workspace.members = [\"agents/*\"]\n",
            "workspace = { members = [\"agents/*\"] }\n",
            "[\"workspace\"]\nmembers = [\n  # all\n  \"agents/*\"\n]\n",
            "\u{feff}[workspace]\r\nmembers = [\"agents/*\"]\r\n",
            "[package]\nname = \"top\"\nversion = \"0.1.0\"\n[workspace]\nmembers = [\"./agents/*/\"]",
            "[workspace.package]\nversion = \"1.0.0\"\n[workspace]\nmembers = [\"**/mine\", \"agents/h?llo\"]",
        ] {
            fs::write(dir.path().join("Cargo.toml"), manifest).unwrap();
            let found = Workspace::around(&inner).unwrap_or_else(|| panic!("{manifest}"));
            assert_eq!(found.folder, dir.path(), "{manifest}");
            assert!(found.would_have(&dir.path().join("agents/hello")), "{manifest}");
            assert!(!found.would_have(&dir.path().join("hello")), "{manifest}");
        }
        for none in
            ["", "[package]\nname = \"[workspace]\"\n", "# [workspace]\n", "text = '''\n[workspace]\n'''", "[workspace"]
        {
            fs::write(dir.path().join("Cargo.toml"), none).unwrap();
            assert!(Workspace::around(&inner).is_none(), "{none}");
        }
    }

    #[test]
    fn the_nearest_workspace_counts_and_the_one_that_a_package_names() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        let write = |file: &str, text: &str| fs::write(dir.path().join(file), text).unwrap();
        write("Cargo.toml", "[workspace]\nexclude = [\"a\", \"root\"]\nmembers = [\"**\"]\n");
        let found = Workspace::around(&inner).unwrap();
        assert!(found.would_have(&dir.path().join("x/y")) && !found.would_have(&inner.join("c")));
        write("a/Cargo.toml", "[package]\nname = \"a\"\nworkspace = \"../root\"\n");
        write("root/Cargo.toml", "[workspace]\nmembers = [\"../a\"]\n");
        let found = Workspace::around(&inner).unwrap();
        assert_eq!(found.folder, dir.path().join("a/../root"));
        assert_eq!(found.named_members().collect::<Vec<_>>(), [dir.path().join("a/../root/../a")]);
        assert!(!found.would_have(&inner.join("c")));
        write("a/Cargo.toml", "[workspace]\n");
        assert_eq!(Workspace::around(&inner).unwrap().folder, dir.path().join("a"));
    }

    #[test]
    fn patterns() {
        let like = |pattern: &str, text: &str| {
            let [pattern, text] = [pattern, text].map(|text| text.chars().collect::<Vec<_>>());
            is_like(&pattern, &text, |c| *c == '*', |one, other| one == other)
        };
        for (pattern, text) in [("", ""), ("*", ""), ("*", "abc"), ("a*c", "abcbc"), ("*b*", "abc"), ("a**", "a")] {
            assert!(like(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("", "a"), ("a", ""), ("a*c", "ab"), ("*b", "abc"), ("a*b*c", "acb")] {
            assert!(!like(pattern, text), "{pattern} {text}");
        }
        // Another user's pattern takes no time.
        assert!(!like(&"*a".repeat(1000), &"a".repeat(999)));
    }

    #[test]
    fn the_package_is_that_of_its_table() {
        let name = |text: &str| package(&text.parse().unwrap()).map(str::to_owned);
        for good in [
            "[package]\nname = \"x\"",
            "package.name = 'x'",
            "[package] # one\nname=\"x\" # two",
            "package={name=\"x\"}",
        ] {
            assert_eq!(name(good).as_deref(), Some("x"), "{good}");
        }
        for other in ["[lib]\nname = \"x\"", "[[bin]]\nname = \"x\"\n[package]", "name = \"x\"", "package = 1"] {
            assert_eq!(name(other), None, "{other}");
        }
    }
}
