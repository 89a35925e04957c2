//! The shared-memory transport of a handle: finds or makes the process's file and the calling thread's lane.

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;

use super::agent::Agent;
use super::format::{BEGIN, END};
use super::map::{self, Id};
use super::reader::Reader;
use super::ring::Mark;
use super::writer::{Lane, Writer};
use crate::failure::Failure;
use crate::link::Backoff;
use crate::options::State;
use crate::protocol::Kind;
use crate::status::Shared;
use crate::tag::Tag;

/// The shared-memory transport of a [`Trace`](crate::Trace), with a file for each process.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    id: u32,
    agent: Agent,
    ring_len: usize,
    /// The process that created this.
    process: Id,
    file: Mutex<OfProcess>,
}

#[derive(Debug, Default)]
struct OfProcess {
    writer: Option<Arc<Writer>>,
    backoff: Backoff,
}

/// A lane that belongs to the current thread.
struct Held {
    shared_memory: u32,
    writer: Arc<Writer>,
    lane: Option<Lane>,
}

thread_local! {
    static HELD: RefCell<Vec<Held>> = const { RefCell::new(Vec::new()) };
}

/// Returns the lane to its file when the thread ends.
impl Drop for Held {
    fn drop(&mut self) {
        // In a forked child the lane is the parent's, and the lock of its file may never be released.
        if map::id() == Some(self.writer.process)
            && let Some(lane) = self.lane.take()
        {
            self.writer.give_back(lane);
        }
    }
}

impl SharedMemory {
    /// Creates the transport, but no file. `None` where the system does not support it: `map::id`.
    pub(crate) fn new(agent: Agent, ring_len: usize) -> Option<SharedMemory> {
        static IDS: AtomicU32 = AtomicU32::new(1);
        let id = IDS.fetch_add(1, Relaxed);
        Some(SharedMemory { id, agent, ring_len, process: map::id()?, file: Mutex::default() })
    }

    /// Whether an agent reads files, and this process has a file with room for a lane. Makes the file.
    pub(crate) fn is_there(&self, shared: &Shared) -> bool {
        let writer = || self.writer(map::id()?, shared);
        let has_room = |writer: Arc<Writer>| writer.lane().map(|lane| writer.give_back(lane)).is_ok();
        match self.agent.check() {
            Ok(()) => writer().is_some_and(has_room),
            Err(e) => {
                shared.say(State::COMMS, || format!("no shared memory: {e}"));
                false
            }
        }
    }

    /// Records the beginning of a transaction. Returns its identifier, or 0 if it was not recorded.
    pub(crate) fn begin(&self, shared: &Shared, tag: &Tag, time: u64, parent: u64) -> u64 {
        let marked = self.with_lane(shared, tag, Kind::Transact, |writer, lane, number| {
            let id = lane.next_id();
            let mark = Mark { time, flags: BEGIN, value: 0, id, parent, fields: &[] };
            lane.mark(writer, number, Kind::Transact, &mark, false).map(|()| id)
        });
        marked.unwrap_or(0)
    }

    /// Writes a trace event, or counts it as missed. A transaction without an identifier gets one.
    #[inline]
    pub(crate) fn mark(&self, shared: &Shared, tag: &Tag, kind: Kind, mark: &Mark<'_>, counts: bool) {
        let marked = self.with_lane(shared, tag, kind, |writer, lane, number| {
            if kind == Kind::Transact && mark.id == 0 {
                let mark = Mark { id: lane.next_id(), flags: BEGIN | END, ..*mark };
                return lane.mark(writer, number, kind, &mark, counts);
            }
            lane.mark(writer, number, kind, mark, counts)
        });
        if marked.is_none() && counts {
            self.miss(shared);
        }
    }

    #[inline]
    fn with_lane<T>(
        &self,
        shared: &Shared,
        tag: &Tag,
        kind: Kind,
        f: impl FnOnce(&Writer, &mut Lane, u32) -> io::Result<T>,
    ) -> Option<T> {
        let own = map::id()?;
        let in_lane = HELD.try_with(|held| {
            let mut held = held.try_borrow_mut().ok()?;
            let mine = |held: &Held| held.shared_memory == self.id && held.writer.process == own;
            let at = match held.iter().position(mine) {
                Some(at) => at,
                None => self.attach(&mut held, own, shared)?,
            };
            let Held { writer, lane, .. } = held.get_mut(at)?;
            let number = tag.number(kind, writer.id, |name| writer.tag(kind, name)).ok()?;
            f(writer, lane.as_mut()?, number).ok()
        });
        in_lane.ok()?
    }

    /// Obtains a lane for this thread. Returns its index in `held`.
    #[cold]
    fn attach(&self, held: &mut Vec<Held>, own: Id, shared: &Shared) -> Option<usize> {
        held.retain(|held| held.writer.process == own && !held.writer.is_ended());
        let writer = self.writer(own, shared)?;
        let lane = writer.lane().map_err(|e| shared.down(e.into())).ok()?;
        held.push(Held { shared_memory: self.id, writer, lane: Some(lane) });
        Some(held.len() - 1)
    }

    /// The file of this process. Makes it if an attempt is due.
    fn writer(&self, own: Id, shared: &Shared) -> Option<Arc<Writer>> {
        let mut file = self.lock(own)?;
        if let Some(writer) = file.writer.as_ref().filter(|writer| writer.process == own) {
            return Some(Arc::clone(writer));
        }
        if !file.backoff.is_due() {
            return None;
        }
        match Writer::create(&self.agent, own, self.ring_len) {
            Ok(writer) => {
                file.backoff.succeeded();
                shared.up();
                Some(Arc::clone(file.writer.insert(Arc::new(writer))))
            }
            Err(e) => {
                file.backoff.failed(&shared.options.reconnect);
                shared.down(Failure::from(e));
                None
            }
        }
    }

    fn lock(&self, own: Id) -> Option<MutexGuard<'_, OfProcess>> {
        if own == self.process {
            return Some(self.file.lock().unwrap_or_else(PoisonError::into_inner));
        }
        // In a forked child the lock may never be released: another thread of the parent held it at the fork.
        for _ in 0..1000 {
            match self.file.try_lock() {
                Ok(file) => return Some(file),
                Err(TryLockError::Poisoned(file)) => return Some(file.into_inner()),
                Err(TryLockError::WouldBlock) => thread::yield_now(),
            }
        }
        None
    }

    #[cold]
    fn miss(&self, shared: &Shared) {
        shared.add_missed(1);
        let file = map::id().and_then(|own| Some((own, self.lock(own)?)));
        if let Some((own, file)) = file
            && let Some(writer) = file.writer.as_ref().filter(|writer| writer.process == own)
        {
            writer.missed();
        }
    }

    /// The number of trace events in the file, and whether an agent reads it.
    pub(crate) fn status(&self) -> (u64, bool) {
        let writer = map::id().and_then(|own| self.lock(own)?.writer.clone().filter(|writer| writer.process == own));
        let Some(writer) = writer else { return (0, false) };
        let mut count = 0;
        let reader = writer.file().map_err(Into::into).and_then(Reader::new);
        let read = reader.and_then(|mut reader| reader.changes(|_, _, change| count += change.count));
        (count, read.is_ok() && self.agent.is_running())
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        let own = map::id();
        let has_agent = self.agent.is_running();
        let file = self.file.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(writer) = file.writer.as_ref().filter(|writer| own == Some(writer.process)) {
            writer.end(has_agent);
        }
    }
}
