//! Reads new and changed files, within the limits of their users.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::Arc;

use hashbrown::HashMap;

use super::Collection;
use super::draft::Draft;
use super::limits::{Cost, Limit, Tariff, thread_time};
use super::scan::{Before, Skipped, Wanted, Why, is_recent};
use super::source::{Source, SourceFile};
use crate::reader::{Directory, ReadError, Stamp, is_of_system};

/// Whether there is room for a file.
enum Room {
    Now,
    /// There will be room when tables without other files are complete.
    Later,
    Never,
}

/// Numbers of files that are open during a scan. The number of each user's files is known only at the end, when files
/// beyond the users' shares are closed. Until then twice as many files may be open: the limit for all, and an equal
/// share for each user.
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

    /// Closes a file that has been read, unless it may stay open.
    fn admit(&mut self, source: &mut Source) {
        let own = self.open.entry(source.uid).or_default();
        source.keep_open(self.in_all < self.most || *own < self.share);
        *own += usize::from(source.is_open());
        self.in_all += usize::from(source.is_open());
    }
}

/// Files of a scan.
struct Reading<'a> {
    directory: &'a Arc<Directory>,
    buffer: Vec<u8>,
    handles: Handles,
    /// Files that have yet to be read. Their previous contents are still charged.
    wanted: VecDeque<Wanted>,
    /// Exported files.
    kept: &'a mut Vec<Source>,
    /// Whether the exported contents have changed.
    is_changed: bool,
    /// Whether anything no longer needs memory.
    is_released: bool,
}

impl Collection {
    /// Reads files, and adds those that are exported to `kept`. All files and the previous contents of `wanted` must have
    /// been charged. Returns whether anything has changed.
    pub(super) fn read_wanted(
        &mut self,
        wanted: Vec<Wanted>,
        directory: &Arc<Directory>,
        tariff: Tariff,
        kept: &mut Vec<Source>,
    ) -> bool {
        let buffer = std::mem::take(&mut self.buffer);
        let handles = Handles::new(kept, &wanted, self.open);
        let wanted = self.in_turn(wanted, tariff);
        let mut reading = Reading { directory, buffer, handles, wanted, kept, is_changed: false, is_released: false };
        let mut time = if tariff == Tariff::Free { 0 } else { thread_time() };
        while let Some(file) = reading.wanted.pop_front() {
            let uid = file.uid;
            if !self.has_time_for(&file) {
                self.delay(file, reading.kept);
                continue;
            }
            self.take_wanted(file, &mut reading);
            if tariff == Tariff::Charged {
                self.accounts.serve(uid, self.request);
                let now = thread_time();
                self.accounts.work(uid, now.saturating_sub(time));
                time = now;
            }
        }
        let Reading { mut buffer, is_changed, is_released, .. } = reading;
        buffer.clear();
        buffer.shrink_to(KEPT_BUFFER);
        self.buffer = buffer;
        // Files that were refused earlier in this scan may have room now.
        self.is_delayed |= is_released && self.skipped.iter().any(Skipped::is_refused);
        is_changed
    }

    fn take_wanted(&mut self, file: Wanted, reading: &mut Reading<'_>) {
        let uid = file.uid;
        if file.is_gone() {
            match file.before {
                Before::Source(source) if self.turn.is_large(uid) => self.remove_later(source, reading.kept),
                before => self.release(&before, reading),
            }
        } else if matches!(file.before, Before::Nothing) {
            match self.make_room(uid, Cost::default(), reading) {
                Room::Now => self.take_file(file, reading),
                Room::Later => self.delay(file, reading.kept),
                Room::Never => *self.crowd.entry(uid).or_default() += 1,
            }
        } else {
            self.take_file(file, reading);
        }
    }

    /// Subtracts the cost of a file's previous state, which is about to be dropped, from its user's account.
    fn release(&mut self, before: &Before, reading: &mut Reading<'_>) {
        if let Some((uid, files, cost)) = before.charged() {
            self.accounts.remove(uid, files, cost);
            reading.is_released = true;
        }
        reading.is_changed |= matches!(before, Before::Source(_));
    }

    /// Sorts files into the order of reading. If they are charged, users take turns with one file each, beginning with
    /// the user who has waited longest.
    fn in_turn(&self, mut files: Vec<Wanted>, tariff: Tariff) -> VecDeque<Wanted> {
        // Files that no longer exist make room for others. Of the others, those that have waited longest come first.
        files.sort_by_key(|file| (!file.is_gone(), file.loaded()));
        if tariff == Tariff::Free {
            return files.into();
        }
        let mut turns: HashMap<u32, u64> = HashMap::new();
        let mut files: Vec<((u64, u64), Wanted)> = files
            .into_iter()
            .map(|file| {
                let turn = turns.entry(file.uid).or_default();
                *turn += 1;
                ((*turn, self.accounts.served(file.uid)), file)
            })
            .collect();
        files.sort_by_key(|(key, _)| *key);
        files.into_iter().map(|(_, file)| file).collect()
    }

    /// Returns whether there is time to read a file now, or to drop it if it no longer exists.
    fn has_time_for(&mut self, file: &Wanted) -> bool {
        if self.turn.yields == Some(file.uid) {
            return false;
        }
        if let Some(draft) = &self.draft {
            // While tables are built, the files that they are made of stay as they are.
            let is_busy = if draft.uid == file.uid { !draft.is_open() } else { self.turn.is_large(file.uid) };
            if is_busy {
                return false;
            }
        }
        let group = match &file.before {
            Before::Source(source) if file.is_gone() => source.rest(),
            Before::Source(source) => source.group,
            Before::Nothing | Before::Skipped(_) => self.turn.largest_of(file.uid),
        };
        let len = file.stamp.as_ref().map_or(0, |stamp| stamp.identity.len);
        self.turn.allows(&self.accounts, file.uid, group, len)
    }

    /// Keeps the last state of a file until a later request.
    fn delay(&mut self, file: Wanted, kept: &mut Vec<Source>) {
        self.accounts.leave_out(file.uid, Limit::Work, 1);
        self.is_delayed = true;
        match file.before {
            Before::Source(source) => kept.push(source),
            Before::Skipped(skipped) => self.skipped.push(skipped),
            Before::Nothing => {}
        }
    }

    /// Reads a file.
    fn take_file(&mut self, Wanted { name, stamp, uid, before }: Wanted, reading: &mut Reading<'_>) {
        let most = self.accounts.limits.file_bytes;
        let loaded = match load(reading.directory, &name, uid, most, &mut reading.buffer) {
            Ok(source) => match self.replace(uid, source.cost, &before, reading) {
                Room::Now => Ok(source),
                Room::Later => return self.delay(Wanted { name, stamp, uid, before }, reading.kept),
                Room::Never => {
                    let limit = self.accounts.check(uid, 1, source.cost).err().unwrap_or(Limit::Memory);
                    Err((Why::Limit(limit, source.cost), ReadError::LeftOut { what: limit.to_string() }))
                }
            },
            Err(e @ ReadError::InFlux { .. }) => Err((Why::InFlux, e)),
            Err(e) if e.is_temporary() => Err((Why::Temporary, e)),
            // The file's attributes show when it changes.
            Err(e) => Err((Why::Bad, e)),
        };
        match (loaded, before) {
            (Ok(mut source), before) => {
                self.admit(&mut source, &before, uid, &mut reading.handles);
                if !self.turn.is_large(uid) {
                    self.turn.has_read(&source);
                    reading.kept.push(source);
                    reading.is_changed = true;
                    return;
                }
                let before = if let Before::Source(before) = before { Some(before) } else { None };
                self.draft.get_or_insert_with(|| Draft::new(uid)).add(source, before.as_ref());
                reading.kept.extend(before);
            }
            (Err((_, e)), Before::Source(before)) if is_passing(&e) => {
                self.is_delayed = true;
                reading.kept.push(before);
            }
            // The next state of the user's files does not contain this file. Then it is read again, and skipped.
            (Err(_), Before::Source(before)) if self.turn.is_large(uid) => self.remove_later(before, reading.kept),
            (Err((_, ReadError::Io(e))), before) if e.kind() == io::ErrorKind::NotFound => {
                self.release(&before, reading);
            }
            (Err((why, e)), before) => {
                self.release(&before, reading);
                self.skip(name, uid, (why, e), stamp.ok(), &before);
            }
        }
    }

    /// Returns whether a file of a user may replace its previous state. If so, releases that state, unless it stays
    /// exported until the tables of the new one are complete.
    fn replace(&mut self, uid: u32, cost: Cost, before: &Before, reading: &mut Reading<'_>) -> Room {
        let Some((owner, files, old)) = before.charged() else { return self.make_room(uid, cost, reading) };
        let stays = self.turn.is_large(uid) && matches!(before, Before::Source(_));
        let leaving = self.accounts.leave(owner, files, old);
        let room = self.make_room(uid, cost, reading);
        match room {
            Room::Now if stays => {}
            Room::Now => {
                self.accounts.restore(leaving);
                self.release(before, reading);
            }
            Room::Later | Room::Never => self.accounts.restore(leaving),
        }
        room
    }

    /// Prepares a source that was read, and charges its user.
    fn admit(&mut self, source: &mut Source, before: &Before, uid: u32, handles: &mut Handles) {
        if !matches!(before, Before::Source(before) if source.is_known_from(before)) {
            source.report(&self.prefix);
        }
        // The full names are built now, so that their time is charged with that of the file, and delays further files.
        source.names(&self.prefix);
        handles.admit(source);
        source.loaded = self.request;
        source.since = match before {
            Before::Source(before) if before.uid == uid => before.since,
            _ => self.request,
        };
        self.accounts.add(uid, 1, source.cost);
    }

    /// Lets exported contents stay until the tables without them are complete.
    fn remove_later(&mut self, source: Source, kept: &mut Vec<Source>) {
        self.draft.get_or_insert_with(|| Draft::new(source.uid)).remove(&source);
        self.accounts.leave(source.uid, 1, source.cost);
        kept.push(source);
    }

    /// Returns whether a further file of a user may be exported. If only a limit for all users forbids it, leaves out
    /// files of the user with the largest part of that limit, as long as that part stays larger.
    fn make_room(&mut self, uid: u32, cost: Cost, reading: &mut Reading<'_>) -> Room {
        let mut room = Room::Now;
        loop {
            if self.accounts.check(uid, 1, cost).is_ok() {
                if matches!(room, Room::Later) {
                    // Reserved, so that the next file gets room of its own.
                    self.accounts.add(uid, 1, cost);
                }
                return room;
            }
            if self.accounts.will_have_room(uid, 1, cost) {
                return Room::Later;
            }
            let Some((largest, limit)) = self.accounts.larger(uid, 1, cost) else { return Room::Never };
            // A skipped file counts as a file. It is of less use than an exported one.
            if limit == Limit::Files && self.forget_skipped(largest, reading) {
                continue;
            }
            let Some(source) = self.last_of(largest, reading) else { return Room::Never };
            if self.turn.is_large(largest) {
                let draft = self.draft.get_or_insert_with(|| Draft::new(largest));
                let is_open = draft.uid == largest && draft.is_open();
                if is_open {
                    draft.make_room(&source);
                    self.accounts.remove(largest, 1, source.cost);
                }
                reading.kept.push(source);
                if !is_open {
                    return Room::Later;
                }
                room = Room::Later;
                continue;
            }
            self.turn.changes(&source);
            let SourceFile { name, seen, cost, .. } = *source;
            reading.is_changed = true;
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

    /// Forgets a skipped file of a user. Returns whether there is one.
    fn forget_skipped(&mut self, uid: u32, reading: &mut Reading<'_>) -> bool {
        if let Some(place) = self.skipped.iter().rposition(|file| file.uid == uid) {
            self.skipped.swap_remove(place);
        } else {
            let is_of = |file: &Wanted| matches!(&file.before, Before::Skipped(skipped) if skipped.uid == uid);
            let Some(place) = reading.wanted.iter().rposition(is_of) else { return false };
            reading.wanted.remove(place);
        }
        self.accounts.remove(uid, 1, Cost::default());
        *self.crowd.entry(uid).or_default() += 1;
        true
    }

    /// Removes a user's last exported file from those of the scan, and returns it.
    fn last_of(&self, uid: u32, reading: &mut Reading<'_>) -> Option<Source> {
        let is_of =
            |source: &Source| source.uid == uid && !self.draft.as_ref().is_some_and(|draft| draft.replaces(source));
        if let Some(place) = reading.kept.iter().rposition(is_of) {
            return Some(reading.kept.swap_remove(place));
        }
        let place = reading.wanted.iter().rposition(|file| matches!(&file.before, Before::Source(s) if is_of(s)))?;
        match reading.wanted.remove(place)?.before {
            Before::Source(source) => Some(source),
            Before::Nothing | Before::Skipped(_) => None,
        }
    }

    /// Records that a file is skipped.
    fn skip(&mut self, name: OsString, uid: u32, (why, e): (Why, ReadError), stamp: Option<Stamp>, before: &Before) {
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
    }
}

/// Returns whether an error is not due to the file: for instance, the system has no descriptor left.
fn is_passing(e: &ReadError) -> bool {
    matches!(e, ReadError::Io(e) if is_of_system(e))
}

/// Reads a file. If the file is no longer valid once it is open, it may have been replaced. Then reads the new file.
fn load(
    directory: &Arc<Directory>,
    name: &OsStr,
    uid: u32,
    most: u64,
    buffer: &mut Vec<u8>,
) -> Result<Source, ReadError> {
    let mut failed = None;
    for _ in 0..REPLACED {
        match SourceFile::load(directory, name, uid, most, buffer) {
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
    SourceFile::load(directory, name, uid, most, buffer)
}

/// Largest buffer for files' contents that stays allocated between requests, in bytes. The system takes as long to provide
/// new memory as to copy a file's bytes into it.
const KEPT_BUFFER: usize = 8 << 20;

/// Number of attempts to read a file that is being replaced.
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
