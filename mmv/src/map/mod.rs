//! Mapped memory.
//!
//! A [`Chunk`] is a range of addresses behind which a run of values lies. The addresses never
//! change, what is mapped there does: memory of this process before the file exists, then the
//! file, then the larger file that takes its place. A handle is an address, so an update is one
//! instruction and needs to know nothing of files.
//!
//! Other processes only read the file. Somebody with the right to truncate it can stop this process
//! (SIGBUS), as with every mapped file; the registry creates it with mode 0644.

#[cfg(mmv_loom)]
mod cells;
pub(crate) mod fork;
mod gate;
#[cfg_attr(mmv_loom, allow(dead_code))]
mod pages;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

#[cfg(not(mmv_loom))]
pub(crate) use std::sync::atomic::AtomicU64 as Word;

#[cfg(mmv_loom)]
use cells::{Pages, Prepared as PreparedPages};
#[cfg(mmv_loom)]
pub(crate) use cells::{Slot, Word};
pub(crate) use gate::Gate;
#[cfg(not(mmv_loom))]
pub(crate) use pages::Slot;
#[cfg(not(mmv_loom))]
use pages::{Pages, Prepared as PreparedPages};
pub(crate) use pages::{map_range, may_map, page_size};

use crate::format::VALUE_LEN;
use crate::layout::VALUES_AT;

/// Addresses of a run of values.
#[derive(Debug)]
pub(crate) struct Chunk {
    pages: Arc<Pages>,
    /// What is mapped there: all values up to the capacity.
    file: Arc<File>,
    first: usize,
    capacity: usize,
    /// One more than the last value, counted from `first`, that has a slot.
    slotted: usize,
}

/// Offset in the file of a value.
pub(crate) const fn value_at(index: usize) -> u64 {
    VALUES_AT + (index * VALUE_LEN) as u64
}

impl Chunk {
    /// Addresses for at least `at_least` values from `first` on, over memory that is no file yet.
    pub(crate) fn new(
        first: usize,
        at_least: usize,
        gate: Arc<Gate>,
        check_size: impl FnOnce(u64) -> io::Result<()>,
    ) -> io::Result<Chunk> {
        let page = page_size();
        let end = value_at(first + at_least).next_multiple_of(page);
        check_size(end)?;
        let (pages, file) = Pages::new(value_at(first) / page * page..end, gate)?;
        let capacity = usize::try_from(end - value_at(first)).map_err(io::Error::other)? / VALUE_LEN;
        Ok(Chunk { pages: Arc::new(pages), file: Arc::new(file), first, capacity, slotted: 0 })
    }

    /// The values that it has addresses for.
    pub(crate) fn range(&self) -> Range<usize> {
        self.first..self.first + self.capacity
    }

    /// The values that may have slots.
    pub(crate) fn slotted(&self) -> Range<usize> {
        self.first..self.first + self.slotted
    }

    /// Gives up the addresses of values from `end` on, if none of them has a slot.
    pub(crate) fn trim(&mut self, end: usize) {
        self.capacity = self.capacity.min(end.saturating_sub(self.first).max(self.slotted));
    }

    /// Prepares the move to a file of this length, which must have all of the chunk's values and be mappable ([`may_map`]).
    /// Whatever the system can refuse, it refuses here, unless this is the only chunk that moves.
    pub(crate) fn prepare(&self, file: &Arc<File>, len: u64, alone: bool) -> io::Result<Prepared> {
        if len < value_at(self.range().end) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Prepared { pages: self.pages.prepare(file, alone)?, file: Arc::clone(file) })
    }

    /// Maps a file in place of what was mapped, and gives what that was. Updates go on meanwhile: up to the moment
    /// of mapping to the old memory, which nobody else touches any more after that, and then to the new one. When
    /// it fails, the old memory stays.
    pub(crate) fn move_to(&mut self, new: Prepared) -> io::Result<Old> {
        self.pages.replace(new.pages)?;
        let file = std::mem::replace(&mut self.file, new.file);
        Ok(self.contents(&file))
    }

    /// What a file has of the values that may have slots.
    pub(crate) fn contents(&self, file: &Arc<File>) -> Old {
        let touched = pages::is_touched(file);
        Old { file: Arc::clone(file), touched, end: self.slotted().end, held: 0..0, buffer: [0; _] }
    }

    /// What is mapped.
    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// The two words of a value that change.
    pub(crate) fn words(&self, index: usize) -> (&Word, &Word) {
        self.check(index);
        self.pages.words(value_at(index))
    }

    /// A value's address.
    pub(crate) fn slot(&mut self, index: usize) -> Slot {
        self.check(index);
        self.slotted = self.slotted.max(index - self.first + 1);
        Slot::new(&self.pages, value_at(index))
    }

    /// Other values have no place in the file that is mapped.
    fn check(&self, index: usize) {
        assert!(self.range().contains(&index), "value {index} is in another chunk");
    }
}

/// A file that is to be mapped behind a chunk's addresses.
pub(crate) struct Prepared {
    pages: PreparedPages,
    file: Arc<File>,
}

/// Memory that was mapped behind a chunk's addresses.
pub(crate) struct Old {
    file: Arc<File>,
    /// Whether there is anything but zeros.
    touched: bool,
    /// One more than the last value that was in use.
    end: usize,
    /// The values in the buffer.
    held: Range<usize>,
    buffer: [u8; Self::HELD * VALUE_LEN],
}

impl Old {
    /// Stacks of loom's threads are small.
    const HELD: usize = if cfg!(mmv_loom) { 8 } else { 256 };

    /// Whether any value may be anything but zero.
    pub(crate) fn is_touched(&self) -> bool {
        self.touched
    }

    /// The two words that a value had; best asked for in ascending order.
    pub(crate) fn words(&mut self, value: usize) -> io::Result<(u64, u64)> {
        if !self.touched {
            return Ok((0, 0));
        }
        if !self.held.contains(&value) {
            self.held = value..self.end.min(value + Self::HELD);
            let bytes = self.buffer.get_mut(..self.held.len() * VALUE_LEN).filter(|bytes| !bytes.is_empty());
            self.file.read_exact_at(bytes.ok_or(io::ErrorKind::UnexpectedEof)?, value_at(value))?;
        }
        let words = &self.buffer.as_chunks().0[(value - self.held.start) * (VALUE_LEN / 8)..];
        Ok((u64::from_ne_bytes(words[0]), u64::from_ne_bytes(words[1])))
    }
}

#[cfg(all(test, not(mmv_loom)))]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn slots_do_not_overlap() {
        let mut chunk = Chunk::new(7, 200, Arc::default(), |_| Ok(())).unwrap();
        assert!(chunk.range().len() >= 200);
        let slots: Vec<Slot> = chunk.range().map(|i| chunk.slot(i)).collect();
        drop(chunk);
        for (slot, i) in slots.iter().zip(0..) {
            slot.word().store(i, Relaxed);
            slot.extra().store(!i, Relaxed);
        }
        for (slot, i) in slots.iter().zip(0..) {
            assert_eq!((slot.word().load(Relaxed), slot.extra().load(Relaxed)), (i, !i));
        }
    }

    #[test]
    #[should_panic(expected = "another chunk")]
    fn slot_of_another_chunk() {
        let mut chunk = Chunk::new(0, 1, Arc::default(), |_| Ok(())).unwrap();
        chunk.slot(chunk.range().end);
    }

    #[test]
    fn addresses_outlive_their_memory() {
        let mut chunk = Chunk::new(300, 1, Arc::default(), |_| Ok(())).unwrap();
        let slot = chunk.slot(300);
        slot.word().store(11, Relaxed);
        let file = Arc::new(tempfile::tempfile().unwrap());
        assert!(chunk.prepare(&file, 0, false).is_err(), "the file is too short");
        file.set_len(value_at(chunk.range().end)).unwrap();
        file.write_all_at(&22u64.to_ne_bytes(), value_at(300)).unwrap();
        let prepared = chunk.prepare(&file, value_at(chunk.range().end), false).unwrap();
        let mut old = chunk.move_to(prepared).unwrap();
        assert_eq!(old.words(300).unwrap(), (11, 0));
        assert!(old.words(301).is_err(), "it was not in use");
        assert_eq!(slot.word().load(Relaxed), 22);
        slot.word().store(33, Relaxed);
        let mut word = [0; 8];
        file.read_exact_at(&mut word, value_at(300)).unwrap();
        assert_eq!(u64::from_ne_bytes(word), 33);
    }
}
