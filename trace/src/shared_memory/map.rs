//! Mapped memory: the one module with unsafe code.
//!
//! # Invariants
//! 1. A mapping's pages are mapped shared, readable and writable, from its creation to its drop, and never move.
//! 2. The pages belong to a file that this process has made. The file is not shorter than the mapping's end, and its
//!    storage is allocated. Other processes only read it: its mode is 0640. A process of the same user, or of root, can
//!    end this process by truncating the file (SIGBUS), as with every mapped file.
//! 3. The pages are accessed as `AtomicU64` only.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::format::{PAGE, WORD};
use memmap2::{MmapMut, MmapOptions, MmapRaw};
use once_cell::race::OnceBox;

/// Mapped part of the process's file.
#[derive(Debug)]
pub(crate) struct Mapping(MmapRaw);

impl Mapping {
    /// Extends the file by `len` bytes at `end`, both multiples of the page size, and maps the new part.
    pub(crate) fn append(file: &File, end: u64, len: usize) -> io::Result<Mapping> {
        // A store to a page without storage would end the process with SIGBUS.
        system::allocate(file, end, len)?;
        Ok(Mapping(MmapOptions::new().offset(end).len(len).map_raw(file)?))
    }

    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: invariants 1 to 3; pages are aligned, and their length is in words.
        unsafe { std::slice::from_raw_parts(self.0.as_mut_ptr().cast::<AtomicU64>(), self.0.len() / WORD) }
    }
}

/// A page that has zeros in a forked child (`MADV_WIPEONFORK` of madvise(2)).
struct Wiped(MmapMut);

/// A process among those that have a copy of the same memory. Its PID alone does not distinguish a child from its
/// ancestors: they can be in other PID namespaces, or have ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Id(u64);

impl Id {
    /// Returns the process with this number of copies of its memory before it.
    pub(super) fn new(copies: u32) -> Id {
        Id(u64::from(copies) << 32 | u64::from(std::process::id()))
    }

    pub(crate) fn pid(self) -> u32 {
        self.0 as u32
    }

    /// A number that identifies the process; not 0.
    pub(crate) fn word(self) -> u64 {
        self.0
    }
}

impl Default for Id {
    /// Returns the identifier for systems that cannot wipe pages. There, [`id`] has none.
    fn default() -> Id {
        Id::new(0)
    }
}

/// This process. It is cached, with one system call in each forked child.
///
/// `None` where the system cannot wipe pages (other systems than Linux 4.14 and later). They have no shared-memory
/// transport.
#[inline]
pub(crate) fn id() -> Option<Id> {
    // `OnceBox` has no lock, so that two threads may both map a page at the first call. A forked child would wait for
    // ever for a lock that another thread held at the fork.
    static PAGE: OnceBox<Option<Wiped>> = OnceBox::new();
    let word = PAGE.get_or_init(|| Box::new(Wiped::new().ok())).as_ref()?.word();
    match word.load(Relaxed) {
        0 => {
            static COPIES: AtomicU32 = AtomicU32::new(0);
            let Id(new) = Id::new(COPIES.fetch_add(1, Relaxed));
            // Another thread may be first.
            Some(Id(word.compare_exchange(0, new, Relaxed, Relaxed).err().unwrap_or(new)))
        }
        id => Some(Id(id)),
    }
}

impl Wiped {
    fn new() -> io::Result<Wiped> {
        let page = MmapOptions::new().len(PAGE).map_anon()?;
        system::wipe_on_fork(&page)?;
        Ok(Wiped(page))
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped and writable as long as `self` lives, and accessed as an atomic only.
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
        // Beyond this limit the kernel sends SIGXFSZ, which ends a process without a handler.
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
        // SAFETY: the range is this mapping, to which there are no references yet.
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
