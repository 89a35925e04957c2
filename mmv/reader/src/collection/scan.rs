//! Detects and reads new and changed files.

use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hashbrown::HashMap;

use super::Collection;
use super::clusters::assign_clusters;
use super::draft::Draft;
use super::limits::{Cost, Limit, Tariff, thread_time};
use super::listing::{COARSE, Found, Listing, Look};
use super::source::{Source, SourceFile};
use super::turn::Turn;
use crate::reader::{self, Directory, Stamp};

/// A file that is skipped, and the reason.
#[derive(Debug)]
pub(super) struct Skipped {
    pub name: OsString,
    pub uid: u32,
    /// Attributes of the file when it was read, or `None` to always read it again.
    pub stamp: Option<Stamp>,
    pub why: Why,
    /// Number of the request that read the file.
    pub loaded: u64,
}

/// Reason for skipping a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
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

    /// Returns whether a limit has left out the file.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.why, Why::Limit(..))
    }
}

/// A file to be read.
pub(super) struct Wanted {
    pub name: OsString,
    pub stamp: io::Result<Stamp>,
    pub uid: u32,
    pub before: Before,
}

/// Names in a directory, numbers of files beyond each user's limit, and the directory itself if it exists.
type Files = ((Vec<Found>, HashMap<u32, u64>), Option<Arc<Directory>>);

/// Files, sorted by the action that they need.
#[derive(Default)]
struct Sorted {
    /// Exported files that have not been found yet.
    known: HashMap<OsString, Source>,
    /// Skipped files that have not been found yet.
    skipped: HashMap<OsString, Skipped>,
    /// Unchanged exported files.
    kept: Vec<Source>,
    wanted: Vec<Wanted>,
    /// Unchanged files that a limit has left out.
    refused: Vec<(Skipped, io::Result<Stamp>)>,
}

/// The previous state of a file.
pub(super) enum Before {
    Nothing,
    Source(Source),
    Skipped(Skipped),
}

impl Before {
    /// Returns what the state is charged with: the user, the number of files, and their cost.
    pub(super) fn charged(&self) -> Option<(u32, u64, Cost)> {
        match self {
            Before::Nothing => None,
            Before::Source(source) => Some((source.uid, 1, source.cost)),
            Before::Skipped(skipped) => Some((skipped.uid, 1, Cost::default())),
        }
    }
}

impl Wanted {
    /// Returns an exported file that is no longer in the directory.
    fn gone(source: Source) -> Wanted {
        let (name, uid, stamp) = (source.name.clone(), source.uid, Err(io::ErrorKind::NotFound.into()));
        Wanted { name, stamp, uid, before: Before::Source(source) }
    }

    /// Returns whether the file no longer exists.
    pub(super) fn is_gone(&self) -> bool {
        matches!(&self.stamp, Err(e) if e.kind() == io::ErrorKind::NotFound)
    }

    /// Returns the number of the request that read the file last.
    pub(super) fn loaded(&self) -> u64 {
        match &self.before {
            Before::Nothing => 0,
            Before::Source(source) => source.loaded,
            Before::Skipped(skipped) => skipped.loaded,
        }
    }
}

/// Factor for the number of names in the first request, and in a request that reads all files.
const FIRST: u64 = 64;

/// Fraction of a request's time that reading files gets at least.
const LEAST: u64 = 4;

/// Returns the time for reading files that is left of a request's time for changes.
fn left(work: u64, spent: u64) -> u64 {
    work.saturating_sub(spent).max(work / LEAST)
}

/// Number of skipped files that one request checks.
const POLLED: usize = 64;

impl Collection {
    /// Returns whether a skipped file may be shown now. Each request checks some of them, with equal numbers for all
    /// users. So a file that has been completed does not wait for invalid files of other users.
    pub(super) fn poll(&mut self) -> bool {
        let Some(directory) = self.opened.clone() else { return false };
        self.polled = self.polled.wrapping_add(1);
        let (mut users, mut start) = (Vec::new(), 0);
        while let Some(Skipped { uid, .. }) = self.skipped.get(start) {
            let end = self.skipped.partition_point(|file| file.uid <= *uid);
            users.push(start..end);
            start = end;
        }
        let parts = users.len().div_ceil(POLLED).max(1);
        let users = users.chunks(POLLED).nth(self.polled % parts).unwrap_or_default();
        let share = POLLED / users.len().max(1);
        let first = (self.polled / parts).wrapping_mul(share);
        let mut found = false;
        for files in users {
            for number in (0..share.min(files.len())).map(|n| first.wrapping_add(n)) {
                let Some(file) = self.skipped.get_mut(files.start + number % files.len()) else { continue };
                if file.may_differ(&directory) {
                    (file.stamp, found) = (None, true);
                }
            }
        }
        found
    }

    /// Reads new and changed files, or `all` files, and returns whether anything has changed. Files that cannot be read
    /// now keep their last state. One request reads a limited number of names, so a large directory takes several
    /// requests.
    pub(super) fn scan(&mut self, look: io::Result<Look>, all: bool) -> bool {
        let start = thread_time();
        self.go_on_building(start);
        let outcome = look.and_then(|look| self.list(look, all));
        match outcome {
            Ok(None) => false,
            Ok(Some((found, directory))) => {
                let (spent, work) = (thread_time().saturating_sub(start), self.work());
                self.turn = Turn::begin(self.tariff(all), left(work, spent), self.large, self.groups.all());
                self.take_in(found, directory, all)
            }
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

    /// Continues building tables that are built in parts. They leave time for reading files. `start` is the present
    /// time.
    fn go_on_building(&mut self, start: u64) {
        let work = self.work();
        let Some(draft) = &mut self.draft else { return };
        let until = start.saturating_add(work - work / LEAST);
        let is_valid = draft.go_on(&self.prefix, &self.groups, until);
        self.accounts.work(draft.uid, thread_time().saturating_sub(start));
        if !is_valid {
            // The changed files are read again.
            self.draft = None;
        }
    }

    /// Returns the names of the directory, once the last one has been read.
    fn list(&mut self, look: Look, all: bool) -> io::Result<Option<Files>> {
        if look.is_absent() {
            (self.seen, self.listing, self.opened) = (look, None, None);
            return Ok(Some(((Vec::new(), HashMap::new()), None)));
        }
        let mut listing = match self.listing.take() {
            Some(listing) => listing,
            None => {
                let drafted = self.draft.iter().flat_map(Draft::sources);
                let sources = self.groups.sources().chain(drafted).map(|source| &source.name);
                let known = sources.chain(self.skipped.iter().map(|skipped| &skipped.name)).cloned();
                let directory = Directory::open(&self.directory)?;
                let same = self.opened.as_ref().filter(|opened| opened.is_same(&directory)).map(Arc::clone);
                let directory = same.unwrap_or_else(|| Arc::new(directory));
                Listing::begin(&self.directory, directory, look, known)?
            }
        };
        let (names, work) = (self.accounts.limits.names, self.work());
        // The first scan, and a scan that was requested, read more names.
        let (names, time) = match self.tariff(all) {
            Tariff::Free => (names.saturating_mul(FIRST), u64::MAX),
            Tariff::Charged => (names, work),
        };
        if !listing.go_on(names, time, self.share, &mut self.accounts)? {
            self.listing = Some(listing);
            return Ok(None);
        }
        let directory = Arc::clone(&listing.directory);
        self.seen = listing.look.clone();
        Ok(Some((listing.finish(), Some(directory))))
    }

    fn take_in(
        &mut self,
        (found, crowd): (Vec<Found>, HashMap<u32, u64>),
        directory: Option<Arc<Directory>>,
        all: bool,
    ) -> bool {
        (self.is_unreadable, self.is_delayed) = (false, false);
        let (tariff, accounts) = (self.tariff(all), &mut self.accounts);
        self.groups.take_work(|uid, nanoseconds| accounts.work(uid, nanoseconds));
        self.reload = if all { 0 } else { self.reload };
        let draft = self.draft.take_if(|draft| tariff == Tariff::Free || directory.is_none() || draft.is_complete());
        let draft = draft.filter(Draft::is_complete);
        self.turn.yields = draft.as_ref().and_then(Draft::yields);
        let draft = draft.map(Draft::finish);
        let has_arrived = draft.is_some();
        let (arrived, replaced, ready) = draft.unwrap_or_default();
        let sources = self.groups.take_sources();
        let capacity = sources.len() + arrived.len();
        let stay = sources.into_iter().filter(|source| !replaced.contains(&source.stamp));
        let known = by_name(capacity, stay.chain(arrived));
        let skipped = std::mem::take(&mut self.skipped);
        let skipped: HashMap<OsString, Skipped> = skipped.into_iter().map(|s| (s.name.clone(), s)).collect();
        self.accounts.clear();
        let crowd_before = std::mem::replace(&mut self.crowd, crowd);
        let mut files = Sorted { known, skipped, kept: Vec::with_capacity(found.len()), ..Sorted::default() };
        if let Some(directory) = &directory {
            found.into_iter().for_each(|found| self.sort_out(found, directory, all, &mut files));
        }
        let Sorted { known, skipped, mut kept, mut wanted, refused } = files;
        let drafted = self.draft.iter().flat_map(Draft::sources);
        kept.iter().chain(drafted).for_each(|source| self.accounts.add(source.uid, 1, source.cost));
        self.skipped.iter().for_each(|file| self.accounts.add(file.uid, 1, Cost::default()));
        let has_lost = !known.is_empty();
        let mut changed = all | has_arrived | has_lost & directory.is_none();
        // Other files may have room now.
        let has_room = all || has_lost || !skipped.is_empty();
        self.charge_previous(&wanted);
        self.retry_refused(refused, &mut wanted);
        let gone: Vec<Wanted> = known.into_values().map(Wanted::gone).collect();
        self.charge_previous(&gone);
        wanted.extend(gone);
        if let Some(directory) = directory {
            changed |= self.read_wanted(wanted, &directory, tariff, &mut kept);
            self.opened = Some(directory);
        }
        self.is_delayed |= has_room && !self.crowd.is_empty();
        self.accounts.count_crowd(&crowd_before, &self.crowd);
        // Nearly sorted already, which a stable sort uses.
        kept.sort_by(|a, b| a.name.cmp(&b.name));
        self.open_some(&mut kept);
        assign_clusters(&mut kept, self.large);
        self.skipped.sort_unstable_by(|a, b| (a.uid, &a.name).cmp(&(b.uid, &b.name)));
        self.groups.put_sources(kept, tariff, ready);
        self.groups.build(&self.prefix);
        if let Some(draft) = self.draft.as_mut().filter(|draft| draft.is_open()) {
            draft.begin(&mut self.groups);
        }
        self.accounts.forget();
        changed
    }

    /// Charges users for the previous states of files, which stay in memory until the files have been read.
    fn charge_previous(&mut self, wanted: &[Wanted]) {
        let charged = wanted.iter().filter_map(|file| file.before.charged());
        charged.for_each(|(uid, files, cost)| self.accounts.add(uid, files, cost));
    }

    /// Adds the files that a limit has refused, and that the limit now allows, to those to be read.
    fn retry_refused(&mut self, refused: Vec<(Skipped, io::Result<Stamp>)>, wanted: &mut Vec<Wanted>) {
        for (file, stamp) in refused {
            self.accounts.add(file.uid, 1, Cost::default());
            match file.why {
                Why::Limit(_, cost) if self.accounts.has_room_for(file.uid, cost) => {
                    let (name, uid) = (file.name.clone(), file.uid);
                    wanted.push(Wanted { name, stamp, uid, before: Before::Skipped(file) });
                }
                _ => self.skipped.push(file),
            }
        }
    }

    /// Returns whether the present request has a time limit. The first request, for which no client waits, has no
    /// limit. Neither has a request that must read all files.
    fn tariff(&self, all: bool) -> Tariff {
        if all || self.request <= 1 { Tariff::Free } else { Tariff::Charged }
    }

    /// Decides what to do with a file of the directory.
    fn sort_out(
        &mut self,
        Found { name, stamp, new }: Found,
        directory: &Arc<Directory>,
        all: bool,
        files: &mut Sorted,
    ) {
        if let Some(uid) = new {
            files.wanted.push(Wanted { stamp, name, uid, before: Before::Nothing });
            return;
        }
        match (files.known.remove(&name), files.skipped.remove(&name)) {
            (Some(mut source), _) if !all && source.is_still(&stamp) => {
                source.set_directory(directory);
                files.kept.push(source);
            }
            (_, Some(file)) if !all && file.is_still(&stamp) => match file.why {
                Why::Limit(..) => files.refused.push((file, stamp)),
                _ => self.skipped.push(file),
            },
            (mut source, file) => {
                let uid = stamp.as_ref().ok().map(|stamp| self.accounts.payer(stamp.owner));
                let tariff = self.tariff(all);
                if let Some(source) =
                    source.take_if(|source| tariff == Tariff::Charged && uid.is_some_and(|uid| uid != source.uid))
                {
                    // Another user's file. First the tables of the old owner are built without the old file, at that
                    // user's expense. A later request reads the new file.
                    self.is_delayed = true;
                    files.wanted.push(Wanted::gone(source));
                    return;
                }
                let uid = uid.or_else(|| source.as_ref().map(|s| s.uid)).or_else(|| file.as_ref().map(|s| s.uid));
                let before = match (source, file) {
                    (Some(source), _) => Before::Source(source),
                    (None, Some(file)) => Before::Skipped(file),
                    (None, None) => Before::Nothing,
                };
                files.wanted.push(Wanted { name, stamp, uid: uid.unwrap_or_default(), before });
            }
        }
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

impl SourceFile {
    /// Returns whether the file still has these attributes, or they are unknown.
    fn is_still(&self, stamp: &io::Result<Stamp>) -> bool {
        match stamp {
            Ok(stamp) => self.is_valid && stamp.identity == self.identity,
            Err(e) => self.is_valid && reader::is_temporary(e),
        }
    }
}

impl Skipped {
    /// Returns whether the file still has these attributes, or they are unknown.
    fn is_still(&self, stamp: &io::Result<Stamp>) -> bool {
        match stamp {
            Ok(stamp) => self.stamp == Some(*stamp),
            Err(e) => reader::is_temporary(e),
        }
    }

    /// Returns whether another file may have this name now, or the file's writer may have finished.
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
pub(super) fn is_recent(stamp: &Stamp) -> bool {
    let (seconds, nanoseconds) = stamp.changed;
    let changed = Duration::new(seconds.try_into().unwrap_or_default(), nanoseconds.try_into().unwrap_or_default());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // A new change would have the present time, which differs from a time in the future.
    now.checked_sub(changed).is_some_and(|age| age < COARSE)
}

/// Returns sources by their names. Sources are large: a map that grows would move them several times.
fn by_name(capacity: usize, sources: impl Iterator<Item = Source>) -> HashMap<OsString, Source> {
    let mut known = HashMap::with_capacity(capacity);
    known.extend(sources.map(|source| (source.name.clone(), source)));
    known
}
