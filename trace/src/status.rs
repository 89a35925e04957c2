//! The status of a handle: trace events sent and missed, the connection, and the state flags.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread;

use pcp_base::escape::Escaped;
use thiserror::Error;

use crate::failure::Failure;
use crate::options::{Options, State};

/// Numbers of trace events sent and missed so far, and the state of the connection.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Status {
    /// Whether the process is connected to the agent, or the agent reads the process's file.
    pub connected: bool,
    /// Trace events that were acknowledged (synchronous TCP), sent (asynchronous TCP), or written (shared memory).
    pub sent: u64,
    /// Trace events that were lost: no agent was running, or the queue or the file was full.
    pub missed: u64,
    /// Reason why the last attempt to connect failed, or the last connection broke. Kept after a later success.
    pub failure: Option<Failure>,
}

/// Error of [`Trace::set_state`](crate::Trace::set_state): [`State::ASYNC`] would have no effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum StateError {
    /// The synchronous protocol is in use.
    #[error("the asynchronous protocol must be selected before the first trace event")]
    TooLate,
    /// Shared memory is in use, which never waits for the agent.
    #[error("the asynchronous protocol needs TCP, but shared memory is in use")]
    SharedMemory,
}

/// State that all parts of a [`Trace`](crate::Trace) share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    state: AtomicU32,
    asynchronous: AtomicBool,
    used: AtomicBool,
    connected: AtomicBool,
    sent: AtomicU64,
    missed: AtomicU64,
    failure: Mutex<Option<Failure>>,
}

impl Shared {
    pub(crate) fn new(options: Options) -> Shared {
        Shared {
            state: options.state.bits().into(),
            asynchronous: options.state.contains(State::ASYNC).into(),
            options,
            used: false.into(),
            connected: false.into(),
            sent: 0.into(),
            missed: 0.into(),
            failure: Mutex::default(),
        }
    }

    pub(crate) fn set_state(&self, state: State) -> Result<State, StateError> {
        if state.contains(State::ASYNC) && !self.is_asynchronous() {
            if self.used.load(Relaxed) {
                return Err(StateError::TooLate);
            }
            self.asynchronous.store(true, Relaxed);
        }
        Ok(State::from_bits_retain(self.state.swap(state.bits(), Relaxed)))
    }

    /// Returns whether TCP is asynchronous, or will be.
    pub(crate) fn is_asynchronous(&self) -> bool {
        self.asynchronous.load(Relaxed)
    }

    pub(crate) fn state(&self) -> State {
        State::from_bits_retain(self.state.load(Relaxed))
    }

    /// Fixes the TCP protocol at its first use. Returns whether it is asynchronous.
    pub(crate) fn choose(&self) -> bool {
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
        self.is_asynchronous()
    }

    /// Writes a diagnostic line to standard error if the flag is set.
    pub(crate) fn say(&self, flag: State, text: impl FnOnce() -> String) {
        if self.state().contains(flag) {
            pcp_base::stderr::tell(&format!("pcp-trace: {}", Escaped(text())));
        }
    }

    pub(crate) fn add_sent(&self, count: u64) {
        self.sent.fetch_add(count, Relaxed);
    }

    pub(crate) fn add_missed(&self, count: u64) {
        self.missed.fetch_add(count, Relaxed);
    }

    pub(crate) fn up(&self) {
        self.say(State::COMMS, || format!("connected to {}, port {}", self.options.host, self.options.port));
        self.connected.store(true, Relaxed);
    }

    pub(crate) fn down(&self, failure: Failure) {
        self.say(State::COMMS, || format!("{}, port {}: {failure}", self.options.host, self.options.port));
        self.connected.store(false, Relaxed);
        if let Some(mut last) = self.last_failure() {
            *last = Some(failure);
        }
    }

    pub(crate) fn status(&self) -> Status {
        Status {
            connected: self.connected.load(Relaxed),
            sent: self.sent.load(Relaxed),
            missed: self.missed.load(Relaxed),
            failure: self.last_failure().and_then(|last| last.clone()),
        }
    }

    /// Locks the last failure. Returns `None` in a child whose parent held the lock at the fork, because it is never
    /// released in the child.
    fn last_failure(&self) -> Option<MutexGuard<'_, Option<Failure>>> {
        for _ in 0..1000 {
            match self.failure.try_lock() {
                Ok(last) => return Some(last),
                Err(TryLockError::Poisoned(last)) => return Some(last.into_inner()),
                Err(TryLockError::WouldBlock) => thread::yield_now(),
            }
        }
        None
    }
}
