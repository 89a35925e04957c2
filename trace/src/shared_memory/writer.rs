//! Writing the file of this process.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pmapi::file::{Kept, stores_may_fail};

use super::agent::Agent;
use super::file_lock::{Lock, flock};
use super::format::{
    MAGIC, MAX_LANES, MAX_RING_LEN, MAX_SUMS, MAX_TAGS, PAGE, PER_BLOCK, SUM_WORDS, SUMS_LEN, TAG_WORDS, TAGS_LEN,
    VERSION, WORD, Words as _, block, header,
};
use super::map::{Id, Mapping};
use super::process::{Process, now};
use super::ring::{Mark, Producer, room};
use super::sums;
use crate::protocol::Kind;

/// The file of this process. New threads and tags extend it.
#[derive(Debug)]
pub(crate) struct Writer {
    /// Identifier of the file, unique in the process; not 0.
    pub(crate) id: u32,
    pub(crate) process: Id,
    header: Mapping,
    path: PathBuf,
    ring_len: usize,
    grow: Mutex<Grow>,
}

#[derive(Debug)]
struct Grow {
    file: Kept<File>,
    end: u64,
    /// Earliest time of the next attempt to extend the file after a failure, in nanoseconds.
    rests: u64,
    tags: HashMap<(Kind, Box<[u8]>), u32>,
    /// The last block of tags.
    names: Option<Mapping>,
    lanes: usize,
    sums: usize,
    /// Lanes of threads that have ended, for new threads.
    free: Vec<Lane>,
}

/// The part of the file that one thread writes.
#[derive(Debug)]
pub(crate) struct Lane {
    number: u64,
    ring: Mapping,
    producer: Producer,
    /// Blocks of sums, in the order of the blocks of tags.
    sums: Vec<Option<Mapping>>,
    ids: u64,
}

/// Delay after a failed attempt to extend the file, in nanoseconds: such an attempt takes long.
const REST: u64 = 1_000_000_000;

/// Bits of the counter in a transaction's identifier. The number of the lane is above them.
const ID_BITS: u32 = 30;

impl Writer {
    /// Makes the file of this process, if the agent of the directory `agent` runs.
    pub(crate) fn create(agent: &Agent, process: Id, ring_len: usize) -> io::Result<Writer> {
        let directory = agent.files().map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => io::Error::new(io::ErrorKind::NotFound, "no agent reads trace files"),
            _ => e,
        })?;
        static IDS: AtomicU32 = AtomicU32::new(1);
        let id = IDS.fetch_add(1, Relaxed);
        let Process { pid, start } = Process::own().ok_or(io::ErrorKind::NotFound)?;
        // The time keeps names unique: an earlier program of this process, before an execve, or another copy of this
        // library may have made a file, too.
        let name = format!("{pid}.{id}.{:x}", now());
        let path = directory.path().join(&name);
        let (name, hidden) = (OsString::from(&name), OsString::from(format!(".{name}")));
        let file = directory.new_file(&hidden, 0o600)?;
        let file = Kept::new(file).inspect_err(|_| _ = directory.remove(&hidden))?;
        let made = file.get().and_then(|file| {
            let header = map_header(file)?;
            // The lock shows the agent that the process lives. Mode 0600 keeps other users from taking it before.
            flock(file, Lock::LockExclusiveNonblock)?;
            // The file has the directory's group, which is the agent's. The umask does not apply to this mode.
            file.set_permissions(Permissions::from_mode(0o640))?;
            let words = [MAGIC, VERSION, pid.into(), start, PAGE as u64];
            header.words().iter().zip(words).for_each(|(to, word)| to.store(word, Relaxed));
            directory.rename(&hidden, &name)?;
            Ok(header)
        });
        let header = made.inspect_err(|_| _ = directory.remove(&hidden))?;
        let grow = Grow {
            file,
            end: PAGE as u64,
            rests: 0,
            tags: HashMap::new(),
            names: None,
            lanes: 0,
            sums: 0,
            free: Vec::new(),
        };
        let ring_len = ring_len.clamp(PAGE, MAX_RING_LEN as usize).next_multiple_of(PAGE);
        Ok(Writer { id, process, header, path, ring_len, grow: Mutex::new(grow) })
    }

    fn lock(&self) -> MutexGuard<'_, Grow> {
        self.grow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handle of the file, for reading it in this process.
    pub(crate) fn file(&self) -> io::Result<File> {
        self.lock().file.get()?.try_clone()
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
        let ring = grow.append(&self.header, block::RING, self.ring_len, [number, 0])?;
        grow.lanes += 1;
        Ok(Lane { number: number as u64, ring, producer: Producer::new(room(self.ring_len)), sums: Vec::new(), ids: 0 })
    }

    /// Takes back the lane of a thread that has ended.
    pub(crate) fn give_back(&self, lane: Lane) {
        self.lock().free.push(lane);
    }

    /// Returns the number of a tag in this file, after adding the tag if it is new.
    pub(crate) fn tag(&self, kind: Kind, name: &[u8]) -> io::Result<u32> {
        let grow = &mut *self.lock();
        let key = (kind, Box::from(name));
        if let Some(number) = grow.tags.get(&key) {
            return Ok(*number);
        }
        let number = grow.tags.len();
        if number >= MAX_TAGS {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let at = number % PER_BLOCK;
        if at == 0 && grow.tags_end() <= number {
            grow.names = Some(grow.append(&self.header, block::TAGS, TAGS_LEN as usize, [0, number])?);
        }
        let names = grow.names.as_ref().ok_or(io::ErrorKind::NotFound)?.words();
        let mut entry = [0; TAG_WORDS * WORD];
        let head = [kind as u8, name.len() as u8];
        entry.iter_mut().zip(head.iter().chain(name)).for_each(|(to, from)| *to = *from);
        for (to, word) in
            (block::WORDS + at * TAG_WORDS..).zip(entry.chunks_exact(WORD).filter_map(<[u8]>::first_chunk))
        {
            names.store(to, u64::from_ne_bytes(*word), Relaxed);
        }
        self.header.words().store(header::TAGS, number as u64 + 1, Release);
        grow.tags.insert(key, number as u32);
        Ok(number as u32)
    }

    /// Counts a trace event for which the file has no room.
    pub(crate) fn missed(&self) {
        if let Some(missed) = self.header.words().get(header::MISSED) {
            missed.fetch_add(1, Relaxed);
        }
    }

    /// Marks the file as ended. The agent reads the rest and removes the file; without an agent, this removes it.
    pub(crate) fn end(&self, has_agent: bool) {
        self.header.words().store(header::ENDED, 1, Release);
        if !has_agent {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Returns whether the program has closed the file. It stays mapped, but cannot be extended any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().file.get().is_err()
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.header.words().load(header::ENDED, Relaxed) != 0
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
    /// Appends a block, and then publishes it in the file's header. `of` is the lane and the first tag.
    fn append(&mut self, file_header: &Mapping, kind: u64, len: usize, of: [usize; 2]) -> io::Result<Mapping> {
        let now = now();
        if now < self.rests {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let block = self
            .file
            .get()
            .and_then(|file| Mapping::append(file, self.end, len))
            .inspect_err(|_| self.rests = now + REST)?;
        let words = [kind, len as u64, of[0] as u64, of[1] as u64];
        block.words().iter().zip(words).for_each(|(to, word)| to.store(word, Relaxed));
        self.end += len as u64;
        file_header.words().store(header::END, self.end, Release);
        Ok(block)
    }

    /// Returns the number of the first tag beyond the blocks of tags.
    fn tags_end(&self) -> usize {
        self.tags.len().div_ceil(PER_BLOCK) * PER_BLOCK
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
    pub(crate) fn mark(
        &mut self,
        writer: &Writer,
        tag: u32,
        kind: Kind,
        mark: &Mark<'_>,
        counts: bool,
    ) -> io::Result<()> {
        if counts {
            let (at, entry) = (tag as usize / PER_BLOCK, tag as usize % PER_BLOCK);
            let sums: &[AtomicU64] = match self.sums.get(at) {
                Some(Some(sums)) => sums.words(),
                _ => self.add_sums(writer, at)?.words(),
            };
            sums::add(sums, block::WORDS + entry * SUM_WORDS, kind, mark.time, mark.value);
        }
        self.producer.write(self.ring.words(), tag, mark);
        Ok(())
    }

    #[cold]
    fn add_sums(&mut self, writer: &Writer, at: usize) -> io::Result<&Mapping> {
        let of = [self.number as usize, at * PER_BLOCK];
        let mut grow = writer.lock();
        if grow.sums >= MAX_SUMS {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let sums = grow.append(&writer.header, block::SUMS, SUMS_LEN as usize, of)?;
        grow.sums += 1;
        if self.sums.len() <= at {
            self.sums.resize_with(at + 1, || None);
        }
        Ok(self.sums[at].insert(sums))
    }
}
