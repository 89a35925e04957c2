//! Addresses at which values stay: a mapped file, or memory.
//!
//! # Invariants
//! 1. From its creation until its drop, `base..base + len` is mapped shared by this `Map` alone.
//! 2. Accesses are inside a range that was [opened](Map::open): the caller has allocated the blocks of the file there, so
//!    that no store raises a signal, or the range is memory. Ranges that are open stay mapped as they are.
//! 3. The pages are accessed as `AtomicU64` only; no reference to anything else in them exists.
//! 4. A `Slot` keeps its map alive.
//!
//! Other processes only read the file. A process that may truncate it can end this process (SIGBUS), as with every
//! mapped file. The registry creates the file with mode 0644.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nix::errno::Errno;
use nix::sys::mman::{self, MapFlags, ProtFlags};
use nix::sys::resource::{Resource, getrlimit};

/// Reserved addresses for the bytes of a file.
#[derive(Debug)]
pub(crate) struct Map {
    base: NonNull<u8>,
    len: usize,
    /// The ends of the ranges that are open, and the offsets where they begin.
    open: [(u64, AtomicU64); RANGES],
}

/// Addresses that all maps of the process reserve, in bytes.
static RESERVED: AtomicU64 = AtomicU64::new(0);

/// Returns whether maps may reserve `len` more bytes: a process with a limit of address space (`RLIMIT_AS`) needs the most
/// part of it for itself.
pub(crate) fn may_reserve(len: u64) -> bool {
    const PART: u64 = 8;
    getrlimit(Resource::RLIMIT_AS).map_or(true, |(most, _)| RESERVED.load(Relaxed) + len <= most / PART)
}

/// Number of ranges that can be open: values, and buffers of texts.
pub(crate) const RANGES: usize = 2;

// SAFETY: the pages are only touched as atomics (invariant 3), the rest is plain data.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

const READ_WRITE: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);

impl Map {
    /// Maps a file at addresses for its first `len` bytes. It may be shorter; only ranges that are opened are accessed.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub(crate) fn of_file(file: &File, len: u64, starts: [u64; RANGES]) -> io::Result<Map> {
        let size = size(len)?;
        // SAFETY: the kernel chooses a free address.
        let base = unsafe { mman::mmap(None, size, READ_WRITE, MapFlags::MAP_SHARED, file, 0) }?;
        Ok(Map::new(base, size, starts))
    }

    /// Reserves addresses for memory, which forked children share. Memory is used as ranges are opened.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub(crate) fn of_memory(len: u64, starts: [u64; RANGES]) -> io::Result<Map> {
        let size = size(len)?;
        // SAFETY: the kernel chooses a free address.
        let base = unsafe { mman::mmap_anonymous(None, size, ProtFlags::PROT_NONE, MEMORY) }?;
        Ok(Map::new(base, size, starts))
    }

    fn new(base: NonNull<c_void>, size: NonZeroUsize, starts: [u64; RANGES]) -> Map {
        // In a process that locks all its memory, room that is not used would take up its limit (`RLIMIT_MEMLOCK`).
        // SAFETY: the range was just mapped.
        _ = unsafe { mman::munlock(base, size.get()) };
        RESERVED.fetch_add(size.get() as u64, Relaxed);
        Map { base: base.cast(), len: size.get(), open: starts.map(|start| (start, AtomicU64::new(start))) }
    }

    /// Opens the range with this index up to an offset, at the end of a page.
    pub(crate) fn open(&self, range: usize, end: u64) {
        debug_assert!(end <= self.len as u64);
        if let Some((_, open)) = self.open.get(range) {
            open.store(end, Relaxed);
        }
    }

    /// Puts memory in the place of the file, from the end of the range with this index up to `end`. Both are ends of pages.
    ///
    /// # Errors
    /// Those of mmap(2). The mapping may have changed nevertheless, but nothing refers to it.
    pub(crate) fn detach(&self, range: usize, end: u64) -> io::Result<()> {
        let start = self.open.get(range).map_or(end, |(_, open)| open.load(Relaxed));
        let (Some(len), Some(address)) = (self.len_of(start..end), self.base.addr().checked_add(start as usize)) else {
            return Ok(());
        };
        let flags = MEMORY | MapFlags::MAP_FIXED;
        // SAFETY: the range belongs to this map (invariant 1). It is not open, so that nothing refers to it (invariant 2).
        unsafe { mman::mmap_anonymous(Some(address), len, ProtFlags::PROT_NONE, flags) }?;
        Ok(())
    }

    /// Makes a range of reserved memory usable. Both offsets are ends of pages.
    ///
    /// # Errors
    /// Those of mprotect(2).
    pub(crate) fn permit(&self, range: Range<u64>) -> io::Result<()> {
        let Some(len) = self.len_of(range.clone()) else { return Ok(()) };
        // SAFETY: `len_of` has checked that the range is in the map.
        let start = unsafe { self.base.add(range.start as usize) };
        // SAFETY: the range belongs to this map (invariant 1), and its rights only grow.
        unsafe { mman::mprotect(start.cast::<c_void>(), len.get(), READ_WRITE) }?;
        Ok(())
    }

    /// Returns the length of a range, unless it is empty or not in the map.
    fn len_of(&self, range: Range<u64>) -> Option<NonZeroUsize> {
        let end = usize::try_from(range.end).ok().filter(|end| *end <= self.len)?;
        NonZeroUsize::new(end.checked_sub(range.start as usize)?)
    }

    /// Returns the words from an offset of the file on.
    ///
    /// # Panics
    /// If they are not in an open range.
    pub(crate) fn words(&self, at: u64, count: usize) -> &[AtomicU64] {
        let first = self.address(at, count);
        // SAFETY: invariants 1 to 3; `address` has checked that the words are open and aligned.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), count) }
    }

    fn address(&self, at: u64, count: usize) -> NonNull<AtomicU64> {
        let end = at + 8 * count as u64;
        let is_open = |(start, open): &(u64, AtomicU64)| at >= *start && end <= open.load(Relaxed);
        assert!(at % 8 == 0 && self.open.iter().any(is_open), "offset {at} is not open");
        // SAFETY: open ranges are inside the mapping.
        unsafe { self.base.add(at as usize) }.cast()
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by this map, and nothing refers to it any more (invariant 4).
        let result = unsafe { mman::munmap(self.base.cast::<c_void>(), self.len) };
        debug_assert!(result.is_ok());
        RESERVED.fetch_sub(self.len as u64, Relaxed);
    }
}

const MEMORY: MapFlags = MapFlags::MAP_SHARED.union(MapFlags::MAP_NORESERVE);

fn size(len: u64) -> io::Result<NonZeroUsize> {
    let len = usize::try_from(len).map_err(|_| Errno::ENOMEM)?;
    Ok(NonZeroUsize::new(len).ok_or(Errno::EINVAL)?)
}

/// The address of a value: its two words that updates change.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    word: NonNull<AtomicU64>,
    map: Arc<Map>,
}

// SAFETY: a slot is an address of atomics in a map, which is Send and Sync and kept alive.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    /// Returns the slot of the value at an offset of the file.
    ///
    /// # Panics
    /// If the value is not in an open range.
    pub(crate) fn new(map: &Arc<Map>, at: u64) -> Slot {
        Slot { word: map.address(at, 2), map: Arc::clone(map) }
    }

    /// Returns the value's first word.
    #[inline]
    pub(crate) fn word(&self) -> &AtomicU64 {
        // SAFETY: invariants 1 to 4, and `new` has checked that the word is open.
        unsafe { self.word.as_ref() }
    }

    /// Returns the second word: the string's offset, or the interval's start.
    #[inline]
    pub(crate) fn extra(&self) -> &AtomicU64 {
        // SAFETY: as for `word`; `new` has checked the second word, too.
        unsafe { self.word.add(1).as_ref() }
    }

    /// Returns the map in which the value is.
    pub(crate) fn map(&self) -> &Map {
        &self.map
    }
}

/// Returns whether an error means that a smaller mapping may succeed: a limit of address space (`ENOMEM`) or of locked
/// memory (`EAGAIN`).
pub(crate) fn is_limit(e: &io::Error) -> bool {
    matches!(e.raw_os_error().map(Errno::from_raw), Some(Errno::ENOMEM | Errno::EAGAIN))
}
