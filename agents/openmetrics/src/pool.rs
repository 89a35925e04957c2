//! Threads that read sources.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Reads a source, and reports the outcome.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Whether a source has answered in time the last time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Urgency {
    Prompt,
    /// The source was late. Such sources together occupy at most half of the threads.
    Late,
}

/// Threads that are started when they are needed, and end when they have nothing to do.
#[derive(Debug)]
pub(crate) struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    added: Condvar,
    /// Most threads, half of which may read sources that were late.
    most: usize,
}

#[derive(Default)]
struct Queue {
    prompt: VecDeque<Job>,
    late: VecDeque<Job>,
    threads: usize,
    idle: usize,
    late_running: usize,
    closed: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} and {} jobs, {} threads", self.prompt.len(), self.late.len(), self.threads)
    }
}

/// A thread without work ends after this time.
const PATIENCE: Duration = Duration::from_secs(60);

impl Pool {
    pub(crate) fn new(most: usize) -> Pool {
        Pool(Arc::new(Shared { queue: Mutex::default(), added: Condvar::new(), most }))
    }

    /// Adds a job.
    ///
    /// # Errors
    /// The error of the creation of a thread, if there is none to do the job. The job is dropped then.
    pub(crate) fn add(&self, urgency: Urgency, job: Job) -> io::Result<()> {
        let mut queue = self.0.lock();
        match urgency {
            Urgency::Prompt => queue.prompt.push_back(job),
            Urgency::Late => queue.late.push_back(job),
        }
        // Idle threads may be those that leave late sources waiting. They do prompt jobs.
        self.0.added.notify_one();
        if queue.idle >= queue.prompt.len() + queue.late.len() || queue.threads >= self.0.most {
            return Ok(());
        }
        queue.threads += 1;
        let shared = Arc::clone(&self.0);
        let spawned = pmapi::thread::spawn("reader", move || shared.work());
        if let Err(e) = spawned {
            queue.threads -= 1;
            if queue.threads == 0 {
                queue.prompt.clear();
                queue.late.clear();
                return Err(e);
            }
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.closed = true;
        queue.prompt.clear();
        queue.late.clear();
        drop(queue);
        self.0.added.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut queue = self.lock();
        while !queue.closed {
            if let Some(job) = queue.prompt.pop_front() {
                drop(queue);
                job();
                queue = self.lock();
                continue;
            }
            let late = if queue.late_running < self.most / 2 { queue.late.pop_front() } else { None };
            if let Some(job) = late {
                queue.late_running += 1;
                drop(queue);
                job();
                queue = self.lock();
                queue.late_running -= 1;
                continue;
            }
            queue.idle += 1;
            let (woken, timeout) = self.added.wait_timeout(queue, PATIENCE).unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            queue.idle -= 1;
            if timeout.timed_out() && queue.prompt.is_empty() {
                break;
            }
        }
        queue.threads -= 1;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn late_sources_leave_threads_for_others() {
        const THREADS: usize = 8;
        let pool = Pool::new(THREADS);
        let (ended, ends) = channel();
        let (hold, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for _ in 0..2 * THREADS {
            let (held, ended) = (Arc::clone(&held), ended.clone());
            let job = move || {
                let _ = held.lock().map(|held| held.recv());
                let _ = ended.send("late");
            };
            pool.add(Urgency::Late, Box::new(job)).unwrap();
        }
        for _ in 0..10 {
            let ended = ended.clone();
            pool.add(Urgency::Prompt, Box::new(move || ended.send("prompt").unwrap())).unwrap();
        }
        for _ in 0..10 {
            assert_eq!(ends.recv_timeout(LIMIT), Ok("prompt"));
        }
        drop(hold);
        for _ in 0..2 * THREADS {
            assert_eq!(ends.recv_timeout(LIMIT), Ok("late"));
        }
    }
}
