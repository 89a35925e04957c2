//! Quantiles of recent values, in bounded memory.
//!
//! A thread records values to a buffer, which all distributions of the registry share, and few other threads. A full
//! buffer, or a flush, moves the values to their distributions. The memory of a distribution therefore depends on its
//! values, not on the number of threads.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::number::is_summable;
use super::sharded::shard_count;
use super::window::Window;
use super::{Counter, Gauge};
use crate::os::forks::forks;
use crate::sync::{Lock, thread_number};

/// A distribution as quantiles of recent values.
///
/// Each thread records to a buffer; the registry's [`flush`](crate::Registry::flush) computes the quantiles. They
/// differ by less than 1 % from recorded values. Created by
/// [`HistogramBuilder::quantiles`](crate::HistogramBuilder::quantiles).
///
/// # Memory
///
/// The values between two powers of two take 256 bytes in each of two windows: 4 KiB for values that differ up to
/// 256-fold. All distributions of the process share at most 64 MiB. Beyond that, new values are counted only by their
/// power of two, so their quantiles are exact to one half. Counts, sums and maxima stay exact.
///
/// In a forked child, the handles of its parent record nothing: nothing there computes quantiles.
#[derive(Clone)]
pub struct Quantiles {
    distributions: Arc<Distributions>,
    index: u32,
}

impl Quantiles {
    /// Records a value. Values that are not finite, or beyond ±9.7e288, are ignored, because the sum would never
    /// recover from them. In the quantiles, a negative value counts as 0.
    pub fn record(&self, value: f64) {
        self.distributions.record(self.index, value);
    }

    /// Records a duration, in seconds.
    pub fn record_duration(&self, time: Duration) {
        self.record(time.as_secs_f64());
    }
}

impl fmt::Debug for Quantiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quantiles").field("index", &self.index).finish_non_exhaustive()
    }
}

/// The distributions of a registry.
pub(crate) struct Distributions {
    buffers: Box<[Mutex<Vec<Value>>]>,
    list: Lock<Vec<Distribution>>,
    /// Number of forks before the process that flushes.
    forks: u32,
}

/// A value, preceded by the index of its distribution.
type Value = (u32, f64);

/// Values per buffer.
const FULL: usize = 256;
/// The values of one to two periods, and the handles to which a flush writes the quantiles.
struct Distribution {
    resolution: f64,
    period: Duration,
    output: Output,
    /// Start of the present period.
    since: Instant,
    now: Window,
    before: Window,
    /// Number of values since the last flush, and their sum.
    count: u64,
    sum: f64,
    /// Whether the output lags behind the recorded values.
    stale: bool,
}

/// The handles that export a distribution.
pub(crate) struct Output {
    pub quantiles: Vec<(f64, Gauge)>,
    pub max: Gauge,
    pub count: Counter,
    pub sum: Counter<f64>,
}

impl Default for Distributions {
    fn default() -> Self {
        let buffers = (0..shard_count()).map(|_| Mutex::default()).collect();
        Distributions { buffers, list: Lock::default(), forks: forks() }
    }
}

impl Distributions {
    /// Adds a distribution. Values below `resolution` count as 0.
    pub(crate) fn add(self: &Arc<Self>, period: Duration, resolution: f64, output: Output) -> Quantiles {
        let since = Instant::now();
        let (now, before) = Default::default();
        let new = Distribution { resolution, period, output, since, now, before, count: 0, sum: 0.0, stale: true };
        let mut index = u32::MAX;
        if let Some(mut list) = self.list.lock() {
            index = list.len() as u32;
            list.push(new);
        }
        Quantiles { distributions: Arc::clone(self), index }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.lock().is_none_or(|list| list.is_empty())
    }

    #[inline]
    fn record(&self, index: u32, value: f64) {
        // In a forked child, a buffer may stay locked.
        if !is_summable(value) || self.forks != forks() {
            return;
        }
        let Some(mut buffer) = self.buffer() else { return };
        buffer.push((index, value));
        if buffer.len() >= FULL {
            self.empty(&mut buffer);
        }
    }

    /// Returns a buffer that no other thread is using, preferably the thread's own.
    #[inline]
    fn buffer(&self) -> Option<MutexGuard<'_, Vec<Value>>> {
        let own = thread_number();
        // The number of buffers is a power of two.
        let buffer = |n: usize| self.buffers.get(n & (self.buffers.len() - 1));
        match buffer(own)?.try_lock() {
            Ok(buffer) => return Some(buffer),
            Err(TryLockError::Poisoned(buffer)) => return Some(buffer.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
        let free = (1..self.buffers.len()).find_map(|n| buffer(own + n)?.try_lock().ok());
        free.or_else(|| Some(buffer(own)?.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Moves the values of a buffer to their distributions.
    fn empty(&self, buffer: &mut Vec<Value>) {
        if let Some(mut list) = self.list.lock() {
            for (index, value) in buffer.iter() {
                if let Some(distribution) = list.get_mut(*index as usize) {
                    distribution.add(*value);
                }
            }
        }
        buffer.clear();
    }

    /// Moves all buffered values, and writes the quantiles to the file. The list is unlocked in between, so that
    /// threads with full buffers can continue.
    pub(crate) fn flush(&self) {
        for buffer in &self.buffers {
            self.empty(&mut buffer.lock().unwrap_or_else(PoisonError::into_inner));
        }
        for index in 0.. {
            let Some(mut list) = self.list.lock() else { return };
            let Some(distribution) = list.get_mut(index) else { return };
            distribution.flush();
        }
    }
}

impl Distribution {
    fn add(&mut self, value: f64) {
        // The cast saturates: a value that is too large becomes `u64::MAX`, and a negative one becomes 0.
        self.now.add((value / self.resolution).round() as u64);
        self.count += 1;
        self.sum += value;
        self.stale = true;
    }

    fn flush(&mut self) {
        if self.since.elapsed() >= self.period {
            std::mem::swap(&mut self.now, &mut self.before);
            self.stale |= !self.now.is_empty();
            self.now = Window::default();
            self.since = Instant::now();
        }
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let Output { quantiles, max, count, sum } = &self.output;
        count.add(std::mem::take(&mut self.count));
        sum.add(std::mem::take(&mut self.sum));
        let both = [&self.before, &self.now];
        if both.iter().all(|window| window.is_empty()) {
            quantiles.iter().map(|(_, gauge)| gauge).chain([max]).for_each(Gauge::clear);
            return;
        }
        let values = Window::quantiles(both, quantiles.iter().map(|(quantile, _)| *quantile));
        for ((_, gauge), value) in quantiles.iter().zip(values) {
            gauge.set(multiple(value, self.resolution));
        }
        max.set(multiple(Window::max(both), self.resolution));
    }
}

/// Returns a multiple of a resolution. A decimal resolution such as 1e-9 is not exact, but its reciprocal is: the quotient
/// is then the number that was recorded, and not a neighbor such as 0.8999999999999999.
fn multiple(n: u64, resolution: f64) -> f64 {
    let reciprocal = resolution.recip().round();
    if reciprocal >= 1.0 && reciprocal.recip() == resolution { n as f64 / reciprocal } else { n as f64 * resolution }
}

impl fmt::Debug for Distributions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Distributions").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::multiple;

    #[test]
    fn multiples_of_decimal_resolutions_are_the_recorded_numbers() {
        for (resolution, n, expected) in [
            (1e-9, 900_000_000, 0.9),
            (1e-9, 3, 3e-9),
            (1e-6, 700_000, 0.7),
            (1e-3, 1_001, 1.001),
            (0.25, 3, 0.75),
            (2.5, 3, 7.5),
            (1.0, u64::MAX, u64::MAX as f64),
        ] {
            assert_eq!(multiple(n, resolution), expected, "{resolution}");
        }
        // Every number of thousandths, where a product would often be a neighbor.
        assert!((0..10_000).all(|n| multiple(n, 1e-3) == f64::from(n as u32) / 1000.0));
    }
}
