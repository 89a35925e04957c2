//! Definitions bound to the metrics of a pmcd, and the evaluation of samples.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pcp_derived::{Column, Evaluator, Plan};
use pmapi::{Error, InDom, Result};

use super::snapshot::Snapshot;
use crate::metrics::Metrics;
use crate::operands::sizes::{Sizes, fitting};
use crate::operands::{Source, Taken};

/// Definitions bound to the metrics of a pmcd.
#[derive(Debug)]
pub(super) struct Binding {
    evaluator: Evaluator,
    pub(super) metrics: Arc<Metrics>,
    /// Plan of all metrics.
    all: Plan,
    /// Places of metrics that the current sample leaves out, because the values would need too much memory. Sorted.
    left_out: Vec<usize>,
    /// Plan of the other metrics, if the current sample leaves out any.
    rest: Plan,
    /// Sizes of the operands. Kept to reuse the memory.
    sizes: Sizes,
}

impl Binding {
    pub(super) fn new(evaluator: Evaluator, metrics: Arc<Metrics>) -> Binding {
        let all = evaluator.plan(metrics.good.iter().map(|metric| metric.id));
        let (left_out, rest, sizes) = (Vec::new(), Plan::default(), Sizes::default());
        Binding { evaluator, metrics, all, left_out, rest, sizes }
    }

    /// Discards the history of `delta` and `rate`.
    pub(super) fn forget(&mut self) {
        self.evaluator.forget(&self.all);
    }

    /// Fetches the operands of all metrics.
    pub(super) fn take(&self, source: &mut dyn Source) -> Result<Taken> {
        source.take(&self.evaluator, &self.all)
    }

    /// Leaves the largest metrics out of the sample if the values might need more than `limit` bytes together. Then it
    /// returns the bytes that they might need.
    pub(super) fn limit(&mut self, source: &dyn Source, limit: usize) -> Option<usize> {
        self.left_out.clear();
        let mut sizes = std::mem::take(&mut self.sizes);
        sizes.clear();
        source.sizes(&self.evaluator, &self.all, &mut sizes);
        let by_size = self.metrics.good.iter().enumerate().map(|(place, metric)| (sizes.of(&metric.desc), place));
        let size = by_size.clone().map(|(size, _)| size).sum();
        let by_size = (size > limit).then(|| by_size.collect::<Vec<_>>());
        self.sizes = sizes;
        let mut by_size = by_size?;
        let count = fitting(&mut by_size, limit);
        let (fit, left_out) = by_size.split_at(count);
        let id = |(_, place): &(usize, usize)| self.metrics.good.get(*place).map(|metric| metric.id);
        self.rest = self.evaluator.plan(fit.iter().filter_map(id));
        // A difference must not be over a sample that had no values.
        let missed = self.evaluator.plan_beyond(&self.rest, left_out.iter().filter_map(id));
        self.evaluator.forget(&missed);
        self.left_out.extend(left_out.iter().map(|(_, place)| *place));
        self.left_out.sort_unstable();
        Some(size)
    }

    /// Evaluates the sample. `stamp` is the time of the operands' values since the sampler's start.
    pub(super) fn evaluate(&mut self, stamp: Duration, values: &mut dyn pcp_derived::Source) {
        let plan = if self.left_out.is_empty() { &self.all } else { &self.rest };
        self.evaluator.evaluate(plan, stamp, values);
    }

    fn is_left_out(&self, place: usize) -> bool {
        self.left_out.binary_search(&place).is_ok()
    }

    /// Returns the metrics that have been computed: place, instance domain and values.
    pub(super) fn computed(&self) -> impl Iterator<Item = (usize, Option<InDom>, Result<&Column>)> {
        let metrics = self.metrics.good.iter().enumerate();
        metrics
            .filter(|(place, _)| !self.is_left_out(*place))
            .map(|(place, metric)| (place, metric.desc.indom, self.evaluator.values(metric.id)))
    }

    /// Returns whether operands have other types than when the definitions were bound.
    pub(super) fn has_other_types(&self) -> bool {
        self.computed().any(|(_, _, values)| values.err() == Some(Error::CONV))
    }

    /// Writes the sample into a snapshot.
    pub(super) fn write(&self, to: &mut Snapshot, taken: Instant) {
        if !Arc::ptr_eq(&to.metrics, &self.metrics) {
            to.metrics = Arc::clone(&self.metrics);
            to.slots.clear();
            to.slots.resize_with(self.metrics.good.len(), Default::default);
        }
        for (place, (slot, metric)) in to.slots.iter_mut().zip(&self.metrics.good).enumerate() {
            let values = if self.is_left_out(place) { Err(Error::TOOBIG) } else { self.evaluator.values(metric.id) };
            slot.assign(Some(taken), values);
        }
    }
}
