//! Reading files of processes. No word of a file is trusted.
//!
//! A file is read, never mapped: truncating it cannot end the reader's process.

use std::cell::Cell;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use thiserror::Error;

use super::file_lock::{Lock, flock};
use super::format::{
    CELL_WORDS, MAGIC, MAX_CELLS, MAX_LANES, MAX_RING_LEN, MAX_SUMS, MAX_TAGS, PAGE, PER_BLOCK, SUM_WORDS, TAG_WORDS,
    VERSION, WORD, block, header,
};
use super::process::{Process, now};
use super::ring::{Consumer, Record, Source, room};
use super::sums::{Change, change};
use crate::protocol::{Kind, MAX_TAG};

/// Largest number of blocks of a file.
const MAX_BLOCKS: usize = 1 << 14;

/// Error of reading a file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Error of the system. The file may be too short.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Not a regular file.
    #[error("not a regular file")]
    NotRegular,
    /// The file does not begin with `PCPTRACE`.
    #[error("not a trace file")]
    Magic,
    /// Unsupported version of the format.
    #[error("unsupported version {0}")]
    Version(u64),
    /// Contents that contradict the format.
    #[error("damaged: {0}")]
    Damaged(&'static str),
}

impl ReadError {
    /// Returns whether a later attempt may succeed: the system was short of memory or descriptors, or busy.
    pub fn is_passing(&self) -> bool {
        let ReadError::Io(e) = self else { return false };
        use nix::errno::Errno;
        let passing =
            [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::EAGAIN, Errno::EINTR, Errno::EIO, Errno::EBUSY];
        e.raw_os_error().is_some_and(|code| passing.contains(&Errno::from_raw(code)))
    }
}

/// Relation between the file's owner and the process that the file names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// The process runs. It belongs to the owner of the file, or this owner is root.
    Own,
    /// The process runs, and belongs to another user.
    Foreign,
    /// Another process has this number now, because the process has ended or belongs to another PID namespace.
    Unknown,
    /// No visible process has this number.
    Gone,
}

/// Reader of the file of a process. Each call returns the changes since the previous call.
///
/// A reader allocates memory for the blocks, tags and used sums of the file, up to a [limit](Reader::limit_memory).
/// Holes of a sparse file cost no memory.
#[derive(Debug)]
pub struct Reader {
    /// `None` after [`Reader::close`].
    file: Option<File>,
    identity: (u64, u64),
    owner: u32,
    process: Process,
    /// Bytes allocated, and their limit.
    memory: usize,
    most: usize,
    /// Tags, and entries of sums, for which there was no memory when the file was last read.
    left_out: [u64; 2],
    /// Largest number of blocks that a call reads.
    most_blocks: usize,
    /// The block of sums with which the next call continues, and the entries left out so far in this round.
    next: usize,
    left_out_so_far: u64,
    /// Times at which the last two rounds of reading sums began, of the last reads of records, and of the header:
    /// nanoseconds of `CLOCK_MONOTONIC`.
    looked: [u64; 2],
    looked_at_records: u64,
    refreshed: u64,
    /// End of the known blocks, in bytes.
    end: u64,
    blocks: usize,
    /// Whether the header marks the file as ended, and whether it did when the current round began.
    marked: bool,
    ended: bool,
    /// Whether all blocks and tags of the header are known, as far as there was memory.
    complete: bool,
    missed: u64,
    /// The tags. `None` stands for an invalid tag.
    tags: Vec<Option<(Kind, Box<[u8]>)>>,
    /// Offsets of the blocks of tags, in bytes.
    names: Vec<u64>,
    rings: Vec<Ring>,
    sums: Vec<Sums>,
}

thread_local! {
    /// Buffer for cells, which all readers of the thread share.
    static CELLS: Cell<Vec<u64>> = const { Cell::new(Vec::new()) };
}

#[derive(Debug)]
struct Ring {
    at: u64,
    consumer: Consumer,
}

#[derive(Debug)]
struct Sums {
    at: u64,
    first: usize,
    /// Entries when they were last read, up to the last one that was not empty.
    before: Vec<[u64; SUM_WORDS]>,
}

/// Bytes read at a time.
const HEADER_BYTES: usize = header::WORDS * WORD;
const BLOCK_BYTES: usize = block::WORDS * WORD;
const SUMS_BYTES: usize = PER_BLOCK * SUM_WORDS * WORD;
/// Memory of a block, and of a tag without its name, in bytes.
const BLOCK_MEMORY: usize = 2 * size_of::<Sums>();
const TAG_MEMORY: usize = 2 * size_of::<Option<(Kind, Box<[u8]>)>>();
const ENTRY_MEMORY: usize = SUM_WORDS * WORD;

impl Reader {
    /// Opens a file. It must be a regular one: symbolic links are not followed, and a FIFO does not block.
    ///
    /// # Errors
    /// Errors of [`Reader::new`], and [`ReadError::Io`] if the file cannot be opened.
    pub fn open(path: &Path) -> Result<Reader, ReadError> {
        // Opening a FIFO must not block.
        let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC;
        Self::new(OpenOptions::new().read(true).custom_flags(flags).open(path)?)
    }

    /// Creates a reader of an open file, and reads its header.
    ///
    /// # Errors
    /// [`ReadError`] if it is not a regular file, cannot be read, or its header is not valid.
    pub fn new(file: File) -> Result<Reader, ReadError> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(ReadError::NotRegular);
        }
        let words = read_header(&file)?;
        let pid = u32::try_from(words[header::PID]).map_err(|_| ReadError::Damaged("process"))?;
        Ok(Reader {
            file: Some(file),
            identity: identity(&metadata),
            owner: metadata.uid(),
            process: Process { pid, start: words[header::START] },
            memory: size_of::<Reader>(),
            most: usize::MAX,
            left_out: [0; 2],
            most_blocks: usize::MAX,
            next: 0,
            left_out_so_far: 0,
            looked: [0; 2],
            looked_at_records: 0,
            refreshed: 0,
            end: PAGE as u64,
            blocks: 0,
            marked: false,
            ended: false,
            complete: false,
            missed: 0,
            tags: Vec::new(),
            names: Vec::new(),
            rings: Vec::new(),
            sums: Vec::new(),
        })
    }

    /// Closes the file until it is [opened again](Reader::reopen). What was read is kept.
    pub fn close(&mut self) {
        self.file = None;
    }

    /// Continues with a file that was [closed](Reader::close) and opened again.
    ///
    /// # Errors
    /// `NotFound` if `file` has another [identity](Reader::identity), or an error of the system.
    pub fn reopen(&mut self, file: File) -> io::Result<()> {
        if identity(&file.metadata()?) != self.identity {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.file = Some(file);
        Ok(())
    }

    /// Returns the file's device and inode numbers.
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Returns the user identifier of the file's owner.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Returns the process that the file names. [`Reader::claim`] checks whether this can be true.
    pub fn process(&self) -> Process {
        self.process
    }

    /// Compares the file's owner with the process that it names.
    pub fn claim(&self) -> Claim {
        match Process::find(self.process.pid) {
            Some(found) if found != self.process => Claim::Unknown,
            Some(found) if self.owner == 0 || found.is_of(self.owner) => Claim::Own,
            Some(_) => Claim::Foreign,
            None => Claim::Gone,
        }
    }

    /// Returns whether the process has exited: the file is not locked, and its [claim](Reader::claim) is not
    /// [`Claim::Own`].
    ///
    /// The process holds the lock while it runs. A forked child holds it too, until it exits or calls execve(2). False
    /// while the reader is closed.
    pub fn is_abandoned(&self) -> bool {
        let Ok(file) = opened(&self.file) else { return false };
        if flock(file, Lock::LockSharedNonblock).is_err() {
            return false;
        }
        let _ = flock(file, Lock::Unlock);
        self.claim() != Claim::Own
    }

    /// Limits the memory that the reader uses, in bytes. Tags and sums beyond the limit are not counted until there is
    /// memory.
    pub fn limit_memory(&mut self, bytes: usize) {
        self.most = bytes;
    }

    /// Limits the number of blocks of each kind that a call of [`Reader::changes`] reads. The next call continues.
    pub fn limit_blocks(&mut self, blocks: usize) {
        self.most_blocks = blocks;
    }

    /// Returns the bytes of memory that the reader uses.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Returns the number of tags and entries of sums that exceeded the memory limit when they were last read.
    pub fn left_out(&self) -> u64 {
        self.left_out.iter().sum()
    }

    /// Returns whether the process had marked the file as ended when the current, or last, reading of all sums began.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Returns the number of trace events that are not in the file, because it had no room.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Returns the number of lanes: the largest number of threads that have traced at the same time.
    pub fn lanes(&self) -> usize {
        self.rings.len()
    }

    /// Calls `f` with each lane's change of each tag since the previous call. Returns whether all sums have been read since
    /// this returned true last; otherwise the next call continues, because of the [limit](Reader::limit_blocks).
    ///
    /// # Errors
    /// [`ReadError`] if the file is closed, cannot be read, or is not valid.
    pub fn changes(&mut self, mut f: impl FnMut(Kind, &[u8], Change)) -> Result<bool, ReadError> {
        let start = now();
        self.refresh()?;
        if self.next == 0 {
            self.looked = [self.looked[1], start];
            (self.left_out_so_far, self.ended) = (0, self.marked);
        }
        let file = opened(&self.file)?;
        let mut words = [0; PER_BLOCK * SUM_WORDS];
        for sums in self.sums.iter_mut().skip(self.next).take(self.most_blocks) {
            let known = self.tags.len().saturating_sub(sums.first).min(PER_BLOCK);
            let words = &mut words[..known * SUM_WORDS];
            read_words::<SUMS_BYTES>(file, sums.at + (block::WORDS * WORD) as u64, words)?;
            let entries = words.chunks_exact(SUM_WORDS);
            let used = entries.clone().rposition(|entry| entry != [0; SUM_WORDS]).map_or(0, |at| at + 1);
            sums.make_room(used, &mut self.memory, self.most);
            self.left_out_so_far += used.saturating_sub(sums.before.len()) as u64;
            let now = now();
            let elapsed = now.saturating_sub(self.looked[0]);
            for ((entry, before), tag) in entries
                .filter_map(<[u64]>::first_chunk)
                .zip(&mut sums.before)
                .zip(self.tags.get(sums.first..).unwrap_or_default())
            {
                let Some(change) = change(before, entry, elapsed, now) else { continue };
                *before = *entry;
                if let Some((kind, name)) = tag {
                    f(*kind, name, change);
                }
            }
        }
        self.next = self.next.saturating_add(self.most_blocks);
        let is_whole = self.next >= self.sums.len();
        if is_whole {
            (self.next, self.left_out[1]) = (0, self.left_out_so_far);
        }
        Ok(is_whole && self.complete)
    }

    /// Calls `f` with each new record among the last `limit` cells of each lane. Returns the number of records missed.
    ///
    /// # Errors
    /// [`ReadError`] if the file is closed, cannot be read, or is not valid.
    pub fn records(&mut self, limit: u64, mut f: impl FnMut(Kind, &[u8], &Record<'_>)) -> Result<u64, ReadError> {
        let start = now();
        self.refresh()?;
        let file = opened(&self.file)?;
        let written = |ring: &Ring| InFile { file, at: ring.at }.written();
        let written: Vec<u64> = self.rings.iter().map(written).collect::<io::Result<_>>()?;
        // Reads the tags of all records written so far.
        self.refresh()?;
        let (file, now) = (opened(&self.file)?, now());
        // A lane has at most one record in each nanosecond.
        let most_missed = now.saturating_sub(self.looked_at_records);
        let mut missed = 0_u64;
        let mut words = CELLS.take();
        for (ring, written) in self.rings.iter_mut().zip(written) {
            let file = InFile { file, at: ring.at };
            let done = ring.consumer.read(file, written, limit, &mut words, |record| {
                let mut record = *record;
                (record.time, record.missed) = (record.time.min(now), record.missed.min(most_missed));
                missed = missed.saturating_add(record.missed);
                if let Some(Some((kind, name))) = self.tags.get(record.tag as usize) {
                    f(*kind, name, &record);
                }
            });
            if let Err(e) = done {
                CELLS.set(words);
                return Err(e.into());
            }
        }
        CELLS.set(words);
        self.looked_at_records = start;
        Ok(missed)
    }

    /// Reads the header, and new blocks and tags.
    fn refresh(&mut self) -> Result<(), ReadError> {
        let words = read_header(opened(&self.file)?)?;
        if words[header::PID] != u64::from(self.process.pid) || words[header::START] != self.process.start {
            return Err(ReadError::Damaged("process"));
        }
        self.marked = words[header::ENDED] != 0;
        self.add_missed(words[header::MISSED]);
        for _ in 0..self.most_blocks {
            if self.end >= words[header::END] {
                break;
            }
            self.add_block()?;
        }
        let has_blocks = self.end >= words[header::END];
        let tags = usize::try_from(words[header::TAGS]).ok().filter(|tags| *tags <= MAX_TAGS);
        let tags = tags.ok_or(ReadError::Damaged("number of tags"))?;
        // The blocks of these tags may not be known yet.
        let known = if has_blocks { tags } else { tags.min(self.names.len() * PER_BLOCK) };
        for _ in 0..self.most_blocks {
            if self.tags.len() >= known || self.memory >= self.most {
                break;
            }
            self.add_tags(known)?;
        }
        let has_tags = self.tags.len() >= tags || self.memory >= self.most;
        self.complete = has_blocks && has_tags;
        self.left_out[0] = if self.complete { tags.saturating_sub(self.tags.len()) as u64 } else { 0 };
        Ok(())
    }

    /// Adopts the number of trace events without room, unless it has decreased, or increased by more than one in each
    /// nanosecond and lane.
    fn add_missed(&mut self, missed: u64) {
        let now = now();
        let most = now.saturating_sub(self.refreshed).saturating_mul(MAX_LANES as u64);
        if missed.checked_sub(self.missed).is_some_and(|more| more <= most) {
            self.missed = missed;
        }
        self.refreshed = now;
    }

    fn add_block(&mut self) -> Result<(), ReadError> {
        let at = self.end;
        let mut words = [0; block::WORDS];
        read_words::<BLOCK_BYTES>(opened(&self.file)?, at, &mut words)?;
        let len = words[block::LEN];
        let end = at.checked_add(len).filter(|end| *end <= i64::MAX as u64);
        let end = end.filter(|_| len > 0 && len % PAGE as u64 == 0).ok_or(ReadError::Damaged("length of a block"))?;
        self.blocks += 1;
        if self.blocks > MAX_BLOCKS {
            return Err(ReadError::Damaged("number of blocks"));
        }
        let first = usize::try_from(words[block::FIRST]).ok().filter(|first| *first < MAX_TAGS);
        let first = first.filter(|first| first % PER_BLOCK == 0).unwrap_or(usize::MAX);
        match words[block::KIND] {
            block::TAGS if first != self.names.len() * PER_BLOCK => return Err(ReadError::Damaged("order of tags")),
            block::TAGS => self.names.push(at),
            block::RING if self.rings.len() == MAX_LANES || len > MAX_RING_LEN => {
                return Err(ReadError::Damaged("rings"));
            }
            block::RING => self.rings.push(Ring { at, consumer: Consumer::new(room(len as usize), MAX_CELLS) }),
            block::SUMS if self.sums.len() == MAX_SUMS => return Err(ReadError::Damaged("number of sums")),
            block::SUMS if first == usize::MAX => return Err(ReadError::Damaged("first tag of sums")),
            block::SUMS => self.sums.push(Sums { at, first, before: Vec::new() }),
            _ => {}
        }
        self.memory += BLOCK_MEMORY;
        self.end = end;
        Ok(())
    }

    /// Reads more tags of one block, at most up to the number `up_to`.
    fn add_tags(&mut self, up_to: usize) -> Result<(), ReadError> {
        let from = self.tags.len();
        let (number, entry) = (from / PER_BLOCK, from % PER_BLOCK);
        let at = *self.names.get(number).ok_or(ReadError::Damaged("tags without a block"))?;
        let count = (up_to - from).min(PER_BLOCK - entry);
        let mut bytes = [0; PER_BLOCK * TAG_WORDS * WORD];
        let bytes = &mut bytes[..count * TAG_WORDS * WORD];
        opened(&self.file)?.read_exact_at(bytes, at + ((block::WORDS + entry * TAG_WORDS) * WORD) as u64)?;
        for entry in bytes.chunks(TAG_WORDS * WORD) {
            let tag = tag(entry);
            self.memory += TAG_MEMORY + tag.as_ref().map_or(0, |(_, name)| name.len());
            self.tags.push(tag);
        }
        Ok(())
    }
}

impl Sums {
    /// Extends the kept entries to all that are in use, if there is memory for them. Frees the entries of a block that
    /// became empty.
    fn make_room(&mut self, used: usize, memory: &mut usize, most: usize) {
        if used == 0 && !self.before.is_empty() {
            *memory -= self.before.len() * ENTRY_MEMORY;
            self.before = Vec::new();
        }
        let more = used.saturating_sub(self.before.len());
        if more > 0 && more * ENTRY_MEMORY <= most.saturating_sub(*memory) {
            *memory += more * ENTRY_MEMORY;
            self.before.reserve_exact(more);
            self.before.resize(used, [0; SUM_WORDS]);
        }
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

fn opened(file: &Option<File>) -> io::Result<&File> {
    file.as_ref().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

fn tag(entry: &[u8]) -> Option<(Kind, Box<[u8]>)> {
    let [kind, len, name @ ..] = entry else { return None };
    let name =
        name.get(..usize::from(*len)).filter(|name| (1..=MAX_TAG).contains(&name.len()) && !name.contains(&0))?;
    Some((Kind::from_number(*kind)?, name.into()))
}

fn read_header(file: &File) -> Result<[u64; header::WORDS], ReadError> {
    let mut words = [0; header::WORDS];
    read_words::<HEADER_BYTES>(file, 0, &mut words)?;
    match words {
        [MAGIC, VERSION, ..] => Ok(words),
        [MAGIC, other, ..] => Err(ReadError::Version(other)),
        _ => Err(ReadError::Magic),
    }
}

/// Returns the word of eight bytes.
fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

/// Reads words of a file, at most `BYTES` at a time.
fn read_words<const BYTES: usize>(file: &File, mut at: u64, words: &mut [u64]) -> io::Result<()> {
    let mut bytes = [0; BYTES];
    for words in words.chunks_mut(BYTES / WORD) {
        let bytes = &mut bytes[..words.len() * WORD];
        file.read_exact_at(bytes, at)?;
        words.iter_mut().zip(bytes.chunks_exact(WORD)).for_each(|(to, from)| *to = word(from));
        at += bytes.len() as u64;
    }
    Ok(())
}

/// A ring in a file. System calls order the reads: a later one sees at least what an earlier one saw.
struct InFile<'f> {
    file: &'f File,
    at: u64,
}

impl Source for InFile<'_> {
    fn written(&mut self) -> io::Result<u64> {
        let mut word = [0; WORD];
        self.file.read_exact_at(&mut word, self.at + (block::CELLS * WORD) as u64)?;
        Ok(u64::from_ne_bytes(word))
    }

    fn copy(&mut self, cell: usize, count: usize, into: &mut Vec<u64>) -> io::Result<()> {
        let mut bytes = [0; PAGE];
        let mut at = self.at + ((block::WORDS + cell * CELL_WORDS) * WORD) as u64;
        let mut left = count * CELL_WORDS * WORD;
        while left > 0 {
            let bytes = &mut bytes[..left.min(PAGE)];
            self.file.read_exact_at(bytes, at)?;
            into.extend(bytes.chunks_exact(WORD).map(word));
            left -= bytes.len();
            at += bytes.len() as u64;
        }
        Ok(())
    }
}
