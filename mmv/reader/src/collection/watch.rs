//! A thread that keeps the table of a directory's files up to date.

use std::io;
use std::os::fd::AsFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

use pcp_base::thread::without_signals;

use super::scan::{Extent, Scanner, Seen};
use super::snapshot::Snapshot;

/// The thread. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
    patience: Allowance,
    /// `None` if it has started although the signals could not be unblocked.
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Notified after each scan, and when the thread ends.
    done: Condvar,
    /// Wakes the thread.
    wake: EventFd,
}

#[derive(Debug)]
struct State {
    /// The latest table, until the requests take it.
    snapshot: Option<Arc<Snapshot>>,
    seen: Seen,
    /// What requests ask the thread to check.
    wanted: Option<Extent>,
    /// Whether there was a request since the last check of all files.
    is_asked: bool,
    /// Numbers of scans that have begun and ended.
    begun: u64,
    ended: u64,
    is_over: bool,
}

/// Time between two checks of all files, as long as there are requests.
const PERIOD: Duration = Duration::from_secs(1);

/// Longest time that requests wait for the thread, and the part of the time that they may wait on average, so that a
/// directory that changes all the time delays them little.
const PATIENCE: Duration = Duration::from_millis(100);
const WAITING: u32 = 50;

/// Time that the thread may work without a rest, and the part of the time that it may work on average.
const BURST: Duration = Duration::from_millis(100);
const WORKING: u32 = 10;

/// Longest time for which the end of the thread is waited for. A scan ends before the next file.
const END: Duration = Duration::from_secs(2);

/// Most times that events are read after a wait. Each time, there are up to 100 of them.
const READS: usize = 64;

/// Changes of the directory, and of files that are not mapped. Stores into mapped files are no events.
const EVENTS: AddWatchFlags = AddWatchFlags::IN_CREATE
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_MOVED_FROM)
    .union(AddWatchFlags::IN_MOVED_TO)
    .union(AddWatchFlags::IN_CLOSE_WRITE)
    .union(AddWatchFlags::IN_ATTRIB);

/// An allowance of time, which grows while it is not used.
#[derive(Debug)]
struct Allowance {
    /// Working time that is left, in nanoseconds; negative after work that took longer than was left.
    left: i64,
    at: Instant,
    most: i64,
    /// Divisor of the time that passes, by which the allowance grows.
    part: u32,
}

impl Allowance {
    fn new(most: Duration, part: u32) -> Allowance {
        let most = i64::try_from(most.as_nanos()).unwrap_or(i64::MAX);
        Allowance { left: most, at: Instant::now(), most, part }
    }

    /// Returns the working time that is left now.
    fn left(&mut self) -> Duration {
        let passed = i64::try_from(self.at.elapsed().as_nanos()).unwrap_or(i64::MAX);
        self.at = Instant::now();
        self.left = self.left.saturating_add(passed / i64::from(self.part)).min(self.most);
        Duration::from_nanos(u64::try_from(self.left).unwrap_or_default())
    }

    fn spend(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX));
    }

    /// Returns the time to rest until there is working time again.
    fn rest(&mut self) -> Duration {
        self.left();
        Duration::from_nanos(u64::try_from(-self.left).unwrap_or_default()).saturating_mul(self.part)
    }
}

impl Watch {
    /// Starts the thread.
    ///
    /// # Errors
    /// The scanner, and the error of eventfd(2) or of the creation of the thread.
    pub(super) fn start(scanner: Box<Scanner>) -> Result<Watch, (Box<Scanner>, io::Error)> {
        let wake = match EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK) {
            Ok(wake) => wake,
            Err(e) => return Err((scanner, e.into())),
        };
        let (seen, stop) = (scanner.seen(), Arc::clone(&scanner.stop));
        let state = State { snapshot: None, seen, wanted: None, is_asked: false, begun: 0, ended: 0, is_over: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), done: Condvar::new(), wake });
        // The scanner comes back if there is no thread.
        let slot = Arc::new(Mutex::new(Some(scanner)));
        let (own, given) = (Arc::clone(&shared), Arc::clone(&slot));
        let run = move || {
            let _end = End(&own);
            let scanner = given.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(scanner) = scanner {
                Thread::new(scanner, &own).run();
            }
        };
        match without_signals(|| thread::Builder::new().name("mmv files".into()).spawn(run)) {
            Ok(thread) => Ok(Watch { shared, stop, patience: Allowance::new(PATIENCE, WAITING), thread: Some(thread) }),
            Err(e) => match slot.lock().unwrap_or_else(PoisonError::into_inner).take() {
                Some(scanner) => Err((scanner, e)),
                None => Ok(Watch { shared, stop, patience: Allowance::new(PATIENCE, WAITING), thread: None }),
            },
        }
    }

    /// Returns what the last scan has found.
    pub(super) fn seen(&self) -> Seen {
        self.shared.lock().seen.clone()
    }

    /// Returns the table of the last scan, if it is new.
    pub(super) fn take(&self) -> Option<Arc<Snapshot>> {
        let mut state = self.shared.lock();
        state.is_asked = true;
        state.snapshot.take()
    }

    /// Asks for a scan, and waits for its end, for a limited time.
    pub(super) fn scan(&mut self, extent: Extent) {
        let (start, left) = (Instant::now(), self.patience.left());
        let mut state = self.shared.lock();
        state.wanted = state.wanted.max(Some(extent));
        let awaited = state.begun + 1;
        self.shared.wake();
        let waits = |state: &mut State| state.ended < awaited && !state.is_over;
        drop(self.shared.done.wait_timeout_while(state, left, waits));
        self.patience.spend(start.elapsed().min(left));
    }

    /// Wakes the thread, which then frees the tables that requests no longer use.
    pub(super) fn wake(&self) {
        self.shared.wake();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.shared.wake();
        let waited = self.shared.done.wait_timeout_while(self.shared.lock(), END, |state| !state.is_over);
        let is_over = waited.unwrap_or_else(PoisonError::into_inner).0.is_over;
        // Its stack is gone when this returns, as memory checkers of a program that loads an agent expect.
        if let Some(thread) = self.thread.take().filter(|_| is_over) {
            // A panic has been reported by its hook.
            _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // Fails only if the thread has been woken very often and has not run since.
        _ = self.wake.write(1);
    }
}

/// Says that the thread has ended.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.done.notify_all();
    }
}

/// The thread's side.
struct Thread<'a> {
    scanner: Box<Scanner>,
    shared: &'a Shared,
    /// Tables that requests may still use. They are freed here, because that takes time, too.
    published: Vec<Arc<Snapshot>>,
    inotify: Option<(Inotify, Option<WatchDescriptor>)>,
    allowance: Allowance,
}

impl<'a> Thread<'a> {
    fn new(scanner: Box<Scanner>, shared: &'a Shared) -> Thread<'a> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK);
        let inotify = inotify.ok().map(|inotify| (inotify, None));
        Thread { scanner, shared, published: Vec::new(), inotify, allowance: Allowance::new(BURST, WORKING) }
    }

    fn run(mut self) {
        let mut checked = Instant::now();
        self.watch();
        while !self.scanner.stop.load(Relaxed) {
            let is_event = self.wait(PERIOD, true);
            self.published.retain(|snapshot| Arc::strong_count(snapshot) > 1);
            let mut state = self.shared.lock();
            let is_due = checked.elapsed() >= PERIOD && state.is_asked;
            let wanted = state.wanted.take().max((is_event || is_due).then_some(Extent::All));
            let Some(wanted) = wanted else { continue };
            state.begun += 1;
            state.is_asked &= wanted < Extent::All;
            drop(state);
            if wanted >= Extent::All {
                checked = Instant::now();
            }
            self.scan(wanted);
            self.watch();
            self.rest();
        }
    }

    /// Scans the directory, and publishes the table.
    fn scan(&mut self, extent: Extent) {
        let start = Instant::now();
        let scanned = catch_unwind(AssertUnwindSafe(|| {
            self.scanner.scan(extent).then(|| {
                // A table that no request has taken is not needed any more. There are two at most.
                let unused = self.shared.lock().snapshot.take();
                drop(unused);
                self.published.retain(|snapshot| Arc::strong_count(snapshot) > 1);
                Arc::new(self.scanner.build())
            })
        }));
        // After a panic, all files are read again.
        let snapshot = scanned.unwrap_or_else(|_| {
            self.scanner.forget();
            None
        });
        self.allowance.spend(start.elapsed());
        self.published.extend(snapshot.clone());
        let seen = self.scanner.seen();
        let mut state = self.shared.lock();
        if snapshot.is_some() {
            state.snapshot = snapshot;
        }
        state.seen = seen;
        state.ended = state.begun;
        self.shared.done.notify_all();
    }

    /// Rests until there is working time again.
    fn rest(&mut self) {
        loop {
            let rest = self.allowance.rest();
            if rest.is_zero() || self.scanner.stop.load(Relaxed) {
                return;
            }
            self.wait(rest.min(PERIOD), false);
        }
    }

    /// Waits for a request or, if wanted, a change of the directory. Returns whether there was a change.
    fn wait(&self, time: Duration, for_changes: bool) -> bool {
        let wake = PollFd::new(self.shared.wake.as_fd(), PollFlags::POLLIN);
        let inotify = self.inotify.as_ref().filter(|_| for_changes);
        let mut fds = vec![wake];
        fds.extend(inotify.map(|(inotify, _)| PollFd::new(inotify.as_fd(), PollFlags::POLLIN)));
        let time = PollTimeout::try_from(time + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        // An interrupted wait is a short one.
        _ = poll(&mut fds, time);
        _ = self.shared.wake.read();
        let mut is_event = false;
        if let Some((inotify, _)) = inotify {
            // A user may cause events faster than they are read. Those that are left end the next wait.
            is_event =
                (0..READS).take_while(|_| inotify.read_events().is_ok_and(|events| !events.is_empty())).count() > 0;
        }
        is_event
    }

    /// Watches the directory that the path leads to now.
    fn watch(&mut self) {
        let Some((inotify, watched)) = &mut self.inotify else { return };
        let now = inotify.add_watch(self.scanner.path(), EVENTS).ok();
        if let Some(before) = watched.filter(|before| Some(*before) != now) {
            // Fails if the directory is gone.
            _ = inotify.rm_watch(before);
        }
        *watched = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_grows_and_is_paid_back() {
        let mut allowance = Allowance::new(Duration::from_secs(10), 1000);
        assert!(allowance.rest().is_zero());
        allowance.spend(Duration::from_secs(30));
        assert_eq!(allowance.left(), Duration::ZERO);
        let rest = allowance.rest();
        assert!(rest > Duration::from_secs(10_000) && rest <= Duration::from_secs(20_000), "{rest:?}");
        allowance.at -= Duration::from_secs(25_000);
        let left = allowance.left();
        assert!(left >= Duration::from_secs(5) && left < Duration::from_secs(10), "{left:?}");
    }
}
