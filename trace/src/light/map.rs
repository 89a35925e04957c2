//! Mapped memory: the one module with unsafe code.
//!
//! # Invariants
//! 1. A mapping's pages are mapped shared, readable and writable, from its creation to its drop, and never move.
//! 2. They are pages of a file that this process has made, longer than the mapping's end and with its storage allocated.
//!    Other processes only read it: its mode is 0640. A process of the same user, or of root, that truncates it can stop
//!    this process (SIGBUS), as with every mapped file.
//! 3. The pages are touched as `AtomicU64` alone.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::format::{PAGE, WORD};
use memmap2::{MmapMut, MmapOptions, MmapRaw};
use once_cell::race::OnceBox;

/// A part of the process's file.
#[derive(Debug)]
pub(crate) struct Mapping(MmapRaw);

impl Mapping {
    /// Makes the file longer by whole pages at its end, and maps these.
    pub(crate) fn append(file: &File, end: u64, len: usize) -> io::Result<Mapping> {
        // Without storage a store would end the process.
        system::allocate(file, end, len)?;
        Ok(Mapping(MmapOptions::new().offset(end).len(len).map_raw(file)?))
    }

    /// The words.
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: invariants 1 to 3; pages are aligned, and their length is in words.
        unsafe { std::slice::from_raw_parts(self.0.as_mut_ptr().cast::<AtomicU64>(), self.0.len() / WORD) }
    }
}

/// A page that a process does not inherit when it is forked: zeros are there instead.
struct Wiped(MmapMut);

/// The number of the process: asked of the system after a fork only.
///
/// `None` where the system cannot wipe pages (other than Linux, and Linux before 4.14): there is no light transport then.
#[inline]
pub(crate) fn pid() -> Option<u32> {
    // Two threads may both map a page at the first call. A lock could be held by another thread at a fork, and the child
    // would wait for it for ever.
    static PAGE: OnceBox<Option<Wiped>> = OnceBox::new();
    let word = PAGE.get_or_init(|| Box::new(Wiped::new().ok())).as_ref()?.word();
    match word.load(Relaxed) {
        0 => {
            let pid = std::process::id();
            word.store(pid.into(), Relaxed);
            Some(pid)
        }
        pid => Some(pid as u32),
    }
}

impl Wiped {
    fn new() -> io::Result<Wiped> {
        let page = MmapOptions::new().len(PAGE).map_anon()?;
        system::wipe_on_fork(&page)?;
        Ok(Wiped(page))
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped and writable as long as this is there, and touched as an atomic alone.
        unsafe { &*self.0.as_ptr().cast::<AtomicU64>() }
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs::File;
    use std::io;
    use std::ptr::NonNull;

    use memmap2::MmapMut;
    use nix::errno::Errno;
    use nix::fcntl::posix_fallocate;
    use nix::sys::mman::{MmapAdvise, madvise};
    use nix::sys::resource::{Resource, getrlimit};

    pub(super) fn allocate(file: &File, end: u64, len: usize) -> io::Result<()> {
        // Beyond this limit the kernel sends SIGXFSZ, which ends a process that does not expect it.
        let (most, _) = getrlimit(Resource::RLIMIT_FSIZE)?;
        if end.saturating_add(len as u64) > most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let offset = |at| i64::try_from(at).map_err(io::Error::other);
        let (end, len) = (offset(end)?, offset(len as u64)?);
        let mut tries = (0..100).map(|_| posix_fallocate(file, end, len));
        Ok(tries.find(|done| *done != Err(Errno::EINTR)).unwrap_or(Err(Errno::EINTR))?)
    }

    pub(super) fn wipe_on_fork(page: &MmapMut) -> io::Result<()> {
        let start = NonNull::new(page.as_ptr().cast_mut().cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the range is this mapping, which nobody refers to yet.
        Ok(unsafe { madvise(start, page.len(), MmapAdvise::MADV_WIPEONFORK) }?)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::fs::File;
    use std::io;

    use memmap2::MmapMut;

    pub(super) fn allocate(_: &File, _: u64, _: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn wipe_on_fork(_: &MmapMut) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
