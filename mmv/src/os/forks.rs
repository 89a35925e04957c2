//! Fork handlers, and a word that differs in forked processes.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use memmap2::{MmapMut, MmapOptions};
use once_cell::race::OnceBox;

use super::page_size;

/// Registers functions that the forking thread calls: before the fork, and afterwards in the parent and in the child.
pub(crate) fn at_fork(prepare: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: the functions exist as long as the process, and do not unwind.
    _ = unsafe { nix::libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
}

/// Returns a word that is zero in each new child, however the child was created. `None` where the system does not
/// support that. The first call sets the word to `first()`.
#[inline]
pub(crate) fn wiped_on_fork(first: impl Fn() -> u64) -> Option<&'static AtomicU64> {
    // This avoids a lock, which could stay locked in a child. At the first call, two threads may both map a page.
    static PAGE: OnceBox<Option<MmapMut>> = OnceBox::new();
    let page = PAGE.get_or_init(|| {
        let page = MmapOptions::new().len(page_size() as usize).map_anon();
        let page = page.and_then(|page| wipe_on_fork(&page).map(|()| page));
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

/// Makes the kernel clear a page in each child (`MADV_WIPEONFORK` of madvise(2)).
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
