//! Sources of operands.

pub(crate) mod agents;
pub(crate) mod pmcd;

use std::collections::HashMap;
use std::fmt;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use pcp_derived::{Definitions, Descs, Evaluator, Metadata, Missing, Operand, Plan};
use pcp_pdu::result::{Changes, RawValue, ValueSet};
use pmapi::{Desc, Domain, InDom, Result};

use crate::metrics::List;

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

/// Memory of a value and its instance, apart from the bytes of a string.
const VALUE: usize = 16;

/// Memory that the values of metrics need, known before they are computed: the largest operand of each instance domain,
/// sorted by domain. A source decides how many values there are, and many definitions may refer to the same operand. So the
/// values of a sample may need much more memory than the source's answer.
#[derive(Debug, Default)]
pub(crate) struct Sizes(Vec<(u32, Size)>);

#[derive(Clone, Copy, Debug, Default)]
struct Size {
    /// Memory apart from the bytes of strings.
    values: usize,
    /// Bytes of strings.
    bytes: usize,
}

impl Sizes {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds an operand and its values in the sample.
    pub(crate) fn add(&mut self, operand: &Operand, set: &ValueSet<'_>) {
        let key = key(operand.desc.indom);
        let at = self.0.binary_search_by_key(&key, |(key, _)| *key).unwrap_or_else(|at| {
            self.0.insert(at, (key, Size::default()));
            at
        });
        let size = &mut self.0[at].1;
        size.values = size.values.max(VALUE * set.len());
        if !operand.desc.ty.is_numeric() {
            size.bytes = size.bytes.max(set.values().map(|(_, value)| length(value)).sum());
        }
    }

    /// Returns the largest size that a metric can have whose operands have been added.
    pub(crate) fn of(&self, desc: &Desc) -> usize {
        let found = self.0.binary_search_by_key(&key(desc.indom), |(key, _)| *key);
        let size = found.ok().and_then(|at| self.0.get(at)).map_or(Size::default(), |(_, size)| *size);
        size.values + if desc.ty.is_numeric() { 0 } else { size.bytes }
    }
}

/// Sorts metrics by size, and returns how many of them fit into `limit` bytes together: the smallest ones.
pub(crate) fn fitting<T: Ord>(sizes: &mut [(usize, T)], limit: usize) -> usize {
    sizes.sort_unstable();
    let mut sum = 0usize;
    let fitting = sizes.iter().take_while(|(size, _)| {
        sum = sum.saturating_add(*size);
        sum <= limit
    });
    fitting.count()
}

fn key(indom: Option<InDom>) -> u32 {
    indom.map_or(u32::MAX, InDom::word)
}

fn length(value: RawValue<'_>) -> usize {
    match value {
        RawValue::InSitu(_) => 0,
        RawValue::Block(_, bytes) => bytes.len(),
    }
}
