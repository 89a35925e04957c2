//! The lock with which a process shows that it lives: flock(2).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

pub(crate) use nix::fcntl::FlockArg as Lock;

/// Locks or unlocks a file.
///
/// A lock stays until the last descriptor of the opened file is closed, those of forked children included.
/// `nix::fcntl::Flock` would unlock it as soon as one process, for instance such a child, drops its value.
#[expect(deprecated, reason = "nix has flock(2) itself only as a deprecated function, File::try_lock needs Rust 1.89")]
pub(crate) fn flock(file: &File, lock: Lock) -> io::Result<()> {
    Ok(nix::fcntl::flock(file.as_raw_fd(), lock)?)
}
