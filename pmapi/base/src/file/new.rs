//! Atomic replacement of a file's content.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::stat::{FileStat, SFlag};

use super::{Dir, walk};

/// New content of a file, in a temporary file beside it that [`NewFile::commit`] renames. Dropping the value without a
/// commit removes the temporary file.
///
/// The temporary file of `NAME` is `.NAME.new`, and the process holds a lock on it (flock(2)). An unlocked temporary
/// file was left by a process that was killed. The next process that writes the file removes it.
#[derive(Debug)]
pub struct NewFile {
    dir: Dir,
    name: OsString,
    temporary: OsString,
    file: Flock<File>,
    /// Status of the file to replace, if it exists.
    old: Option<FileStat>,
    mode: Option<u32>,
    committed: bool,
}

/// Number of attempts if other processes take the temporary names first.
const TRIES: usize = 100;

impl NewFile {
    /// Begins the new content of a file.
    ///
    /// # Errors
    /// Errors of [`Dir::of`] and [`NewFile::create_in`].
    pub fn create(path: &Path) -> io::Result<NewFile> {
        let (dir, name) = Dir::of(path)?;
        Self::create_in(&dir, name)
    }

    /// Begins the new content of a file in a directory.
    ///
    /// # Errors
    /// `EISDIR` when the name is that of a directory; `AlreadyExists` when every temporary name is taken. Errors of
    /// open(2) and flock(2).
    pub fn create_in(dir: &Dir, name: &OsStr) -> io::Result<NewFile> {
        // The rename would notice this too late: related files may have been replaced by then.
        if dir.kind(name).is_ok_and(|kind| kind == SFlag::S_IFDIR) {
            return Err(Errno::EISDIR.into());
        }
        let mut temporary = temporary(name);
        for _ in 0..TRIES {
            if let Some(file) = take(dir, &temporary, 0o666)? {
                return Ok(Self::with(dir, name, temporary, file));
            }
            temporary = format!(".{:016x}.new", RandomState::new().build_hasher().finish()).into();
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Waits until no other process is writing the file, at most for `wait`, and begins the new content.
    ///
    /// If all processes use this function, they read, change and write the file one after the other. The temporary file
    /// has mode 0600 until it is committed, so that no other user can hold its lock. A file that did not exist gets
    /// mode 0644.
    ///
    /// # Errors
    /// Errors of [`Dir::of`], open(2) and flock(2); `TimedOut` when another process holds the lock for longer than
    /// `wait`.
    pub fn lock(path: &Path, wait: Duration) -> io::Result<NewFile> {
        let (dir, name) = Dir::of(path)?;
        let temporary = temporary(name);
        let start = Instant::now();
        loop {
            if let Some(file) = take(&dir, &temporary, 0o600)? {
                // The umask may have taken the owner's rights away.
                file.set_permissions(Permissions::from_mode(0o600))?;
                let mut new = Self::with(&dir, name, temporary, file);
                new.mode = new.old.is_none().then_some(0o644);
                return Ok(new);
            }
            if start.elapsed() > wait {
                let text = format!("another process has been changing it for {} seconds", wait.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn with(dir: &Dir, name: &OsStr, temporary: OsString, file: Flock<File>) -> NewFile {
        let old = dir.stat(name).ok().filter(|old| walk::kind(old) == SFlag::S_IFREG);
        NewFile { dir: dir.clone(), name: name.to_owned(), temporary, file, old, mode: None, committed: false }
    }

    /// Sets the mode that the file gets, instead of keeping that of the replaced file.
    pub fn set_mode(&mut self, mode: u32) {
        self.mode = Some(mode);
    }

    /// Returns the path of the temporary file.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join(&self.temporary)
    }

    /// Returns the temporary file, open for reading and writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Replaces the file by the temporary file, and waits until that is on the disk.
    ///
    /// # Errors
    /// Errors of fchown(2), fchmod(2), fsync(2) and rename(2), after which the old content stays. If only syncing the
    /// directory fails, the new content stays.
    pub fn commit(mut self) -> io::Result<()> {
        if let Some(old) = &self.old {
            let new = self.file.metadata()?;
            if (old.st_uid, old.st_gid) != (new.uid(), new.gid()) {
                // Only root may give files away. In other processes, a file of another user becomes the writer's.
                match fchown(&*self.file, Some(old.st_uid), Some(old.st_gid)) {
                    Err(e) if e.kind() != io::ErrorKind::PermissionDenied => return Err(e),
                    _ => {}
                }
            }
        }
        if let Some(mode) = self.mode.or(self.old.map(|old| old.st_mode)) {
            self.file.set_permissions(Permissions::from_mode(mode & 0o777))?;
        }
        self.file.sync_all()?;
        self.dir.rename(&self.temporary, &self.name)?;
        self.committed = true;
        self.dir.sync()
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self.file).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.committed {
            // The caller already knows why the file was not committed.
            let _ = self.dir.remove(&self.temporary);
        }
    }
}

fn temporary(name: &OsStr) -> OsString {
    let mut temporary = OsString::from(".");
    temporary.push(name);
    temporary.push(".new");
    temporary
}

/// Creates a file and locks it; `None` while another process holds a file of this name.
fn take(dir: &Dir, name: &OsStr, mode: u32) -> io::Result<Option<Flock<File>>> {
    for _ in 0..TRIES {
        match dir.new_file(name, mode) {
            Ok(file) => {
                // Until the file is locked, another process may consider it a leftover and remove it.
                let Ok(file) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else { return Ok(None) };
                if is_at(dir, name, &file) {
                    return Ok(Some(file));
                }
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                if !remove_left(dir, name)? {
                    return Ok(None);
                }
            }
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}

/// Removes a temporary file that no process holds; returns whether the name is free now.
fn remove_left(dir: &Dir, name: &OsStr) -> io::Result<bool> {
    let removed = match dir.file(name, OFlag::O_RDONLY | OFlag::O_NONBLOCK, 0) {
        Ok(file) => {
            let Ok(file) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else { return Ok(false) };
            // The lock is held until the removal. A file that has replaced this one meanwhile belongs to another
            // process.
            if is_at(dir, name, &file) { dir.remove(name) } else { Ok(()) }
        }
        Err(e) if e.raw_os_error() == Some(Errno::ELOOP as i32) => dir.remove(name),
        Err(e) => Err(e),
    };
    match removed {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
        // Another user's file, or not a file.
        Err(e) if [Errno::EACCES, Errno::EPERM, Errno::EISDIR, Errno::ENXIO].iter().any(|errno| is(&e, *errno)) => {
            Ok(false)
        }
        Err(e) => Err(e),
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno as i32)
}

fn is_at(dir: &Dir, name: &OsStr, file: &File) -> bool {
    let (Ok(stat), Ok(metadata)) = (dir.stat(name), file.metadata()) else { return false };
    (stat.st_dev, stat.st_ino) == (metadata.dev(), metadata.ino())
}
