//! Processes that trace through shared memory: finds their files, reads them, and removes those of exited processes.
//!
//! Any user can put any file into the directory. So a file costs memory only for its contents, each user has a quota of
//! files and of memory, and users take turns when there is no time to read all files.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::inotify::Inotify;
use nix::sys::stat::FileStat;
use pmda::limits::{Accounts, Quota, processor_time};
use trace::shared_memory::{Claim, ReadError, Reader};
use tracing::{debug, info, warn};

use crate::events::Events;
use crate::limits::{self, Account, Limits};
use crate::search::{Name, STALE, Search, is_hidden};
use crate::tags::Tags;

/// Interval of reading files. It is shorter than the four epochs for which a file keeps shortest and longest times.
const PERIOD: Duration = Duration::from_secs(1);
/// Interval of reading files while a client reads event records.
const OFTEN: Duration = Duration::from_millis(50);
/// Interval after a pass that did not reach all files in its time.
const LEFT: Duration = Duration::from_millis(100);
/// Processor time of a pass over the files. Files that are not reached are read in the next pass.
const PASS: Duration = Duration::from_millis(8);
/// Largest number of blocks of a file that are read at a time. A larger file is read in parts.
const BLOCKS: usize = 256;
/// Intervals of checks for exited processes, and of listings of the directory.
const ALIVE: Duration = Duration::from_secs(1);
const LISTED: Duration = Duration::from_secs(1);

/// The processes of this host that trace through shared memory.
#[derive(Debug)]
pub(crate) struct Processes {
    search: Search,
    table: Table,
    /// Time at which files were last read.
    read: Instant,
    /// Whether the last pass did not reach some files in its time.
    is_left: bool,
    /// Time of the last listing of the directory.
    listed: Option<Instant>,
    missed: u64,
    /// Number of passes over the files so far.
    passes: u64,
}

/// Known files of processes.
#[derive(Debug)]
struct Table {
    /// Files by identity, because their users may rename them.
    files: HashMap<Identity, Entry>,
    /// The users that are charged for files.
    accounts: Accounts,
    /// Files, and bytes of their contents in memory.
    count: Quota<Account>,
    memory: Quota<Account>,
    /// Memory for one file, in bytes.
    file_memory: u64,
    /// Files of each account beyond the limits, in the current listing of the directory and in the previous one.
    refused: [HashMap<Account, u64>; 2],
    /// Files that are not valid, or name a process of another user.
    bad: u64,
    /// Number of files that stay open between reads, and its limit.
    open: u64,
    most_open: u64,
}

#[derive(Debug)]
struct Entry {
    name: OsString,
    account: Account,
    /// Number of the last listing in which the file was found.
    listing: u64,
    file: Found,
}

#[derive(Debug)]
enum Found {
    Read(Box<Read>),
    /// An ignored file: it is invalid or could not be removed. The value is the time of its last change.
    Left(Stamp),
}

#[derive(Debug)]
struct Read {
    reader: Reader,
    /// Whether the file stays open. Other files are opened for each read.
    stays_open: bool,
    /// The process identifier, or 0 if it may be that of another process on this host.
    process: u32,
    /// Time of the last check whether the process has exited, and its result.
    looked: Option<Instant>,
    is_abandoned: bool,
    /// Whether the last read reached the end of the file. Otherwise the next one continues.
    is_whole: bool,
    missed: u64,
    left_out: u64,
    /// Bytes of memory for which the user is charged.
    charged: u64,
    /// The pass in which the file was last read.
    pass: u64,
    /// The file existed when the agent started. Its contents count in totals, but not in rates.
    old: bool,
}

/// Device and inode numbers.
type Identity = (u64, u64);
/// Time of the last change: seconds and nanoseconds.
type Stamp = (i64, i64);

impl Processes {
    pub(crate) fn open(path: PathBuf, base: PathBuf, limits: &Limits) -> io::Result<Processes> {
        let search = Search::open(path, base)?;
        let table = Table {
            files: HashMap::new(),
            accounts: Accounts::new(),
            count: limits::quota("files of processes", limits.files_each, limits.files),
            memory: limits::quota("bytes of memory for files", limits.memory_each, limits.memory),
            file_memory: limits.file_memory,
            refused: Default::default(),
            bad: 0,
            open: 0,
            most_open: limits.open_files,
        };
        Ok(Processes { search, table, read: Instant::now(), is_left: false, listed: None, missed: 0, passes: 0 })
    }

    /// Readable when there is a new file. `None` while looking for new files is suspended.
    pub(crate) fn watch(&self, now: Instant) -> Option<&Inotify> {
        self.search.watch(now)
    }

    /// Returns the time at which `go_on` is due next.
    pub(crate) fn due(&self, now: Instant, events: &Events, tags: &Tags) -> Instant {
        let regularly = self.regularly(events, tags);
        self.search.due(now).map_or(regularly, |search| search.min(regularly))
    }

    /// Returns when files are due to be read: at the latest at the end of a bucket.
    fn regularly(&self, events: &Events, tags: &Tags) -> Instant {
        if self.search.is_watched() && self.table.files.is_empty() {
            return self.read + STALE;
        }
        let interval = if self.is_left { LEFT } else { PERIOD };
        let regularly = self.read + if events.are_wanted() { OFTEN } else { interval };
        let bucket = tags.window().end_of_bucket().filter(|end| *end > self.read);
        bucket.map_or(regularly, |bucket| bucket.min(regularly))
    }

    pub(crate) fn count(&self) -> usize {
        self.table.read_ones().count()
    }

    pub(crate) fn threads(&self) -> usize {
        self.table.read_ones().map(|read| read.reader.lanes()).sum()
    }

    /// Returns the number of trace events for which files had no room.
    pub(crate) fn missed(&self) -> u64 {
        self.missed
    }

    /// Returns the numbers of files beyond the limits, of invalid files, and of tags and sums for which there was no memory.
    pub(crate) fn left_out(&self) -> [u64; 3] {
        let Table { count, bad, memory, .. } = &self.table;
        [count.refused(), *bad, memory.refused()]
    }

    /// Looks for new files, and reads all files if they are due.
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

    /// Reads the new events in all files.
    pub(crate) fn read(&mut self, tags: &mut Tags, events: &mut Events) {
        let now = Instant::now();
        if self.listed.is_none_or(|listed| now - listed >= LISTED) {
            self.search.list();
            self.listed = Some(now);
        }
        self.look(now);
        // Trace events since the last read happened, on average, in the middle of that time.
        let when = self.read + (now - self.read) / 2;
        self.read = now;
        self.passes += 1;
        self.is_left = false;
        let Table { files, memory, file_memory, .. } = &mut self.table;
        let (search, file_memory) = (&self.search, *file_memory);
        let mut pass = Pass { now, when, search, tags, events, memory, file_memory, missed: 0, is_left: false };
        let (start, mut ended) = (processor_time(), Vec::new());
        for (identity, account, name, read) in in_turn(files) {
            if processor_time().saturating_sub(start) > PASS {
                self.is_left = true;
                break;
            }
            read.pass = self.passes;
            match pass.read(account, name, read) {
                Outcome::Stays => {}
                Outcome::Ended => ended.push((identity, None)),
                Outcome::Bad(e) => ended.push((identity, Some(e))),
            }
        }
        self.missed = self.missed.saturating_add(pass.missed);
        self.is_left |= pass.is_left;
        for (identity, error) in ended {
            match error {
                Some(e) => self.table.leave(&self.search, identity, &e),
                None => self.table.end(&self.search, identity),
            }
        }
        events.publish();
    }
}

/// A pass over the files.
struct Pass<'a> {
    now: Instant,
    /// Time at which the new trace events happened, on average.
    when: Instant,
    search: &'a Search,
    tags: &'a mut Tags,
    events: &'a mut Events,
    memory: &'a mut Quota<Account>,
    /// Memory for one file, in bytes.
    file_memory: u64,
    /// New trace events for which files had no room.
    missed: u64,
    /// Whether a file was read in part.
    is_left: bool,
}

/// What becomes of a file that was read.
enum Outcome {
    Stays,
    /// Its process has exited.
    Ended,
    Bad(ReadError),
}

impl Pass<'_> {
    /// Reads the new events of a file.
    fn read(&mut self, account: Account, name: &OsStr, read: &mut Read) -> Outcome {
        let room = self.memory.room(&account).saturating_add(read.charged).min(self.file_memory);
        read.reader.limit_memory(usize::try_from(room).unwrap_or(usize::MAX));
        if !read.open(self.search, name) {
            return Outcome::Stays;
        }
        // A process that has exited before this writes no more. Its file is read for the last time, and then removed.
        if read.is_whole {
            read.is_abandoned = read.is_abandoned || read.look(self.now);
        }
        let done = read.read_sums(account, self.when, self.tags).and_then(|missed| {
            self.events.read(account, &mut read.reader, read.process)?;
            Ok(missed)
        });
        self.is_left |= !read.is_whole;
        // The reader may exceed its limit by a little.
        let bytes = (read.reader.memory() as u64).min(room);
        if self.memory.try_exchange(&account, read.charged, bytes).is_ok() {
            read.charged = bytes;
        }
        let has_ended = read.is_whole && (read.is_abandoned || read.reader.is_ended());
        if !has_ended && !read.stays_open {
            read.reader.close();
        }
        match done {
            Ok(missed) => {
                self.missed = self.missed.saturating_add(missed);
                let more = read.more_left_out();
                if more > 0 {
                    self.memory.refuse(&account, more);
                }
            }
            Err(e) if e.is_passing() => debug!("{}: {e}: retried later", Path::new(name).display()),
            Err(e) => return Outcome::Bad(e),
        }
        if has_ended { Outcome::Ended } else { Outcome::Stays }
    }
}

/// A file to read.
type ToRead<'a> = (Identity, Account, &'a OsStr, &'a mut Read);

/// Returns the files to read: one of each user, then a second one of each, and so on. The files of a user that were read
/// longest ago come first. So a user's files wait for at most as many files of each other user.
fn in_turn(files: &mut HashMap<Identity, Entry>) -> impl Iterator<Item = ToRead<'_>> {
    let mut to_read: Vec<ToRead<'_>> = files
        .iter_mut()
        .filter_map(|(identity, Entry { name, account, file, .. })| match file {
            Found::Read(read) => Some((*identity, *account, name.as_os_str(), &mut **read)),
            Found::Left(_) => None,
        })
        .collect();
    to_read.sort_by_key(|(.., read)| read.pass);
    let mut turns: HashMap<Account, u32> = HashMap::new();
    let mut to_read: Vec<(u32, ToRead<'_>)> = to_read
        .into_iter()
        .map(|file| {
            let turn = turns.entry(file.1).or_default();
            *turn += 1;
            (*turn, file)
        })
        .collect();
    to_read.sort_by_key(|(turn, _)| *turn);
    to_read.into_iter().map(|(_, file)| file)
}

impl Table {
    fn read_ones(&self) -> impl Iterator<Item = &Read> {
        self.files.values().filter_map(|entry| match &entry.file {
            Found::Read(read) => Some(&**read),
            Found::Left(_) => None,
        })
    }

    /// Handles a name in the directory, which may be of a new or a known file.
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
                // The file is not open, so its inode may have been reused for another file.
                Found::Left(before) if before != stamp(&stat) => self.forget(identity),
                Found::Left(_) if is_listed => return search.remove_unused(&name, &stat),
                _ => {
                    entry.name = name;
                    return;
                }
            }
        }
        let account = Account::User(self.accounts.charged(stat.st_uid));
        if self.count.check(&account, 1).is_err() {
            if is_listed {
                *self.refused[0].entry(account).or_default() += 1;
            }
            return;
        }
        match Read::new(search, &name, identity, is_listed && search.listings == 1) {
            Ok(mut read) => {
                debug!("process {}: {}", read.reader.process().pid, Path::new(&name).display());
                read.stays_open = self.open < self.most_open;
                self.open += u64::from(read.stays_open);
                if !read.stays_open {
                    read.reader.close();
                }
                self.insert(
                    identity,
                    Entry { name, account, listing: search.listings, file: Found::Read(Box::new(read)) },
                );
            }
            // The next listing handles it again.
            Err(e) if e.is_passing() || search.look_at(&name).is_err() => {
                debug!("{}: {e}: retried later", Path::new(&name).display());
            }
            Err(e) => {
                let file = Found::Left(stamp(&stat));
                self.insert(identity, Entry { name, account, listing: search.listings, file });
                self.say_bad(identity, &e);
            }
        }
    }

    fn insert(&mut self, identity: Identity, entry: Entry) {
        // `see` has checked that there is room.
        let _ = self.count.try_add(&entry.account, 1);
        self.files.insert(identity, entry);
    }

    fn say_bad(&mut self, identity: Identity, e: &ReadError) {
        let Some(Entry { name, account, .. }) = self.files.get(&identity) else { return };
        warn!(source = %account, "{}: {e}: file of {account} is ignored", Path::new(name).display());
        self.bad += 1;
    }

    /// Forgets files that no longer have a name. Open files are kept, and read until their process exits.
    fn end_listing(&mut self, listing: u64) {
        let gone = self.files.iter().filter(|(_, entry)| {
            entry.listing < listing && !matches!(&entry.file, Found::Read(read) if read.stays_open)
        });
        let gone: Vec<_> = gone.map(|(identity, _)| *identity).collect();
        gone.into_iter().for_each(|identity| self.forget(identity));
        let [now, before] = &mut self.refused;
        for (account, refused) in &*now {
            let more = refused.saturating_sub(before.get(account).copied().unwrap_or(0));
            if more > 0 {
                self.count.refuse(account, more);
            }
        }
        *before = std::mem::take(now);
    }

    /// Releases the memory and the descriptor of a file that is no longer read.
    fn give_back(&mut self, account: Account, file: &Found) {
        if let Found::Read(read) = file {
            self.memory.remove(&account, read.charged);
            self.open -= u64::from(read.stays_open);
        }
    }

    fn forget(&mut self, identity: Identity) {
        if let Some(Entry { account, file, .. }) = self.files.remove(&identity) {
            self.give_back(account, &file);
            self.count.remove(&account, 1);
        }
    }

    /// Ignores a file from now on, and logs why.
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

    /// Removes the file of an exited process. A file that has other names, or cannot be removed, is ignored from now
    /// on.
    fn end(&mut self, search: &Search, identity: Identity) {
        let Some(Entry { name, account, .. }) = self.files.get(&identity) else { return };
        let links = match search.look_at(name) {
            // The name may belong to another file by now.
            Ok(stat) if self::identity(&stat) == identity => stat.st_nlink,
            _ => 0,
        };
        let removed = if links > 0 { search.remove(name) } else { Ok(()) };
        if let Err(e) = removed.as_ref().or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(&()) } else { Err(e) })
        {
            info!(source = %account, "{}: {e}: file of {account} could not be removed", Path::new(name).display());
        } else if links < 2 {
            return self.forget(identity);
        }
        self.set_left(search, identity);
    }
}

impl Read {
    fn new(search: &Search, name: &OsStr, identity: Identity, old: bool) -> Result<Read, ReadError> {
        let mut reader = Reader::new(search.open_file(name)?)?;
        if reader.identity() != identity {
            // Another file has got the name in between.
            return Err(io::Error::from(io::ErrorKind::Interrupted).into());
        }
        let process = match reader.claim() {
            Claim::Own | Claim::Gone => reader.process().pid,
            Claim::Unknown => 0,
            Claim::Foreign => return Err(ReadError::Damaged("it names a process of another user")),
        };
        reader.limit_blocks(BLOCKS);
        Ok(Read {
            is_abandoned: false,
            is_whole: true,
            reader,
            stays_open: false,
            process,
            looked: None,
            missed: 0,
            left_out: 0,
            charged: 0,
            pass: 0,
            old,
        })
    }

    /// Opens the file if it is not open. Returns false if the name now belongs to another file. A listing then finds
    /// this file's new name.
    fn open(&mut self, search: &Search, name: &OsStr) -> bool {
        self.stays_open || search.open_file(name).and_then(|file| self.reader.reopen(file)).is_ok()
    }

    /// Returns whether the process has exited. Checks at intervals, and returns false in between.
    fn look(&mut self, now: Instant) -> bool {
        let is_due = self.looked.is_none_or(|looked| now - looked >= ALIVE);
        if is_due {
            self.looked = Some(now);
        }
        is_due && self.reader.is_abandoned()
    }

    /// Counts new trace events. Returns the number of new events for which the file had no room.
    fn read_sums(&mut self, account: Account, when: Instant, tags: &mut Tags) -> Result<u64, ReadError> {
        let when = if self.old { None } else { Some(when) };
        self.is_whole = self.reader.changes(|kind, tag, change| tags.change(account, kind, tag, &change, when))?;
        self.old &= !self.is_whole;
        let missed = self.reader.missed().saturating_sub(self.missed);
        self.missed += missed;
        Ok(missed)
    }

    /// Returns the number of tags and sums for which there was no memory since the previous call.
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
