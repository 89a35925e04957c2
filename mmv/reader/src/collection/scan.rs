//! Detects and reads new and changed files.

use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hashbrown::HashMap;

use super::Collection;
use super::clusters::assign_clusters;
use super::limits::{Cost, Limit, Tariff};
use super::listing::{COARSE, Found, Listing, Look};
use super::source::Source;
use crate::reader::{self, Directory, Stamp};

/// A skipped file.
#[derive(Debug)]
pub(super) struct Skipped {
    pub name: OsString,
    pub uid: u32,
    /// Attributes of the file when it was read, or `None` to read it again in any case.
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
}

/// A file to be read.
pub(super) struct Wanted {
    pub name: OsString,
    pub stamp: io::Result<Stamp>,
    pub uid: u32,
    pub before: Before,
}

/// The files of a directory with the numbers of files beyond each user's limit, and the directory itself, if it exists.
type Files = ((Vec<Found>, HashMap<u32, u64>), Option<Arc<Directory>>);

/// Files by what is to be done with them.
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
    Source(Box<Source>),
    Skipped(Skipped),
}

impl Wanted {
    /// Returns the number of the request that read the file last.
    pub(super) fn loaded(&self) -> u64 {
        match &self.before {
            Before::Nothing => 0,
            Before::Source(source) => source.loaded,
            Before::Skipped(skipped) => skipped.loaded,
        }
    }
}

/// Skipped files that one request checks.
const POLLED: usize = 64;

impl Collection {
    /// Returns whether a skipped file may be shown now. Each request checks some of them, as many of each user: a file that
    /// is completed does not wait for the bad files of other users.
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
            (self.seen, self.listing, self.opened) = (look, None, None);
            return Ok(Some(((Vec::new(), HashMap::new()), None)));
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
        Ok(Some((listing.finish(), Some(directory))))
    }

    fn take_in(
        &mut self,
        (found, crowd): (Vec<Found>, HashMap<u32, u64>),
        directory: Option<Arc<Directory>>,
        all: bool,
    ) -> bool {
        (self.is_unreadable, self.is_delayed) = (false, false);
        let tariff = if all || !self.has_scanned { Tariff::Free } else { Tariff::Charged };
        let accounts = &mut self.accounts;
        self.groups.take_work(|uid, nanoseconds| accounts.work(uid, nanoseconds));
        self.has_scanned |= directory.is_some();
        self.reload = if all { 0 } else { self.reload };
        let known: HashMap<OsString, Source> =
            self.groups.take_sources().into_iter().map(|s| (s.name.clone(), s)).collect();
        let skipped = std::mem::take(&mut self.skipped);
        let skipped: HashMap<OsString, Skipped> = skipped.into_iter().map(|s| (s.name.clone(), s)).collect();
        self.accounts.clear();
        let crowd_before = std::mem::replace(&mut self.crowd, crowd);
        let mut files = Sorted { known, skipped, kept: Vec::with_capacity(found.len()), ..Sorted::default() };
        if let Some(directory) = &directory {
            found.into_iter().for_each(|found| self.sort_out(found, directory, all, &mut files));
        }
        let Sorted { known, skipped, mut kept, mut wanted, refused } = files;
        kept.iter().for_each(|source| self.accounts.add(source.uid, 1, source.cost));
        self.skipped.iter().for_each(|file| self.accounts.add(file.uid, 1, Cost::default()));
        let mut changed = all | self.let_go(known, directory.is_none(), &mut kept);
        // There may be room for other files.
        let has_room = changed || !skipped.is_empty();
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
        if let Some(directory) = directory {
            changed |= self.read_wanted(wanted, &directory, tariff, &mut kept);
            self.opened = Some(directory);
        }
        self.is_delayed |= has_room && !self.crowd.is_empty();
        self.accounts.count_crowd(&crowd_before, &self.crowd);
        kept.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.open_some(&mut kept);
        assign_clusters(&mut kept);
        self.skipped.sort_unstable_by(|a, b| (a.uid, &a.name).cmp(&(b.uid, &b.name)));
        self.groups.put_sources(kept, tariff);
        changed
    }

    /// Drops exported files that are gone, and returns whether there were any. Those of a user without time stay for now,
    /// unless the whole directory is gone.
    fn let_go(&mut self, gone: HashMap<OsString, Source>, all: bool, kept: &mut Vec<Source>) -> bool {
        let mut changed = false;
        for (_, source) in gone {
            if all || self.accounts.has_time(source.uid) {
                changed = true;
            } else {
                self.is_delayed = true;
                self.accounts.add(source.uid, 1, source.cost);
                kept.push(source);
            }
        }
        changed
    }

    /// Decides what to do with a file of the directory.
    fn sort_out(&mut self, Found { name, new }: Found, directory: &Arc<Directory>, all: bool, files: &mut Sorted) {
        if let Some((uid, stamp)) = new {
            let stamp = stamp.map_or_else(|| directory.stat(&name), Ok);
            files.wanted.push(Wanted { stamp, name, uid, before: Before::Nothing });
            return;
        }
        let stamp = directory.stat(&name);
        match (files.known.remove(&name), files.skipped.remove(&name)) {
            (Some(mut source), _) if !all && source.is_still(&stamp) => {
                source.set_directory(directory);
                files.kept.push(source);
            }
            (_, Some(file)) if !all && file.is_still(&stamp) => match file.why {
                Why::Limit(..) => files.refused.push((file, stamp)),
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
pub(super) fn is_recent(stamp: &Stamp) -> bool {
    let (seconds, nanoseconds) = stamp.changed;
    let changed = Duration::new(seconds.try_into().unwrap_or_default(), nanoseconds.try_into().unwrap_or_default());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Another change would get the present time, which differs from one in the future.
    now.checked_sub(changed).is_some_and(|age| age < COARSE)
}
