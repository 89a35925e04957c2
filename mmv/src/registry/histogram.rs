//! Registration of distributions.

use std::sync::Arc;
use std::time::Duration;

use pmapi::Units;

use super::Registry;
use crate::Error;
use crate::handle::{Buckets, Counter, Gauge, Output, Quantiles};

/// Builder of a distribution.
///
/// The name of the distribution becomes a node with the metrics `count`, `sum` and, over an instance domain, `bucket`
/// or `quantile`.
#[derive(Debug)]
#[must_use = "a histogram exists once its buckets or quantiles are registered"]
pub struct HistogramBuilder {
    registry: Registry,
    name: String,
    help: String,
    units: Units,
    window: Duration,
    resolution: f64,
}

impl HistogramBuilder {
    pub(super) fn new(registry: &Registry, name: &str) -> HistogramBuilder {
        HistogramBuilder {
            registry: registry.clone(),
            name: name.to_owned(),
            help: String::new(),
            units: Units::SECONDS,
            window: Duration::from_secs(60),
            resolution: 1e-6,
        }
    }

    /// Sets the one-line help text.
    pub fn help(mut self, line: &str) -> Self {
        line.clone_into(&mut self.help);
        self
    }

    /// Sets the dimension and scale of the values; the default is seconds.
    pub fn units(mut self, units: Units) -> Self {
        self.units = units;
        self
    }

    /// Sets how long values count for the quantiles: for at least this time, and at most twice as long. The default is
    /// a minute.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// Sets the smallest value that quantiles distinguish from 0; the default is 0.000001, in the units of the
    /// values.
    pub fn resolution(mut self, resolution: f64) -> Self {
        self.resolution = resolution;
        self
    }

    /// Registers a distribution as counts of values in buckets, with ascending upper boundaries.
    ///
    /// A bucket counts values above the previous boundary, up to and including its own. A last bucket, `inf`, counts
    /// the values above all boundaries.
    ///
    /// # Errors
    /// [`Error::Histogram`] if the boundaries are not finite or do not ascend, and the errors of
    /// [`MetricBuilder::register`](crate::MetricBuilder::register).
    pub fn buckets(self, bounds: &[f64]) -> Result<Buckets, Error> {
        if !bounds.is_sorted_by(|a, b| a < b) || bounds.iter().any(|b| !b.is_finite()) {
            return Err(self.error("boundaries must be finite and ascend"));
        }
        let names: Vec<String> = bounds.iter().map(f64::to_string).chain(["inf".to_owned()]).collect();
        let _batch = self.registry.batch();
        let indom = self.registry.indom(&self.name).help("upper boundaries of the buckets");
        let indom = indom.numbered((0..).zip(names.iter().map(String::as_str))).register()?;
        let (name, help) = (self.named("bucket"), self.help_on("values in each bucket"));
        let family = self.registry.counter(&name).help(&help).over(&indom)?;
        Ok(Buckets {
            bounds: bounds.into(),
            buckets: names.iter().map(|name| family.instance(name)).collect::<Result<Arc<[Counter]>, Error>>()?,
            count: self.count()?,
            sum: self.sum()?,
        })
    }

    /// Registers a distribution as quantiles, and the maximum. Quantiles ascend between 0 and 1; 0.5 is the median.
    ///
    /// # Errors
    /// [`Error::Histogram`] if the quantiles do not ascend or are not in 0 to 1, or the resolution is not positive.
    /// Otherwise the errors of [`MetricBuilder::register`](crate::MetricBuilder::register).
    pub fn quantiles(self, quantiles: &[f64]) -> Result<Quantiles, Error> {
        if !quantiles.is_sorted_by(|a, b| a < b) || quantiles.iter().any(|q| !(0.0..=1.0).contains(q)) {
            return Err(self.error("quantiles must ascend between 0 and 1"));
        }
        if !(self.resolution > 0.0 && self.resolution.is_finite()) {
            return Err(self.error("the resolution must be positive"));
        }
        let names: Vec<String> = quantiles.iter().map(f64::to_string).chain(["max".to_owned()]).collect();
        let _batch = self.registry.batch();
        let indom = self.registry.indom(&self.name).help("quantiles");
        let indom = indom.numbered((0..).zip(names.iter().map(String::as_str))).register()?;
        let (name, help) = (self.named("quantile"), self.help_on("quantiles of recent values"));
        let family = self.registry.gauge(&name).units(self.units).help(&help).over(&indom)?;
        let gauges = names.iter().map(|name| family.instance(name)).collect::<Result<Vec<Gauge>, Error>>()?;
        let max = family.instance("max")?;
        let quantiles = quantiles.iter().copied().zip(gauges).collect();
        let output = Output { quantiles, max, count: self.count()?, sum: self.sum()? };
        Ok(self.registry.inner().add_distribution(self.window, self.resolution, output))
    }

    fn count(&self) -> Result<Counter, Error> {
        let (name, help) = (self.named("count"), self.help_on("number of values"));
        self.registry.counter(&name).help(&help).register()
    }

    fn sum(&self) -> Result<Counter<f64>, Error> {
        let (name, help) = (self.named("sum"), self.help_on("sum of the values"));
        self.registry.metric::<Counter<f64>>(&name).units(self.units).help(&help).register()
    }

    fn named(&self, part: &str) -> String {
        format!("{}.{part}", self.name)
    }

    fn help_on(&self, part: &str) -> String {
        if self.help.is_empty() { part.to_owned() } else { format!("{}: {part}", self.help) }
    }

    fn error(&self, reason: &'static str) -> Error {
        Error::Histogram { name: self.name.clone(), reason }
    }
}
