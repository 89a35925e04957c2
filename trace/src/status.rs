//! What has become of what was traced.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread;

use thiserror::Error;

use crate::link::Failure;
use crate::options::{Options, State};

/// What has become of what was traced so far.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// There is a connection to the agent, or it takes this process's file.
    pub connected: bool,
    /// How much has been sent, and acknowledged if the protocol is synchronous, or is counted in the file.
    pub sent: u64,
    /// How much has not: there was no agent, or no room: for what waits to be sent, or in the file.
    pub missed: u64,
    /// Why the last connection could not be made, or broke.
    pub failure: Option<Failure>,
}

/// The protocol is chosen before the first use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the asynchronous protocol has to be chosen before anything is traced")]
pub struct TooLate;

/// What all parts of a [`Trace`](crate::Trace) look at.
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
            state: options.state.0.into(),
            asynchronous: options.state.has(State::ASYNC).into(),
            options,
            used: false.into(),
            connected: false.into(),
            sent: 0.into(),
            missed: 0.into(),
            failure: Mutex::default(),
        }
    }

    pub(crate) fn set_state(&self, state: State) -> Result<State, TooLate> {
        if state.has(State::ASYNC) && !self.asynchronous.load(Relaxed) {
            if self.used.load(Relaxed) {
                return Err(TooLate);
            }
            self.asynchronous.store(true, Relaxed);
        }
        Ok(State(self.state.swap(state.0, Relaxed)))
    }

    pub(crate) fn state(&self) -> State {
        State(self.state.load(Relaxed))
    }

    /// Whether the protocol is asynchronous; from now on it stays as it is.
    pub(crate) fn choose(&self) -> bool {
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
        self.asynchronous.load(Relaxed)
    }

    /// Diagnostics on standard error, if the flag is set.
    pub(crate) fn say(&self, flag: State, text: impl FnOnce() -> String) {
        if self.state().has(flag) {
            eprintln!("pcp-trace: {}", text());
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

    /// Nothing when a thread of the parent had it at a fork, and has it for ever.
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
