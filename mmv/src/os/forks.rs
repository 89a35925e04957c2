//! The number of this process among its ancestors.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use memmap2::{MmapMut, MmapOptions};
use once_cell::race::OnceBox;

use super::page_size;

/// A process. Its identifier alone does not distinguish it from its ancestors: they can be in other PID namespaces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Process {
    number: u32,
    /// Number of forks between the first process that asked for its `Process` and this one, where the system counts them.
    forks: u32,
}

impl Process {
    /// Returns this process. Takes no lock, because a lock could stay locked in a forked child.
    pub(crate) fn own() -> Process {
        Process { number: std::process::id(), forks: forks() }
    }

    /// Returns the process identifier.
    pub(crate) fn number(self) -> u32 {
        self.number
    }

    /// Returns whether this is the calling process.
    #[inline]
    pub(crate) fn is_own(self) -> bool {
        counted().map_or_else(|| self.number == std::process::id(), |forks| forks == self.forks)
    }
}

/// Returns the number of forks before this process. It is always 0 where the system does not wipe pages of forked children.
#[inline]
pub(crate) fn forks() -> u32 {
    counted().unwrap_or_default()
}

/// Returns the number of forks before this process, at the cost of two loads, or `None` where the system does not wipe
/// pages of forked children.
#[inline]
fn counted() -> Option<u32> {
    // At the first call, two threads may both map a page.
    static PAGE: OnceBox<Option<MmapMut>> = OnceBox::new();
    let page = PAGE.get_or_init(|| {
        let page = MmapOptions::new().len(page_size() as usize).map_anon();
        let page = page.and_then(|page| wipe_on_fork(&page).map(|()| page));
        if let Ok(page) = &page {
            word_of(page).store(1, Relaxed);
        }
        Box::new(page.ok())
    });
    let word = page.as_ref().map(word_of)?;
    Some(match word.load(Relaxed) {
        0 => count(word),
        next => (next - 1) as u32,
    })
}

/// Counts this process, whose page the kernel has wiped. The word is one more than the number of forks.
#[cold]
fn count(word: &AtomicU64) -> u32 {
    static FORKS: AtomicU32 = AtomicU32::new(0);
    let next = u64::from(FORKS.fetch_add(1, Relaxed)) + 2;
    let next = word.compare_exchange(0, next, Relaxed, Relaxed).map_or_else(|other| other, |_| next);
    (next - 1) as u32
}

fn word_of(page: &MmapMut) -> &AtomicU64 {
    // SAFETY: the page is mapped and writable as long as `page` lives, aligned, and accessed as an atomic only.
    unsafe { &*page.as_ptr().cast::<AtomicU64>() }
}

/// Makes the kernel clear a page in each child, however the child is created (`MADV_WIPEONFORK` of madvise(2)).
#[cfg(target_os = "linux")]
fn wipe_on_fork(page: &MmapMut) -> io::Result<()> {
    use std::ptr::NonNull;

    use nix::sys::mman::{MmapAdvise, madvise};
    let start = NonNull::new(page.as_ptr().cast_mut().cast()).ok_or(io::ErrorKind::OutOfMemory)?;
    // SAFETY: the range is this mapping, to which there are no references yet.
    Ok(unsafe { madvise(start, page.len(), MmapAdvise::MADV_WIPEONFORK) }?)
}

#[cfg(not(target_os = "linux"))]
fn wipe_on_fork(_: &MmapMut) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
