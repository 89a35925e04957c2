//! A lock that fork handlers can hold across a fork.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::thread;
use std::time::Duration;

use super::{KeepThread, is_torn, single_threaded, this_thread};

/// Number of attempts with only a yield in between, before the waiting thread sleeps.
const EAGER: u32 = 100;
const NAP: Duration = Duration::from_micros(100);

/// Number of attempts in a process in which the holder may not exist.
const TORN: u32 = EAGER + 10;

/// Holder that has taken the lock as the only thread of the process.
const ONLY: usize = 1;

/// A lock for data that is used for microseconds at a time.
pub(crate) struct Lock<T> {
    /// The thread that has the lock, [`ONLY`], or 0.
    holder: AtomicUsize,
    data: UnsafeCell<T>,
}

// SAFETY: the data is accessed only through a guard, and there is only one guard at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(data: T) -> Lock<T> {
        Lock { holder: AtomicUsize::new(0), data: UnsafeCell::new(data) }
    }

    /// Waits until the lock is free, and takes it. Returns `None` if the lock can never become free: in a signal handler
    /// that has interrupted the holder, and in a [torn](is_torn) process if another thread held the lock at the fork.
    #[inline(always)]
    pub(crate) fn lock(&self) -> Option<Guard<'_, T>> {
        self.acquire(u32::MAX).then(|| Guard(self))
    }

    /// Takes the lock for a fork, after at most `tries` attempts. Returns whether the lock was free in time.
    #[inline(always)]
    pub(crate) fn acquire(&self, tries: u32) -> bool {
        // An atomic exchange would cost a description of a metric a tenth of its time. A signal handler between the
        // two accesses leaves the lock as it was.
        if single_threaded() && tries > 0 && self.holder.load(Acquire) == 0 {
            self.holder.store(ONLY, Relaxed);
            return true;
        }
        self.wait(tries)
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, tries: u32) -> bool {
        let own = this_thread();
        for attempt in 0..tries {
            match self.holder.compare_exchange_weak(0, own, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(holder) if holder == own || holder == ONLY && single_threaded() => return false,
                Err(_) if attempt < EAGER => thread::yield_now(),
                Err(_) if attempt > TORN && is_torn() => return false,
                Err(_) => {
                    let _whole = KeepThread::new();
                    thread::sleep(NAP);
                }
            }
        }
        false
    }

    /// Frees the lock after [`Lock::acquire`].
    pub(crate) fn release(&self) {
        self.holder.store(0, Release);
    }
}

/// The right to use the data of a [`Lock`].
pub(crate) struct Guard<'a, T>(&'a Lock<T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one, and all references to the data go through it.
        unsafe { &*self.0.data.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`; `self` is borrowed mutably.
        unsafe { &mut *self.0.data.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.0.release();
    }
}
