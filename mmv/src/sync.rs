//! Locks and atomics: the standard library's, or those of loom, which tries every order of accesses
//! (`tests/loom.rs`, with `--cfg mmv_loom`).

#[cfg(mmv_loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard, atomic};
#[cfg(not(mmv_loom))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

/// A number for each thread, the next one for each new thread.
#[cfg(not(mmv_loom))]
#[inline]
pub(crate) fn thread_number() -> usize {
    use std::cell::Cell;

    // Without a constructor, which every access would have to ask for.
    thread_local!(static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) });

    #[cold]
    fn new_number(number: &Cell<usize>) -> usize {
        use atomic::{AtomicUsize, Ordering::Relaxed};
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        number.set(NEXT.fetch_add(1, Relaxed));
        number.get()
    }

    NUMBER.with(|number| if number.get() == usize::MAX { new_number(number) } else { number.get() })
}

/// A number for each of loom's threads, which share one of the system's.
#[cfg(mmv_loom)]
pub(crate) fn thread_number() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    loom::lazy_static! {
        static ref NEXT: AtomicUsize = AtomicUsize::new(0);
    }
    loom::thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Relaxed);
    }
    NUMBER.with(|number| *number)
}
