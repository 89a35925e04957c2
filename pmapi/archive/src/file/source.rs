//! Bytes of a file at any offset.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt as _};
use std::path::{Path, PathBuf};

use pcp_base::file::open;
use pmapi::Error;

#[cfg(feature = "xz")]
use super::compress::suffix;
use super::compress::{Opened, decoder};
#[cfg(feature = "xz")]
use super::xz::Blocks;
use crate::error::{ArchiveError, Result};

/// Largest decompressed file that is kept in memory; a larger one goes to a temporary file.
const IN_MEMORY: usize = 4 << 20;
/// Bytes that are decompressed at once.
const CHUNK: usize = 1 << 16;
/// Bytes of a file that are read into memory at once even if the file has fewer on the disk.
const SMALL: u64 = 64 << 20;
/// Largest ratio of a file's length to its size on the disk beyond [`SMALL`]. File systems that compress have a ratio
/// of up to 10.
const SPARSE: u64 = 16;
/// Bytes to which a compressed file of any length may be decompressed.
const EXPANDED: u64 = 64 << 20;
/// Largest ratio of a decompressed file's length to that of the file beyond [`EXPANDED`]. Values that never change have a
/// ratio of up to 1000.
const RATIO: u64 = 2000;
/// Bytes in a block of `st_blocks`.
const BLOCK: u64 = 512;

/// Open file, decompressed.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    data: Data,
}

#[derive(Debug)]
enum Data {
    File(File),
    Memory(Vec<u8>),
    /// Blocks that are decompressed when they are needed.
    #[cfg(feature = "xz")]
    Blocks(Blocks),
}

/// Checks that so many bytes of a file may be read into memory: the holes of a sparse file must not use it up.
fn check_holes(path: &Path, file: &File, wanted: u64) -> Result {
    if wanted <= SMALL {
        return Ok(());
    }
    let held = file.metadata().map_err(|e| ArchiveError::io(path, &e))?.blocks().saturating_mul(BLOCK);
    if wanted <= SMALL.max(held.saturating_mul(SPARSE)) {
        return Ok(());
    }
    let reason = format!("{wanted} bytes are to be read, but the file has only {held} on the disk");
    Err(ArchiveError::file(path, Error::LOGREC, reason))
}

/// File that is read into memory from its start: a plain file at once, a compressed one piece by piece, so that damage
/// ends the decompression.
pub(crate) struct Stream {
    path: PathBuf,
    /// Bytes that have been read and not discarded.
    bytes: Vec<u8>,
    /// Number of bytes before them.
    discarded: u64,
    /// Decoder of the rest, and the largest number of bytes of the whole file; `None` for a plain file.
    rest: Option<(Box<dyn Read>, u64)>,
}

impl Stream {
    /// Opens a file. A compressed one is decompressed to at most `limit` bytes.
    ///
    /// # Errors
    /// `-errno` for a file that cannot be read; `PM_ERR_LOGREC` for damaged compressed data, and for a large file that
    /// consists of holes.
    pub(crate) fn open(path: &Path, limit: u64) -> Result<Stream> {
        let fail = |e: io::Error| ArchiveError::io(path, &e);
        let file = open(path).map_err(fail)?;
        let limit = limit_of(&file, limit).map_err(fail)?;
        let mut bytes = Vec::new();
        let rest = match decoder(path, file).map_err(fail)? {
            Opened::Plain(file) => {
                let len = file.metadata().map_err(fail)?.len();
                check_holes(path, &file, len)?;
                bytes.reserve_exact(usize::try_from(len).unwrap_or_default());
                // What is written meanwhile counts at the next time.
                file.take(len).read_to_end(&mut bytes).map_err(fail)?;
                None
            }
            Opened::Compressed(decoder) => Some((decoder, limit)),
        };
        Ok(Stream { path: path.to_owned(), bytes, discarded: 0, rest })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the file is compressed.
    pub(crate) fn is_compressed(&self) -> bool {
        self.rest.is_some()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads more; returns whether there was more.
    ///
    /// # Errors
    /// `-errno` for a failed read; `PM_ERR_LOGREC` for damaged compressed data, and for more bytes than the limit.
    pub(crate) fn more(&mut self) -> Result<bool> {
        let Some((decoder, limit)) = &mut self.rest else { return Ok(false) };
        let read = decoder.take(CHUNK as u64).read_to_end(&mut self.bytes);
        let read = read.map_err(|e| ArchiveError::io(&self.path, &e))?;
        check(&self.path, self.discarded + self.bytes.len() as u64, *limit)?;
        Ok(read > 0)
    }

    /// Reads until `len` bytes are there, or the file ends.
    ///
    /// # Errors
    /// Errors of [`Stream::more`].
    pub(crate) fn fill(&mut self, len: usize) -> Result {
        while self.bytes.len() < len && self.more()? {}
        Ok(())
    }

    /// Discards bytes from the start.
    pub(crate) fn discard(&mut self, len: usize) {
        self.bytes.drain(..len.min(self.bytes.len()));
        self.discarded += len as u64;
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Returns the number of bytes to which a file may be decompressed, if that of any file is `limit`.
fn limit_of(file: &File, limit: u64) -> io::Result<u64> {
    Ok(limit.min(EXPANDED.max(file.metadata()?.len().saturating_mul(RATIO))))
}

fn check(path: &Path, len: u64, limit: u64) -> Result {
    if len <= limit {
        return Ok(());
    }
    let reason = format!("the file has more than {limit} bytes after decompression, which is the limit");
    Err(ArchiveError::file(path, Error::LOGREC, reason))
}

impl Source {
    /// Opens a file. A compressed file is decompressed into memory or an unnamed temporary file, to at most `limit`
    /// bytes. If it consists of several blocks with an index, blocks are decompressed when they are needed.
    ///
    /// # Errors
    /// `-errno` for a file that cannot be read; `PM_ERR_LOGREC` for damaged compressed data and for more than `limit`
    /// bytes.
    pub(crate) fn open(path: &Path, limit: u64) -> Result<Source> {
        let fail = |e: io::Error| ArchiveError::io(path, &e);
        let file = open(path).map_err(fail)?;
        #[cfg(feature = "xz")]
        if suffix(path) == "xz" {
            if let Some(blocks) = Blocks::open(&file).map_err(fail)? {
                check(path, blocks.len(), limit)?;
                return Ok(Source { path: path.to_owned(), data: Data::Blocks(blocks) });
            }
        }
        let limit = limit_of(&file, limit).map_err(fail)?;
        let data = match decoder(path, file).map_err(fail)? {
            Opened::Plain(file) => Data::File(file),
            Opened::Compressed(decoder) => Self::decompress(path, decoder, limit)?,
        };
        Ok(Source { path: path.to_owned(), data })
    }

    fn decompress(path: &Path, mut decoder: Box<dyn Read>, limit: u64) -> Result<Data> {
        let fail = |e: io::Error| ArchiveError::io(path, &e);
        let (mut memory, mut file, mut len) = (Vec::new(), None::<File>, 0);
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = match decoder.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => chunk.get(..read).unwrap_or_default(),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(fail(e)),
            };
            len += read.len() as u64;
            check(path, len, limit)?;
            if let Some(file) = &mut file {
                file.write_all(read).map_err(fail)?;
            } else if memory.len() + read.len() <= IN_MEMORY {
                memory.extend_from_slice(read);
            } else {
                let mut new = tempfile::tempfile().map_err(fail)?;
                new.write_all(&memory).and_then(|()| new.write_all(read)).map_err(fail)?;
                memory = Vec::new();
                file = Some(new);
            }
        }
        Ok(file.map_or(Data::Memory(memory), Data::File))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the present length in bytes. An archive may grow.
    ///
    /// # Errors
    /// `-errno` for a file whose length cannot be read.
    pub(crate) fn len(&self) -> Result<u64> {
        match &self.data {
            Data::File(file) => Ok(file.metadata().map_err(|e| ArchiveError::io(&self.path, &e))?.len()),
            Data::Memory(bytes) => Ok(bytes.len() as u64),
            #[cfg(feature = "xz")]
            Data::Blocks(blocks) => Ok(blocks.len()),
        }
    }

    /// Checks that so many bytes may be read at once.
    ///
    /// # Errors
    /// `PM_ERR_LOGREC` for a large number of bytes of a file that consists of holes.
    pub(crate) fn check_holes(&self, wanted: usize) -> Result {
        match &self.data {
            Data::File(file) => check_holes(&self.path, file, wanted as u64),
            _ => Ok(()),
        }
    }

    /// Reads bytes at an offset until `to` is full or the file ends, and returns their number.
    ///
    /// # Errors
    /// `-errno` for a failed read.
    pub(crate) fn read_at(&self, to: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        while let Some(rest) = to.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let read = match &self.data {
                Data::File(file) => file.read_at(rest, offset + done as u64),
                Data::Memory(bytes) => {
                    let mut from = bytes.get(offset as usize + done..).unwrap_or_default();
                    from.read(rest)
                }
                #[cfg(feature = "xz")]
                Data::Blocks(blocks) => blocks.read_at(rest, offset + done as u64),
            };
            match read {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => (),
                Err(e) => return Err(ArchiveError::io(&self.path, &e)),
            }
        }
        Ok(done)
    }
}
