//! A source from the agent's point of view: its last sample, and how fast it answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pcp_base::backoff::Backoff;
use pmapi::{Error, LabelSet, Result};
use pmda::Values;
use serde_json::json;
use tokio::task::AbortHandle;
use tracing::{info, warn};

use crate::config_dir::Found;
use crate::metric::{Metric, Sample, Shape};
use crate::reader::{Kind, Reader, Report};
use crate::url_file::Limits;

/// A source with its last sample and its schedule.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) found: Found,
    /// `None` during a reading.
    pub(crate) reader: Option<Box<Reader>>,
    /// The task of the last reading.
    pub(crate) task: Option<AbortHandle>,
    /// Number of the last reading.
    pub(crate) call: u64,
    /// The last sample, unless the source has failed since.
    sample: Option<Arc<Sample>>,
    /// All metrics since the agent started.
    metrics: Arc<[Arc<Metric>]>,
    /// Index of each metric in `metrics`, by its number.
    places: Vec<Option<u16>>,
    url: Option<String>,
    pub(crate) limits: Limits,
    pub(crate) figures: Figures,
    /// Time at which the reading in progress was requested.
    pub(crate) asked: Option<Instant>,
    pub(crate) last_asked: Option<Instant>,
    /// Whether requests do not wait for the source.
    pub(crate) is_late: bool,
    /// Time that readings usually take.
    usual: Option<Duration>,
    pauses: Backoff,
    /// Pause after a reading that took much processor time.
    rest: Backoff,
    /// Whether the file has been removed.
    pub(crate) is_removed: bool,
}

/// How long requests wait for a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waits {
    /// Wait for 1.5 times the usual time.
    AsUsual,
    /// Wait until the limit for every source.
    Fully,
}

/// Values of the control metrics of a source.
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
    /// First line of the last document that was refused, and the reason.
    pub(crate) refused: String,
    /// Readings that failed.
    pub(crate) errors: u64,
    /// Reason why the last reading failed.
    pub(crate) error: String,
    /// Memory of metrics, instances and samples, in bytes.
    pub(crate) memory: usize,
}

/// Beginning of the status of a source that has failed, as in PCP's agent.
const FAILED: &str = "failed to fetch URL or execute script";

/// Pauses after readings that did not end in time.
const PAUSES: [Duration; 6] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(15),
];

/// Processor time of a reading after which the source rests for [`REST`] times as long. A server that sends other names
/// in each long document thus keeps a processor busy for a part of the time only.
const BUSY: Duration = Duration::from_millis(500);
const REST: u32 = 3;

/// Shortest time that a request waits for a source that is usually faster.
const SHORTEST: Duration = Duration::from_millis(8);
/// Time that a request waits for a source that has never been read.
const FIRST: Duration = Duration::from_millis(100);
/// Oldest sample that is used while the next reading is late.
const OLDEST: Duration = Duration::from_secs(5);

/// Returns the time that a request waits for a source, from the source's usual time: about that of the
/// longest of the last readings.
fn longer(usual: Duration) -> Duration {
    (usual * 3 / 2 + SHORTEST / 8).max(SHORTEST)
}

impl Source {
    pub(crate) fn new(found: Found, reader: Reader) -> Source {
        Source {
            found,
            reader: Some(Box::new(reader)),
            task: None,
            call: 0,
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
            rest: Backoff::default(),
            is_removed: false,
        }
    }

    /// Gives the memory of the metrics back, after the file has been removed. The tables keep their numbers.
    pub(crate) fn forget(&mut self, reader: Reader) {
        self.reader = Some(Box::new(reader));
        (self.sample, self.metrics, self.places) = (None, Arc::new([]), Vec::new());
    }

    /// Returns the metric with a number.
    pub(crate) fn metric(&self, number: u16) -> Option<&Metric> {
        let place = (*self.places.get(usize::from(number))?)?;
        self.metrics.get(usize::from(place)).map(|metric| &**metric)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.metrics.is_empty()
    }

    /// Returns all metrics since the agent started.
    pub(crate) fn metrics(&self) -> &Arc<[Arc<Metric>]> {
        &self.metrics
    }

    /// Returns the sample of the last reading, or `None` if it failed.
    pub(crate) fn last_sample(&self) -> Option<&Sample> {
        self.sample.as_deref()
    }

    /// Returns whether a reading may begin now.
    pub(crate) fn may_be_read(&self) -> bool {
        self.asked.is_none() && !self.is_removed && self.pause().is_zero()
    }

    /// Returns when the source is to be read next, if its file sets an interval. The time is not before the end of a
    /// pause, otherwise the agent would check the source in a loop.
    pub(crate) fn due(&self) -> Option<Instant> {
        let interval = self.limits.interval.filter(|_| self.asked.is_none() && !self.is_removed)?;
        let next = self.last_asked?.checked_add(interval)?;
        match self.pause() {
            Duration::ZERO => Some(next),
            pause => Instant::now().checked_add(pause).map(|end| end.max(next)),
        }
    }

    /// Returns how long a request waits for the reading in progress: 1.5 times the usual time, or `None` for no waiting. So
    /// a source that suddenly hangs does not stop the clients of other sources for long.
    pub(crate) fn patience(&self, most: Duration, waits: Waits) -> Option<Duration> {
        if self.is_late || self.asked.is_none() || self.is_removed {
            return None;
        }
        let most = self.limits.wait.unwrap_or(most);
        if waits == Waits::Fully {
            return Some(most).filter(|patience| !patience.is_zero());
        }
        Some(self.usual.map_or(FIRST, longer).min(most)).filter(|patience| !patience.is_zero())
    }

    /// Applies the outcome of a reading. Returns the previous metrics.
    pub(crate) fn adopt(&mut self, report: Report) -> Arc<[Arc<Metric>]> {
        let before = Arc::clone(&self.metrics);
        let took = self.asked.take().map_or(report.took, |asked| asked.elapsed());
        self.reader = report.reader;
        if report.url.is_some() {
            self.url = report.url;
        }
        self.limits = report.limits;
        if report.busy >= BUSY {
            let (name, rest) = (&self.found.name, self.rest.failed(&[report.busy * REST]));
            warn!(source = %name, "source {name}: {:?} of processor time, the next reading is in {rest:?}", report.busy);
        }
        let figures = &mut self.figures;
        figures.memory = report.memory;
        figures.took = report.took;
        figures.code = i32::from(report.code);
        match report.outcome {
            Ok(sample) => {
                figures.fetching += report.took;
                figures.parsing += sample.parsing;
                if figures.status.starts_with(FAILED) {
                    info!(source = %self.found.name, "source {} has values again", self.found.name);
                }
                figures.status = sample.status();
                figures.taken = Some(sample.taken);
                (figures.bytes, figures.lines) = (sample.bytes, sample.lines);
                figures.left_out += sample.left_out;
                figures.refused = sample.refused.text();
                self.pauses.succeeded();
                self.is_late = false;
                // The longest recent time counts, because times vary on a busy machine. A single very late reading has
                // a limited effect on the next request.
                self.usual = Some(self.usual.map_or(took, |usual| took.min(3 * longer(usual)).max(usual - usual / 4)));
                self.show(&sample.metrics);
                self.sample = Some(sample);
            }
            Err(failure) => {
                let (name, path, reason) = (&self.found.name, self.found.path.display(), &failure.reason);
                let status = format!("{FAILED} {path}: {reason}");
                if figures.status != status {
                    warn!(source = %name, "source {name}: {reason}; it has no values until a reading succeeds");
                }
                figures.status = status;
                self.is_late = failure.is_late;
                figures.errors += 1;
                figures.error = failure.reason;
                if failure.is_late {
                    self.begin_pause();
                }
                self.sample = None;
            }
        }
        before
    }

    /// Returns the time until the next reading may begin.
    fn pause(&self) -> Duration {
        self.pauses.wait().max(self.rest.wait())
    }

    /// Begins a pause. The source's file may set the longest one.
    fn begin_pause(&mut self) {
        let most = self.limits.backoff.unwrap_or(Duration::MAX);
        let shorter = PAUSES.partition_point(|pause| *pause <= most);
        match PAUSES.get(..shorter).filter(|pauses| !pauses.is_empty()) {
            Some(pauses) => _ = self.pauses.failed(pauses),
            None if most.is_zero() => {}
            None => _ = self.pauses.failed(&[most]),
        }
    }

    /// Returns whether the last reading failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.figures.status.starts_with(FAILED)
    }

    /// Returns the state of the source as one word.
    pub(crate) fn state(&self) -> &'static str {
        match (self.asked.is_some(), self.is_late) {
            (true, true) => "late",
            (true, false) => "reading",
            (false, _) if !self.pause().is_zero() => "pausing",
            (false, _) if self.sample.is_some() => "ready",
            (false, _) if self.last_asked.is_some() => "failed",
            _ => "new",
        }
    }

    fn show(&mut self, metrics: &Arc<[Arc<Metric>]>) {
        if Arc::ptr_eq(&self.metrics, metrics) {
            return;
        }
        self.metrics = Arc::clone(metrics);
        self.places.clear();
        for (place, metric) in (0..).zip(self.metrics.iter()) {
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
        let instances = match &metric.shape {
            Shape::Singular(slot) => {
                let value = values.get(*slot as usize).and_then(|value| value.atom());
                return out.put(value.ok_or(Error::AGAIN)??);
            }
            Shape::Plural(instances) => instances,
        };
        let (mut outcome, mut present) = (Err(Error::INST), false);
        for (inst, slot) in instances.slots() {
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
        let name = &*self.found.name;
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

impl Drop for Source {
    /// Ends the reading in progress: another source has taken the number, or the agent ends.
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
