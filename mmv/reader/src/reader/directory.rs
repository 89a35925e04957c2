//! Access to files of a directory that any user may write.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat};
use nix::unistd::geteuid;

/// An open directory.
#[derive(Debug)]
pub(crate) struct Directory {
    handle: fs::File,
    owner: u32,
    /// Device and inode.
    identity: (u64, u64),
}

/// Identity of a file, by which files that successively have the same name are distinguished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub device: u64,
    pub inode: u64,
    pub len: u64,
}

/// Attributes of a file that change when its contents may have changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    pub identity: Identity,
    modified: (i64, i64),
    /// Change time (ctime), which only the kernel sets.
    pub changed: (i64, i64),
    pub owner: u32,
    pub is_file: bool,
}

impl Stamp {
    pub(crate) fn new(m: &fs::Metadata) -> Stamp {
        Stamp {
            identity: Identity { device: m.dev(), inode: m.ino(), len: m.len() },
            modified: (m.mtime(), m.mtime_nsec()),
            changed: (m.ctime(), m.ctime_nsec()),
            owner: m.uid(),
            is_file: m.is_file(),
        }
    }

    fn of(m: &FileStat) -> Stamp {
        Stamp {
            identity: Identity { device: m.st_dev, inode: m.st_ino, len: m.st_size as u64 },
            modified: (m.st_mtime, m.st_mtime_nsec),
            changed: (m.st_ctime, m.st_ctime_nsec),
            owner: m.st_uid,
            is_file: kind(m) == SFlag::S_IFREG,
        }
    }
}

fn kind(m: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(m.st_mode) & SFlag::S_IFMT
}

/// Longest path in an untrusted symbolic link, in bytes.
const LINK: usize = 255;

/// Flags with which opening a file neither blocks nor has side effects.
const READ: OFlag = OFlag::O_RDONLY.union(OFlag::O_NONBLOCK).union(OFlag::O_CLOEXEC).union(OFlag::O_NOCTTY);

impl Directory {
    pub(crate) fn open(path: &Path) -> io::Result<Directory> {
        let flags = (OFlag::O_DIRECTORY | OFlag::O_CLOEXEC).bits();
        let handle = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let m = handle.metadata()?;
        Ok(Directory { handle, owner: m.uid(), identity: (m.dev(), m.ino()) })
    }

    pub(crate) fn is_same(&self, other: &Directory) -> bool {
        (self.identity, self.owner) == (other.identity, other.owner)
    }

    /// Returns the attributes of the file with this name, after following a link.
    pub(crate) fn stat(&self, name: &OsStr) -> io::Result<Stamp> {
        let stat = self.lstat(name)?;
        if kind(&stat) != SFlag::S_IFLNK {
            return Ok(Stamp::of(&stat));
        }
        Ok(Stamp::new(&self.follow(name)?.metadata()?))
    }

    /// Opens a file of any type for reading.
    pub(crate) fn read(&self, name: &OsStr) -> io::Result<fs::File> {
        match openat(self.handle.as_fd(), name, READ | OFlag::O_NOFOLLOW, Mode::empty()) {
            Err(Errno::ELOOP) => {
                let target = self.follow(name)?;
                let path = format!("/proc/self/fd/{}", target.as_raw_fd());
                fs::OpenOptions::new().read(true).custom_flags(READ.bits()).open(path)
            }
            opened => Ok(fs::File::from(opened?)),
        }
    }

    fn lstat(&self, name: &OsStr) -> io::Result<FileStat> {
        Ok(fstatat(self.handle.as_fd(), name, AtFlags::AT_SYMLINK_NOFOLLOW)?)
    }

    /// Opens the regular file that a symbolic link leads to, only to read its attributes.
    ///
    /// Links of root, of this process's user and of the directory's owner may lead to any file. A link of another user
    /// must lead to a file of its owner in the same file system. Otherwise it could show files that its owner cannot
    /// read, or block on the owner's file system. Its target must be a short path without further links, because a chain
    /// of long ones takes milliseconds.
    fn follow(&self, name: &OsStr) -> io::Result<fs::File> {
        let link = self.lstat(name)?;
        let is_trusted = [0, geteuid().as_raw(), self.owner].contains(&link.st_uid);
        let (directory, flags) = (self.handle.as_fd(), OFlag::O_PATH | OFlag::O_CLOEXEC);
        let target = if is_trusted {
            openat(directory, name, flags, Mode::empty())?
        } else {
            let path = readlinkat(directory, name)?;
            if path.len() > LINK {
                return Err(Errno::ENAMETOOLONG.into());
            }
            let resolve = ResolveFlag::RESOLVE_NO_XDEV | ResolveFlag::RESOLVE_NO_SYMLINKS;
            openat2(directory, &*path, OpenHow::new().flags(flags).resolve(resolve))?
        };
        let target = fs::File::from(target);
        let metadata = target.metadata()?;
        let now = self.lstat(name)?;
        let is_same = (now.st_dev, now.st_ino, now.st_ctime, now.st_ctime_nsec)
            == (link.st_dev, link.st_ino, link.st_ctime, link.st_ctime_nsec);
        if !is_same || !metadata.is_file() || !is_trusted && metadata.uid() != link.st_uid {
            return Err(Errno::ELOOP.into());
        }
        Ok(target)
    }
}
