//! Hosts of an agent: a process behind a pipe or a socket, or this process.

mod inside;
mod scene;
mod streams;

use std::time::Duration;

use pcp_pdu::{Header, PduType};

use crate::Outcome;
use crate::job::Job;
use crate::spec::Spec;

pub(crate) use scene::{Scene, chown_to_pcp, environment};
pub(crate) use streams::{Streams, command};

/// Kind of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Pipe,
    Inet,
    Ipv6,
    Unix,
    /// The agent's shared object, loaded into this process as pmcd does.
    Object,
    /// The agent's library, in this process.
    Local,
}

impl Kind {
    pub(crate) const ALL: [(&'static str, Kind); 6] = [
        ("pipe", Kind::Pipe),
        ("inet", Kind::Inet),
        ("ipv6", Kind::Ipv6),
        ("unix", Kind::Unix),
        ("dso", Kind::Object),
        ("local", Kind::Local),
    ];

    pub(crate) fn of(name: &str) -> Option<Kind> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }
}

/// pmcd's time limit for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Function that is called with each answer.
pub(crate) type Each<'a> = &'a mut dyn FnMut(Header, &[u8]) -> Outcome;

/// A running agent.
pub(crate) trait Host {
    /// Sends PDUs and waits for this number of answers.
    fn exchange(&mut self, pdus: &[u8], answers: usize, each: Each<'_>) -> Outcome;

    /// Returns the identifier of the process that the agent runs in.
    fn pid(&self) -> u32;

    /// Returns whether the host decodes PDUs before the agent gets them, as pmcd does for shared objects. The agent
    /// then never gets a malformed PDU.
    fn decodes(&self) -> bool {
        false
    }

    /// Sends bytes after which a stream cannot continue. An agent that is a process must then exit normally.
    fn break_off(&mut self, bytes: &[u8]) -> Outcome;
}

/// Returns the type of a successful answer to a PDU; `None` for PDUs that have no answer.
pub(crate) fn answer_to(pdu: PduType) -> Option<PduType> {
    Some(match pdu {
        PduType::RESULT => PduType::ERROR,
        PduType::FETCH => PduType::RESULT,
        PduType::DESC_REQ => PduType::DESC,
        PduType::INSTANCE_REQ => PduType::INSTANCE,
        PduType::TEXT_REQ => PduType::TEXT,
        PduType::PMNS_IDS | PduType::PMNS_CHILD | PduType::PMNS_TRAVERSE => PduType::PMNS_NAMES,
        PduType::PMNS_NAMES => PduType::PMNS_IDS,
        PduType::LABEL_REQ => PduType::LABEL,
        _ => return None,
    })
}

/// Starts an agent.
pub(crate) fn start(spec: &'static Spec, kind: Kind, job: &Job, scene: &Scene) -> Outcome<Box<dyn Host>> {
    Ok(match kind {
        Kind::Object => inside::object(spec, job)?,
        Kind::Local => inside::local(spec)?,
        _ => Box::new(Streams::start(spec, kind, job, scene)?),
    })
}
