//! Distributions.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Counter;

/// A distribution as counts of values between boundaries; every update is exact and without locks.
///
/// Made by [`HistogramBuilder::buckets`](crate::HistogramBuilder::buckets).
#[derive(Clone)]
pub struct Buckets {
    pub(crate) bounds: Arc<[f64]>,
    /// One more than there are bounds.
    pub(crate) buckets: Arc<[Counter]>,
    pub(crate) count: Counter,
    pub(crate) sum: Counter<f64>,
}

impl Buckets {
    /// Counts a value, if it is finite: a sum would never recover from another.
    pub fn record(&self, value: f64) {
        if !value.is_finite() {
            return;
        }
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(counter) = self.buckets.get(bucket) {
            counter.inc();
        }
        self.count.inc();
        self.sum.add(value);
    }

    /// Counts a duration, in seconds.
    pub fn record_duration(&self, time: Duration) {
        self.record(time.as_secs_f64());
    }

    /// How many values there were.
    pub fn count(&self) -> u64 {
        self.count.get()
    }
}

impl fmt::Debug for Buckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buckets").field("bounds", &self.bounds).field("count", &self.count()).finish_non_exhaustive()
    }
}
