//! Metrics and instance domains that clients have requested lately.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pmapi::InDom;

use crate::metrics::Metrics;

/// Number of intervals for which a metric is sampled after a fetch: at least [`LINGER`], and longer for clients that
/// fetch at long intervals ([`Demand::fetch`]).
const SAMPLES: u32 = 10;
const LINGER: Duration = Duration::from_secs(60);

/// Number of intervals for which a metric is sampled after a client has looked it up: at least [`LOOK`].
const LOOKS: u32 = 2;
const LOOK: Duration = Duration::from_secs(5);

/// Longest time between two fetches that counts as a client's interval.
const RARELY: Duration = Duration::from_secs(2 * 3600);

/// Demand of clients: until when each metric is sampled, and which instance domains have been requested since the last
/// sample.
#[derive(Debug)]
pub(crate) struct Demand {
    /// Origin of all times.
    start: Instant,
    metrics: Vec<Times>,
    /// Instance domains, sorted.
    indoms: Vec<Asked>,
}

/// Times of a metric, in nanoseconds since [`Demand::start`]. 0 means never.
#[derive(Default, Debug)]
struct Times {
    /// Time until which the metric is sampled.
    until: AtomicU64,
    /// Time of the last fetch.
    fetched: AtomicU64,
}

impl Clone for Times {
    fn clone(&self) -> Times {
        Times { until: self.until.load(Relaxed).into(), fetched: self.fetched.load(Relaxed).into() }
    }
}

/// Requests of clients about an instance domain.
#[derive(Debug)]
struct Asked {
    indom: InDom,
    /// Instances have been requested since the last sample.
    instances: AtomicBool,
    /// Labels have been requested at some time.
    labels: AtomicBool,
}

impl Default for Demand {
    fn default() -> Demand {
        Demand { start: Instant::now(), metrics: Vec::new(), indoms: Vec::new() }
    }
}

impl Demand {
    /// Creates the demand for the metrics `new`. A metric that keeps its name keeps its times.
    pub(super) fn carried_over(&self, old: &Metrics, new: &Metrics) -> Demand {
        let times: HashMap<&str, &Times> =
            old.good.iter().zip(&self.metrics).map(|(metric, times)| (metric.name.as_str(), times)).collect();
        let mut indoms: Vec<InDom> = new.good.iter().filter_map(|metric| metric.desc.indom).collect();
        indoms.sort_unstable_by_key(|indom| indom.word());
        indoms.dedup();
        Demand {
            start: self.start,
            metrics: new
                .good
                .iter()
                .map(|metric| times.get(&*metric.name).copied().cloned().unwrap_or_default())
                .collect(),
            indoms: indoms.into_iter().map(|indom| self.asked(indom)).collect(),
        }
    }

    fn after(&self, time: Duration) -> u64 {
        u64::try_from((self.start.elapsed() + time).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Requests samples of a metric for `time` from now on.
    pub(super) fn ask(&self, place: usize, time: Duration) {
        if let Some(times) = self.metrics.get(place) {
            times.until.fetch_max(self.after(time), Relaxed);
        }
    }

    /// Requests samples of a metric that a client has looked up, because the client may fetch it next.
    pub(crate) fn look_up(&self, place: usize, interval: Duration) {
        self.ask(place, (interval * LOOKS).max(LOOK));
    }

    /// Records a fetch of a metric, and requests samples: for some intervals, or for twice the time since the previous
    /// fetch if that is longer. So a client that fetches regularly, even at long intervals, finds the metric sampled.
    pub(crate) fn fetch(&self, place: usize, interval: Duration) {
        let Some(times) = self.metrics.get(place) else { return };
        let now = self.after(Duration::ZERO);
        let before = times.fetched.swap(now, Relaxed);
        let between = Duration::from_nanos(now - before.min(now));
        let regular = before > 0 && between <= RARELY;
        let time = (interval * SAMPLES).max(LINGER);
        self.ask(place, if regular { time.max(between * 2) } else { time });
    }

    fn find(&self, indom: InDom) -> Option<&Asked> {
        let at = self.indoms.binary_search_by_key(&indom.word(), |asked| asked.indom.word()).ok()?;
        self.indoms.get(at)
    }

    /// Creates the entry of a domain in the next demand. The instances of a new domain count as requested, because
    /// clients will soon want them.
    fn asked(&self, indom: InDom) -> Asked {
        let new = self.find(indom).is_none();
        Asked { indom, instances: new.into(), labels: self.wants_labels(indom).into() }
    }

    /// Requests the instances of a domain, and its labels if `labels` is true.
    pub(crate) fn ask_instances(&self, indom: InDom, labels: bool) {
        if let Some(asked) = self.find(indom) {
            asked.labels.fetch_or(labels, Relaxed);
            asked.instances.store(true, Relaxed);
        }
    }

    /// Returns whether clients have requested the labels of a domain.
    pub(super) fn wants_labels(&self, indom: InDom) -> bool {
        self.find(indom).is_some_and(|asked| asked.labels.load(Relaxed))
    }

    /// Sets `wanted` for each metric that is to be sampled now.
    pub(super) fn update(&self, wanted: &mut Vec<bool>) {
        let now = self.after(Duration::ZERO);
        wanted.clear();
        wanted.extend(self.metrics.iter().map(|times| times.until.load(Relaxed) >= now));
    }

    /// Returns the domains whose instances have been requested since the last call.
    pub(super) fn take_indoms(&self) -> impl Iterator<Item = InDom> {
        self.indoms.iter().filter(|asked| asked.instances.swap(false, Relaxed)).map(|asked| asked.indom)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use pmapi::{Desc, Domain, Item, PmId, Semantics, Serial, Type, Units};

    use super::*;
    use crate::metrics::Metric;

    fn indom(serial: u32) -> InDom {
        InDom::new(Domain::new(60).unwrap(), Serial::new(serial))
    }

    /// Creates one metric for each number, in the instance domain of that number.
    fn metrics(numbers: &[u32]) -> Metrics {
        Metrics { good: numbers.iter().map(|number| metric(*number)).collect(), bad: Vec::new() }
    }

    fn metric(number: u32) -> Metric {
        let pmid = PmId::new(Domain::new(510).unwrap(), Item::new(0, 1));
        let (ty, semantics, units) = (Type::U32, Semantics::Instant, Units::NONE);
        let desc = Desc { pmid, ty, indom: Some(indom(number)), semantics, units };
        let (name, oneline, help) = (format!("derived.m{number}"), String::new(), String::new());
        Metric { name, desc, oneline, help, labels: Vec::new(), id: pcp_derive::DefinitionId::new(number as usize) }
    }

    fn wanted(demand: &Demand) -> Vec<bool> {
        let mut wanted = vec![true; 9];
        demand.update(&mut wanted);
        wanted
    }

    #[test]
    fn requested_metrics_are_sampled_for_some_time() {
        let metrics = metrics(&[0, 1, 2]);
        let demand = Demand::default().carried_over(&Metrics::default(), &metrics);
        assert_eq!(wanted(&demand), [false; 3]);
        demand.ask(0, Duration::from_secs(3600));
        // The later end counts.
        demand.ask(0, Duration::ZERO);
        demand.ask(1, Duration::ZERO);
        demand.ask(7, Duration::ZERO);
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(wanted(&demand), [true, false, false]);
    }

    #[test]
    fn metrics_of_regular_clients_stay_sampled() {
        let metrics = metrics(&[0, 1]);
        let mut demand = Demand::default().carried_over(&Metrics::default(), &metrics);
        let pass = |demand: &mut Demand, seconds| demand.start -= Duration::from_secs(seconds);
        demand.fetch(0, Duration::from_secs(6));
        demand.fetch(1, Duration::from_secs(6));
        pass(&mut demand, 300);
        assert_eq!(wanted(&demand), [false, false]);
        demand.fetch(0, Duration::from_secs(6));
        for _ in 0..5 {
            pass(&mut demand, 300);
            assert_eq!(wanted(&demand), [true, false]);
            demand.fetch(0, Duration::from_secs(6));
        }
        // Sampling ends after twice the interval. A fetch after a long pause is not taken for an interval.
        pass(&mut demand, 601);
        assert_eq!(wanted(&demand), [false, false]);
        pass(&mut demand, 10_000);
        demand.fetch(0, Duration::from_secs(6));
        pass(&mut demand, 61);
        assert_eq!(wanted(&demand), [false, false]);
    }

    #[test]
    fn demand_stays_with_names() {
        let (old, new) = (metrics(&[0, 1, 2]), metrics(&[5, 2, 1]));
        let demand = Demand::default().carried_over(&Metrics::default(), &old);
        demand.ask(2, Duration::from_secs(3600));
        demand.ask_instances(indom(1), true);
        demand.ask_instances(indom(9), true);
        let demand = demand.carried_over(&old, &new);
        assert_eq!(wanted(&demand), [false, true, false]);
        assert!(demand.wants_labels(indom(1)) && !demand.wants_labels(indom(2)));
        demand.ask_instances(indom(5), false);
        demand.ask_instances(indom(2), false);
        assert_eq!(demand.take_indoms().collect::<Vec<_>>(), [indom(2), indom(5)]);
        assert_eq!(demand.take_indoms().count(), 0);
    }
}
