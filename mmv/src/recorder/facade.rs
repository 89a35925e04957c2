//! Conversion of the facade's handles and units to those of PCP.

use std::sync::Arc;

use metrics::{CounterFn, GaugeFn, HistogramFn, Key, Unit};

use crate::sync::Lock;
use crate::{Counter, Gauge, Quantiles, Units};

/// Sorts the labels of a key, because the facade distinguishes keys by the order of their labels.
pub(super) fn sorted(key: &Key) -> Key {
    let (name, mut labels) = key.clone().into_parts();
    labels.sort_by(|a, b| (a.key(), a.value()).cmp(&(b.key(), b.value())));
    Key::from_parts(name, labels)
}

/// Returns the PCP units of a facade unit. PCP has no bits and no percent.
pub(super) fn units(unit: Unit) -> Units {
    match unit {
        Unit::Count => Units::COUNT,
        Unit::Seconds => Units::SECONDS,
        Unit::Milliseconds => Units::MILLISECONDS,
        Unit::Microseconds => Units::MICROSECONDS,
        Unit::Nanoseconds => Units::NANOSECONDS,
        Unit::Tebibytes => Units::TBYTES,
        Unit::Gibibytes => Units::GBYTES,
        Unit::Mebibytes => Units::MBYTES,
        Unit::Kibibytes => Units::KBYTES,
        Unit::Bytes => Units::BYTES,
        Unit::CountPerSecond => Units::COUNT.per(Units::SECONDS),
        Unit::Percent
        | Unit::TerabitsPerSecond
        | Unit::GigabitsPerSecond
        | Unit::MegabitsPerSecond
        | Unit::KilobitsPerSecond
        | Unit::BitsPerSecond => Units::NONE,
    }
}

pub(super) struct FacadeCounter {
    pub counter: Counter,
    /// Locked while the counter is set, which is a read and an addition.
    pub setting: Arc<Lock<()>>,
}

impl CounterFn for FacadeCounter {
    fn increment(&self, n: u64) {
        self.counter.add(n);
    }

    fn absolute(&self, value: u64) {
        let _held = self.setting.lock();
        self.counter.add(value.saturating_sub(self.counter.get()));
    }
}

pub(super) struct FacadeGauge(pub Gauge);

impl GaugeFn for FacadeGauge {
    fn increment(&self, n: f64) {
        self.0.add(n);
    }

    fn decrement(&self, n: f64) {
        self.0.sub(n);
    }

    fn set(&self, value: f64) {
        self.0.set(value);
    }
}

pub(super) struct FacadeHistogram(pub Quantiles);

impl HistogramFn for FacadeHistogram {
    fn record(&self, value: f64) {
        self.0.record(value);
    }
}
