//! Forks of the process.
//!
//! A child has one thread, the one that forked, and a copy of all memory at that moment. A lock that another thread
//! held stays locked, and the data that it protects may be half changed. A fork therefore waits until no thread holds a
//! lock of this crate. Children that call `exec` at once (`posix_spawn`, `vfork`) do not wait.
//!
//! A thread that writes a file may hold a lock for long if the disk is slow. After a second the process is forked
//! nevertheless. The child is then *torn*: it works without the data that it finds locked. So does a child of clone(2),
//! which calls no fork handlers.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::os::forks::{at_fork, wiped_on_fork};

/// An object with locks.
pub(crate) trait Forked: Send + Sync {
    /// Returns whether no thread holds any of the locks or is about to acquire one.
    fn is_quiet(&self) -> bool;

    /// Called in a newly forked child, in which nothing is locked.
    fn forked(&self) {}
}

type Watchers = Vec<Weak<dyn Forked>>;

/// All objects with locks.
static WATCHERS: Mutex<Watchers> = Mutex::new(Vec::new());
/// Whether a thread forks, or waits for the locks in order to fork.
static FORKS_NOW: AtomicBool = AtomicBool::new(false);
static FORKS: AtomicU32 = AtomicU32::new(0);
static TORN: AtomicBool = AtomicBool::new(false);

/// The longest wait of a fork.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_micros(50);

thread_local! {
    /// The number of locks that the thread holds, plus one while it forks.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Held from before a fork until after it. It has no destructor, because an ending thread may fork too.
    static FORKING: Cell<Option<ManuallyDrop<MutexGuard<'static, Watchers>>>> = const { Cell::new(None) };
}

/// Counts the threads that hold a lock, or are about to acquire it.
#[derive(Debug, Default)]
pub(crate) struct Door(AtomicU32);

/// Counts a thread at a [`Door`] while it lives.
#[derive(Debug)]
pub(crate) struct Inside<'a>(&'a Door);

impl Door {
    pub(crate) const fn new() -> Door {
        Door(AtomicU32::new(0))
    }

    /// Acquires the lock behind the door, after a fork that is about to happen. A thread that holds another lock does
    /// not wait, since the fork waits for it.
    ///
    /// The forking thread sets `FORKS_NOW` before it looks at the doors, and this thread counts itself before it reads
    /// the flag. One of them therefore sees the other, and no thread tries a lock during the fork.
    #[inline]
    pub(crate) fn enter<G>(&self, acquire: impl Fn() -> Option<G>) -> Option<(G, Inside<'_>)> {
        loop {
            let is_alone = DEPTH.get() == 0;
            let inside = Inside::new(self);
            if !is_alone || !FORKS_NOW.load(SeqCst) {
                return Some((acquire()?, inside));
            }
            drop(inside);
            thread::sleep(PAUSE);
        }
    }

    /// Returns whether no thread holds the lock or is about to acquire it.
    pub(crate) fn is_quiet(&self) -> bool {
        self.0.load(SeqCst) == 0
    }
}

impl Inside<'_> {
    #[inline]
    fn new(door: &Door) -> Inside<'_> {
        DEPTH.set(DEPTH.get() + 1);
        door.0.fetch_add(1, SeqCst);
        Inside(door)
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Release);
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Returns whether locks may be held by threads that do not exist in this process.
#[inline]
pub(crate) fn is_torn() -> bool {
    count();
    TORN.load(Relaxed)
}

/// Returns the number of forks between the first process and this one.
#[inline]
pub(crate) fn count() -> u32 {
    let forks = || FORKS.load(Relaxed);
    match wiped_on_fork(|| u64::from(forks()) + 1) {
        None => forks(),
        Some(word) => match word.load(Relaxed) {
            0 => count_clone(word),
            next => (next - 1) as u32,
        },
    }
}

/// Counts this process, which was created without fork handlers. The word is one more than the number of forks.
#[cold]
fn count_clone(word: &AtomicU64) -> u32 {
    TORN.store(true, Relaxed);
    let next = u64::from(FORKS.fetch_add(1, Relaxed)) + 2;
    let next = word.compare_exchange(0, next, Relaxed, Relaxed).map_or_else(|other| other, |_| next);
    (next - 1) as u32
}

/// Registers an object with locks: a fork waits for them, and the child calls [`Forked::forked`].
pub(crate) fn watch(watcher: Weak<dyn Forked>) {
    // The handlers are registered before taking the lock: a fork that does not wait for the lock would leave it locked
    // in the child. Two threads, or a child, may register the handlers twice; the second call of each handler does
    // nothing.
    static WATCHING: AtomicBool = AtomicBool::new(false);
    if !WATCHING.load(Acquire) {
        // A fork that began before the handlers were registered calls none of them. Its child counts itself, and is
        // torn.
        count();
        at_fork(prepare, parent, child);
        WATCHING.store(true, Release);
    }
    let Some(mut watchers) = watchers() else { return };
    if watchers.len() == watchers.capacity() {
        watchers.retain(|watcher| watcher.strong_count() > 0);
    }
    watchers.push(watcher);
}

/// Locks the list of watchers. Returns `None` in a torn child if a thread that does not exist there holds the lock.
fn watchers() -> Option<MutexGuard<'static, Watchers>> {
    if is_torn() {
        return WATCHERS.try_lock().ok();
    }
    Some(WATCHERS.lock().unwrap_or_else(PoisonError::into_inner))
}

extern "C" fn prepare() {
    if let Some(watchers) = FORKING.take() {
        FORKING.set(Some(watchers));
        return;
    }
    let Some(watchers) = watchers() else { return };
    let alone = DEPTH.replace(DEPTH.get() + 1) == 0;
    FORKS_NOW.store(true, SeqCst);
    let begin = Instant::now();
    // In a torn child, a lock may never be released.
    let quiet = || alone && !is_torn() && watchers.iter().filter_map(Weak::upgrade).all(|watcher| watcher.is_quiet());
    let mut is_quiet = quiet();
    while !is_quiet && alone && !is_torn() && begin.elapsed() < PATIENCE {
        thread::sleep(PAUSE);
        is_quiet = quiet();
    }
    QUIET.store(is_quiet, Relaxed);
    FORKING.set(Some(ManuallyDrop::new(watchers)));
}

/// Whether nothing was locked at the last fork.
static QUIET: AtomicBool = AtomicBool::new(false);

extern "C" fn parent() {
    after();
}

extern "C" fn child() {
    let Some(watchers) = after() else { return };
    let next = u64::from(FORKS.fetch_add(1, Relaxed)) + 2;
    if let Some(word) = wiped_on_fork(|| next) {
        word.store(next, Relaxed);
    }
    if QUIET.load(Relaxed) {
        watchers.iter().filter_map(Weak::upgrade).for_each(|watcher| watcher.forked());
    } else {
        TORN.store(true, Relaxed);
    }
}

fn after() -> Option<MutexGuard<'static, Watchers>> {
    let watchers = FORKING.take().map(ManuallyDrop::into_inner)?;
    DEPTH.set(DEPTH.get() - 1);
    FORKS_NOW.store(false, Release);
    Some(watchers)
}
