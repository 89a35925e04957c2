//! Whether an agent keeps the rules of the protocol and of PCP.

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

use pmapi::{Desc, InDom, PmId};
use pmda::collector::{Channel, Collector};

use asker::Asker;
use instances::Instances;
pub use rule::{Finding, Rule};

/// How an agent is checked.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long an answer may take.
    pub answer: Duration,
    /// How long to wait for one before giving up.
    pub timeout: Duration,
    /// Whether to store what the agent has to refuse. One that takes it is not what it was before.
    pub stores: bool,
}

impl Default for Limits {
    /// A second, and what pmcd waits; nothing is stored.
    fn default() -> Self {
        Limits { answer: Duration::from_secs(1), timeout: Duration::from_secs(5), stores: false }
    }
}

/// Asks an agent everything about the metrics of a name space. What breaks a rule comes once for each
/// metric, instance domain or request, in the order in which it was found.
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
    /// What has a name.
    named: BTreeSet<PmId>,
    metrics: Vec<Metric>,
    /// The instances of each domain, with their names.
    indoms: BTreeMap<InDom, Instances>,
}

/// A metric that has a descriptor.
#[derive(Clone, Debug)]
struct Metric {
    name: String,
    desc: Desc,
}
