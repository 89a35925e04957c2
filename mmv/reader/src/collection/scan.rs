//! Finds and reads new and changed files, within the limits of their users.

use std::collections::{BTreeMap, BinaryHeap};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fmt, fs, io, mem};

use hashbrown::HashMap;

use super::limits::{Cost, Limit, Limits, Quotas, Uid};
use super::snapshot::{Clusters, Snapshot};
use super::source::Source;
use crate::reader::{Directory, ReadError, Stamp, is_of_system, is_temporary, peek};

/// The files of a directory, as the last scan has found them.
pub(super) struct Scanner {
    prefix: String,
    path: PathBuf,
    pub limits: Limits,
    quotas: Quotas,
    /// Number of files that stay open.
    open: u64,
    /// Returns the user to charge for a user's files.
    payer: Box<dyn FnMut(u32) -> u32 + Send>,
    files: BTreeMap<OsString, Known>,
    /// Numbers of files without room, by user.
    crowd: HashMap<Uid, u64>,
    directory: Option<Arc<Directory>>,
    look: Look,
    clusters: Clusters,
    /// Whether the table has the files alone, without a name space.
    pub only_files: bool,
    /// Number of files so far that are not valid.
    bad: u64,
    /// Number of the present scan.
    scan: u64,
    /// Whether the last attempt to read the directory failed.
    is_unreadable: bool,
    buffer: Vec<u8>,
    /// Ends a scan early.
    pub stop: Arc<AtomicBool>,
}

impl fmt::Debug for Scanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scanner").field("path", &self.path).field("files", &self.files).finish_non_exhaustive()
    }
}

/// A name in the directory.
#[derive(Debug)]
struct Known {
    uid: Uid,
    /// Number of the scan that found the first file of this user with this name.
    since: u64,
    /// Attributes of the file when it was read, or `None` to always read it again.
    stamp: Option<Stamp>,
    /// Whether the file was not valid, or parts of it, and had just been changed when it was read. A program that
    /// overwrites it in place may not have finished, and what it stores into a mapped file is no event.
    is_fresh: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    New,
    Exported(Arc<Source>),
    /// The file is being written, or could not be read this time.
    Waiting {
        is_in_flux: bool,
    },
    /// The file is not a valid mmv(5) file.
    Bad,
    /// The file exceeds a limit with this cost.
    Refused(Cost),
}

impl State {
    fn exported(&self) -> Option<&Arc<Source>> {
        if let State::Exported(source) = self { Some(source) } else { None }
    }

    /// Returns the memory and the values that count in the limits of the file's user; none unless it is exported.
    fn cost(&self) -> Cost {
        self.exported().map(|source| source.cost).unwrap_or_default()
    }
}

/// What is known about a directory after a scan.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub look: Look,
    /// Whether a file may soon be ready that is not exported, or could not be read this time.
    pub is_waiting: bool,
    /// Whether a file is being written.
    pub is_in_flux: bool,
    /// Number of files that each [`Limit`](super::limits::Limit) has left out, in the order of its variants.
    pub refused: [u64; 3],
    /// Number of files so far that are not valid.
    pub bad: u64,
}

/// A new name in the directory, ordered by the time of its last change.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    changed: (i64, i64),
    name: OsString,
}

/// Which files a scan checks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Extent {
    /// New, stale and waiting files.
    Due,
    /// All files.
    All,
    /// Reads all files again.
    Again,
}

impl Scanner {
    pub(super) fn new(prefix: &str, path: PathBuf) -> Scanner {
        let (limits, open) = (Limits::default(), super::Collection::OPEN_FILES as u64);
        Scanner {
            prefix: prefix.to_owned(),
            path,
            limits,
            quotas: Quotas::new(prefix, &limits, open),
            open,
            payer: Box::new(|uid| uid),
            files: BTreeMap::new(),
            crowd: HashMap::new(),
            directory: None,
            look: Look::default(),
            clusters: Clusters::new(),
            only_files: false,
            bad: 0,
            scan: 0,
            is_unreadable: false,
            buffer: Vec::new(),
            stop: Arc::default(),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Sets the limits and the number of files that stay open. The next scan reads all files.
    pub(super) fn set_limits(&mut self, limits: Limits, open: u64) {
        (self.limits, self.open) = (limits, open);
        self.forget();
    }

    pub(super) fn open_files(&self) -> u64 {
        self.open
    }

    /// Sets the function that returns the user to charge for a user's files.
    pub(super) fn charge(&mut self, payer: impl FnMut(u32) -> u32 + Send + 'static) {
        self.payer = Box::new(payer);
    }

    /// Forgets all files. The next scan reads them again.
    pub(super) fn forget(&mut self) {
        self.quotas = Quotas::new(&self.prefix, &self.limits, self.open);
        (self.files, self.look) = (BTreeMap::new(), Look::default());
    }

    /// Returns the result of the last scan, with files that have become stale since.
    pub(super) fn seen(&self) -> Seen {
        let is_waiting = |file: &Known| match &file.state {
            State::Waiting { .. } => true,
            State::Exported(source) => source.is_stale.load(Relaxed),
            State::New | State::Bad | State::Refused(..) => false,
        };
        Seen {
            look: self.look.clone(),
            is_waiting: self.is_unreadable || self.files.values().any(|file| file.is_fresh || is_waiting(file)),
            is_in_flux: self.files.values().any(|file| matches!(file.state, State::Waiting { is_in_flux: true })),
            refused: self.quotas.refused(),
            bad: self.bad,
        }
    }

    /// Reads new and changed files. Returns whether exported contents have changed.
    pub(super) fn scan(&mut self, mut extent: Extent) -> bool {
        self.scan += 1;
        let mut files = mem::take(&mut self.files);
        let mut is_changed = extent == Extent::Again;
        let found = self.list(&mut files, extent);
        match found {
            Ok(None) => {}
            Ok(Some(changed)) => {
                is_changed |= changed;
                extent = extent.max(Extent::All);
            }
            Err(e) => {
                if !mem::replace(&mut self.is_unreadable, true) {
                    let (prefix, path) = (&self.prefix, self.path.display());
                    tracing::error!("{prefix}: cannot read {path}: {e}; known files stay exported");
                }
                self.look = Look::default();
            }
        }
        if let Some(directory) = self.directory.clone() {
            is_changed |= self.read_files(&mut files, &directory, extent);
        }
        self.files = files;
        is_changed
    }

    /// Builds the table of the exported files.
    pub(super) fn build(&mut self) -> Snapshot {
        let exported = self.files.values().filter_map(|file| file.state.exported().cloned());
        if self.only_files {
            return Snapshot::of_files(exported.collect());
        }
        let snapshot = Snapshot::build(&self.prefix, exported.collect(), &self.clusters);
        self.clusters = snapshot.clusters();
        snapshot
    }

    /// Lists the names of the directory if they may have changed. Returns whether an exported file has gone then.
    fn list(&mut self, files: &mut BTreeMap<OsString, Known>, extent: Extent) -> io::Result<Option<bool>> {
        let look = Look::at(&self.path, &self.look)?;
        if look.is_absent() {
            (self.look, self.directory, self.is_unreadable) = (look, None, false);
            let gone = mem::take(files);
            let is_changed = gone.values().any(|file| file.state.exported().is_some());
            gone.into_values().for_each(|file| self.release(&file));
            self.crowd.clear();
            return Ok(Some(is_changed));
        }
        if extent < Extent::All && !self.is_unreadable && !self.look.may_differ(&look) {
            return Ok(None);
        }
        let directory = Directory::open(&self.path)?;
        if self.directory.as_ref().is_none_or(|known| !known.is_same(&directory)) {
            self.directory = Some(Arc::new(directory));
        }
        let entries = fs::read_dir(&self.path)?;
        let mut candidates: HashMap<Uid, BinaryHeap<Candidate>> = HashMap::new();
        let mut crowd: HashMap<Uid, u64> = HashMap::new();
        let mut gone = mem::take(files);
        for entry in entries {
            let entry = match entry {
                Ok(entry) if !self.stop.load(Relaxed) => entry,
                interrupted => {
                    files.append(&mut gone);
                    return interrupted.map(|_| None);
                }
            };
            let name = entry.file_name();
            if let Some(known) = gone.remove(&name) {
                files.insert(name, known);
            } else if let Some((uid, candidate)) = self.candidate(&entry, name) {
                let own = candidates.entry(uid).or_default();
                own.push(candidate);
                // A user has as many names in memory as files, the oldest ones.
                if own.len() as u64 > self.limits.user_files {
                    own.pop();
                    *crowd.entry(uid).or_default() += 1;
                }
            }
        }
        let is_changed = gone.values().any(|file| file.state.exported().is_some());
        gone.into_values().for_each(|file| self.release(&file));
        self.admit(candidates, &mut crowd, files);
        (self.look, self.is_unreadable) = (look, false);
        Ok(Some(is_changed))
    }

    /// Returns a new name with the user to charge, if it is a file's.
    fn candidate(&mut self, entry: &fs::DirEntry, name: OsString) -> Option<(Uid, Candidate)> {
        let is_file = || entry.file_type().is_ok_and(|ty| ty.is_file() || ty.is_symlink());
        if name.as_bytes().starts_with(b".") || !is_file() {
            return None;
        }
        // The file may be gone.
        let metadata = entry.metadata().ok()?;
        let uid = Uid((self.payer)(metadata.uid()));
        Some((uid, Candidate { changed: (metadata.ctime(), metadata.ctime_nsec()), name }))
    }

    /// Adds new names, the oldest first, as far as the limits allow, and counts the others.
    fn admit(
        &mut self,
        candidates: HashMap<Uid, BinaryHeap<Candidate>>,
        crowd: &mut HashMap<Uid, u64>,
        files: &mut BTreeMap<OsString, Known>,
    ) {
        let of_users = candidates.into_iter();
        let all = of_users.flat_map(|(uid, own)| own.into_iter().map(move |candidate| (candidate, uid)));
        let mut all: Vec<(Candidate, Uid)> = all.collect();
        all.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        for (Candidate { name, .. }, uid) in all {
            if self.quotas.files.check(&uid, 1).is_ok() && self.quotas.files.try_add(&uid, 1).is_ok() {
                files.insert(name, Known { uid, since: self.scan, stamp: None, is_fresh: false, state: State::New });
            } else {
                *crowd.entry(uid).or_default() += 1;
            }
        }
        let before = mem::replace(&mut self.crowd, mem::take(crowd));
        for (uid, count) in &self.crowd {
            let known = before.get(uid).copied().unwrap_or_default();
            self.quotas.refuse(*uid, Limit::Files, count.saturating_sub(known));
        }
    }

    /// No longer charges a user for a file.
    fn release(&mut self, file: &Known) {
        self.quotas.files.remove(&file.uid, 1);
        self.quotas.release(file.uid, file.state.cost());
        self.close(&file.state);
    }

    fn close(&mut self, state: &State) {
        if let State::Exported(source) = state {
            self.quotas.open.remove(&source.uid, source.is_open().into());
        }
    }

    /// Reads files that need it, those that have been known longest first. Returns whether exported contents have changed.
    fn read_files(
        &mut self,
        files: &mut BTreeMap<OsString, Known>,
        directory: &Arc<Directory>,
        extent: Extent,
    ) -> bool {
        let (mut due, mut gone) = (Vec::new(), Vec::new());
        for (name, file) in files.iter() {
            match self.needs_reading(directory, name, file, extent) {
                Due::No => {}
                Due::Gone => gone.push(name.clone()),
                Due::Yes(stamp) => due.push((file.since, name.clone(), stamp)),
            }
        }
        let mut is_changed = false;
        for name in gone {
            if let Some(file) = files.remove(&name) {
                is_changed |= file.state.exported().is_some();
                self.release(&file);
            }
        }
        due.sort_unstable_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        for (_, name, stamp) in due {
            if self.stop.load(Relaxed) {
                break;
            }
            let Some(mut file) = files.remove(&name) else { continue };
            let before = file.state.exported().cloned();
            let stays = self.read(directory, &name, &mut file, stamp);
            let after = file.state.exported().filter(|_| stays);
            is_changed |= before.as_ref().map(Arc::as_ptr) != after.map(Arc::as_ptr);
            if stays {
                files.insert(name, file);
            }
        }
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_BUFFER);
        is_changed
    }

    fn needs_reading(&mut self, directory: &Directory, name: &OsStr, file: &Known, extent: Extent) -> Due {
        if extent == Extent::Due {
            match &file.state {
                _ if file.is_fresh => {}
                State::New => {}
                State::Exported(source) if source.is_stale.load(Relaxed) => {}
                State::Exported(_) | State::Bad => return Due::No,
                State::Waiting { .. } => {
                    return match directory.read(name).and_then(|file| peek(&file)) {
                        Ok(true) => Due::Yes(directory.stat(name)),
                        Err(e) if e.kind() == io::ErrorKind::NotFound => Due::Gone,
                        Ok(false) | Err(_) => Due::No,
                    };
                }
                State::Refused(cost) if self.quotas.check(file.uid, *cost).is_ok() => {}
                State::Refused(..) => return Due::No,
            }
            return Due::Yes(directory.stat(name));
        }
        let stamp = match directory.stat(name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Due::Gone,
            Err(e) if is_temporary(&e) && !matches!(file.state, State::New | State::Waiting { .. }) => return Due::No,
            stamp => stamp,
        };
        let is_same_owner = stamp.as_ref().is_ok_and(|stamp| Uid((self.payer)(stamp.owner)) == file.uid);
        let is_unchanged = match &file.state {
            _ if extent == Extent::Again || !is_same_owner || file.is_fresh => false,
            State::New => false,
            State::Exported(source) => {
                stamp.as_ref().is_ok_and(|stamp| stamp.identity == source.identity)
                    && source.is_current(self.scan % STARTS == 0)
            }
            State::Waiting { .. } => !directory.read(name).and_then(|file| peek(&file)).unwrap_or(true),
            State::Bad => file.stamp.is_some() && stamp.as_ref().ok() == file.stamp.as_ref(),
            State::Refused(cost) => {
                file.stamp.is_some()
                    && stamp.as_ref().ok() == file.stamp.as_ref()
                    && self.quotas.check(file.uid, *cost).is_err()
            }
        };
        if is_unchanged { Due::No } else { Due::Yes(stamp) }
    }

    /// Reads a file. Returns whether it stays known.
    fn read(&mut self, directory: &Arc<Directory>, name: &OsStr, file: &mut Known, stamp: io::Result<Stamp>) -> bool {
        if let Ok(uid) = stamp.as_ref().map(|stamp| Uid((self.payer)(stamp.owner))) {
            if uid != file.uid && !self.give_to(uid, file) {
                return false;
            }
        }
        let (most, account) = (self.limits.file_bytes, (file.uid, file.since));
        let loaded = load(&self.prefix, directory, name, account, most, &mut self.buffer);
        let (old, uid) = (file.state.cost(), file.uid);
        let is_fresh = stamp.as_ref().is_ok_and(is_recent);
        file.is_fresh = false;
        let state = match loaded {
            Ok((source, handle)) => match self.quotas.exchange(uid, old, source.cost) {
                Ok(()) => {
                    self.close(&file.state);
                    source.report(&self.prefix, file.state.exported().map(|before| &**before));
                    if self.quotas.open.check(&uid, 1).is_ok() && self.quotas.open.try_add(&uid, 1).is_ok() {
                        source.keep_open(handle);
                    }
                    file.is_fresh = is_fresh && source.file.problems().count() > 0;
                    (file.state, file.stamp) = (State::Exported(Arc::new(source)), None);
                    return true;
                }
                Err(limit) => {
                    if !matches!(file.state, State::Refused(..)) {
                        self.quotas.refuse(uid, limit, 1);
                    }
                    State::Refused(source.cost)
                }
            },
            Err(ReadError::Io(e)) if is_of_system(&e) && file.state.exported().is_some() => {
                // The last contents stay.
                return true;
            }
            Err(ReadError::Io(e)) if e.kind() == io::ErrorKind::NotFound => {
                self.release(file);
                return false;
            }
            Err(e) => self.skip(name, file, &stamp, &e),
        };
        self.quotas.release(uid, old);
        self.close(&file.state);
        file.state = state;
        let is_waiting = matches!(file.state, State::Waiting { .. });
        file.is_fresh = is_fresh && matches!(file.state, State::Bad);
        file.stamp = stamp.ok().filter(|stamp| is_waiting || !is_recent(stamp));
        true
    }

    /// Charges another user for a file from now on. Returns false if that user has no room for it.
    fn give_to(&mut self, uid: Uid, file: &mut Known) -> bool {
        self.release(file);
        if self.quotas.files.try_add(&uid, 1).is_err() {
            return false;
        }
        *file = Known { uid, since: self.scan, stamp: None, is_fresh: false, state: State::New };
        true
    }

    /// Returns the state of a file that cannot be shown, and logs the reason once.
    fn skip(&mut self, name: &OsStr, file: &Known, stamp: &io::Result<Stamp>, e: &ReadError) -> State {
        let state = match e {
            ReadError::InFlux { .. } => State::Waiting { is_in_flux: true },
            e if e.is_temporary() => State::Waiting { is_in_flux: false },
            // The file's attributes show when it changes.
            _ => State::Bad,
        };
        let is_known = mem::discriminant(&state) == mem::discriminant(&file.state)
            && file.stamp.as_ref().is_none_or(|before| stamp.as_ref().ok() == Some(before));
        if !is_known {
            self.bad += u64::from(matches!(state, State::Bad));
            if self.only_files {
                let (path, uid) = (Path::new(name).display(), file.uid);
                tracing::warn!(source = %uid, "{}: {path}: {e}: file of {uid} is ignored", self.prefix);
            } else {
                report(&self.prefix, name, file.uid, e);
            }
            if let ReadError::TooLong { .. } = e {
                self.quotas.refuse(file.uid, Limit::Memory, 1);
            }
        }
        state
    }
}

/// Whether a file is to be read.
enum Due {
    No,
    Gone,
    /// The file's attributes, or why they are not known.
    Yes(io::Result<Stamp>),
}

/// Returns whether a file was changed so recently that another change could have the same time.
fn is_recent(stamp: &Stamp) -> bool {
    let (seconds, nanoseconds) = stamp.changed;
    let changed = Duration::new(seconds.try_into().unwrap_or_default(), nanoseconds.try_into().unwrap_or_default());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // A new change would have the present time, which differs from a time in the future.
    now.checked_sub(changed).is_some_and(|age| age < COARSE)
}

/// Reads a file. If the file is no longer valid once it is open, it may have been replaced. Then reads the new file.
fn load(
    prefix: &str,
    directory: &Arc<Directory>,
    name: &OsStr,
    account: (Uid, u64),
    most: u64,
    buffer: &mut Vec<u8>,
) -> Result<(Source, fs::File), ReadError> {
    let mut failed = None;
    for _ in 0..REPLACED {
        match Source::load(prefix, directory, name, account, most, buffer) {
            Err(e @ ReadError::InFlux { .. }) => {
                let now = directory.stat(name).ok().map(|stamp| stamp.identity);
                if now == failed {
                    return Err(e);
                }
                failed = now;
            }
            loaded => return loaded,
        }
    }
    Source::load(prefix, directory, name, account, most, buffer)
}

/// The start times of processes are checked once in this many scans.
const STARTS: u64 = 16;

/// Largest buffer for files' contents that stays allocated between scans, in bytes.
const KEPT_BUFFER: usize = 1 << 20;

/// Number of attempts to read a file that is being replaced.
const REPLACED: usize = 4;

/// Logs that a file is skipped: as an error if it is an mmv(5) file, and at debug level otherwise.
fn report(prefix: &str, name: &OsStr, uid: Uid, e: &ReadError) {
    let name = Path::new(name).display();
    match e {
        ReadError::TooShort { .. } | ReadError::Magic(_) | ReadError::InFlux { .. } => {
            tracing::debug!(source = %uid, "{prefix}: {name}: {e}");
        }
        _ => tracing::error!(source = %uid, "{prefix}: {name}: {e}"),
    }
}

/// Attributes of a directory at a check.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    state: Attributes,
    /// Whether the directory was changed so recently that another change could have the same time.
    is_racy: bool,
    /// Time at which the directory was first seen with a change time in the future.
    since: Option<Instant>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum Attributes {
    #[default]
    Unknown,
    /// The directory does not exist.
    Absent,
    /// Device, inode, modification time and change time.
    There(u64, u64, (i64, i64), (i64, i64)),
}

/// Time that is longer than the resolution of file systems' time stamps.
pub(super) const COARSE: Duration = Duration::from_millis(50);

impl Look {
    /// Checks a directory, given its attributes at the last check.
    ///
    /// # Errors
    /// The error of stat(2), which does not mean that the directory's files have changed.
    pub(super) fn at(path: &Path, before: &Look) -> io::Result<Look> {
        let m = match fs::metadata(path) {
            Ok(m) => m,
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(Look { state: Attributes::Absent, ..Look::default() });
            }
            Err(e) => return Err(e),
        };
        let state = Attributes::There(m.dev(), m.ino(), (m.mtime(), m.mtime_nsec()), (m.ctime(), m.ctime_nsec()));
        let age = m.modified().ok().and_then(|changed| SystemTime::now().duration_since(changed).ok());
        Ok(match age {
            Some(age) => Look { state, is_racy: age < COARSE, since: None },
            // The clock was set back, or the time was set explicitly: a monotonic clock measures how long that time has
            // been seen.
            None => {
                let since = before.since.filter(|_| before.state == state).unwrap_or_else(Instant::now);
                Look { state, is_racy: since.elapsed() < COARSE, since: Some(since) }
            }
        })
    }

    pub(super) fn is_absent(&self) -> bool {
        self.state == Attributes::Absent
    }

    /// Returns whether the directory may have changed between the two checks.
    pub(super) fn may_differ(&self, now: &Look) -> bool {
        self.is_racy || self.state != now.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_the_future_comes_to_rest() {
        let dir = tempfile::tempdir().unwrap();
        let tomorrow = SystemTime::now() + Duration::from_secs(86_400);
        fs::File::open(dir.path()).unwrap().set_modified(tomorrow).unwrap();
        let first = Look::at(dir.path(), &Look::default()).unwrap();
        assert!(first.is_racy, "another change may come with the same time");
        let later = Look { since: Instant::now().checked_sub(2 * COARSE), ..first };
        let again = Look::at(dir.path(), &later).unwrap();
        assert!(!again.may_differ(&again));
        fs::write(dir.path().join("a"), "").unwrap();
        let changed = Look::at(dir.path(), &again).unwrap();
        assert!(again.may_differ(&changed));
    }

    #[test]
    fn only_a_directory_that_is_not_there_has_no_files() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Look::at(&dir.path().join("none"), &Look::default()).unwrap().is_absent());
        let long = "x".repeat(300);
        assert!(Look::at(&dir.path().join(long), &Look::default()).is_err());
    }
}
