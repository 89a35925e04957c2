//! A directory, by its descriptor.

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

/// An open directory: what is done here is done in this directory, wherever its path leads meanwhile.
#[derive(Clone, Debug)]
pub struct Dir {
    fd: Arc<OwnedFd>,
    path: PathBuf,
}

impl Dir {
    /// Opens a directory.
    ///
    /// # Errors
    /// Those of open(2), and `PermissionDenied` when the process is root's and a symbolic link of another user is on
    /// the way.
    pub fn open(path: &Path) -> io::Result<Dir> {
        Self::walk(path, false)
    }

    /// Opens a directory, after creating it and those above it that are missing.
    ///
    /// # Errors
    /// Those of [`Dir::open`] and of mkdir(2).
    pub fn create(path: &Path) -> io::Result<Dir> {
        Self::walk(path, true)
    }

    fn walk(path: &Path, create: bool) -> io::Result<Dir> {
        Ok(Dir { fd: Arc::new(walk::open(path, create, is_trusted)?), path: path.to_owned() })
    }

    /// Opens the directory of a file; the other part is the file's name.
    ///
    /// # Errors
    /// Those of [`Dir::open`], and `InvalidInput` for a path without a name at its end.
    pub fn of(path: &Path) -> io::Result<(Dir, &OsStr)> {
        let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no name of a file"))?;
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok((Dir::open(dir)?, name))
    }

    /// The path by which the directory was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a directory in this one, no symbolic link, after creating it with a mode, on which the umask has effect, if
    /// it is missing.
    ///
    /// # Errors
    /// Those of mkdir(2) and open(2).
    pub fn subdir(&self, name: &OsStr, mode: u32) -> io::Result<Dir> {
        match mkdirat(&*self.fd, name, Mode::from_bits_truncate(mode)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(e) => return Err(e.into()),
        }
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = openat(&*self.fd, name, flags, Mode::empty())?;
        Ok(Dir { fd: Arc::new(fd), path: self.path.join(name) })
    }

    /// What has a name here, without following a symbolic link.
    ///
    /// # Errors
    /// Those of fstatat(2).
    pub fn stat(&self, name: &OsStr) -> io::Result<FileStat> {
        walk::stat(&self.fd, name)
    }

    /// The kind of what has a name here; of a symbolic link that it is one.
    ///
    /// # Errors
    /// Those of fstatat(2).
    pub fn kind(&self, name: &OsStr) -> io::Result<SFlag> {
        self.stat(name).map(|stat| walk::kind(&stat))
    }

    /// Opens a file here, with `O_NOFOLLOW`; `mode` is that of a file which is created, and the umask has effect on it.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn file(&self, name: &OsStr, flags: OFlag, mode: u32) -> io::Result<File> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        Ok(openat(&*self.fd, name, flags, Mode::from_bits_truncate(mode))?.into())
    }

    /// Creates a file for reading and writing.
    ///
    /// # Errors
    /// Those of open(2): `AlreadyExists` for a name that there is.
    pub fn new_file(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        self.file(name, OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL, mode)
    }

    /// Gives a file here another name here, in place of what has it.
    ///
    /// # Errors
    /// Those of rename(2).
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(renameat(&*self.fd, from, &*self.fd, to)?)
    }

    /// Gives a file here a second name here; a symbolic link is not followed.
    ///
    /// # Errors
    /// Those of link(2): `AlreadyExists` for a name that there is.
    pub fn link(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(linkat(&*self.fd, from, &*self.fd, to, AtFlags::empty())?)
    }

    /// Removes a name here, but no directory.
    ///
    /// # Errors
    /// Those of unlink(2).
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&*self.fd, name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Removes an empty directory here.
    ///
    /// # Errors
    /// Those of rmdir(2).
    pub fn remove_dir(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&*self.fd, name, UnlinkatFlags::RemoveDir)?)
    }

    /// Waits until the names are on the disk. File systems that cannot do so, and directories that may only be
    /// searched, are passed over.
    ///
    /// # Errors
    /// Those of fsync(2).
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
