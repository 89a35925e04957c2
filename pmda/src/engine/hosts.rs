//! What hosts need of an engine besides answers: what happens around requests and between them.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pcp_pdu::instance::InstanceReq;
use pcp_pdu::label::LabelReq;
use pcp_pdu::metadata::DescReq;
use pcp_pdu::{Pdu, PduType};
use pmapi::{Error, InDom, Result};
use tracing::{debug, error};

use super::Engine;
use crate::access::Access;
use crate::agent::{Agent, Request};
use crate::client::Client;
use crate::log::panic_message;
use crate::poll::Wake;

/// Whether pmcd asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Readiness {
    /// It does, and cannot be told anything between requests.
    #[default]
    Silent,
    /// It does.
    Ready,
    /// Not before it is told that the agent is ready.
    NotReady,
}

impl<A: Agent> Engine<A> {
    /// The agent.
    pub fn agent(&self) -> &A {
        &self.agent
    }

    /// Who may store what is for administrators.
    pub(crate) fn access_mut(&mut self) -> &mut Access {
        &mut self.access
    }

    /// The host can tell pmcd between requests that the agent is ready. `not_ready`: pmcd waits for
    /// that from the start (`notready` in pmcd.conf).
    pub(crate) fn can_tell(&mut self, not_ready: bool) {
        self.readiness = if not_ready { Readiness::NotReady } else { Readiness::Ready };
    }

    /// Whether pmcd waits until it is told that the agent is ready.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.readiness == Readiness::NotReady
    }

    /// Whether pmcd has to be told now that the agent is ready.
    pub(crate) fn becomes_ready(&mut self) -> bool {
        let ready =
            self.readiness == Readiness::NotReady && self.guard(|engine| engine.agent.is_ready()).unwrap_or(false);
        if ready {
            self.readiness = Readiness::Ready;
            // pmcd has not told which clients went and came meanwhile: a number that is known may be
            // another client's.
            self.known.clear();
            self.schema.ends.forget(None);
        }
        ready
    }

    /// Wakes the agent for one of its sources.
    pub(crate) fn wake(&mut self, wake: Wake) {
        let _ = self.guard(|engine| engine.agent.wake(wake));
    }

    /// The host has sent the reply that [`Engine::handle`] gave.
    pub fn sent(&mut self) {
        // What one large answer has needed others do not need.
        self.result.give_back(KEPT);
        if self.out.capacity() > KEPT && self.out.len() < self.out.capacity() / 16 {
            self.out.shrink_to(KEPT);
        }
        if let Some((request, client)) = self.answered.take() {
            let _ = self.guard(|engine| engine.agent.done(request, client));
        }
    }

    /// Runs a part of the agent. A panic is `PM_ERR_GENERIC`, whose text says that it has been reported.
    ///
    /// What the engine holds is rebuilt by the next request. What the agent holds is its own.
    pub(super) fn guard<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> Result<T> {
        catch_unwind(AssertUnwindSafe(|| run(self))).map_err(|panic| reported(&*panic))
    }

    /// What comes before every answer.
    pub(super) fn before(&mut self, pdu: &Pdu<'_>, client: Client) -> Result {
        let Some(request) = request(pdu) else { return Ok(()) };
        self.answered = Some((request, client));
        match request {
            _ if self.agent.is_ready() => Ok(()),
            // pmcd takes note of the other error in no answer about names, and would take the agent's
            // becoming ready for the answer to its next request.
            Request::Names => Err(Error::AGAIN),
            _ => Err(Error::PMDANOTREADY),
        }
    }

    /// An error of the agent as pmcd may see it in answer to a request.
    ///
    /// pmcd takes some for failures of the connection and drops the agent, whoever has failed.
    pub(super) fn presentable(&mut self, e: Error) -> Error {
        match (e, self.readiness) {
            (Error::PMDANOTREADY, Readiness::Ready) => {
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

fn reported(panic: &(dyn Any + Send)) -> Error {
    error!("the agent panicked: {}", panic_message(panic));
    Error::GENERIC
}

/// What a PDU asks, if it does.
fn request(pdu: &Pdu<'_>) -> Option<Request> {
    Some(match pdu {
        Pdu::Fetch(_) => Request::Fetch,
        Pdu::DescReq(DescReq { pmid }) => Request::Desc(pmid.as_ref()?.item()),
        Pdu::InstanceReq(InstanceReq { indom, .. }) => Request::Instance(indom.as_ref()?.serial()),
        Pdu::TextReq(_) => Request::Text,
        Pdu::LabelReq(LabelReq { ident, bits }) => match InDom::from_word(*ident) {
            Some(indom) if bits & INSTANCES != 0 => Request::InstanceLabels(indom.serial()),
            Some(indom) if bits & INDOM != 0 => Request::InDomLabels(indom.serial()),
            _ => Request::Labels,
        },
        Pdu::Result(_) => Request::Store,
        Pdu::Names(_) | Pdu::Child(_) | Pdu::Traverse(_) | Pdu::Ids(_) => Request::Names,
        _ => return None,
    })
}

/// Memory for answers that stays, in bytes.
const KEPT: usize = 4 << 20;

/// The bits of a label request for the labels of instances, and of an instance domain.
const INSTANCES: i32 = 32;
const INDOM: i32 = 4;

/// Whether a PDU of this type has to be answered.
pub(super) fn is_request(pdu: PduType) -> bool {
    const REQUESTS: [PduType; 10] = [
        PduType::RESULT,
        PduType::FETCH,
        PduType::DESC_REQ,
        PduType::INSTANCE_REQ,
        PduType::TEXT_REQ,
        PduType::PMNS_IDS,
        PduType::PMNS_NAMES,
        PduType::PMNS_CHILD,
        PduType::PMNS_TRAVERSE,
        PduType::LABEL_REQ,
    ];
    REQUESTS.contains(&pdu)
}
