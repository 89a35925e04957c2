//! Check of an agent against the rules of the protocol and of PCP.

mod asker;
pub mod cli;
mod events;
mod instances;
mod labels;
mod metrics;
mod rule;
mod stores;
#[cfg(test)]
mod tests;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pcp_collector::{Channel, Collector};
use pmapi::{Desc, InDom, PmId};

use asker::Asker;
use instances::Instances;
pub use rule::{Finding, Rule};

/// Limits of a check.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time that an answer may take without breaking [`Rule::Slow`].
    pub answer: Duration,
    /// Time to wait for an answer before the check gives up.
    pub timeout: Duration,
    /// Whether to store values that the agent must refuse. If it accepts them, the check changes the agent.
    pub stores: bool,
}

impl Default for Limits {
    /// One second for an answer, and the timeout of pmcd (5 seconds); stores nothing.
    fn default() -> Self {
        Limits { answer: Duration::from_secs(1), timeout: Duration::from_secs(5), stores: false }
    }
}

/// Sends an agent all requests about the metrics of a name space.
///
/// Returns the broken rules in the order in which they were found, once for each metric, instance domain or request.
pub fn check<C: Channel>(agent: Collector<C>, names: &[(String, PmId)], limits: Limits) -> Vec<Finding> {
    let mut check = Check {
        asker: Asker::new(agent, limits.answer, limits.timeout),
        named: BTreeSet::new(),
        metrics: Vec::new(),
        indoms: BTreeMap::new(),
    };
    check.find_metrics(names);
    check.find_unnamed();
    check.check_instances();
    check.check_help();
    check.check_values();
    check.check_profile();
    check.check_labels();
    if limits.stores {
        check.check_stores();
    }
    check.asker.findings()
}

struct Check<C> {
    asker: Asker<C>,
    /// PMIDs that have a name.
    named: BTreeSet<PmId>,
    metrics: Vec<Metric>,
    /// Instances of each domain, with their names.
    indoms: BTreeMap<InDom, Instances>,
}

/// Metric with a descriptor.
#[derive(Clone, Debug)]
struct Metric {
    name: String,
    desc: Desc,
}
