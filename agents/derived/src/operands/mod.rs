//! Sources of operands.

pub(crate) mod agents;
pub(crate) mod pmcd;
pub(crate) mod sizes;

use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::time::{Duration, Instant};

use pcp_derived::{Definitions, Descs, Evaluator, Metadata, Missing, Plan};
use pcp_pdu::result::Changes;
use pmapi::{Desc, Domain, InDom, Result};

use crate::metrics::List;
use sizes::Sizes;

/// Source of a group's operands: a pmcd, or agents that are started for it. The group's thread waits for it.
pub(crate) trait Source: Debug + Send + fmt::Display {
    /// Connects, or starts agents, unless that has been done.
    ///
    /// # Errors
    /// The reason why there is no connection.
    fn connect(&mut self) -> Result<Connected>;

    /// Returns whether requests can be sent.
    fn is_connected(&mut self) -> bool;

    /// Returns the longest time that one agent may delay the values of others.
    fn patience(&self) -> Duration {
        Duration::ZERO
    }

    /// Drops the connection.
    fn disconnect(&mut self) {}

    /// Returns the domain whose metrics cannot be operands.
    fn own(&self) -> Option<Domain>;

    /// Looks up the descriptors of operands, apart from those in `known`.
    ///
    /// # Errors
    /// The error of the connection.
    fn names(&mut self, known: Descs, definitions: &Definitions) -> Result<Descs>;

    /// Fetches the operands of a plan by one request, to each agent.
    ///
    /// # Errors
    /// The error of the connection.
    fn take(&mut self, evaluator: &Evaluator, plan: &Plan) -> Result<Taken>;

    /// Returns what has changed, without values.
    ///
    /// # Errors
    /// The error of the connection.
    fn check(&mut self) -> Result<Taken>;

    /// Adds the sizes of the operands of the last sample.
    fn sizes(&self, evaluator: &Evaluator, plan: &Plan, sizes: &mut Sizes);

    /// Returns the values of the last sample.
    ///
    /// # Errors
    /// `PM_ERR_AGAIN` without a connection.
    fn values(&mut self) -> Result<&mut dyn pcp_derived::Source>;

    /// Returns the instances of a domain, with labels if `labels` is true.
    ///
    /// # Errors
    /// The error of the connection, or of the agent with the domain. Errors of labels only leave out the labels.
    fn list(&mut self, indom: InDom, labels: bool) -> Result<List>;

    /// Forgets the names of instances, after which instance identifiers may have new meanings.
    fn forget_instances(&mut self);

    /// Starts agents that are due, and reads their unsolicited messages. Does not wait for them. Returns whether anything
    /// has changed.
    fn tend(&mut self) -> bool {
        false
    }

    /// Returns when [`Source::tend`] has to be called next, if it was called at `tended`.
    fn due(&self, tended: Instant) -> Option<Instant> {
        let _ = tended;
        None
    }

    /// Returns the problems of the source: pairs of a subject and a message.
    fn problems(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Returns the version of the list of problems, which grows with each change.
    fn problems_version(&self) -> u64 {
        0
    }
}

/// Whether a connection is the same one as before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Connected {
    Still,
    Anew,
}

/// Outcome of a fetch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// Time of the values.
    pub(crate) at: Instant,
    pub(crate) changes: Changes,
    /// Whether all agents have answered.
    pub(crate) is_complete: bool,
}

/// Names and descriptors of the operands, which definitions are bound to. While an agent is away, its metrics keep their last
/// descriptors.
pub(crate) struct Operands<'a> {
    pub(crate) names: &'a mut Descs,
    /// Last descriptor of each operand, by name.
    pub(crate) known: &'a mut HashMap<String, Desc>,
    pub(crate) own: Option<Domain>,
}

impl Metadata for Operands<'_> {
    fn lookup(&mut self, name: &str) -> std::result::Result<Desc, Missing> {
        let desc = match self.names.lookup(name) {
            Err(Missing::Desc) => self.known.get(name).copied().ok_or(Missing::Desc),
            found => found,
        }?;
        if Some(desc.pmid.domain()) == self.own {
            return Err(Missing::Name);
        }
        self.known.insert(name.to_owned(), desc);
        Ok(desc)
    }
}
