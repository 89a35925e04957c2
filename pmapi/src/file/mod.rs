//! Files in places that other users may change meanwhile.
//!
//! * A directory is opened once, and everything in it is done by way of its descriptor ([`Dir`]). Root follows a
//!   symbolic link on the way only if the link belongs to root.
//! * A new file is created (`O_CREAT | O_EXCL | O_NOFOLLOW`), never an existing one truncated. Mode and owner are set by
//!   its descriptor.
//! * New content is written to a temporary file beside the file, synced, and renamed ([`NewFile`], [`replace`]): after a
//!   crash, a full disk or a loss of power there is the old content or the new one.
//! * A file is read only if it is a regular one of bounded size ([`read`]), so that a FIFO, a device or a sparse file in
//!   its place stops nobody.

mod dir;
mod new;
mod walk;

pub use dir::Dir;
pub use new::NewFile;
pub use walk::is_trusted;

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::OFlag;

/// Replaces the content of a file, or creates it: the file has the old content or the new one at any moment, and the
/// new one is on the disk when this returns.
///
/// The file keeps its mode, and its owner where the process may give files away. A symbolic link of this name is
/// replaced, not followed.
///
/// # Errors
/// When the directory cannot be opened or written to, and those of writing. The old content stays then, and nothing
/// else.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut new = NewFile::create(path)?;
    new.write_all(content)?;
    new.commit()
}

/// Exchanges the names of two files or directories at once.
///
/// # Errors
/// Those of opening their directories and of renameat2(2), `Unsupported` where the C library does not have it.
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
/// Those of open(2), and `InvalidInput` for whatever is no regular file; opening a FIFO or a device waits for nobody.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags.bits()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// Those of [`open`] and of reading, and `FileTooLarge` for a longer file.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_from(&open(path)?, limit)
}

/// Reads the rest of an open file of at most `limit` bytes.
///
/// # Errors
/// Those of reading, and `FileTooLarge` for a longer file.
pub fn read_from(file: &File, limit: u64) -> io::Result<Vec<u8>> {
    let too_large = || io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {limit} bytes"));
    let len = file.metadata()?.len();
    if len > limit {
        return Err(too_large());
    }
    let mut content = Vec::with_capacity(usize::try_from(len).unwrap_or_default());
    // A file may grow while it is read, and those of /proc have a length of 0.
    file.take(limit.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > limit { Err(too_large()) } else { Ok(content) }
}
