//! The thread that reads all sources: a tokio runtime of one thread, with a task for each reading.
//!
//! Nothing on that thread may wait for a file system, a name service or a long computation: such work goes to threads
//! of the runtime by [`Slow`] and [`Permits::convert`]. The agent's own thread only receives reports ([`Reports`]).

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::{AbortHandle, JoinHandle, spawn_blocking};
use tokio::time::{timeout, timeout_at};

use crate::metric::LAST_CLUSTER;

/// Most threads for [`Slow`] work: one for each source, if all of them hang, and some that do not.
const THREADS: usize = LAST_CLUSTER as usize + 65;
/// Time after which a thread without work ends.
const IDLE: Duration = Duration::from_secs(2);
/// Most tasks that run before the runtime looks for answers that have arrived. Starting a script takes about 1 ms.
const TASKS: u32 = 8;
/// Longest time that the end of the agent waits for its tasks, which end their scripts.
const LAST: Duration = Duration::from_secs(1);
/// Time after which free memory is returned to the system for the first time: when the first documents have been read.
const FIRST_TRIM: Duration = Duration::from_secs(2);
/// Time between two returns of free memory.
const TRIM: Duration = Duration::from_secs(60);
/// Long documents that are converted at a time. The decoder of each needs up to 8 MiB.
const LONG: usize = 8;
/// Most slow work that begins at a time. Most of it is short, and each thread needs memory.
const SLOW: usize = 16;
/// Time after which slow work no longer keeps other work from beginning.
pub(crate) const TURN: Duration = Duration::from_millis(250);
/// Bytes of memory that a permit of [`Permits::memory`] stands for.
pub(crate) const MIB: usize = 1 << 20;
/// Usual limit of all long documents together, in MiB.
const MEMORY: usize = 256;
/// Limit of open files that is enough for all sources: two for each, and for each thread.
const ENOUGH: u64 = 16 << 10;
/// Limit of open files of a script, as most daemons have it. Programs that use select(2) fail with a higher one.
pub(crate) const USUAL: u64 = 1024;

/// Builds a runtime for the calling thread.
fn build() -> io::Result<tokio::runtime::Runtime> {
    let mut builder = Builder::new_current_thread();
    builder.enable_io().enable_time().event_interval(TASKS);
    builder.max_blocking_threads(THREADS).thread_keep_alive(IDLE).thread_name("slow").build()
}

/// Runs one task to its end, for the option `--check`.
///
/// # Errors
/// Errors of creating the runtime.
pub(crate) fn run<T>(task: impl Future<Output = T>) -> io::Result<T> {
    let runtime = build()?;
    let done = runtime.block_on(task);
    // A file system that hangs keeps its thread.
    runtime.shutdown_background();
    Ok(done)
}

/// The runtime's thread. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Runtime {
    handle: Handle,
    /// Whether there was a task since free memory was returned.
    is_used: Arc<AtomicBool>,
    /// Dropped to end the thread.
    stop: Option<oneshot::Sender<()>>,
    /// Disconnected when the thread's tasks have ended.
    ended: Receiver<()>,
}

impl Runtime {
    /// Starts the thread.
    ///
    /// # Errors
    /// Errors of creating the runtime or the thread.
    pub(crate) fn start() -> io::Result<Runtime> {
        let runtime = build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let (ends, ended) = mpsc::channel();
        let is_used = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&is_used);
        pcp_base::thread::spawn("reader", move || {
            runtime.block_on(until(stopped, &of_thread));
            runtime.shutdown_background();
            drop::<mpsc::Sender<()>>(ends);
        })?;
        Ok(Runtime { handle, is_used, stop: Some(stop), ended })
    }

    /// Begins a task.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.is_used.store(true, Ordering::Relaxed);
        self.handle.spawn(task).abort_handle()
    }
}

/// Waits for the end of the agent. Meanwhile returns free memory to the system now and then: otherwise the agent would keep
/// the most memory that its documents ever needed together.
async fn until(mut stopped: oneshot::Receiver<()>, is_used: &AtomicBool) {
    let mut pause = FIRST_TRIM;
    while timeout(pause, &mut stopped).await.is_err() {
        pause = TRIM;
        if is_used.swap(false, Ordering::Relaxed) {
            let _ = spawn_blocking(pcp_base::thread::trim_heap).await;
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.stop = None;
        let _ = self.ended.recv_timeout(LAST);
    }
}

/// What readings share. Each number is a constant limit; what finds no permit waits or fails.
#[derive(Clone, Debug)]
pub(crate) struct Permits {
    /// Slow work that begins, each for [`TURN`] at most.
    slow: Arc<Semaphore>,
    /// Scripts that begin, each for [`TURN`] at most.
    scripts: Arc<Semaphore>,
    /// Long documents that are converted.
    long: Arc<Semaphore>,
    /// Memory of long documents, in MiB.
    pub(crate) memory: Arc<Semaphore>,
    /// Size of `memory`.
    pub(crate) most: usize,
    /// Connections that are kept between two readings.
    kept: Arc<Semaphore>,
}

impl Permits {
    /// Creates the permits for `sources` slow readings that begin at a time, and for documents of up to `longest` bytes,
    /// but no more than `memory` bytes for all of them.
    pub(crate) fn new(sources: usize, longest: u64, memory: usize) -> Permits {
        let longest = usize::try_from(longest).unwrap_or(usize::MAX);
        let most = (longest / MIB).max(MEMORY).min(memory / MIB).clamp(1, Semaphore::MAX_PERMITS);
        raise_files();
        let files = getrlimit(Resource::RLIMIT_NOFILE).map_or(USUAL, |(soft, _)| soft);
        let of = |permits| Arc::new(Semaphore::new(permits));
        Permits {
            slow: of(sources.min(SLOW)),
            scripts: of(sources),
            long: of(LONG),
            memory: of(most),
            most,
            kept: of(usize::try_from(files / 2).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS)),
        }
    }

    /// Waits until a script may begin. The permit is to be dropped after [`TURN`].
    pub(crate) async fn script(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.scripts).acquire_owned().await.ok()
    }

    /// Returns the right to keep a connection, if there is one left.
    pub(crate) fn keep(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.kept).try_acquire_owned().ok()
    }

    /// Converts a document on another thread. Of long ones, [`LONG`] are converted at a time.
    ///
    /// # Errors
    /// The conversion panicked.
    pub(crate) async fn convert<T: Send + 'static>(
        &self,
        is_long: bool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        // Each thread needs memory.
        let _permit = if is_long { &self.long } else { &self.slow }.acquire().await;
        spawn_blocking(work).await.map_err(|_| PANICKED.to_owned())
    }
}

/// Reason for a reading that panicked.
pub(crate) const PANICKED: &str = "the agent failed to read it; please report this";

/// The slow work of a source, such as reading a file on a network file system. It may hang for ever. A source has at
/// most one such thread, and nothing waits for it after the deadline.
#[derive(Debug, Default)]
pub(crate) struct Slow(Option<JoinHandle<()>>);

impl Slow {
    /// Runs `work` on another thread until a deadline. Returns `None` if it does not end in time, or if earlier work of
    /// the source has not ended yet.
    pub(crate) async fn run<T: Send + 'static>(
        &mut self,
        permits: &Permits,
        deadline: Instant,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if self.0.as_ref().is_some_and(|pending| !pending.is_finished()) {
            return None;
        }
        let deadline = deadline.into();
        let permit = timeout_at(deadline, permits.slow.acquire()).await.ok()?;
        let (done, mut result) = oneshot::channel();
        self.0 = Some(spawn_blocking(move || _ = done.send(work())));
        if let Ok(done) = timeout_at(deadline.min(tokio::time::Instant::now() + TURN), &mut result).await {
            self.0 = None;
            return done.ok();
        }
        drop(permit);
        let done = timeout_at(deadline, result).await.ok()?;
        self.0 = None;
        done.ok()
    }
}

/// The agent's end of a queue of reports. Its descriptor is readable when reports have arrived.
///
/// A [`Background`](pmda::Background) has only the last snapshot. Here each report counts, because it returns its reader.
#[derive(Debug)]
pub(crate) struct Reports<T> {
    queue: Receiver<T>,
    sender: Sender<T>,
}

/// The end of the queue that tasks have.
#[derive(Debug)]
pub(crate) struct Sender<T> {
    queue: mpsc::Sender<T>,
    wake: Arc<EventFd>,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender { queue: self.queue.clone(), wake: Arc::clone(&self.wake) }
    }
}

impl<T> Sender<T> {
    /// Sends a report, and wakes the agent.
    pub(crate) fn send(&self, report: T) {
        let _ = self.queue.send(report);
        // Fails only if the descriptor is readable already.
        let _ = self.wake.write(1);
    }
}

impl<T> Reports<T> {
    /// Creates an empty queue.
    ///
    /// # Errors
    /// Errors of eventfd(2).
    pub(crate) fn new() -> io::Result<Reports<T>> {
        let wake = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let (sender, queue) = mpsc::channel();
        Ok(Reports { queue, sender: Sender { queue: sender, wake: Arc::new(wake) } })
    }

    pub(crate) fn sender(&self) -> Sender<T> {
        self.sender.clone()
    }

    /// Returns the reports that have arrived, without waiting.
    pub(crate) fn take(&self) -> Vec<T> {
        self.arrived(None)
    }

    /// Waits for reports until `until`, and returns those that have arrived.
    pub(crate) fn wait(&self, until: Instant) -> Vec<T> {
        self.arrived(self.queue.recv_timeout(until.saturating_duration_since(Instant::now())).ok())
    }

    /// Returns the reports that have arrived after the first one.
    fn arrived(&self, first: Option<T>) -> Vec<T> {
        // Before the queue is read: a report that is sent from now on makes the descriptor readable again.
        let _ = self.sender.wake.read();
        first.into_iter().chain(self.queue.try_iter()).collect()
    }
}

impl<T> AsFd for Reports<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sender.wake.as_fd()
    }
}

/// Raises the soft limit of open files to what all sources need, as far as that is allowed.
fn raise_files() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.max(hard.min(ENOUGH)), hard);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    /// Slow work that hangs costs its source one thread, and keeps other work waiting for a short time only.
    #[test]
    fn slow_work_that_hangs() {
        let permits = Permits::new(1, 0, usize::MAX);
        let (hold, held) = mpsc::channel::<()>();
        run(async {
            let (mut hung, mut other) = (Slow::default(), Slow::default());
            let hangs = hung.run(&permits, Instant::now() + 2 * TURN, move || held.recv());
            let waits = other.run(&permits, Instant::now() + LIMIT, || 5);
            let (hangs, waits) = tokio::join!(hangs, waits);
            assert_eq!((hangs, waits), (None, Some(5)));
            for _ in 0..3 {
                assert_eq!(hung.run(&permits, Instant::now() + LIMIT, || 6).await, None, "the first work goes on");
            }
            drop(hold);
            let begin = Instant::now();
            while hung.run(&permits, Instant::now() + LIMIT, || 7).await.is_none() {
                assert!(begin.elapsed() < LIMIT);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .unwrap();
    }

    /// A panic in slow work and in a conversion is an error, and gives the permits back.
    #[test]
    fn work_that_panics() {
        let permits = Permits::new(1, 0, usize::MAX);
        run(async {
            for _ in 0..2 * LONG {
                let mut slow = Slow::default();
                assert_eq!(slow.run(&permits, Instant::now() + LIMIT, || -> u8 { panic!("on purpose") }).await, None);
                assert_eq!(permits.convert(true, || -> u8 { panic!("on purpose") }).await, Err(PANICKED.to_owned()));
            }
            assert_eq!(permits.convert(true, || 5).await, Ok(5));
        })
        .unwrap();
    }

    #[test]
    fn reports_wake_and_do_not_get_lost() {
        let reports = Reports::<u32>::new().unwrap();
        let sender = reports.sender();
        let sent = std::thread::spawn(move || (0..1000).for_each(|n| sender.send(n)));
        let mut got = Vec::new();
        while got.len() < 1000 {
            let mut set = [nix::poll::PollFd::new(reports.as_fd(), nix::poll::PollFlags::POLLIN)];
            assert!(nix::poll::poll(&mut set, 60_000_u16).unwrap() > 0);
            got.extend(reports.take());
        }
        sent.join().unwrap();
        assert_eq!(got, (0..1000).collect::<Vec<_>>());
        assert!(reports.wait(Instant::now()).is_empty());
        reports.sender().send(5);
        assert_eq!(reports.wait(Instant::now() + LIMIT), [5]);
        let sender = reports.sender();
        let sent = std::thread::spawn(move || (0..1000).for_each(|n| sender.send(n)));
        got.clear();
        while got.len() < 1000 {
            got.extend(reports.wait(Instant::now() + LIMIT));
        }
        sent.join().unwrap();
    }
}
