//! Search of the directory of files, by inotify events and by listings.
//!
//! An inotify event announces each new file, however many files exist. Listings find all other files: files from before
//! the agent's start, files whose events were lost, files that were refused, and files that were never completed. Both
//! take a bounded time, and then pause.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, ReadDir};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag, openat};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use trace::shared_memory::Directory;
use tracing::{debug, info, warn};

use pmda::limits::processor_time;

/// Time without a change after which a hidden or ignored file is removed.
pub(crate) const STALE: Duration = Duration::from_secs(60);
/// Delay between two reads of events, so that many are read together.
const PAUSE: Duration = Duration::from_millis(10);
/// Number of names between two checks of the processor time.
const NAMES: usize = 16;
/// Processor time of a search. It then rests ten times as long as it took.
const AT_ONCE: Duration = Duration::from_millis(3);
/// Elapsed time after which a search pauses. Users that rename files all the time block it on the directory's lock.
const BLOCKED: Duration = Duration::from_millis(12);

/// The agent's directories, and the state of the search.
#[derive(Debug)]
pub(crate) struct Search {
    path: PathBuf,
    base: PathBuf,
    /// The directory and its lock. `None` after the directory was removed, until it is created again.
    directory: Option<Directory>,
    /// Path of the last directory of files. It may still have files of running processes.
    files: Option<PathBuf>,
    watch: Option<Inotify>,
    /// Names from events.
    new: VecDeque<OsString>,
    list: Option<ReadDir>,
    /// Number of listings so far.
    pub(crate) listings: u64,
    is_wanted: bool,
    /// Whether one of the directories may have been removed.
    is_doubtful: bool,
    pauses: Instant,
    rests: Instant,
}

/// A name in the directory.
#[derive(Debug)]
pub(crate) struct Name {
    pub(crate) name: OsString,
    /// The name is from a listing, not from an event.
    pub(crate) is_listed: bool,
}

impl Search {
    pub(crate) fn open(path: PathBuf, base: PathBuf) -> io::Result<Search> {
        let now = Instant::now();
        let mut search = Search {
            path,
            base,
            directory: None,
            files: None,
            watch: None,
            new: VecDeque::new(),
            list: None,
            listings: 0,
            is_wanted: true,
            is_doubtful: false,
            pauses: now,
            rests: now,
        };
        search.make()?;
        Ok(search)
    }

    /// Creates or opens the directories, and watches them.
    fn make(&mut self) -> io::Result<()> {
        let directory = Directory::open_again(self.path.clone(), &self.base, self.files.clone())?;
        self.files = Some(directory.files().to_owned());
        self.watch = watch(&directory).inspect_err(|e| debug!("inotify: {e}")).ok();
        self.directory = Some(directory);
        (self.list, self.is_wanted) = (None, true);
        Ok(())
    }

    /// Returns a descriptor that is readable when there are events. Returns `None` during a pause.
    pub(crate) fn watch(&self, now: Instant) -> Option<&Inotify> {
        self.watch.as_ref().filter(|_| self.next_look() <= now)
    }

    /// Returns whether events announce new files.
    pub(crate) fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// Requests a listing. If one is in progress, it continues.
    pub(crate) fn list(&mut self) {
        self.is_wanted = true;
    }

    /// Returns when to continue an unfinished search.
    pub(crate) fn due(&self, now: Instant) -> Option<Instant> {
        let is_left = self.is_wanted || self.list.is_some() || !self.new.is_empty() || self.next_look() > now;
        is_left.then(|| self.next_look())
    }

    fn next_look(&self) -> Instant {
        self.pauses.max(self.rests)
    }

    /// Calls `f` with names until the time is used up. Returns true when a listing is complete.
    pub(crate) fn names(&mut self, now: Instant, mut f: impl FnMut(&mut Search, Name)) -> bool {
        if self.rests > now {
            return false;
        }
        self.take_events();
        if self.is_wanted || self.is_doubtful {
            self.see_directory();
        }
        if std::mem::take(&mut self.is_wanted) && self.list.is_none() {
            self.list = self.directory.as_ref().and_then(|directory| fs::read_dir(directory.files()).ok());
            self.listings += 1;
        }
        let (start, mut is_complete, mut spent) = (processor_time(), false, Duration::ZERO);
        let (begin, mut is_busy) = (Instant::now(), false);
        for count in 1.. {
            let listed = if self.new.is_empty() { self.list.as_mut().map(Iterator::next) } else { None };
            let name = match listed {
                None => match self.new.pop_front() {
                    Some(name) => Name { name, is_listed: false },
                    None => break,
                },
                Some(Some(Ok(entry))) => Name { name: entry.file_name(), is_listed: true },
                Some(_) => {
                    (self.list, is_complete) = (None, true);
                    break;
                }
            };
            is_busy = true;
            f(self, name);
            if begin.elapsed() > BLOCKED {
                break;
            }
            if count % NAMES == 0 {
                spent = processor_time().saturating_sub(start);
                if spent > AT_ONCE {
                    break;
                }
                self.take_events();
            }
        }
        let took = begin.elapsed();
        if is_busy {
            self.pauses = now + PAUSE;
        }
        if spent > AT_ONCE {
            self.rests = Instant::now() + 10 * spent;
        } else if took > BLOCKED {
            self.rests = Instant::now() + took;
        }
        is_complete
    }

    /// Reads events. Requests a listing if some were lost.
    fn take_events(&mut self) {
        if !self.new.is_empty() {
            return;
        }
        let events = self.watch.as_ref().and_then(|watch| watch.read_events().ok());
        for event in events.into_iter().flatten() {
            match event.name {
                Some(name) if event.mask.contains(AddWatchFlags::IN_MOVED_TO) => self.new.push_back(name),
                _ if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) => self.is_wanted = true,
                _ => self.is_doubtful = true,
            }
        }
    }

    /// Creates the directories again if they were removed, moved or replaced.
    fn see_directory(&mut self) {
        self.is_doubtful = false;
        if self.directory.as_ref().is_some_and(Directory::is_there) {
            return;
        }
        // The old one must be dropped first: it holds the lock.
        let is_news = self.directory.take().is_some();
        match self.make() {
            Ok(()) => info!("the directory for files of processes was removed or moved: it is created again"),
            Err(e) if is_news => warn!(
                "the directory for files of processes was removed or moved, and cannot be created again: {e}; the agent will retry"
            ),
            Err(e) => debug!("{}: {e}", self.path.display()),
        }
    }

    fn opened(&self) -> io::Result<&File> {
        self.directory.as_ref().map(Directory::opened).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Returns the status of the file with this name. Does not follow symbolic links.
    pub(crate) fn look_at(&self, name: &OsStr) -> io::Result<FileStat> {
        Ok(fstatat(self.opened()?, name, AtFlags::AT_SYMLINK_NOFOLLOW)?)
    }

    /// Opens a file for reading. Does not block on a FIFO, nor follow symbolic links.
    pub(crate) fn open_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        Ok(openat(self.opened()?, name, flags, Mode::empty())?.into())
    }

    /// Removes a name unless it is that of a directory.
    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(self.opened()?, name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Removes a [stale](is_stale) file, or a stale and empty directory.
    pub(crate) fn remove_stale(&self, name: &OsStr, stat: &FileStat) {
        if is_stale(stat) && self.remove(name).is_err_and(|e| e.raw_os_error() == Some(Errno::EISDIR as i32)) {
            if let Ok(opened) = self.opened() {
                let _ = unlinkat(opened, name, UnlinkatFlags::RemoveDir);
            }
        }
    }

    /// Removes an ignored file when it is stale, unless a process holds its lock.
    pub(crate) fn remove_unused(&self, name: &OsStr, stat: &FileStat) {
        let is_file = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFREG;
        if is_stale(stat) && (!is_file || self.open_file(name).is_ok_and(is_unlocked)) {
            self.remove_stale(name, stat);
        }
    }
}

/// Returns whether no process holds an exclusive lock of the file.
fn is_unlocked(file: File) -> bool {
    Flock::lock(file, FlockArg::LockSharedNonblock).is_ok()
}

/// Returns whether the file's last change (ctime) is far in the past, or in the future after the clock was set back.
///
/// The owner of a file cannot set its ctime.
fn is_stale(stat: &FileStat) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    is_far(now, stat.st_ctime)
}

fn is_far(now: Duration, changed: i64) -> bool {
    now.abs_diff(Duration::from_secs(changed.try_into().unwrap_or(0))) > STALE
}

pub(crate) fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".")
}

fn watch(directory: &Directory) -> nix::Result<Inotify> {
    let watch = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
    let add = |path: &Path, events| watch.add_watch(path, events | AddWatchFlags::IN_ONLYDIR);
    // inotify does not report the removal of a directory that is open here. A listing detects it.
    add(directory.files(), AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_MOVE_SELF)?;
    let changes = AddWatchFlags::IN_DELETE | AddWatchFlags::IN_MOVED_FROM | AddWatchFlags::IN_MOVE_SELF;
    add(directory.path(), changes)?;
    Ok(watch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(search: &mut Search) -> Vec<(String, bool)> {
        let mut names = Vec::new();
        search
            .names(Instant::now(), |_, Name { name, is_listed }| names.push((name.into_string().unwrap(), is_listed)));
        names
    }

    #[test]
    fn new_names_come_without_a_listing() {
        let dir = tempfile::tempdir().unwrap();
        let mut search = Search::open(dir.path().join("4323"), dir.path().to_owned()).unwrap();
        let place = search.directory.as_ref().unwrap().files().to_owned();
        fs::write(place.join(".hidden"), "").unwrap();
        assert_eq!(names(&mut search), [(".hidden".into(), true)]);
        assert_eq!((names(&mut search), search.due(Instant::now() + PAUSE)), (vec![], None));
        fs::rename(place.join(".hidden"), place.join("file")).unwrap();
        assert_eq!(names(&mut search), [("file".into(), false)]);
        search.list();
        assert_eq!(names(&mut search), [("file".into(), true)]);
        assert_eq!(search.listings, 2);
    }

    /// A search of many names ends after a short time, and the next search continues it.
    #[test]
    fn a_look_at_names_ends_when_it_has_taken_long() {
        let dir = tempfile::tempdir().unwrap();
        let mut search = Search::open(dir.path().join("4323"), dir.path().to_owned()).unwrap();
        let place = search.directory.as_ref().unwrap().files().to_owned();
        (0..1000).for_each(|n| fs::write(place.join(n.to_string()), "").unwrap());
        let (mut seen, mut looks, mut now) = (0, 0, Instant::now());
        while seen < 1000 {
            let is_complete = search.names(now, |_, _| {
                seen += 1;
                std::thread::sleep(Duration::from_micros(300));
            });
            looks += 1;
            assert!(!is_complete || seen == 1000);
            now = search.rests.max(now);
        }
        assert!(looks > 3, "{looks}");
    }

    #[test]
    fn the_future_is_as_far_as_the_past() {
        let now = Duration::from_secs(1_000_000);
        assert!(!is_far(now, 1_000_000 - 60) && !is_far(now, 1_000_000 + 60));
        assert!(is_far(now, 1_000_000 - 61) && is_far(now, 1_000_000 + 61) && is_far(now, -5) && is_far(now, i64::MAX));
    }
}
