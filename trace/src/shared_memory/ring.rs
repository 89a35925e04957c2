//! Rings of records, with one writer and any number of readers. The order of memory accesses is part of the
//! [format](super::format).

#[cfg(trace_loom)]
#[allow(clippy::unwrap_used)]
pub mod tried;

use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::format::{ABORTED, BEGIN, CELL_WORDS, END, FIRST_FIELDS, MAX_CELLS, MORE_FIELDS, WORD, Words, block};
use super::sums::seconds;
use crate::protocol::Kind;

/// A trace event, as it is written into a ring.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mark<'a> {
    pub(crate) time: u64,
    pub(crate) flags: u8,
    pub(crate) value: u64,
    pub(crate) id: u64,
    pub(crate) parent: u64,
    /// Fields of the event, at most `MAX_FIELDS` bytes.
    pub(crate) fields: &'a [u8],
}

/// The only writer of a ring.
#[derive(Debug)]
pub(crate) struct Producer {
    /// Cells of the ring.
    room: usize,
    /// Index of the next cell.
    at: usize,
    /// Numbers of cells and of records written so far.
    cells: u64,
    records: u64,
}

/// Cells of a record with this many bytes of fields.
const fn cells(fields: usize) -> usize {
    1 + fields.saturating_sub(FIRST_FIELDS * WORD).div_ceil(MORE_FIELDS * WORD)
}

/// Index of a cell's first word in its block.
const fn word_of(cell: usize) -> usize {
    block::WORDS + cell * CELL_WORDS
}

/// Cells of a ring whose block has `len` bytes.
pub(crate) const fn room(len: usize) -> usize {
    (len / WORD).saturating_sub(block::WORDS) / CELL_WORDS
}

impl Producer {
    pub(crate) fn new(room: usize) -> Producer {
        Producer { room, at: 0, cells: 0, records: 0 }
    }

    #[inline]
    pub(crate) fn write(&mut self, ring: &(impl Words + ?Sized), tag: u32, mark: &Mark<'_>) {
        // Without this fence, a reader could see overwritten cells together with the previous number of cells.
        ring.fence(Release);
        let count = cells(mark.fields.len());
        let first = word_of(self.at);
        let head =
            u64::from(tag) | u64::from(mark.flags) << 32 | (count as u64) << 40 | (mark.fields.len() as u64) << 48;
        let words = [self.records << 8, mark.time, head, mark.value, mark.id, mark.parent];
        for (at, word) in (first..).zip(words) {
            ring.store(at, word, Relaxed);
        }
        self.advance();
        if !mark.fields.is_empty() {
            self.write_fields(ring, first, mark.fields);
        }
        self.cells += count as u64;
        self.records += 1;
        ring.store(block::CELLS, self.cells, Release);
    }

    fn advance(&mut self) {
        self.at += 1;
        if self.at == self.room {
            self.at = 0;
        }
    }

    fn write_fields(&mut self, ring: &(impl Words + ?Sized), first: usize, fields: &[u8]) {
        let word = |bytes: &[u8]| {
            let mut word = [0; WORD];
            word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            u64::from_ne_bytes(word)
        };
        let (here, more) = fields.split_at(fields.len().min(FIRST_FIELDS * WORD));
        for (at, bytes) in (first + CELL_WORDS - FIRST_FIELDS..).zip(here.chunks(WORD)) {
            ring.store(at, word(bytes), Relaxed);
        }
        for (part, bytes) in (1..).zip(more.chunks(MORE_FIELDS * WORD)) {
            let cell = word_of(self.at);
            ring.store(cell, self.records << 8 | part, Relaxed);
            for (at, bytes) in (cell + 1..).zip(bytes.chunks(WORD)) {
                ring.store(at, word(bytes), Relaxed);
            }
            self.advance();
        }
    }
}

/// A ring for a reader, which may be in another process.
pub(crate) trait Source {
    /// Returns the number of cells written so far.
    fn written(&mut self) -> io::Result<u64>;
    /// Appends the words of `count` cells from `cell` on, within the ring. Later reads are not reordered before these.
    fn copy(&mut self, cell: usize, count: usize, into: &mut Vec<u64>) -> io::Result<()>;
}

/// A ring in this process's memory, for tests.
impl<W: Words + ?Sized> Source for &W {
    fn written(&mut self) -> io::Result<u64> {
        Ok(self.load(block::CELLS, Acquire))
    }

    fn copy(&mut self, cell: usize, count: usize, into: &mut Vec<u64>) -> io::Result<()> {
        into.extend((word_of(cell)..word_of(cell + count)).map(|at| self.load(at, Relaxed)));
        self.fence(Acquire);
        Ok(())
    }
}

/// Number of cells that are copied at a time. This bounds the memory for reading a ring of any length.
const AT_ONCE: u64 = 2048;

/// A reader of a ring.
#[derive(Debug)]
pub(crate) struct Consumer {
    room: u64,
    /// Largest number of cells of a record.
    most: u64,
    /// Earliest cell, and number, of the record after the last one that was read.
    cell: u64,
    record: u64,
}

/// Record of one trace event.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Record<'a> {
    /// Time, in nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// Number of its tag in the file.
    pub tag: u32,
    /// Whether a transaction has begun.
    pub begin: bool,
    /// Whether a transaction has ended.
    pub end: bool,
    value: u64,
    /// Number of earlier records of its lane that were missed.
    pub missed: u64,
    /// Identifier of the transaction, unique in its process, or 0.
    pub id: u64,
    /// Identifier of the parent transaction, or 0.
    pub parent: u64,
    fields: &'a [u8],
}

impl<'a> Record<'a> {
    /// Returns the duration of a transaction in nanoseconds. `None` if it has not ended, or was aborted.
    pub fn duration(&self) -> Option<u64> {
        (self.end && self.value != ABORTED).then_some(self.value)
    }

    /// Returns an iterator over the keys and values of the fields.
    pub fn fields(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        super::fields::each(self.fields)
    }

    /// Returns the value for the kind of its tag: a transaction's duration in seconds, or the application's value.
    ///
    /// `None` for a point, a transaction without [duration](Record::duration), and a value that is not finite.
    pub fn value(&self, kind: Kind) -> Option<f64> {
        match kind {
            Kind::Transact => self.duration().map(seconds),
            Kind::Point => None,
            Kind::Observe | Kind::Counter => Some(f64::from_bits(self.value)).filter(|value| value.is_finite()),
        }
    }
}

impl Consumer {
    /// Creates a reader of a ring with `room` cells, and records of at most `most` cells.
    pub(crate) fn new(room: usize, most: usize) -> Consumer {
        Consumer { room: room as u64, most: most as u64, cell: 0, record: 0 }
    }

    /// Passes new records to `out`, at most those in the last `limit` cells. `written` is the number of cells that the
    /// ring had at an earlier time.
    ///
    /// Returns the number of records missed. Fails with `InvalidData` if `written` has decreased, or the ring is too
    /// small.
    pub(crate) fn read(
        &mut self,
        mut ring: impl Source,
        written: u64,
        limit: u64,
        buffer: &mut Vec<u64>,
        mut out: impl FnMut(&Record<'_>),
    ) -> io::Result<u64> {
        let Some(new) = written.checked_sub(self.cell).filter(|_| self.room > self.most) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let mut from = written - new.min(limit).min(self.room);
        let mut missed = 0_u64;
        while from < written {
            let end = written.min(from.saturating_add(AT_ONCE));
            let good = self.copy(&mut ring, from, end, buffer)?;
            missed = missed.saturating_add(self.decode(end, buffer.get(good..).unwrap_or_default(), &mut out));
            // A record that is cut by the end of the part is read again as a whole.
            from = if end < written { self.cell.max(end - self.most + 1) } else { end };
        }
        Ok(missed)
    }

    /// Copies cells of the ring. Returns the index of the first intact word: earlier ones may have been overwritten.
    fn copy(&self, ring: &mut impl Source, from: u64, end: u64, buffer: &mut Vec<u64>) -> io::Result<usize> {
        buffer.clear();
        let (at, count) = ((from % self.room) as usize, (end - from) as usize);
        let before_end = count.min(self.room as usize - at);
        ring.copy(at, before_end, buffer)?;
        if count > before_end {
            ring.copy(0, count - before_end, buffer)?;
        }
        let safe = ring.written()?.saturating_add(self.most).saturating_sub(self.room);
        Ok(safe.saturating_sub(from).min(count as u64) as usize * CELL_WORDS)
    }

    /// Passes the records in `buffer`, whose cells end at `end`, to `out`. Returns the number of records missed.
    fn decode(&mut self, end: u64, buffer: &[u64], out: &mut impl FnMut(&Record<'_>)) -> u64 {
        let mut missed = 0_u64;
        let mut cells = buffer.chunks_exact(CELL_WORDS);
        let mut bytes = [0; super::format::MAX_FIELDS];
        while let Some(first) = cells.next() {
            let Some((mut record, number)) = decode(first, &mut cells, self.most as usize, &mut bytes) else {
                continue;
            };
            let end = end - cells.len() as u64;
            // Each record takes at least one cell, which limits the number that a damaged ring can claim.
            record.missed = number.saturating_sub(self.record).min(end - self.cell - 1);
            missed = missed.saturating_add(record.missed);
            (self.cell, self.record) = (end, self.record.max(number.saturating_add(1)));
            out(&record);
        }
        missed
    }
}

/// Decodes the record that begins with the cell `first`. Returns it with its number, or `None` if there is none.
fn decode<'b>(
    first: &[u64],
    more: &mut std::slice::ChunksExact<'_, u64>,
    most: usize,
    bytes: &'b mut [u8],
) -> Option<(Record<'b>, u64)> {
    let [stamp, time, head, value, id, parent, fields @ ..] = first else { return None };
    let (count, len) = ((head >> 40) as u8 as usize, (head >> 48) as usize);
    if *stamp as u8 != 0 || count > most || count != cells(len) {
        return None;
    }
    let mut put = |at: usize, words: &[u64]| {
        let to = bytes.get_mut(at..)?.chunks_exact_mut(WORD);
        to.zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_ne_bytes()));
        Some(())
    };
    if len > 0 {
        put(0, fields)?;
        let parts = more.clone().take(count - 1);
        if parts.len() < count - 1 {
            return None;
        }
        for (part, cell) in (1..).zip(parts) {
            let (own, words) = cell.split_first()?;
            if *own != stamp | part {
                return None;
            }
            put((FIRST_FIELDS + (part as usize - 1) * MORE_FIELDS) * WORD, words)?;
        }
        if count > 1 {
            more.nth(count - 2);
        }
    }
    let flags = (head >> 32) as u8;
    let record = Record {
        time: *time,
        tag: *head as u32,
        begin: flags & BEGIN != 0,
        end: flags & END != 0,
        value: *value,
        missed: 0,
        id: *id,
        parent: *parent,
        fields: bytes.get(..len)?,
    };
    Some((record, stamp >> 8))
}

const _: () = assert!(cells(super::format::MAX_FIELDS) == MAX_CELLS);
const _: () = assert!(AT_ONCE > MAX_CELLS as u64);

#[cfg(test)]
mod tests {
    use super::super::format::MAX_FIELDS;
    use super::*;

    #[test]
    fn fields_take_as_many_cells_as_they_need() {
        let (ring, mut producer, mut consumer) = (
            (0..word_of(100)).map(|_| std::sync::atomic::AtomicU64::new(0)).collect::<Vec<_>>(),
            Producer::new(100),
            Consumer::new(100, MAX_CELLS),
        );
        let bytes: Vec<u8> = (0..MAX_FIELDS).map(|n| n as u8).collect();
        for len in (0..=MAX_FIELDS).chain([0, 1]) {
            producer.write(&ring[..], 5, &Mark { time: len as u64, fields: &bytes[..len], ..Mark::default() });
            let mut seen = Vec::new();
            let written = { &ring[..] }.written().unwrap();
            let missed = consumer.read(&ring[..], written, u64::MAX, &mut Vec::new(), |record| {
                seen.push((record.time, record.fields.to_vec()));
            });
            assert_eq!((missed.unwrap(), seen), (0, vec![(len as u64, bytes[..len].to_vec())]));
        }
    }
}
