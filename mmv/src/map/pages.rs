//! The one module with unsafe code: pages of files at addresses of this process, and what tells forked processes apart.
//!
//! # Invariants
//! 1. From `Pages::new` until its drop, `base..base + len` is mapped shared, readable and writable, by this `Pages`
//!    alone. `replace` replaces the mapping in one system call. An access meanwhile waits in the kernel, and then
//!    reaches the old or the new pages. When that call fails, the old pages stay: the kernel refuses before it unmaps.
//!    Where several `Pages` move, all of them are mapped at other addresses before the first one moves, so the kernel
//!    has nothing left to refuse.
//! 2. The mapping is `offset..offset + len` of a file. `Segment` ensures that every file contains the values that have
//!    slots; an access beyond the file's end would raise a signal.
//! 3. The pages are accessed as `AtomicU64` only; no reference to anything else in them exists.
//! 4. A `Slot` keeps its pages alive.
#![allow(unsafe_code)]

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
use nix::unistd::{SysconfVar, sysconf};
use once_cell::race::OnceBox;
use pmapi::file::off_stdio;

use super::{Access, Gate, Moving};
use crate::format::VALUE_LEN;

/// Addresses at which a part of a file is mapped.
#[derive(Debug)]
pub(super) struct Pages {
    base: NonNull<u8>,
    len: usize,
    /// Offset in the file of the byte at `base`.
    offset: u64,
    gate: Arc<Gate>,
}

// SAFETY: the pages are only touched as atomics (invariant 3), the rest is plain data.
unsafe impl Send for Pages {}
// SAFETY: as above; `replace` is safe beside accesses (invariant 1).
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps a range of whole pages of a new, nameless file.
    pub(super) fn new(range: Range<u64>, gate: Arc<Gate>) -> io::Result<(Pages, File)> {
        let file = nameless(range.end)?;
        let len = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
        let base = map(None, len, MapFlags::MAP_SHARED, &file, range.start)?;
        Ok((Pages { base, len, offset: range.start, gate }, file))
    }

    /// Prepares [`Pages::replace`] by mapping a file at other addresses; [`access`] must allow that. The only
    /// pages that move are not mapped in advance: if the kernel refuses later, no other pages have to move back.
    pub(super) fn prepare(&self, file: &Arc<File>, moving: Moving) -> io::Result<Prepared> {
        let elsewhere = cfg!(target_os = "linux") && moving == Moving::Several;
        let base = elsewhere.then(|| map(None, self.len, MapFlags::MAP_SHARED, file, self.offset)).transpose()?;
        Ok(Prepared { base, len: self.len, offset: self.offset, file: Arc::clone(file) })
    }

    /// Replaces the mapping by prepared pages. After an error, the old mapping stays.
    pub(super) fn replace(&self, mut new: Prepared) -> io::Result<()> {
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
    pub(super) fn words(&self, at: u64) -> (&AtomicU64, &AtomicU64) {
        let word = self.address(at);
        // SAFETY: the address is that of a value's first word, and the second one is behind it; both
        // are mapped while the pages live (invariant 1), aligned, and atomics (invariant 3).
        unsafe { (word.as_ref(), word.add(1).as_ref()) }
    }

    fn address(&self, at: u64) -> NonNull<AtomicU64> {
        let within = at.wrapping_sub(self.offset) as usize;
        assert!(within.is_multiple_of(VALUE_LEN) && within < self.len, "no value is at {at}");
        // SAFETY: `within + VALUE_LEN <= len` by the assertion, as pages are multiples of VALUE_LEN.
        unsafe { self.base.add(within) }.cast()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        unmap(self.base, self.len);
    }
}

/// Pages of a file that are to replace others.
pub(super) struct Prepared {
    /// The address at which the pages are mapped meanwhile.
    base: Option<NonNull<u8>>,
    len: usize,
    offset: u64,
    file: Arc<File>,
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
        map(Some(place), self.len, fixed, &self.file, self.offset).map(drop)
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
pub(crate) struct Slot {
    word: NonNull<AtomicU64>,
    pages: Arc<Pages>,
}

// SAFETY: a slot is an address of atomics in pages, which are Send and Sync and kept alive.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    pub(super) fn new(pages: &Arc<Pages>, at: u64) -> Slot {
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

    pub(crate) fn gate(&self) -> &Gate {
        &self.pages.gate
    }
}

/// Maps a part of this process's own file, which only the holder of the map writes.
pub(crate) fn map_range(file: &File, offset: u64, len: usize) -> io::Result<MmapMut> {
    // SAFETY: other processes only read the file, so the bytes change only through this mapping; for truncation see the
    // documentation of `map`.
    unsafe { MmapOptions::new().offset(offset).len(len).map_mut(file) }
}

const READ_WRITE: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);

/// Registers functions that the forking thread calls: before the fork, and afterwards in the parent and in the child.
pub(super) fn at_fork(prepare: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: the functions exist as long as the process, and do not unwind.
    _ = unsafe { nix::libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
}

/// Returns a word that is zero in each new child, however the child was created. `None` where the system does not support
/// that. The first call sets the word to `first()`.
#[inline]
pub(super) fn wiped_on_fork(first: impl Fn() -> u64) -> Option<&'static AtomicU64> {
    // Without a lock, which could stay locked in a child. Two threads may both map a page at the first call.
    static PAGE: OnceBox<Option<MmapMut>> = OnceBox::new();
    let page = PAGE.get_or_init(|| {
        let page = MmapOptions::new().len(page_size() as usize).map_anon();
        let page = page.and_then(|page| system::wipe_on_fork(&page).map(|()| page));
        if let Ok(page) = &page {
            word_of(page).store(first(), Relaxed);
        }
        Box::new(page.ok())
    });
    page.as_ref().map(word_of)
}

fn word_of(page: &MmapMut) -> &AtomicU64 {
    // SAFETY: the page is mapped and writable as long as `page` lives, aligned, and accessed as an atomic only.
    unsafe { &*page.as_ptr().cast::<AtomicU64>() }
}

/// Returns the size of a page, in bytes.
pub(crate) fn page_size() -> u64 {
    sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|n| u64::try_from(n).ok()).unwrap_or(4096)
}

/// Returns how values get into a new file. It is mapped if its file system supports that and does not copy on write. On
/// one that copies, each store may need room on the disk, and ends the process when the disk is full (SIGBUS).
pub(crate) fn access(file: &File) -> io::Result<Access> {
    static GOOD: AtomicU64 = AtomicU64::new(u64::MAX);
    let device = file.metadata()?.dev();
    if GOOD.load(Relaxed) != device {
        if system::copies_on_write(file) {
            return Ok(Access::Copied);
        }
        let len = page_size() as usize;
        match map(None, len, MapFlags::MAP_SHARED, file, 0) {
            Ok(base) => unmap(base, len),
            // Other errors may be temporary.
            Err(e) if e.raw_os_error() == Some(Errno::ENODEV as i32) => return Ok(Access::Copied),
            Err(e) => return Err(e),
        }
        GOOD.store(device, Relaxed);
    }
    Ok(Access::Mapped)
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd;
    use std::ptr::NonNull;

    use memmap2::MmapMut;
    use nix::libc::{c_int, c_long};
    use nix::sys::mman::{MmapAdvise, madvise};
    use nix::sys::statfs::{BTRFS_SUPER_MAGIC, FsType, NILFS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, fstatfs};

    /// Makes the kernel clear a page in each child (`MADV_WIPEONFORK` of madvise(2)).
    pub(super) fn wipe_on_fork(page: &MmapMut) -> io::Result<()> {
        let start = NonNull::new(page.as_ptr().cast_mut().cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the range is this mapping, to which there are no references yet.
        Ok(unsafe { madvise(start, page.len(), MmapAdvise::MADV_WIPEONFORK) }?)
    }

    const BCACHEFS: FsType = FsType(0xca45_1a4e_u32 as _);
    const ZFS: FsType = FsType(0x2fc1_2fc1);
    /// The attribute of a file that is not copied on write (`FS_NOCOW_FL`).
    const NO_COPIES: c_int = 0x0080_0000;

    nix::ioctl_read!(attributes, b'f', 1, c_long);
    nix::ioctl_write_ptr!(set_attributes, b'f', 2, c_long);

    pub(super) fn copies_on_write(file: &File) -> bool {
        match fstatfs(file).map(|statfs| statfs.filesystem_type()) {
            Ok(BTRFS_SUPER_MAGIC | NILFS_SUPER_MAGIC | BCACHEFS | ZFS) => true,
            // An overlay behaves as the file system below it, whose type it hides. But only a file system that copies
            // on write can disable that for a file.
            Ok(OVERLAYFS_SUPER_MAGIC) => has_no_copies(file),
            _ => false,
        }
    }

    fn has_no_copies(file: &File) -> bool {
        let mut flags: c_int = 0;
        // SAFETY: both calls read or write an `int`, although their request numbers say `long`.
        unsafe {
            if attributes(file.as_raw_fd(), (&raw mut flags).cast()).is_err() {
                return false;
            }
            flags |= NO_COPIES;
            set_attributes(file.as_raw_fd(), (&raw const flags).cast()).is_ok()
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub(super) fn copies_on_write(_: &std::fs::File) -> bool {
        false
    }

    pub(super) fn wipe_on_fork(_: &memmap2::MmapMut) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

/// Creates a nameless file.
pub(super) fn nameless(len: u64) -> io::Result<File> {
    let file = off_stdio(create_nameless()?)?;
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
pub(super) fn is_touched(file: &File) -> bool {
    use nix::unistd::{Whence, lseek};
    lseek(file, 0, Whence::SeekData) != Err(Errno::ENXIO)
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
pub(super) fn is_touched(_: &File) -> bool {
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

fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: the range was mapped by `map` and nothing refers to it any more (invariant 4).
    let result = unsafe { mman::munmap(base.cast::<c_void>(), len) };
    debug_assert!(result.is_ok());
}
