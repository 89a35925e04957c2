//! Search for value sets in a record.

use std::ops::Range;

use pcp_pdu::result::BLOCK_HEAD;

use crate::error::Result;
use crate::file::Source;

/// Number of bytes that are read after a gap, and the largest number read at once.
const FIRST: usize = 1 << 10;
const MOST: usize = 1 << 15;
/// Number of parts that are known to be loaded. Others are read again.
const RECENT: usize = 8;
/// Largest number of bytes of a record that are read first.
const AT_ONCE: usize = 1 << 17;
/// Gaps up to this length, in bytes, are read too, because that is cheaper than another read.
const GAP: usize = 1 << 12;

/// Record, all of which can be read.
pub(crate) trait Bytes {
    /// Makes bytes of the record available; returns whether the record has them.
    ///
    /// # Errors
    /// `-errno` for a failed read.
    fn load(&mut self, range: Range<usize>) -> Result<bool>;

    /// Returns the end of the loaded part with an offset.
    fn loaded_from(&self, at: usize) -> usize;

    /// Returns the record. Only the parts that were loaded are valid.
    fn all(&self) -> &[u8];
}

impl Bytes for &[u8] {
    fn load(&mut self, range: Range<usize>) -> Result<bool> {
        Ok(self.get(range).is_some())
    }

    fn loaded_from(&self, _: usize) -> usize {
        self.len()
    }

    fn all(&self) -> &[u8] {
        self
    }
}

/// Record of which parts have been read.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    bytes: Vec<u8>,
    /// Length of the record.
    len: usize,
    /// Offset of the record in its file.
    at: u64,
    /// Last ranges that have been read, the newest one at the end.
    read: Vec<Range<usize>>,
    step: usize,
    /// Number of bytes from the start on that were needed of this record, and of the one before. As many are read first
    /// of the next record: neighbours are often alike, and several reads cost more than a few bytes too many. Of records
    /// that alternate, the smaller number counts.
    used: [usize; 2],
}

impl Parts {
    /// Starts with another record, of which nothing has been read.
    pub(crate) fn begin(&mut self, at: u64, len: usize) {
        let [last, before] = self.used;
        let expected = last.min(before);
        (self.at, self.len, self.step) = (at, len, (expected + expected / 16).clamp(FIRST, AT_ONCE));
        self.used = [0, last];
        self.read.clear();
    }

    /// Returns whether this is the record at an offset.
    pub(crate) fn is_at(&self, at: u64, len: usize) -> bool {
        (self.at, self.len) == (at, len)
    }

    pub(crate) fn of<'p>(&'p mut self, source: &'p Source) -> Reading<'p> {
        Reading { parts: self, source }
    }

    pub(crate) fn all(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }
}

/// Record whose parts are read from a file when they are needed.
pub(crate) struct Reading<'p> {
    parts: &'p mut Parts,
    source: &'p Source,
}

impl Bytes for Reading<'_> {
    fn load(&mut self, range: Range<usize>) -> Result<bool> {
        let Parts { bytes, len, at, read, step, used: [used, _] } = &mut *self.parts;
        if read.first().is_none_or(|first| range.start < first.end + GAP) {
            *used = range.end.max(*used);
        }
        let has = |part: &Range<usize>| part.start <= range.start && range.end <= part.end;
        if range.end > *len || read.iter().rev().any(has) {
            return Ok(range.end <= *len);
        }
        // Reading continues from the last part, or starts again after a gap.
        let is_first = read.is_empty();
        let last =
            read.last_mut().filter(|last| (last.end..last.end + GAP).contains(&range.start) || has_start(last, &range));
        let from = last.as_ref().map_or(range.start, |last| last.end);
        *step = match last {
            Some(_) => (*step * 2).min(MOST),
            None if is_first => *step,
            None => FIRST,
        };
        let end = range.end.max(from + *step).min(*len);
        if bytes.len() < end {
            bytes.resize((*len).min(end.saturating_mul(2)), 0);
        }
        let Some(to) = bytes.get_mut(from..end) else { return Ok(false) };
        let filled = from + self.source.read_at(to, *at + from as u64)?;
        match last {
            Some(last) => last.end = filled,
            None => {
                if read.len() == RECENT {
                    read.remove(0);
                }
                read.push(from..filled);
            }
        }
        Ok(range.end <= filled)
    }

    fn loaded_from(&self, at: usize) -> usize {
        self.parts.read.iter().rev().find(|part| part.contains(&at)).map_or(at, |part| part.end)
    }

    fn all(&self) -> &[u8] {
        self.parts.all()
    }
}

/// Returns whether a range begins, but does not end, in a part.
fn has_start(part: &Range<usize>, range: &Range<usize>) -> bool {
    part.contains(&range.start)
}

/// Finds value sets in a record, of which `count` begin at offset `at`. `take` gets the word of each PMID and the
/// offset of its set, and returns whether the set is wanted; after `most` wanted sets the search ends. Wanted sets are
/// checked, and loaded completely with their value blocks.
///
/// # Errors
/// `-errno` for a failed read; inside of it the reason why the record is damaged.
pub(crate) fn scan(
    bytes: &mut impl Bytes,
    mut at: usize,
    count: usize,
    most: usize,
    mut take: impl FnMut(u32, usize) -> bool,
) -> Result<Result<(), String>> {
    // The bytes from the set's offset up to `loaded` are available.
    let (mut left, mut loaded) = (most, 0);
    for nth in 0..count {
        if left == 0 {
            break;
        }
        let damaged = || Ok(Err(format!("value set {} of {count} is damaged", nth + 1)));
        if at + 8 > loaded {
            if !bytes.load(at..at + 8)? {
                return damaged();
            }
            loaded = bytes.loaded_from(at);
        }
        let numval = word(bytes.all(), at + 4) as i32;
        // A set without values has neither their format nor a list.
        let len = usize::try_from(numval)
            .ok()
            .filter(|count| *count > 0)
            .map_or(Some(8), |count| count.checked_mul(8)?.checked_add(12));
        let Some(end) = len.and_then(|len| at.checked_add(len)) else { return damaged() };
        if take(word(bytes.all(), at), at) {
            if !is_whole(bytes, at..end)? {
                return damaged();
            }
            left -= 1;
        }
        at = end;
    }
    // The last set may be an unwanted one.
    Ok(if left == 0 || at == 0 || bytes.load(at - 1..at)? {
        Ok(())
    } else {
        Err(format!("value set {count} of {count} is damaged"))
    })
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_be_bytes(*word))
}

/// Checks a value set and its blocks, which follow each other in the order of the values.
fn is_whole(bytes: &mut impl Bytes, set: Range<usize>) -> Result<bool> {
    if !bytes.load(set.clone())? {
        return Ok(false);
    }
    let values = set.start + 12..set.end;
    if values.is_empty() {
        return Ok(true);
    }
    let reference = |bytes: &[u8], at: usize| word(bytes, at) as usize * 4;
    match word(bytes.all(), set.start + 8) {
        0 => return Ok(true),
        1 | 2 => (),
        _ => return Ok(false),
    }
    let (first, last) = (reference(bytes.all(), values.start + 4), reference(bytes.all(), values.end - 4));
    if first < set.end || last < first || !bytes.load(first..last + BLOCK_HEAD)? {
        return Ok(false);
    }
    let mut expected = first;
    for at in values.step_by(8) {
        let block = reference(bytes.all(), at + 4);
        if block != expected || !bytes.load(block..block + BLOCK_HEAD)? {
            return Ok(false);
        }
        let len = (word(bytes.all(), block) & 0xff_ffff) as usize;
        if len < BLOCK_HEAD {
            return Ok(false);
        }
        expected = block + len.next_multiple_of(4);
    }
    bytes.load(first..expected)
}
