//! Reads new and changed files, within the limits of their users.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::Arc;

use hashbrown::HashMap;

use super::Collection;
use super::limits::{Cost, Limit, Tariff, thread_time};
use super::scan::{Before, Skipped, Wanted, Why, is_recent};
use super::source::Source;
use crate::reader::{Directory, ReadError, Stamp, is_of_system};

/// Numbers of files that are open during a scan. How many files each user has is known only at the end, when files beyond
/// the users' shares are closed. Until then twice as many may be open: the limit for all, and an equal share for each
/// user.
struct Handles {
    open: HashMap<u32, usize>,
    in_all: usize,
    most: usize,
    share: usize,
}

impl Handles {
    fn new(kept: &[Source], wanted: &[Wanted], most: usize) -> Handles {
        let mut open: HashMap<u32, usize> = HashMap::new();
        kept.iter().filter(|source| source.is_open()).for_each(|source| *open.entry(source.uid).or_default() += 1);
        let in_all = open.values().sum();
        wanted.iter().for_each(|file| _ = open.entry(file.uid).or_default());
        let share = most / open.len().max(1);
        Handles { open, in_all, most, share }
    }

    /// Closes a file that was read, unless it may stay open.
    fn admit(&mut self, source: &mut Source) {
        let own = self.open.entry(source.uid).or_default();
        source.keep_open(self.in_all < self.most || *own < self.share);
        *own += usize::from(source.is_open());
        self.in_all += usize::from(source.is_open());
    }
}

impl Collection {
    /// Reads files, and adds those that are exported to `kept`. Returns whether anything has changed.
    pub(super) fn read_wanted(
        &mut self,
        mut wanted: Vec<Wanted>,
        directory: &Arc<Directory>,
        tariff: Tariff,
        kept: &mut Vec<Source>,
    ) -> bool {
        let (mut buffer, mut changed) = (std::mem::take(&mut self.buffer), false);
        let mut handles = Handles::new(kept, &wanted, self.open);
        // Files that have waited longest come first.
        wanted.sort_by_key(Wanted::loaded);
        let mut time = if tariff == Tariff::Free { 0 } else { thread_time() };
        for file in wanted {
            let uid = file.uid;
            if matches!(&file.stamp, Err(e) if e.kind() == io::ErrorKind::NotFound) {
                changed |= matches!(file.before, Before::Source(_));
            } else if tariff == Tariff::Charged && !self.accounts.has_time(uid) {
                self.delay(file, kept);
            } else if matches!(file.before, Before::Nothing)
                && !self.make_room(uid, Cost::default(), kept, &mut changed)
            {
                *self.crowd.entry(uid).or_default() += 1;
            } else {
                changed |= self.take_file(file, directory, &mut buffer, &mut handles, kept);
            }
            if tariff == Tariff::Charged {
                let now = thread_time();
                self.accounts.work(uid, now.saturating_sub(time));
                time = now;
            }
        }
        buffer.clear();
        buffer.shrink_to(KEPT_BUFFER);
        self.buffer = buffer;
        changed
    }

    /// Leaves a file as it is until a later request.
    fn delay(&mut self, file: Wanted, kept: &mut Vec<Source>) {
        self.accounts.leave_out(file.uid, Limit::Work, 1);
        self.is_delayed = true;
        match file.before {
            Before::Source(source) => {
                self.accounts.add(source.uid, 1, source.cost);
                kept.push(*source);
            }
            Before::Skipped(skipped) => {
                self.accounts.add(skipped.uid, 1, Cost::default());
                self.skipped.push(skipped);
            }
            Before::Nothing => {}
        }
    }

    /// Reads a file. Returns whether that has changed anything.
    fn take_file(
        &mut self,
        Wanted { name, stamp, uid, before }: Wanted,
        directory: &Arc<Directory>,
        buffer: &mut Vec<u8>,
        handles: &mut Handles,
        kept: &mut Vec<Source>,
    ) -> bool {
        let mut changed = false;
        let loaded = match load(directory, &name, uid, self.accounts.limits.file_bytes, buffer) {
            Ok(source) if self.make_room(uid, source.cost, kept, &mut changed) => Ok(source),
            Ok(source) => {
                let limit = self.accounts.check(uid, 1, source.cost).err().unwrap_or(Limit::Memory);
                Err((Why::Limit(limit, source.cost), ReadError::LeftOut { what: limit.to_string() }))
            }
            Err(e @ ReadError::InFlux { .. }) => Err((Why::InFlux, e)),
            Err(e) if e.is_temporary() => Err((Why::Temporary, e)),
            // Its attributes tell when the file changes.
            Err(e) => Err((Why::Bad, e)),
        };
        match loaded {
            Ok(mut source) => {
                if !matches!(&before, Before::Source(before) if source.is_known_from(before)) {
                    source.report(&self.prefix);
                }
                // Made now, the full names are charged together with the file, and further files wait.
                source.names(&self.prefix);
                handles.admit(&mut source);
                source.loaded = self.request;
                source.since = match &before {
                    Before::Source(before) if before.uid == uid => before.since,
                    _ => self.request,
                };
                self.accounts.add(uid, 1, source.cost);
                kept.push(source);
                true
            }
            Err((_, ReadError::Io(e))) if e.kind() == io::ErrorKind::NotFound => {
                changed | matches!(before, Before::Source(_))
            }
            Err((why, e)) => match before {
                // For instance, the system has no descriptor left, which says nothing about the file.
                Before::Source(source) if matches!(&e, ReadError::Io(e) if is_of_system(e)) => {
                    self.is_delayed = true;
                    self.accounts.add(source.uid, 1, source.cost);
                    kept.push(*source);
                    changed
                }
                before => changed | self.skip(name, uid, (why, e), stamp.ok(), &before),
            },
        }
    }

    /// Returns whether a further file of a user may be exported. If only the limits for all users forbid that, files of
    /// the user with the largest share are left out, as long as that share stays larger.
    fn make_room(&mut self, uid: u32, cost: Cost, kept: &mut Vec<Source>, changed: &mut bool) -> bool {
        loop {
            let Err(limit) = self.accounts.check(uid, 1, cost) else { return true };
            let Some(largest) = self.accounts.larger(uid, 1, cost) else { return false };
            // A skipped file counts as a file.
            let Some(place) = kept.iter().rposition(|source| source.uid == largest) else {
                let Some(place) = self.skipped.iter().rposition(|file| file.uid == largest) else { return false };
                self.skipped.swap_remove(place);
                self.accounts.remove(largest, 1, Cost::default());
                *self.crowd.entry(largest).or_default() += 1;
                continue;
            };
            let Source { name, seen, cost, .. } = kept.swap_remove(place);
            *changed = true;
            if limit == Limit::Files {
                self.accounts.remove(largest, 1, cost);
                *self.crowd.entry(largest).or_default() += 1;
            } else {
                self.accounts.remove(largest, 0, cost);
                self.accounts.leave_out(largest, limit, 1);
                let why = Why::Limit(limit, cost);
                self.skipped.push(Skipped { name, uid: largest, stamp: Some(seen), why, loaded: self.request });
            }
        }
    }

    /// Records that a file is skipped. Returns whether it was exported before.
    fn skip(
        &mut self,
        name: OsString,
        uid: u32,
        (why, e): (Why, ReadError),
        stamp: Option<Stamp>,
        before: &Before,
    ) -> bool {
        let known = match before {
            Before::Skipped(before) => before.why == why && before.stamp.is_none_or(|old| Some(old) == stamp),
            Before::Source(_) | Before::Nothing => false,
        };
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
        matches!(before, Before::Source(_))
    }
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

/// Most bytes of the buffer for files' contents that stay allocated between requests.
const KEPT_BUFFER: usize = 1 << 20;

/// Attempts to read a file that is being replaced.
const REPLACED: usize = 4;

/// Logs that a file is skipped: as an error if it is an mmv(5) file, and at debug level otherwise.
fn report(prefix: &str, name: &OsStr, uid: u32, e: &ReadError) {
    let name = Path::new(name).display();
    match e {
        // Files that limits leave out are counted and logged elsewhere.
        ReadError::TooShort { .. } | ReadError::Magic(_) | ReadError::InFlux { .. } | ReadError::LeftOut { .. } => {
            tracing::debug!(source = %format_args!("uid {uid}"), "{prefix}: {name}: {e}");
        }
        _ => tracing::error!(source = %format_args!("uid {uid}"), "{prefix}: {name}: {e}"),
    }
}
