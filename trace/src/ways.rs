//! The ways to the agent that a process has: after a fork the child has none of its parent's.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use pmapi::config::Config;

use crate::light::{self, Light};
use crate::link::Link;
use crate::options::Transport;
use crate::queue::Queue;
use crate::status::Shared;

/// Processes, one the child of the other, that have traced something with the same handle.
const DEPTH: usize = 8;
/// How long the last handle waits until what has been put aside is sent.
const LINGER: Duration = Duration::from_millis(500);

/// The ways of each process. A lock that another thread holds while its process forks is never given back in the child,
/// and a connection would be the parent's as well: the child leaves both alone, and takes the next of these for itself.
#[derive(Debug)]
pub(crate) struct Ways([Way; DEPTH]);

/// The ways of one process.
#[derive(Debug, Default)]
pub(crate) struct Way {
    /// The process, or 0 before the first mark.
    pid: AtomicU32,
    /// Made when something is marked for the first time; nothing where TCP is the only way.
    light: OnceLock<Option<Light>>,
    /// The light one is the way, and stays that.
    is_light: AtomicBool,
    link: Mutex<Link>,
    queue: OnceLock<Arc<Queue>>,
}

/// This process's number.
#[inline]
fn pid() -> u32 {
    light::pid().unwrap_or_else(std::process::id)
}

impl Ways {
    pub(crate) fn new() -> Ways {
        Ways(Default::default())
    }

    /// The light transport, if it is the way already. Children go on with their parent's: it has a file for each process.
    #[inline]
    pub(crate) fn light(&self) -> Option<&Light> {
        self.0[0].found()
    }

    /// The ways of this process, with its number; none when it has too many ancestors that have traced.
    #[inline]
    pub(crate) fn own(&self) -> Option<(u32, &Way)> {
        let pid = pid();
        let first = &self.0[0];
        if first.pid.load(Relaxed) == pid {
            return Some((pid, first));
        }
        self.claim(pid).map(|way| (pid, way))
    }

    /// The ways of this process, if it has traced something.
    pub(crate) fn used(&self) -> Option<&Way> {
        let pid = pid();
        self.0.iter().find(|way| way.pid.load(Relaxed) == pid)
    }

    #[cold]
    fn claim(&self, pid: u32) -> Option<&Way> {
        for (at, way) in self.0.iter().enumerate() {
            match way.pid.compare_exchange(0, pid, Relaxed, Relaxed) {
                Err(other) if other != pid => continue,
                Err(_) => {}
                // The parent's connection is not kept open.
                Ok(_) => self.0[..at].iter().for_each(Way::abandon),
            }
            return Some(way);
        }
        None
    }
}

impl Way {
    /// Finds out which way to take, when something is marked for the first time.
    pub(crate) fn light(&self, shared: &Shared) -> Option<&Light> {
        self.light.get_or_init(|| self.choose(shared));
        self.found()
    }

    fn choose(&self, shared: &Shared) -> Option<Light> {
        let options = &shared.options;
        if options.transport == Transport::Tcp || options.transport == Transport::Auto && !options.is_local() {
            return None;
        }
        let directory = options.directory.clone().unwrap_or_else(|| light::path(&Config::load(), options.port));
        let light = Light::new(directory, options.ring_len)?;
        let is_light = options.transport == Transport::Light || light.is_there(shared);
        self.is_light.store(is_light, Relaxed);
        Some(light)
    }

    #[inline]
    pub(crate) fn found(&self) -> Option<&Light> {
        if self.is_light.load(Relaxed) { self.light.get()?.as_ref() } else { None }
    }

    /// Looks whether the light one is the way by now.
    pub(crate) fn look(&self, shared: &Shared) -> Option<&Light> {
        let light = self.light.get()?.as_ref()?;
        self.is_light.fetch_or(light.is_there(shared), Relaxed);
        self.found()
    }

    pub(crate) fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue, with the thread that empties it.
    #[inline]
    pub(crate) fn queue(&self, shared: &Arc<Shared>) -> &Queue {
        self.queue.get_or_init(|| start(shared))
    }

    pub(crate) fn flush(&self, timeout: Duration) -> bool {
        self.queue.get().is_none_or(|queue| queue.flush(timeout))
    }

    /// Closes the parent's connection in this process.
    fn abandon(&self) {
        if let Ok(mut link) = self.link.try_lock() {
            link.abandon();
        }
    }
}

fn start(shared: &Arc<Shared>) -> Arc<Queue> {
    let queue = Arc::new(Queue::default());
    let sender = (queue.clone(), shared.clone());
    let thread = thread::Builder::new().name("pcp-trace".into());
    if let Err(e) = thread.spawn(move || sender.0.send_all(&sender.1)) {
        // Nothing is ever sent then: the queue fills, and the rest is missed.
        shared.down(e.into());
    }
    queue
}

impl Drop for Ways {
    fn drop(&mut self) {
        // A child has no thread of its parent's.
        if let Some(queue) = self.used().and_then(|way| way.queue.get()) {
            queue.flush(LINGER);
            queue.close();
        }
        let pid = pid();
        for way in self.0.iter_mut().filter(|way| way.pid.load(Relaxed) != pid) {
            // Its thread may have had a lock at the fork that is needed to drop it.
            let link = way.link.get_mut().unwrap_or_else(PoisonError::into_inner);
            link.abandon();
            std::mem::forget(std::mem::take(link));
        }
    }
}
