//! A group with what the agent keeps of it.

use std::sync::Arc;
use std::time::Duration;

use pmapi::{Domain, Inst};
use pmda::prelude::Start;
use tracing::warn;

use crate::config::{self, Operands};
use crate::direct::Direct;
use crate::host::Host;
use crate::metrics::Metrics;
use crate::operands::agents::Pool;
use crate::running::Running;
use crate::show::Show;

/// A group with what the agent keeps of it.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// What the configuration says of it.
    config: config::Group,
    /// Its number among the groups.
    pub(crate) inst: Inst,
    pub(crate) running: Box<dyn Running>,
    /// What the name space shows of it.
    shown: Option<Arc<Metrics>>,
    /// Metrics that cannot be shown, and why.
    hidden: Vec<(String, String)>,
    /// Places that the request which is under way asks for.
    pub(crate) asked: Vec<usize>,
}

impl Group {
    /// `patience` is for how long a request may wait for agents that are started for the group.
    pub(crate) fn start(
        group: config::Group,
        inst: Inst,
        own: Domain,
        interval: Duration,
        patience: Duration,
        pool: &mut Pool,
    ) -> Start<Group> {
        let config = group.clone();
        let interval = group.interval.unwrap_or(interval);
        let running: Box<dyn Running> = match &config.operands {
            Operands::Host(host) => Box::new(Host::start(group, host.clone(), own, interval)?),
            Operands::Agents(_) => Box::new(Direct::new(group, interval, patience, pool)),
        };
        let name = config.name.clone();
        Ok(Group { name, config, inst, running, shown: None, hidden: Vec::new(), asked: Vec::new() })
    }

    /// Returns whether a configuration is of this group, perhaps with other definitions.
    pub(crate) fn is(&self, group: &config::Group) -> bool {
        (&self.name, &self.config.operands) == (&group.name, &group.operands)
    }

    /// Returns whether a configuration has nothing new for this group but its interval.
    pub(crate) fn is_unchanged(&self, group: &config::Group) -> bool {
        // Messages about what is wrong say where it stands.
        self.config.means_the_same(group) && (self.bad() == 0 || self.config.stands_the_same(group))
    }

    /// Adopts a configuration of the group. Without other definitions it keeps its history.
    pub(crate) fn adopt(&mut self, group: config::Group) {
        if let Some(interval) = group.interval {
            self.running.set_interval(interval);
        }
        if !self.is_unchanged(&group) {
            self.running.reload(group.clone());
        }
        self.config = group;
    }

    /// The group with a configuration, to be shown anew.
    pub(crate) fn with(mut self, group: config::Group, inst: Inst) -> Group {
        self.adopt(group);
        Group { inst, shown: None, ..self }
    }

    /// Takes over what is new at the beginning of a request; whether there is anything. `number` is the group's.
    pub(crate) fn take_over(&mut self, number: usize, show: &mut Show) -> bool {
        let Some(metrics) = self.running.refresh() else { return false };
        if self.shown.as_ref().is_some_and(|shown| Arc::ptr_eq(shown, metrics)) {
            return false;
        }
        let failures = show.take_over((number, &self.name), self.shown.as_ref(), metrics);
        self.hidden.clear();
        for (place, e) in failures {
            let name = metrics.good.get(place).map_or_else(String::new, |metric| metric.name.clone());
            warn!("{name}: {e}");
            self.hidden.push((name, e.to_string()));
        }
        self.shown = Some(Arc::clone(metrics));
        true
    }

    /// Values of the places in `asked` will be asked for.
    pub(crate) fn prepare(&mut self) {
        if !self.asked.is_empty() {
            self.running.prepare(&mut self.asked.iter().copied());
            self.asked.clear();
        }
    }

    pub(crate) fn set_interval(&mut self, interval: Duration) {
        self.running.set_interval(interval);
    }

    /// How many definitions are metrics.
    pub(crate) fn good(&self) -> usize {
        self.shown.as_ref().map_or(0, |shown| shown.good.len()) - self.hidden.len()
    }

    /// How many definitions are none.
    pub(crate) fn bad(&self) -> usize {
        self.shown.as_ref().map_or(0, |shown| shown.bad.len()) + self.hidden.len()
    }

    /// What is wrong with operands and definitions: of what, and messages.
    pub(crate) fn problems(&self) -> impl Iterator<Item = (String, String)> {
        let bad = self.shown.iter().flat_map(|shown| &shown.bad);
        let bad = bad.map(|bad| (bad.name.clone(), bad.message.clone())).chain(self.hidden.iter().cloned());
        self.running.problems().into_iter().chain(bad)
    }
}
