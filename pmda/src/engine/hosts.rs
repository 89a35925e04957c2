//! The functions that hosts need besides answers: readiness, panics, and the work after a reply.

use pcp_pdu::Pdu;
use pmapi::{Error, Result};
use tracing::{debug, error};

use super::Engine;
use crate::access::Access;
use crate::agent::Agent;
use crate::client::Client;
use crate::log::{Panic, catch};
use crate::poll::Wake;
use crate::request::Request;

/// Whether pmcd sends requests as soon as it has started an agent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Startup {
    /// pmcd sends requests at once.
    #[default]
    Ready,
    /// pmcd waits for the notification that the agent is ready (`notready` in `pmcd.conf`).
    NotReady,
}

/// Whether pmcd sends requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Readiness {
    /// pmcd sends requests, and the host cannot notify it between them.
    #[default]
    Silent,
    /// pmcd sends requests.
    Ready,
    /// pmcd waits until it is notified that the agent is ready.
    NotReady,
}

impl<A: Agent> Engine<A> {
    /// Returns the agent.
    pub fn agent(&self) -> &A {
        &self.agent
    }

    /// Lets clients without a known user store to restricted metrics, for a host whose only client is the program
    /// itself.
    pub fn trust_collector(&mut self) {
        self.access.trust_collector();
    }

    /// Returns the access control of restricted metrics, mutably.
    pub(crate) fn access_mut(&mut self) -> &mut Access {
        &mut self.access
    }

    /// Declares that the host can notify pmcd between requests that the agent is ready. At
    /// [`Startup::NotReady`], pmcd waits for that from the start.
    pub(crate) fn can_tell(&mut self, startup: Startup) {
        self.readiness = match startup {
            Startup::Ready => Readiness::Ready,
            Startup::NotReady => Readiness::NotReady,
        };
    }

    /// Returns whether pmcd waits for the notification that the agent is ready.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.readiness == Readiness::NotReady
    }

    /// Returns whether pmcd has to be notified now that the agent is ready.
    pub(crate) fn becomes_ready(&mut self) -> bool {
        let ready =
            self.readiness == Readiness::NotReady && self.guard(|engine| engine.agent.is_ready()).unwrap_or(false);
        if ready {
            self.readiness = Readiness::Ready;
            // pmcd has not reported which clients have connected or disconnected. A known number may belong to another
            // client now.
            self.known.clear();
            self.schema.ends.forget(None);
        }
        ready
    }

    /// Wakes the agent for one of its sources.
    pub(crate) fn wake(&mut self, wake: Wake) {
        let _ = self.guard(|engine| engine.agent.wake(wake));
    }

    /// Records that the host has sent the reply of [`Engine::begin`], and calls [`Agent::done`].
    pub(crate) fn sent(&mut self) {
        // Most answers do not need the memory of the largest one.
        self.result.give_back(KEPT);
        if self.out.capacity() > KEPT && self.out.len() < self.out.capacity() / 16 {
            self.out.shrink_to(KEPT);
        }
        if let Some((_, client)) = self.answered.take() {
            let _ = self.guard(|engine| engine.agent.done(client));
        }
    }

    /// Runs code of the agent. A panic is logged and becomes `PM_ERR_GENERIC`.
    ///
    /// This is unwind-safe for the engine, which rebuilds its state at the next request. The agent is responsible for
    /// its own state.
    pub(super) fn guard<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> Result<T> {
        catch(|| run(self)).map_err(|panic| reported(&panic))
    }

    /// Prepares the agent for the request of a PDU, if it makes one. The agent must be ready.
    pub(super) fn before(&mut self, pdu: &Pdu<'_>, client: Client) -> Result {
        let request = Request::of(pdu, self.schema.domain());
        self.answered = request.map(|request| (matches!(request, Request::Names(_)), client));
        match request {
            None => Ok(()),
            Some(request) if self.agent.is_ready() => self.agent.refresh(request, client),
            Some(_) => Err(Error::PMDANOTREADY),
        }
    }

    /// Converts an error of the agent to one that pmcd accepts in an answer.
    ///
    /// pmcd takes some errors for failures of the connection, and would drop the agent.
    pub(super) fn presentable(&mut self, e: Error) -> Error {
        // pmcd ignores `PM_ERR_PMDANOTREADY` in answers about names. It would then mistake the later notification that
        // the agent is ready for the answer to its next request.
        let is_of_names = matches!(self.answered, Some((true, _)));
        match (e, self.readiness) {
            (Error::PMDANOTREADY, Readiness::Ready) if !is_of_names => {
                debug!(target: "libpmda", "not ready");
                self.readiness = Readiness::NotReady;
                e
            }
            (Error::PMDANOTREADY | Error::PMDAREADY | Error::TIMEOUT | Error::IPC, _) => Error::AGAIN,
            (e, _) if e == Error::from_errno(nix::errno::Errno::EPIPE as i32) => Error::AGAIN,
            (e, _) => e,
        }
    }
}

fn reported(panic: &Panic) -> Error {
    error!(source = "panics", "the agent panicked{panic}");
    Error::GENERIC
}

/// Memory for answers that is kept between requests, in bytes.
const KEPT: usize = 4 << 20;
