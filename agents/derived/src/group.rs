//! Groups and the agent's state for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pmapi::{Domain, Inst};
use pmda::Start;
use tracing::warn;

use crate::config::{GroupConfig, Operands};
use crate::control::Status;
use crate::metrics::Metrics;
use crate::operands::Source;
use crate::operands::agents::{Agents, Pool};
use crate::operands::pmcd::Pmcd;
use crate::sampled::Sampled;
use crate::sampler::Figures;
use crate::show::Show;

/// Group of definitions that the agent runs.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// Configuration of the group.
    config: GroupConfig,
    /// Instance of the group in `derived.control`.
    inst: Inst,
    pub(crate) running: Sampled,
    /// Metrics that are in the name space.
    shown: Option<Arc<Metrics>>,
    /// Metrics that could not be added to the name space: pairs of a name and a reason.
    hidden: Vec<(String, String)>,
    /// Places that the current request fetches.
    pub(crate) asked: Vec<usize>,
}

impl Group {
    /// Starts a group. `patience` is the longest time that a sample may wait for the group's agents.
    pub(crate) fn start(
        group: GroupConfig,
        inst: Inst,
        own: Domain,
        interval: Duration,
        patience: Duration,
        pool: &mut Pool,
    ) -> Start<Group> {
        let config = group.clone();
        let interval = group.interval.unwrap_or(interval);
        let source: Box<dyn Source> = match &config.operands {
            Operands::Host(host) => Box::new(Pmcd::new(host.clone(), own)),
            Operands::Agents(specs) => Box::new(Agents::new(pool.fleet(specs), patience)),
        };
        let running = Sampled::start(group, source, interval)?;
        let name = config.name.clone();
        Ok(Group { name, config, inst, running, shown: None, hidden: Vec::new(), asked: Vec::new() })
    }

    /// Returns whether the operands come from agents that are started for the group.
    pub(crate) fn has_agents(&self) -> bool {
        matches!(self.config.operands, Operands::Agents(_))
    }

    /// Returns whether a configuration has this group's name and operands.
    pub(crate) fn is(&self, group: &GroupConfig) -> bool {
        (&self.name, &self.config.operands) == (&group.name, &group.operands)
    }

    /// Returns whether a configuration changes nothing but the interval.
    pub(crate) fn is_unchanged(&self, group: &GroupConfig) -> bool {
        // Messages contain line numbers.
        self.config.means_the_same(group) && (self.unbound() == 0 || self.config.stands_the_same(group))
    }

    /// Adopts a configuration for this group. The group keeps its history unless definitions have changed.
    pub(crate) fn adopt(&mut self, group: GroupConfig) {
        if let Some(interval) = group.interval {
            self.running.set_interval(interval);
        }
        if !self.is_unchanged(&group) {
            self.running.reload(group.clone());
        }
        self.config = group;
    }

    /// Replaces the configuration and the instance. The caller must publish the group's metrics again.
    pub(crate) fn with(mut self, group: GroupConfig, inst: Inst) -> Group {
        self.adopt(group);
        Group { inst, shown: None, ..self }
    }

    /// Begins a request, which may wait for a sampler until `until`. Shows changed metrics in the name space, and
    /// returns whether there were any. `number` is the index of the group.
    pub(crate) fn begin(&mut self, number: usize, show: &mut Show, until: Instant) -> bool {
        let Some(metrics) = self.running.begin(until) else { return false };
        if self.shown.as_ref().is_some_and(|shown| Arc::ptr_eq(shown, metrics)) {
            return false;
        }
        let failures = show.replace((number, &self.name), self.shown.as_ref(), metrics);
        self.hidden.clear();
        for (place, e) in failures {
            let name = metrics.good.get(place).map_or_else(String::new, |metric| metric.name.clone());
            warn!(source = self.name, "metric {name} is not shown: {e}");
            self.hidden.push((name, e.to_string()));
        }
        self.shown = Some(Arc::clone(metrics));
        true
    }

    /// Prepares the values of the places in `asked`, and clears the list.
    pub(crate) fn prepare(&mut self) {
        if !self.asked.is_empty() {
            self.running.prepare(&mut self.asked.iter().copied());
            self.asked.clear();
        }
    }

    /// Returns the instance of the group in `derived.control`.
    pub(crate) fn inst(&self) -> Inst {
        self.inst
    }

    /// Returns the number of definitions that are not metrics.
    fn bad(&self) -> usize {
        self.unbound() + self.config.refused
    }

    /// Returns the number of accepted definitions that have no metric at present.
    fn unbound(&self) -> usize {
        self.shown.as_ref().map_or(0, |shown| shown.bad.len()) + self.hidden.len()
    }

    /// Returns what `derived.control` exports about the group.
    pub(crate) fn status(&self) -> Status {
        Status {
            inst: self.inst,
            figures: self.running.figures(),
            interval: self.running.interval(),
            good: self.shown.as_ref().map_or(0, |shown| shown.good.len()) - self.hidden.len(),
            bad: self.bad(),
        }
    }

    /// Returns the problems of operands and definitions: pairs of a subject and a message.
    pub(crate) fn problems(&self) -> impl Iterator<Item = (String, String)> {
        let bad = self.shown.iter().flat_map(|shown| &shown.bad);
        let bad = bad.map(|bad| (bad.name.clone(), bad.message.clone())).chain(self.hidden.iter().cloned());
        self.running.problems().iter().cloned().chain(bad)
    }
}

/// Group whose definitions were all refused. `derived.control` exports the number of these definitions.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) name: String,
    /// Number of definitions.
    pub(crate) count: usize,
    interval: Option<Duration>,
    /// Instance of the group in `derived.control`.
    pub(crate) inst: Option<Inst>,
}

impl Refused {
    /// Returns the group of a configuration without a valid definition; `None` if it has no definition at all.
    pub(crate) fn new(group: GroupConfig) -> Option<Refused> {
        let GroupConfig { name, refused: count, interval, .. } = group;
        (count > 0).then_some(Refused { name, count, interval, inst: None })
    }

    /// Returns what `derived.control` exports about the group, which is never sampled.
    pub(crate) fn status(&self, interval: Duration) -> Option<Status> {
        let interval = self.interval.unwrap_or(interval);
        Some(Status { inst: self.inst?, figures: Figures::default(), interval, good: 0, bad: self.count })
    }
}
