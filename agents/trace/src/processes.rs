//! Processes that trace over the light transport: their files are found, read, and removed when they have ended.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use trace::light::{Directory, Process, ReadError, Reader};
use tracing::{debug, info, warn};

use crate::events::Events;
use crate::tags::Tags;

/// How often files are read: more often than the shortest and longest times in them are forgotten.
const PERIOD: Duration = Duration::from_secs(1);
/// And when somebody reads event records.
const OFTEN: Duration = Duration::from_millis(50);
/// How often it is looked whether processes are still there.
const ALIVE: Duration = Duration::from_secs(1);
/// As many files are read, each of which is open.
static MOST: AtomicUsize = AtomicUsize::new(256);
/// And in a process that has no other use for descriptors.
const MOST_ALONE: usize = 4096;
/// A file that is being made is not any more.
const STALE: Duration = Duration::from_secs(60);

/// The processes of this host.
#[derive(Debug)]
pub(crate) struct Processes {
    directory: Directory,
    watch: Option<Inotify>,
    files: HashMap<OsString, Entry>,
    /// When files were read last, and when they were looked for and processes were.
    read: Instant,
    looked: Option<Instant>,
    missed: u64,
    full: bool,
}

#[derive(Debug)]
enum Entry {
    Read(Box<Found>),
    /// A file that makes no sense, or cannot be removed.
    Left {
        identity: Identity,
        process: Option<Process>,
    },
}

#[derive(Debug)]
struct Found {
    reader: Reader,
    missed: u64,
    /// It was there when the agent started: what is in it counts, but is not recent.
    old: bool,
}

type Identity = (u64, u64);

impl Processes {
    pub(crate) fn open(path: PathBuf) -> io::Result<Processes> {
        let directory = Directory::open(path)?;
        let watch = watch(directory.path()).inspect_err(|e| debug!("inotify: {e}")).ok();
        let now = Instant::now();
        Ok(Processes { directory, watch, files: HashMap::new(), read: now, looked: None, missed: 0, full: false })
    }

    /// Readable when there is a new file.
    pub(crate) fn watch(&self) -> Option<&Inotify> {
        self.watch.as_ref()
    }

    /// When files are to be read although nothing has happened.
    pub(crate) fn due(&self, events: &Events, tags: &Tags) -> Option<Instant> {
        if self.watch.is_some() && self.files.is_empty() {
            return None;
        }
        let regularly = self.read + if events.are_wanted() { OFTEN } else { PERIOD };
        Some(tags.window().end_of_bucket().filter(|end| *end > self.read).map_or(regularly, |end| regularly.min(end)))
    }

    pub(crate) fn count(&self) -> usize {
        self.found().count()
    }

    pub(crate) fn threads(&self) -> usize {
        self.found().map(|found| found.reader.lanes()).sum()
    }

    /// Marks that are nowhere.
    pub(crate) fn missed(&self) -> u64 {
        self.missed
    }

    fn found(&self) -> impl Iterator<Item = &Found> {
        self.files.values().filter_map(|entry| match entry {
            Entry::Read(found) => Some(&**found),
            Entry::Left { .. } => None,
        })
    }

    /// Takes what has come since the last time.
    pub(crate) fn read(&mut self, tags: &mut Tags, events: &mut Events) {
        let now = Instant::now();
        let is_first = self.looked.is_none();
        let look = self.looked.is_none_or(|looked| now - looked >= ALIVE);
        if self.has_news() || look {
            self.look(is_first);
        }
        if look {
            self.looked = Some(now);
        }
        // What has come since then has come in the middle of the time, on average.
        let when = self.read + (now - self.read) / 2;
        self.read = now;
        let Processes { files, directory, missed, .. } = self;
        files.retain(|name, entry| {
            let gone = match entry {
                Entry::Read(found) => found.reader.is_ended() || (look && !found.reader.process().is_alive()),
                Entry::Left { process, .. } => look && process.is_some_and(|process| !process.is_alive()),
            };
            let path = directory.path().join(name);
            let read = match entry {
                Entry::Read(found) => found.read(when, tags, events).map_err(|e| (e, found.reader.process())),
                Entry::Left { .. } => Ok(0),
            };
            match read {
                Ok(more) => *missed = missed.saturating_add(more),
                Err((e, process)) => {
                    warn!("{}: {e}: left alone", name.display());
                    *entry = Entry::Left { identity: identity(&path), process: Some(process) };
                }
            }
            !gone || !remove(&path, entry)
        });
        events.publish();
    }

    fn has_news(&self) -> bool {
        let Some(watch) = &self.watch else { return false };
        watch.read_events().is_ok_and(|events| !events.is_empty())
    }

    /// Sees what files there are.
    fn look(&mut self, is_first: bool) {
        let most = MOST.load(Relaxed);
        let mut gone: Vec<OsString> = self.files.keys().cloned().collect();
        for entry in fs::read_dir(self.directory.path()).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Ok(metadata) = entry.metadata() else { continue };
            if name.as_bytes().starts_with(b".") {
                let age = metadata.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
                if age.is_some_and(|age| age > STALE) {
                    let _ = fs::remove_file(entry.path());
                }
                continue;
            }
            gone.retain(|other| *other != name);
            let identity = (metadata.dev(), metadata.ino());
            let known = match self.files.get(&name) {
                Some(Entry::Read(_)) => true,
                Some(Entry::Left { identity: other, .. }) => *other == identity,
                None => false,
            };
            if known {
                continue;
            }
            if self.files.len() >= most {
                if !std::mem::replace(&mut self.full, true) {
                    warn!("there are {most} files: others are ignored");
                }
                continue;
            }
            let found = match Reader::open(&entry.path()) {
                Ok(reader) => {
                    debug!("process {}: {}", reader.process().pid, name.display());
                    Entry::Read(Box::new(Found { reader, missed: 0, old: is_first }))
                }
                Err(e) => {
                    warn!("{}: {e}: left alone", name.display());
                    Entry::Left { identity, process: None }
                }
            };
            self.files.insert(name, found);
        }
        // A file that somebody has removed is read until its process ends.
        for name in gone {
            if matches!(self.files.get(&name), Some(Entry::Left { .. })) {
                self.files.remove(&name);
            }
        }
        self.full &= self.files.len() >= most;
    }
}

/// For a process that is nothing but the agent.
pub(crate) fn allow_many() {
    MOST.store(MOST_ALONE, Relaxed);
}

impl Found {
    /// Takes what is new, and says how many marks had no room.
    fn read(&mut self, when: Instant, tags: &mut Tags, events: &mut Events) -> Result<u64, ReadError> {
        let when = if self.old { None } else { Some(when) };
        self.old = false;
        self.reader.changes(|kind, tag, change| tags.change(kind, tag, &change, when))?;
        events.read(&mut self.reader)?;
        let missed = self.reader.missed().saturating_sub(self.missed);
        self.missed += missed;
        Ok(missed)
    }
}

/// Removes the file of a process that has ended; false when it stays, and is known to.
fn remove(path: &Path, entry: &mut Entry) -> bool {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            info!("{}: {e}: not removed", path.display());
            *entry = Entry::Left { identity: identity(path), process: None };
            false
        }
        _ => true,
    }
}

fn identity(path: &Path) -> Identity {
    fs::symlink_metadata(path).map_or((0, 0), |metadata| (metadata.dev(), metadata.ino()))
}

fn watch(path: &Path) -> nix::Result<Inotify> {
    let watch = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
    watch.add_watch(path, AddWatchFlags::IN_MOVED_TO)?;
    Ok(watch)
}
