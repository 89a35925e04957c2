//! Registration of metrics.

use std::marker::PhantomData;
use std::sync::Arc;

use pmapi::{LabelFlags, Semantics, Units};
use serde::Serialize;

use super::inner::{Inner, State};
use super::{Family, InstanceDomain};
use crate::Error;
use crate::format::Flags;
use crate::handle::Handle;
use crate::model::{Counts, Kind, Label, Metric, Subject};

/// Builder of a metric (`mmv_stats_add_metric(3)`).
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

    /// Sets the one-line help text.
    pub fn help(mut self, line: &'n str) -> Self {
        self.help[0] = line;
        self
    }

    /// Sets the full help text.
    pub fn long_help(mut self, text: &'n str) -> Self {
        self.help[1] = text;
        self
    }

    /// Sets the dimension and scale of the values.
    pub fn units(mut self, units: Units) -> Self {
        self.units = units;
        self
    }

    /// Sets the semantics of the values, instead of the handle's default.
    pub fn semantics(mut self, semantics: Semantics) -> Self {
        self.semantics = semantics;
        self
    }

    /// Sets the item of the metric's identifier, 0 to 1023. The default is derived from the name.
    pub fn item(mut self, item: u16) -> Self {
        self.item = Some(item);
        self
    }

    /// Adds a label to the metric (`mmv_stats_add_metric_label(3)`).
    pub fn label(self, name: &str, value: impl Serialize) -> Self {
        self.add_label(LabelFlags::empty(), name, value)
    }

    /// Adds an optional label to the metric: one that does not identify it (`mmv_stats_add_metric_label(3)`).
    pub fn note(self, name: &str, value: impl Serialize) -> Self {
        self.add_label(LabelFlags::OPTIONAL, name, value)
    }

    fn add_label(mut self, flags: LabelFlags, name: &str, value: impl Serialize) -> Self {
        // The metric's number is not known yet. `add_labels` sets the subject.
        self.labels.push(Label::new(Subject::Registry, flags, name, value));
        self
    }

    /// Registers a metric with one value. After an error there is no such metric, and it can be registered again.
    ///
    /// # Errors
    /// * [`Error::Name`] for an invalid name (pmns(5)), one of more than 24 components, or help text with a NUL byte
    /// * [`Error::TooLong`] for a name or help text over 255 bytes
    /// * [`Error::InUse`] for the name or item of another metric
    /// * [`Error::Leaf`] for a name above or below that of another metric
    /// * [`Error::Range`] for an item above 1023, [`Error::TooManyMetrics`] after 1,023 metrics
    /// * [`Error::Io`] if there is no memory for the value
    /// * [`Error::Full`] if the file has no room for it, [`Error::Forked`] in a forked child
    /// * the errors of [`Registry::label`](crate::Registry::label) for its labels
    pub fn register(self) -> Result<H, Error> {
        let inner = self.inner;
        self.add(None, |state, metric| {
            let value = state.model.values().find(metric, 0).unwrap_or_default();
            inner.handle(state, value)
        })?
    }

    /// Registers a metric with a value for each instance of a domain.
    ///
    /// # Errors
    /// [`Error::ForeignInDom`] for a domain of another registry, and the errors of
    /// [`register`](MetricBuilder::register).
    pub fn over(self, indom: &InstanceDomain) -> Result<Family<H>, Error> {
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
            return Err(Error::Name { what: "metric", name: name.to_owned(), reason: "is reserved for the agent" });
        }
        let labels = labels.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut metric = Metric::new(H::TYPE, H::KIND, semantics, units).over(indom);
        let count = labels.len();
        let help = [short, long].iter().filter(|text| !text.is_empty()).count();
        inner.change(
            |model| {
                let values = indom.map_or(1, |indom| model.indom(indom).len());
                let texts = if H::KIND == Kind::Text { values } else { 0 };
                Counts { metrics: 1, strings: 1 + help, labels: count, values, texts, ..Counts::default() }
            },
            |state| {
                state.model.check_labels(&labels, None)?;
                metric.help = state.model.help(short, long)?;
                let index = state.model.add_metric(name, item, metric)?;
                state.model.add_labels(labels, Subject::Metric(index));
                Ok(index)
            },
            then,
        )
    }
}

impl<H> std::fmt::Debug for MetricBuilder<'_, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetricBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}
