//! Files within the limit of the process (`RLIMIT_FSIZE`). Writing beyond it would end the process (SIGXFSZ).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use nix::sys::resource::{Resource, getrlimit};

/// A file that the registry keeps open.
pub(crate) type Kept = pmapi::file::Kept<File>;

/// Checks that a file may have this length.
///
/// # Errors
/// `FileTooLarge` beyond `RLIMIT_FSIZE`.
pub(crate) fn check_size(len: u64) -> io::Result<()> {
    let (most, _) = getrlimit(Resource::RLIMIT_FSIZE)?;
    if len <= most { Ok(()) } else { Err(io::ErrorKind::FileTooLarge.into()) }
}

/// Writes to a file at an offset.
///
/// # Errors
/// Errors of write(2); `FileTooLarge` beyond `RLIMIT_FSIZE`.
pub(crate) fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    check_size(at + bytes.len() as u64)?;
    file.write_all_at(bytes, at)
}
