//! Open directories, whose files are accessed by descriptor.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, mkdirat};
use nix::unistd::{UnlinkatFlags, fsync, linkat, unlinkat};

use super::{is_trusted, walk};

/// Open directory. Its methods act on this directory, even if its path now leads elsewhere.
#[derive(Clone, Debug)]
pub struct Dir {
    fd: Arc<OwnedFd>,
    path: PathBuf,
}

impl Dir {
    /// Opens a directory.
    ///
    /// # Errors
    /// Errors of open(2); `PermissionDenied` when root would follow a symbolic link of another user.
    pub fn open(path: &Path) -> io::Result<Dir> {
        Self::walk(path, false)
    }

    /// Opens a directory, after creating it and the missing directories above it.
    ///
    /// # Errors
    /// Errors of [`Dir::open`] and mkdir(2).
    pub fn create(path: &Path) -> io::Result<Dir> {
        Self::walk(path, true)
    }

    fn walk(path: &Path, create: bool) -> io::Result<Dir> {
        let fd = walk::open_directly(path).map_or_else(|| walk::open(path, create, is_trusted), Ok)?;
        Ok(Dir::opened(fd, path))
    }

    pub(super) fn opened(fd: OwnedFd, path: &Path) -> Dir {
        Dir { fd: Arc::new(fd), path: path.to_owned() }
    }

    /// Opens the directory of a file; returns it with the file's name.
    ///
    /// # Errors
    /// Errors of [`Dir::open`]; `InvalidInput` for a path that does not end with a name.
    pub fn of(path: &Path) -> io::Result<(Dir, &OsStr)> {
        let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no file name"))?;
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok((Dir::open(dir)?, name))
    }

    /// Returns the path by which the directory was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a subdirectory, which must not be a symbolic link. A missing one is created with `mode`, reduced by the
    /// umask.
    ///
    /// # Errors
    /// Errors of mkdir(2) and open(2).
    pub fn subdir(&self, name: &OsStr, mode: u32) -> io::Result<Dir> {
        match mkdirat(&*self.fd, name, Mode::from_bits_truncate(mode)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(e) => return Err(e.into()),
        }
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = openat(&*self.fd, name, flags, Mode::empty())?;
        Ok(Dir { fd: Arc::new(fd), path: self.path.join(name) })
    }

    /// Returns the status of a name in this directory, without following a symbolic link.
    ///
    /// # Errors
    /// Errors of fstatat(2).
    pub fn stat(&self, name: &OsStr) -> io::Result<FileStat> {
        walk::stat(&self.fd, name)
    }

    /// Returns the file type of a name in this directory, without following a symbolic link.
    ///
    /// # Errors
    /// Errors of fstatat(2).
    pub fn kind(&self, name: &OsStr) -> io::Result<SFlag> {
        self.stat(name).map(|stat| walk::kind(&stat))
    }

    /// Opens a file of this directory with `O_NOFOLLOW`. A new file gets `mode`, reduced by the umask.
    ///
    /// # Errors
    /// Errors of open(2).
    pub fn file(&self, name: &OsStr, flags: OFlag, mode: u32) -> io::Result<File> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        Ok(openat(&*self.fd, name, flags, Mode::from_bits_truncate(mode))?.into())
    }

    /// Creates a file for reading and writing, with `mode` reduced by the umask.
    ///
    /// # Errors
    /// Errors of open(2); `AlreadyExists` for an existing name.
    pub fn new_file(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        self.file(name, walk::NEW, mode)
    }

    /// Renames a file within this directory, and replaces a file with the new name.
    ///
    /// # Errors
    /// Errors of rename(2).
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(renameat(&*self.fd, from, &*self.fd, to)?)
    }

    /// Gives a file of this directory a second name in it, without following a symbolic link.
    ///
    /// # Errors
    /// Errors of link(2); `AlreadyExists` for an existing name.
    pub fn link(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(linkat(&*self.fd, from, &*self.fd, to, AtFlags::empty())?)
    }

    /// Removes a name from this directory, unless it is the name of a directory.
    ///
    /// # Errors
    /// Errors of unlink(2).
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&*self.fd, name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Removes an empty subdirectory.
    ///
    /// # Errors
    /// Errors of rmdir(2).
    pub fn remove_dir(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&*self.fd, name, UnlinkatFlags::RemoveDir)?)
    }

    /// Waits until the names in this directory are on the disk.
    ///
    /// Does nothing on a file system that cannot sync a directory, and for a directory that may only be searched.
    ///
    /// # Errors
    /// Errors of fsync(2).
    pub fn sync(&self) -> io::Result<()> {
        match fsync(&*self.fd) {
            Err(Errno::EINVAL | Errno::EBADF) => Ok(()),
            synced => Ok(synced?),
        }
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
