//! Processes that trace through shared memory: their files are found, read, and removed when they have ended.
//!
//! Whatever is in the directory, and whoever has put it there: a file costs memory as far as it has contents, its user has a
//! share of files, memory and time, and files of others are read meanwhile.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::inotify::Inotify;
use nix::sys::stat::FileStat;
use trace::light::{Claim, ReadError, Reader};
use tracing::{debug, info, warn};

use crate::events::Events;
use crate::limits::{Account, Limits};
use crate::owners::{Files, Owners};
use crate::search::{Name, STALE, Search, is_hidden};
use crate::tags::Tags;
use crate::turns::{PASS, processor_time};

/// How often files are read: more often than the shortest and longest times in them are forgotten.
const PERIOD: Duration = Duration::from_secs(1);
/// How often files are read while a client reads event records.
const OFTEN: Duration = Duration::from_millis(50);
/// How often it is looked whether a process is still there, and how often the directory is listed.
const ALIVE: Duration = Duration::from_secs(1);
const LISTED: Duration = Duration::from_secs(1);

/// The processes of this host.
#[derive(Debug)]
pub(crate) struct Processes {
    search: Search,
    table: Table,
    /// When files were read last.
    read: Instant,
    /// When the directory was listed last.
    listed: Option<Instant>,
    missed: u64,
}

/// The files that are known.
#[derive(Debug)]
struct Table {
    /// By what they are: their users may give them other names.
    files: HashMap<Identity, Entry>,
    owners: Owners,
    /// Files that stay open between two looks, and that may.
    open: usize,
    most_open: usize,
}

#[derive(Debug)]
struct Entry {
    name: OsString,
    account: Account,
    /// The last listing that has had it, or that it came in.
    listing: u64,
    file: Found,
}

#[derive(Debug)]
enum Found {
    Read(Box<Read>),
    /// A file that makes no sense, or cannot be removed, with the time of its last change.
    Left(Stamp),
}

#[derive(Debug)]
struct Read {
    reader: Reader,
    /// The file stays open. Others are opened for each look.
    stays_open: bool,
    /// The number of the process; 0 if that may be another one here.
    process: u32,
    /// When it was looked last whether the process is there.
    looked: Option<Instant>,
    missed: u64,
    left_out: u64,
    /// The last of its user's rounds in which its sums were read, and its records.
    sums: u64,
    records: u64,
    /// It was there when the agent started: what is in it counts, but is not recent.
    old: bool,
}

/// Device and inode.
type Identity = (u64, u64);
/// Seconds and nanoseconds.
type Stamp = (i64, i64);

impl Processes {
    pub(crate) fn open(path: PathBuf, base: PathBuf, limits: &Limits) -> io::Result<Processes> {
        let search = Search::open(path, base)?;
        let (files, owners) = (HashMap::new(), Owners::new(limits));
        let table = Table { files, owners, open: 0, most_open: limits.open_files };
        Ok(Processes { search, table, read: Instant::now(), listed: None, missed: 0 })
    }

    /// Readable when there is a new file, and time to look at it.
    pub(crate) fn watch(&self) -> Option<&Inotify> {
        self.search.watch(Instant::now())
    }

    /// When something is to be done although nothing has happened.
    pub(crate) fn due(&self, events: &Events, tags: &Tags) -> Option<Instant> {
        let search = self.search.due(Instant::now());
        Some(search.map_or(self.regularly(events, tags), |search| search.min(self.regularly(events, tags))))
    }

    /// When files are to be read.
    fn regularly(&self, events: &Events, tags: &Tags) -> Instant {
        if self.search.is_watched() && self.table.files.is_empty() {
            return self.read + STALE;
        }
        let regularly = self.read + if events.are_wanted() { OFTEN } else { PERIOD };
        let bucket = tags.window().end_of_bucket().filter(|end| *end > self.read);
        bucket.map_or(regularly, |bucket| bucket.min(regularly))
    }

    pub(crate) fn count(&self) -> usize {
        self.table.read_ones().count()
    }

    pub(crate) fn threads(&self) -> usize {
        self.table.read_ones().map(|read| read.reader.lanes()).sum()
    }

    /// Marks that are nowhere.
    pub(crate) fn missed(&self) -> u64 {
        self.missed
    }

    /// What budgets have left out.
    pub(crate) fn left_out(&self) -> &Files {
        &self.table.owners.left_out
    }

    /// Looks for new files, and reads all if it is time.
    pub(crate) fn go_on(&mut self, tags: &mut Tags, events: &mut Events) {
        let now = Instant::now();
        if self.regularly(events, tags) <= now {
            self.read(tags, events);
        } else {
            self.look(now);
        }
    }

    fn look(&mut self, now: Instant) {
        let Processes { search, table, .. } = self;
        if search.names(now, |search, name| table.see(search, name)) {
            table.end_listing(search.listings);
        }
    }

    /// Takes what has come since the last time.
    pub(crate) fn read(&mut self, tags: &mut Tags, events: &mut Events) {
        let now = Instant::now();
        if self.listed.is_none_or(|listed| now - listed >= LISTED) {
            self.search.list();
            self.listed = Some(now);
        }
        self.look(now);
        // What has come since then has come in the middle of the time, on average.
        let when = self.read + (now - self.read) / 2;
        self.read = now;
        let Table { files, owners, .. } = &mut self.table;
        owners.begin(now);
        let (start, mut is_time, mut ended) = (processor_time(), true, Vec::new());
        for (identity, Entry { name, account, file, .. }) in files {
            let Found::Read(read) = file else { continue };
            let owner = owners.owner(*account);
            let has_turn = owner.sums.has_turn(&mut read.sums, is_time) && read.open(&self.search, name);
            if !has_turn {
                continue;
            }
            let before = read.reader.memory();
            read.reader.limit_memory(owners.memory(*account, before));
            let owner = owners.owner(*account);
            let mut done = owner.sums.spend(|| read.read_sums(*account, when, tags));
            let has_ended = read.reader.is_ended() || read.is_abandoned(now);
            // Those of a process that is gone have no other time.
            if done.is_ok() && (owner.records.has_turn(&mut read.records, is_time) || has_ended) {
                done = owner.records.spend(|| events.read(*account, &mut read.reader, read.process)).and(done);
            }
            owners.charge(*account, before, read.reader.memory());
            match done {
                Ok(missed) => {
                    self.missed = self.missed.saturating_add(missed);
                    let more = read.more_left_out();
                    if more > 0 {
                        owners.left_out.memory.add(*account, more);
                    }
                }
                Err(e) if e.is_passing() => debug!("{}: {e}: read again later", name.display()),
                Err(e) => ended.push((*identity, Some(e))),
            }
            if has_ended {
                ended.push((*identity, None));
            } else if !read.stays_open {
                read.reader.close();
            }
            is_time = is_time && processor_time().saturating_sub(start) <= PASS;
        }
        self.table.owners.left_out.memory.flush();
        for (identity, error) in ended {
            match error {
                Some(e) => self.table.leave(&self.search, identity, &e),
                None => self.table.end(&self.search, identity),
            }
        }
        events.publish();
    }
}

impl Table {
    fn read_ones(&self) -> impl Iterator<Item = &Read> {
        self.files.values().filter_map(|entry| match &entry.file {
            Found::Read(read) => Some(&**read),
            Found::Left(_) => None,
        })
    }

    /// Looks at a name, which may be new, or that of a file that is known.
    fn see(&mut self, search: &Search, Name { name, is_listed }: Name) {
        let Ok(stat) = search.look_at(&name) else { return };
        if is_hidden(&name) {
            if is_listed {
                search.remove_stale(&name, &stat);
            }
            return;
        }
        let identity = identity(&stat);
        if let Some(entry) = self.files.get_mut(&identity) {
            entry.listing = search.listings;
            match entry.file {
                // A file that is not open may be another one with the same number.
                Found::Left(before) if before != stamp(&stat) => self.forget(identity),
                Found::Left(_) if is_listed => return search.remove_unused(&name, &stat),
                _ => {
                    entry.name = name;
                    return;
                }
            }
        }
        let account = self.owners.account(stat.st_uid);
        if !self.owners.add_file(account, is_listed) {
            return;
        }
        match Read::new(search, &name, identity, is_listed && search.listings == 1) {
            Ok(mut read) => {
                debug!("process {}: {}", read.reader.process().pid, name.display());
                read.stays_open = self.open < self.most_open;
                self.open += usize::from(read.stays_open);
                if !read.stays_open {
                    read.reader.close();
                }
                self.owners.charge(account, 0, read.reader.memory());
                let file = Found::Read(Box::new(read));
                self.files.insert(identity, Entry { name, account, listing: search.listings, file });
            }
            // The next listing has it again.
            Err(e) if e.is_passing() || search.look_at(&name).is_err() => {
                self.owners.remove_file(account);
                debug!("{}: {e}: looked at again later", name.display());
            }
            Err(e) => {
                let file = Found::Left(stamp(&stat));
                self.files.insert(identity, Entry { name, account, listing: search.listings, file });
                self.say_bad(identity, &e);
            }
        }
    }

    fn say_bad(&mut self, identity: Identity, e: &ReadError) {
        let Some(Entry { name, account, .. }) = self.files.get(&identity) else { return };
        warn!(source = %account, "{}: {e}: a file of {account}, left alone", name.display());
        self.owners.left_out.bad += 1;
    }

    /// Forgets files that have no name any more, but for those that are open: these are read until their process ends.
    fn end_listing(&mut self, listing: u64) {
        let stays = |entry: &Entry| matches!(&entry.file, Found::Read(read) if read.stays_open);
        let gone = self.files.iter().filter(|(_, entry)| entry.listing < listing && !stays(entry));
        let gone: Vec<_> = gone.map(|(identity, _)| *identity).collect();
        gone.into_iter().for_each(|identity| self.forget(identity));
        self.owners.end_listing();
    }

    /// Gives back what a file that is read uses, which is not read any more.
    fn give_back(&mut self, account: Account, file: &Found) {
        if let Found::Read(read) = file {
            self.owners.charge(account, read.reader.memory(), 0);
            self.open -= usize::from(read.stays_open);
        }
    }

    fn forget(&mut self, identity: Identity) {
        if let Some(Entry { account, file, .. }) = self.files.remove(&identity) {
            self.give_back(account, &file);
            self.owners.remove_file(account);
        }
    }

    /// Leaves a file alone from now on.
    fn leave(&mut self, search: &Search, identity: Identity, e: &ReadError) {
        self.set_left(search, identity);
        self.say_bad(identity, e);
    }

    fn set_left(&mut self, search: &Search, identity: Identity) {
        let Some(entry) = self.files.get_mut(&identity) else { return };
        let stamp = search.look_at(&entry.name).map_or((0, 0), |stat| stamp(&stat));
        let (account, file) = (entry.account, std::mem::replace(&mut entry.file, Found::Left(stamp)));
        self.give_back(account, &file);
    }

    /// Removes the file of a process that has ended. One that has other names, or cannot be removed, is known further on.
    fn end(&mut self, search: &Search, identity: Identity) {
        let Some(Entry { name, account, .. }) = self.files.get(&identity) else { return };
        let links = match search.look_at(name) {
            // Another file may have its name.
            Ok(stat) if self::identity(&stat) == identity => stat.st_nlink,
            _ => 0,
        };
        let removed = if links > 0 { search.remove(name) } else { Ok(()) };
        if let Err(e) = removed.as_ref().or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(&()) } else { Err(e) })
        {
            info!(source = %account, "{}: {e}: a file of {account}, not removed", name.display());
        } else if links < 2 {
            return self.forget(identity);
        }
        self.set_left(search, identity);
    }
}

impl Read {
    fn new(search: &Search, name: &OsStr, identity: Identity, old: bool) -> Result<Read, ReadError> {
        let reader = Reader::new(search.open_file(name)?)?;
        if reader.identity() != identity {
            // It was replaced meanwhile.
            return Err(io::Error::from(io::ErrorKind::Interrupted).into());
        }
        let process = match reader.claim() {
            Claim::Own | Claim::Gone => reader.process().pid,
            Claim::Unknown => 0,
            Claim::Foreign => return Err(ReadError::Damaged("it names a process of another user")),
        };
        Ok(Read { reader, stays_open: false, process, looked: None, missed: 0, left_out: 0, sums: 0, records: 0, old })
    }

    /// Opens the file if it is not open; false when it has another name now, which a listing will tell.
    fn open(&mut self, search: &Search, name: &OsStr) -> bool {
        self.stays_open || search.open_file(name).and_then(|file| self.reader.reopen(file)).is_ok()
    }

    /// Whether the process has gone, which is looked for now and then.
    fn is_abandoned(&mut self, now: Instant) -> bool {
        let is_due = self.looked.is_none_or(|looked| now - looked >= ALIVE);
        if is_due {
            self.looked = Some(now);
        }
        is_due && self.reader.is_abandoned()
    }

    /// Counts what is new, and says how many marks had no room.
    fn read_sums(&mut self, account: Account, when: Instant, tags: &mut Tags) -> Result<u64, ReadError> {
        let when = if self.old { None } else { Some(when) };
        self.old = false;
        self.reader.changes(|kind, tag, change| tags.change(account, kind, tag, &change, when))?;
        let missed = self.reader.missed().saturating_sub(self.missed);
        self.missed += missed;
        Ok(missed)
    }

    /// How much more than before found no memory.
    fn more_left_out(&mut self) -> u64 {
        let before = std::mem::replace(&mut self.left_out, self.reader.left_out());
        self.left_out.saturating_sub(before)
    }
}

fn identity(stat: &FileStat) -> Identity {
    (stat.st_dev, stat.st_ino)
}

fn stamp(stat: &FileStat) -> Stamp {
    (stat.st_mtime, stat.st_mtime_nsec)
}
