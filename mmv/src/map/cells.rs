//! Replaces mapped pages under loom: cells, whose contents change when another file is mapped.
//!
//! The kernel replaces all pages at once; this replaces word by word.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Gate, Moving};
use crate::file::Kept;
use crate::format::VALUE_LEN;
use crate::os::pages::nameless;
use crate::sync::atomic::{AtomicU64, Ordering, Ordering::AcqRel};

/// Largest number of values in a test. Each has two cells, and loom tracks all of them.
const MOST_VALUES: u64 = 4;

/// A word of a page. Mapping another file interrupts all processors, so every access is ordered before or after it, and
/// before or after accesses of other threads. Therefore no access is relaxed here.
#[derive(Debug, Default)]
pub(crate) struct Word(AtomicU64);

impl Word {
    pub(crate) fn load(&self, _: Ordering) -> u64 {
        self.0.fetch_or(0, AcqRel)
    }

    pub(crate) fn store(&self, word: u64, _: Ordering) {
        self.0.swap(word, AcqRel);
    }

    pub(crate) fn swap(&self, word: u64, _: Ordering) -> u64 {
        self.0.swap(word, AcqRel)
    }

    pub(crate) fn fetch_add(&self, n: u64, _: Ordering) -> u64 {
        self.0.fetch_add(n, AcqRel)
    }

    pub(crate) fn compare_exchange(&self, old: u64, new: u64, _: Ordering, _: Ordering) -> Result<u64, u64> {
        self.0.compare_exchange(old, new, AcqRel, Ordering::Acquire)
    }

    pub(crate) fn compare_exchange_weak(&self, old: u64, new: u64, _: Ordering, _: Ordering) -> Result<u64, u64> {
        self.compare_exchange(old, new, AcqRel, AcqRel)
    }
}

#[derive(Debug)]
pub(super) struct Pages {
    /// The two words of each value.
    cells: Box<[(Word, Word)]>,
    /// Offset of the first value in the file.
    offset: u64,
    file: Mutex<File>,
    gate: Arc<Gate>,
}

impl Pages {
    pub(super) fn new(range: Range<u64>, gate: Arc<Gate>) -> io::Result<(Pages, Option<File>)> {
        let file = nameless(range.end)?;
        let offset = range.start.max(crate::layout::VALUES_AT).next_multiple_of(VALUE_LEN as u64);
        let cells = (0..MOST_VALUES).map(|_| Default::default()).collect();
        Ok((Pages { cells, offset, file: Mutex::new(file.try_clone()?), gate }, Some(file)))
    }

    pub(super) fn prepare(&self, file: &Arc<Kept>, _: Moving) -> io::Result<Prepared> {
        Ok(Prepared(Arc::clone(file)))
    }

    /// Writes the cells to the present file, and loads them from the new one.
    pub(super) fn replace(&self, Prepared(file): Prepared) -> io::Result<()> {
        let file = file.get()?;
        let mut old = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        for ((word, extra), n) in self.cells.iter().zip(0..) {
            let at = self.offset + n * VALUE_LEN as u64;
            for (cell, at) in [(word, at), (extra, at + 8)] {
                let mut bytes = [0; 8];
                file.read_exact_at(&mut bytes, at)?;
                let before = cell.0.swap(u64::from_ne_bytes(bytes), AcqRel);
                old.write_all_at(&before.to_ne_bytes(), at)?;
            }
        }
        *old = file.try_clone()?;
        Ok(())
    }

    pub(super) fn words(&self, at: u64) -> (&Word, &Word) {
        let (word, extra) = &self.cells[self.index(at)];
        (word, extra)
    }

    fn index(&self, at: u64) -> usize {
        ((at - self.offset) / VALUE_LEN as u64) as usize
    }
}

/// A file that is to replace another.
pub(super) struct Prepared(Arc<Kept>);

#[derive(Clone, Debug)]
pub(crate) struct Slot {
    index: usize,
    pages: Arc<Pages>,
}

impl Slot {
    pub(super) fn new(pages: &Arc<Pages>, at: u64) -> Slot {
        Slot { index: pages.index(at), pages: Arc::clone(pages) }
    }

    pub(crate) fn word(&self) -> &Word {
        &self.pages.cells[self.index].0
    }

    pub(crate) fn extra(&self) -> &Word {
        &self.pages.cells[self.index].1
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.pages.gate
    }
}
