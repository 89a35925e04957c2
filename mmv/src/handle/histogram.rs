//! Distributions.

use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::sharded::shard_count;
use super::{Counter, Flush, Gauge};
use crate::sync::{Mutex, thread_number};

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

/// A distribution as quantiles of the recent values, kept by hdrhistogram.
///
/// Each thread records to a place of its own; the registry's [`flush`](crate::Registry::flush)
/// computes the quantiles. Made by [`HistogramBuilder::quantiles`](crate::HistogramBuilder::quantiles).
#[derive(Clone)]
pub struct Quantiles {
    recorder: Arc<Recorder>,
}

impl Quantiles {
    pub(crate) fn new(recorder: Arc<Recorder>) -> Quantiles {
        Quantiles { recorder }
    }

    /// Records a value, if it is finite; a negative one counts as 0.
    pub fn record(&self, value: f64) {
        self.recorder.record(value);
    }

    /// Records a duration, in seconds.
    pub fn record_duration(&self, time: Duration) {
        self.record(time.as_secs_f64());
    }
}

impl fmt::Debug for Quantiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quantiles").field("count", &self.recorder.count).finish_non_exhaustive()
    }
}

/// What the threads recorded, and where the flush writes it.
pub(crate) struct Recorder {
    shards: Box<[Mutex<Shard>]>,
    window: Mutex<Window>,
    resolution: f64,
    quantiles: Vec<(f64, Gauge)>,
    max: Gauge,
    count: Counter,
    sum: Counter<f64>,
}

/// Where [`Recorder`] writes.
pub(crate) struct Output {
    pub quantiles: Vec<(f64, Gauge)>,
    pub max: Gauge,
    pub count: Counter,
    pub sum: Counter<f64>,
}

struct Shard {
    values: Histogram<u64>,
    sum: f64,
}

/// The values of the last one to two periods.
struct Window {
    period: Duration,
    since: Instant,
    now: Histogram<u64>,
    before: Histogram<u64>,
}

impl Recorder {
    /// A recorder that tells values apart that differ by 1 % or by `resolution`, whichever is more.
    pub(crate) fn new(
        period: Duration,
        resolution: f64,
        output: Output,
    ) -> Result<Recorder, hdrhistogram::CreationError> {
        let empty = Histogram::new(2)?;
        let shard = || Mutex::new(Shard { values: empty.clone(), sum: 0.0 });
        let shards = (0..shard_count()).map(|_| shard()).collect();
        let window = Window { period, since: Instant::now(), now: empty.clone(), before: empty };
        let Output { quantiles, max, count, sum } = output;
        Ok(Recorder { shards, window: Mutex::new(window), resolution, quantiles, max, count, sum })
    }

    fn record(&self, value: f64) {
        if !value.is_finite() {
            return;
        }
        let Some(shard) = self.shards.get(thread_number() & (self.shards.len() - 1)) else { return };
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        // A float too large for the integer becomes the nearest one, and the histogram resizes itself for
        // any integer, so that recording does not fail.
        _ = shard.values.record((value / self.resolution).round() as u64);
        shard.sum += value;
    }
}

impl Flush for Recorder {
    fn flush(&self) {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        if window.since.elapsed() >= window.period {
            window.rotate();
        }
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            if !shard.values.is_empty() {
                self.count.add(shard.values.len());
                self.sum.add(std::mem::take(&mut shard.sum));
                // Both resize themselves, so that adding cannot fail.
                _ = window.now.add(&shard.values);
                shard.values.reset();
            }
        }
        let mut all = window.now.clone();
        _ = all.add(&window.before);
        drop(window);
        for (quantile, gauge) in &self.quantiles {
            self.set(gauge, &all, |all| all.value_at_quantile(*quantile));
        }
        self.set(&self.max, &all, Histogram::max);
    }
}

impl Recorder {
    fn set(&self, gauge: &Gauge, values: &Histogram<u64>, of: impl Fn(&Histogram<u64>) -> u64) {
        if values.is_empty() {
            gauge.clear();
        } else {
            gauge.set(of(values) as f64 * self.resolution);
        }
    }
}

impl Window {
    fn rotate(&mut self) {
        std::mem::swap(&mut self.now, &mut self.before);
        self.now.reset();
        self.since = Instant::now();
    }
}
