//! Registration of distributions.

use std::sync::Arc;
use std::time::Duration;

use pmapi::Units;

use super::Registry;
use crate::Error;
use crate::handle::{Buckets, Counter, Gauge, Output, Quantiles};

/// A distribution about to be registered.
///
/// Under its name there are `count`, `sum` and, over an instance domain, `bucket` or `quantile`.
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

    /// One line of help.
    pub fn help(mut self, line: &str) -> Self {
        line.clone_into(&mut self.help);
        self
    }

    /// Dimension and scale of the values; seconds without this.
    pub fn units(mut self, units: Units) -> Self {
        self.units = units;
        self
    }

    /// How long values count for the quantiles: at least this long, at most twice as long. A minute
    /// without this.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// The smallest value that quantiles tell from 0; one millionth without this.
    pub fn resolution(mut self, resolution: f64) -> Self {
        self.resolution = resolution;
        self
    }

    /// Registers counts of values in buckets with these ascending upper boundaries, and of those
    /// above. A bucket counts the values above the boundary before it, up to and with its own.
    /// [`Error::Histogram`] when they do not ascend, and the errors of
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

    /// Registers quantiles between 0 and 1, for instance 0.5 for the median, and the maximum; errors as
    /// from [`buckets`](HistogramBuilder::buckets).
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
