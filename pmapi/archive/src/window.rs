//! Records of a volume, read in either direction through a buffer.

use std::path::Path;
use std::sync::Arc;

use crate::decode::Version;
use crate::decode::record::{HEAD, SLACK, shortest};
use crate::error::{ArchiveError, Bad, Result};
use crate::file::Source;
use crate::scan::{Bytes as _, Parts, Reading};

/// Shortest length of a record that is read in part. Shorter records are read whole, several at once.
const LONG: usize = 1 << 15;
/// Number of bytes read after a change of position, and the largest number read at once.
const FIRST: usize = 1 << 14;
const MOST: usize = 1 << 18;

/// Buffer over a volume.
#[derive(Debug)]
pub(crate) struct Window {
    source: Arc<Source>,
    version: Version,
    /// Memory of the buffer. Only the first `filled` bytes contain data.
    bytes: Vec<u8>,
    filled: usize,
    /// Offset of the buffer in the file.
    start: u64,
    /// Number of bytes that the next read requests.
    step: usize,
    /// Long record that is read in part.
    parts: Parts,
    /// Offset and length of the next record, known from the buffer before the record is read.
    next: Option<(u64, u32)>,
}

/// Part of a record that its reader needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extent {
    Whole,
    /// The time, and a few value sets.
    Few,
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
pub(crate) const LEN: usize = 4;

/// Direction in which the buffer is filled.
#[derive(Clone, Copy)]
enum Toward {
    End,
    Start,
}

impl Window {
    pub(crate) fn new(source: Arc<Source>, version: Version) -> Window {
        Window {
            source,
            version,
            bytes: Vec::new(),
            filled: 0,
            start: 0,
            step: FIRST,
            parts: Parts::default(),
            next: None,
        }
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
            self.read_on(at, len, toward)?;
        }
        Ok(self.at(at, len))
    }

    /// Fills the buffer. Reads more than the wanted bytes if reading continues at the last position.
    fn read_on(&mut self, at: u64, len: usize, toward: Toward) -> Result {
        let is_near = at + MOST as u64 >= self.start && at <= self.start + (self.filled + MOST) as u64;
        self.step = if is_near && self.filled > 0 { (self.step * 2).min(MOST) } else { FIRST };
        self.fill(at, len, toward)
    }

    fn fill(&mut self, at: u64, len: usize, toward: Toward) -> Result {
        // The buffer grows with the bytes that the file has, never with the length that a record claims.
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
                if from > 0 {
                    self.bytes.copy_within(from..self.filled, 0);
                }
                (self.filled - from).min(want)
            }
            _ => 0,
        };
        (self.start, self.filled) = (start, kept);
        if self.bytes.len() < want {
            self.source.check_holes(want)?;
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

    /// Reads a record whose length is known from the end of the long record before it. If this record is short, reads
    /// it and the length of the next record, but nothing beyond: a long record may follow. If this record is long,
    /// reads nothing.
    fn read_next(&mut self, at: u64, len: u32) -> Result<usize> {
        let (base, len) = (at.saturating_sub(SLACK as u64), self.check_len(at, len)?);
        if len < LONG && self.buffered(base, SLACK + LEN).is_none() {
            self.step = SLACK + len + LEN;
            self.fill(base, SLACK + LEN, Toward::End)?;
        }
        Ok(len)
    }

    /// Finds the record that begins at an offset; `None` at the end of the volume.
    ///
    /// # Errors
    /// `PM_ERR_LOGREC` for a record that is cut or whose two lengths differ.
    pub(crate) fn after(&mut self, at: u64, extent: Extent) -> Result<Option<Span>> {
        let base = at.saturating_sub(SLACK as u64);
        let head = (at - base) as usize;
        let known = match (extent, self.next.take()) {
            (Extent::Few, Some((next, len))) if next == at => Some(self.read_next(at, len)?),
            _ => None,
        };
        let len = match known.filter(|len| *len >= LONG) {
            Some(len) => len,
            None => match Self::word(self.get(base, head + LEN, Toward::End)?, head) {
                Some(len) => self.check_len(at, len)?,
                None => return Ok(None),
            },
        };
        if extent == Extent::Few && len >= LONG && self.buffered(base, head + len).is_none() {
            let mut ends = [0; 2 * LEN];
            let end = at + len as u64;
            let read = self.source.read_at(&mut ends, end - LEN as u64)?;
            if read < LEN {
                return Err(self.cut(at, len, self.source.len()?.saturating_sub(at)));
            }
            self.next = Self::word(&ends, LEN).filter(|_| read == ends.len()).map(|next| (end, next));
            return self.check_ends(at, len, Self::word(&ends, 0));
        }
        let bytes = self.get(base, head + len, Toward::End)?;
        let (have, tail) = (bytes.len(), Self::word(bytes, head + len - LEN));
        if have < head + len {
            return Err(self.cut(at, len, have.saturating_sub(head) as u64));
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

    fn cut(&self, at: u64, len: usize, have: u64) -> ArchiveError {
        self.bad(at, format!("record of {len} bytes, but {have} are left in the file"))
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

    /// Returns the bytes of a record that was found by the last search, from [`SLACK`] bytes before it on, and the path
    /// of the file.
    pub(crate) fn bytes(&mut self, span: Span) -> Result<(&[u8], &Path)> {
        let (at, len) = (span.at.saturating_sub(SLACK as u64), SLACK + span.len);
        if self.buffered(at, len).is_none() {
            self.read_on(at, len, Toward::End)?;
        }
        Ok((self.at(at, len), self.source.path()))
    }

    /// Returns the parts of a long record that was found by the last search, and the path of the file. Returns `None`
    /// for a record that is in the buffer.
    pub(crate) fn parts(&mut self, span: Span) -> Option<Reading<'_>> {
        let (at, len) = (span.at.saturating_sub(SLACK as u64), SLACK + span.len);
        if span.len < LONG || self.buffered(at, len).is_some() {
            return None;
        }
        // Leaves out the length at the record's end, which must not be part of a value set.
        let len = len - LEN;
        if !self.parts.is_at(at, len) {
            self.parts.begin(at, len);
        }
        Some(self.parts.of(&self.source))
    }

    /// Returns the start of a record that was found by the last search, up to the number of its value sets, and the
    /// path of the file.
    pub(crate) fn head(&mut self, span: Span) -> Result<(&[u8], &Path)> {
        let is_loaded = match self.parts(span) {
            Some(mut parts) => Some(parts.load(0..HEAD.min(SLACK + span.len))?),
            None => None,
        };
        match is_loaded {
            Some(true) => Ok((self.parts.all(), self.source.path())),
            Some(false) => Err(self.cut(span.at, span.len, 0)),
            None => self.bytes(span),
        }
    }

    /// Returns a record, in which only the wanted value sets of the search are valid.
    pub(crate) fn found(&mut self, span: Span) -> Result<(&[u8], &Path)> {
        if self.parts(span).is_some() {
            return Ok((self.parts.all(), self.source.path()));
        }
        self.bytes(span)
    }
}
