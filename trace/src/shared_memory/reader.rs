//! Reading files of event records. No word of a file is trusted.
//!
//! A file is read, never mapped: truncating it cannot end the reader's process.

use std::cell::Cell;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use thiserror::Error;

use super::file_lock::{Lock, flock};
use super::format::{CELL_WORDS, MAGIC, MAX_CELLS, MAX_LANES, MAX_RING_LEN, PAGE, VERSION, WORD, block, header};
use super::process::{Process, now};
use super::ring::{Consumer, Record, Source, room};

/// Largest number of blocks of a file.
const MAX_BLOCKS: usize = 1 << 13;

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

/// Reader of the event records of a process.
///
/// A reader allocates memory for the rings of the file, up to a [limit](Reader::limit_memory).
#[derive(Debug)]
pub struct Reader {
    /// `None` after [`Reader::close`].
    file: Option<File>,
    identity: (u64, u64),
    owner: u32,
    process: Process,
    /// Limit of the memory, in bytes.
    most: usize,
    /// Time of the last call of [`Reader::look`], and of the one before the last call of [`Reader::records`]: nanoseconds of
    /// `CLOCK_MONOTONIC`.
    looked: u64,
    read: u64,
    /// End of the known blocks, in bytes.
    end: u64,
    blocks: usize,
    ended: bool,
    /// Whether all blocks of the header are known, as far as there was memory.
    complete: bool,
    missed: u64,
    rings: Vec<Ring>,
}

thread_local! {
    /// Buffer for cells, which all readers of the thread share.
    static CELLS: Cell<Vec<u64>> = const { Cell::new(Vec::new()) };
}

#[derive(Debug)]
struct Ring {
    at: u64,
    consumer: Consumer,
    /// Number of cells written when it was looked at last.
    written: u64,
}

/// Bytes read at a time.
const HEADER_BYTES: usize = header::WORDS * WORD;
const BLOCK_BYTES: usize = block::WORDS * WORD;
/// Memory of a ring, in bytes.
const RING_MEMORY: usize = 2 * size_of::<Ring>();
/// Largest number of new blocks that a call reads.
const BLOCKS: usize = 256;

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
            most: usize::MAX,
            looked: 0,
            read: 0,
            end: PAGE as u64,
            blocks: 0,
            ended: false,
            complete: false,
            missed: 0,
            rings: Vec::new(),
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

    /// Limits the memory that the reader uses, in bytes. Records in rings beyond the limit are missed until there is
    /// memory.
    pub fn limit_memory(&mut self, bytes: usize) {
        self.most = bytes;
    }

    /// Returns the bytes of memory that the reader uses.
    pub fn memory(&self) -> usize {
        size_of::<Reader>() + self.rings.len() * RING_MEMORY
    }

    /// Returns whether the process had marked the file as ended at the last [look](Reader::look).
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Returns whether the last [look](Reader::look) has found all rings, as far as there is memory for them.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Returns the number of trace events that are not in the file, because it had no room.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Returns the number of lanes: the largest number of threads that have traced at the same time.
    pub fn lanes(&self) -> usize {
        self.rings.len()
    }

    /// Reads how much the process has written. [`Reader::records`] reads the records up to here, so that their tags can be
    /// read in between.
    ///
    /// # Errors
    /// [`ReadError`] if the file is closed, cannot be read, or is not valid.
    pub fn look(&mut self) -> Result<(), ReadError> {
        let file = opened(&self.file)?;
        let words = read_header(file)?;
        if words[header::PID] != u64::from(self.process.pid) || words[header::START] != self.process.start {
            return Err(ReadError::Damaged("process"));
        }
        let now = now();
        self.ended = words[header::ENDED] != 0;
        self.add_missed(words[header::MISSED], now);
        for _ in 0..BLOCKS {
            if self.end >= words[header::END] || self.memory() >= self.most {
                break;
            }
            self.add_block()?;
        }
        self.complete = self.end >= words[header::END] || self.memory() >= self.most;
        let file = opened(&self.file)?;
        for ring in &mut self.rings {
            ring.written = InFile { file, at: ring.at }.written()?;
        }
        self.looked = now;
        Ok(())
    }

    /// Calls `f` with each record that was written before the last [look](Reader::look) and is new, among the last
    /// `limit` cells of each lane. Returns the number of records missed.
    ///
    /// # Errors
    /// [`ReadError`] if the file is closed, cannot be read, or is not valid.
    pub fn records(&mut self, limit: u64, mut f: impl FnMut(&Record<'_>)) -> Result<u64, ReadError> {
        let (file, now) = (opened(&self.file)?, now());
        // A lane has at most one record in each nanosecond.
        let most_missed = now.saturating_sub(self.read);
        let mut missed = 0_u64;
        let mut words = CELLS.take();
        for ring in &mut self.rings {
            let file = InFile { file, at: ring.at };
            let done = ring.consumer.read(file, ring.written, limit, &mut words, |record| {
                let mut record = *record;
                (record.time, record.missed) = (record.time.min(now), record.missed.min(most_missed));
                missed = missed.saturating_add(record.missed);
                f(&record);
            });
            if let Err(e) = done {
                CELLS.set(words);
                return Err(e.into());
            }
        }
        CELLS.set(words);
        self.read = self.looked;
        Ok(missed)
    }

    /// Adopts the number of trace events without room, unless it has decreased, or increased by more than one in each
    /// nanosecond and lane.
    fn add_missed(&mut self, missed: u64, now: u64) {
        let most = now.saturating_sub(self.looked).saturating_mul(MAX_LANES as u64);
        if missed.checked_sub(self.missed).is_some_and(|more| more <= most) {
            self.missed = missed;
        }
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
        if words[block::KIND] == block::RING {
            if self.rings.len() == MAX_LANES || len > MAX_RING_LEN {
                return Err(ReadError::Damaged("rings"));
            }
            self.rings.push(Ring { at, consumer: Consumer::new(room(len as usize), MAX_CELLS), written: 0 });
        }
        self.end = end;
        Ok(())
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

fn opened(file: &Option<File>) -> io::Result<&File> {
    file.as_ref().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
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
