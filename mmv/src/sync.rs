//! Locks, and numbers of threads.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::os::forks::Process;

/// A lock that belongs to the process which created it.
///
/// In a forked child, a lock that another thread held stays locked for ever, and its data may be half changed. Therefore
/// no child acquires a lock of its parent. Data behind a lock cannot be used there; values need no lock.
#[derive(Debug)]
pub(crate) struct Lock<T> {
    mutex: Mutex<T>,
    process: Process,
}

pub(crate) type Held<'a, T> = MutexGuard<'a, T>;

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Lock<T> {
        Lock { mutex: Mutex::new(value), process: Process::own() }
    }

    /// Waits until no other thread holds the lock. Returns `None` in a forked child.
    pub(crate) fn lock(&self) -> Option<Held<'_, T>> {
        self.process.is_own().then(|| self.mutex.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Locks data that a forked child may look up. Returns `None` there if another thread held the lock at the fork.
    #[cfg(feature = "metrics")]
    pub(crate) fn lock_to_read(&self) -> Option<Held<'_, T>> {
        // Threads of the child hold it for a moment only.
        const TRIES: usize = 100;
        self.lock().or_else(|| {
            (0..TRIES).find_map(|_| match self.mutex.try_lock() {
                Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
                Err(TryLockError::WouldBlock) => {
                    std::thread::yield_now();
                    None
                }
                Ok(guard) => Some(guard),
            })
        })
    }

    /// Waits for at most `longest` until no other thread holds the lock. Returns `None` after that, and in a forked child.
    pub(crate) fn lock_within(&self, longest: Duration) -> Option<Held<'_, T>> {
        let start = Instant::now();
        while self.process.is_own() {
            match self.mutex.try_lock() {
                Ok(guard) => return Some(guard),
                Err(TryLockError::Poisoned(guard)) => return Some(guard.into_inner()),
                Err(TryLockError::WouldBlock) if start.elapsed() >= longest => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        None
    }
}

impl<T: Default> Default for Lock<T> {
    fn default() -> Self {
        Lock::new(T::default())
    }
}

/// Returns a number for the calling thread; threads are numbered from 0.
#[inline]
pub(crate) fn thread_number() -> usize {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    thread_local!(static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) });

    #[cold]
    fn new_number(number: &Cell<usize>) -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        number.set(NEXT.fetch_add(1, Relaxed));
        number.get()
    }

    NUMBER.with(|number| if number.get() == usize::MAX { new_number(number) } else { number.get() })
}
