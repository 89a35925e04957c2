//! The directory of the files of processes: it is created again if it was removed, and cleaned.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, ReadDir};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use pmda::limits::processor_time;
use trace::shared_memory::{Directory, format::ring_name};
use tracing::{debug, info, warn};

/// Time without a change after which a name that belongs to no known process is removed.
const STALE: Duration = Duration::from_secs(60);
/// Processor time of cleaning at a time. It continues the next time.
const CLEANING: Duration = Duration::from_millis(3);

/// The agent's directories.
#[derive(Debug)]
pub(crate) struct Files {
    path: PathBuf,
    base: PathBuf,
    /// The directory and its lock. `None` after the directory was removed, until it is created again.
    directory: Option<Directory>,
    /// Path of the last directory of files. It may still have files of running processes.
    last: PathBuf,
    /// The rest of the names to be looked at.
    list: Option<ReadDir>,
}

impl Files {
    pub(crate) fn open(path: PathBuf, base: PathBuf) -> io::Result<Files> {
        let directory = Directory::open(path.clone(), &base)?;
        let last = directory.files().to_owned();
        Ok(Files { path, base, directory: Some(directory), last, list: None })
    }

    /// Returns the path of the directory of files.
    pub(crate) fn files(&self) -> &Path {
        &self.last
    }

    /// Creates the directories again if they were removed, moved or replaced. Returns whether it has done so.
    pub(crate) fn ensure(&mut self) -> bool {
        if self.directory.as_ref().is_some_and(Directory::is_there) {
            return false;
        }
        // The old one must be dropped first: it holds the lock.
        let is_news = self.directory.take().is_some();
        match Directory::open_again(self.path.clone(), &self.base, Some(self.last.clone())) {
            Ok(directory) => {
                info!("the directory for files of processes was removed or moved: it is created again");
                (self.last, self.list) = (directory.files().to_owned(), None);
                self.directory = Some(directory);
                return true;
            }
            Err(e) if is_news => warn!(
                "the directory for files of processes was removed or moved, and cannot be created again: {e}; the agent will retry"
            ),
            Err(e) => debug!("{}: {e}", self.path.display()),
        }
        false
    }

    fn opened(&self) -> io::Result<&File> {
        self.directory.as_ref().map(Directory::opened).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Returns the status of the file with this name. Does not follow symbolic links.
    pub(crate) fn stat(&self, name: &OsStr) -> io::Result<FileStat> {
        Ok(fstatat(self.opened()?, name, AtFlags::AT_SYMLINK_NOFOLLOW)?)
    }

    /// Opens a file for reading. Does not block on a FIFO, nor follow symbolic links.
    pub(crate) fn read(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        Ok(openat(self.opened()?, name, flags, Mode::empty())?.into())
    }

    /// Removes a name unless it is that of a directory.
    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(self.opened()?, name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Removes names that are not `known`, a minute after their last change, unless a process holds the lock of the file or
    /// of its event records: files that are not valid, files that were never completed, and the like.
    pub(crate) fn clean(&mut self, known: impl Fn(&OsStr) -> bool) {
        self.clean_for(CLEANING, STALE, known);
    }

    fn clean_for(&mut self, most: Duration, stale: Duration, known: impl Fn(&OsStr) -> bool) {
        let start = processor_time();
        let mut list = match self.list.take() {
            Some(list) => list,
            None => match fs::read_dir(&self.last) {
                Ok(list) => list,
                Err(_) => return,
            },
        };
        for name in list.by_ref().flatten().map(|entry| entry.file_name()) {
            if !known(&name) {
                self.clean_name(&name, stale);
            }
            if processor_time().saturating_sub(start) > most {
                self.list = Some(list);
                return;
            }
        }
    }

    fn clean_name(&self, name: &OsStr, stale: Duration) {
        let Ok(stat) = self.stat(name) else { return };
        let is_file = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFREG;
        let is_locked = |name: &OsStr| self.read(name).is_ok_and(|file| !is_unlocked(file));
        if !is_stale(&stat, stale) || is_file && (is_locked(name) || is_locked(&ring_name(name))) {
            return;
        }
        if self.remove(name).is_err_and(|e| e.raw_os_error() == Some(Errno::EISDIR as i32)) {
            if let Ok(opened) = self.opened() {
                let _ = unlinkat(opened, name, UnlinkatFlags::RemoveDir);
            }
        }
    }
}

/// Returns whether no process holds an exclusive lock of the file.
fn is_unlocked(file: File) -> bool {
    Flock::lock(file, FlockArg::LockSharedNonblock).is_ok()
}

/// Returns whether the file's last change (ctime) is farther than `stale` in the past, or in the future after the clock was
/// set back.
///
/// The owner of a file cannot set its ctime.
fn is_stale(stat: &FileStat, stale: Duration) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    is_far(now, stat.st_ctime, stale)
}

fn is_far(now: Duration, changed: i64, stale: Duration) -> bool {
    now.abs_diff(Duration::from_secs(changed.try_into().unwrap_or(0))) > stale
}

/// Returns the name of the file whose event records have this name.
pub(crate) fn file_of_ring(name: &OsStr) -> Option<OsString> {
    let name = name.as_bytes().strip_prefix(b".")?.strip_suffix(b".ring")?;
    Some(OsStr::from_bytes(name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(files: &Files) -> Vec<String> {
        let names = fs::read_dir(files.files()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn what_belongs_to_no_process_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = Files::open(dir.path().join("4323"), dir.path().to_owned()).unwrap();
        let place = files.files().to_owned();
        for name in ["known", "bad", ".hidden", "locked", "alive", ".alive.ring", ".orphan.ring"] {
            fs::write(place.join(name), "").unwrap();
        }
        fs::create_dir(place.join("empty")).unwrap();
        fs::create_dir_all(place.join("full/x")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", place.join("link")).unwrap();
        nix::unistd::mkfifo(&place.join("fifo"), Mode::S_IRWXU).unwrap();
        let locks = ["locked", ".alive.ring"]
            .map(|name| Flock::lock(File::open(place.join(name)).unwrap(), FlockArg::LockExclusive).unwrap());
        let before = names(&files);
        files.clean(|name| name == "known");
        assert_eq!(names(&files), before);
        files.clean_for(Duration::MAX, Duration::ZERO, |name| name == "known");
        assert_eq!(names(&files), [".alive.ring", "alive", "full", "known", "locked"]);
        drop(locks);
        files.clean_for(Duration::MAX, Duration::ZERO, |name| name == "known");
        assert_eq!(names(&files), ["full", "known"]);
        assert!(Path::new("/etc/passwd").exists());
    }

    /// Cleaning many names ends after a short time, and continues the next time.
    #[test]
    fn cleaning_ends_when_it_has_taken_long() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = Files::open(dir.path().join("4323"), dir.path().to_owned()).unwrap();
        let place = files.files().to_owned();
        (0..100).for_each(|n| fs::write(place.join(n.to_string()), "").unwrap());
        files.clean_for(Duration::ZERO, Duration::ZERO, |_| false);
        let left = names(&files).len();
        assert!((1..100).contains(&left), "{left}");
        (0..100).for_each(|_| files.clean_for(Duration::ZERO, Duration::ZERO, |_| false));
        assert_eq!(names(&files).len(), 0);
    }

    #[test]
    fn the_future_is_as_far_as_the_past() {
        let is_far = |changed| is_far(Duration::from_secs(1_000_000), changed, STALE);
        assert!(!is_far(1_000_000 - 60) && !is_far(1_000_000 + 60));
        assert!(is_far(1_000_000 - 61) && is_far(1_000_000 + 61) && is_far(-5) && is_far(i64::MAX));
    }
}
