//! A thread that keeps the table of a directory's files up to date.

use std::io;
use std::os::fd::AsFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

use pcp_base::thread::without_signals;
use pmda::{Background, Publisher};

use super::scan::{Extent, Scanner, Seen};
use super::snapshot::Snapshot;

/// The thread, as requests see it. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    /// Dropped before the thread ends, whose end is no fault then.
    published: Background<Published>,
    patience: Allowance,
    thread: Running,
}

/// What the thread has found.
#[derive(Clone, Debug)]
struct Published {
    /// The latest table; `None` while it is replaced.
    snapshot: Option<Arc<Snapshot>>,
    seen: Seen,
    /// Number of the last request for a scan that has been answered.
    answered: u64,
}

/// What requests ask the thread to check. It waits for events of the directory, too, so a descriptor wakes it.
#[derive(Debug)]
struct Orders {
    wanted: Mutex<Wanted>,
    wake: EventFd,
}

#[derive(Debug, Default)]
struct Wanted {
    extent: Option<Extent>,
    /// Number of requests for a scan.
    number: u64,
    /// Whether there was a request since the last check of all files.
    is_asked: bool,
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
    /// The scanner, and the error of eventfd(2), pipe(2) or of the creation of the thread.
    pub(super) fn start(scanner: Box<Scanner>) -> Result<Watch, (Box<Scanner>, io::Error)> {
        let created = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let (wake, (publisher, published)) =
            match created.map_err(io::Error::from).and_then(|wake| Ok((wake, Background::channel()?))) {
                Ok(created) => created,
                Err(e) => return Err((scanner, e)),
            };
        let published = published.named(scanner.path().to_string_lossy());
        // Requests need no scan for what they have seen themselves.
        let now = Published { snapshot: None, seen: scanner.seen(), answered: 0 };
        publisher.publish(now.clone());
        let orders = Arc::new(Orders { wanted: Mutex::default(), wake });
        let (own, stop) = (Arc::clone(&orders), Arc::clone(&scanner.stop));
        // The scanner stays here if there is no thread.
        let (give, given) = mpsc::channel();
        let run = move || _ = given.recv().map(|scanner| Thread::new(scanner, &own, publisher, now).run());
        match without_signals(|| thread::Builder::new().name("mmv files".into()).spawn(run)) {
            Ok(thread) => {
                _ = give.send(scanner);
                let thread = Running { orders, stop, thread: Some(thread) };
                Ok(Watch { published, patience: Allowance::new(PATIENCE, WAITING), thread })
            }
            Err(e) => Err((scanner, e)),
        }
    }

    /// Returns what the last scan has found.
    pub(super) fn seen(&self) -> Seen {
        self.published.latest().map(|now| now.seen.clone()).unwrap_or_default()
    }

    /// Returns the table of the last scan, if it is another one than the request has.
    pub(super) fn newer(&self, known: &Arc<Snapshot>) -> Option<Arc<Snapshot>> {
        self.thread.orders.lock().is_asked = true;
        self.published.latest().ok()?.snapshot.clone().filter(|now| !Arc::ptr_eq(now, known))
    }

    /// Asks for a scan, and waits for its end, for a limited time.
    pub(super) fn scan(&mut self, extent: Extent) {
        let (start, left) = (Instant::now(), self.patience.left());
        let orders = &self.thread.orders;
        let mut wanted = orders.lock();
        wanted.extent = wanted.extent.max(Some(extent));
        wanted.number += 1;
        let number = wanted.number;
        drop(wanted);
        orders.wake();
        _ = self.published.wait(start + left, |now| now.as_ref().is_ok_and(|now| now.answered >= number));
        self.patience.spend(start.elapsed().min(left));
    }

    /// Wakes the thread, which then frees the tables that requests no longer use.
    pub(super) fn wake(&self) {
        self.thread.orders.wake();
    }
}

/// The running thread, whose end a drop waits for.
#[derive(Debug)]
struct Running {
    orders: Arc<Orders>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.orders.wake();
        let Some(thread) = self.thread.take() else { return };
        let begin = Instant::now();
        while !thread.is_finished() && begin.elapsed() < END {
            thread::sleep(Duration::from_millis(1));
        }
        // Its stack is gone when this returns, as memory checkers of a program that loads an agent expect.
        if thread.is_finished() {
            // A panic has been reported by its hook.
            _ = thread.join();
        }
    }
}

impl Orders {
    fn lock(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // Fails only if the thread has been woken very often and has not run since.
        _ = self.wake.write(1);
    }
}

/// The thread's side.
struct Thread<'a> {
    scanner: Box<Scanner>,
    orders: &'a Orders,
    publisher: Publisher<Published>,
    now: Published,
    /// Tables that requests may still use. They are freed here, because that takes time, too.
    tables: Vec<Arc<Snapshot>>,
    inotify: Option<(Inotify, Option<WatchDescriptor>)>,
    allowance: Allowance,
}

impl<'a> Thread<'a> {
    fn new(scanner: Box<Scanner>, orders: &'a Orders, publisher: Publisher<Published>, now: Published) -> Thread<'a> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK);
        let inotify = inotify.ok().map(|inotify| (inotify, None));
        let allowance = Allowance::new(BURST, WORKING);
        Thread { scanner, orders, publisher, now, tables: Vec::new(), inotify, allowance }
    }

    fn run(mut self) {
        let mut checked = Instant::now();
        self.watch();
        while !self.scanner.stop.load(Relaxed) {
            let is_event = self.wait(PERIOD, true);
            self.free();
            let mut wanted = self.orders.lock();
            let is_due = checked.elapsed() >= PERIOD && wanted.is_asked;
            let extent = wanted.extent.take().max((is_event || is_due).then_some(Extent::All));
            let Some(extent) = extent else { continue };
            let number = wanted.number;
            wanted.is_asked &= extent < Extent::All;
            drop(wanted);
            if extent >= Extent::All {
                checked = Instant::now();
            }
            self.scan(extent, number);
            self.watch();
            self.rest();
        }
    }

    /// Frees the tables that neither requests nor the publisher have.
    fn free(&mut self) {
        self.tables.retain(|table| Arc::strong_count(table) > 1);
    }

    /// Scans the directory, and publishes the table as the answer to the request with a number.
    fn scan(&mut self, extent: Extent, number: u64) {
        let start = Instant::now();
        let scanned = catch_unwind(AssertUnwindSafe(|| {
            self.scanner.scan(extent).then(|| {
                // A table that no request has taken is not needed any more. There are two at most.
                self.now.snapshot = None;
                self.publisher.publish(self.now.clone());
                self.free();
                Arc::new(self.scanner.build())
            })
        }));
        // After a panic, all files are read again.
        let snapshot = scanned.unwrap_or_else(|_| {
            self.scanner.forget();
            None
        });
        self.allowance.spend(start.elapsed());
        self.tables.extend(snapshot.clone());
        let snapshot = snapshot.or(self.now.snapshot.take());
        self.now = Published { snapshot, seen: self.scanner.seen(), answered: number };
        self.publisher.publish(self.now.clone());
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
        let wake = PollFd::new(self.orders.wake.as_fd(), PollFlags::POLLIN);
        let inotify = self.inotify.as_ref().filter(|_| for_changes);
        let mut fds = vec![wake];
        fds.extend(inotify.map(|(inotify, _)| PollFd::new(inotify.as_fd(), PollFlags::POLLIN)));
        let time = PollTimeout::try_from(time + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        // An interrupted wait is a short one.
        _ = poll(&mut fds, time);
        _ = self.orders.wake.read();
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
    use super::super::{Collection, Scans};
    use super::*;

    #[test]
    fn a_thread_begins_with_what_requests_have_seen() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("bad"), [b'x'; 100]).unwrap();
        let mut collection = Collection::new("mmv", dir.path());
        collection.refresh();
        // Until the bad file is not read again, and another change would be seen by the time of the directory.
        while collection.seen.is_waiting || collection.seen.look.may_differ(&collection.seen.look) {
            collection.refresh();
        }
        assert_eq!(collection.bad_files(), 1);
        collection.watch().unwrap();
        let Scans::Thread(watch) = &collection.scans else { panic!("{collection:?}") };
        assert_eq!(watch.seen().bad, 1);
        collection.refresh();
        assert_eq!(collection.bad_files(), 1);
        let Scans::Thread(watch) = &collection.scans else { panic!("{collection:?}") };
        assert_eq!(watch.thread.orders.lock().number, 0, "nothing has changed, so the request waits for no scan");
    }

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
