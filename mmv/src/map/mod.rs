//! Mapped memory.
//!
//! A [`Segment`] is a segment of addresses, with a value slot for each of a range of values. The addresses never
//! change, but the mapping behind them does: first memory of this process, then the file, then the larger file that
//! replaces it. A [`Slot`] is the address of one value. Handles hold slots, so an update is one instruction and
//! involves no file.
//!
//! Other processes only read the file. A process that may truncate it can end this process (SIGBUS), as with every
//! mapped file. The registry creates the file with mode 0644.

#[cfg(mmv_loom)]
mod cells;
mod gate;

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use nix::errno::Errno;

#[cfg(not(mmv_loom))]
pub(crate) use std::sync::atomic::AtomicU64 as Word;

#[cfg(mmv_loom)]
use cells::{Pages, Prepared as PreparedPages};
#[cfg(mmv_loom)]
pub(crate) use cells::{Slot, Word};
pub(crate) use gate::Gate;

use crate::file::{Kept, check_size};
use crate::format::VALUE_LEN;
use crate::layout::VALUES_AT;
#[cfg(not(mmv_loom))]
use crate::os::pages::Prepared as PreparedPages;
pub(crate) use crate::os::pages::{Access, Moving, access, forget_access, is_refusal};
use crate::os::{page_size, pages};
use crate::sync::atomic::Ordering::{Acquire, Relaxed};

/// The gate is that of the registry.
#[cfg(not(mmv_loom))]
type Pages = pages::Pages<Arc<Gate>>;
/// The address of a value, as handles store it.
#[cfg(not(mmv_loom))]
pub(crate) type Slot = pages::Slot<Arc<Gate>>;

#[cfg(not(mmv_loom))]
impl Slot {
    pub(crate) fn gate(&self) -> &Gate {
        self.shared()
    }
}

/// A segment of addresses, with slots for a range of values.
#[derive(Debug)]
pub(crate) struct Segment {
    pages: Arc<Pages>,
    /// The mapped file, which has all values up to the capacity. `None` where the system refuses files in memory: then the
    /// values do not move.
    file: Option<Arc<Kept>>,
    first: usize,
    capacity: usize,
    /// Number of values from `first` up to the last one that has a slot.
    slotted: usize,
}

/// Returns the offset of a value in the file.
pub(crate) const fn value_at(index: usize) -> u64 {
    VALUES_AT + (index * VALUE_LEN) as u64
}

impl Segment {
    /// Allocates slots for at least `at_least` values from `first` on, over memory of this process.
    pub(crate) fn new(first: usize, at_least: usize, gate: Arc<Gate>) -> io::Result<Segment> {
        let page = page_size();
        let end = value_at(first + at_least).next_multiple_of(page);
        check_size(end)?;
        let (pages, file) = Pages::new(value_at(first) / page * page..end, gate)?;
        let capacity = usize::try_from(end - value_at(first)).map_err(io::Error::other)? / VALUE_LEN;
        let file = file.map(|file| Kept::new(file).map(Arc::new)).transpose()?;
        Ok(Segment { pages: Arc::new(pages), file, first, capacity, slotted: 0 })
    }

    /// Returns the values that have addresses.
    pub(crate) fn range(&self) -> Range<usize> {
        self.first..self.first + self.capacity
    }

    /// Returns the values that may have slots.
    pub(crate) fn slotted(&self) -> Range<usize> {
        self.first..self.first + self.slotted
    }

    /// Gives up the addresses of the values from `end` on, unless they may have slots.
    pub(crate) fn trim(&mut self, end: usize) {
        self.capacity = self.capacity.min(end.saturating_sub(self.first).max(self.slotted));
    }

    /// Prepares the move to a file of length `len`. The file must contain all values of the segment, and [`access`]
    /// must allow mapping it. If the kernel refuses, it does so here and not later, unless this is the only segment
    /// that moves. A segment without a file refuses with `ENODEV`.
    pub(crate) fn prepare(&self, file: &Arc<Kept>, len: u64, moving: Moving) -> io::Result<Prepared> {
        if len < value_at(self.range().end) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if self.file.is_none() {
            return Err(Errno::ENODEV.into());
        }
        Ok(Prepared { pages: self.pages.prepare(file, moving)?, file: Arc::clone(file) })
    }

    /// Maps a file in place of the present one, and returns the old memory. Updates continue during the move: they
    /// reach the old memory until the mapping changes, and the new memory afterwards. After an error, the old memory
    /// stays.
    pub(crate) fn move_to(&mut self, new: Prepared) -> io::Result<Old> {
        // Without the file, the old memory cannot be read once another file is mapped in its place. Updates between
        // the copy and the new mapping are lost.
        let file = self.file.clone().ok_or(Errno::ENODEV)?;
        let copy = file.get().is_err().then(|| self.copy());
        self.pages.replace(new.pages)?;
        self.file = Some(new.file);
        Ok(Old { copy, ..self.contents(&file) })
    }

    fn copy(&self) -> Vec<(u64, u64)> {
        let words = self.slotted().map(|value| self.pages.words(value_at(value)));
        words.map(|(word, extra)| (word.load(Relaxed), extra.load(Acquire))).collect()
    }

    /// Returns a reader of the values in `file` that may have slots.
    pub(crate) fn contents(&self, file: &Arc<Kept>) -> Old {
        let touched = file.get().map_or(true, pages::is_touched);
        let (slotted, buffer) = (self.slotted(), [0; Old::HELD * VALUE_LEN]);
        Old { file: Arc::clone(file), copy: None, touched, slotted, held: 0..0, buffer }
    }

    /// Returns the mapped file, if there is one.
    pub(crate) fn file(&self) -> Option<&Arc<Kept>> {
        self.file.as_ref()
    }

    /// Returns the two words of a value that updates change.
    pub(crate) fn words(&self, index: usize) -> (&Word, &Word) {
        self.check(index);
        self.pages.words(value_at(index))
    }

    /// Returns the slot of a value.
    pub(crate) fn slot(&mut self, index: usize) -> Slot {
        self.check(index);
        self.slotted = self.slotted.max(index - self.first + 1);
        Slot::new(&self.pages, value_at(index))
    }

    /// Panics if a value is outside of the segment, because it has no room in the mapped file.
    fn check(&self, index: usize) {
        assert!(self.range().contains(&index), "value {index} is in another segment");
    }
}

/// A file to be mapped behind a segment's addresses.
pub(crate) struct Prepared {
    pages: PreparedPages,
    file: Arc<Kept>,
}

/// Values of a file, read in blocks: memory that was mapped behind a segment's addresses.
pub(crate) struct Old {
    file: Arc<Kept>,
    /// The values, if the program has closed the file.
    copy: Option<Vec<(u64, u64)>>,
    /// Whether the file may contain bytes other than zeros.
    touched: bool,
    /// The values in use.
    slotted: Range<usize>,
    /// The values in the buffer.
    held: Range<usize>,
    buffer: [u8; Self::HELD * VALUE_LEN],
}

impl Old {
    /// Number of values read at once. The stacks of loom's threads are small.
    const HELD: usize = if cfg!(mmv_loom) { 8 } else { 256 };

    /// Returns whether any value may differ from zero.
    pub(crate) fn is_touched(&self) -> bool {
        self.touched
    }

    /// Returns the two words of a value. Ascending order needs the fewest reads.
    pub(crate) fn words(&mut self, value: usize) -> io::Result<(u64, u64)> {
        if let Some(copy) = &self.copy {
            let index = value.checked_sub(self.slotted.start);
            return index.and_then(|index| copy.get(index)).copied().ok_or(io::ErrorKind::UnexpectedEof.into());
        }
        if !self.touched {
            return Ok((0, 0));
        }
        if !self.held.contains(&value) {
            self.held = value..self.slotted.end.min(value + Self::HELD);
            let bytes = self.buffer.get_mut(..self.held.len() * VALUE_LEN).filter(|bytes| !bytes.is_empty());
            self.file.get()?.read_exact_at(bytes.ok_or(io::ErrorKind::UnexpectedEof)?, value_at(value))?;
        }
        let at = (value - self.held.start) * VALUE_LEN;
        let word = |at: usize| self.buffer.get(at..)?.first_chunk().map(|word| u64::from_ne_bytes(*word));
        word(at).zip(word(at + 8)).ok_or(io::ErrorKind::UnexpectedEof.into())
    }
}

#[cfg(all(test, not(mmv_loom)))]
mod tests {
    use super::*;

    #[test]
    fn slots_do_not_overlap() {
        let mut segment = Segment::new(7, 200, Arc::default()).unwrap();
        assert!(segment.range().len() >= 200);
        let slots: Vec<Slot> = segment.range().map(|i| segment.slot(i)).collect();
        drop(segment);
        for (slot, i) in slots.iter().zip(0..) {
            slot.word().store(i, Relaxed);
            slot.extra().store(!i, Relaxed);
        }
        for (slot, i) in slots.iter().zip(0..) {
            assert_eq!((slot.word().load(Relaxed), slot.extra().load(Relaxed)), (i, !i));
        }
    }

    #[test]
    #[should_panic(expected = "another segment")]
    fn slot_of_another_chunk() {
        let mut segment = Segment::new(0, 1, Arc::default()).unwrap();
        segment.slot(segment.range().end);
    }

    #[test]
    fn addresses_outlive_their_memory() {
        let mut segment = Segment::new(300, 1, Arc::default()).unwrap();
        let slot = segment.slot(300);
        slot.word().store(11, Relaxed);
        let kept = Arc::new(Kept::new(tempfile::tempfile().unwrap()).unwrap());
        let file = kept.get().unwrap();
        assert!(segment.prepare(&kept, 0, Moving::Several).is_err(), "the file is too short");
        file.set_len(value_at(segment.range().end)).unwrap();
        file.write_all_at(&22u64.to_ne_bytes(), value_at(300)).unwrap();
        let prepared = segment.prepare(&kept, value_at(segment.range().end), Moving::Several).unwrap();
        let mut old = segment.move_to(prepared).unwrap();
        assert_eq!(old.words(300).unwrap(), (11, 0));
        assert!(old.words(301).is_err(), "it was not in use");
        assert_eq!(slot.word().load(Relaxed), 22);
        slot.word().store(33, Relaxed);
        let mut word = [0; 8];
        file.read_exact_at(&mut word, value_at(300)).unwrap();
        assert_eq!(u64::from_ne_bytes(word), 33);
    }
}
