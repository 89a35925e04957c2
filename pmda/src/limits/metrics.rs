//! Control metrics about limits.

use pmapi::{Item, Type, Units};

use super::FixedLimit;
use crate::{MetricDef, Setup};

/// Control metric of an agent's limit: how often the limit has left something out, for instance
/// [`Quota::refused`](super::Quota::refused).
#[derive(Clone, Copy, Debug)]
pub struct LimitMetric {
    /// Item of the metric.
    pub item: Item,
    /// Last component of the name, after `control.limits`.
    pub name: &'static str,
    /// One-line help text.
    pub oneline: &'static str,
    /// Full help text.
    pub help: &'static str,
}

/// Control metrics `AGENT.control.limits.*`: counters of an agent's limits, and of those of the framework
/// ([`FixedLimit`]).
///
/// ```
/// use pmda::limits::{LimitMetric, LimitMetrics};
/// use pmda::prelude::*;
///
/// static LIMITS: LimitMetrics = LimitMetrics::new(
///     &[LimitMetric {
///         item: Item::new(4, 0),
///         name: "files",
///         oneline: "Files that were left out",
///         help: "Their owner, or all users together, had too many files.",
///     }],
///     Item::new(4, 16),
/// );
///
/// let names: Vec<String> = LIMITS.metrics("x").map(|metric| metric.name().to_owned()).collect();
/// assert_eq!(names[..2], ["x.control.limits.files", "x.control.limits.log_lines"]);
/// assert_eq!(LIMITS.value(Item::new(4, 0), &[7]), Some(7));
/// assert_eq!(LIMITS.value(Item::new(4, 1), &[7]), None);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LimitMetrics {
    own: &'static [LimitMetric],
    framework: Item,
}

impl LimitMetrics {
    /// Creates the metrics of an agent's own limits. Those of the framework have items from `framework` on, in the order
    /// of [`FixedLimit::ALL`].
    pub const fn new(own: &'static [LimitMetric], framework: Item) -> Self {
        LimitMetrics { own, framework }
    }

    /// Returns the declarations of the metrics of an agent, whose names begin with `agent`.
    pub fn metrics(self, agent: &str) -> impl Iterator<Item = MetricDef> {
        let node = format!("{agent}.control.limits");
        let node_of_own = node.clone();
        let own = self.own.iter().map(move |limit| {
            let mut metric = MetricDef::new(format!("{node_of_own}.{}", limit.name), limit.item, Type::U64);
            metric.counter().units(Units::COUNT).help(limit.oneline, limit.help);
            metric
        });
        let (cluster, first) = (self.framework.cluster(), self.framework.item());
        let framework = FixedLimit::ALL.iter().zip(first..);
        own.chain(framework.map(move |(limit, item)| MetricDef::of_limit(*limit, &node, Item::new(cluster, item))))
    }

    /// Declares the metrics of an agent that knows its metrics from the start.
    pub fn declare(self, setup: &mut Setup) {
        let agent = setup.name().to_owned();
        setup.extend(self.metrics(&agent));
    }

    /// Returns the value of a metric: the count of `own` with the index of the agent's limit, or that of the framework.
    /// Returns `None` for an item of another metric.
    pub fn value(self, item: Item, own: &[u64]) -> Option<u64> {
        if let Some(index) = self.own.iter().position(|limit| limit.item == item) {
            return own.get(index).copied();
        }
        if item.cluster() != self.framework.cluster() {
            return None;
        }
        let index = item.item().checked_sub(self.framework.item())?;
        FixedLimit::ALL.get(usize::from(index)).map(|limit| limit.exceeded())
    }
}
