//! Safe access to files in directories that other users may change at the same time.
//!
//! * A directory is opened once, and its files are accessed by its descriptor ([`Dir`]). Root follows a symbolic link
//!   on the way only if the link belongs to root.
//! * A new file is created with `O_CREAT | O_EXCL | O_NOFOLLOW`; an existing file is never truncated. Mode and owner
//!   are set by the file's descriptor.
//! * New content is written to a temporary file beside the file, synced, and renamed ([`NewFile`], [`replace`]). After
//!   a crash, a full disk or a loss of power the file has its old content or the new one.
//! * Only a regular file of bounded size is read ([`read`], [`read_text`]), so that a FIFO, a device or a sparse file in
//!   its place does not block the reader. [`read_input`] is for files that may be pipes.

mod copies;
mod dir;
mod kept;
mod new;
mod stdio;
mod walk;
mod writers;

pub use copies::stores_may_fail;
pub use dir::Dir;
pub use kept::Kept;
pub use new::NewFile;
pub use stdio::off_stdio;
pub use walk::is_trusted;
pub use writers::{check_place, check_writers, check_writers_of};

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::stat::makedev;
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

/// Largest text of a configuration or of the system that is read, in bytes.
pub const TEXT_LIMIT: u64 = 64 << 20;

/// Time within which another program must open a FIFO for writing, in milliseconds.
const WRITER: u16 = 1000;

/// Opens a regular file for reading, or the null device, which is an empty file.
///
/// # Errors
/// Errors of open(2); `InvalidInput` for anything else. Opening a FIFO or a device does not block.
pub fn open(path: &Path) -> io::Result<File> {
    let file = open_at_once(path)?;
    let status = file.metadata()?;
    if status.is_file() || status.file_type().is_char_device() && status.rdev() == makedev(1, 3) {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}

fn open_at_once(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    File::options().read(true).custom_flags(flags.bits()).open(path)
}

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// Errors of [`open`] and read(2); `FileTooLarge` for a longer file.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_from(&open(path)?, limit)
}

/// Reads a text file of a configuration or of the system, of at most [`TEXT_LIMIT`] bytes.
///
/// # Errors
/// Errors of [`read`]; `InvalidData` for bytes that are not UTF-8.
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(read(path.as_ref(), TEXT_LIMIT)?).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// Reads a file that a user has named as input of a command, of at most `limit` bytes: a regular file, a device, or a pipe
/// such as that of `<(command)` in a shell. Waits for what is written to a pipe or typed at a terminal.
///
/// # Errors
/// Errors of open(2) and read(2); `FileTooLarge` for longer input; `TimedOut` for a FIFO that no other program opens for
/// writing within a second; `InvalidInput` for a directory or a block device.
pub fn read_input(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open_at_once(path)?;
    let kind = file.metadata()?.file_type();
    let mut content = Vec::new();
    if kind.is_fifo() {
        let mut pipe = [PollFd::new(file.as_fd(), PollFlags::POLLIN)];
        let ready = loop {
            match poll(&mut pipe, WRITER) {
                Err(Errno::EINTR) => {}
                ready => break ready?,
            }
        };
        let mut first = [0];
        if ready == 0 {
            match (&file).read(&mut first) {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::TimedOut, "no program writes to this FIFO")),
                Ok(_) => content.extend(first),
                // A program has opened it, and writes later.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
    } else if !kind.is_file() && !kind.is_char_device() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a file nor a pipe"));
    }
    fcntl(&file, FcntlArg::F_SETFL(OFlag::empty()))?;
    (&file).take(limit.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > limit { Err(too_large(limit)) } else { Ok(content) }
}

fn too_large(limit: u64) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {limit} bytes"))
}

/// Reads the rest of an open file of at most `limit` bytes.
///
/// # Errors
/// Errors of read(2); `FileTooLarge` for a longer file.
pub fn read_from(file: &File, limit: u64) -> io::Result<Vec<u8>> {
    let len = file.metadata()?.len();
    if len > limit {
        return Err(too_large(limit));
    }
    let mut content = Vec::with_capacity(usize::try_from(len).unwrap_or_default());
    // The file may grow meanwhile, and files of /proc claim a length of 0.
    file.take(limit.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > limit { Err(too_large(limit)) } else { Ok(content) }
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
