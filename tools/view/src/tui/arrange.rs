//! Arrangement of the list: its lines, sorted, filtered and folded.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashSet;

use pmapi::Inst;

use crate::fleet::Agent;
use crate::model::{Series, Shown};

/// Order of metrics and instances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sort {
    /// Order in which the agent has them.
    Agent,
    Name,
    /// Instances by value, the largest first.
    Value,
    /// Instances by rate or change, the largest first.
    Change,
}

impl Sort {
    pub(super) fn next(self) -> Sort {
        match self {
            Sort::Agent => Sort::Name,
            Sort::Name => Sort::Value,
            Sort::Value => Sort::Change,
            Sort::Change => Sort::Agent,
        }
    }

    /// Returns the text for the screen, which is empty for the usual order.
    pub(super) fn words(self) -> &'static str {
        match self {
            Sort::Agent => "",
            Sort::Name => "by name",
            Sort::Value => "by value",
            Sort::Change => "by change",
        }
    }

    fn series(self, a: &Series, b: &Series) -> Ordering {
        let number = |series: &Series| match self {
            Sort::Value => series.value.number(),
            _ => series.rate.or(series.delta).map(f64::abs),
        };
        match self {
            Sort::Agent => Ordering::Equal,
            Sort::Name => a.instance.cmp(&b.instance),
            // Values that are not numbers come last.
            Sort::Value | Sort::Change => {
                let (a, b) = (number(a), number(b));
                let by_number = b.partial_cmp(&a).unwrap_or(Ordering::Equal);
                b.is_some().cmp(&a.is_some()).then(by_number)
            }
        }
    }
}

/// Metrics whose instances are folded.
#[derive(Clone, Debug, Default)]
pub(super) struct Folds {
    all: bool,
    /// Metrics that differ from `all`, by agent and name.
    others: HashSet<(usize, String)>,
}

impl Folds {
    pub(super) fn is_folded(&self, agent: usize, metric: &str) -> bool {
        // The check avoids a copy of the name, which the lookup needs.
        self.all != (!self.others.is_empty() && self.others.contains(&(agent, metric.to_owned())))
    }

    pub(super) fn set(&mut self, agent: usize, metric: &str, folded: bool) {
        if folded == self.all {
            self.others.remove(&(agent, metric.to_owned()));
        } else {
            self.others.insert((agent, metric.to_owned()));
        }
    }

    pub(super) fn toggle_all(&mut self) {
        self.all = !self.all;
        self.others.clear();
    }
}

/// Line of the list, by the numbers of agent, metric and value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Agent(usize),
    /// Reason why an agent has no metrics.
    NoMetrics(usize),
    Metric(usize, usize),
    /// Metric in one line.
    Folded(usize, usize),
    /// Reason why a metric has no values.
    NoValues(usize, usize),
    Value(usize, usize, usize),
}

/// Identity of a line, which does not change when the list is sorted again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Key {
    pub(super) agent: usize,
    pub(super) metric: Option<usize>,
    pub(super) inst: Option<Option<Inst>>,
}

impl Place {
    /// Returns the numbers of agent, metric and value.
    pub(super) fn numbers(self) -> (usize, Option<usize>, Option<usize>) {
        match self {
            Place::Agent(agent) | Place::NoMetrics(agent) => (agent, None, None),
            Place::Metric(agent, metric) | Place::Folded(agent, metric) | Place::NoValues(agent, metric) => {
                (agent, Some(metric), None)
            }
            Place::Value(agent, metric, value) => (agent, Some(metric), Some(value)),
        }
    }

    /// Returns the subject of the line.
    pub(super) fn key(self, agents: &[Agent]) -> Key {
        let (agent, metric, value) = self.numbers();
        let shown = shown(agents, agent, metric);
        let series = shown.zip(value).and_then(|(shown, value)| shown.values.as_ref().ok()?.get(value));
        Key { agent, metric, inst: series.map(|series| series.inst) }
    }

    /// Returns whether the line is a heading of the lines below it.
    pub(super) fn is_heading(self) -> bool {
        matches!(self, Place::Agent(_) | Place::Metric(..))
    }

    /// Returns the name by which a search finds the line.
    pub(super) fn name(self, agents: &[Agent]) -> Cow<'_, str> {
        let (agent, metric, value) = self.numbers();
        match shown(agents, agent, metric) {
            None => agents.get(agent).map_or("", |agent| agent.name.as_str()).into(),
            Some(shown) => match (value, &shown.values) {
                (Some(value), Ok(values)) => values.get(value).map_or("", |series| &series.instance).into(),
                _ => Cow::Borrowed(&shown.metric.name),
            },
        }
    }
}

/// Returns a metric with its values.
pub(super) fn shown(agents: &[Agent], agent: usize, metric: Option<usize>) -> Option<&Shown> {
    agents.get(agent)?.board.metrics.get(metric?)
}

/// Contents and order of the list.
#[derive(Clone, Debug)]
pub(super) struct Arrangement {
    /// Text that the names of the shown metrics or instances contain.
    pub(super) filter: String,
    pub(super) sort: Sort,
    pub(super) folds: Folds,
}

impl Arrangement {
    /// Returns the lines of all agents. An agent has no lines if none of its metrics passes the filter.
    pub(super) fn lines(&self, agents: &[Agent]) -> Vec<Place> {
        let mut lines = Vec::new();
        for (at, agent) in agents.iter().enumerate() {
            let first = lines.len();
            lines.push(Place::Agent(at));
            if agent.problem().is_some() {
                lines.push(Place::NoMetrics(at));
                continue;
            }
            let metrics = &agent.board.metrics;
            let mut order: Vec<usize> = (0..metrics.len()).collect();
            if self.sort == Sort::Name {
                order.sort_by(|a, b| metrics[*a].metric.name.cmp(&metrics[*b].metric.name));
            }
            for metric in order {
                self.metric(at, metric, &metrics[metric], &mut lines);
            }
            if lines.len() == first + 1 && !self.filter.is_empty() {
                lines.truncate(first);
            }
        }
        lines
    }

    fn metric(&self, agent: usize, metric: usize, shown: &Shown, lines: &mut Vec<Place>) {
        let is_whole = shown.metric.name.contains(&self.filter);
        let values = shown.values.as_deref().unwrap_or_default();
        let passes = |series: &Series| is_whole || series.instance.contains(&self.filter);
        if !is_whole && !values.iter().any(passes) {
            return;
        }
        if self.folds.is_folded(agent, &shown.metric.name) {
            lines.push(Place::Folded(agent, metric));
            return;
        }
        lines.push(Place::Metric(agent, metric));
        if shown.metric.desc.is_err() || values.is_empty() {
            lines.push(Place::NoValues(agent, metric));
            return;
        }
        let mut order: Vec<usize> = (0..values.len()).filter(|at| passes(&values[*at])).collect();
        if self.sort != Sort::Agent {
            order.sort_by(|a, b| self.sort.series(&values[*a], &values[*b]));
        }
        lines.extend(order.into_iter().map(|value| Place::Value(agent, metric, value)));
    }
}
