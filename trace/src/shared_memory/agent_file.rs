//! The file `agent` in the agent's directory: it names the directory of files, and is locked while the agent runs.
//!
//! The lock is one of open file descriptions (fcntl(2)). A process can query it without taking one, and a write lock
//! requires a descriptor that is open for writing.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

pub(super) use system::{is_locked, lock};

/// Name of the agent's file in its directory.
pub(super) const AGENT: &str = "agent";
/// Longest path of a directory, in bytes.
const MAX_PATH: u64 = 4096;

/// Returns the path in a file `agent`. `None` if it is not an absolute path.
pub(super) fn read_path(mut agent: &File) -> Option<PathBuf> {
    let mut path = Vec::new();
    if !agent.metadata().ok()?.is_file() {
        return None;
    }
    (&mut agent).take(MAX_PATH).read_to_end(&mut path).ok()?;
    let path = PathBuf::from(OsStr::from_bytes(&path));
    path.is_absolute().then_some(path)
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs::File;
    use std::io;

    use nix::fcntl::{FcntlArg, fcntl};
    use nix::libc::{F_RDLCK, F_UNLCK, F_WRLCK, SEEK_SET, flock};

    fn whole(kind: i32) -> flock {
        flock { l_type: kind as i16, l_whence: SEEK_SET as i16, l_start: 0, l_len: 0, l_pid: 0 }
    }

    pub(crate) fn lock(file: &File) -> io::Result<()> {
        fcntl(file, FcntlArg::F_OFD_SETLK(&whole(F_WRLCK)))?;
        Ok(())
    }

    /// Returns whether another descriptor holds a write lock. Read locks, which every user can take, do not count.
    pub(crate) fn is_locked(file: &File) -> bool {
        let mut found = whole(F_RDLCK);
        fcntl(file, FcntlArg::F_OFD_GETLK(&mut found)).is_ok() && found.l_type != F_UNLCK as i16
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::fs::File;
    use std::io;

    pub(crate) fn lock(_: &File) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn is_locked(_: &File) -> bool {
        false
    }
}
