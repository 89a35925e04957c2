//! Registration of metrics.

use std::marker::PhantomData;
use std::sync::Arc;

use pmapi::{Semantics, Units};
use serde::Serialize;

use super::inner::{Inner, State};
use super::{Family, InDom};
use crate::Error;
use crate::format::{Flags, MAX_LABELS};
use crate::handle::Handle;
use crate::model::{Label, Metric, Model, Subject};

/// A metric about to be registered (`mmv_stats_add_metric(3)`).
#[must_use = "a metric exists once it is registered"]
pub struct MetricBuilder<'n, H> {
    inner: &'n Arc<Inner>,
    name: &'n str,
    item: Option<u16>,
    semantics: Semantics,
    units: Units,
    help: [&'n str; 2],
    labels: Vec<Result<Label, Error>>,
    handle: PhantomData<fn() -> H>,
}

impl<'n, H: Handle> MetricBuilder<'n, H> {
    pub(super) fn new(inner: &'n Arc<Inner>, name: &'n str) -> MetricBuilder<'n, H> {
        MetricBuilder {
            inner,
            name,
            item: None,
            semantics: H::SEMANTICS,
            units: H::UNITS,
            help: [""; 2],
            labels: Vec::new(),
            handle: PhantomData,
        }
    }

    /// One line of help.
    pub fn help(mut self, line: &'n str) -> Self {
        self.help[0] = line;
        self
    }

    /// The whole help text.
    pub fn long_help(mut self, text: &'n str) -> Self {
        self.help[1] = text;
        self
    }

    /// Dimension and scale of the values.
    pub fn units(mut self, units: Units) -> Self {
        self.units = units;
        self
    }

    /// Semantics of the values, when the handle's own are not right.
    pub fn semantics(mut self, semantics: Semantics) -> Self {
        self.semantics = semantics;
        self
    }

    /// The item, 0 to 1023, of the metric's identifier. Without this it follows from the name.
    pub fn item(mut self, item: u16) -> Self {
        self.item = Some(item);
        self
    }

    /// Labels the metric (`mmv_stats_add_metric_label(3)`).
    pub fn label(self, name: &str, value: impl Serialize) -> Self {
        self.add_label(false, name, value)
    }

    /// Labels the metric with something that does not identify it.
    pub fn note(self, name: &str, value: impl Serialize) -> Self {
        self.add_label(true, name, value)
    }

    fn add_label(mut self, optional: bool, name: &str, value: impl Serialize) -> Self {
        // The number of the metric is not known yet.
        self.labels.push(Label::new(Subject::Registry, optional, name, value));
        self
    }

    /// Registers a metric with one value.
    ///
    /// [`Error::Name`], [`Error::TooLong`], [`Error::InUse`], [`Error::Leaf`] and [`Error::TooManyMetrics`] for its
    /// name, help and place in the name space, [`Error::Range`] and [`Error::InUse`] for its item, and the errors of
    /// [`Registry::label`](crate::Registry::label). What was refused is not there, and can be registered otherwise.
    pub fn register(self) -> Result<H, Error> {
        let inner = self.inner;
        let seat = |state: &mut State, metric: usize| {
            let value = state.model.values().find(metric, 0).unwrap_or_default();
            inner.seat(state, value)
        };
        self.add(None, seat)?
    }

    /// Registers a metric with a value for each instance of a domain; errors as from
    /// [`register`](MetricBuilder::register), and [`Error::ForeignInDom`].
    pub fn over(self, indom: &InDom) -> Result<Family<H>, Error> {
        let inner = self.inner;
        if !Arc::ptr_eq(inner, indom.inner()) {
            return Err(Error::ForeignInDom(indom.name()));
        }
        self.add(Some(indom.index()), |_, metric| Family::new(Arc::clone(inner), metric, indom.index()))
    }

    fn add<T>(self, indom: Option<usize>, then: impl FnOnce(&mut State, usize) -> T) -> Result<T, Error> {
        let MetricBuilder { inner, name, item, semantics, units, help: [short, long], labels, .. } = self;
        let own = inner.options.has(Flags::NO_PREFIX) && name.split('.').next() == Some("control");
        if own {
            return Err(Error::Name { what: "metric", name: name.to_owned(), reason: "is the agent's own" });
        }
        let labels = all(labels)?;
        let mut metric = Metric::new(H::TYPE, H::KIND, semantics, units).over(indom);
        let add = |state: &mut State| {
            state.room_for_labels(labels.len())?;
            metric.help = state.model.help(short, long)?;
            let index = state.model.add_metric(name, item, metric)?;
            state.add_labels(labels, Subject::Metric(index))?;
            Ok(index)
        };
        let needs = |model: &Model| indom.map_or(1, |indom| model.indom(indom).instances().len());
        inner.change(needs, add, then)
    }
}

/// The labels, if all of them are valid.
pub(super) fn all(labels: Vec<Result<Label, Error>>) -> Result<Vec<Label>, Error> {
    // For most metrics there is nothing to allocate.
    if labels.is_empty() { Ok(Vec::new()) } else { labels.into_iter().collect() }
}

impl State {
    /// Sees that so many labels fit, before anything is registered that has them.
    pub(super) fn room_for_labels(&self, count: usize) -> Result<(), Error> {
        let room = MAX_LABELS - self.model.labels().len();
        if count <= room { Ok(()) } else { Err(Error::TooManyLabels) }
    }

    pub(super) fn add_labels(&mut self, labels: Vec<Label>, subject: Subject) -> Result<(), Error> {
        labels.into_iter().try_for_each(|label| self.model.add_label(Label { subject, ..label }))
    }
}

impl<H> std::fmt::Debug for MetricBuilder<'_, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetricBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}
