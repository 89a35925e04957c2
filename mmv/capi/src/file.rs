//! Files in PCP's directory.

use std::env;
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use libc::{EFBIG, EISDIR};
use once_cell::race::OnceBox;
pub(crate) use pcp_base::file::remove_same;
use pcp_base::file::{Dir, create_new, off_stdio};
use pmapi::{Config, is_set_id};

use crate::sys::{check_memory, file_size_limit};

/// Copies of a path, and of its parts, that exist at a time while a file is created.
const PARTS: usize = 8;

/// Mode of a file: all users may read it, and its owner may write it.
const MODE: u32 = 0o644;

/// Memory for reading `pcp.conf`, in bytes.
const CONFIG: usize = 64 << 10;

/// Returns the path of a file: the name itself if it begins with a slash, otherwise the name in `$PCP_TMP_DIR/mmv`.
/// Fails if there is no memory for it, and for what else a start allocates for a path.
pub(crate) fn path(name: &[u8]) -> Result<PathBuf, i32> {
    let mut path = if name.first() == Some(&b'/') { PathBuf::new() } else { tmp_dir()? };
    let len = path.as_os_str().len() + "/mmv/".len() + name.len();
    check_memory(PARTS * len)?;
    path.reserve_exact(len);
    if !path.as_os_str().is_empty() {
        path.push("mmv");
    }
    path.push(OsStr::from_bytes(name));
    Ok(path)
}

/// Returns `PCP_TMP_DIR` from the environment, which the program may change, or otherwise from `pcp.conf`, which is
/// read once.
fn tmp_dir() -> Result<PathBuf, i32> {
    static CONFIGURED: OnceBox<PathBuf> = OnceBox::new();
    if let Some(dir) = env::var_os("PCP_TMP_DIR").filter(|dir| !dir.is_empty() && !is_set_id()) {
        return Ok(dir.into());
    }
    if CONFIGURED.get().is_none() {
        check_memory(CONFIG)?;
    }
    Ok(CONFIGURED.get_or_init(|| Box::new(Config::load().tmp_dir())).clone())
}

/// A file that is being written. Dropping it removes the file, unless another one has taken its place.
#[derive(Debug)]
pub(crate) struct NewFile {
    pub file: File,
    path: PathBuf,
    device: u64,
    inode: u64,
    complete: bool,
}

impl NewFile {
    /// Removes the file with this path, and creates another one of at most `len` bytes in its place. Root follows only
    /// links of root: PCP's directory belongs to another user, who could lead it elsewhere.
    pub(crate) fn create(path: PathBuf, len: usize) -> io::Result<NewFile> {
        if is_directory_name(&path) {
            return Err(io::Error::from_raw_os_error(EISDIR));
        }
        check_limit(len).inspect_err(|_| remove(&path))?;
        // Most programs remove their file at the end, so that there is none.
        let file = match create_new(&path, MODE) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                remove(&path);
                create_new(&path, MODE)
            }
            created => created,
        }?;
        // A program without standard error must not write its errors into the file.
        let file = off_stdio(file).inspect_err(|_| remove(&path))?;
        let mut new = NewFile { file, path, device: 0, inode: 0, complete: false };
        let found = new.file.metadata()?;
        (new.device, new.inode) = (found.dev(), found.ino());
        // Readers are other users, so the umask of the process must not matter.
        if found.mode() & 0o777 != MODE {
            new.file.set_permissions(Permissions::from_mode(MODE))?;
        }
        Ok(new)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the file and returns its device and inode number.
    pub(crate) fn keep(mut self) -> (u64, u64) {
        self.complete = true;
        (self.device, self.inode)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.complete {
            remove_same(&self.path, self.device, self.inode);
        }
    }
}

/// Returns whether a path ends as only that of a directory does: with a slash, or with a dot or two.
fn is_directory_name(path: &Path) -> bool {
    let name = path.as_os_str().as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    matches!(name, b"" | b"." | b"..")
}

/// Removes the file with this path, whatever it is.
fn remove(path: &Path) {
    _ = Dir::of(path).and_then(|(dir, name)| dir.remove(name));
}

/// Returns an error if the process may not write a file of `len` bytes. The attempt would end the process (SIGXFSZ).
fn check_limit(len: usize) -> io::Result<()> {
    let limit = file_size_limit().unwrap_or(u64::MAX);
    if len as u64 > limit { Err(io::Error::from_raw_os_error(EFBIG)) } else { Ok(()) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_start_that_fails_removes_its_own_file_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("app");
        drop(NewFile::create(path.clone(), 100).unwrap());
        assert!(!path.exists());
        let new = NewFile::create(path.clone(), 100).unwrap();
        // Another process starts with the same name.
        let other = NewFile::create(path.clone(), 100).unwrap();
        drop(new);
        assert!(path.exists());
        drop(other);
        assert!(!path.exists());
    }

    #[test]
    fn what_lies_at_the_name_is_neither_followed_nor_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let (path, target) = (dir.path().join("app"), dir.path().join("target"));
        fs::write(&target, "not to be touched").unwrap();
        let links = |path: &Path| std::os::unix::fs::symlink(&target, path).unwrap();
        let fifo = |path: &Path| assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
        for put in [&links as &dyn Fn(&Path), &fifo] {
            put(&path);
            let new = NewFile::create(path.clone(), 100).unwrap();
            assert!(fs::symlink_metadata(&path).unwrap().is_file());
            drop(new);
        }
        for name in ["", ".", ".."] {
            let directory = NewFile::create(dir.path().join(name), 100).unwrap_err();
            assert_eq!(directory.raw_os_error(), Some(EISDIR), "{name}");
        }
        // What cannot be removed is an error.
        fs::create_dir(&path).unwrap();
        assert!(NewFile::create(path.clone(), 100).is_err());
        assert!(path.is_dir());
        assert_eq!(fs::read_to_string(&target).unwrap(), "not to be touched");
    }

    /// Root runs programs that export metrics, and PCP's directory belongs to user pcp.
    #[test]
    fn root_follows_no_link_of_another_user() {
        if !is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (place, elsewhere) = (dir.path().join("mmv"), dir.path().join("elsewhere"));
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join("app"), "not to be touched").unwrap();
        std::os::unix::fs::symlink(&elsewhere, &place).unwrap();
        std::os::unix::fs::lchown(&place, Some(1), Some(1)).unwrap();
        let refused = NewFile::create(place.join("app"), 100).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        // A link that replaces the directory afterwards.
        fs::remove_file(&place).unwrap();
        fs::create_dir(&place).unwrap();
        let (device, inode) = NewFile::create(place.join("app"), 100).unwrap().keep();
        fs::rename(&place, dir.path().join("moved")).unwrap();
        fs::remove_dir_all(&elsewhere).unwrap();
        fs::rename(dir.path().join("moved"), &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &place).unwrap();
        std::os::unix::fs::lchown(&place, Some(1), Some(1)).unwrap();
        remove_same(&place.join("app"), device, inode);
        assert!(elsewhere.join("app").exists());
    }

    fn is_root() -> bool {
        tempfile::tempfile().unwrap().metadata().unwrap().uid() == 0
    }
}
