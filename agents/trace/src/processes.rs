//! Processes that trace over the light transport: their files are found, read, and removed when they have ended.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, Metadata};
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
use crate::turns::{AT_ONCE, User};

/// How often files are read: more often than the shortest and longest times in them are forgotten.
const PERIOD: Duration = Duration::from_secs(1);
/// And when somebody reads event records.
const OFTEN: Duration = Duration::from_millis(50);
/// How often it is looked whether processes are still there.
const ALIVE: Duration = Duration::from_secs(1);
/// As many files are read, each of which is open; a quarter of them of one user.
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
    /// By what they are: their users may give them other names.
    files: HashMap<Identity, Entry>,
    users: HashMap<u32, User>,
    /// When files were read last.
    read: Instant,
    /// When it was looked last whether processes are there.
    looked: Option<Instant>,
    /// There may be new files, which are not looked for before some time: that may take long.
    news: bool,
    rests: Instant,
    missed: u64,
    full: bool,
}

#[derive(Debug)]
struct Entry {
    name: OsString,
    /// Whose it is.
    user: u32,
    file: Found,
}

#[derive(Debug)]
enum Found {
    Read(Box<Read>),
    /// A file that makes no sense, or cannot be removed.
    Left(Option<Process>),
}

#[derive(Debug)]
struct Read {
    reader: Reader,
    missed: u64,
    /// The last of its user's rounds in which its sums were read, and its records.
    sums: u64,
    records: u64,
    /// It was there when the agent started: what is in it counts, but is not recent.
    old: bool,
}

/// Device and inode.
type Identity = (u64, u64);

impl Processes {
    pub(crate) fn open(path: PathBuf) -> io::Result<Processes> {
        let directory = Directory::open(path)?;
        let watch = watch(directory.path()).inspect_err(|e| debug!("inotify: {e}")).ok();
        let now = Instant::now();
        Ok(Processes {
            directory,
            watch,
            files: HashMap::new(),
            users: HashMap::new(),
            read: now,
            looked: None,
            news: true,
            rests: now,
            missed: 0,
            full: false,
        })
    }

    /// Readable when there is a new file.
    pub(crate) fn watch(&self) -> Option<&Inotify> {
        self.watch.as_ref()
    }

    /// When files are to be read although nothing has happened.
    pub(crate) fn due(&self, events: &Events, tags: &Tags) -> Option<Instant> {
        let look = if self.news { Some(self.rests) } else { None };
        if self.watch.is_some() && self.files.is_empty() {
            return look;
        }
        let regularly = self.read + if events.are_wanted() { OFTEN } else { PERIOD };
        let bucket = tags.window().end_of_bucket().filter(|end| *end > self.read);
        [Some(regularly), bucket, look].into_iter().flatten().min()
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

    fn found(&self) -> impl Iterator<Item = &Read> {
        self.files.values().filter_map(|entry| match &entry.file {
            Found::Read(read) => Some(&**read),
            Found::Left(_) => None,
        })
    }

    /// Takes what has come since the last time.
    pub(crate) fn read(&mut self, tags: &mut Tags, events: &mut Events) {
        let now = Instant::now();
        let look = self.looked.is_none_or(|looked| now - looked >= ALIVE);
        self.news |= self.has_news() || look;
        if self.news && self.rests <= now {
            self.look(self.looked.is_none());
            let took = now.elapsed();
            (self.news, self.rests) = (false, if took > AT_ONCE { now + 10 * took } else { now });
        }
        if look {
            self.looked = Some(now);
        }
        // What has come since then has come in the middle of the time, on average.
        let when = self.read + (now - self.read) / 2;
        self.read = now;
        for user in self.users.values_mut() {
            user.files = 0;
            user.sums.begin(now);
            user.records.begin(now);
        }
        let Processes { files, users, directory, missed, .. } = self;
        files.retain(|identity, entry| {
            let user = users.entry(entry.user).or_default();
            user.files += 1;
            let gone = match &mut entry.file {
                Found::Left(process) => look && process.is_some_and(|process| !process.is_alive()),
                Found::Read(file) => {
                    let process = file.reader.process();
                    let gone = file.reader.is_ended() || (look && file.reader.is_abandoned());
                    if !user.sums.has_turn(&mut file.sums) {
                        return true;
                    }
                    let mut read = user.sums.spend(|| file.read_sums(when, tags));
                    // Those of a process that is gone have no other time.
                    if read.is_ok() && (user.records.has_turn(&mut file.records) || gone) {
                        read = user.records.spend(|| events.read(&mut file.reader)).and(read);
                    }
                    match read {
                        Ok(more) => *missed = missed.saturating_add(more),
                        Err(e) => {
                            warn!("{}: {e}: left alone", entry.name.display());
                            entry.file = Found::Left(Some(process));
                        }
                    }
                    gone
                }
            };
            !gone || !remove(directory.path(), *identity, entry)
        });
        self.users.retain(|_, user| user.files > 0);
        events.publish();
    }

    fn has_news(&self) -> bool {
        let Some(watch) = &self.watch else { return false };
        watch.read_events().is_ok_and(|events| !events.is_empty())
    }

    /// Sees what files there are.
    fn look(&mut self, is_first: bool) {
        let most = MOST.load(Relaxed);
        let mut there = HashSet::new();
        for file in fs::read_dir(self.directory.path()).into_iter().flatten().flatten() {
            let name = file.file_name();
            let Ok(metadata) = file.metadata() else { continue };
            if name.as_bytes().starts_with(b".") {
                let age = metadata.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
                if age.is_some_and(|age| age > STALE) {
                    let _ = fs::remove_file(file.path());
                }
                continue;
            }
            let (identity, user) = (identity(&metadata), metadata.uid());
            let known = self.files.get_mut(&identity).is_some_and(|entry| match entry.file {
                Found::Read(_) => {
                    entry.name.clone_from(&name);
                    true
                }
                // It is not open: another file may have its number.
                Found::Left(_) => entry.name == name,
            });
            if !known {
                let files = &mut self.users.entry(user).or_default().files;
                *files += 1;
                if self.files.len() < most && *files <= most / 4 {
                    let file = Found::open(&file.path(), is_first);
                    self.files.insert(identity, Entry { name, user, file });
                } else if !std::mem::replace(&mut self.full, true) {
                    warn!("there are too many files: others are ignored");
                }
            }
            there.insert(identity);
        }
        // A file that somebody has removed is read until its process ends.
        self.files.retain(|identity, entry| matches!(entry.file, Found::Read(_)) || there.contains(identity));
        self.full &= self.files.len() >= most / 4;
    }
}

/// For a process that is nothing but the agent.
pub(crate) fn allow_many() {
    MOST.store(MOST_ALONE, Relaxed);
}

impl Found {
    fn open(path: &Path, old: bool) -> Found {
        match Reader::open(path) {
            Ok(reader) => {
                debug!("process {}: {}", reader.process().pid, path.display());
                Found::Read(Box::new(Read { reader, missed: 0, sums: 0, records: 0, old }))
            }
            Err(e) => {
                warn!("{}: {e}: left alone", path.display());
                Found::Left(None)
            }
        }
    }
}

impl Read {
    /// Counts what is new, and says how many marks had no room.
    fn read_sums(&mut self, when: Instant, tags: &mut Tags) -> Result<u64, ReadError> {
        let when = if self.old { None } else { Some(when) };
        self.old = false;
        self.reader.changes(|kind, tag, change| tags.change(kind, tag, &change, when))?;
        let missed = self.reader.missed().saturating_sub(self.missed);
        self.missed += missed;
        Ok(missed)
    }
}

/// Removes the file of a process that has ended; false when it stays, and is known to.
fn remove(directory: &Path, known: Identity, entry: &mut Entry) -> bool {
    let path = directory.join(&entry.name);
    // Another file may have its name.
    let removed = fs::symlink_metadata(&path)
        .and_then(|metadata| if identity(&metadata) == known { fs::remove_file(&path) } else { Ok(()) });
    match removed {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            info!("{}: {e}: not removed", path.display());
            entry.file = Found::Left(None);
            false
        }
        _ => true,
    }
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

fn watch(path: &Path) -> nix::Result<Inotify> {
    let watch = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
    watch.add_watch(path, AddWatchFlags::IN_MOVED_TO)?;
    Ok(watch)
}
