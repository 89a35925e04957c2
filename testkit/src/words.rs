//! Paths as single words: pmcd's configuration and dbpmda's commands have no quoting for spaces.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use nix::unistd::getuid;

/// Returns a path of the same file without white space: the path itself, or one through a symbolic link to the file's
/// directory.
///
/// The link is in the directory for temporary files. It is not removed, and the next test of the same file reuses it.
///
/// # Panics
/// When the link cannot be created, or another user has made one of this name.
#[track_caller]
pub fn one_word(path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    let spaced = path.parent().filter(|dir| dir.to_string_lossy().contains(char::is_whitespace));
    let (Some(dir), Some(name)) = (spaced, path.file_name()) else { return path.to_owned() };
    let mut hasher = DefaultHasher::new();
    dir.hash(&mut hasher);
    let link = env::temp_dir().join(format!("pcp-testkit-{}-{:016x}", getuid(), hasher.finish()));
    if let Err(error) = symlink(dir, &link) {
        assert!(error.kind() == ErrorKind::AlreadyExists, "{}: {error}", link.display());
    }
    // Another user could have created a link to other programs.
    let owner = fs::symlink_metadata(&link).expect("the link").uid();
    assert!(owner == getuid().as_raw(), "{} belongs to user {owner}", link.display());
    assert_eq!(fs::read_link(&link).ok().as_deref(), Some(dir), "{}", link.display());
    link.join(name)
}
