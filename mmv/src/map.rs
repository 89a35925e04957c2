//! Mapped memory: the one module with unsafe code.
//!
//! A [`Chunk`] is a range of addresses behind which a run of values lies. The addresses never
//! change, what is mapped there does: memory of this process before the file exists, then the
//! file, then the larger file that takes its place. A handle is an address, so an update is one
//! instruction and needs to know nothing of files.
//!
//! # Invariants
//! 1. From `Chunk::new` until its drop, `base..base + len` is mapped shared, readable and writable,
//!    by this chunk alone. `rebase` replaces the mapping in one system call; an access meanwhile
//!    waits in the kernel and then meets the old or the new pages. When that call fails, the process
//!    ends, because handles would point to nothing.
//! 2. The pages hold the values `first..first + capacity` at their offsets in the file, and every
//!    file that is mapped has at least the length of the last of them. The capacity can shrink, but
//!    not below a value that has a slot.
//! 3. Values are touched as `AtomicU64` only; no reference to anything else in the pages exists.
//! 4. A `Slot` keeps its chunk alive.
//!
//! Other processes only read the file. Somebody with the right to truncate it can stop this process
//! (SIGBUS), as with every mapped file; the registry creates it with mode 0644.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memmap2::{MmapMut, MmapOptions};

use crate::format::VALUE_LEN;
use crate::layout::VALUES_AT;

/// Lets an update that cannot do without wait until the values are in their new file.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    lock: Mutex<()>,
    /// Odd while values move.
    moves: AtomicU64,
}

impl Gate {
    /// While this guard lives no value moves.
    pub(crate) fn hold(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves values: `f` may rebase chunks and settle their values.
    pub(crate) fn while_moving<T>(&self, f: impl FnOnce() -> T) -> T {
        let _held = self.hold();
        self.moves.fetch_add(1, Ordering::SeqCst);
        let result = f();
        self.moves.fetch_add(1, Ordering::SeqCst);
        result
    }

    /// Reads something that makes sense only while no value moves.
    pub(crate) fn settled<T>(&self, read: impl Fn() -> T) -> T {
        let before = self.moves.load(Ordering::SeqCst);
        if before.is_multiple_of(2) {
            let result = read();
            fence(Ordering::Acquire);
            if self.moves.load(Ordering::SeqCst) == before {
                return result;
            }
        }
        let _held = self.hold();
        read()
    }
}

/// Addresses of a run of values.
#[derive(Debug)]
pub(crate) struct Chunk {
    base: NonNull<u8>,
    len: usize,
    /// Offset in the file of what is at `base`.
    offset: u64,
    first: usize,
    capacity: AtomicUsize,
    /// One more than the last value, counted from `first`, that has a slot.
    slotted: AtomicUsize,
    gate: Arc<Gate>,
}

// SAFETY: the pages are only touched as atomics (invariant 3), the rest is plain data.
unsafe impl Send for Chunk {}
// SAFETY: as above; `rebase` is safe beside accesses (invariant 1).
unsafe impl Sync for Chunk {}

/// Offset in the file of a value.
const fn value_at(index: usize) -> u64 {
    VALUES_AT + (index * VALUE_LEN) as u64
}

impl Chunk {
    /// Addresses for at least `at_least` values from `first` on, over memory that is no file yet.
    pub(crate) fn new(first: usize, at_least: usize, gate: Arc<Gate>) -> io::Result<(Arc<Chunk>, Backing)> {
        let page = page_size();
        let offset = value_at(first) / page * page;
        let end = value_at(first + at_least).next_multiple_of(page);
        let (base, backing) = backing::anonymous(offset, end)?;
        let len = usize::try_from(end - offset).map_err(io::Error::other)?;
        let capacity = usize::try_from(end - value_at(first)).map_err(io::Error::other)? / VALUE_LEN;
        let capacity = AtomicUsize::new(capacity);
        let slotted = AtomicUsize::new(0);
        Ok((Arc::new(Chunk { base, len, offset, first, capacity, slotted, gate }), backing))
    }

    /// The values that it has addresses for.
    pub(crate) fn range(&self) -> Range<usize> {
        self.first..self.first + self.capacity.load(Ordering::SeqCst)
    }

    /// The values that may have slots.
    pub(crate) fn slotted(&self) -> Range<usize> {
        self.first..self.first + self.slotted.load(Ordering::SeqCst)
    }

    /// Gives up the addresses of values from `end` on, if none of them has a slot.
    pub(crate) fn trim(&self, end: usize) {
        let _held = self.gate.hold();
        let kept = end.saturating_sub(self.first).max(self.slotted.load(Ordering::SeqCst));
        self.capacity.fetch_min(kept, Ordering::SeqCst);
    }

    /// Maps a file, which must have all of the chunk's values and be mappable ([`probe`]), in place of
    /// what was mapped.
    pub(crate) fn rebase(&self, file: &File) -> io::Result<()> {
        if file.metadata()?.len() < value_at(self.range().end) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        backing::replace(self.base, self.len, file, self.offset)
    }

    /// The two words of a value that change.
    pub(crate) fn words(&self, index: usize) -> (&AtomicU64, &AtomicU64) {
        let word = self.address(index);
        // SAFETY: the address is that of a value's first word, and the second one is behind it; both
        // are mapped while the chunk lives (invariant 1), aligned, and atomics (invariant 3).
        unsafe { (word.as_ref(), word.add(1).as_ref()) }
    }

    /// A value's address.
    pub(crate) fn slot(self: &Arc<Self>, index: usize) -> Slot {
        let _held = self.gate.hold();
        let word = self.address(index);
        self.slotted.fetch_max(index - self.first + 1, Ordering::SeqCst);
        Slot { word, chunk: Arc::clone(self) }
    }

    fn address(&self, index: usize) -> NonNull<AtomicU64> {
        assert!(self.range().contains(&index), "value {index} is in another chunk");
        let within = (value_at(index) - self.offset) as usize;
        // SAFETY: `within + VALUE_LEN <= len` by the assertion and invariant 2.
        unsafe { self.base.add(within) }.cast()
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        backing::unmap(self.base, self.len);
    }
}

/// The two words of a value that change.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    word: NonNull<AtomicU64>,
    chunk: Arc<Chunk>,
}

// SAFETY: a slot is an address of atomics in a chunk, which is Send and Sync and kept alive.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    /// The value.
    #[inline]
    pub(crate) fn word(&self) -> &AtomicU64 {
        // SAFETY: invariants 1 and 4; values are aligned to 8 bytes (VALUES_AT and VALUE_LEN are
        // multiples of it, pages too), and touched as AtomicU64 only.
        unsafe { self.word.as_ref() }
    }

    /// The string's offset or the interval's start.
    #[inline]
    pub(crate) fn extra(&self) -> &AtomicU64 {
        // SAFETY: as for `word`; it is the second word of the same value.
        unsafe { self.word.add(1).as_ref() }
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.chunk.gate
    }
}

/// Maps a part of a file of our own, which nobody but the holder of the map writes.
pub(crate) fn map_range(file: &File, offset: u64, len: usize) -> io::Result<MmapMut> {
    // SAFETY: other processes only read the file, so that the bytes change under no reader's eyes
    // here; for truncation see the module's documentation.
    unsafe { MmapOptions::new().offset(offset).len(len).map_mut(file) }
}

#[cfg(not(miri))]
pub(crate) use backing::{page_size, probe};
#[cfg(miri)]
use heap as backing;
#[cfg(miri)]
pub(crate) use heap::{page_size, probe};

/// What is mapped behind a chunk.
pub(crate) type Backing = File;

#[cfg(not(miri))]
mod backing {
    use std::ffi::c_void;
    use std::num::NonZeroUsize;
    use std::process;

    use nix::sys::mman::{self, MapFlags, ProtFlags};
    use nix::unistd::{SysconfVar, sysconf};

    use super::{Backing, File, NonNull, io};

    const READ_WRITE: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);

    /// Size of a page.
    pub(crate) fn page_size() -> u64 {
        sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|n| u64::try_from(n).ok()).unwrap_or(4096)
    }

    /// Maps `start..end` of a new file without a name.
    pub(super) fn anonymous(start: u64, end: u64) -> io::Result<(NonNull<u8>, Backing)> {
        let file = nameless()?;
        file.set_len(end)?;
        Ok((map(None, end - start, MapFlags::MAP_SHARED, &file, start)?, file))
    }

    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    fn nameless() -> io::Result<File> {
        use nix::sys::memfd::{MFdFlags, memfd_create};
        Ok(File::from(memfd_create("mmv", MFdFlags::MFD_CLOEXEC)?))
    }

    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
    fn nameless() -> io::Result<File> {
        use std::sync::atomic::{AtomicU64, Ordering};
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!(".mmv.{}.{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        std::fs::remove_file(path)?;
        Ok(file)
    }

    /// Whether a file can be mapped at all.
    pub(crate) fn probe(file: &File) -> io::Result<()> {
        let len = page_size();
        let probe = map(None, len, MapFlags::MAP_SHARED, file, 0)?;
        unmap(probe, len as usize);
        Ok(())
    }

    /// Maps a file, which [`probe`] has seen, at addresses that are mapped already.
    pub(super) fn replace(base: NonNull<u8>, len: usize, file: &File, offset: u64) -> io::Result<()> {
        let fixed = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
        if let Err(e) = map(Some(base), len as u64, fixed, file, offset) {
            tracing::error!("cannot map values at their place: {e}");
            process::abort();
        }
        Ok(())
    }

    fn map(at: Option<NonNull<u8>>, len: u64, flags: MapFlags, file: &File, offset: u64) -> io::Result<NonNull<u8>> {
        let len = usize::try_from(len).ok().and_then(NonZeroUsize::new).ok_or(io::ErrorKind::InvalidInput)?;
        let offset = offset.try_into().map_err(io::Error::other)?;
        let at = at.map(NonNull::addr);
        // SAFETY: without an address the kernel chooses a free one; with an address this is
        // `replace`, whose range belongs to one chunk (invariant 1).
        let pages = unsafe { mman::mmap(at, len, READ_WRITE, flags, file, offset) }?;
        Ok(pages.cast())
    }

    pub(super) fn unmap(base: NonNull<u8>, len: usize) {
        // SAFETY: the range was mapped by `map` and nothing refers to it any more (invariant 4).
        let result = unsafe { mman::munmap(base.cast::<c_void>(), len) };
        debug_assert!(result.is_ok());
    }
}

/// Stands in for mappings under Miri, which has none that are shared: memory of the process.
#[cfg(miri)]
mod heap {
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    use super::{Backing, File, NonNull, io};

    pub(crate) fn page_size() -> u64 {
        4096
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, 4096).expect("a multiple of the page size")
    }

    pub(super) fn anonymous(start: u64, end: u64) -> io::Result<(NonNull<u8>, Backing)> {
        // SAFETY: the layout is not empty.
        let base = unsafe { alloc_zeroed(layout((end - start) as usize)) };
        Ok((NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?, File::open("/dev/null")?))
    }

    pub(crate) fn probe(_: &File) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn replace(_: NonNull<u8>, _: usize, _: &File, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn unmap(base: NonNull<u8>, len: usize) {
        // SAFETY: allocated by `anonymous` with the same layout.
        unsafe { dealloc(base.as_ptr(), layout(len)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_do_not_overlap() {
        let (chunk, _) = Chunk::new(7, 200, Arc::default()).unwrap();
        assert!(chunk.range().len() >= 200);
        let slots: Vec<Slot> = chunk.range().map(|i| chunk.slot(i)).collect();
        drop(chunk);
        for (slot, i) in slots.iter().zip(0..) {
            slot.word().store(i, Ordering::Relaxed);
            slot.extra().store(!i, Ordering::Relaxed);
        }
        for (slot, i) in slots.iter().zip(0..) {
            assert_eq!((slot.word().load(Ordering::Relaxed), slot.extra().load(Ordering::Relaxed)), (i, !i));
        }
    }

    #[test]
    #[should_panic(expected = "another chunk")]
    fn slot_of_another_chunk() {
        let (chunk, _) = Chunk::new(0, 1, Arc::default()).unwrap();
        chunk.slot(chunk.range().end);
    }

    #[cfg(not(miri))]
    #[test]
    fn addresses_outlive_their_memory() {
        use std::os::unix::fs::FileExt;
        let (chunk, old) = Chunk::new(300, 1, Arc::default()).unwrap();
        let slot = chunk.slot(300);
        slot.word().store(11, Ordering::Relaxed);
        let file = tempfile::tempfile().unwrap();
        file.set_len(old.metadata().unwrap().len()).unwrap();
        file.write_all_at(&22u64.to_ne_bytes(), value_at(300)).unwrap();
        chunk.rebase(&file).unwrap();
        assert_eq!(slot.word().load(Ordering::Relaxed), 22);
        slot.word().store(33, Ordering::Relaxed);
        let at = |file: &File| {
            let mut word = [0; 8];
            file.read_exact_at(&mut word, value_at(300)).unwrap();
            u64::from_ne_bytes(word)
        };
        assert_eq!((at(&old), at(&file)), (11, 33));
    }
}
