//! Metrics `derived.control`, about the agent itself.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use pmda::limits::FixedLimit;
use pmda::prelude::*;
use tracing::error;

use crate::config::ROOT;
use crate::metrics::List;
use crate::sampler::Figures;

/// Cluster of the metrics `derived.control`.
pub(crate) const CLUSTER: u16 = 0;
/// Number of instance domains of the metrics `derived.control`.
pub(crate) const SERIALS: u32 = 2;

/// Instance domain of the groups.
pub(crate) const GROUPS: Serial = Serial::new(0);
/// Instance domain of the configuration's problems.
pub(crate) const PROBLEMS: Serial = Serial::new(1);

const SAMPLES: Item = Item::new(CLUSTER, 0);
const ERRORS: Item = Item::new(CLUSTER, 1);
const EVALUATION: Item = Item::new(CLUSTER, 2);
const AGE: Item = Item::new(CLUSTER, 3);
const INTERVAL: Item = Item::new(CLUSTER, 4);
const GOOD: Item = Item::new(CLUSTER, 5);
const BAD: Item = Item::new(CLUSTER, 6);
const MESSAGE: Item = Item::new(CLUSTER, 7);
const RELOAD: Item = Item::new(CLUSTER, 8);
/// The first of the metrics `derived.control.limits`, one for each limit of the framework.
const LIMITS: u16 = 16;
const LARGE_SAMPLES: Item = Item::new(CLUSTER, 9);
const LARGE_LISTS: Item = Item::new(CLUSTER, 10);

/// Times between samples that clients may store, in seconds.
const INTERVALS: std::ops::RangeInclusive<f64> = 0.01..=86400.0;

/// State of a group that is exported.
#[derive(Debug)]
pub(crate) struct Status {
    /// Instance of the group.
    pub(crate) inst: Inst,
    pub(crate) figures: Figures,
    pub(crate) interval: Duration,
    /// Number of definitions that are metrics.
    pub(crate) good: usize,
    /// Number of definitions that are not metrics.
    pub(crate) bad: usize,
}

/// Effect of a value that a client stores.
#[derive(Debug)]
pub(crate) enum Effect {
    Reload,
    /// Another time between the samples of a group.
    Interval(Inst, Duration),
}

#[derive(Debug)]
pub(crate) struct Control {
    groups: Cache<()>,
    problems: List,
    messages: Vec<(Inst, String)>,
}

impl Control {
    pub(crate) fn new(setup: &Setup) -> Control {
        let groups = setup.cache(GROUPS).persistent();
        Control { groups, problems: List::default(), messages: Vec::new() }
    }

    /// Adds the metrics and their instance domains to the name space.
    pub(crate) fn show(dynamic: &mut Dynamic) -> Result<(), BoxError> {
        for metric in metrics() {
            dynamic.insert(&metric)?;
        }
        for (item, limit) in (LIMITS..).zip(FixedLimit::ALL) {
            dynamic.insert(&MetricDef::of_limit(*limit, "derived.control.limits", Item::new(CLUSTER, item)))?;
        }
        let mut groups = InDomDef::new(GROUPS);
        groups.help("Groups of definitions", "Each group has its own operands and its own time between samples.");
        dynamic.insert_indom(&groups)?;
        let mut problems = InDomDef::new(PROBLEMS);
        problems.help("Problems of the configuration", "Each is named by its definition, or by FILE:LINE.");
        Ok(dynamic.insert_indom(&problems)?)
    }

    /// Returns the instance of a group, and makes it active.
    pub(crate) fn number(&mut self, group: &str) -> Result<Inst, BoxError> {
        Ok(self.groups.store(group, ())?)
    }

    /// Makes all groups inactive until [`Control::number`] is called for them.
    pub(crate) fn forget_groups(&mut self) {
        self.groups.hide_all();
    }

    /// Saves the instances of the groups.
    pub(crate) fn save_groups(&mut self) {
        self.groups.save().unwrap_or_else(|e| error!("groups may get other numbers after a restart: {e}"));
    }

    /// Replaces the problems: pairs of a subject and a message.
    pub(crate) fn set_problems(&mut self, problems: impl Iterator<Item = (String, String)>) {
        let (mut names, mut list) = (UniqueNames::default(), Vec::new());
        self.messages.clear();
        for (number, (about, message)) in (0..).zip(problems) {
            let inst = Inst::new(number);
            let name = names.unique(about);
            list.push((inst, name.into_bytes()));
            self.messages.push((inst, message));
        }
        self.problems = List::new(list);
    }

    pub(crate) fn instances(&self, indom: Serial) -> Option<&dyn Instances> {
        match indom {
            GROUPS => Some(&self.groups),
            PROBLEMS => Some(&self.problems),
            _ => None,
        }
    }

    pub(crate) fn fetch(&self, item: Item, groups: impl Iterator<Item = Status>, out: &mut Values<'_>) -> Result {
        match item {
            MESSAGE => return self.messages.iter().try_for_each(|(inst, message)| out.put_inst(*inst, message)),
            RELOAD => return out.put(0u32),
            _ => {}
        }
        if let Some(limit) = item.item().checked_sub(LIMITS) {
            let limit = FixedLimit::ALL.get(usize::from(limit)).ok_or(Error::PMID)?;
            return out.put(limit.exceeded());
        }
        for group in groups {
            let Status { inst, figures, interval, good, bad } = group;
            match item {
                SAMPLES => out.put_inst(inst, figures.samples)?,
                ERRORS => out.put_inst(inst, figures.errors)?,
                EVALUATION => out.put_inst(inst, figures.evaluation.as_secs_f64())?,
                // Before the first sample there is no value.
                AGE => figures.sampled.map_or(Ok(()), |sampled| out.put_inst(inst, sampled.elapsed().as_secs_f64()))?,
                LARGE_SAMPLES => out.put_inst(inst, figures.large_samples)?,
                LARGE_LISTS => out.put_inst(inst, figures.large_lists)?,
                INTERVAL => out.put_inst(inst, interval.as_secs_f64())?,
                GOOD => out.put_inst(inst, good as u32)?,
                BAD => out.put_inst(inst, bad as u32)?,
                _ => return Err(Error::PMID),
            }
        }
        Ok(())
    }

    /// Returns the effect of a value that a client stores.
    pub(crate) fn store(item: Item, inst: Option<Inst>, value: Atom<'_>) -> Result<Effect> {
        match (item, value) {
            (RELOAD, _) => Ok(Effect::Reload),
            (INTERVAL, Atom::Double(seconds)) if INTERVALS.contains(&seconds) => {
                Ok(Effect::Interval(inst.ok_or(Error::INST)?, Duration::from_secs_f64(seconds)))
            }
            (INTERVAL, _) => Err(Error::BADSTORE),
            _ => Err(Error::PERMISSION),
        }
    }
}

/// Set of unique names.
#[derive(Default)]
struct UniqueNames {
    used: HashSet<String>,
    /// Last number appended to each name. With a search from 1 each time, thousands of problems in one line of a file
    /// would take quadratic time.
    numbers: HashMap<String, usize>,
}

impl UniqueNames {
    /// Returns the name, with a number appended if it is in use.
    fn unique(&mut self, about: String) -> String {
        let mut name = about.clone();
        while !self.used.insert(name.clone()) {
            let last = self.numbers.entry(about.clone()).or_insert(1);
            *last += 1;
            name = format!("{about}#{last}");
        }
        name
    }
}

fn metrics() -> [MetricDef; 11] {
    let metric = |name: &str, item, ty| MetricDef::new(format!("{ROOT}.control.{name}"), item, ty);
    let of_groups = |name: &str, item, ty| {
        let mut metric = metric(name, item, ty);
        metric.indom(GROUPS);
        metric
    };
    let mut samples = of_groups("samples", SAMPLES, Type::U64);
    samples.counter().units(Units::COUNT).help(
        "Samples of operands that were attempted",
        "One in each interval while clients want metrics of the group, and one when they want further metrics.",
    );
    let mut errors = of_groups("errors", ERRORS, Type::U64);
    errors
        .counter()
        .units(Units::COUNT)
        .help("Samples that failed", "The group's metrics then have the error \"Try again\" in place of values.");
    let mut large_samples = of_groups("limits.values", LARGE_SAMPLES, Type::U64);
    large_samples.counter().units(Units::COUNT).help(
        "Samples that were too large",
        "The values would have needed more than 64 MiB. The largest metrics then have errors in place of values.",
    );
    let mut large_lists = of_groups("limits.instances", LARGE_LISTS, Type::U64);
    large_lists.counter().units(Units::COUNT).help(
        "Instance lists that were too large",
        "The names and labels of the group's instances would have needed more than 64 MiB. Values of these instances\n\
         have no names.",
    );
    let mut evaluation = of_groups("evaluation", EVALUATION, Type::Double);
    evaluation.units(Units::SECONDS).help("Duration of the last evaluation", "Excludes the time to get the operands.");
    let mut age = of_groups("age", AGE, Type::Double);
    age.units(Units::SECONDS).help("Time since the last sample", "No samples are taken while clients want no metrics.");
    let mut interval = of_groups("interval", INTERVAL, Type::Double);
    interval.discrete().units(Units::SECONDS).restricted().help(
        "Time between samples",
        "A value from 0.01 to 86400 can be stored. It is in effect until the agent ends, or its configuration is\n\
         reloaded and specifies another interval. Differences and rates are over this time.",
    );
    let mut good = of_groups("definitions.good", GOOD, Type::U32);
    good.discrete().units(Units::COUNT).help("Definitions that are metrics", "");
    let mut bad = of_groups("definitions.bad", BAD, Type::U32);
    bad.discrete().units(Units::COUNT).help("Definitions that are not metrics", "derived.control.message says why.");
    let mut message = metric("message", MESSAGE, Type::String);
    message.indom(PROBLEMS).discrete().help(
        "Problems of the configuration",
        "An instance for each invalid definition, by its name, and for each other mistake, by FILE:LINE.",
    );
    let mut reload = metric("reload", RELOAD, Type::U32);
    reload
        .discrete()
        .restricted()
        .help("Any value stored here reloads the configuration", "SIGHUP does the same. The value is always 0.");
    [samples, errors, large_samples, large_lists, evaluation, age, interval, good, bad, message, reload]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds so many problems that a quadratic time would be noticed.
    #[test]
    fn any_number_of_problems_of_one_line_have_names_of_their_own() {
        let mut names = UniqueNames::default();
        assert_eq!(
            ["a", "a#2", "a", "a", "b"].map(|name| names.unique(name.to_owned())),
            ["a", "a#2", "a#3", "a#4", "b"]
        );
        let last = (0..200_000).map(|_| names.unique("file:7".to_owned())).last();
        assert_eq!(last.as_deref(), Some("file:7#200000"));
    }
}
