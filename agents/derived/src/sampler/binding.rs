//! Definitions bound to the metrics of a pmcd, and the evaluation of samples.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pcp_client::Sample;
use pcp_derive::{Column, Evaluator, Live, Operand, Plan};
use pmapi::{Error, InDom, Result};

use super::demand::Demand;
use super::snapshot::Snapshot;
use crate::metrics::Metrics;
use crate::operands::sizes::{Sizes, fitting};

/// Kind of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Sample of all metrics that clients want, at the intervals of `delta` and `rate`.
    Regular,
    /// Sample of metrics that clients want and that have no values. It does not affect other metrics.
    Extra,
}

/// Definitions bound to the metrics of a pmcd.
#[derive(Debug)]
pub(super) struct Binding {
    evaluator: Evaluator,
    pub(super) metrics: Arc<Metrics>,
    pub(super) demand: Arc<Demand>,
    /// Whether clients want each metric, by place.
    wanted: Vec<bool>,
    /// Metrics that the current sample computes, by place.
    computed: Vec<bool>,
    kind: Kind,
    /// Metrics of the last regular sample, by place, and their plan.
    regular: (Vec<bool>, Plan),
    /// Plan of the last extra sample.
    extra: Plan,
    /// Places of metrics that the current sample leaves out, because the values would need too much memory. Sorted.
    left_out: Vec<usize>,
    /// Plan of the other metrics, if the current sample leaves out any.
    rest: Plan,
    /// Sizes of the operands. Kept to reuse the memory.
    sizes: Sizes,
}

impl Binding {
    pub(super) fn new(evaluator: Evaluator, metrics: Arc<Metrics>, demand: Arc<Demand>) -> Binding {
        let none = vec![false; metrics.good.len()];
        Binding {
            evaluator,
            metrics,
            demand,
            wanted: none.clone(),
            computed: none.clone(),
            kind: Kind::Regular,
            regular: (none, Plan::default()),
            extra: Plan::default(),
            left_out: Vec::new(),
            rest: Plan::default(),
            sizes: Sizes::default(),
        }
    }

    /// Returns whether clients want no metric.
    pub(super) fn is_idle(&self) -> bool {
        !self.wanted.contains(&true)
    }

    pub(super) fn is_regular(&self) -> bool {
        self.kind == Kind::Regular
    }

    /// Discards the history of `delta` and `rate`.
    pub(super) fn forget(&mut self) {
        self.evaluator.forget(&self.regular.1);
    }

    /// Decides which metrics the next sample computes. Differences are always over the time between two regular
    /// samples. So `delta` and `rate` of metrics that are new in a regular sample start without history, and in an
    /// extra sample they have no values.
    pub(super) fn choose(&mut self, kind: Kind, before: Option<&Snapshot>) {
        self.kind = kind;
        self.left_out.clear();
        self.demand.update(&mut self.wanted);
        self.computed.clone_from(&self.wanted);
        let (regular, plan) = &mut self.regular;
        match kind {
            Kind::Regular if *regular == self.wanted => {}
            Kind::Regular => {
                let new = self.evaluator.plan_beyond(plan, self.metrics.numbers(&self.wanted));
                self.evaluator.forget(&new);
                *plan = self.evaluator.plan(self.metrics.numbers(&self.wanted));
                regular.clone_from(&self.wanted);
            }
            Kind::Extra => {
                for (computed, slot) in self.computed.iter_mut().zip(before.iter().flat_map(|before| &before.slots)) {
                    *computed &= slot.taken.is_none();
                }
                self.extra = self.evaluator.plan_beyond(plan, self.metrics.numbers(&self.computed));
                self.evaluator.forget(&self.extra);
            }
        }
    }

    /// Returns the operands that the sample needs.
    pub(super) fn operands(&self) -> impl Iterator<Item = &Operand> + Clone {
        self.evaluator.operands_of(if self.kind == Kind::Regular { &self.regular.1 } else { &self.extra })
    }

    /// Leaves the largest metrics out of the sample if the values might need more than `limit` bytes together. Then it
    /// returns the bytes that they might need.
    pub(super) fn limit(&mut self, operands: &Sample, limit: usize) -> Option<usize> {
        let mut sizes = std::mem::take(&mut self.sizes);
        sizes.clear();
        for (operand, set) in self.operands().zip(operands.sets()) {
            sizes.add(operand, &set);
        }
        let metrics = self.metrics.good.iter().zip(&self.computed).enumerate();
        let computed = metrics.filter(|(_, (_, computed))| **computed);
        let computed = computed.map(|(place, (metric, _))| (sizes.of(&metric.desc), place));
        let size = computed.clone().map(|(size, _)| size).sum();
        let by_size = (size > limit).then(|| computed.collect::<Vec<_>>());
        self.sizes = sizes;
        let mut by_size = by_size?;
        let count = fitting(&mut by_size, limit);
        self.left_out.extend(by_size.iter().skip(count).map(|(_, place)| *place));
        self.left_out.sort_unstable();
        for place in &self.left_out {
            self.computed[*place] = false;
        }
        let fit = self.metrics.numbers(&self.computed);
        self.rest = match self.kind {
            Kind::Regular => self.evaluator.plan(fit),
            Kind::Extra => self.evaluator.plan_beyond(&self.regular.1, fit),
        };
        if self.kind == Kind::Regular {
            // A difference must not be over a sample that had no values.
            let missed = self.evaluator.plan_beyond(&self.rest, self.metrics.numbers(&self.wanted));
            self.evaluator.forget(&missed);
        }
        Some(size)
    }

    /// Evaluates the sample. `stamp` is the time of the operands' values since the sampler's start.
    pub(super) fn evaluate(&mut self, stamp: Duration, live: &mut Live) {
        let plan = match self.kind {
            _ if !self.left_out.is_empty() => &self.rest,
            Kind::Regular => &self.regular.1,
            Kind::Extra => &self.extra,
        };
        self.evaluator.evaluate(plan, stamp, live);
    }

    /// Returns the metrics that have been computed: place, instance domain and values.
    pub(super) fn computed(&self) -> impl Iterator<Item = (usize, Option<InDom>, Result<&Column>)> {
        let metrics = self.metrics.good.iter().zip(&self.computed).enumerate();
        metrics
            .filter(|(_, (_, computed))| **computed)
            .map(|(place, (metric, _))| (place, metric.desc.indom, self.evaluator.values(metric.id)))
    }

    /// Returns whether operands have other types than when the definitions were bound.
    pub(super) fn has_other_types(&self) -> bool {
        self.computed().any(|(_, _, values)| values.err() == Some(Error::CONV))
    }

    /// Writes the sample into a snapshot. A metric that an extra sample does not compute keeps the values of the
    /// previous snapshot, `before`.
    pub(super) fn write(&self, to: &mut Snapshot, before: Option<&Snapshot>, taken: Instant) {
        if !Arc::ptr_eq(&to.metrics, &self.metrics) {
            (to.metrics, to.demand) = (Arc::clone(&self.metrics), Arc::clone(&self.demand));
            to.slots.clear();
            to.slots.resize_with(self.computed.len(), Default::default);
        }
        let before = before.filter(|_| self.kind == Kind::Extra);
        for (place, (slot, computed)) in to.slots.iter_mut().zip(&self.computed).enumerate() {
            match before.and_then(|before| before.slots.get(place)) {
                _ if self.left_out.binary_search(&place).is_ok() => slot.assign(Some(taken), Err(Error::TOOBIG)),
                Some(before) if !computed => slot.copy_from(before),
                None if !computed => slot.assign(None, Err(Error::AGAIN)),
                _ => {
                    let metric = self.metrics.good.get(place).ok_or(Error::PMID);
                    slot.assign(Some(taken), metric.and_then(|metric| self.evaluator.values(metric.id)));
                }
            }
        }
    }
}
