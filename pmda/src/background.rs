//! A slow data source, which a thread reads while the agent answers from the latest snapshot.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use pmapi::{Error, Result};
use tracing::{error, warn};

use crate::error::BoxError;
use crate::log::catch;

/// A data source, read periodically by a separate thread, and its latest snapshot.
///
/// [`Background::latest`] never waits. An agent whose source hangs answers from the last snapshot, or with
/// `PM_ERR_AGAIN` before the first. After a drop, the thread ends when its current read returns; the drop does not wait
/// for it.
///
/// The thread starts with the first call that needs it, so that [`Agent::new`](crate::Agent::new) may create a source
/// although it also runs for `--write-pmda`, which does not read the source.
///
/// ```
/// # use pmda::{Background, pmapi::Error};
/// # use std::time::Duration;
/// let load = Background::spawn(Duration::from_secs(5), || Ok(std::fs::read_to_string("/proc/loadavg")?))?.named("load");
/// match load.latest() {
///     Ok(text) => println!("{text}"),
///     Err(Error::AGAIN) => println!("not read yet"),
///     Err(e) => println!("not readable: {e}"),
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// An agent without data before the first snapshot lets pmcd wait for it. It must declare that it is [not
/// ready](crate::Setup::not_ready) at its start. Otherwise Install finds metrics without values and fails:
///
/// ```
/// # use pmda::prelude::*;
/// # use pmda::PollSet;
/// # use std::time::Duration;
/// # struct Slow { source: Background<u64> }
/// # impl Agent for Slow {
/// #     const NAME: &'static str = "slow";
/// #     const DOMAIN: u16 = 400;
/// fn new(setup: &mut Setup) -> Result<Self, BoxError> {
///     setup.not_ready();
///     let number = setup.gauge("slow.number", Item::new(0, 0), |slow: &Self| slow.source.latest().map(|number| *number));
///     number.help("A number", "It takes three seconds.");
///     Ok(Slow { source: Background::spawn(Duration::from_secs(60), || Ok(7))? })
/// }
///
/// fn is_ready(&self) -> bool {
///     self.source.is_ready()
/// }
///
/// fn sources<'a>(&'a self, set: &mut PollSet<'a>) {
///     set.first_snapshot(&self.source);
/// }
/// # }
/// ```
///
/// A source that pushes its data has a [`Publisher`] instead, see [`Background::channel`].
pub struct Background<T> {
    shared: Arc<Shared<T>>,
    /// Reaches its end of file with the first outcome.
    first: OwnedFd,
    start: Once,
    /// The source, until the thread starts. A [`Publisher`] needs none.
    idle: Mutex<Option<Idle<T>>>,
}

/// A source whose thread has not started.
struct Idle<T> {
    source: Box<dyn FnMut() -> Result<T, BoxError> + Send>,
    until: OwnedFd,
}

struct Shared<T> {
    latest: Mutex<Latest<T>>,
    /// Wakes both ends when something has changed.
    changed: Condvar,
}

struct Latest<T> {
    /// Name of the source, for the log.
    name: String,
    outcome: Result<Arc<T>>,
    /// Text of the last error, until there is a snapshot.
    failed: Option<String>,
    /// Time of the last snapshot.
    taken: Option<Instant>,
    /// There has been an outcome.
    ready: bool,
    period: Duration,
    /// A snapshot is requested at once.
    asked: bool,
    /// The owner has dropped the source.
    ended: bool,
    /// There is no thread and no publisher any more, so the outcome stays.
    over: bool,
}

impl<T: Send + Sync + 'static> Background<T> {
    /// Creates a source whose thread calls `source` every `period`, measured from start to start, and immediately if a
    /// call took longer. A panic in `source` becomes `PM_ERR_GENERIC`.
    ///
    /// `?` converts every error in `source`. The log has its text; clients get the number of a [`pmapi::Error`] or
    /// [`io::Error`], and of another error `PM_ERR_GENERIC`.
    ///
    /// # Errors
    /// The error of pipe(2). If the thread cannot be created, that is the outcome of the source.
    pub fn spawn(period: Duration, source: impl FnMut() -> Result<T, BoxError> + Send + 'static) -> io::Result<Self> {
        let (first, until) = pipe2(OFlag::O_CLOEXEC)?;
        let idle = Mutex::new(Some(Idle { source: Box::new(source), until }));
        Ok(Background { shared: Arc::new(Shared::new(period)), first, start: Once::new(), idle })
    }

    /// Creates a source whose data come from other threads, by clones of the publisher.
    ///
    /// ```
    /// # use pmda::Background;
    /// let (publisher, load) = Background::channel()?;
    /// // An async task may do the same.
    /// std::thread::spawn(move || publisher.publish(0.5)).join().unwrap();
    /// assert_eq!(load.latest().map(|load| *load), Ok(0.5));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of pipe(2).
    pub fn channel() -> io::Result<(Publisher<T>, Self)> {
        let (first, until) = pipe2(OFlag::O_CLOEXEC)?;
        let shared = Arc::new(Shared::new(Duration::MAX));
        let outlet = Outlet { shared: Arc::clone(&shared), until: Mutex::new(Some(until)) };
        let source = Background { shared, first, start: Once::new(), idle: Mutex::new(None) };
        Ok((Publisher(Arc::new(outlet)), source))
    }

    /// Gives the source a name for the log, in which it is otherwise called `source`.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        self.shared.lock().name = name.into();
        self
    }

    /// Returns the latest snapshot.
    ///
    /// # Errors
    /// `PM_ERR_AGAIN` before the first outcome, or the source's error when its last read failed.
    pub fn latest(&self) -> Result<Arc<T>> {
        self.started().lock().outcome.clone()
    }

    /// Waits for an outcome, at most until a time, and returns the latest one. `is_awaited` says of each outcome whether it
    /// is the one, such as a snapshot that is newer than the caller's. The source is locked while `is_awaited` runs: it must
    /// not call functions of the source, such as [`latest`](Background::latest), which would wait for themselves.
    ///
    /// In a request, this should only be for a few milliseconds, because pmcd and all its clients wait meanwhile.
    ///
    /// # Errors
    /// Those of [`Background::latest`].
    pub fn wait(&self, until: Instant, is_awaited: impl Fn(&Result<Arc<T>>) -> bool) -> Result<Arc<T>> {
        let mut latest = self.started().lock();
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            if is_awaited(&latest.outcome) || rest.is_zero() || latest.over {
                return latest.outcome.clone();
            }
            latest = self.shared.changed.wait_timeout(latest, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns the time since the last snapshot; `None` before the first. The source may have failed since.
    pub fn age(&self) -> Option<Duration> {
        self.started().lock().taken.map(|taken| taken.elapsed())
    }

    /// Returns whether the source has returned a snapshot or an error.
    pub fn is_ready(&self) -> bool {
        self.started().lock().ready
    }

    /// Requests another read as soon as the current one has ended. Does not wait for it. The other end of a
    /// [channel](Background::channel) gets the request by [`Publisher::wait`].
    pub fn request_snapshot(&self) {
        self.started().lock().asked = true;
        self.shared.changed.notify_all();
    }

    /// Changes the period. It counts from the start of the last read, so that a shorter one may cause a read at once.
    pub fn set_period(&self, period: Duration) {
        self.shared.lock().period = period;
        self.shared.changed.notify_all();
    }

    /// Starts the thread, unless it has been started.
    fn started(&self) -> &Shared<T> {
        self.start.call_once(|| {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some(Idle { source, until }) = idle else { return };
            let shared = Arc::clone(&self.shared);
            let mut until = Some(until);
            let started =
                thread::Builder::new().name("background".into()).spawn(move || read(&shared, source, &mut until));
            if let Err(e) = started {
                self.shared.publish(Err(e.into()));
                self.shared.lock().over = true;
            }
        });
        &self.shared
    }
}

/// The descriptor becomes readable with the first snapshot or error.
impl<T> AsFd for Background<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.first.as_fd()
    }
}

impl<T> Drop for Background<T> {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
    }
}

impl<T> fmt::Debug for Background<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let latest = self.shared.lock();
        f.debug_struct("Background").field("name", &latest.name).field("failed", &latest.failed).finish_non_exhaustive()
    }
}

/// The other end of a [`Background`] whose data are pushed, for any thread or async task.
///
/// When the last clone is dropped, the log says that the source has ended. The agent keeps the last snapshot, whose age
/// grows; without any, its clients get `PM_ERR_NODATA`.
pub struct Publisher<T>(Arc<Outlet<T>>);

struct Outlet<T> {
    shared: Arc<Shared<T>>,
    /// Closed with the first outcome.
    until: Mutex<Option<OwnedFd>>,
}

impl<T> Publisher<T> {
    /// Publishes a snapshot in place of the one before. Does not wait.
    pub fn publish(&self, snapshot: T) {
        self.0.publish(Ok(snapshot));
    }

    /// Publishes an error in place of the snapshot, as [`Background::spawn`] describes it.
    pub fn fail(&self, error: impl Into<BoxError>) {
        self.0.publish(Err(error.into()));
    }

    /// Waits for the agent's next [request](Background::request_snapshot), at most until a time. Returns false if the agent has dropped
    /// the source. So a thread sleeps while its data are not needed.
    ///
    /// ```
    /// # use pmda::Background;
    /// # use std::time::{Duration, Instant};
    /// let (publisher, load) = Background::channel()?;
    /// let thread = std::thread::spawn(move || {
    ///     while publisher.wait(Instant::now() + Duration::from_secs(3600)) {
    ///         publisher.publish(0.5);
    ///     }
    /// });
    /// load.request_snapshot();
    /// let until = Instant::now() + Duration::from_secs(60);
    /// assert_eq!(load.wait(until, Result::is_ok).map(|load| *load), Ok(0.5));
    /// drop(load);
    /// thread.join().unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// Of several clones of the publisher, one gets the request.
    pub fn wait(&self, until: Instant) -> bool {
        self.0.shared.wait(|_| until.saturating_duration_since(Instant::now()))
    }

    /// Returns whether the agent has dropped the source, so that nobody needs more data.
    pub fn is_closed(&self) -> bool {
        self.0.shared.lock().ended
    }
}

impl<T> Clone for Publisher<T> {
    fn clone(&self) -> Self {
        Publisher(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Publisher<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a publisher of source {}", self.0.shared.lock().name)
    }
}

impl<T> Outlet<T> {
    fn publish(&self, outcome: Result<T, BoxError>) {
        self.shared.publish(outcome);
        drop(self.until.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl<T> Drop for Outlet<T> {
    fn drop(&mut self) {
        let latest = self.shared.lock();
        let (is_ready, is_needed) = (latest.ready, !latest.ended);
        if is_needed {
            warn!(source = %latest.name, "source {} has ended; its last data stay", latest.name);
        }
        drop(latest);
        if !is_ready {
            self.publish(Err(Error::NODATA.into()));
        }
        self.shared.lock().over = true;
        self.shared.changed.notify_all();
    }
}

impl<T> Shared<T> {
    fn new(period: Duration) -> Shared<T> {
        let latest = Latest {
            name: "source".into(),
            outcome: Err(Error::AGAIN),
            failed: None,
            taken: None,
            ready: false,
            period,
            asked: false,
            ended: false,
            over: false,
        };
        Shared { latest: Mutex::new(latest), changed: Condvar::new() }
    }

    /// Locks the snapshot. The lock is held only while a pointer is exchanged or copied, or `is_awaited` of
    /// [`Background::wait`] looks at the outcome.
    fn lock(&self) -> MutexGuard<'_, Latest<T>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, outcome: Result<T, BoxError>) {
        let failed = outcome.as_ref().err().map(ToString::to_string);
        let outcome = outcome.map(Arc::new).map_err(|e| code(&e));
        let mut to = self.lock();
        if outcome.is_ok() {
            to.taken = Some(Instant::now());
        }
        to.ready = true;
        let before = std::mem::replace(&mut to.outcome, outcome);
        let is_known = failed == to.failed;
        to.failed.clone_from(&failed);
        let name = if failed.is_some() { to.name.clone() } else { String::new() };
        // The old snapshot may be large, so it is freed after the lock is released.
        drop(to);
        self.changed.notify_all();
        drop(before);
        if let Some(e) = failed.filter(|_| !is_known) {
            warn!(source = %name, "source {name} failed: {e}");
        }
    }

    /// Waits for a request of the owner, or the end of the time that `rest` returns. Returns false if the owner has dropped
    /// the source.
    fn wait(&self, rest: impl Fn(&Latest<T>) -> Duration) -> bool {
        let mut latest = self.lock();
        loop {
            let rest = rest(&latest);
            if latest.ended {
                return false;
            }
            if std::mem::take(&mut latest.asked) || rest.is_zero() {
                return true;
            }
            latest = self.changed.wait_timeout(latest, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Returns the number of an error for clients.
fn code(e: &BoxError) -> Error {
    match (e.downcast_ref::<Error>(), e.downcast_ref::<io::Error>()) {
        (Some(e), _) => *e,
        (_, Some(e)) => e.raw_os_error().map_or(Error::GENERIC, Error::from_errno),
        _ => Error::GENERIC,
    }
}

/// The thread of a source, at whose end its last outcome stays.
struct Running<'a, T>(&'a Shared<T>);

impl<T> Drop for Running<'_, T> {
    fn drop(&mut self) {
        self.0.lock().over = true;
        self.0.changed.notify_all();
    }
}

/// Reads a source until its owner drops it. Ends earlier if the drop of a snapshot panics.
fn read<T>(shared: &Shared<T>, mut source: impl FnMut() -> Result<T, BoxError>, until: &mut Option<OwnedFd>) {
    let _running = Running(shared);
    loop {
        let begun = Instant::now();
        // The source is responsible for the state that a panic leaves behind.
        shared.publish(catch(&mut source).unwrap_or_else(|panic| {
            error!(source = "panics", "source {} panicked{panic}", shared.lock().name);
            Err(Error::GENERIC.into())
        }));
        *until = None;
        if !shared.wait(|latest| latest.period.saturating_sub(begun.elapsed())) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const LONG: Duration = Duration::from_secs(3600);

    /// Returns a source whose reads return the values sent to it.
    fn fed() -> (mpsc::Sender<Result<u32>>, Background<u32>) {
        let (feed, fed) = mpsc::channel();
        (feed, Background::spawn(LONG, move || Ok(fed.recv().unwrap_or(Err(Error::NODATA))?)).unwrap())
    }

    fn wait(source: &Background<u32>, outcome: Result<u32>) {
        while source.latest().map(|v| *v) != outcome {
            thread::yield_now();
        }
    }

    #[test]
    fn the_last_outcome_counts() {
        let (feed, source) = fed();
        assert_eq!((source.latest(), source.age(), source.is_ready()), (Err(Error::AGAIN), None, false));
        feed.send(Ok(7)).unwrap();
        wait(&source, Ok(7));
        assert!(source.is_ready() && source.age().is_some());
        feed.send(Err(Error::NOAGENT)).unwrap();
        // Without this request, the next read would be an hour later.
        source.request_snapshot();
        wait(&source, Err(Error::NOAGENT));
        assert!(source.age().is_some());
        feed.send(Ok(8)).unwrap();
        source.request_snapshot();
        wait(&source, Ok(8));
    }

    #[test]
    fn the_first_outcome_can_be_waited_for() {
        let (feed, source) = fed();
        feed.send(Err(Error::NOAGENT)).unwrap();
        // The descriptor does not start the thread, but what a daemon calls before it waits does.
        let _ = source.is_ready();
        // Waits until the other end of the pipe is closed.
        assert_eq!(nix::unistd::read(&source.first, &mut [0]).unwrap(), 0);
        assert_eq!((source.latest(), source.is_ready()), (Err(Error::NOAGENT), true));
    }

    #[test]
    fn a_panic_is_an_error_and_the_source_goes_on() {
        let mut n = 0;
        let source = Background::spawn(LONG, move || {
            n += 1;
            assert_ne!(n, 1, "as the test wants it");
            Ok(n)
        });
        let source = source.unwrap();
        wait(&source, Err(Error::GENERIC));
        source.request_snapshot();
        wait(&source, Ok(2));
    }

    #[test]
    fn the_thread_ends_with_its_owner_and_hangs_with_nobody() {
        let (feed, source) = fed();
        let waiting = feed.clone();
        let _ = source.is_ready();
        // The thread waits for its feed, but dropping the source returns at once.
        drop(source);
        waiting.send(Ok(1)).unwrap();
        // The thread has ended when its end of the feed is closed.
        while feed.send(Ok(2)).is_ok() {
            thread::yield_now();
        }
    }

    #[test]
    fn nothing_is_read_before_it_is_needed() {
        let (feed, source) = fed();
        drop(source);
        // The thread would wait for this. Without one, the receiver is gone with the source.
        assert!(feed.send(Ok(1)).is_err());
    }

    #[test]
    fn the_period_can_change() {
        let mut n = 0;
        let source = Background::spawn(LONG, move || {
            n += 1;
            Ok(n)
        });
        let source = source.unwrap();
        wait(&source, Ok(1));
        source.set_period(Duration::from_millis(1));
        while source.latest().is_ok_and(|n| *n < 5) {
            thread::yield_now();
        }
        source.set_period(LONG);
    }

    #[test]
    fn an_error_has_a_number_for_clients_and_a_text_for_the_log() {
        let (publisher, source) = Background::<u32>::channel().unwrap();
        let source = source.named("web");
        for (error, code, text) in [
            (BoxError::from("connection refused to [::1]:8080"), Error::GENERIC, "connection refused to [::1]:8080"),
            (Error::PERMISSION.into(), Error::PERMISSION, "No permission to perform requested operation"),
            (io::Error::from_raw_os_error(2).into(), Error::from_errno(2), "No such file or directory (os error 2)"),
        ] {
            publisher.fail(error);
            assert_eq!(source.latest(), Err(code));
            assert_eq!(format!("{source:?}"), format!("Background {{ name: \"web\", failed: Some({text:?}), .. }}"));
        }
    }

    #[test]
    fn an_outcome_is_waited_for_until_a_time() {
        let (feed, source) = fed();
        let waits = |source: &Background<u32>, expected: Result<u32>, time| {
            source.wait(Instant::now() + time, |now| now.as_ref().map(|n| **n).map_err(|e| *e) == expected).map(|n| *n)
        };
        assert_eq!(waits(&source, Ok(7), Duration::from_millis(1)), Err(Error::AGAIN));
        feed.send(Ok(7)).unwrap();
        assert_eq!(waits(&source, Ok(7), LONG), Ok(7));
        feed.send(Err(Error::NOAGENT)).unwrap();
        source.request_snapshot();
        assert_eq!(waits(&source, Err(Error::NOAGENT), LONG), Err(Error::NOAGENT));

        // Nothing is waited for that cannot come.
        let (publisher, source) = Background::<u32>::channel().unwrap();
        publisher.publish(7);
        thread::spawn(move || drop(publisher));
        assert_eq!(waits(&source, Ok(8), LONG), Ok(7));
    }

    #[test]
    fn a_thread_that_dies_is_not_waited_for() {
        struct Snapshot(u32);
        impl Drop for Snapshot {
            fn drop(&mut self) {
                assert_ne!(self.0, 1, "as the test wants it");
            }
        }
        let mut n = 0;
        let source = Background::spawn(LONG, move || {
            n += 1;
            Ok(Snapshot(n))
        });
        let source = source.unwrap();
        assert!(source.wait(Instant::now() + LONG, Result::is_ok).is_ok());
        // The thread drops the first snapshot when it has published the second one.
        source.request_snapshot();
        assert!(source.wait(Instant::now() + LONG, |_| false).is_ok_and(|last| last.0 == 2));
    }

    #[test]
    fn a_publisher_sleeps_until_it_is_asked() {
        let (publisher, source) = Background::channel().unwrap();
        let thread = thread::spawn(move || {
            let (mut n, begin) = (0, Instant::now());
            while publisher.wait(begin + LONG) {
                n += 1;
                publisher.publish(n);
            }
        });
        for n in 1..5 {
            source.request_snapshot();
            wait(&source, Ok(n));
        }
        drop(source);
        thread.join().unwrap();

        let (publisher, source) = Background::<u32>::channel().unwrap();
        assert!(publisher.wait(Instant::now()), "the time is over");
        // A request that comes before the wait is not lost.
        source.request_snapshot();
        assert!(publisher.wait(Instant::now() + LONG));
    }

    #[test]
    fn data_are_pushed_from_any_thread_until_the_last_publisher_ends() {
        fn is_handle<H: Clone + Send + Sync>(_: &H) {}
        let (publisher, source) = Background::<u32>::channel().unwrap();
        is_handle(&publisher);
        assert_eq!((source.latest(), source.is_ready()), (Err(Error::AGAIN), false));
        let other = publisher.clone();
        thread::spawn(move || other.publish(7)).join().unwrap();
        assert_eq!(nix::unistd::read(&source.first, &mut [0]).unwrap(), 0);
        assert_eq!(source.latest().map(|n| *n), Ok(7));
        drop(publisher);
        assert_eq!(source.latest().map(|n| *n), Ok(7));

        let (publisher, source) = Background::<u32>::channel().unwrap();
        drop(publisher);
        assert_eq!((source.latest(), source.is_ready()), (Err(Error::NODATA), true));
        let (publisher, source) = Background::<u32>::channel().unwrap();
        assert!(!publisher.is_closed());
        drop(source);
        assert!(publisher.is_closed());
    }
}
