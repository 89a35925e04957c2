//! The transports of each process that uses a handle: a forked child has its own.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use pmapi::Config;

use crate::link::Link;
use crate::options::Transport;
use crate::queue::Queue;
use crate::shared_memory::{self, Agent, Inherited, PerProcess, SharedMemory, this_process};
use crate::status::Shared;

/// How long dropping the last handle waits for the queue to be sent.
const LINGER: Duration = Duration::from_millis(500);

/// The transports of a process and its ancestors. A child must not use its parent's connection.
#[derive(Debug)]
pub(crate) struct Ways(PerProcess<Way>);

/// The transports of one process.
#[derive(Debug, Default)]
pub(crate) struct Way {
    /// Initialized by the first trace event. `None` where TCP is the only transport.
    shared_memory: OnceLock<Option<SharedMemory>>,
    /// Whether the shared-memory transport is in use. A process never switches back.
    is_in_use: AtomicBool,
    link: Mutex<Link>,
    queue: OnceLock<Arc<Queue>>,
}

impl Ways {
    pub(crate) fn new() -> Ways {
        Ways(PerProcess::new())
    }

    /// Returns the shared-memory transport, if the process that traced first uses it. Its forked children share the
    /// [`SharedMemory`], which makes a file for each process.
    #[inline]
    pub(crate) fn shared_memory(&self) -> Option<&SharedMemory> {
        self.0.first().found()
    }

    /// Returns the identifier and the transports of this process.
    #[inline]
    pub(crate) fn own(&self) -> (u32, &Way) {
        let id = this_process();
        (id.pid(), self.0.own(id))
    }

    /// Returns the transports of this process, if it has traced.
    pub(crate) fn used(&self) -> Option<&Way> {
        self.0.find(this_process())
    }
}

impl Way {
    /// Returns the shared-memory transport, if it is in use. The first call selects the transport.
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

    /// Returns the queue, after starting the thread that sends its PDUs unless it runs.
    #[inline]
    pub(crate) fn queue(&self, shared: &Arc<Shared>) -> &Queue {
        let queue = self.queue.get_or_init(Arc::default);
        queue.ensure_sender(shared);
        queue
    }

    pub(crate) fn flush(&self, timeout: Duration) -> bool {
        self.queue.get().is_none_or(|queue| queue.flush(timeout))
    }
}

impl Inherited for Way {
    /// Closes the parent's connection. The agent would otherwise count it as open as long as the child keeps it.
    fn release(&self) {
        if let Ok(mut link) = self.link.try_lock() {
            link.abandon();
        }
    }

    fn forget(&mut self) {
        let link = self.link.get_mut().unwrap_or_else(PoisonError::into_inner);
        link.abandon();
        std::mem::forget(std::mem::take(link));
    }
}

impl Drop for Ways {
    fn drop(&mut self) {
        // Only this process's queue has a thread: a forked child has no other threads of its parent.
        if let Some(queue) = self.used().and_then(|way| way.queue.get()) {
            queue.flush(LINGER);
            queue.close();
        }
    }
}
