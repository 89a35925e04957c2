//! Writing the files of this process.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pcp_base::file::{Dir, Kept, stores_may_fail};

use super::agent::Agent;
use super::file_lock::{Lock, flock};
use super::format::{MAGIC, MAX_LANES, MAX_RING_LEN, MAX_TAGS, PAGE, VERSION, block, header, ring_name};
use super::map::{Id, Mapping};
use super::process::{Process, now};
use super::ring::{Mark, Producer, room};
use super::sums::{Entry, Sums};
use crate::protocol::Kind;

/// The files of this process. New threads and tags extend them.
#[derive(Debug)]
pub(crate) struct Writer {
    /// Identifier of the file, unique in the process; not 0.
    pub(crate) id: u32,
    pub(crate) process: Id,
    header: Mapping,
    /// Paths of both files, that of the event records first.
    paths: [PathBuf; 2],
    ring_len: usize,
    sums: Sums,
    grow: Mutex<Grow>,
}

#[derive(Debug)]
struct Grow {
    file: Kept<File>,
    end: u64,
    /// Earliest time of the next attempt to extend a file after a failure, in nanoseconds.
    rests: u64,
    tags: HashMap<(Kind, Box<str>), u32>,
    /// The sums of each tag.
    sums: Vec<Entry>,
    lanes: usize,
    /// Lanes of threads that have ended, for new threads.
    free: Vec<Lane>,
}

/// What one thread writes.
#[derive(Debug)]
pub(crate) struct Lane {
    number: u64,
    ring: Mapping,
    producer: Producer,
    /// The sums of the tags that the thread has used.
    sums: Vec<Option<Entry>>,
    ids: u64,
}

/// Delay after a failed attempt to extend the file, in nanoseconds: such an attempt takes long.
const REST: u64 = 1_000_000_000;

/// Bits of the counter in a transaction's identifier. The number of the lane is above them.
const ID_BITS: u32 = 30;

impl Writer {
    /// Makes the files of this process, if the agent of the directory `agent` runs.
    pub(crate) fn create(agent: &Agent, process: Id, ring_len: usize) -> io::Result<Writer> {
        let directory = agent.files().map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => io::Error::new(io::ErrorKind::NotFound, "no agent reads trace files"),
            _ => e,
        })?;
        static IDS: AtomicU32 = AtomicU32::new(1);
        let id = IDS.fetch_add(1, Relaxed);
        let own = Process::own().ok_or(io::ErrorKind::NotFound)?;
        // The time keeps names unique: an earlier program of this process, before an execve, or another copy of this
        // library may have made a file, too.
        let name = format!("trace{}_{id}_{:x}", own.pid, now());
        let ring = ring_name(OsStr::new(&name));
        let (file, header) = make_ring(&directory, &ring, own)?;
        let sums = Sums::create(directory.path(), &name).map_err(|e| {
            _ = directory.remove(&ring);
            io_error(e)
        })?;
        let paths = [directory.path().join(ring), directory.path().join(name)];
        let grow = Grow {
            file,
            end: PAGE as u64,
            rests: 0,
            tags: HashMap::new(),
            sums: Vec::new(),
            lanes: 0,
            free: Vec::new(),
        };
        let ring_len = ring_len.clamp(PAGE, MAX_RING_LEN as usize).next_multiple_of(PAGE);
        Ok(Writer { id, process, header, paths, ring_len, sums, grow: Mutex::new(grow) })
    }

    fn lock(&self) -> MutexGuard<'_, Grow> {
        self.grow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of trace events that the process has counted.
    pub(crate) fn count(&self) -> u64 {
        self.lock().sums.iter().map(Entry::count).sum()
    }

    /// Obtains a lane for a thread: one that a thread has given back, or a new one.
    pub(crate) fn lane(&self) -> io::Result<Lane> {
        let mut grow = self.lock();
        if let Some(lane) = grow.free.pop() {
            return Ok(lane);
        }
        let number = grow.lanes;
        if number >= MAX_LANES {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let ring = grow.append(&self.header, self.ring_len, number)?;
        grow.lanes += 1;
        Ok(Lane { number: number as u64, ring, producer: Producer::new(room(self.ring_len)), sums: Vec::new(), ids: 0 })
    }

    /// Takes back the lane of a thread that has ended.
    pub(crate) fn give_back(&self, lane: Lane) {
        self.lock().free.push(lane);
    }

    /// Returns the number of a tag in these files, after adding the tag if it is new.
    pub(crate) fn tag(&self, kind: Kind, name: &str) -> io::Result<u32> {
        let grow = &mut *self.lock();
        let key = (kind, Box::from(name));
        if let Some(number) = grow.tags.get(&key) {
            return Ok(*number);
        }
        let number = grow.sums.len();
        if number >= MAX_TAGS {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        grow.check_rest()?;
        let number = number as u32;
        let sums = self.sums.add(kind, number, name).map_err(io_error).inspect_err(|_| grow.rest())?;
        grow.sums.push(sums);
        grow.tags.insert(key, number);
        Ok(number)
    }

    /// Counts a trace event for which the files have no room.
    pub(crate) fn missed(&self) {
        if let Some(missed) = self.header.words().get(header::MISSED) {
            missed.fetch_add(1, Relaxed);
        }
    }

    /// Marks the files as ended. The agent reads the rest and removes them; without an agent, this removes them.
    pub(crate) fn end(&self, has_agent: bool) {
        self.sums.flush();
        if let Some(ended) = self.header.words().get(header::ENDED) {
            ended.store(1, Release);
        }
        if !has_agent {
            self.paths.iter().for_each(|path| _ = fs::remove_file(path));
        }
    }

    /// Returns whether the program has closed the file. It stays mapped, but cannot be extended any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().file.get().is_err()
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.header.words().get(header::ENDED).is_some_and(|ended| ended.load(Relaxed) != 0)
    }
}

/// Makes the file of event records, and locks it. The lock shows the agent that the process lives. The file gets its mode
/// after that, so that no other user has taken the lock before.
fn make_ring(directory: &Dir, name: &OsStr, own: Process) -> io::Result<(Kept<File>, Mapping)> {
    let file = directory.new_file(name, 0o600)?;
    let made = Kept::new(file).and_then(|file| {
        let header = map_header(file.get()?)?;
        flock(file.get()?, Lock::LockExclusiveNonblock)?;
        let words = [MAGIC, VERSION, own.pid.into(), own.start, PAGE as u64];
        header.words().iter().zip(words).for_each(|(to, word)| to.store(word, Relaxed));
        // The file has the directory's group, which is the agent's. The umask does not apply to this mode.
        file.get()?.set_permissions(Permissions::from_mode(0o640))?;
        Ok((file, header))
    });
    made.inspect_err(|_| _ = directory.remove(name))
}

fn io_error(error: mmv::Error) -> io::Error {
    match error {
        mmv::Error::Io { source, .. } => source,
        error => io::Error::other(error),
    }
}

/// Maps the first page of a new file.
fn map_header(file: &File) -> io::Result<Mapping> {
    if stores_may_fail(file) {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "trace files are on a file system on which stores to mapped files can fail",
        ));
    }
    Mapping::append(file, 0, PAGE)
}

impl Grow {
    /// Appends a ring for the lane with this number, and then publishes it in the file's header.
    fn append(&mut self, file_header: &Mapping, len: usize, lane: usize) -> io::Result<Mapping> {
        self.check_rest()?;
        let ring =
            self.file.get().and_then(|file| Mapping::append(file, self.end, len)).inspect_err(|_| self.rest())?;
        let words = [block::RING, len as u64, lane as u64];
        ring.words().iter().zip(words).for_each(|(to, word)| to.store(word, Relaxed));
        self.end += len as u64;
        if let Some(end) = file_header.words().get(header::END) {
            end.store(self.end, Release);
        }
        Ok(ring)
    }

    fn check_rest(&self) -> io::Result<()> {
        if now() < self.rests { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn rest(&mut self) {
        self.rests = now() + REST;
    }
}

impl Lane {
    /// Returns a new identifier for a transaction.
    pub(crate) fn next_id(&mut self) -> u64 {
        self.ids = self.ids % ((1 << ID_BITS) - 1) + 1;
        self.number << ID_BITS | self.ids
    }

    /// Writes the record of a trace event, and adds it to the sums of its tag if it `counts`.
    #[inline]
    pub(crate) fn mark(&mut self, writer: &Writer, tag: u32, mark: &Mark<'_>, counts: bool) -> io::Result<()> {
        if counts {
            match self.sums.get(tag as usize) {
                Some(Some(sums)) => sums.add(mark.time, mark.value),
                _ => self.sums_of(writer, tag as usize)?.add(mark.time, mark.value),
            }
        }
        self.producer.write(self.ring.words(), tag, mark);
        Ok(())
    }

    #[cold]
    fn sums_of(&mut self, writer: &Writer, tag: usize) -> io::Result<&Entry> {
        let sums = writer.lock().sums.get(tag).cloned().ok_or(io::ErrorKind::NotFound)?;
        if self.sums.len() <= tag {
            self.sums.resize_with(tag + 1, || None);
        }
        Ok(self.sums[tag].insert(sums))
    }
}
