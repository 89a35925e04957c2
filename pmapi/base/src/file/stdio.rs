//! The descriptors of standard input, output and error.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

/// Moves an open file or socket to a descriptor of at least 3.
///
/// In a program that has closed standard input, output or error, the kernel gives that descriptor to the next file. The
/// program's messages would be written to the file. Libraries call this function for every file that they keep open.
///
/// # Errors
/// Errors of fcntl(2), such as `EMFILE`.
pub fn off_stdio<F: AsFd + From<OwnedFd>>(file: F) -> io::Result<F> {
    if file.as_fd().as_raw_fd() > 2 {
        return Ok(file);
    }
    // The standard library duplicates with `F_DUPFD_CLOEXEC` and a minimum of 3.
    Ok(F::from(file.as_fd().try_clone_to_owned()?))
}
