//! Safe access to files in directories that other users may change at the same time.
//!
//! * A directory is opened once, and its files are accessed by its descriptor ([`Dir`]). Root follows a symbolic link
//!   on the way only if the link belongs to root.
//! * A new file is created with `O_CREAT | O_EXCL | O_NOFOLLOW`; an existing file is never truncated. Mode and owner
//!   are set by the file's descriptor.
//! * New content is written to a temporary file beside the file, synced, and renamed ([`NewFile`], [`replace`]). After
//!   a crash, a full disk or a loss of power the file has its old content or the new one.
//! * Only a regular file of bounded size is read ([`read`]), so that a FIFO, a device or a sparse file in its place
//!   does not block the reader.

#[cfg(feature = "acl")]
mod acl;
mod copies;
mod dir;
mod kept;
mod new;
mod stdio;
mod walk;
#[cfg(feature = "acl")]
mod writers;

pub use copies::stores_may_fail;
pub use dir::Dir;
pub use kept::Kept;
pub use new::NewFile;
pub use stdio::off_stdio;
pub use walk::is_trusted;
#[cfg(feature = "acl")]
pub use writers::{check_place, check_writers, check_writers_of};

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::unistd::{UnlinkatFlags, unlinkat};

/// Replaces the content of a file, or creates it.
///
/// At any time the file has either the old content or the new one. When this function returns, the new content is on
/// the disk. The file keeps its mode, and its owner if the process may give files away. A symbolic link of this name is
/// replaced, not followed.
///
/// # Errors
/// Errors of opening the directory, and of creating, writing and renaming the temporary file. The old content stays,
/// and the temporary file is removed.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut new = NewFile::create(path)?;
    new.write_all(content)?;
    new.commit()
}

/// Creates a file for reading and writing, with `mode` reduced by the umask.
///
/// Opens the file's directory as [`Dir::open`] does, but needs only one system call where no symbolic link is on the way.
///
/// # Errors
/// Errors of [`Dir::of`] and [`Dir::new_file`]; `AlreadyExists` for an existing name.
pub fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    walk::create_directly(path, mode).map_or_else(
        || {
            let (dir, name) = Dir::of(path)?;
            dir.new_file(name, mode)
        },
        Ok,
    )
}

/// Removes a file if it has this device and inode number. Returns whether the file was removed.
///
/// Opens the file's directory as [`Dir::open`] does. Where no symbolic link is on the way, no memory is allocated, so that
/// a signal handler may call this function.
pub fn remove_same(path: &Path, device: u64, inode: u64) -> bool {
    let Some(name) = path.file_name() else { return false };
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let opened = walk::open_directly(dir).map_or_else(|| walk::open(dir, false, is_trusted), Ok);
    opened.is_ok_and(|dir| {
        walk::stat(&dir, name).is_ok_and(|found| (found.st_dev, found.st_ino) == (device, inode))
            && unlinkat(&dir, name, UnlinkatFlags::NoRemoveDir).is_ok()
    })
}

/// Exchanges the names of two files or directories atomically.
///
/// # Errors
/// Errors of [`Dir::open`] and renameat2(2); `Unsupported` with a C library other than glibc.
pub fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    let ((one, first), (other, second)) = (Dir::of(one)?, Dir::of(other)?);
    #[cfg(target_env = "gnu")]
    {
        use nix::fcntl::{RenameFlags, renameat2};
        renameat2(&one, first, &other, second, RenameFlags::RENAME_EXCHANGE)?;
        one.sync()?;
        other.sync()
    }
    #[cfg(not(target_env = "gnu"))]
    {
        let _ = (one, first, other, second);
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Opens a regular file for reading.
///
/// # Errors
/// Errors of open(2); `InvalidInput` for anything but a regular file. Opening a FIFO or a device does not block.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags.bits()).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// Errors of [`open`] and read(2); `FileTooLarge` for a longer file.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_from(&open(path)?, limit)
}

/// Reads the rest of an open file of at most `limit` bytes.
///
/// # Errors
/// Errors of read(2); `FileTooLarge` for a longer file.
pub fn read_from(file: &File, limit: u64) -> io::Result<Vec<u8>> {
    let too_large = || io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {limit} bytes"));
    let len = file.metadata()?.len();
    if len > limit {
        return Err(too_large());
    }
    let mut content = Vec::with_capacity(usize::try_from(len).unwrap_or_default());
    // The file may grow meanwhile, and files of /proc claim a length of 0.
    file.take(limit.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > limit { Err(too_large()) } else { Ok(content) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn another_file_of_the_name_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("file"), dir.path().join("other"));
        fs::write(&path, "").unwrap();
        let found = fs::metadata(&path).unwrap();
        fs::write(&other, "").unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(!remove_same(&path, found.dev(), found.ino()) && path.exists());
        let found = fs::metadata(&path).unwrap();
        assert!(remove_same(&path, found.dev(), found.ino()) && !path.exists());
        assert!(!remove_same(&path, found.dev(), found.ino()) && !remove_same(Path::new("/"), 0, 0));
    }
}
