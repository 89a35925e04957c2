//! Handlers that the library sets in the process: for forks and for lost pages. Parent and child of a fork share the
//! files. No lock is held by another thread during a fork, because the child would lack that thread.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::sys::{before_first_start, catch_lost_pages, share_values};
use crate::{handle, registry};

/// Number of attempts to get a lock before a fork, with pauses of 0.1 ms: about a second.
const TRIES: u32 = 10_000;

/// Whether the forking thread has the lock of the registries, and that of the handles.
static HELD: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];

/// Handles the forks of this process from now on.
pub(crate) fn watch_forks() {
    before_first_start(before_fork, after_fork);
}

/// Handles the forks of this process, and truncations of its files, from now on.
pub(crate) fn watch() {
    watch_forks();
    catch_lost_pages(handle::replace_page);
}

extern "C" fn before_fork() {
    share_values();
    // No function takes one of the locks while it has the other.
    HELD[0].store(registry::hold(TRIES), Relaxed);
    HELD[1].store(handle::hold(TRIES), Relaxed);
}

extern "C" fn after_fork() {
    if HELD[0].swap(false, Relaxed) {
        registry::release();
    }
    if HELD[1].swap(false, Relaxed) {
        handle::release();
    }
}
