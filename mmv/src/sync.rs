//! Locks and atomics: the standard library's, or loom's, which try every order of accesses (crate `pcp-loom`, with
//! `--cfg mmv_loom`).

use std::sync::{PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::fork;

#[cfg(not(mmv_loom))]
use std::sync::{Mutex, MutexGuard};

#[cfg(mmv_loom)]
pub(crate) use loom::sync::atomic;
#[cfg(mmv_loom)]
use loom::sync::{Mutex, MutexGuard};
#[cfg(not(mmv_loom))]
pub(crate) use std::sync::atomic;

/// A lock that no thread holds while another thread forks the process. So in the child it is not locked forever, and
/// its data is consistent.
#[derive(Debug, Default)]
pub(crate) struct Lock<T> {
    mutex: Mutex<T>,
    door: fork::Door,
}

/// Guard of a [`Lock`].
pub(crate) struct Held<'a, T> {
    // Fields drop in order: the lock is released first.
    guard: MutexGuard<'a, T>,
    _inside: fork::Inside<'a>,
}

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Lock<T> {
        Lock { mutex: Mutex::new(value), door: fork::Door::new() }
    }

    /// Waits until no other thread holds the lock. Returns `None` in a [torn](fork::is_torn) child, if another thread
    /// held this lock at the fork.
    #[inline]
    pub(crate) fn lock(&self) -> Option<Held<'_, T>> {
        let (guard, inside) = self.door.enter(|| self.mutex.try_lock().ok().or_else(|| self.wait()))?;
        Some(Held { guard, _inside: inside })
    }

    /// Waits for at most `longest` until no other thread holds the lock. Returns `None` after that, and where
    /// [`Lock::lock`] does.
    pub(crate) fn lock_within(&self, longest: Duration) -> Option<Held<'_, T>> {
        let start = Instant::now();
        loop {
            let free = || match self.mutex.try_lock() {
                Ok(guard) => Some(guard),
                Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            if let Some((guard, inside)) = self.door.enter(free) {
                return Some(Held { guard, _inside: inside });
            }
            if start.elapsed() >= longest {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[cold]
    fn wait(&self) -> Option<MutexGuard<'_, T>> {
        if fork::is_torn() {
            self.try_long_enough()
        } else {
            Some(self.mutex.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }

    /// Tries for as long as another thread of this process may hold the lock.
    fn try_long_enough(&self) -> Option<MutexGuard<'_, T>> {
        (0..1000).find_map(|_| {
            let guard = self.mutex.try_lock();
            if guard.is_err() {
                std::thread::yield_now();
            }
            guard.ok()
        })
    }
}

impl<T: Send> fork::Forked for Lock<T> {
    fn is_quiet(&self) -> bool {
        self.door.is_quiet()
    }
}

impl<T> std::ops::Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> std::ops::DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// Returns a number for the calling thread; threads are numbered from 0.
#[cfg(not(mmv_loom))]
#[inline]
pub(crate) fn thread_number() -> usize {
    use std::cell::Cell;

    // A constant initializer: with a lazy one, each access would have a check.
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

/// Returns a number for the calling thread of loom; all of them run on one thread of the system.
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

#[cfg(all(test, target_os = "linux", not(mmv_loom)))]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::thread;

    use testkit::Child;

    use super::*;
    use crate::Registry;

    #[test]
    fn a_fork_waits_for_threads_that_are_about_to_acquire_a_lock() {
        let door = fork::Door::default();
        let entered = door.enter(|| {
            assert!(!door.is_quiet());
            Some(())
        });
        assert!(entered.is_some() && !door.is_quiet());
        drop(entered);
        assert!(door.is_quiet());
    }

    #[test]
    fn a_child_does_without_what_stayed_locked_for_too_long() {
        let lock = Arc::new(Lock::new(7));
        fork::watch(Arc::downgrade(&lock) as _);
        let registry = Registry::new("test").unwrap();
        let (holds, is_held) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let holder = {
            let lock = Arc::clone(&lock);
            thread::spawn(move || {
                let held = lock.lock().unwrap();
                holds.send(()).unwrap();
                released.recv().unwrap();
                drop(held);
            })
        };
        is_held.recv().unwrap();
        let child = Child::new(|| {
            assert!(fork::is_torn() && lock.lock().is_none());
            // Locks that were free at the fork still work in the child, and in the child's own children.
            registry.counter("counter").register().unwrap().inc();
            Child::new(|| assert!(fork::is_torn() && registry.find::<crate::Counter>("counter").unwrap().get() == 1))
                .ends();
        });
        release.send(()).unwrap();
        holder.join().unwrap();
        child.ends();
        assert!(!fork::is_torn());
        Child::new(|| assert!(!fork::is_torn() && *lock.lock().unwrap() == 7)).ends();
    }
}
