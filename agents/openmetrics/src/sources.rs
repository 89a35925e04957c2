//! All sources: found in the configuration directory, read by workers, and shown in the name space.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use pmapi::{Item, Semantics};
use pmda::{Dynamic, MetricDef};
use tracing::{error, info, warn};

use crate::config_dir::{ConfigDir, Found};
use crate::http::Failure;
use crate::inbox::Inbox;
use crate::metric::{LAST_CLUSTER, Metric, serial};
use crate::pool::{Pool, Urgency};
use crate::reader::{Defaults, Reader, Report};
use crate::source::{Source, Waits};
use crate::table::Table;
use crate::url_file::Limits;

/// The sources by their cluster numbers, and what is needed to read them.
#[derive(Debug)]
pub(crate) struct Sources {
    dir: ConfigDir,
    clusters: Table,
    /// Place 0 is the agent's own cluster.
    by_cluster: Vec<Option<Source>>,
    defaults: Arc<Defaults>,
    /// Longest time that a request waits for all sources.
    patience: Duration,
    waits: Waits,
    pool: Pool,
    inbox: Inbox,
    pub(crate) dynamic: Dynamic,
    /// Name of the agent's metrics.
    root: String,
    /// Whether labels have changed since the last look.
    relabelled: bool,
    /// Number of readings since the start.
    pub(crate) calls: u64,
    /// End of the time in which the agent waits for first readings.
    start: Option<Instant>,
}

/// A source without metrics is read again after this time, when a client asks for names.
const EMPTY: Duration = Duration::from_secs(10);
/// Time that the agent waits for the first readings before it is ready.
const START: Duration = Duration::from_secs(2);

impl Sources {
    pub(crate) fn new(
        dir: ConfigDir,
        defaults: Defaults,
        (patience, waits): (Duration, Waits),
        pool: Pool,
        root: &str,
        dynamic: Dynamic,
    ) -> std::io::Result<Sources> {
        let path = defaults.tables.join(format!("{}.0.py", defaults.domain.get()));
        let mut clusters = Table::load(path, usize::from(LAST_CLUSTER) + 1);
        clusters.number("control");
        Ok(Sources {
            dir,
            clusters,
            by_cluster: vec![None],
            defaults: Arc::new(defaults),
            patience,
            waits,
            pool,
            inbox: Inbox::new()?,
            dynamic,
            root: root.to_owned(),
            relabelled: false,
            calls: 0,
            start: None,
        })
    }

    /// Starts the first readings of all sources.
    pub(crate) fn start(&mut self) {
        let now = Instant::now();
        self.start = Some(now + START);
        self.scan(now);
    }

    /// Returns whether the first readings have ended, or their time is over.
    pub(crate) fn is_started(&self) -> bool {
        let asked = || self.iter().filter(|(_, source)| source.asked.is_some()).count();
        self.start.is_none_or(|end| Instant::now() >= end || self.inbox.len() >= asked())
    }

    /// Names of the sources by their numbers, from a number on.
    pub(crate) fn names(&self, from: usize) -> impl Iterator<Item = &str> {
        self.clusters.names(from)
    }

    pub(crate) fn get(&self, cluster: u16) -> Option<&Source> {
        self.by_cluster.get(usize::from(cluster))?.as_ref()
    }

    /// Iterates over the sources that exist, with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, &Source)> {
        (0..).zip(&self.by_cluster).filter_map(|(cluster, source)| Some((cluster, source.as_ref()?)))
    }

    pub(crate) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// Returns whether labels have changed since the last call.
    pub(crate) fn take_relabelled(&mut self) -> bool {
        std::mem::take(&mut self.relabelled)
    }

    /// Looks for new sources, if there may be some, and waits a moment for their first readings.
    pub(crate) fn refresh(&mut self) {
        let now = Instant::now();
        self.adopt_all();
        if self.dir.may_have_changed(now) {
            let added = self.scan(now);
            self.wait(added);
        }
    }

    /// Reads sources that have no metrics again, if they were read some time ago.
    pub(crate) fn refresh_empty(&mut self) {
        let now = Instant::now();
        let is_old = |source: &Source| source.last_asked.is_none_or(|asked| now.duration_since(asked) > EMPTY);
        let empty = self.iter().filter(|(_, source)| source.is_empty() && is_old(source));
        let empty: Vec<u16> = empty.map(|(cluster, _)| cluster).collect();
        self.read(empty.into_iter());
    }

    /// Reads sources, and waits for those that usually answer in time.
    pub(crate) fn read(&mut self, clusters: impl Iterator<Item = u16>) {
        let now = Instant::now();
        let mut awaited: Vec<u16> = clusters.collect();
        awaited.sort_unstable();
        awaited.dedup();
        awaited.retain(|cluster| {
            let background = self.get(*cluster).is_none_or(|source| source.limits.interval.is_some());
            !background && {
                self.ask(*cluster, now);
                true
            }
        });
        self.wait(awaited);
    }

    /// Reads sources with an interval of their own that are due. Returns when the next one is.
    pub(crate) fn due(&self) -> Option<Instant> {
        let next = |source: &Source| {
            let interval = source.limits.interval.filter(|_| source.asked.is_none() && !source.is_removed)?;
            Some(source.last_asked? + interval)
        };
        self.iter().filter_map(|(_, source)| next(source)).chain(self.start.filter(|end| Instant::now() < *end)).min()
    }

    /// Begins the readings that are due, and applies those that have ended.
    pub(crate) fn wake(&mut self) {
        self.adopt_all();
        let now = Instant::now();
        let is_due = |source: &Source| {
            let since = source.last_asked.map(|asked| now.duration_since(asked));
            source.limits.interval.is_some_and(|interval| since.is_none_or(|since| since >= interval))
        };
        let due: Vec<u16> = self.iter().filter(|(_, source)| is_due(source)).map(|(cluster, _)| cluster).collect();
        for cluster in due {
            self.ask(cluster, now);
        }
    }

    /// Scans the directory. Returns the sources that are new, whose first readings have begun.
    fn scan(&mut self, now: Instant) -> Vec<u16> {
        let found = self.dir.scan();
        for source in self.by_cluster.iter_mut().flatten() {
            if !source.is_removed && !found.iter().any(|found| found.name == source.found.name) {
                info!("source {} is gone", source.found.name);
                source.is_removed = true;
                self.dynamic.remove(&format!("{}.{}", self.root, source.found.name));
            }
        }
        let added: Vec<u16> = found.into_iter().filter_map(|found| self.add(found)).collect();
        self.clusters.save();
        for cluster in &added {
            self.ask(*cluster, now);
        }
        added
    }

    /// Adds a source, or replaces one whose file is another one now. `None` for one that is known.
    fn add(&mut self, found: Found) -> Option<u16> {
        let number = self.clusters.number(&found.name).and_then(|number| u16::try_from(number).ok());
        let Some(cluster) = number.filter(|cluster| (1..=LAST_CLUSTER).contains(cluster)) else {
            error!(source = %found.name, "source {} is left out: {LAST_CLUSTER} at most", found.name);
            return None;
        };
        let place = usize::from(cluster);
        if self.by_cluster.len() <= place {
            self.by_cluster.resize_with(place + 1, || None);
        }
        let of = self.by_cluster.get_mut(place)?;
        match of {
            Some(source) if source.found == found => {
                if !std::mem::take(&mut source.is_removed) {
                    return None;
                }
                let metrics = Arc::clone(source.metrics());
                self.show(cluster, &found.name, metrics.iter());
            }
            _ => {
                info!("Found source {} cluster {cluster}", found.name);
                self.dynamic.remove(&format!("{}.{}", self.root, found.name));
                let defaults = Arc::clone(&self.defaults);
                let reader = Reader::new(&found.name, cluster, found.path.clone(), found.kind, defaults);
                *of = Some(Source::new(found, reader));
            }
        }
        Some(cluster)
    }

    /// Lets a worker read a source, unless one does, or the source must pause.
    fn ask(&mut self, cluster: u16, now: Instant) {
        let Some(Some(source)) = self.by_cluster.get_mut(usize::from(cluster)) else { return };
        if !source.may_be_read() {
            return;
        }
        (source.asked, source.last_asked) = (Some(now), Some(now));
        source.figures.calls += 1;
        self.calls += 1;
        let (reader, sender) = (Arc::clone(&source.reader), self.inbox.sender());
        let job = move || {
            let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
            let report = catch_unwind(AssertUnwindSafe(|| reader.read(cluster)));
            sender.send(report.unwrap_or_else(|_| panicked(cluster)));
            let _ = catch_unwind(AssertUnwindSafe(|| reader.save()));
        };
        let urgency = if source.is_late { Urgency::Late } else { Urgency::Prompt };
        if let Err(e) = self.pool.add(urgency, Box::new(job)) {
            error!("no thread can be started, sources are not read: {e}");
            for source in self.by_cluster.iter_mut().flatten() {
                source.asked = None;
            }
        }
    }

    /// Waits for sources as long as they usually take. Others may answer meanwhile, and that prolongs the time.
    fn wait(&mut self, mut awaited: Vec<u16>) {
        let begin = Instant::now();
        let mut progress = begin;
        loop {
            let patience =
                |cluster: &u16| self.get(*cluster).and_then(|source| source.patience(self.patience, self.waits));
            awaited.retain(|cluster| patience(cluster).is_some());
            let Some(longest) = awaited.iter().filter_map(patience).max() else { return };
            let reports = self.inbox.wait((progress + longest).min(begin + self.patience));
            if reports.is_empty() {
                break;
            }
            progress = Instant::now();
            for report in reports {
                awaited.retain(|cluster| *cluster != report.cluster);
                self.adopt(report);
            }
        }
        for cluster in awaited {
            if let Some(Some(source)) = self.by_cluster.get_mut(usize::from(cluster)) {
                source.is_late = true;
            }
        }
    }

    fn adopt_all(&mut self) {
        for report in self.inbox.take() {
            self.adopt(report);
        }
    }

    fn adopt(&mut self, report: Report) {
        let cluster = report.cluster;
        let Some(Some(source)) = self.by_cluster.get_mut(usize::from(cluster)) else { return };
        let before = source.adopt(report);
        let after = Arc::clone(source.metrics());
        if Arc::ptr_eq(&before, &after) || source.is_removed {
            return;
        }
        self.relabelled = true;
        let name = source.found.name.clone();
        self.show(cluster, &name, after.iter().skip(before.len()));
    }

    /// Adds metrics to the name space.
    fn show<'a>(&mut self, cluster: u16, source: &str, metrics: impl Iterator<Item = &'a Arc<Metric>>) {
        for metric in metrics {
            let Some(item) = Item::try_new(cluster, metric.number) else { continue };
            if let Err(mistake) = self.dynamic.insert(&declaration(&self.root, source, item, metric)) {
                warn!(source = %source, "source {source}: metric {} has no name in PCP: {mistake}", metric.name);
            }
        }
    }
}

/// Declares a metric. Its help and labels are those of the source.
fn declaration(root: &str, source: &str, item: Item, metric: &Metric) -> MetricDef {
    let mut declared = MetricDef::new(format!("{root}.{source}.{}", metric.name), item, metric.ty);
    declared.units(metric.units);
    match metric.semantics {
        Semantics::Counter => _ = declared.counter(),
        Semantics::Discrete => _ = declared.discrete(),
        _ => {}
    }
    if let Some(indom) = serial(item).filter(|_| !metric.singular) {
        declared.indom(indom);
    }
    declared
}

fn panicked(cluster: u16) -> Report {
    let failure = Failure::from("the agent failed to read it; please report this".to_owned());
    let (took, limits) = (Duration::ZERO, Limits::default());
    Report { cluster, outcome: Err(failure), code: 0, took, url: None, limits }
}

/// Returns the directory of the tables of PCP's agent.
pub(crate) fn tables(var: &Path) -> std::path::PathBuf {
    var.join("config/pmda")
}
