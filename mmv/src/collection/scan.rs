//! Which files there are.

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

/// A file that is skipped.
#[derive(Debug)]
pub(super) struct Skipped {
    name: OsString,
    uid: u32,
    /// What it was when it was read; nothing when it is to be read again in any case.
    stamp: Option<Stamp>,
    why: Why,
    loaded: u64,
}

/// Why a file is skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    /// It is being written.
    InFlux,
    /// It could not be read this time.
    Temporary,
    /// Nothing of it can be shown.
    Bad,
    /// It costs this, for which there was no room.
    Limit(Limit, Cost),
}

impl Skipped {
    pub(super) fn is_in_flux(&self) -> bool {
        self.why == Why::InFlux
    }
}

/// A file that is to be read.
struct Wanted {
    name: OsString,
    stamp: io::Result<Stamp>,
    uid: u32,
    before: Before,
}

/// The files of a directory, if there is one.
type Files = (Vec<Found>, Option<Arc<Directory>>);

/// What is known of the name of a file.
enum Before {
    Nothing,
    Source(Box<Source>),
    Skipped(Skipped),
}

impl Wanted {
    /// The request in which it was read last.
    fn loaded(&self) -> u64 {
        match &self.before {
            Before::Nothing => 0,
            Before::Source(source) => source.loaded,
            Before::Skipped(skipped) => skipped.loaded,
        }
    }
}

/// Skipped files that one request looks at.
const POLLED: usize = 64;

/// Nanoseconds that it takes about to read a file, a byte of it, and a value; and to put a value into tables.
const FILE_WORK: u64 = 12_000;
const VALUE_WORK: u64 = 50;
const BYTES_A_NANOSECOND: u64 = 1;
const RECORD_WORK: u64 = 100;

impl Collection {
    /// Whether a file that is skipped may be one to show by now. Each request looks at some.
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

    /// Reads the files that are new, keeps those that are the same unless `all` are to be read, and
    /// says whether anything has changed. What cannot be read now stays as it was; a directory with more names than one
    /// request looks at is read by several.
    pub(super) fn scan(&mut self, look: io::Result<Look>, all: bool) -> bool {
        let outcome = look.and_then(|look| self.list(look, all));
        match outcome {
            Ok(None) => false,
            Ok(Some((found, directory))) => self.take_in(found, directory, all),
            Err(e) => {
                if !std::mem::replace(&mut self.is_unreadable, true) {
                    let (prefix, path) = (&self.prefix, self.directory.display());
                    tracing::error!("{prefix}: {path}: {e}: its files stay as they are for now");
                }
                (self.seen, self.listing) = (Look::default(), None);
                false
            }
        }
    }

    /// The names of the directory, when the last one has been read.
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
        // The first look, and one that was asked for, are to see more.
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
        // What is gone. A user without time has it stay a little.
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
        // There may be room for others.
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
        // Those that have waited longest come first.
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
            source.log(&self.prefix, format_args!("it would join too many files of other users"));
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
                    // The system has no descriptor, say: that says nothing about the file.
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

    /// Reads a file of a user and adds it to the account.
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
            // Its times tell when that changes.
            Err(e) => Err((Why::Bad, e)),
        }
    }

    /// Keeps in mind that a file cannot be shown.
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
        // The header of a file that is being written is looked at by each request, whatever its times are.
        let stamp = stamp.filter(|stamp| matches!(why, Why::InFlux | Why::Temporary) || !is_recent(stamp));
        self.skipped.push(Skipped { name, uid, stamp, why, loaded: self.request });
    }

    /// Has as many files stay open as are to be, of each user its share.
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
    /// Whether it is the file with this stamp, or that cannot be said.
    fn is_still(&self, stamp: &io::Result<Stamp>) -> bool {
        match stamp {
            Ok(stamp) => self.is_valid && stamp.identity == self.identity,
            Err(e) => self.is_valid && reader::is_temporary(e),
        }
    }
}

impl Skipped {
    /// Whether it is the file with this stamp, or that cannot be said.
    fn is_still(&self, stamp: &io::Result<Stamp>) -> bool {
        match stamp {
            Ok(stamp) => self.stamp == Some(*stamp),
            Err(e) => reader::is_temporary(e),
        }
    }

    /// Whether it may be another file by now, or no longer in the way of its writer.
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

/// Whether a file was changed so shortly before that another change could show the same times.
fn is_recent(stamp: &Stamp) -> bool {
    let (seconds, nanoseconds) = stamp.changed;
    let changed = Duration::new(seconds.try_into().unwrap_or_default(), nanoseconds.try_into().unwrap_or_default());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // A change that is yet to come is none that can come again.
    now.checked_sub(changed).is_some_and(|age| age < COARSE)
}

/// Reads a file. When it is no longer valid once it is open, another one may have taken its place
/// meanwhile: then that one.
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

/// How often in a row a file may be replaced while it is read.
const REPLACED: usize = 4;

/// Logs that a file is skipped: loudly if it is one of ours.
fn report(prefix: &str, name: &OsStr, uid: u32, e: &ReadError) {
    let (name, source) = (name.display(), format_args!("uid {uid}"));
    match e {
        // What limits leave out is told by the count of it.
        ReadError::TooShort { .. } | ReadError::Magic(_) | ReadError::InFlux { .. } | ReadError::LeftOut { .. } => {
            tracing::debug!(source = %source, "{prefix}: {name}: {e}");
        }
        _ => tracing::error!(source = %source, "{prefix}: {name}: {e}"),
    }
}
