//! Bytes of a file at any offset.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use pmapi::Error;

use super::compress::{Opened, decoder};
use crate::error::{ArchiveError, Result};

/// Largest decompressed file that is kept in memory; a larger one goes to a temporary file.
const IN_MEMORY: usize = 4 << 20;
/// Bytes that are decompressed at once.
const CHUNK: usize = 1 << 16;
/// `O_NONBLOCK`: opening a FIFO without a writer must not block.
const NON_BLOCKING: i32 = 0o4000;

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
}

fn open(path: &Path) -> io::Result<Opened> {
    let file = File::options().read(true).custom_flags(NON_BLOCKING).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "this is not a regular file"));
    }
    decoder(path, file)
}

/// Reads a file to its end, decompressed, at most `limit` bytes of a compressed one.
///
/// # Errors
/// `-errno` for a file that cannot be read; `PM_ERR_LOGREC` for damaged compressed data and for more than `limit` bytes.
pub(crate) fn whole(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let fail = |e: io::Error| ArchiveError::io(path, &e);
    let mut bytes = Vec::new();
    match open(path).map_err(fail)? {
        Opened::Plain(mut file) => {
            bytes.reserve_exact(file.metadata().map_err(fail)?.len() as usize);
            file.read_to_end(&mut bytes).map_err(fail)?;
        }
        Opened::Compressed(decoder) => {
            decoder.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(fail)?;
            check(path, bytes.len() as u64, limit)?;
        }
    }
    Ok(bytes)
}

fn check(path: &Path, len: u64, limit: u64) -> Result {
    if len <= limit {
        return Ok(());
    }
    let reason = format!("more than {limit} bytes after decompression, which is the limit");
    Err(ArchiveError::file(path, Error::LOGREC, reason))
}

impl Source {
    /// Opens a file. A compressed one is decompressed, into memory or an unnamed temporary file, `limit` bytes at most.
    ///
    /// # Errors
    /// Errors of [`whole`].
    pub(crate) fn open(path: &Path, limit: u64) -> Result<Source> {
        let fail = |e: io::Error| ArchiveError::io(path, &e);
        let data = match open(path).map_err(fail)? {
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

    /// Returns the length in bytes, now: an archive may grow.
    ///
    /// # Errors
    /// `-errno` for a file whose length cannot be read.
    pub(crate) fn len(&self) -> Result<u64> {
        match &self.data {
            Data::File(file) => Ok(file.metadata().map_err(|e| ArchiveError::io(&self.path, &e))?.len()),
            Data::Memory(bytes) => Ok(bytes.len() as u64),
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
