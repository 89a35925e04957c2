//! Processes that trace through shared memory: reads the sums and event records in their files, and removes the files of
//! exited processes.
//!
//! Any user can put any file into the directory. The files with sums are found and read by a thread, within limits for
//! each user ([`Collection`]). Users take turns when there is no time to read all files.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mmv_reader::collection::{self, CollectedFile, Collection, Limit};
use pmda::limits::{Accounts, Quota, processor_time};
use trace::shared_memory::format::ring_name;
use trace::shared_memory::{Claim, ReadError, Reader};
use tracing::{debug, info, warn};

use crate::directory::{Files, file_of_ring};
use crate::events::Events;
use crate::limits::{self, Account, Limits};
use crate::sums::Sums;
use crate::tags::Tags;

/// Interval of reading files. It is shorter than the four epochs for which a file keeps shortest and longest times.
const PERIOD: Duration = Duration::from_secs(1);
/// Interval of reading files while a client reads event records.
const OFTEN: Duration = Duration::from_millis(50);
/// Interval after a pass that did not reach all files in its time.
const LEFT: Duration = Duration::from_millis(100);
/// Processor time of a pass over the files. Files that are not reached are read in the next pass.
const PASS: Duration = Duration::from_millis(8);
/// Interval of checks for exited processes, and of the directory.
const ALIVE: Duration = Duration::from_secs(1);

/// The processes of this host that trace through shared memory.
#[derive(Debug)]
pub(crate) struct Processes {
    files: Files,
    collection: Collection,
    limits: Limits,
    table: Table,
    /// Time at which files were last read.
    read: Instant,
    /// Whether the last pass did not reach some files in its time.
    is_left: bool,
    /// Time of the last check of the directory.
    checked: Option<Instant>,
    missed: u64,
    /// Number of passes over the files so far.
    passes: u64,
    /// What earlier collections have left out: files, invalid files, and files beyond the memory.
    left_out: [u64; 3],
}

/// Known files of processes.
#[derive(Debug)]
struct Table {
    /// Files by identity, because their users may rename them.
    files: HashMap<Identity, Entry>,
    /// Memory for event records, in bytes.
    memory: Quota<Account>,
    /// Processes that are ignored.
    bad: u64,
    /// Number of files with event records that stay open between reads, and its limit.
    open: u64,
    most_open: u64,
}

#[derive(Debug)]
struct Entry {
    file: CollectedFile,
    account: Account,
    /// Whether the collection has the file.
    is_collected: bool,
    /// `None` for a file that is ignored: it is not valid, or could not be removed.
    process: Option<Box<Process>>,
}

/// A process that is read.
#[derive(Debug)]
struct Process {
    sums: Sums,
    records: Reader,
    /// Name of the file with event records.
    name: OsString,
    /// Whether this file stays open. Other ones are opened for each read.
    stays_open: bool,
    /// The process identifier, or 0 if it may be that of another process on this host.
    number: u32,
    /// Time of the last check whether the process has exited, and its result.
    looked: Option<Instant>,
    is_abandoned: bool,
    missed: u64,
    /// Bytes of memory for which the user is charged.
    charged: u64,
    /// The pass in which the file was last read.
    pass: u64,
    /// The file existed when the agent started. Its contents count in totals, but not in rates.
    old: bool,
}

/// Device and inode numbers.
type Identity = (u64, u64);

impl Processes {
    pub(crate) fn open(path: PathBuf, base: PathBuf, limits: &Limits) -> io::Result<Processes> {
        let files = Files::open(path, base)?;
        let table = Table {
            files: HashMap::new(),
            memory: limits::quota("bytes of memory for event records", limits.memory_each / 4, limits.memory / 4),
            bad: 0,
            open: 0,
            most_open: limits.open_files - limits.open_files / 2,
        };
        let mut processes = Processes {
            collection: collection(files.files(), limits),
            files,
            limits: limits.clone(),
            table,
            read: Instant::now(),
            is_left: false,
            checked: None,
            missed: 0,
            passes: 0,
            left_out: [0; 3],
        };
        processes.collection.refresh_files();
        processes.find_files(true);
        Ok(processes)
    }

    /// Returns the time at which `go_on` is due next: at the latest at the end of a bucket.
    pub(crate) fn due(&self, events: &Events, tags: &Tags) -> Instant {
        let interval = if self.is_left { LEFT } else { PERIOD };
        let regularly = self.read + if events.are_wanted() { OFTEN } else { interval };
        let bucket = tags.window().end_of_bucket().filter(|end| *end > self.read);
        bucket.map_or(regularly, |bucket| bucket.min(regularly))
    }

    pub(crate) fn count(&self) -> usize {
        self.table.processes().count()
    }

    pub(crate) fn threads(&self) -> usize {
        self.table.processes().map(|process| process.records.lanes()).sum()
    }

    /// Returns the number of trace events for which files had no room.
    pub(crate) fn missed(&self) -> u64 {
        self.missed
    }

    /// Returns the numbers of files beyond the limits, of invalid files, and of files for which there was no memory.
    pub(crate) fn left_out(&self) -> [u64; 3] {
        let [files, bad, memory] = self.left_out_of_collection();
        [files, bad + self.table.bad, memory + self.table.memory.refused()]
    }

    fn left_out_of_collection(&self) -> [u64; 3] {
        let [files, bad, memory] = self.left_out;
        let own = |limit| self.collection.left_out(limit);
        [files + own(Limit::Files), bad + self.collection.bad_files(), memory + own(Limit::Memory) + own(Limit::Values)]
    }

    /// Reads the new events in all files, if that is due.
    pub(crate) fn go_on(&mut self, tags: &mut Tags, events: &mut Events) {
        if self.due(events, tags) <= Instant::now() {
            self.read(tags, events);
        }
    }

    /// Reads the new events in all files.
    pub(crate) fn read(&mut self, tags: &mut Tags, events: &mut Events) {
        let now = Instant::now();
        if self.checked.is_none_or(|checked| now - checked >= ALIVE) {
            self.checked = Some(now);
            self.check_directory();
        }
        // Trace events since the last read happened, on average, in the middle of that time.
        let when = self.read + (now - self.read) / 2;
        self.read = now;
        self.passes += 1;
        let (number, end) = (self.passes, processor_time() + PASS);
        // The thread reads files to which processes have added tags. Then these files are read a second time.
        for is_last in [false, true] {
            if self.collection.refresh_files() {
                // Files that the first pass finds were there before.
                self.find_files(number == 1);
            }
            let Table { files, memory, .. } = &mut self.table;
            let (opened, tags, events) = (&self.files, &mut *tags, &mut *events);
            let pass =
                Pass { now, when, number, is_last, end, opened, tags, events, memory, missed: 0, is_left: false };
            let Done { missed, is_left, are_current, ended } = pass.run(files);
            (self.missed, self.is_left) = (self.missed.saturating_add(missed), is_left);
            for (identity, outcome) in ended {
                match outcome {
                    Outcome::Bad(e) => self.table.ignore(identity, &e),
                    _ => self.table.end(&self.files, identity),
                }
            }
            if are_current {
                break;
            }
        }
        events.publish();
    }

    /// Creates the directory again if it was removed, and cleans it.
    fn check_directory(&mut self) {
        if self.files.ensure() {
            self.left_out = self.left_out_of_collection();
            self.collection = collection(self.files.files(), &self.limits);
        }
        let known: HashSet<&OsStr> =
            self.table.files.values().filter(|entry| entry.process.is_some()).map(|entry| entry.file.name()).collect();
        self.files.clean(|name| known.contains(name) || file_of_ring(name).is_some_and(|file| known.contains(&*file)));
    }

    /// Adopts the files of the collection.
    fn find_files(&mut self, is_first: bool) {
        let Table { files, .. } = &mut self.table;
        files.values_mut().for_each(|entry| entry.is_collected = false);
        for file in self.collection.files() {
            self.table.see(&self.files, file, is_first);
        }
        self.table.forget_gone(&self.files);
    }
}

/// Creates the collection of the files in a directory.
fn collection(path: &Path, limits: &Limits) -> Collection {
    /// Values of a tag: those of a transaction, and its instance.
    const VALUES: u64 = 11;
    let part = |bytes: u64| bytes - bytes / 4;
    let mut collection = Collection::of_files("trace", path);
    collection.keep_open(usize::try_from(limits.open_files / 2).unwrap_or(usize::MAX));
    collection.set_limits(collection::Limits {
        user_files: limits.files_each,
        user_memory: part(limits.memory_each),
        user_values: limits.names_each.saturating_mul(VALUES),
        files: limits.files,
        memory: part(limits.memory),
        values: limits.names.saturating_mul(VALUES),
        file_bytes: limits.file_memory,
    });
    let mut accounts = Accounts::new();
    collection.charge(move |uid| accounts.charged(uid));
    if let Err(e) = collection.watch() {
        warn!("no thread reads the files of processes, requests read them: {e}");
    }
    collection
}

/// A pass over the files.
struct Pass<'a> {
    now: Instant,
    /// Time at which the new trace events happened, on average.
    when: Instant,
    number: u64,
    /// Whether files are read that the thread has not read again.
    is_last: bool,
    /// Processor time at which the pass ends.
    end: Duration,
    opened: &'a Files,
    tags: &'a mut Tags,
    events: &'a mut Events,
    memory: &'a mut Quota<Account>,
    /// New trace events for which files had no room.
    missed: u64,
    /// Whether some files were not read, or not to their end.
    is_left: bool,
}

/// The result of a pass.
struct Done {
    missed: u64,
    is_left: bool,
    are_current: bool,
    /// Files that are not read any more.
    ended: Vec<(Identity, Outcome)>,
}

/// What becomes of a file.
enum Outcome {
    Stays,
    /// The process has added tags. The file is read once the thread has read them.
    Outdated,
    /// Its process has exited.
    Ended,
    Bad(ReadError),
}

impl Pass<'_> {
    fn run(mut self, files: &mut HashMap<Identity, Entry>) -> Done {
        let (mut ended, mut are_current) = (Vec::new(), true);
        for (identity, file, process) in in_turn(files, self.number) {
            if processor_time() > self.end {
                self.is_left = true;
                break;
            }
            let outcome = self.read(&file, process);
            match outcome {
                Outcome::Outdated => are_current = false,
                _ => process.pass = self.number,
            }
            if !matches!(outcome, Outcome::Stays | Outcome::Outdated) {
                ended.push((identity, outcome));
            }
        }
        Done { missed: self.missed, is_left: self.is_left, are_current, ended }
    }

    /// Reads the new events of a process.
    fn read(&mut self, file: &ToRead<'_>, process: &mut Process) -> Outcome {
        let room = self.memory.room(&file.account).saturating_add(process.charged);
        process.records.limit_memory(usize::try_from(room).unwrap_or(usize::MAX));
        if !process.open(self.opened) {
            return Outcome::Stays;
        }
        // A process that has exited before this writes no more. Its files are read for the last time, and then removed.
        process.is_abandoned = process.is_abandoned || process.look(self.now);
        let done = self.read_open(file, process);
        // The reader may exceed its limit by a little.
        let bytes = (process.records.memory() as u64).min(room);
        if self.memory.try_exchange(&file.account, process.charged, bytes).is_ok() {
            process.charged = bytes;
        }
        let outcome = done.unwrap_or_else(|e| match e {
            ReadError::Io(e) if e.kind() == io::ErrorKind::NotFound => {
                debug!("{}: {e}: retried later", Path::new(file.file.name()).display());
                Outcome::Stays
            }
            e if e.is_passing() => {
                debug!("{}: {e}: retried later", Path::new(file.file.name()).display());
                Outcome::Stays
            }
            e => Outcome::Bad(e),
        });
        if !process.stays_open {
            process.records.close();
        }
        outcome
    }

    fn read_open(&mut self, file: &ToRead<'_>, process: &mut Process) -> Result<Outcome, ReadError> {
        process.records.look()?;
        let when = if process.old { None } else { Some(self.when) };
        // Nothing reads a file again that the collection does not have any more.
        let waits = file.is_collected && !self.is_last;
        let (account, tags) = (file.account, &mut *self.tags);
        let is_current = process
            .sums
            .changes(file.file, waits, |kind, tag, change| tags.change(account, kind, tag, &change, when))?;
        if waits && !is_current {
            return Ok(Outcome::Outdated);
        }
        process.old = false;
        let missed = process.records.missed().saturating_sub(process.missed);
        process.missed += missed;
        self.missed = self.missed.saturating_add(missed);
        if file.is_collected && !is_current {
            self.is_left = true;
            return Ok(Outcome::Stays);
        }
        self.events.read(account, &mut process.records, &process.sums, process.number)?;
        self.is_left |= !process.records.is_complete();
        let has_ended = process.records.is_complete() && (process.is_abandoned || process.records.is_ended());
        Ok(if has_ended { Outcome::Ended } else { Outcome::Stays })
    }
}

/// A file to read.
#[derive(Clone, Copy)]
struct ToRead<'a> {
    file: &'a CollectedFile,
    account: Account,
    is_collected: bool,
}

/// Returns the files to read in a pass: one of each user, then a second one of each, and so on. The files of a user that
/// were read longest ago come first. So a user's files wait for at most as many files of each other user.
fn in_turn(
    files: &mut HashMap<Identity, Entry>,
    pass: u64,
) -> impl Iterator<Item = (Identity, ToRead<'_>, &mut Process)> {
    let to_read = files.iter_mut().filter_map(|(identity, entry)| {
        let Entry { file, account, is_collected, process } = entry;
        let process = process.as_deref_mut().filter(|process| process.pass < pass)?;
        Some((*identity, ToRead { file, account: *account, is_collected: *is_collected }, process))
    });
    let mut to_read: Vec<_> = to_read.collect();
    to_read.sort_by_key(|(.., process)| process.pass);
    let mut turns: HashMap<Account, u32> = HashMap::new();
    let mut to_read: Vec<_> = to_read
        .into_iter()
        .map(|file| {
            let turn = turns.entry(file.1.account).or_default();
            *turn += 1;
            (*turn, file)
        })
        .collect();
    to_read.sort_by_key(|(turn, _)| *turn);
    to_read.into_iter().map(|(_, file)| file)
}

impl Table {
    fn processes(&self) -> impl Iterator<Item = &Process> {
        self.files.values().filter_map(|entry| entry.process.as_deref())
    }

    /// Adopts a file of the collection, which may be new, known, or read again.
    fn see(&mut self, opened: &Files, file: CollectedFile, is_first: bool) {
        self.adopt_successor(opened, &file);
        if let Some(entry) = self.files.get_mut(&file.id()) {
            entry.is_collected = true;
            if entry.process.is_some() || entry.file.is_same(&file) {
                entry.file = file;
                return;
            }
        }
        let account = Account::User(file.account());
        let process = match Process::new(opened, &file, is_first) {
            Ok(mut process) => {
                debug!("process {}: {}", process.records.process().pid, Path::new(file.name()).display());
                process.stays_open = self.open < self.most_open;
                self.open += u64::from(process.stays_open);
                if !process.stays_open {
                    process.records.close();
                }
                Some(Box::new(process))
            }
            // Its process has just ended, or the next scan handles it again.
            Err(ReadError::Io(e)) if e.kind() == io::ErrorKind::NotFound => return,
            Err(e) if e.is_passing() => {
                debug!("{}: {e}: retried later", Path::new(file.name()).display());
                return;
            }
            Err(e) => {
                self.say_bad(&file, account, &e);
                None
            }
        };
        self.files.insert(file.id(), Entry { file, account, is_collected: true, process });
    }

    /// Continues with a file that a known process has written in place of a removed one: it has the same event records.
    fn adopt_successor(&mut self, opened: &Files, file: &CollectedFile) {
        if self.files.contains_key(&file.id()) {
            return;
        }
        let Ok(records) = opened.stat(&ring_name(file.name())).map(|stat| (stat.st_dev, stat.st_ino)) else { return };
        let is_of = |entry: &Entry| {
            let process = entry.process.as_deref();
            entry.file.owner() == file.owner() && process.is_some_and(|process| process.records.identity() == records)
        };
        let before = self.files.iter().find(|(_, entry)| is_of(entry)).map(|(identity, _)| *identity);
        if let Some(entry) = before.and_then(|before| self.files.remove(&before)) {
            if opened.stat(entry.file.name()).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == entry.file.id()) {
                _ = opened.remove(entry.file.name());
            }
            self.files.insert(file.id(), entry);
        }
    }

    fn say_bad(&mut self, file: &CollectedFile, account: Account, e: &ReadError) {
        warn!(source = %account, "{}: {e}: file of {account} is ignored", Path::new(file.name()).display());
        self.bad += 1;
    }

    /// Forgets files that the collection does not have any more, unless they stay open, or their names are still there: the
    /// collection may have them again, and nothing may be counted twice.
    fn forget_gone(&mut self, opened: &Files) {
        let has_name = |process: &Process| {
            let stat = opened.stat(&process.name);
            stat.is_ok_and(|stat| (stat.st_dev, stat.st_ino) == process.records.identity())
        };
        let stays = |entry: &Entry| {
            let process = entry.process.as_deref();
            entry.is_collected || process.is_some_and(|process| process.stays_open || has_name(process))
        };
        let gone: Vec<_> =
            self.files.iter().filter(|(_, entry)| !stays(entry)).map(|(identity, _)| *identity).collect();
        gone.into_iter().for_each(|identity| self.forget(identity));
    }

    fn forget(&mut self, identity: Identity) {
        if let Some(Entry { account, process, .. }) = self.files.remove(&identity) {
            self.give_back(account, process);
        }
    }

    /// Releases the memory and the descriptor of a process that is no longer read.
    fn give_back(&mut self, account: Account, process: Option<Box<Process>>) {
        if let Some(process) = process {
            self.memory.remove(&account, process.charged);
            self.open -= u64::from(process.stays_open);
        }
    }

    /// Ignores a file from now on, and logs why.
    fn ignore(&mut self, identity: Identity, e: &ReadError) {
        self.drop_process(identity);
        if let Some(Entry { file, account, .. }) = self.files.get(&identity) {
            self.say_bad(&file.clone(), *account, e);
        }
    }

    fn drop_process(&mut self, identity: Identity) {
        let Some(entry) = self.files.get_mut(&identity) else { return };
        let (account, process) = (entry.account, entry.process.take());
        self.give_back(account, process);
    }

    /// Removes the files of an exited process. A file that has other names, or cannot be removed, is ignored from now on.
    fn end(&mut self, opened: &Files, identity: Identity) {
        let Some(Entry { file, account, process, .. }) = self.files.get(&identity) else { return };
        let name = file.name();
        // A name may belong to another file by now.
        let links = |name: &OsStr, of: Identity| match opened.stat(name) {
            Ok(stat) if (stat.st_dev, stat.st_ino) == of => stat.st_nlink,
            _ => 0,
        };
        if let Some(process) = process.as_ref().filter(|p| links(&p.name, p.records.identity()) > 0) {
            _ = opened.remove(&process.name);
        }
        let links = links(name, identity);
        let removed = if links > 0 { opened.remove(name) } else { Ok(()) };
        match removed {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                info!(source = %account, "{}: {e}: file of {account} could not be removed", Path::new(name).display());
                self.drop_process(identity);
            }
            _ if links < 2 => self.forget(identity),
            _ => self.drop_process(identity),
        }
    }
}

impl Process {
    fn new(opened: &Files, file: &CollectedFile, old: bool) -> Result<Process, ReadError> {
        let name = ring_name(file.name());
        let records = Reader::new(opened.read(&name)?)?;
        if records.owner() != file.owner() {
            return Err(ReadError::Damaged("its event records belong to another user"));
        }
        let number = match records.claim() {
            Claim::Own | Claim::Gone => records.process().pid,
            Claim::Unknown => 0,
            Claim::Foreign => return Err(ReadError::Damaged("it names a process of another user")),
        };
        Ok(Process {
            sums: Sums::default(),
            records,
            name,
            stays_open: false,
            number,
            looked: None,
            is_abandoned: false,
            missed: 0,
            charged: 0,
            pass: 0,
            old,
        })
    }

    /// Opens the file with event records if it is not open. Returns false if the name now belongs to another file.
    fn open(&mut self, opened: &Files) -> bool {
        self.stays_open || opened.read(&self.name).and_then(|file| self.records.reopen(file)).is_ok()
    }

    /// Returns whether the process has exited. Checks at intervals, and returns false in between.
    fn look(&mut self, now: Instant) -> bool {
        let is_due = self.looked.is_none_or(|looked| now - looked >= ALIVE);
        if is_due {
            self.looked = Some(now);
        }
        is_due && self.records.is_abandoned()
    }
}
