//! Handlers that the library sets in the process: for forks and for lost pages. Parent and child of a fork share the
//! files. No lock is held by another thread during a fork, because the child would lack that thread.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::sys::{before_first_start, catch_lost_pages, keep_whole, share_values, this_thread};
use crate::{handle, registry};

/// Number of attempts to get a lock before a fork, with pauses of 0.1 ms: about a second.
const TRIES: u32 = 10_000;

/// The threads that have the lock of the registries, and that of the handles, in order to fork; or 0.
static HELD: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// Handles the forks of this process from now on.
pub(crate) fn watch_forks() {
    before_first_start(before_fork, after_fork, in_child);
}

/// Handles the forks of this process, and truncations of its files, from now on.
pub(crate) fn watch() {
    watch_forks();
    catch_lost_pages(handle::replace_page);
}

// The functions may be registered twice. The second calls of a fork find the locks held, or already free.

extern "C" fn before_fork() {
    share_values();
    // No function takes one of the locks while it has the other.
    if registry::hold(TRIES) {
        HELD[0].store(this_thread(), Relaxed);
    }
    if handle::hold(TRIES) {
        HELD[1].store(this_thread(), Relaxed);
    }
}

extern "C" fn in_child() {
    if HELD.iter().all(|held| held.load(Relaxed) == this_thread()) {
        keep_whole();
    }
    after_fork();
}

extern "C" fn after_fork() {
    // Another thread may be about to fork.
    let held = |lock: usize| HELD[lock].compare_exchange(this_thread(), 0, Relaxed, Relaxed).is_ok();
    if held(0) {
        registry::release();
    }
    if held(1) {
        handle::release();
    }
}
