//! A source as the agent sees it: its last sample, and how it behaves.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pmapi::backoff::Backoff;
use pmapi::{Error, LabelSet, Result};
use pmda::Values;
use serde_json::json;

use crate::config_dir::Found;
use crate::metric::{Metric, NO_SLOT, Sample};
use crate::reader::{Kind, Reader, Report};
use crate::url_file::Limits;

/// A source.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) found: Found,
    pub(crate) reader: Arc<Mutex<Reader>>,
    /// The last sample, unless the source has failed since.
    sample: Option<Arc<Sample>>,
    /// All metrics since the agent started.
    metrics: Arc<[Arc<Metric>]>,
    /// Index of each metric in `metrics`, by its number.
    places: Vec<Option<usize>>,
    url: Option<String>,
    pub(crate) limits: Limits,
    pub(crate) figures: Figures,
    /// When the reading in progress was requested.
    pub(crate) asked: Option<Instant>,
    pub(crate) last_asked: Option<Instant>,
    /// Whether requests do not wait for the source.
    pub(crate) is_late: bool,
    /// Time that readings usually take.
    usual: Option<Duration>,
    pauses: Backoff,
    /// Whether the file has been removed.
    pub(crate) is_removed: bool,
}

/// How long requests wait for a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waits {
    /// Three times as long as it usually takes.
    AsUsual,
    /// Up to the limit.
    Fully,
}

/// What the control metrics say about a source.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) calls: u64,
    pub(crate) fetching: Duration,
    pub(crate) parsing: Duration,
    pub(crate) status: String,
    pub(crate) code: i32,
    /// Duration of the last reading.
    pub(crate) took: Duration,
    pub(crate) taken: Option<Instant>,
    pub(crate) bytes: u64,
    pub(crate) lines: u64,
    pub(crate) left_out: u64,
    pub(crate) refused: Option<(usize, String)>,
    /// Readings that failed.
    pub(crate) errors: u64,
    /// Why the last one of them failed.
    pub(crate) error: String,
}

/// Pauses after readings that did not end in time.
const PAUSES: [Duration; 6] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(15),
];

/// Shortest time that a request waits for a source that is usually faster.
const SHORTEST: Duration = Duration::from_millis(8);
/// Time that a request waits for a source that has never been read.
const FIRST: Duration = Duration::from_millis(100);
/// Oldest sample that is used while the next reading is late.
const OLDEST: Duration = Duration::from_secs(5);

impl Source {
    pub(crate) fn new(found: Found, reader: Reader) -> Source {
        Source {
            found,
            reader: Arc::new(Mutex::new(reader)),
            sample: None,
            metrics: Arc::new([]),
            places: Vec::new(),
            url: None,
            limits: Limits::default(),
            figures: Figures { status: "unknown".to_owned(), ..Figures::default() },
            asked: None,
            last_asked: None,
            is_late: false,
            usual: None,
            pauses: Backoff::default(),
            is_removed: false,
        }
    }

    /// Returns the metric with a number.
    pub(crate) fn metric(&self, number: u16) -> Option<&Metric> {
        let place = (*self.places.get(usize::from(number))?)?;
        self.metrics.get(place).map(|metric| &**metric)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.metrics.is_empty()
    }

    /// Returns all metrics since the agent started.
    pub(crate) fn metrics(&self) -> &Arc<[Arc<Metric>]> {
        &self.metrics
    }

    /// Returns whether a reading may begin now.
    pub(crate) fn may_be_read(&self) -> bool {
        self.asked.is_none() && !self.is_removed && self.pauses.is_due()
    }

    /// Returns for how long a request waits for the reading in progress, `None` for not at all. It is three times the
    /// usual time, so that a source that suddenly hangs does not stop the clients of other sources for long.
    pub(crate) fn patience(&self, most: Duration, waits: Waits) -> Option<Duration> {
        if self.is_late || self.asked.is_none() || self.is_removed {
            return None;
        }
        let most = self.limits.wait.unwrap_or(most);
        if waits == Waits::Fully {
            return Some(most).filter(|patience| !patience.is_zero());
        }
        let usual = self.usual.map_or(FIRST, |usual| (usual * 3 + SHORTEST / 2).max(SHORTEST));
        Some(usual.min(most)).filter(|patience| !patience.is_zero())
    }

    /// Applies the outcome of a reading. Returns the metrics before it.
    pub(crate) fn adopt(&mut self, report: Report) -> Arc<[Arc<Metric>]> {
        let before = Arc::clone(&self.metrics);
        let asked = self.asked.take();
        if report.url.is_some() {
            self.url = report.url;
        }
        self.limits = report.limits;
        let figures = &mut self.figures;
        figures.took = report.took;
        figures.code = i32::from(report.code);
        match report.outcome {
            Ok(sample) => {
                figures.fetching += report.took;
                figures.parsing += sample.parsing;
                "success".clone_into(&mut figures.status);
                figures.taken = Some(sample.taken);
                (figures.bytes, figures.lines) = (sample.bytes, sample.lines);
                figures.left_out += sample.left_out;
                figures.refused.clone_from(&sample.refused);
                self.pauses.succeeded();
                self.is_late = false;
                let took = asked.map_or(report.took, |asked| asked.elapsed());
                // The longest recent time counts, because that of a busy machine varies.
                self.usual = Some(self.usual.map_or(took, |usual| took.max(usual - usual / 8)));
                self.show(&sample);
                self.sample = Some(sample);
            }
            Err(failure) => {
                let path = self.found.path.display();
                figures.status = format!("failed to fetch URL or execute script {path}: {}", failure.reason);
                self.is_late = failure.is_late;
                figures.errors += 1;
                figures.error = failure.reason;
                if failure.is_late {
                    self.pause();
                }
                self.sample = None;
            }
        }
        before
    }

    /// Begins a pause, the longest of which the source's file may set.
    fn pause(&mut self) {
        let most = self.limits.backoff.unwrap_or(Duration::MAX);
        let shorter = PAUSES.partition_point(|pause| *pause <= most);
        match PAUSES.get(..shorter).filter(|pauses| !pauses.is_empty()) {
            Some(pauses) => _ = self.pauses.failed(pauses),
            None if most.is_zero() => {}
            None => _ = self.pauses.failed(&[most]),
        }
    }

    /// Says what the source does, in a word.
    pub(crate) fn state(&self) -> &'static str {
        match (self.asked.is_some(), self.is_late) {
            (true, true) => "late",
            (true, false) => "reading",
            (false, _) if !self.pauses.is_due() => "pausing",
            (false, _) if self.sample.is_some() => "ready",
            (false, _) if self.last_asked.is_some() => "failed",
            _ => "new",
        }
    }

    fn show(&mut self, sample: &Sample) {
        if Arc::ptr_eq(&self.metrics, &sample.metrics) {
            return;
        }
        self.metrics = Arc::clone(&sample.metrics);
        self.places.clear();
        for (place, metric) in self.metrics.iter().enumerate() {
            let number = usize::from(metric.number);
            if self.places.len() <= number {
                self.places.resize(number + 1, None);
            }
            if let Some(of) = self.places.get_mut(number) {
                *of = Some(place);
            }
        }
    }

    /// Puts the values of a metric.
    ///
    /// # Errors
    /// `PM_ERR_PMID` for an unknown metric. `PM_ERR_AGAIN` if there is no sample, or it does not have the metric.
    pub(crate) fn fetch(&self, number: u16, out: &mut Values<'_>) -> Result {
        let metric = self.metric(number).ok_or(Error::PMID)?;
        let sample =
            self.sample.as_ref().filter(|sample| sample.taken.elapsed() <= OLDEST || self.limits.interval.is_some());
        let values = &sample.ok_or(Error::AGAIN)?.values;
        if metric.singular {
            let slot = metric.instances.slots.first().copied().unwrap_or(NO_SLOT);
            let value = values.get(slot as usize).and_then(|value| value.atom());
            return out.put(value.ok_or(Error::AGAIN)??);
        }
        let (mut outcome, mut present) = (Err(Error::INST), false);
        for (inst, slot) in metric.instances.slots() {
            match values.get(slot).and_then(|value| value.atom()) {
                None => {}
                Some(Ok(value)) => {
                    present = true;
                    if out.wants(inst) {
                        out.put_inst(inst, value)?;
                        outcome = Ok(());
                    }
                }
                Some(Err(e)) => {
                    present = true;
                    if outcome.is_err() && out.wants(inst) {
                        outcome = Err(e);
                    }
                }
            }
        }
        if present { outcome } else { Err(Error::AGAIN) }
    }

    /// Returns the labels of the source's metrics.
    pub(crate) fn labels(&self, host: &str) -> Option<LabelSet> {
        let name = &self.found.name;
        let mut set = LabelSet::new();
        match self.found.kind {
            Kind::Script => set.add(json!({ "script": self.found.path.to_string_lossy(), "source": name })).ok()?,
            Kind::Url => {
                let url = self.url.as_ref()?;
                let of_url = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
                let of_url = of_url.and_then(|rest| rest.split('/').next()).filter(|host| *host != "localhost");
                set.add(json!({ "hostname": of_url.unwrap_or(host), "source": name, "url": url })).ok()?;
            }
        }
        Some(set)
    }
}
