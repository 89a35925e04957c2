//! Reading files, of which nothing is trusted.
//!
//! A file is read, never mapped: whoever makes it shorter cannot hurt the reader.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use thiserror::Error;

use super::format::{
    CELL_WORDS, MAGIC, MAX_CELLS, MAX_LANES, MAX_RING_LEN, MAX_SUMS, MAX_TAGS, PAGE, PER_BLOCK, SUM_WORDS, TAG_WORDS,
    VERSION, WORD, block, header,
};
use super::process::Process;
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

/// The file of a process. What is new in it since the last time is handed over each time.
#[derive(Debug)]
pub struct Reader {
    file: File,
    process: Process,
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
    words: Vec<u64>,
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
    /// What was there, if there was anything.
    before: Vec<[u64; SUM_WORDS]>,
}

impl Reader {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Reader, ReadError> {
        // What is no regular file must not block.
        let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC;
        Self::new(OpenOptions::new().read(true).custom_flags(flags).open(path)?)
    }

    /// An open file.
    pub fn new(file: File) -> Result<Reader, ReadError> {
        if !file.metadata()?.is_file() {
            return Err(ReadError::NotRegular);
        }
        let words = read_header(&file)?;
        let pid = u32::try_from(words[header::PID]).map_err(|_| ReadError::Damaged("process"))?;
        Ok(Reader {
            file,
            process: Process { pid, start: words[header::START] },
            end: PAGE as u64,
            blocks: 0,
            ended: false,
            missed: 0,
            tags: Vec::new(),
            names: Vec::new(),
            rings: Vec::new(),
            sums: Vec::new(),
            words: Vec::new(),
        })
    }

    /// The process that it is of.
    pub fn process(&self) -> Process {
        self.process
    }

    /// Whether the process has gone. One that is seen here under another number, or not at all, holds its file as long as it
    /// is there; so does a child, until it ends or becomes another program.
    pub fn is_abandoned(&self) -> bool {
        if self.process.is_alive() || self.file.try_lock_shared().is_err() {
            return false;
        }
        let _ = self.file.unlock();
        true
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
        self.refresh()?;
        let mut words = std::mem::take(&mut self.words);
        for sums in &mut self.sums {
            let known = self.tags.len().saturating_sub(sums.first).min(PER_BLOCK);
            let at = sums.at + (block::WORDS * WORD) as u64;
            words.clear();
            read(&self.file, at, known * SUM_WORDS, &mut words)?;
            let (entries, _) = words.as_chunks::<SUM_WORDS>();
            if sums.before.len() < known && entries.iter().flatten().any(|word| *word != 0) {
                sums.before.resize(known, [0; SUM_WORDS]);
            }
            for ((now, before), tag) in
                entries.iter().zip(&mut sums.before).zip(self.tags.get(sums.first..).unwrap_or_default())
            {
                let Some(change) = change(before, now) else { continue };
                *before = *now;
                if let Some((kind, name)) = tag {
                    f(*kind, name, change);
                }
            }
        }
        self.words = words;
        Ok(())
    }

    /// Hands over the records that have come since the last time, those of the last `limit` cells of each lane, and
    /// gives the number of those that were not seen.
    pub fn records(&mut self, limit: u64, mut f: impl FnMut(Kind, &[u8], &Record<'_>)) -> Result<u64, ReadError> {
        self.refresh()?;
        let file = &self.file;
        let written = |ring: &Ring| InFile { file, at: ring.at }.written();
        let written: Vec<u64> = self.rings.iter().map(written).collect::<io::Result<_>>()?;
        // The tags of what has been written till then.
        self.refresh()?;
        let mut missed = 0_u64;
        let mut words = std::mem::take(&mut self.words);
        for (ring, written) in self.rings.iter_mut().zip(written) {
            let file = InFile { file: &self.file, at: ring.at };
            let more = ring.consumer.read(file, written, limit, &mut words, |record| {
                if let Some(Some((kind, name))) = self.tags.get(record.tag as usize) {
                    f(*kind, name, record);
                }
            })?;
            missed = missed.saturating_add(more);
        }
        self.words = words;
        Ok(missed)
    }

    /// Sees what blocks and tags there are.
    fn refresh(&mut self) -> Result<(), ReadError> {
        let words = read_header(&self.file)?;
        if words[header::PID] != u64::from(self.process.pid) || words[header::START] != self.process.start {
            return Err(ReadError::Damaged("process"));
        }
        self.ended = words[header::ENDED] != 0;
        self.missed = words[header::MISSED];
        while self.end < words[header::END] {
            self.add_block()?;
        }
        let tags = usize::try_from(words[header::TAGS]).ok().filter(|tags| *tags <= MAX_TAGS);
        let tags = tags.ok_or(ReadError::Damaged("number of tags"))?;
        while self.tags.len() < tags {
            self.add_tags(tags)?;
        }
        Ok(())
    }

    fn add_block(&mut self) -> Result<(), ReadError> {
        let at = self.end;
        let mut words = Vec::with_capacity(block::WORDS);
        read(&self.file, at, block::WORDS, &mut words)?;
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
        self.end = end;
        Ok(())
    }

    /// Reads tags up to a number, of one block.
    fn add_tags(&mut self, up_to: usize) -> Result<(), ReadError> {
        let from = self.tags.len();
        let (number, entry) = (from / PER_BLOCK, from % PER_BLOCK);
        let at = *self.names.get(number).ok_or(ReadError::Damaged("tags without a block"))?;
        let count = (up_to - from).min(PER_BLOCK - entry);
        let mut bytes = vec![0; count * TAG_WORDS * WORD];
        self.file.read_exact_at(&mut bytes, at + ((block::WORDS + entry * TAG_WORDS) * WORD) as u64)?;
        self.tags.extend(bytes.chunks(TAG_WORDS * WORD).map(tag));
        Ok(())
    }
}

fn tag(entry: &[u8]) -> Option<(Kind, Box<[u8]>)> {
    let [kind, len, name @ ..] = entry else { return None };
    let name =
        name.get(..usize::from(*len)).filter(|name| (1..=MAX_TAG).contains(&name.len()) && !name.contains(&0))?;
    Some((Kind::from_number(*kind)?, name.into()))
}

fn read_header(file: &File) -> Result<[u64; header::WORDS], ReadError> {
    let mut words = Vec::with_capacity(header::WORDS);
    read(file, 0, header::WORDS, &mut words)?;
    let header: [u64; header::WORDS] = words.try_into().map_err(|_| ReadError::Magic)?;
    match header {
        [MAGIC, VERSION, ..] => Ok(header),
        [MAGIC, other, ..] => Err(ReadError::Version(other)),
        _ => Err(ReadError::Magic),
    }
}

/// Appends words of a file.
fn read(file: &File, at: u64, count: usize, into: &mut Vec<u64>) -> io::Result<()> {
    let mut bytes = [0; PAGE];
    let mut done = 0;
    while done < count {
        let part = (count - done).min(PAGE / WORD);
        let bytes = &mut bytes[..part * WORD];
        file.read_exact_at(bytes, at + (done * WORD) as u64)?;
        into.extend(bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)));
        done += part;
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
        read(self.file, self.at + ((block::WORDS + cell * CELL_WORDS) * WORD) as u64, count * CELL_WORDS, into)
    }
}
