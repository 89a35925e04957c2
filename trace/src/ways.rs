//! The transports of each process that uses a handle: a forked child has its own.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use pmapi::config::Config;

use crate::link::Link;
use crate::options::Transport;
use crate::queue::Queue;
use crate::shared_memory::{self, Agent, Id, SharedMemory};
use crate::status::Shared;

/// Largest number of processes, each a child of the one before, that can trace with the same handle.
const DEPTH: usize = 8;
/// How long dropping the last handle waits for the queue to be sent.
const LINGER: Duration = Duration::from_millis(500);

/// The transports of a process and its ancestors, the oldest process first.
///
/// A lock that another thread holds during a fork is never released in the child, and the parent still uses its
/// connection. So the child uses neither, and claims the next entry for itself.
#[derive(Debug)]
pub(crate) struct Ways([Way; DEPTH]);

/// The transports of one process.
#[derive(Debug, Default)]
pub(crate) struct Way {
    /// The process, or 0 while the entry is free.
    id: AtomicU64,
    /// Initialized by the first trace event. `None` where TCP is the only transport.
    shared_memory: OnceLock<Option<SharedMemory>>,
    /// The shared-memory transport is in use. It is never left again.
    is_in_use: AtomicBool,
    link: Mutex<Link>,
    queue: OnceLock<Arc<Queue>>,
}

/// This process.
#[inline]
fn id() -> Id {
    shared_memory::id().unwrap_or_default()
}

impl Ways {
    pub(crate) fn new() -> Ways {
        Ways(Default::default())
    }

    /// The shared-memory transport, if the oldest process uses it. Forked children use the same [`SharedMemory`], which
    /// makes a file for each process.
    #[inline]
    pub(crate) fn shared_memory(&self) -> Option<&SharedMemory> {
        self.0[0].found()
    }

    /// The identifier and the transports of this process. `None` when [`DEPTH`] ancestors have traced.
    #[inline]
    pub(crate) fn own(&self) -> Option<(u32, &Way)> {
        let id = id();
        let first = &self.0[0];
        if first.id.load(Relaxed) == id.word() {
            return Some((id.pid(), first));
        }
        self.claim(id).map(|way| (id.pid(), way))
    }

    /// The transports of this process, if it has traced.
    pub(crate) fn used(&self) -> Option<&Way> {
        let id = id().word();
        self.0.iter().find(|way| way.id.load(Relaxed) == id)
    }

    #[cold]
    fn claim(&self, id: Id) -> Option<&Way> {
        for (at, way) in self.0.iter().enumerate() {
            match way.id.compare_exchange(0, id.word(), Relaxed, Relaxed) {
                Err(other) if other != id.word() => continue,
                Err(_) => {}
                // The agent would count the parent's connection as open as long as the child keeps it.
                Ok(_) => self.0[..at].iter().for_each(Way::abandon),
            }
            return Some(way);
        }
        None
    }
}

impl Way {
    /// The shared-memory transport, if it is in use. The first call selects the transport.
    pub(crate) fn shared_memory(&self, shared: &Shared) -> Option<&SharedMemory> {
        self.shared_memory.get_or_init(|| self.choose(shared));
        self.found()
    }

    fn choose(&self, shared: &Shared) -> Option<SharedMemory> {
        let options = &shared.options;
        if options.transport == Transport::Tcp || options.transport == Transport::Auto && !options.is_local() {
            return None;
        }
        let config = Config::load();
        let directory = options.directory.clone().unwrap_or_else(|| shared_memory::path(&config, options.port));
        let shared_memory = SharedMemory::new(Agent::new(directory, &config), options.ring_len)?;
        let is_in_use = options.transport == Transport::SharedMemory || shared_memory.is_there(shared);
        self.is_in_use.store(is_in_use, Relaxed);
        Some(shared_memory)
    }

    #[inline]
    pub(crate) fn found(&self) -> Option<&SharedMemory> {
        if self.is_in_use.load(Relaxed) { self.shared_memory.get()?.as_ref() } else { None }
    }

    /// Checks whether the shared-memory transport has become available, and returns it from then on.
    pub(crate) fn look(&self, shared: &Shared) -> Option<&SharedMemory> {
        let shared_memory = self.shared_memory.get()?.as_ref()?;
        self.is_in_use.fetch_or(shared_memory.is_there(shared), Relaxed);
        self.found()
    }

    pub(crate) fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue. The first call starts the thread that sends its PDUs.
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
        // Nothing is ever sent in this case: the queue fills up, and later trace events are missed.
        shared.down(e.into());
    }
    queue
}

impl Drop for Ways {
    fn drop(&mut self) {
        // Only this process's queue has a thread: a forked child has no other threads of its parent.
        if let Some(queue) = self.used().and_then(|way| way.queue.get()) {
            queue.flush(LINGER);
            queue.close();
        }
        let id = id().word();
        for way in self.0.iter_mut().filter(|way| way.id.load(Relaxed) != id) {
            // The rest is forgotten, because dropping it may need a lock that another thread held at the fork.
            let link = way.link.get_mut().unwrap_or_else(PoisonError::into_inner);
            link.abandon();
            std::mem::forget(std::mem::take(link));
        }
    }
}
