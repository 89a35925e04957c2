//! Reading files, of which nothing is trusted.
//!
//! A file is read, never mapped: whoever makes it shorter cannot hurt the reader.

use std::cell::Cell;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use thiserror::Error;

use super::format::{
    CELL_WORDS, MAGIC, MAX_CELLS, MAX_LANES, MAX_RING_LEN, MAX_SUMS, MAX_TAGS, PAGE, PER_BLOCK, SUM_WORDS, TAG_WORDS,
    VERSION, WORD, block, header,
};
use super::process::{Process, now};
use super::ring::{Consumer, Record, Source, room};
use super::sums::{Change, change};
use crate::protocol::{Kind, MAX_TAG};

/// The most blocks that are looked at.
const MAX_BLOCKS: usize = 1 << 14;

/// Why a file cannot be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The system says so; the file may be too short.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is no regular file.
    #[error("no regular file")]
    NotRegular,
    /// It is something else.
    #[error("not of a process that traces")]
    Magic,
    /// It is of another version.
    #[error("version {0}")]
    Version(u64),
    /// It contradicts itself.
    #[error("damaged: {0}")]
    Damaged(&'static str),
}

impl ReadError {
    /// Whether the system was short of something, so that a later attempt may succeed.
    pub fn is_passing(&self) -> bool {
        let ReadError::Io(e) = self else { return false };
        use nix::errno::Errno;
        let passing =
            [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::EAGAIN, Errno::EINTR, Errno::EIO, Errno::EBUSY];
        e.raw_os_error().is_some_and(|code| passing.contains(&Errno::from_raw(code)))
    }
}

/// What the process that a file names has to do with the file's owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// It runs, and is the owner's; or root is the owner.
    Own,
    /// It runs, and is another user's.
    Foreign,
    /// Another process has its number. It may have ended, or have another number in its own name space.
    Unknown,
    /// No process that is seen here has its number.
    Gone,
}

/// The file of a process. What is new in it since the last time is handed over each time.
///
/// A reader allocates memory for blocks, names of tags and sums that are there, up to a
/// [limit](Reader::limit_memory); holes of a file cost nothing.
#[derive(Debug)]
pub struct Reader {
    /// Nothing between two looks at a file that does not stay open.
    file: Option<File>,
    identity: (u64, u64),
    owner: u32,
    process: Process,
    /// Bytes that are allocated, and that may be.
    memory: usize,
    most: usize,
    /// Tags, and entries of sums, that found no room at the last look.
    left_out: [u64; 2],
    /// When sums and records were read last: nanoseconds of CLOCK_MONOTONIC.
    looked: u64,
    looked_at_records: u64,
    refreshed: u64,
    /// Where the blocks end that are known.
    end: u64,
    blocks: usize,
    ended: bool,
    missed: u64,
    /// The tags; nothing for those that make no sense.
    tags: Vec<Option<(Kind, Box<[u8]>)>>,
    /// Blocks of tags, by their numbers.
    names: Vec<u64>,
    rings: Vec<Ring>,
    sums: Vec<Sums>,
}

thread_local! {
    /// Cells of the ring that is read.
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
    /// What was there, up to the last entry that was not empty.
    before: Vec<[u64; SUM_WORDS]>,
}

/// Bytes that are read at once.
const HEADER_BYTES: usize = header::WORDS * WORD;
const BLOCK_BYTES: usize = block::WORDS * WORD;
const SUMS_BYTES: usize = PER_BLOCK * SUM_WORDS * WORD;
/// Bytes that a block costs, and a tag beside its name.
const BLOCK_MEMORY: usize = 2 * size_of::<Sums>();
const TAG_MEMORY: usize = 2 * size_of::<Option<(Kind, Box<[u8]>)>>();
const ENTRY_MEMORY: usize = SUM_WORDS * WORD;

impl Reader {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Reader, ReadError> {
        // What is no regular file must not block.
        let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC;
        Self::new(OpenOptions::new().read(true).custom_flags(flags).open(path)?)
    }

    /// An open file.
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
            looked: 0,
            looked_at_records: 0,
            refreshed: 0,
            end: PAGE as u64,
            blocks: 0,
            ended: false,
            missed: 0,
            tags: Vec::new(),
            names: Vec::new(),
            rings: Vec::new(),
            sums: Vec::new(),
        })
    }

    /// Closes the file until it is [opened](Reader::reopen) for another look.
    pub fn close(&mut self) {
        self.file = None;
    }

    /// Goes on with a file that was closed.
    ///
    /// # Errors
    /// `NotFound` when it is another file.
    pub fn reopen(&mut self, file: File) -> io::Result<()> {
        if identity(&file.metadata()?) != self.identity {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.file = Some(file);
        Ok(())
    }

    /// Returns the file's device and inode.
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Returns the user whose file it is.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Returns the process that the file names, which is to be believed as far as [`Reader::claim`] says.
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

    /// Whether the process has gone. It holds a lock on its file as long as it is there, and so does a child, until it ends
    /// or becomes another program. Without the lock it is the process with its number here, if that is the owner's.
    pub fn is_abandoned(&self) -> bool {
        let Ok(file) = opened(&self.file) else { return false };
        if file.try_lock_shared().is_err() {
            return false;
        }
        let _ = file.unlock();
        self.claim() != Claim::Own
    }

    /// Sets how many bytes of memory the reader may use. Tags and sums beyond that do not count.
    pub fn limit_memory(&mut self, bytes: usize) {
        self.most = bytes;
    }

    /// Returns the bytes of memory that the reader uses.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Returns the number of tags and entries of sums for which there was no memory at the last look.
    pub fn left_out(&self) -> u64 {
        self.left_out.iter().sum()
    }

    /// Whether the process has said, when it was looked at last, that nothing more comes.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Marks that are neither in sums nor in records, for want of room.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Lanes, which is as many as threads have marked something at the same time.
    pub fn lanes(&self) -> usize {
        self.rings.len()
    }

    /// Hands over what has come to each tag since the last time.
    pub fn changes(&mut self, mut f: impl FnMut(Kind, &[u8], Change)) -> Result<(), ReadError> {
        let start = now();
        self.refresh()?;
        self.left_out[1] = 0;
        let file = opened(&self.file)?;
        let mut words = [0; PER_BLOCK * SUM_WORDS];
        for sums in &mut self.sums {
            let known = self.tags.len().saturating_sub(sums.first).min(PER_BLOCK);
            let words = &mut words[..known * SUM_WORDS];
            read_words::<SUMS_BYTES>(file, sums.at + (block::WORDS * WORD) as u64, words)?;
            let (entries, _) = words.as_chunks::<SUM_WORDS>();
            let used = entries.iter().rposition(|entry| *entry != [0; SUM_WORDS]).map_or(0, |at| at + 1);
            sums.make_room(used, &mut self.memory, self.most);
            self.left_out[1] += used.saturating_sub(sums.before.len()) as u64;
            let now = now();
            let elapsed = now.saturating_sub(self.looked);
            for ((entry, before), tag) in
                entries.iter().zip(&mut sums.before).zip(self.tags.get(sums.first..).unwrap_or_default())
            {
                let Some(change) = change(before, entry, elapsed, now) else { continue };
                *before = *entry;
                if let Some((kind, name)) = tag {
                    f(*kind, name, change);
                }
            }
        }
        self.looked = start;
        Ok(())
    }

    /// Hands over the records that have come since the last time, those of the last `limit` cells of each lane, and
    /// gives the number of those that were not seen.
    pub fn records(&mut self, limit: u64, mut f: impl FnMut(Kind, &[u8], &Record<'_>)) -> Result<u64, ReadError> {
        let start = now();
        self.refresh()?;
        let file = opened(&self.file)?;
        let written = |ring: &Ring| InFile { file, at: ring.at }.written();
        let written: Vec<u64> = self.rings.iter().map(written).collect::<io::Result<_>>()?;
        // The tags of what has been written till then.
        self.refresh()?;
        let (file, now) = (opened(&self.file)?, now());
        // A lane has no more than one in a nanosecond.
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

    /// Sees what blocks and tags there are.
    fn refresh(&mut self) -> Result<(), ReadError> {
        let words = read_header(opened(&self.file)?)?;
        if words[header::PID] != u64::from(self.process.pid) || words[header::START] != self.process.start {
            return Err(ReadError::Damaged("process"));
        }
        self.ended = words[header::ENDED] != 0;
        self.add_missed(words[header::MISSED]);
        while self.end < words[header::END] {
            self.add_block()?;
        }
        let tags = usize::try_from(words[header::TAGS]).ok().filter(|tags| *tags <= MAX_TAGS);
        let tags = tags.ok_or(ReadError::Damaged("number of tags"))?;
        while self.tags.len() < tags && self.memory < self.most {
            self.add_tags(tags)?;
        }
        self.left_out[0] = tags.saturating_sub(self.tags.len()) as u64;
        Ok(())
    }

    /// Counts marks without room. A process cannot have so many more since the last look that it is one a nanosecond, for
    /// each of its threads.
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
        let end = end
            .filter(|_| len > 0 && len.is_multiple_of(PAGE as u64))
            .ok_or(ReadError::Damaged("length of a block"))?;
        self.blocks += 1;
        if self.blocks > MAX_BLOCKS {
            return Err(ReadError::Damaged("number of blocks"));
        }
        let first = usize::try_from(words[block::FIRST]).ok().filter(|first| *first < MAX_TAGS);
        let first = first.filter(|first| first.is_multiple_of(PER_BLOCK)).unwrap_or(usize::MAX);
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

    /// Reads tags up to a number, of one block.
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
    /// Keeps as many entries as are used, as far as there is memory, and none of a block that has become empty.
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

/// Reads words of a file, at most `BYTES` at a time.
fn read_words<const BYTES: usize>(file: &File, mut at: u64, words: &mut [u64]) -> io::Result<()> {
    let mut bytes = [0; BYTES];
    for words in words.chunks_mut(BYTES / WORD) {
        let bytes = &mut bytes[..words.len() * WORD];
        file.read_exact_at(bytes, at)?;
        words.iter_mut().zip(bytes.as_chunks().0).for_each(|(to, from)| *to = u64::from_ne_bytes(*from));
        at += bytes.len() as u64;
    }
    Ok(())
}

/// A ring in a file. A system call sees what another one before it saw, and all that came before that.
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
            into.extend(bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)));
            left -= bytes.len();
            at += bytes.len() as u64;
        }
        Ok(())
    }
}
