//! Check of an agent against the rules of the protocol and of PCP.

mod asker;
pub mod cli;
mod events;
mod instances;
mod labels;
mod log;
mod metrics;
mod rule;
mod stores;
#[cfg(test)]
mod tests;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
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

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Report {
    /// Broken rules in the order in which they were found, once for each metric, instance domain or request.
    pub findings: Vec<Finding>,
    /// Number of metrics that have a descriptor.
    pub metrics: usize,
    /// Number of values that these metrics had when they were first fetched.
    pub values: usize,
    /// Metrics without a value, each with the reason. Having no value breaks no rule.
    pub without: Vec<String>,
}

/// The summary of a check in one line, such as "5 metrics, 9 values, no rule broken". If metrics had no value, the line has
/// their number, and for each reason the first of them.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |n: usize, one: &str, more: &str| format!("{n} {}", if n == 1 { one } else { more });
        let outcome = match self.findings.len() {
            0 => "no rule broken".to_owned(),
            n => count(n, "breach", "breaches"),
        };
        let (metrics, values) = (count(self.metrics, "metric", "metrics"), count(self.values, "value", "values"));
        let mut reasons: Vec<(&str, &str, usize)> = Vec::new();
        for (metric, reason) in self.without.iter().filter_map(|line| line.split_once(": ")) {
            match reasons.iter_mut().find(|(_, other, _)| *other == reason) {
                Some((.., more)) => *more += 1,
                None => reasons.push((metric, reason, 0)),
            }
        }
        let reasons = reasons.iter().map(|(metric, reason, more)| match more {
            0 => format!("{metric}: {reason}"),
            n => format!("{metric} and {n} more: {reason}"),
        });
        let without = match self.without.len() {
            0 => String::new(),
            n => format!("{n} without a value ({}), ", reasons.collect::<Vec<_>>().join("; ")),
        };
        write!(f, "{metrics}, {values}, {without}{outcome}")
    }
}

/// Sends an agent all requests about the metrics of a name space, and returns the broken rules.
pub fn check<C: Channel>(agent: Collector<C>, names: &[(String, PmId)], limits: Limits) -> Report {
    let mut check = Check {
        asker: Asker::new(agent, limits.answer, limits.timeout),
        timeout: limits.timeout,
        named: BTreeSet::new(),
        metrics: Vec::new(),
        indoms: BTreeMap::new(),
    };
    check.find_metrics(names);
    check.find_unnamed(names.iter().any(|(_, pmid)| pmid.dynamic_root().is_some()));
    check.check_instances();
    check.check_help();
    let (values, without) = check.check_values();
    check.check_profile();
    check.check_labels();
    if limits.stores {
        check.check_stores();
    }
    Report { metrics: check.metrics.len(), values, without, findings: check.asker.findings() }
}

struct Check<C> {
    asker: Asker<C>,
    /// Longest time until an agent with dynamic names is ready.
    timeout: Duration,
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
