//! Threads that read sources.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Reads a source, and reports the outcome.
pub(crate) type Job = Box<dyn FnOnce(Crowd) + Send>;

/// Whether other jobs have to wait for the end of a job that begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Crowd {
    Few,
    /// There are not enough threads for the jobs that wait. If most sources hang, the last one would wait for very long.
    Many,
}

/// What is known about a source's next answer. Jobs of the first one are done first, and there are threads that only the
/// more urgent ones get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Urgency {
    /// The last answer of a server or file was a document.
    Known,
    /// A server or file that has not answered yet, or has failed, or a script that has answered.
    New,
    /// A script that has not answered yet. It takes long to start hundreds of scripts, so servers do not wait for them.
    Fresh,
    /// The last reading did not end in time.
    Retry,
    /// The last two readings, or more, did not end in time.
    Late,
}

/// All urgencies, the first one first.
const ALL: [Urgency; LANES] = [Urgency::Known, Urgency::New, Urgency::Fresh, Urgency::Retry, Urgency::Late];
const LANES: usize = 5;
/// Eighths of the threads that jobs of an urgency and all less urgent ones occupy together at most. Sources that are bad
/// thus leave threads to those of which less is known.
const EIGHTHS: [usize; LANES] = [8, 6, 5, 3, 2];

/// Threads that are started on demand, and end when there is no work. Each thread costs memory, and a few threads can
/// read very many sources that answer at once.
///
/// The thread that has been idle for the shortest time does the next job. Thus only as many threads work as there are
/// jobs at a time, and the others end. If all threads worked by turns, each would in time keep as much memory as the largest
/// document needs.
#[derive(Debug)]
pub(crate) struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// Largest number of threads.
    most: usize,
}

/// Jobs of the same urgency.
#[derive(Default)]
struct Lane {
    /// Jobs that wait, each with the time at which it was added.
    jobs: VecDeque<(Instant, Job)>,
    running: usize,
}

#[derive(Default)]
struct Queue {
    /// Jobs by urgency.
    lanes: [Lane; LANES],
    /// Largest number of jobs of each urgency and all less urgent ones that run at a time.
    most: [usize; LANES],
    threads: usize,
    /// Idle threads. The last one has been idle for the shortest time.
    idle: Vec<Arc<Condvar>>,
    /// Number of threads that have been woken and have not looked for a job yet.
    woken: usize,
    /// Time of the last growth.
    grown: Option<Instant>,
    /// Time from which free memory is to be returned to the system.
    trim: Option<Instant>,
    closed: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} jobs, {} threads", self.waiting(), self.threads)
    }
}

/// Number of threads, besides those with less urgent sources, that are started immediately.
const FIRST: usize = 16;
/// Waiting time after which a thread is started for a job.
pub(crate) const LONGEST: Duration = Duration::from_millis(50);
/// Time after which free memory is returned to the system for the first time: when the first documents have been read.
const FIRST_TRIM: Duration = Duration::from_secs(2);
/// Shortest time between two returns of free memory to the system.
const TRIM: Duration = Duration::from_secs(60);
/// A thread without work ends after this time. Its stack and the allocator's store of free memory for it then go back. With
/// a longer time, each thread that worked only at the busiest moment would keep some 100 KiB.
const PATIENCE: Duration = Duration::from_secs(2);

impl Pool {
    pub(crate) fn new(most: usize) -> Pool {
        let trim = Instant::now().checked_add(FIRST_TRIM);
        // At least one thread is left to known sources.
        let of = |eighths: usize| {
            if eighths == 8 { most } else { (most * eighths / 8).clamp(1, most.saturating_sub(1).max(1)) }
        };
        let queue = Queue { trim, most: EIGHTHS.map(of), ..Queue::default() };
        Pool(Arc::new(Shared { queue: Mutex::new(queue), most }))
    }

    /// Adds a job.
    ///
    /// # Errors
    /// The error of creating a thread, if no thread exists that could do the job. The job is dropped.
    pub(crate) fn add(&self, urgency: Urgency, job: Job) -> io::Result<()> {
        let mut queue = self.0.lock();
        queue.lane(urgency).jobs.push_back((Instant::now(), job));
        // An idle thread may not take late sources, but can do other jobs.
        queue.wake();
        // A source does not wait for a thread because many less urgent ones hang.
        let hang = queue.running(urgency as usize + 1);
        if queue.unused() >= queue.ready() || queue.threads.saturating_sub(hang) >= FIRST {
            return Ok(());
        }
        match spawn(&self.0, &mut queue) {
            Err(e) if queue.threads == 0 => {
                queue.clear();
                Err(e)
            }
            _ => Ok(()),
        }
    }

    /// Returns when [`Pool::grow`] may start threads for waiting jobs.
    pub(crate) fn due(&self) -> Option<Instant> {
        let queue = self.0.lock();
        let oldest = queue.oldest()?;
        let may = queue.ready() > queue.unused() && queue.threads < self.0.most;
        // If no thread can be started, this does not try again at once.
        may.then(|| queue.grown.map_or(oldest, |grown| grown.max(oldest)) + LONGEST)
    }

    /// Starts a thread for each job that has waited for [`LONGEST`].
    pub(crate) fn grow(&self) {
        let mut queue = self.0.lock();
        let now = Instant::now();
        queue.grown = Some(now);
        let all = queue.lanes.iter().flat_map(|lane| &lane.jobs);
        let old = all.filter(|(added, _)| now.duration_since(*added) >= LONGEST).count();
        for _ in queue.unused()..old.min(queue.ready()) {
            if spawn(&self.0, &mut queue).is_err() {
                break;
            }
        }
    }
}

/// Starts a thread, unless there are enough.
fn spawn(shared: &Arc<Shared>, queue: &mut Queue) -> io::Result<()> {
    if queue.threads >= shared.most {
        return Ok(());
    }
    let own = Arc::clone(shared);
    pmapi::thread::spawn("reader", move || own.work())?;
    queue.threads += 1;
    Ok(())
}

impl Queue {
    /// Wakes the thread that has been idle for the shortest time.
    fn wake(&mut self) {
        if let Some(thread) = self.idle.pop() {
            self.woken += 1;
            thread.notify_one();
        }
    }

    /// Returns whether nothing is to be read, and free memory is to be returned. It counts as returned then.
    fn may_trim(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.waiting() == 0 && self.trim.is_some_and(|due| now >= due);
        if is_due {
            self.trim = now.checked_add(TRIM);
        }
        is_due
    }

    /// Returns the number of threads without a job.
    fn unused(&self) -> usize {
        self.idle.len() + self.woken
    }

    fn waiting(&self) -> usize {
        self.lanes.iter().map(|lane| lane.jobs.len()).sum()
    }

    /// Returns the number of running jobs from a lane on.
    fn running(&self, from: usize) -> usize {
        self.lanes.iter().skip(from).map(|lane| lane.running).sum()
    }

    /// Returns the number of jobs that threads may begin now.
    fn ready(&self) -> usize {
        let mut ready = 0;
        for (at, (lane, most)) in self.lanes.iter().zip(self.most).enumerate().rev() {
            // Those of less urgent lanes count, too.
            ready = (ready + lane.jobs.len()).min(most.saturating_sub(self.running(at)));
        }
        ready
    }

    fn lane(&mut self, urgency: Urgency) -> &mut Lane {
        // Each urgency is less than `LANES`.
        &mut self.lanes[urgency as usize]
    }

    /// Takes the next job that may begin. It counts as running until [`Queue::ended`].
    fn next(&mut self) -> Option<(Urgency, Crowd, Job)> {
        // A lane may only begin a job if all more urgent ones, whose limits include it, may do so.
        let mut room = usize::MAX;
        for (at, urgency) in ALL.into_iter().enumerate() {
            room = room.min(self.most[at].saturating_sub(self.running(at)));
            if room == 0 {
                return None;
            }
            let lane = self.lane(urgency);
            let Some((_, job)) = lane.jobs.pop_front() else { continue };
            lane.running += 1;
            let is_crowd = match urgency {
                Urgency::Known => lane.jobs.len() >= room,
                // The last thread is never occupied for long, otherwise one more source would wait.
                Urgency::New | Urgency::Fresh | Urgency::Retry => lane.jobs.len() >= room / 2,
                // A source that was late again and again has all the time of its limit.
                Urgency::Late => false,
            };
            return Some((urgency, if is_crowd { Crowd::Many } else { Crowd::Few }, job));
        }
        None
    }

    fn ended(&mut self, urgency: Urgency) {
        self.lane(urgency).running -= 1;
    }

    /// Returns when the job was added that waits for the longest time.
    fn oldest(&self) -> Option<Instant> {
        self.lanes.iter().filter_map(|lane| Some(lane.jobs.front()?.0)).min()
    }

    /// Returns whether a job that may begin has waited for [`LONGEST`].
    fn is_behind(&self) -> bool {
        self.unused() == 0 && self.ready() > 0 && self.oldest().is_some_and(|added| added.elapsed() >= LONGEST)
    }

    fn clear(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.jobs.clear());
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.closed = true;
        queue.clear();
        while !queue.idle.is_empty() {
            queue.wake();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(self: Arc<Self>) {
        let own = Arc::new(Condvar::new());
        let mut queue = self.lock();
        while !queue.closed {
            if queue.is_behind() {
                // If no thread can be started, this thread continues alone.
                let _ = spawn(&self, &mut queue);
            }
            if let Some((urgency, crowd, job)) = queue.next() {
                drop(queue);
                job(crowd);
                queue = self.lock();
                queue.ended(urgency);
                continue;
            }
            if queue.may_trim() {
                drop(queue);
                // Otherwise the agent would keep the most memory that its threads ever needed together.
                pmapi::thread::trim_heap();
                queue = self.lock();
                continue;
            }
            let is_over;
            (queue, is_over) = wait(queue, &own);
            if is_over && queue.ready() == 0 {
                break;
            }
        }
        queue.threads -= 1;
    }
}

/// Waits as an idle thread until it is woken. Returns true if that has not happened for [`PATIENCE`].
fn wait<'a>(mut queue: MutexGuard<'a, Queue>, own: &Arc<Condvar>) -> (MutexGuard<'a, Queue>, bool) {
    queue.idle.push(Arc::clone(own));
    let (mut queue, timeout) = own.wait_timeout(queue, PATIENCE).unwrap_or_else(PoisonError::into_inner);
    match queue.idle.iter().position(|thread| Arc::ptr_eq(thread, own)) {
        // The time is over, or the system has woken the thread without a reason.
        Some(at) => {
            queue.idle.remove(at);
            (queue, timeout.timed_out())
        }
        None => {
            queue.woken -= 1;
            (queue, false)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::HashSet;
    use std::sync::mpsc::channel;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    /// Less urgent sources may all hang. They leave threads for more urgent ones.
    #[test]
    fn less_urgent_sources_leave_threads_for_others() {
        for (threads, urgencies) in [(2, 1), (3, 1), (8, LANES - 1), (64, LANES - 1)] {
            for (at, of) in ALL.into_iter().enumerate().take(urgencies) {
                let pool = Pool::new(threads);
                let (ended, ends) = channel();
                let (hold, held) = channel::<()>();
                let held = Arc::new(Mutex::new(held));
                let less = ALL.iter().skip(at + 1).flat_map(|urgency| vec![*urgency; 2 * threads]);
                let count = less.clone().count();
                for urgency in less.rev() {
                    let (held, ended) = (Arc::clone(&held), ended.clone());
                    let job = move |_| {
                        let _ = held.lock().map(|held| held.recv());
                        let _ = ended.send("less urgent");
                    };
                    pool.add(urgency, Box::new(job)).unwrap();
                }
                for _ in 0..10 {
                    let ended = ended.clone();
                    pool.add(of, Box::new(move |_| ended.send("urgent").unwrap())).unwrap();
                    assert_eq!(ends.recv_timeout(LIMIT), Ok("urgent"), "{threads} threads, {of:?}");
                }
                drop(hold);
                for _ in 0..count {
                    assert_eq!(ends.recv_timeout(LIMIT), Ok("less urgent"));
                }
            }
        }
    }

    /// Jobs one after the other are done by one thread, although several are idle.
    #[test]
    fn the_thread_that_worked_last_works_next() {
        let pool = Pool::new(8);
        let (started, starts) = channel();
        let (hold, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for _ in 0..4 {
            let (held, started) = (Arc::clone(&held), started.clone());
            let job = move |_| {
                let _ = started.send(std::thread::current().id());
                let _ = held.lock().map(|held| held.recv());
            };
            pool.add(Urgency::New, Box::new(job)).unwrap();
        }
        let first: HashSet<_> = (0..4).map(|_| starts.recv_timeout(LIMIT).unwrap()).collect();
        assert_eq!(first.len(), 4);
        drop(hold);
        let all_idle = || {
            let begin = Instant::now();
            while pool.0.lock().idle.len() < 4 {
                assert!(begin.elapsed() < LIMIT);
                std::thread::yield_now();
            }
        };
        let mut used = HashSet::new();
        for _ in 0..100 {
            all_idle();
            let started = started.clone();
            pool.add(Urgency::New, Box::new(move |_| started.send(std::thread::current().id()).unwrap())).unwrap();
            used.insert(starts.recv_timeout(LIMIT).unwrap());
        }
        assert_eq!(used.len(), 1);
        assert_eq!(pool.0.lock().threads, 4);
    }

    /// Jobs know whether others have to wait for them, but for those of late sources.
    #[test]
    fn jobs_in_a_crowd() {
        const THREADS: usize = 4;
        let lanes = ALL.into_iter().zip([4, 3, 2, 1, 1]);
        for (urgency, at_once, many) in lanes.map(|(urgency, at_once)| (urgency, at_once, urgency != Urgency::Late)) {
            let pool = Pool::new(THREADS);
            let (begun, begins) = channel();
            let (hold, held) = channel::<()>();
            let held = Arc::new(Mutex::new(held));
            let add = |urgency| {
                let (begun, held) = (begun.clone(), Arc::clone(&held));
                let job = move |crowd| {
                    let _ = begun.send(crowd);
                    let _ = held.lock().map(|held| held.recv());
                };
                pool.add(urgency, Box::new(job)).unwrap();
            };
            let mut crowds = Vec::new();
            for _ in 0..at_once {
                add(urgency);
                crowds.push(begins.recv_timeout(LIMIT).unwrap());
            }
            // There is a thread for each of these, but only sources that are known may occupy the last one for long.
            let last = if urgency == Urgency::Known || urgency == Urgency::Late { Crowd::Few } else { Crowd::Many };
            assert_eq!(crowds.pop(), Some(last), "{urgency:?}");
            assert!(crowds.iter().all(|crowd| *crowd == Crowd::Few), "{urgency:?}: {crowds:?}");
            (0..3).for_each(|_| add(urgency));
            drop(hold);
            let crowds: Vec<_> = (0..3).map(|_| begins.recv_timeout(LIMIT).unwrap()).collect();
            assert_eq!(crowds.contains(&Crowd::Many), many, "{urgency:?}: {crowds:?}");
        }
    }

    #[test]
    fn jobs_that_wait_long_get_threads() {
        const THREADS: usize = 3 * FIRST;
        let pool = Pool::new(THREADS);
        let (started, starts) = channel();
        let (hold, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for _ in 0..THREADS + 1 {
            let (held, started) = (Arc::clone(&held), started.clone());
            let job = move |_| {
                let _ = started.send(());
                let _ = held.lock().map(|held| held.recv());
            };
            pool.add(Urgency::Known, Box::new(job)).unwrap();
        }
        assert_eq!(pool.0.lock().threads, FIRST);
        assert!(pool.due().is_some());
        (0..FIRST).for_each(|_| starts.recv_timeout(LIMIT).unwrap());
        let begin = Instant::now();
        while pool.due().is_some() {
            assert!(begin.elapsed() < LIMIT);
            pool.grow();
        }
        assert_eq!(pool.0.lock().threads, THREADS);
        (FIRST..THREADS).for_each(|_| starts.recv_timeout(LIMIT).unwrap());
        drop(hold);
        starts.recv_timeout(LIMIT).unwrap();
    }
}
