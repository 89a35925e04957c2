//! A recorder for the `metrics` facade: exports what a program and its libraries record.
//!
//! ```no_run
//! # fn main() -> Result<(), mmv::Error> {
//! let _exported = mmv::recorder::Recorder::new("shop")?.install()?;
//!
//! metrics::counter!("sales", "kind" => "books").increment(1);
//! # Ok(())
//! # }
//! ```
//!
//! The recorder is for version 0.24 of the facade, which is also `mmv::metrics`. A program that records through another
//! version compiles, and exports nothing; five seconds after [`Recorder::install`] a line in the log says so.
//!
//! A metric keeps its name, with underscores for characters that PCP does not allow. A metric with labels gets an
//! instance domain. Its instances are label sets, such as `method=GET+status=200`, and carry the labels while the file
//! has room for them.
//!
//! A name that is used with and without labels becomes two metrics: the second is called `…_labelled` or
//! `…_unlabelled`. A histogram becomes `count`, `sum`, `p50`, `p90`, `p95`, `p99`, `p999` and `max`. A description
//! given before the first use becomes the help text. Its unit becomes the metric's units, if PCP has that unit.
//!
//! # Limits
//!
//! Label values often come from requests, and therefore from untrusted clients. A metric has at most 2,000 label sets,
//! a recorder at most 10,000 metrics and label sets, and a label set at most 4,096 bytes. [`Recorder::limits`] changes
//! the first two. Metrics without labels, and the first 100 label sets of each metric (a hundredth of the total, at least
//! one), have a place even when other metrics have used up the total.
//!
//! Counters and histograms count further label sets in the instance `other` of their metric. Gauges ignore them. A log
//! line names each of the first ten metrics with such label sets, and the metric `recorder.left_out` counts look-ups of
//! them.
//!
//! In a forked child, keys that its parent has used before the fork count in the parent's file, and others record nothing.
//! A server with workers installs a recorder in each worker, after the fork.
//!
//! A handle that is created while the process has no memory or descriptors for its values records nothing. The same
//! applies to a handle of a new label set while the file of metrics has been written for more than a second, for example
//! because the disk hangs. The next handle with the same name and labels records, once that has passed: the macros of the
//! facade create one at each use.

mod facade;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use metrics::{Key, KeyName, Metadata, SharedString, Unit, set_global_recorder};
use pcp_base::escape::Escaped;

use crate::format::MAX_METRICS;
use crate::names::{MAX_TEXT, truncated};
use crate::notice;
use crate::sync::Lock;
use crate::{Error, Registry, RegistryBuilder, Units};
use facade::{FacadeCounter, FacadeGauge, FacadeHistogram, sorted, units};
use state::{Handles, Instance, Known, MAX_KEY, State, Target};

/// A recorder that exports the metrics of the `metrics` facade.
#[derive(Debug)]
pub struct Recorder {
    registry: Registry,
    limits: Limits,
    /// Locked while a key is registered, which waits at most a second for a thread that writes the registry's file.
    state: Arc<Lock<State>>,
    /// Locked for a look-up, also by the thread that has locked `state`.
    known: Arc<Lock<Known>>,
    /// Locked while a counter is set to an absolute value.
    setting: Arc<Lock<()>>,
}

/// A guard that ends the export when it is dropped.
#[derive(Debug)]
#[must_use = "the export ends when this is dropped"]
pub struct Exported(Registry);

/// Limits on the number of label sets.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Largest number of label sets of a metric.
    metric: usize,
    /// Largest total number of metrics and label sets.
    all: usize,
}

/// Differences between counters, gauges and histograms.
struct Kind<T> {
    handles: fn(&mut Known) -> &mut Handles<T>,
    units: Units,
    /// A handle that records nothing.
    nothing: T,
    /// Whether the label sets beyond the limits share a handle.
    shared: bool,
}

/// Version of the facade that the recorder is for.
const FACADE: &str = "0.24";
/// Time after which a program that has recorded nothing gets a hint.
const UNUSED: Duration = Duration::from_secs(5);

const LIMITS: Limits = Limits { metric: 2_000, all: 10_000 };

impl Recorder {
    /// Creates a recorder whose metrics have names of the form `mmv.<name>.…`.
    ///
    /// # Errors
    /// The errors of [`Registry::new`].
    pub fn new(name: &str) -> Result<Recorder, Error> {
        Self::of(Registry::builder(name))
    }

    /// Creates a recorder with the options of `builder`.
    ///
    /// # Errors
    /// The errors of [`RegistryBuilder::build`].
    pub fn of(builder: RegistryBuilder) -> Result<Recorder, Error> {
        // Metrics are registered at their first use, where time may matter.
        let registry = builder.lazy().build()?;
        let (state, known, setting) = Default::default();
        Ok(Recorder { registry, limits: LIMITS, state, known, setting })
    }

    /// Sets the largest number of label sets of a metric, and the largest number of metrics and label sets in total.
    /// The defaults are 2,000 and 10,000. Metrics without labels, and the first label sets of each metric (a hundredth of
    /// the total, at least one), are exported beyond the total. A label set of a histogram takes eight values in the file.
    #[must_use]
    pub fn limits(mut self, of_a_metric: usize, in_all: usize) -> Recorder {
        self.limits = Limits { metric: of_a_metric, all: in_all };
        self
    }

    /// Returns the registry, for metrics besides those of the facade.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Starts the export, and installs the recorder as the program's global one. A line is logged if nothing is recorded in
    /// the first five seconds.
    ///
    /// # Errors
    /// [`Error::OtherRecorder`] if the program has a global recorder already.
    pub fn install(self) -> Result<Exported, Error> {
        let exported = Exported(self.registry.clone());
        let (state, known) = (Arc::clone(&self.state), Arc::clone(&self.known));
        set_global_recorder(self).map_err(|_| Error::OtherRecorder)?;
        exported.0.start();
        let name = exported.0.inner().name().to_owned();
        // Without the thread, only the hint is missing.
        _ = pcp_base::thread::spawn_without_signals("mmv-recorder", move || {
            thread::sleep(UNUSED);
            if is_unused(&state, &known) {
                notice::hint(format_args!(
                    "{name}: nothing was recorded through the facade `metrics` so far. This recorder is for version {FACADE} \
                     (`mmv::metrics`): what the program or a library records through another version is not exported"
                ));
            }
        });
        Ok(exported)
    }

    fn describe(&self, name: &KeyName, unit: Option<Unit>, text: &str) {
        if let Some(mut state) = self.state.lock() {
            state.describe(name.as_str(), unit.map_or(Units::NONE, units), text);
        }
    }

    fn known<T: Clone>(&self, key: &Key, kind: &Kind<T>) -> Option<T> {
        (kind.handles)(&mut *self.known.lock_to_read()?).known.get(key).cloned()
    }

    /// Returns the handle of a key: the known one, a new one, or the shared one of keys beyond the limits. A metric
    /// that cannot be exported is logged, and its handle records nothing.
    fn handle<T: Clone>(&self, key: &Key, kind: Kind<T>, new: impl FnOnce(Target<'_>) -> Result<T, Error>) -> T {
        self.registry.inner().retry_thread();
        let key = sorted(key);
        if let Some(known) = self.known(&key, &kind) {
            return known;
        }
        let Some(mut state) = self.state.lock() else { return kind.nothing };
        // Another thread may have registered the key in the meantime.
        if let Some(known) = self.known(&key, &kind) {
            return known;
        }
        let disk = match state.room(&self.registry) {
            Ok(Some(disk)) => disk,
            not_now => {
                let line = if not_now.is_err() { state.line() } else { None };
                drop(state);
                warn(&key, not_now.err(), line);
                return kind.nothing;
            }
        };
        let Some(mut known) = self.known.lock() else { return kind.nothing };
        let excess = state.excess(&key, known.len(), self.limits);
        let own = excess.is_none();
        let others = &(kind.handles)(&mut known).others;
        // A longer name is not kept in memory.
        let is_kept = others.len() < MAX_METRICS && key.name().len() <= MAX_KEY;
        let shared = others.get(key.name()).cloned();
        drop(known);
        let left_out = if own { None } else { state.leave_out(&self.registry, &key) };
        let counts = kind.shared && key.labels().len() > 0 && is_kept;
        let shared = shared.or_else(|| (!counts).then(|| kind.nothing.clone()));
        let new = match shared.filter(|_| !own) {
            Some(shared) => Ok(shared),
            None => {
                let instance = if own { Instance::Own } else { Instance::Other };
                state.target(&self.registry, &key, kind.units, instance).and_then(new)
            }
        };
        let handle = new.as_ref().unwrap_or(&kind.nothing).clone();
        let line = if new.is_err() { state.line() } else { None };
        if let Some(mut known) = self.known.lock() {
            let handles = (kind.handles)(&mut known);
            if own {
                handles.known.insert(key.clone(), handle.clone());
            } else if is_kept {
                handles.others.insert(key.name().to_owned(), handle.clone());
            }
        }
        // Nothing is locked while this is logged, because a consumer of the log may use the facade.
        drop((state, disk));
        if let Some((last, excess)) = left_out.zip(excess) {
            let effect = if counts { "counts in the instance `other`" } else { "is not exported to PCP" };
            let more = if last { "; further metrics like this are not logged" } else { "" };
            let name = Escaped(truncated(key.name(), MAX_TEXT));
            tracing::warn!(target: "mmv", "{name}: {excess}: what is beyond {effect}{more}");
        }
        warn(&key, new.err(), line);
        handle
    }
}

/// Returns whether no metric was described or used.
fn is_unused(state: &Lock<State>, known: &Lock<Known>) -> bool {
    state.lock().is_some_and(|state| !state.describes()) && known.lock().is_some_and(|known| known.len() == 0)
}

/// Logs why a key is not exported. `line` is `None` after too many lines, and otherwise whether it is the last one.
fn warn(key: &Key, error: Option<Error>, line: Option<bool>) {
    if let (Some(e), Some(last)) = (error, line) {
        let more = if last { "; further metrics like this are not logged" } else { "" };
        let line = format!("{} is not exported to PCP: {e}{more}", truncated(key.name(), MAX_TEXT));
        tracing::warn!(target: "mmv", "{}", Escaped(line));
    }
}

impl Exported {
    /// Returns the registry, for metrics besides those of the facade.
    pub fn registry(&self) -> &Registry {
        &self.0
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(&key, unit.or(Some(Unit::Count)), &description);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(&key, unit, &description);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(&key, unit, &description);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> metrics::Counter {
        let nothing = metrics::Counter::noop();
        let kind = Kind { handles: |known| &mut known.counters, units: Units::COUNT, nothing, shared: true };
        self.handle(key, kind, |target| {
            let (counter, setting) = (target.handle("")?, Arc::clone(&self.setting));
            Ok(metrics::Counter::from_arc(Arc::new(FacadeCounter { counter, setting })))
        })
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> metrics::Gauge {
        let nothing = metrics::Gauge::noop();
        // A gauge shared by many label sets would have a meaningless value.
        let kind = Kind { handles: |known| &mut known.gauges, units: Units::NONE, nothing, shared: false };
        self.handle(key, kind, |target| Ok(metrics::Gauge::from_arc(Arc::new(FacadeGauge(target.handle("")?)))))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> metrics::Histogram {
        let nothing = metrics::Histogram::noop();
        let kind = Kind { handles: |known| &mut known.histograms, units: Units::NONE, nothing, shared: true };
        self.handle(key, kind, |target| {
            Ok(metrics::Histogram::from_arc(Arc::new(FacadeHistogram(target.histogram()?))))
        })
    }
}
