//! Where an agent runs: behind a pipe or a socket, or in this process.

mod inside;
mod scene;
mod streams;

use std::time::Duration;

use pcp_pdu::Header;

use crate::Outcome;
use crate::job::Job;
use crate::spec::Spec;

pub(crate) use scene::{Scene, chown_to_pcp, environment};
pub(crate) use streams::{Streams, command};

/// What an agent runs in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Pipe,
    Inet,
    Ipv6,
    Unix,
    /// The shared object, loaded as pmcd does.
    Object,
    /// The library, in this process.
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

/// Called with each answer.
pub(crate) type Each<'a> = &'a mut dyn FnMut(Header, &[u8]) -> Outcome;

/// An agent that answers.
pub(crate) trait Host {
    /// Sends PDUs and waits for so many answers.
    fn exchange(&mut self, pdus: &[u8], answers: usize, each: Each<'_>) -> Outcome;

    /// The process that the agent runs in.
    fn pid(&self) -> u32;

    /// Whether the host decodes PDUs itself, as pmcd does for shared objects, so that none that does not decode gets
    /// to the agent.
    fn decodes(&self) -> bool {
        false
    }

    /// Sends what ends a conversation. The agent has to end by itself then, and in order.
    fn break_off(&mut self, bytes: &[u8]) -> Outcome;
}

/// Starts an agent.
pub(crate) fn start(spec: &'static Spec, kind: Kind, job: &Job, scene: &Scene) -> Outcome<Box<dyn Host>> {
    Ok(match kind {
        Kind::Object => inside::object(spec, job)?,
        Kind::Local => inside::local(spec)?,
        _ => Box::new(Streams::start(spec, kind, job, scene)?),
    })
}
