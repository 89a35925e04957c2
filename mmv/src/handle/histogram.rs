//! Distributions as buckets.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Counter;
use super::number::is_summable;

/// A distribution as counts of values between boundaries. Each update is exact and takes no lock.
///
/// Created by [`HistogramBuilder::buckets`](crate::HistogramBuilder::buckets).
#[derive(Clone)]
pub struct Buckets {
    pub(crate) bounds: Arc<[f64]>,
    /// One bucket for each boundary, and one for the values above all of them.
    pub(crate) buckets: Arc<[Counter]>,
    pub(crate) count: Counter,
    pub(crate) sum: Counter<f64>,
}

impl Buckets {
    /// Records a value. Values that are not finite, or beyond ±9.7e288, are ignored, because the sum would never
    /// recover from them.
    pub fn record(&self, value: f64) {
        if !is_summable(value) {
            return;
        }
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(counter) = self.buckets.get(bucket) {
            counter.inc();
        }
        self.count.inc();
        self.sum.add(value);
    }

    /// Records a duration, in seconds.
    pub fn record_duration(&self, time: Duration) {
        self.record(time.as_secs_f64());
    }

    /// Returns the number of recorded values.
    pub fn count(&self) -> u64 {
        self.count.get()
    }
}

impl fmt::Debug for Buckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buckets").field("bounds", &self.bounds).field("count", &self.count()).finish_non_exhaustive()
    }
}
