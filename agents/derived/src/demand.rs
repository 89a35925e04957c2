//! What clients have asked for lately.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pmapi::InDom;

use crate::metrics::Metrics;

/// Until when each metric is sampled, and which instance domains have been asked about since the last sample.
#[derive(Debug)]
pub(crate) struct Demand {
    /// Times are from here on.
    start: Instant,
    /// Nanoseconds; 0 for never.
    metrics: Vec<AtomicU64>,
    /// Sorted by domain.
    indoms: Vec<Asked>,
}

/// What has been asked about an instance domain.
#[derive(Debug)]
struct Asked {
    indom: InDom,
    /// Since the last sample.
    instances: AtomicBool,
    /// Ever.
    labels: AtomicBool,
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
            indoms: indoms.into_iter().map(|indom| self.asked(indom)).collect(),
        }
    }

    fn after(&self, time: Duration) -> u64 {
        u64::try_from((self.start.elapsed() + time).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Has a metric sampled for some time.
    pub(crate) fn ask(&self, place: usize, time: Duration) {
        if let Some(until) = self.metrics.get(place) {
            until.fetch_max(self.after(time), Relaxed);
        }
    }

    fn find(&self, indom: InDom) -> Option<&Asked> {
        let at = self.indoms.binary_search_by_key(&indom.word(), |asked| asked.indom.word()).ok()?;
        self.indoms.get(at)
    }

    /// What a domain begins with in the next demand.
    fn asked(&self, indom: InDom) -> Asked {
        Asked { indom, instances: AtomicBool::new(false), labels: self.wants_labels(indom).into() }
    }

    /// Somebody asks for the instances of a domain, perhaps for labels.
    pub(crate) fn ask_instances(&self, indom: InDom, labels: bool) {
        if let Some(asked) = self.find(indom) {
            asked.labels.fetch_or(labels, Relaxed);
            asked.instances.store(true, Relaxed);
        }
    }

    /// Whether somebody has asked for the labels of a domain.
    pub(crate) fn wants_labels(&self, indom: InDom) -> bool {
        self.find(indom).is_some_and(|asked| asked.labels.load(Relaxed))
    }

    /// The metrics that are to be sampled now.
    pub(crate) fn update(&self, wanted: &mut Vec<bool>) {
        let now = self.after(Duration::ZERO);
        wanted.clear();
        wanted.extend(self.metrics.iter().map(|until| until.load(Relaxed) >= now));
    }

    /// The domains whose instances have been asked for since the last time.
    pub(crate) fn take_indoms(&self) -> impl Iterator<Item = InDom> {
        self.indoms.iter().filter(|asked| asked.instances.swap(false, Relaxed)).map(|asked| asked.indom)
    }
}
