//! A slow data source, which a thread reads while the agent answers from the latest snapshot.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use pmapi::{Error, Result};
use tracing::{error, warn};

use crate::log::catch;

/// A data source, read periodically by a separate thread, and its latest snapshot.
///
/// [`Background::latest`] never waits. An agent whose source hangs answers from the last snapshot, or with
/// `PM_ERR_AGAIN` before the first. After a drop, the thread ends when its current read returns; the drop does not wait
/// for it.
///
/// ```
/// # use pmda::{Background, pmapi::Error};
/// # use std::time::Duration;
/// let load = Background::spawn(Duration::from_secs(5), || Ok(std::fs::read_to_string("/proc/loadavg")?))?;
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
/// fn new(setup: &mut Setup) -> Start<Self> {
///     setup.not_ready();
///     setup.metric("slow.number", Item::new(0, 0), Type::U64).help("A number", "It takes three seconds.");
///     Ok(Slow { source: Background::spawn(Duration::from_secs(60), || Ok(7))? })
/// }
///
/// fn fetch(&mut self, _: Item, out: &mut Values<'_>) -> Result {
///     out.put(*self.source.latest()?)
/// }
///
/// fn is_ready(&self) -> bool {
///     self.source.is_ready()
/// }
///
/// fn sources<'a>(&'a self, set: &mut PollSet<'a>) {
///     set.first(&self.source);
/// }
/// # }
/// ```
///
/// [`Agent::new`](crate::Agent::new) also runs for `--write-pmda`, and reads the source then.
#[derive(Debug)]
pub struct Background<T> {
    latest: Arc<Mutex<Latest<T>>>,
    /// A message requests a snapshot at once. The end of the channel ends the thread.
    asks: SyncSender<()>,
    /// Reaches its end of file with the first outcome.
    first: OwnedFd,
}

#[derive(Debug)]
struct Latest<T> {
    outcome: Result<Arc<T>>,
    /// Time of the last snapshot.
    taken: Option<Instant>,
    /// There has been an outcome.
    ready: bool,
}

impl<T: Send + Sync + 'static> Background<T> {
    /// Starts the thread. It calls `source` every `period`, measured from start to start, and immediately if a call
    /// took longer. A panic in `source` becomes `PM_ERR_GENERIC`.
    ///
    /// # Errors
    /// The error of pipe(2), or of the creation of the thread.
    pub fn spawn(period: Duration, source: impl FnMut() -> Result<T> + Send + 'static) -> io::Result<Self> {
        let (first, until) = pipe2(OFlag::O_CLOEXEC)?;
        let latest = Arc::new(Mutex::new(Latest { outcome: Err(Error::AGAIN), taken: None, ready: false }));
        let (asks, asked) = sync_channel(1);
        let to = Arc::clone(&latest);
        thread::Builder::new().name("background".into()).spawn(move || {
            let mut until = Some(until);
            read(period, source, &asked, |outcome| {
                publish(&to, outcome);
                until = None;
            });
        })?;
        Ok(Background { latest, asks, first })
    }
}

impl<T> Background<T> {
    /// Returns the latest snapshot.
    ///
    /// # Errors
    /// `PM_ERR_AGAIN` before the first outcome, or the source's error when its last read failed.
    pub fn latest(&self) -> Result<Arc<T>> {
        lock(&self.latest).outcome.clone()
    }

    /// Returns the time since the last snapshot; `None` before the first. The source may have failed since.
    pub fn age(&self) -> Option<Duration> {
        lock(&self.latest).taken.map(|taken| taken.elapsed())
    }

    /// Returns whether the source has returned a snapshot or an error.
    pub fn is_ready(&self) -> bool {
        lock(&self.latest).ready
    }

    /// Requests another read as soon as the current one has ended. Does not wait for it.
    pub fn ask(&self) {
        // A full channel already has a request.
        let _ = self.asks.try_send(());
    }
}

/// The descriptor becomes readable with the first snapshot or error.
impl<T> AsFd for Background<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.first.as_fd()
    }
}

/// Locks the snapshot. The lock is held only while a pointer is exchanged or copied.
fn lock<T>(latest: &Mutex<Latest<T>>) -> MutexGuard<'_, Latest<T>> {
    latest.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T>(
    period: Duration,
    mut source: impl FnMut() -> Result<T>,
    asked: &Receiver<()>,
    mut publish: impl FnMut(Result<T>),
) {
    loop {
        let started = Instant::now();
        // The source is responsible for the state that a panic leaves behind.
        publish(catch(&mut source).unwrap_or_else(|panic| {
            error!(source = "panics", "a source panicked{panic}");
            Err(Error::GENERIC)
        }));
        match asked.recv_timeout(period.saturating_sub(started.elapsed())) {
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn publish<T>(latest: &Mutex<Latest<T>>, outcome: Result<T>) {
    let outcome = outcome.map(Arc::new);
    let failed = outcome.as_ref().err().copied();
    let mut to = lock(latest);
    if outcome.is_ok() {
        to.taken = Some(Instant::now());
    }
    to.ready = true;
    let before = std::mem::replace(&mut to.outcome, outcome);
    // The old snapshot may be large, so it is freed after the lock is released.
    drop(to);
    if let Some(e) = failed.filter(|e| before.as_ref().err() != Some(e)) {
        warn!(source = "a source", "a source failed: {e}");
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
        (feed, Background::spawn(LONG, move || fed.recv().unwrap_or(Err(Error::NODATA))).unwrap())
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
        source.ask();
        wait(&source, Err(Error::NOAGENT));
        assert!(source.age().is_some());
        feed.send(Ok(8)).unwrap();
        source.ask();
        wait(&source, Ok(8));
    }

    #[test]
    fn the_first_outcome_can_be_waited_for() {
        let (feed, source) = fed();
        feed.send(Err(Error::NOAGENT)).unwrap();
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
        source.ask();
        wait(&source, Ok(2));
    }

    #[test]
    fn the_thread_ends_with_its_owner_and_hangs_with_nobody() {
        let (feed, source) = fed();
        let waiting = feed.clone();
        // The thread waits for its feed, but dropping the source returns at once.
        drop(source);
        waiting.send(Ok(1)).unwrap();
        // The thread has ended when its end of the feed is closed.
        while feed.send(Ok(2)).is_ok() {
            thread::yield_now();
        }
    }
}
