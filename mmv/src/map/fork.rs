//! What a fork of the process would tear apart.
//!
//! A child has one thread, the one that forked, and a copy of everything else as it was at that moment: a lock that another
//! thread held stays locked, and what it protects may be half changed. So the fork waits until no thread is in the middle
//! of something. Children that call `exec` at once (`posix_spawn`, `vfork`) do not wait.
//!
//! A thread that writes a file may take long, if the disk does. After a second the process is forked nevertheless; the
//! child is torn then, and does without what it finds locked.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Something that has locks.
pub(crate) trait Forked: Send + Sync {
    /// Whether all of the locks can be had at once. None is kept.
    fn is_quiet(&self) -> bool;

    /// The process is a child that was forked just now, and nothing is locked.
    fn forked(&self) {}
}

type Watchers = Vec<Weak<dyn Forked>>;

/// All that has locks.
static WATCHERS: Mutex<Watchers> = Mutex::new(Vec::new());
/// Whether a thread forks, or waits for that until nothing is locked.
static FORKS_NOW: AtomicBool = AtomicBool::new(false);
static FORKS: AtomicU32 = AtomicU32::new(0);
static TORN: AtomicBool = AtomicBool::new(false);

/// How long a fork waits.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_micros(50);

thread_local! {
    /// How many locks the thread has, and one while it forks.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Held from before a fork until after it. A thread that ends may fork, too, hence there is nothing to drop.
    static FORKING: Cell<Option<ManuallyDrop<MutexGuard<'static, Watchers>>>> = const { Cell::new(None) };
}

/// What a thread that has a lock has besides.
#[derive(Debug)]
pub(crate) struct Inside(());

/// Acquires a lock, but lets a fork go first, unless the thread has another lock, for which the fork waits.
///
/// The thread that forks says so before it looks whether it can have the lock. So a thread that has the lock after that
/// knows.
#[inline]
pub(crate) fn enter<G>(acquire: impl Fn() -> Option<G>) -> Option<(G, Inside)> {
    loop {
        let lock = acquire()?;
        let depth = DEPTH.get();
        if depth > 0 || !FORKS_NOW.load(Relaxed) {
            DEPTH.set(depth + 1);
            return Some((lock, Inside(())));
        }
        drop(lock);
        thread::sleep(PAUSE);
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Whether locks may be held by threads that are not there.
#[inline]
pub(crate) fn is_torn() -> bool {
    TORN.load(Relaxed)
}

/// How many forks there were between the first process and this one.
pub(crate) fn count() -> u32 {
    FORKS.load(Relaxed)
}

/// Sees that something with locks has none of them locked when the process is forked, and tells it of that.
pub(crate) fn watch(watcher: Weak<dyn Forked>) {
    let mut watchers = WATCHERS.lock().unwrap_or_else(PoisonError::into_inner);
    if watchers.len() == watchers.capacity() {
        watchers.retain(|watcher| watcher.strong_count() > 0);
    }
    watchers.push(watcher);
    static WATCHING: AtomicBool = AtomicBool::new(false);
    if !WATCHING.swap(true, Relaxed) {
        super::pages::at_fork(prepare, parent, child);
    }
}

extern "C" fn prepare() {
    let watchers = WATCHERS.lock().unwrap_or_else(PoisonError::into_inner);
    let alone = DEPTH.replace(DEPTH.get() + 1) == 0;
    FORKS_NOW.store(true, Relaxed);
    let begin = Instant::now();
    // In a torn child there may be no end to it.
    let quiet = || alone && !is_torn() && watchers.iter().filter_map(Weak::upgrade).all(|watcher| watcher.is_quiet());
    let waits = || alone && !is_torn() && begin.elapsed() < PATIENCE;
    let mut is_quiet = quiet();
    while !is_quiet && waits() {
        thread::sleep(PAUSE);
        is_quiet = quiet();
    }
    QUIET.store(is_quiet, Relaxed);
    FORKING.set(Some(ManuallyDrop::new(watchers)));
}

/// Whether nothing was locked when the last thread forked.
static QUIET: AtomicBool = AtomicBool::new(false);

extern "C" fn parent() {
    after();
}

extern "C" fn child() {
    FORKS.fetch_add(1, Relaxed);
    let Some(watchers) = after() else { return };
    if QUIET.load(Relaxed) {
        watchers.iter().filter_map(Weak::upgrade).for_each(|watcher| watcher.forked());
    } else {
        TORN.store(true, Relaxed);
    }
}

fn after() -> Option<MutexGuard<'static, Watchers>> {
    DEPTH.set(DEPTH.get() - 1);
    FORKS_NOW.store(false, Relaxed);
    FORKING.take().map(ManuallyDrop::into_inner)
}
