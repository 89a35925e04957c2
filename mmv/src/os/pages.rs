//! Pages of files at addresses of this process.
//!
//! # Invariants
//! 1. From `Pages::new` until its drop, `base..base + len` is mapped shared, readable and writable, by this `Pages`
//!    alone. `replace` replaces the mapping in one system call. An access during this call waits in the kernel, and
//!    then reaches the old or the new pages. When that call fails, the old pages stay: the kernel refuses before it
//!    unmaps. Where several `Pages` move, all of them are mapped at other addresses before the first one moves, so the
//!    kernel has no reason left to refuse.
//! 2. The mapping is `offset..offset + len` of a file, or memory without a file. `Segment` ensures that every file contains the values that have
//!    slots; an access beyond the file's end would raise a signal.
//! 3. The pages are accessed as `AtomicU64` only; no reference to anything else in them exists.
//! 4. A `Slot` keeps its pages alive.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use memmap2::{MmapMut, MmapOptions};
use nix::errno::Errno;
#[cfg(target_os = "linux")]
use nix::sys::mman::MRemapFlags;
use nix::sys::mman::{self, MapFlags, MsFlags, ProtFlags};
use pmapi::file::stores_may_fail;

use super::page_size;
use crate::file::Kept;
use crate::format::VALUE_LEN;

/// How values get into a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// The file is mapped behind their addresses.
    Mapped,
    /// Values are written by each flush.
    Copied,
}

/// How many segments move to a file together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moving {
    One,
    Several,
}

/// Addresses at which a part of a file is mapped, and the data that their slots share.
#[derive(Debug)]
pub(crate) struct Pages<S> {
    base: NonNull<u8>,
    len: usize,
    /// Offset in the file of the byte at `base`.
    offset: u64,
    shared: S,
}

// SAFETY: the pages are only touched as atomics (invariant 3), the rest is plain data.
unsafe impl<S: Send> Send for Pages<S> {}
// SAFETY: as above; `replace` is safe beside accesses (invariant 1).
unsafe impl<S: Sync> Sync for Pages<S> {}

impl<S> Pages<S> {
    /// Maps a range of whole pages of a new, nameless file. Where the system refuses that, the pages have no file, and
    /// cannot be replaced.
    pub(crate) fn new(range: Range<u64>, shared: S) -> io::Result<(Pages<S>, Option<File>)> {
        let len = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
        let mapped = nameless(range.end).and_then(|file| {
            let base = map(None, len, MapFlags::MAP_SHARED, &file, range.start)?;
            Ok((base, Some(file)))
        });
        let (base, file) = match mapped {
            Err(e) if is_refusal(&e) => (map_anonymous(len)?, None),
            mapped => mapped?,
        };
        Ok((Pages { base, len, offset: range.start, shared }, file))
    }

    /// Prepares [`Pages::replace`] by mapping a file at other addresses; [`access`] must allow that. If only one
    /// `Pages` moves, it is not mapped in advance: if the kernel refuses later, no other pages have to move back.
    pub(crate) fn prepare(&self, file: &Arc<Kept>, moving: Moving) -> io::Result<Prepared> {
        let elsewhere = cfg!(target_os = "linux") && moving == Moving::Several;
        let base =
            elsewhere.then(|| map(None, self.len, MapFlags::MAP_SHARED, file.get()?, self.offset)).transpose()?;
        Ok(Prepared { base, len: self.len, offset: self.offset, file: Arc::clone(file) })
    }

    /// Replaces the mapping by prepared pages. After an error, the old mapping stays.
    pub(crate) fn replace(&self, mut new: Prepared) -> io::Result<()> {
        assert_eq!(new.len, self.len, "it was prepared for other addresses");
        let result = new.move_to(self.base);
        if result.is_err() {
            // The kernel checks whatever it may refuse before it unmaps anything, so the old mapping should still be
            // there.
            // SAFETY: it writes nothing, and fails if the range is not mapped.
            let is_mapped = unsafe { mman::msync(self.base.cast(), self.len, MsFlags::MS_ASYNC) };
            if is_mapped.is_err() {
                _ = new.map_at(self.base);
            }
        }
        result
    }

    /// Returns the first two words of the value at an offset of the file.
    pub(crate) fn words(&self, at: u64) -> (&AtomicU64, &AtomicU64) {
        let word = self.address(at);
        // SAFETY: the address is that of a value's first word, and the second one follows it; both are mapped while the
        // pages live (invariant 1), aligned, and atomics (invariant 3).
        unsafe { (word.as_ref(), word.add(1).as_ref()) }
    }

    fn address(&self, at: u64) -> NonNull<AtomicU64> {
        let within = at.wrapping_sub(self.offset) as usize;
        assert!(within % VALUE_LEN == 0 && within < self.len, "no value is at {at}");
        // SAFETY: `within + VALUE_LEN <= len` by the assertion, as pages are multiples of VALUE_LEN.
        unsafe { self.base.add(within) }.cast()
    }
}

impl<S> Drop for Pages<S> {
    fn drop(&mut self) {
        unmap(self.base, self.len);
    }
}

/// Pages of a file that are to replace others.
pub(crate) struct Prepared {
    /// The address at which the pages are mapped meanwhile.
    base: Option<NonNull<u8>>,
    len: usize,
    offset: u64,
    file: Arc<Kept>,
}

impl Prepared {
    /// Moves the mapped pages to the addresses of others.
    #[cfg(target_os = "linux")]
    fn move_to(&mut self, place: NonNull<u8>) -> io::Result<()> {
        let Some(base) = self.base else { return self.map_at(place) };
        let flags = MRemapFlags::MREMAP_MAYMOVE | MRemapFlags::MREMAP_FIXED;
        // SAFETY: both ranges are mapped and of this length; the source belongs to this `Prepared` alone, and the
        // destination to the `Pages` that replaces its own (invariant 1).
        unsafe { mman::mremap(base.cast(), self.len, self.len, flags, Some(place.cast())) }?;
        self.base = None;
        Ok(())
    }

    #[cfg(not(target_os = "linux"))]
    fn move_to(&mut self, place: NonNull<u8>) -> io::Result<()> {
        self.map_at(place)
    }

    fn map_at(&self, place: NonNull<u8>) -> io::Result<()> {
        let fixed = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
        map(Some(place), self.len, fixed, self.file.get()?, self.offset).map(drop)
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some(base) = self.base {
            unmap(base, self.len);
        }
    }
}

/// The address of a value: its two words that updates change.
#[derive(Clone, Debug)]
pub(crate) struct Slot<S> {
    word: NonNull<AtomicU64>,
    pages: Arc<Pages<S>>,
}

// SAFETY: a slot is an address of atomics in pages, which are Send and Sync and kept alive.
unsafe impl<S: Send + Sync> Send for Slot<S> {}
// SAFETY: as above.
unsafe impl<S: Send + Sync> Sync for Slot<S> {}

impl<S> Slot<S> {
    pub(crate) fn new(pages: &Arc<Pages<S>>, at: u64) -> Slot<S> {
        Slot { word: pages.address(at), pages: Arc::clone(pages) }
    }

    /// Returns the value's first word.
    #[inline]
    pub(crate) fn word(&self) -> &AtomicU64 {
        // SAFETY: invariants 1 and 4; values are accessed as AtomicU64 only. They are aligned to 8 bytes, since their
        // size and that of pages are multiples of it.
        unsafe { self.word.as_ref() }
    }

    /// Returns the second word: the string's offset, or the interval's start.
    #[inline]
    pub(crate) fn extra(&self) -> &AtomicU64 {
        // SAFETY: as for `word`; it is the second word of the same value.
        unsafe { self.word.add(1).as_ref() }
    }

    /// Returns the data that the slots of these pages share.
    #[inline]
    pub(crate) fn shared(&self) -> &S {
        &self.pages.shared
    }
}

/// Maps a part of this process's own file, which only the holder of the map writes.
pub(crate) fn map_range(file: &File, offset: u64, len: usize) -> io::Result<MmapMut> {
    // SAFETY: other processes only read the file, so the bytes change only through this mapping; for truncation see the
    // documentation of `map`.
    unsafe { MmapOptions::new().offset(offset).len(len).map_mut(file) }
}

const READ_WRITE: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);

/// Device of a file that was mapped.
static GOOD: AtomicU64 = AtomicU64::new(u64::MAX);

/// Returns whether an error means that the system refuses to map a file, or to create one in memory: the file system
/// (`ENODEV`), a filter of system calls (seccomp(2), which may choose any code), a security module (`EACCES`), or a limit of
/// address space (`ENOMEM`). Writing the file may be permitted all the same.
pub(crate) fn is_refusal(e: &io::Error) -> bool {
    let code = e.raw_os_error().map(Errno::from_raw);
    matches!(code, Some(Errno::ENODEV | Errno::EPERM | Errno::EACCES | Errno::ENOSYS | Errno::ENOMEM))
}

/// Makes [`access`] try again whether files can be mapped.
pub(crate) fn forget_access() {
    GOOD.store(u64::MAX, Relaxed);
}

/// Returns how values are written to a new file. The file is mapped if the system permits that, unless a store to mapped
/// memory may fail there ([`stores_may_fail`]), which would end the process (SIGBUS).
pub(crate) fn access(file: &File) -> io::Result<Access> {
    let device = file.metadata()?.dev();
    if GOOD.load(Relaxed) != device {
        if stores_may_fail(file) {
            return Ok(Access::Copied);
        }
        let len = page_size() as usize;
        match map(None, len, MapFlags::MAP_SHARED, file, 0) {
            Ok(base) => unmap(base, len),
            Err(e) if is_refusal(&e) => return Ok(Access::Copied),
            Err(e) => return Err(e),
        }
        GOOD.store(device, Relaxed);
    }
    Ok(Access::Mapped)
}

/// Creates a nameless file.
pub(crate) fn nameless(len: u64) -> io::Result<File> {
    let file = create_nameless()?;
    file.set_len(len)?;
    Ok(file)
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn create_nameless() -> io::Result<File> {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    Ok(File::from(memfd_create("mmv", MFdFlags::MFD_CLOEXEC)?))
}

/// Returns whether a nameless file may contain other bytes than zeros.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
pub(crate) fn is_touched(file: &File) -> bool {
    use nix::unistd::{Whence, lseek};
    lseek(file, 0, Whence::SeekData) != Err(Errno::ENXIO)
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
pub(crate) fn is_touched(_: &File) -> bool {
    true
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn create_nameless() -> io::Result<File> {
    use std::sync::atomic::Ordering;
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = format!(".mmv.{}.{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(name);
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

fn map(at: Option<NonNull<u8>>, len: usize, flags: MapFlags, file: &File, offset: u64) -> io::Result<NonNull<u8>> {
    let len = NonZeroUsize::new(len).ok_or(io::ErrorKind::InvalidInput)?;
    let offset = offset.try_into().map_err(io::Error::other)?;
    let at = at.map(NonNull::addr);
    // SAFETY: without an address the kernel chooses a free one; with an address this is `replace`,
    // whose range belongs to one `Pages` (invariant 1).
    let pages = unsafe { mman::mmap(at, len, READ_WRITE, flags, file, offset) }?;
    Ok(pages.cast())
}

/// Maps memory without a file, which forked children share.
fn map_anonymous(len: usize) -> io::Result<NonNull<u8>> {
    let len = NonZeroUsize::new(len).ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: the kernel chooses a free address.
    let pages = unsafe { mman::mmap_anonymous(None, len, READ_WRITE, MapFlags::MAP_SHARED) }?;
    Ok(pages.cast())
}

fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: the range was mapped by `map` and nothing refers to it any more (invariant 4).
    let result = unsafe { mman::munmap(base.cast::<c_void>(), len) };
    debug_assert!(result.is_ok());
}
