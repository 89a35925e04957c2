//! What clients have asked for lately.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pmapi::InDom;

use crate::metrics::Metrics;

/// When each metric was asked for last, and which instance domains have been asked about since the last sample.
#[derive(Debug)]
pub(crate) struct Demand {
    /// Times are from here on.
    start: Instant,
    /// Nanoseconds; 0 for never.
    metrics: Vec<AtomicU64>,
    /// Sorted.
    indoms: Vec<(InDom, AtomicBool)>,
}

impl Default for Demand {
    fn default() -> Demand {
        Demand { start: Instant::now(), metrics: Vec::new(), indoms: Vec::new() }
    }
}

impl Demand {
    /// For other metrics; of those that have kept their name the demand stays.
    pub(crate) fn carried_over(&self, old: &Metrics, new: &Metrics) -> Demand {
        let times = old.good.iter().zip(&self.metrics).map(|(metric, time)| (metric.name.as_str(), time.load(Relaxed)));
        let times: std::collections::HashMap<_, _> = times.collect();
        let time = |name: &str| times.get(name).copied().unwrap_or_default();
        let mut indoms: Vec<InDom> = new.good.iter().filter_map(|metric| metric.desc.indom).collect();
        indoms.sort_unstable_by_key(|indom| indom.word());
        indoms.dedup();
        Demand {
            start: self.start,
            metrics: new.good.iter().map(|metric| time(&metric.name).into()).collect(),
            indoms: indoms.into_iter().map(|indom| (indom, AtomicBool::new(false))).collect(),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Somebody asks for a metric.
    pub(crate) fn ask(&self, place: usize) {
        if let Some(time) = self.metrics.get(place) {
            time.store(self.now(), Relaxed);
        }
    }

    /// Somebody asks for the instances of a domain.
    pub(crate) fn ask_instances(&self, indom: InDom) {
        if let Ok(at) = self.indoms.binary_search_by_key(&indom.word(), |(indom, _)| indom.word()) {
            self.indoms[at].1.store(true, Relaxed);
        }
    }

    /// The metrics that have been asked for within some time, into `wanted`. Whether these are others than before.
    pub(crate) fn update(&self, within: Duration, wanted: &mut Vec<bool>) -> bool {
        let since = self.now().saturating_sub(u64::try_from(within.as_nanos()).unwrap_or(u64::MAX));
        let mut changed = wanted.len() != self.metrics.len();
        wanted.resize(self.metrics.len(), false);
        for (wanted, time) in wanted.iter_mut().zip(&self.metrics) {
            let time = time.load(Relaxed);
            let now = time > 0 && time >= since;
            changed |= *wanted != now;
            *wanted = now;
        }
        changed
    }

    /// The domains whose instances have been asked for since the last time.
    pub(crate) fn take_indoms(&self) -> impl Iterator<Item = InDom> {
        self.indoms.iter().filter(|(_, asked)| asked.swap(false, Relaxed)).map(|(indom, _)| *indom)
    }
}
