//! The shared-memory transport of a handle: finds or makes the process's file and the calling thread's lane.

use std::cell::RefCell;
use std::io;
use std::mem;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use pcp_base::backoff::Backoff;

use super::agent::Agent;
use super::format::{BEGIN, END};
use super::map::{self, Id};
use super::per_process::{Inherited, PerProcess};
use super::ring::Mark;
use super::writer::{Lane, Writer};
use crate::failure::Failure;
use crate::options::State as Flags;
use crate::protocol::Kind;
use crate::status::Shared;
use crate::tag::Tag;

/// The shared-memory transport of a [`Trace`](crate::Trace), with a file for each process.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    id: u32,
    agent: Agent,
    ring_len: usize,
    files: PerProcess<OwnFile>,
}

/// The file of a process, and when to try again to make it.
#[derive(Debug, Default)]
struct OwnFile(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    writer: Option<Arc<Writer>>,
    backoff: Backoff,
}

impl OwnFile {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inherited for OwnFile {
    /// Closes the parent's file, whose lock would otherwise show the parent as alive.
    fn release(&self) {
        // A thread that was writing the file at the fork had another reference, which is never dropped in the child.
        if let Ok(mut state) = self.0.try_lock() {
            state.writer = None;
        }
    }

    fn forget(&mut self) {
        if matches!(self.0.try_lock(), Err(TryLockError::WouldBlock)) {
            mem::forget(mem::take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner)));
        }
    }
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
        if map::id() == Some(self.writer.process) {
            if let Some(lane) = self.lane.take() {
                self.writer.give_back(lane);
            }
        }
    }
}

impl SharedMemory {
    /// Creates the transport, but no file. `None` where the system does not support it: `map::id`.
    pub(crate) fn new(agent: Agent, ring_len: usize) -> Option<SharedMemory> {
        static IDS: AtomicU32 = AtomicU32::new(1);
        let id = IDS.fetch_add(1, Relaxed);
        map::id().map(|_| SharedMemory { id, agent, ring_len, files: PerProcess::new() })
    }

    /// Returns whether an agent reads files, and this process has a file with room for a lane. Makes the file.
    pub(crate) fn is_there(&self, shared: &Shared) -> bool {
        let writer = || self.writer(map::id()?, shared);
        match self.agent.check() {
            Ok(()) => writer().is_some_and(|writer| writer.lane().map(|lane| writer.give_back(lane)).is_ok()),
            Err(e) => {
                shared.say(Flags::COMMS, || format!("no shared memory: {e}"));
                false
            }
        }
    }

    /// Records the beginning of a transaction. Returns its identifier, or 0 if it was not recorded.
    pub(crate) fn begin(&self, shared: &Shared, tag: &Tag, time: u64, parent: u64) -> u64 {
        let marked = self.with_lane(shared, tag, Kind::Transact, |writer, lane, number| {
            let id = lane.next_id();
            let mark = Mark { time, flags: BEGIN, value: 0, id, parent, fields: &[] };
            lane.mark(writer, number, &mark, false).map(|()| id)
        });
        marked.unwrap_or(0)
    }

    /// Writes a trace event, or counts it as missed. A transaction without an identifier gets one.
    #[inline]
    pub(crate) fn mark(&self, shared: &Shared, tag: &Tag, kind: Kind, mark: &Mark<'_>, counts: bool) {
        let marked = self.with_lane(shared, tag, kind, |writer, lane, number| {
            if kind == Kind::Transact && mark.id == 0 {
                let mark = Mark { id: lane.next_id(), flags: BEGIN | END, ..*mark };
                return lane.mark(writer, number, &mark, counts);
            }
            lane.mark(writer, number, mark, counts)
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
            let at = match held.iter().position(|held| held.shared_memory == self.id && held.writer.process == own) {
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

    /// Returns the file of this process. Makes it if an attempt is due.
    fn writer(&self, own: Id, shared: &Shared) -> Option<Arc<Writer>> {
        let mut file = self.files.own(own).lock();
        if let Some(writer) = file.writer.take_if(|writer| !writer.is_closed()) {
            return Some(Arc::clone(file.writer.insert(writer)));
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

    /// Returns the file of this process, if it has made one.
    fn own_writer(&self) -> Option<Arc<Writer>> {
        self.files.find(map::id()?)?.lock().writer.clone()
    }

    #[cold]
    fn miss(&self, shared: &Shared) {
        shared.add_missed(1);
        if let Some(writer) = self.own_writer() {
            writer.missed();
        }
        // The next trace event makes another file if the program has closed this one.
        // The lock of a parent's file may never be released.
        let own = map::id();
        let is_usable = |held: &Held| Some(held.writer.process) != own || !held.writer.is_closed();
        _ = HELD.try_with(|held| held.try_borrow_mut().map(|mut held| held.retain(is_usable)));
    }

    /// Returns the number of trace events in the file, and whether an agent reads it.
    pub(crate) fn status(&self) -> (u64, bool) {
        let Some(writer) = self.own_writer() else { return (0, false) };
        (writer.count(), self.agent.is_running())
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        if let Some(writer) = self.own_writer() {
            writer.end(!self.agent.is_gone());
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};
    use pmapi::Config;

    use super::super::directory::Directory;
    use super::*;
    use crate::options::Options;

    #[test]
    #[allow(unsafe_code, reason = "fork(2)")]
    fn a_child_does_not_wait_for_locks_of_its_parent() {
        let dir = tempfile::tempdir().unwrap();
        let agent = Directory::open(dir.path().join("4323"), dir.path()).unwrap();
        let agent = Agent::new(agent.path().to_owned(), &Config::default());
        let shared = Shared::new(Options::default());
        let shared_memory = SharedMemory::new(agent, 4096).unwrap();
        let tag = Tag::new("tag").unwrap();
        let mark = || shared_memory.mark(&shared, &tag, Kind::Point, &Mark { time: 1, ..Mark::default() }, true);
        mark();
        let own = shared_memory.files.own(map::id().unwrap()).lock();
        // SAFETY: the child only traces, and exits without destructors.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                // SAFETY: the signal ends a child that hangs.
                unsafe { nix::libc::alarm(60) };
                (0..5).for_each(|_| mark());
                let good = (shared_memory.status().0, shared.status().missed) == (5, 0);
                // SAFETY: ends the process.
                unsafe { nix::libc::_exit(i32::from(!good)) }
            }
            ForkResult::Parent { child } => {
                drop(own);
                assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
            }
        }
        assert_eq!(shared_memory.status().0, 1);
    }
}
