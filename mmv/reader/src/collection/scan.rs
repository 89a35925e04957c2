//! Detects and reads new and changed files.

use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hashbrown::HashMap;

use super::Collection;
use super::limits::{Cost, Limit};
use super::listing::{COARSE, Found, Listing, Look};
use super::source::Source;
use super::users::{assign_clusters, intruders};
use crate::reader::{self, Directory, ReadError, Stamp};

/// A skipped file.
#[derive(Debug)]
pub(super) struct Skipped {
    name: OsString,
    uid: u32,
    /// Attributes of the file when it was read, or `None` to read it again in any case.
    stamp: Option<Stamp>,
    why: Why,
    loaded: u64,
}

/// Reason for skipping a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    /// The file is being written.
    InFlux,
    /// The file could not be read this time.
    Temporary,
    /// Nothing of the file can be shown.
    Bad,
    /// The file exceeds a limit; with its cost.
    Limit(Limit, Cost),
}

impl Skipped {
    pub(super) fn is_in_flux(&self) -> bool {
        self.why == Why::InFlux
    }
}

/// A file to be read.
struct Wanted {
    name: OsString,
    stamp: io::Result<Stamp>,
    uid: u32,
    before: Before,
}

/// The files of a directory, and the directory itself, if it exists.
type Files = (Vec<Found>, Option<Arc<Directory>>);

/// The previous state of a file.
enum Before {
    Nothing,
    Source(Box<Source>),
    Skipped(Skipped),
}

impl Wanted {
    /// Returns the number of the request that read the file last.
    fn loaded(&self) -> u64 {
        match &self.before {
            Before::Nothing => 0,
            Before::Source(source) => source.loaded,
            Before::Skipped(skipped) => skipped.loaded,
        }
    }
}

/// Skipped files that one request checks.
const POLLED: usize = 64;

/// Approximate nanoseconds of work per file, as charged to users. The constants below estimate the work per value, per
/// byte, and per record of the tables.
const FILE_WORK: u64 = 12_000;
const VALUE_WORK: u64 = 50;
const BYTES_A_NANOSECOND: u64 = 1;
const RECORD_WORK: u64 = 100;

impl Collection {
    /// Returns whether a skipped file may be shown now. Each request checks some of them.
    pub(super) fn poll(&mut self) -> bool {
        let Some(directory) = self.opened.clone() else { return false };
        let count = self.skipped.len();
        let mut found = false;
        for _ in 0..count.min(POLLED) {
            self.polled = (self.polled + 1) % count;
            let Some(file) = self.skipped.get_mut(self.polled) else { break };
            if file.may_differ(&directory) {
                (file.stamp, found) = (None, true);
            }
        }
        found
    }

    /// Reads new and changed files, or `all` files, and returns whether anything has changed. Files that cannot be read
    /// now keep their last state. A directory with more names than one request reads takes several requests.
    pub(super) fn scan(&mut self, look: io::Result<Look>, all: bool) -> bool {
        let outcome = look.and_then(|look| self.list(look, all));
        match outcome {
            Ok(None) => false,
            Ok(Some((found, directory))) => self.take_in(found, directory, all),
            Err(e) => {
                if !std::mem::replace(&mut self.is_unreadable, true) {
                    let (prefix, path) = (&self.prefix, self.directory.display());
                    tracing::error!("{prefix}: cannot read {path}: {e}; known files stay exported");
                }
                (self.seen, self.listing) = (Look::default(), None);
                false
            }
        }
    }

    /// Returns the names of the directory, once the last one has been read.
    fn list(&mut self, look: Look, all: bool) -> io::Result<Option<Files>> {
        if look.is_absent() {
            (self.seen, self.listing, self.opened, self.crowd) = (look, None, None, HashMap::new());
            return Ok(Some((Vec::new(), None)));
        }
        let mut listing = match self.listing.take() {
            Some(listing) => listing,
            None => {
                let sources = self.groups.all().iter().flat_map(|group| &group.sources).map(|source| &source.name);
                let known = sources.chain(self.skipped.iter().map(|skipped| &skipped.name)).cloned();
                Listing::begin(&self.directory, look, known)?
            }
        };
        // The first scan, and a scan that was requested, read more names.
        let names = self.accounts.limits.names.saturating_mul(if all || !self.has_scanned { 8 } else { 1 });
        if !listing.go_on(names, &mut self.accounts)? {
            self.listing = Some(listing);
            return Ok(None);
        }
        let directory = Directory::open(&self.directory)?;
        let known = self.opened.take().filter(|known| known.is_same(&directory));
        let directory = known.unwrap_or_else(|| Arc::new(directory));
        self.seen = listing.look.clone();
        let (found, crowd) = listing.finish();
        self.accounts.count_crowd(&std::mem::replace(&mut self.crowd, crowd.clone()), &crowd);
        Ok(Some((found, Some(directory))))
    }

    fn take_in(&mut self, found: Vec<Found>, directory: Option<Arc<Directory>>, all: bool) -> bool {
        (self.is_unreadable, self.is_delayed) = (false, false);
        if all || !self.has_scanned {
            self.accounts.forgive();
        }
        let is_free = all || !self.has_scanned;
        self.has_scanned |= directory.is_some();
        self.reload = if all { 0 } else { self.reload };
        let mut known: HashMap<OsString, Source> =
            self.groups.take_sources().into_iter().map(|s| (s.name.clone(), s)).collect();
        let skipped = std::mem::take(&mut self.skipped);
        let mut skipped: HashMap<OsString, Skipped> = skipped.into_iter().map(|s| (s.name.clone(), s)).collect();
        self.accounts.clear();
        let (mut kept, mut wanted, mut refused) = (Vec::with_capacity(found.len()), Vec::new(), Vec::new());
        for Found { name, new } in found {
            let Some(directory) = &directory else { continue };
            if let Some((uid, stamp)) = new {
                let stamp = stamp.map_or_else(|| directory.stat(&name), Ok);
                wanted.push(Wanted { stamp, name, uid, before: Before::Nothing });
                continue;
            }
            let stamp = directory.stat(&name);
            match (known.remove(&name), skipped.remove(&name)) {
                (Some(mut source), _) if !all && source.is_still(&stamp) => {
                    source.set_directory(directory);
                    kept.push(source);
                }
                (_, Some(file)) if !all && file.is_still(&stamp) => match file.why {
                    Why::Limit(..) => refused.push((file, stamp)),
                    _ => self.skipped.push(file),
                },
                (source, file) => {
                    let uid = stamp.as_ref().ok().map(|stamp| self.accounts.payer(stamp.owner));
                    let uid = uid.or_else(|| source.as_ref().map(|s| s.uid)).or_else(|| file.as_ref().map(|s| s.uid));
                    let before = match (source, file) {
                        (Some(source), _) => Before::Source(Box::new(source)),
                        (None, Some(file)) => Before::Skipped(file),
                        (None, None) => Before::Nothing,
                    };
                    wanted.push(Wanted { name, stamp, uid: uid.unwrap_or_default(), before });
                }
            }
        }
        kept.iter().for_each(|source| self.accounts.add(source.uid, 1, source.cost));
        self.skipped.iter().for_each(|file| self.accounts.add(file.uid, 1, Cost::default()));
        let mut changed = all;
        // Files that are gone. Those of a user without time stay for now.
        for (_, source) in known {
            if self.accounts.has_time(source.uid) || directory.is_none() {
                self.accounts.work(source.uid, source.company * RECORD_WORK);
                changed = true;
            } else {
                self.is_delayed = true;
                self.accounts.add(source.uid, 1, source.cost);
                kept.push(source);
            }
        }
        // There may be room for other files.
        self.is_delayed |= !self.crowd.is_empty() && (changed || !skipped.is_empty());
        for (file, stamp) in refused {
            match file.why {
                Why::Limit(_, cost) if self.accounts.has_room_for(file.uid, cost) => {
                    let (name, uid) = (file.name.clone(), file.uid);
                    wanted.push(Wanted { name, stamp, uid, before: Before::Skipped(file) });
                }
                _ => {
                    self.accounts.add(file.uid, 1, Cost::default());
                    self.skipped.push(file);
                }
            }
        }
        // Files that have waited longest come first.
        wanted.sort_by_key(Wanted::loaded);
        if let Some(directory) = directory {
            self.read_wanted(wanted, &directory, is_free, &mut kept, &mut changed);
            self.opened = Some(directory);
        }
        kept.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.open_some(&mut kept);
        assign_clusters(&mut kept);
        for index in intruders(&kept).into_iter().rev() {
            let source = kept.remove(index);
            source.log(&self.prefix, format_args!("is left out: shares names or clusters with too many users"));
            let Source { name, uid, seen, .. } = source;
            self.skipped.push(Skipped { name, uid, stamp: Some(seen), why: Why::Bad, loaded: self.request });
        }
        self.skipped.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.groups.put_sources(kept);
        let (groups, accounts) = (&mut self.groups, &mut self.accounts);
        groups.settle(|uid, records| accounts.work(uid, records * RECORD_WORK));
        if is_free {
            self.accounts.forgive();
        }
        changed
    }

    fn read_wanted(
        &mut self,
        wanted: Vec<Wanted>,
        directory: &Arc<Directory>,
        is_free: bool,
        kept: &mut Vec<Source>,
        changed: &mut bool,
    ) {
        let mut buffer = Vec::new();
        // Which user has how many files is known only at the end, when `open_some` closes files beyond the shares. Until
        // then twice as many may be open: the limit for all, and an equal share for each user.
        let mut open: HashMap<u32, usize> = HashMap::new();
        kept.iter().filter(|source| source.is_open()).for_each(|source| *open.entry(source.uid).or_default() += 1);
        let mut open_in_all: usize = open.values().sum();
        wanted.iter().for_each(|file| _ = open.entry(file.uid).or_default());
        let share = self.open / open.len().max(1);
        for Wanted { name, stamp, uid, before } in wanted {
            if matches!(&stamp, Err(e) if e.kind() == io::ErrorKind::NotFound) {
                *changed |= matches!(before, Before::Source(_));
                continue;
            }
            if !is_free && !self.accounts.has_time(uid) {
                self.accounts.leave_out(uid, Limit::Work, 1);
                self.is_delayed = true;
                match before {
                    Before::Source(source) => {
                        self.accounts.add(uid, 1, source.cost);
                        kept.push(*source);
                    }
                    Before::Skipped(file) => {
                        self.accounts.add(uid, 1, Cost::default());
                        self.skipped.push(file);
                    }
                    Before::Nothing => {}
                }
                continue;
            }
            if let Before::Source(source) = &before {
                self.accounts.work(source.uid, source.company * RECORD_WORK);
            }
            match self.read(directory, &name, uid, &mut buffer) {
                Ok(mut source) => {
                    if !matches!(&before, Before::Source(before) if source.is_known_from(before)) {
                        source.report(&self.prefix);
                    }
                    let own = open.entry(uid).or_default();
                    source.keep_open(open_in_all < self.open || *own < share);
                    *own += usize::from(source.is_open());
                    open_in_all += usize::from(source.is_open());
                    source.loaded = self.request;
                    source.since = match &before {
                        Before::Source(before) if before.uid == uid => before.since,
                        _ => self.request,
                    };
                    kept.push(source);
                    *changed = true;
                }
                Err((_, ReadError::Io(e))) if e.kind() == io::ErrorKind::NotFound => {
                    *changed |= matches!(before, Before::Source(_));
                }
                Err((why, e)) => match before {
                    // For instance, the system has no descriptor left, which says nothing about the file.
                    Before::Source(source) if matches!(&e, ReadError::Io(e) if reader::is_of_system(e)) => {
                        self.is_delayed = true;
                        self.accounts.add(source.uid, 1, source.cost);
                        kept.push(*source);
                    }
                    before => self.skip(name, uid, (why, e), stamp.ok(), before, changed),
                },
            }
        }
    }

    /// Reads a file of a user, and charges the user's account.
    fn read(
        &mut self,
        directory: &Arc<Directory>,
        name: &OsStr,
        uid: u32,
        buffer: &mut Vec<u8>,
    ) -> Result<Source, (Why, ReadError)> {
        let loaded = load(directory, name, uid, self.accounts.limits.file_bytes, buffer);
        let (bytes, records) = match &loaded {
            Ok(source) => (source.file.data_len(), source.cost.values),
            Err(_) => (0, 0),
        };
        self.accounts.work(uid, FILE_WORK + bytes / BYTES_A_NANOSECOND + records * VALUE_WORK);
        match loaded {
            Ok(source) => match self.accounts.admit(uid, 1, source.cost) {
                Ok(()) => Ok(source),
                Err(limit) => Err((Why::Limit(limit, source.cost), ReadError::LeftOut { what: limit.to_string() })),
            },
            Err(e @ ReadError::InFlux { .. }) => Err((Why::InFlux, e)),
            Err(e) if e.is_temporary() => Err((Why::Temporary, e)),
            // Its attributes tell when the file changes.
            Err(e) => Err((Why::Bad, e)),
        }
    }

    /// Records that a file is skipped.
    fn skip(
        &mut self,
        name: OsString,
        uid: u32,
        (why, e): (Why, ReadError),
        stamp: Option<Stamp>,
        before: Before,
        changed: &mut bool,
    ) {
        let known = match &before {
            Before::Skipped(before) => before.why == why && before.stamp.is_none_or(|old| Some(old) == stamp),
            Before::Source(_) | Before::Nothing => false,
        };
        *changed |= matches!(before, Before::Source(_));
        if !known {
            report(&self.prefix, &name, uid, &e);
            match (why, &e) {
                (Why::Limit(limit, _), _) => self.accounts.leave_out(uid, limit, 1),
                (_, ReadError::TooLong { .. }) => self.accounts.leave_out(uid, Limit::Memory, 1),
                _ => {}
            }
        }
        self.accounts.add(uid, 1, Cost::default());
        // Each request checks the header of a file that is being written, regardless of its attributes.
        let stamp = stamp.filter(|stamp| matches!(why, Why::InFlux | Why::Temporary) || !is_recent(stamp));
        self.skipped.push(Skipped { name, uid, stamp, why, loaded: self.request });
    }

    /// Keeps as many files open as allowed, with a share for each user.
    fn open_some(&self, sources: &mut [Source]) {
        let mut handles = self.accounts.handles(self.open as u64);
        for source in sources {
            let left = handles.get_mut(&source.uid);
            source.keep_open(left.as_ref().is_some_and(|left| **left > 0));
            if let Some(left) = left {
                *left = left.saturating_sub(1);
            }
        }
    }
}

impl Source {
    /// Returns whether this is still the file with these attributes, or that is unknown.
    fn is_still(&self, stamp: &io::Result<Stamp>) -> bool {
        match stamp {
            Ok(stamp) => self.is_valid && stamp.identity == self.identity,
            Err(e) => self.is_valid && reader::is_temporary(e),
        }
    }
}

impl Skipped {
    /// Returns whether this is still the file with these attributes, or that is unknown.
    fn is_still(&self, stamp: &io::Result<Stamp>) -> bool {
        match stamp {
            Ok(stamp) => self.stamp == Some(*stamp),
            Err(e) => reader::is_temporary(e),
        }
    }

    /// Returns whether another file may have its name now, or its writer may have finished.
    fn may_differ(&mut self, directory: &Directory) -> bool {
        match self.why {
            Why::InFlux | Why::Temporary => match directory.read(&self.name).and_then(|file| reader::peek(&file)) {
                Ok(is_ready) => is_ready,
                Err(e) => e.kind() == io::ErrorKind::NotFound,
            },
            Why::Bad | Why::Limit(..) => match directory.stat(&self.name) {
                Ok(stamp) if self.stamp.is_none() => !is_recent(&stamp),
                Ok(stamp) => self.stamp != Some(stamp),
                Err(e) => !reader::is_temporary(&e),
            },
        }
    }
}

/// Returns whether a file was changed so recently that another change could have the same time.
fn is_recent(stamp: &Stamp) -> bool {
    let (seconds, nanoseconds) = stamp.changed;
    let changed = Duration::new(seconds.try_into().unwrap_or_default(), nanoseconds.try_into().unwrap_or_default());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Another change would get the present time, which differs from one in the future.
    now.checked_sub(changed).is_some_and(|age| age < COARSE)
}

/// Reads a file. If it is no longer valid once it is open, another file may have replaced it, and that one is read.
fn load(
    directory: &Arc<Directory>,
    name: &OsStr,
    uid: u32,
    most: u64,
    buffer: &mut Vec<u8>,
) -> Result<Source, ReadError> {
    let mut failed = None;
    for _ in 0..REPLACED {
        match Source::load(directory, name, uid, most, buffer) {
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
    Source::load(directory, name, uid, most, buffer)
}

/// Attempts to read a file that is being replaced.
const REPLACED: usize = 4;

/// Logs that a file is skipped: as an error if it is an mmv(5) file, and at debug level otherwise.
fn report(prefix: &str, name: &OsStr, uid: u32, e: &ReadError) {
    let (name, source) = (name.display(), format_args!("uid {uid}"));
    match e {
        // Files that limits leave out are counted and logged elsewhere.
        ReadError::TooShort { .. } | ReadError::Magic(_) | ReadError::InFlux { .. } | ReadError::LeftOut { .. } => {
            tracing::debug!(source = %source, "{prefix}: {name}: {e}");
        }
        _ => tracing::error!(source = %source, "{prefix}: {name}: {e}"),
    }
}
