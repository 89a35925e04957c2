//! All sources: found in the configuration directory, read by tasks, and shown in the name space.

use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use pmapi::{Item, Semantics};
use pmda::{Dynamic, MetricDef};
use tracing::{error, info, warn};

use crate::budget::Budget;
use crate::config_dir::{ConfigDir, Found, Scans, Waiting};
use crate::metric::{LAST_CLUSTER, Metric, serial};
use crate::reader::{Defaults, Reader, Report};
use crate::runtime::{Reports, Runtime};
use crate::source::{Source, Waits};
use crate::table::Table;

/// The sources by cluster number, and the data needed to read them.
#[derive(Debug)]
pub(crate) struct Sources {
    scans: Scans,
    waiting: Waiting,
    clusters: Table,
    /// Place 0 is the agent's own cluster.
    by_cluster: Vec<Option<Source>>,
    defaults: Arc<Defaults>,
    /// Longest time that a request waits for all sources.
    patience: Duration,
    waits: Waits,
    /// Time after which all sources are read again when a client asks for names. Before that time, only sources without
    /// metrics are read again. Metrics that are missing from the new document then lose their names, as in PCP 7.
    pub(crate) refresh_after: Option<Duration>,
    /// Started with the first readings, because the agent's process may fork before that.
    runtime: Option<Runtime>,
    reports: Reports<Report>,
    pub(crate) dynamic: Dynamic,
    /// Name of the agent's metrics.
    root: String,
    /// Whether labels have changed since the last call of [`Sources::take_relabelled`].
    relabelled: bool,
    /// Number of readings since the start.
    pub(crate) calls: u64,
    /// End of the time for which the agent waits for first readings.
    start: Option<Instant>,
    summary: Summary,
}

/// The line of the log about the number of sources that have failed. Of the lines about each of them, the log has only some
/// if many fail at once.
#[derive(Debug, Default)]
struct Summary {
    /// When a source has failed, or has values again, since the last line.
    changed: Option<Instant>,
    logged: Option<Instant>,
    /// The number in the last line.
    count: usize,
}

impl Summary {
    /// Time from a change to the line, so that it counts sources that fail together.
    const DELAY: Duration = Duration::from_secs(1);
    /// Shortest time between two lines.
    const REST: Duration = Duration::from_secs(10);

    fn due(&self) -> Option<Instant> {
        let due = self.changed? + Summary::DELAY;
        Some(self.logged.map_or(due, |logged| due.max(logged + Summary::REST)))
    }
}

/// A source without metrics is read again after this time, when a client asks for names.
const EMPTY: Duration = Duration::from_secs(10);
/// Time for which the agent waits for first readings before it is ready.
const START: Duration = Duration::from_secs(2);

impl Sources {
    pub(crate) fn new(
        dir: ConfigDir,
        defaults: Defaults,
        (patience, waits): (Duration, Waits),
        root: &str,
        dynamic: Dynamic,
    ) -> std::io::Result<Sources> {
        // The agent uses cluster 0 for its control metrics.
        let clusters = Table::load(&defaults.store, 0, usize::from(LAST_CLUSTER) + 1, |_| true)?;
        let clusters = clusters.beginning_with("control");
        Ok(Sources {
            scans: Scans::new(dir),
            waiting: Waiting::default(),
            clusters,
            by_cluster: vec![None],
            defaults: Arc::new(defaults),
            patience,
            waits,
            refresh_after: None,
            runtime: None,
            reports: Reports::new()?,
            dynamic,
            root: root.to_owned(),
            relabelled: false,
            calls: 0,
            start: None,
            summary: Summary::default(),
        })
    }

    /// Starts the first readings of all sources.
    ///
    /// # Errors
    /// Errors of creating the runtime's thread.
    pub(crate) fn start(&mut self) -> std::io::Result<()> {
        let now = Instant::now();
        self.runtime = Some(Runtime::start()?);
        self.start = Some(now + START);
        if let Some(found) = self.scans.first(START) {
            self.update(found, now);
        }
        Ok(())
    }

    /// Returns whether the first readings have ended, or their time is over.
    pub(crate) fn is_started(&self) -> bool {
        self.start.is_none_or(|end| Instant::now() >= end || self.iter().all(|(_, source)| source.asked.is_none()))
    }

    /// Iterates over the names of the sources in the order of their numbers, from a number on.
    pub(crate) fn names(&self, from: usize) -> impl Iterator<Item = &Arc<str>> {
        self.clusters.names(from)
    }

    pub(crate) fn get(&self, cluster: u16) -> Option<&Source> {
        self.by_cluster.get(usize::from(cluster))?.as_ref()
    }

    /// Iterates over the existing sources, with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, &Source)> {
        (0..).zip(&self.by_cluster).filter_map(|(cluster, source)| Some((cluster, source.as_ref()?)))
    }

    pub(crate) fn reports(&self) -> &Reports<Report> {
        &self.reports
    }

    /// Returns whether labels have changed since the last call.
    pub(crate) fn take_relabelled(&mut self) -> bool {
        std::mem::take(&mut self.relabelled)
    }

    /// Looks for new sources if the directory may have changed, and waits shortly for their first readings.
    pub(crate) fn refresh(&mut self) {
        let now = Instant::now();
        self.adopt_all();
        let longest = (self.waits == Waits::Fully).then_some(self.patience);
        let may_wait = longest.is_some() || self.waiting.may(now);
        if let Some(found) = self.scans.refresh(now, may_wait, longest) {
            let added = self.update(found, Instant::now());
            if may_wait {
                self.wait(added);
            }
        }
        if may_wait {
            self.waiting.waited(now, now.elapsed());
        }
    }

    /// Reads sources again whose last reading is long ago: those without metrics, or all.
    pub(crate) fn refresh_old(&mut self) {
        let now = Instant::now();
        let (all, age) = (self.refresh_after.is_some(), self.refresh_after.unwrap_or(EMPTY));
        let old = self.iter().filter(|(_, source)| {
            (all || source.is_empty()) && source.last_asked.is_none_or(|asked| now.duration_since(asked) > age)
        });
        let old: Vec<u16> = old.map(|(cluster, _)| cluster).collect();
        self.read(old.into_iter());
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

    /// Returns when the next source whose file sets an interval is to be read.
    pub(crate) fn due(&self) -> Option<Instant> {
        let now = Instant::now();
        let next = self.iter().filter_map(|(_, source)| source.due());
        next.chain(self.start.filter(|end| now < *end)).chain(self.summary.due()).min()
    }

    /// Begins readings that are due, and applies readings that have ended.
    pub(crate) fn wake(&mut self) {
        self.adopt_all();
        self.summarize();
        let now = Instant::now();
        let due = self.iter().filter(|(_, source)| {
            let since = source.last_asked.map(|asked| now.duration_since(asked));
            source.limits.interval.is_some_and(|interval| since.is_none_or(|since| since >= interval))
        });
        let due: Vec<u16> = due.map(|(cluster, _)| cluster).collect();
        for cluster in due {
            self.ask(cluster, now);
        }
    }

    /// Logs how many sources have failed, if that is due.
    fn summarize(&mut self) {
        let now = Instant::now();
        if self.summary.due().is_none_or(|due| now < due) {
            return;
        }
        let all = self.iter().filter(|(_, source)| !source.is_removed).count();
        let count = self.iter().filter(|(_, source)| !source.is_removed && source.has_failed()).count();
        let before = self.summary.count;
        self.summary = Summary { changed: None, logged: Some(now), count };
        let root = &self.root;
        match (before, count) {
            _ if before == count => {}
            (_, 0) => info!("no source has failed any more"),
            _ => warn!("{count} of {all} sources have failed: {root}.control.error has the reason of each"),
        }
    }

    /// Adopts the sources that a scan has found. Returns the new ones, whose first readings have begun.
    fn update(&mut self, found: Vec<Found>, now: Instant) -> Vec<u16> {
        let names: HashSet<&str> = found.iter().map(|found| &*found.name).collect();
        for (cluster, source) in (0..).zip(&mut self.by_cluster) {
            let Some(source) = source else { continue };
            if !source.is_removed && !names.contains(&*source.found.name) {
                info!("source {} was removed", source.found.name);
                source.is_removed = true;
                remove_names(&mut self.dynamic, &self.root, cluster, source);
                if source.reader.is_some() {
                    source.forget(reader(cluster, &source.found, &self.defaults));
                }
            }
        }
        let added: Vec<u16> = found.into_iter().filter_map(|found| self.add(found)).collect();
        self.clusters.save();
        for cluster in &added {
            self.ask(*cluster, now);
        }
        added
    }

    /// Adds a source, or replaces a source whose file is now another file. Returns `None` if the source is known.
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
                let sample = source.last_sample().filter(|_| self.refresh_after.is_some());
                let shown: Vec<_> =
                    metrics.iter().filter(|metric| sample.is_none_or(|sample| sample.has(metric))).cloned().collect();
                self.show(cluster, &found.name, shown.iter());
            }
            _ => {
                info!("Found source {} cluster {cluster}", found.name);
                if let Some(source) = of {
                    remove_names(&mut self.dynamic, &self.root, cluster, source);
                }
                let reader = reader(cluster, &found, &self.defaults);
                *of = Some(Source::new(found, reader));
            }
        }
        Some(cluster)
    }

    /// Begins to read a source, unless that goes on already, or the source is in a pause.
    fn ask(&mut self, cluster: u16, now: Instant) {
        if self.get(cluster).is_some_and(Source::may_be_read) {
            self.begin(cluster, now);
        }
    }

    /// Begins to read a source that is not being read.
    fn begin(&mut self, cluster: u16, now: Instant) {
        let Some(Some(source)) = self.by_cluster.get_mut(usize::from(cluster)) else { return };
        let (Some(runtime), Some(reader)) = (&self.runtime, source.reader.take()) else { return };
        (source.asked, source.last_asked) = (Some(now), Some(now));
        source.figures.calls += 1;
        self.calls += 1;
        let (call, sender) = (self.calls, self.reports.sender());
        source.call = call;
        source.task = Some(runtime.spawn(async move {
            let report = guarded(reader.read(cluster, call)).await;
            sender.send(report.unwrap_or_else(|| Report::panicked(cluster, call)));
        }));
    }

    /// Waits for sources as long as they usually take. The answer of another awaited source extends the time.
    fn wait(&mut self, mut awaited: Vec<u16>) {
        let begin = Instant::now();
        let mut progress = begin;
        loop {
            let patience =
                |cluster: &u16| self.get(*cluster).and_then(|source| source.patience(self.patience, self.waits));
            awaited.retain(|cluster| patience(cluster).is_some());
            let Some(longest) = awaited.iter().filter_map(patience).max() else { return };
            let end = (progress + longest).min(begin + self.patience);
            let reports = self.reports.wait(end);
            if reports.is_empty() {
                break;
            }
            for report in reports {
                if let Some(at) = awaited.iter().position(|cluster| *cluster == report.cluster) {
                    awaited.swap_remove(at);
                    progress = Instant::now();
                }
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
        for report in self.reports.take() {
            self.adopt(report);
        }
    }

    /// Returns the memory of all sources.
    pub(crate) fn budget(&self) -> &Budget {
        &self.defaults.budget
    }

    fn adopt(&mut self, report: Report) {
        let cluster = report.cluster;
        let Some(Some(source)) = self.by_cluster.get_mut(usize::from(cluster)) else { return };
        if source.call != report.call {
            // Of a source that had this number before.
            return;
        }
        let had_failed = source.has_failed();
        let before = source.adopt(report);
        if source.has_failed() != had_failed {
            self.summary.changed.get_or_insert_with(Instant::now);
        }
        if source.reader.is_none() {
            source.reader = Some(Box::new(reader(cluster, &source.found, &self.defaults)));
        }
        let after = Arc::clone(source.metrics());
        if source.is_removed {
            source.forget(reader(cluster, &source.found, &self.defaults));
            return;
        }
        let name = source.found.name.clone();
        if !Arc::ptr_eq(&before, &after) {
            self.relabelled = true;
            self.show(cluster, &name, after.iter().skip(before.len()));
        }
        if self.refresh_after.is_some() {
            self.show_present(cluster);
        }
    }

    /// Removes the names of metrics that are missing from the last document, and adds those that are in it again.
    fn show_present(&mut self, cluster: u16) {
        let Some(Some(source)) = self.by_cluster.get(usize::from(cluster)) else { return };
        let Some(sample) = source.last_sample().filter(|sample| sample.reordered) else { return };
        let mut back = Vec::new();
        for metric in sample.metrics.iter() {
            let name = format!("{}.{}.{}", self.root, source.found.name, metric.name);
            match (sample.has(metric), self.dynamic.item(&name)) {
                (false, Some(item)) if Some(item) == Item::try_new(cluster, metric.number) => {
                    self.dynamic.remove(&name);
                }
                (true, None) => back.push(Arc::clone(metric)),
                _ => {}
            }
        }
        let name = source.found.name.clone();
        self.show(cluster, &name, back.iter());
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

/// Removes the names of a source's metrics. Those of other sources may be below the same node: `a.b` below `a`.
fn remove_names(dynamic: &mut Dynamic, root: &str, cluster: u16, source: &Source) {
    for metric in source.metrics().iter() {
        let name = format!("{root}.{}.{}", source.found.name, metric.name);
        if dynamic.item(&name).is_some_and(|item| Some(item) == Item::try_new(cluster, metric.number)) {
            dynamic.remove(&name);
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
    if let Some(indom) = serial(item).filter(|_| metric.instances().is_some()) {
        declared.indom(indom);
    }
    declared
}

impl Drop for Sources {
    /// Waits for the tables, which are written beside everything else.
    fn drop(&mut self) {
        self.defaults.store.flush();
    }
}

fn reader(cluster: u16, found: &Found, defaults: &Arc<Defaults>) -> Reader {
    Reader::new(Arc::clone(&found.name), cluster, Arc::clone(&found.path), found.kind, Arc::clone(defaults))
}

/// Runs a task. Returns `None` if it panics.
async fn guarded<T>(task: impl Future<Output = T>) -> Option<T> {
    let mut task = pin!(task);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context))) {
        Ok(Poll::Ready(done)) => Poll::Ready(Some(done)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(_) => Poll::Ready(None),
    })
    .await
}

/// Returns the directory of the tables of PCP's agent.
pub(crate) fn tables(var: &Path) -> std::path::PathBuf {
    var.join("config/pmda")
}
