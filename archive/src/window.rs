//! Records of a volume, read in either direction through a buffer.

use std::path::Path;
use std::sync::Arc;

use crate::decode::Version;
use crate::decode::record::{SLACK, shortest};
use crate::error::{ArchiveError, Bad, Result};
use crate::file::Source;

/// Bytes that are read at once after a change of position, and at most.
const FIRST: usize = 1 << 14;
const MOST: usize = 1 << 18;

/// Buffer over a volume.
#[derive(Debug)]
pub(crate) struct Window {
    source: Arc<Source>,
    version: Version,
    /// Memory of the buffer; only the first `filled` bytes are of the file.
    bytes: Vec<u8>,
    filled: usize,
    /// Offset of the buffer in the file.
    start: u64,
    /// Bytes to read at the next time.
    step: usize,
}

/// Place of a record in a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) at: u64,
    pub(crate) len: usize,
}

impl Span {
    pub(crate) fn end(self) -> u64 {
        self.at + self.len as u64
    }
}

/// Length of the field at both ends of a record.
const LEN: usize = 4;

/// Where the buffer is to be filled from when it lacks bytes.
#[derive(Clone, Copy)]
enum Toward {
    End,
    Start,
}

impl Window {
    pub(crate) fn new(source: Arc<Source>, version: Version) -> Window {
        Window { source, version, bytes: Vec::new(), filled: 0, start: 0, step: FIRST }
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    fn buffered(&self, at: u64, len: usize) -> Option<&[u8]> {
        let from = usize::try_from(at.checked_sub(self.start)?).ok()?;
        self.bytes.get(..self.filled)?.get(from..from.checked_add(len)?)
    }

    /// Returns `len` bytes of the buffer at an offset of the volume, fewer at its end.
    fn at(&self, at: u64, len: usize) -> &[u8] {
        let from = usize::try_from(at.saturating_sub(self.start)).unwrap_or(usize::MAX);
        let rest = self.bytes.get(..self.filled).and_then(|bytes| bytes.get(from..)).unwrap_or_default();
        rest.get(..len).unwrap_or(rest)
    }

    /// Returns bytes of the volume, fewer at its end.
    fn get(&mut self, at: u64, len: usize, toward: Toward) -> Result<&[u8]> {
        if self.buffered(at, len).is_none() {
            self.fill(at, len, toward)?;
        }
        Ok(self.at(at, len))
    }

    fn fill(&mut self, at: u64, len: usize, toward: Toward) -> Result {
        let is_near = at + MOST as u64 >= self.start && at <= self.start + (self.filled + MOST) as u64;
        self.step = if is_near && self.filled > 0 { (self.step * 2).min(MOST) } else { FIRST };
        // The buffer grows with what the file has, never with the length that a record claims.
        let left = usize::try_from(self.source.len()?.saturating_sub(at)).unwrap_or(usize::MAX);
        let (start, want) = match toward {
            Toward::End => (at, len.max(self.step).min(left)),
            Toward::Start => {
                let before = (self.step.saturating_sub(len) as u64).min(at);
                (at - before, (len.min(left)) + before as usize)
            }
        };
        // A record that begins in the buffer need not be read again.
        let kept = match usize::try_from(start.wrapping_sub(self.start)) {
            Ok(from) if from < self.filled => {
                self.bytes.copy_within(from..self.filled, 0);
                (self.filled - from).min(want)
            }
            _ => 0,
        };
        (self.start, self.filled) = (start, kept);
        if self.bytes.len() < want {
            self.bytes.resize(want, 0);
        }
        if let Some(rest) = self.bytes.get_mut(kept..want) {
            self.filled += self.source.read_at(rest, start + kept as u64)?;
        }
        Ok(())
    }

    fn bad(&self, at: u64, reason: impl Into<std::borrow::Cow<'static, str>>) -> ArchiveError {
        ArchiveError::at(self.source.path(), at, Bad::record(0, reason))
    }

    fn word(bytes: &[u8], from: usize) -> Option<u32> {
        bytes.get(from..)?.first_chunk().map(|word| u32::from_be_bytes(*word))
    }

    /// Finds the record that begins at an offset; `None` at the end of the volume.
    ///
    /// # Errors
    /// `PM_ERR_LOGREC` for a record that is cut or whose two lengths differ.
    pub(crate) fn after(&mut self, at: u64) -> Result<Option<Span>> {
        let base = at.saturating_sub(SLACK as u64);
        let head = (at - base) as usize;
        let Some(len) = Self::word(self.get(base, head + LEN, Toward::End)?, head) else { return Ok(None) };
        let len = self.check_len(at, len)?;
        let bytes = self.get(base, head + len, Toward::End)?;
        let (have, tail) = (bytes.len(), Self::word(bytes, head + len - LEN));
        if have < head + len {
            return Err(self.bad(at, format!("record of {len} bytes, but {} are left in the file", have - head)));
        }
        self.check_ends(at, len, tail)
    }

    /// Finds the record that ends at an offset; `None` at the start of the volume.
    ///
    /// # Errors
    /// `PM_ERR_LOGREC` for a record that is longer than what is before the offset, or whose two lengths differ.
    pub(crate) fn before(&mut self, end: u64) -> Result<Option<Span>> {
        let first = self.version.label_len() as u64;
        if end <= first {
            return Ok(None);
        }
        let tail = end - LEN as u64;
        let Some(len) = Self::word(self.get(tail, LEN, Toward::Start)?, 0) else {
            return Err(self.bad(tail, "the file ends before the end of the record"));
        };
        let len = self.check_len(tail, len)?;
        let Some(at) = end.checked_sub(len as u64).filter(|at| *at >= first) else {
            return Err(self.bad(tail, format!("record of {len} bytes begins before the first record")));
        };
        let base = at - SLACK as u64;
        let head = Self::word(self.get(base, SLACK + len, Toward::Start)?, SLACK);
        self.check_ends(at, len, head)
    }

    fn check_len(&self, at: u64, len: u32) -> Result<usize> {
        match usize::try_from(len as i32) {
            Ok(len) if len >= shortest(self.version) => Ok(len),
            _ => Err(self.bad(at, format!("record of {} bytes", len as i32))),
        }
    }

    fn check_ends(&self, at: u64, len: usize, other: Option<u32>) -> Result<Option<Span>> {
        match other {
            Some(other) if other as usize == len => Ok(Some(Span { at, len })),
            _ => Err(self.bad(at, "the two lengths of the record differ")),
        }
    }

    /// Returns the bytes of a record that was found last, from [`SLACK`] bytes before it on, and the path of the file.
    pub(crate) fn bytes(&mut self, span: Span) -> Result<(&[u8], &Path)> {
        let (at, len) = (span.at.saturating_sub(SLACK as u64), SLACK + span.len);
        if self.buffered(at, len).is_none() {
            self.fill(at, len, Toward::End)?;
        }
        Ok((self.at(at, len), self.source.path()))
    }
}
