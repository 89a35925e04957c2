//! The name space of all files at a time: one table, which never changes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::str;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use hashbrown::{HashMap, HashSet};
use pcp_base::escape::escaped_json;
use pmapi::{Domain, Error, Inst, Item, LabelFlags, LabelLevel, LabelSet, PmId, Semantics, Serial, Units};
use pmns::{InsertError, Tree};

use super::MetricDesc;
use super::limits::Uid;
use super::names::NameError;
use super::source::{Source, exported_serial};
use crate::format::ValueType;
use crate::reader::{Indom, Instance, Label, Metric};

/// The combined contents of all files. Sources are identified by their index.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// The files, in the order of their precedence.
    pub sources: Vec<Arc<Source>>,
    /// The cluster of each source's metrics.
    pub clusters: Vec<u16>,
    /// The names of the metrics. Only the items of the identifiers have a meaning.
    pub names: Tree,
    /// The metrics, in the order of the files.
    pub metrics: Vec<Entry>,
    /// For each cluster, the index of each item's metric, or [`NONE`].
    items: Vec<Vec<u32>>,
    /// The values of all metrics. Those of each metric are adjacent, in the order of the instances.
    places: Vec<Place>,
    pub domains: BTreeMap<Serial, DomainEntry>,
    pub labels: LabelTable,
}

/// A metric of the table, which several files may have.
#[derive(Debug)]
pub(super) struct Entry {
    pub item: Item,
    /// Index of the first source that has the metric.
    pub source: u32,
    /// Index of the metric in that source.
    pub metric: u32,
    /// Index of the last source that has the metric.
    last: u32,
    pub ty: ValueType,
    pub indom: Option<Serial>,
    /// Range of the values in [`Snapshot::places`].
    start: u32,
    end: u32,
    missing: Option<Error>,
}

/// The values of a metric.
#[derive(Clone, Copy, Debug)]
pub(super) struct ValuesOf<'a> {
    pub ty: ValueType,
    /// Positions of the values, in the order of the instances.
    pub places: &'a [Place],
    /// The error for instances without a value, or for a singular metric without one. `None` if no value is missing.
    pub missing: Option<Error>,
    /// Index of the source, if all values are of one.
    pub only: Option<u32>,
}

/// Index that means no metric.
const NONE: u32 = u32::MAX;

/// Position of a value in the sources.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub inst: Option<Inst>,
    pub source: u32,
    /// Position among the values that are read of the source.
    pub slot: u32,
}

/// An instance domain, to which several sources may contribute.
#[derive(Debug)]
pub(super) struct DomainEntry {
    /// The user of the first source. Sources of other users contribute nothing.
    uid: Uid,
    pub instances: Vec<InstanceEntry>,
    /// Index of each contributing source, and of the domain in that source.
    pub parts: Vec<(u32, u32)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct InstanceEntry {
    pub id: Inst,
    pub source: u32,
    pub name: Instance,
}

/// The cluster of a file: the file's user, the cluster that it requests, and the one that it has.
pub(super) type Cluster = (Uid, u16, u16);

/// The clusters of files by their names. A file keeps its cluster as long as it stays and requests the same one.
pub(super) type Clusters = HashMap<OsString, Cluster>;

/// Returns the cluster that a file requests, or 0.
fn wanted(source: &Source) -> u16 {
    u16::try_from(source.file.header().cluster).unwrap_or_default()
}

/// Returns an identifier for the tree of names, which needs some domain.
fn pmid(item: Item) -> PmId {
    const SOME: Domain = match Domain::new(1) {
        Some(domain) => domain,
        None => Domain::DYNAMIC,
    };
    PmId::new(SOME, item)
}

impl Snapshot {
    /// Builds the table of some files. If several users own files, those of root come first, then those that have been in
    /// the directory longest, so that a user cannot take the names and identifiers of another one. Otherwise the order is
    /// that of the names, as in PCP's agent.
    pub(super) fn build(prefix: &str, mut sources: Vec<Arc<Source>>, before: &Clusters) -> Snapshot {
        let is_shared = sources.iter().any(|source| sources.first().is_some_and(|first| first.uid != source.uid));
        if is_shared {
            sources.sort_by(|a, b| (a.uid != Uid(0), a.since, &a.name).cmp(&(b.uid != Uid(0), b.since, &b.name)));
        } else {
            sources.sort_by(|a, b| a.name.cmp(&b.name));
        }
        let (sources, clusters) = assign_clusters(prefix, sources, before, is_shared);
        let mut builder = Builder::new(prefix, sources, clusters);
        (0..builder.snapshot.sources.len() as u32).for_each(|source| builder.add_instances(source));
        (0..builder.snapshot.sources.len() as u32).for_each(|source| builder.add_metrics(source));
        builder.finish()
    }

    /// Creates a table of files without a name space.
    pub(super) fn of_files(sources: Vec<Arc<Source>>) -> Snapshot {
        Snapshot { sources, ..Snapshot::default() }
    }

    /// Returns the clusters of the files.
    pub(super) fn clusters(&self) -> Clusters {
        let sources = self.sources.iter().zip(&self.clusters);
        sources.map(|(source, cluster)| (source.name.clone(), (source.uid, wanted(source), *cluster))).collect()
    }

    pub(super) fn source(&self, index: u32) -> Option<&Arc<Source>> {
        self.sources.get(index as usize)
    }

    pub(super) fn metric(&self, item: Item) -> Option<&Entry> {
        self.metrics.get(self.index(item)?)
    }

    #[inline]
    fn index(&self, item: Item) -> Option<usize> {
        let items = self.items.get(usize::from(item.cluster()))?;
        let index = *items.get(usize::from(item.item()))?;
        (index != NONE).then_some(index as usize)
    }

    /// Returns the identifier of the metric with this name.
    pub(super) fn item(&self, name: &str) -> Option<Item> {
        Some(self.names.node(name)?.pmid()?.item())
    }

    /// Returns the full name of a metric.
    pub(super) fn name(&self, entry: &Entry) -> String {
        let source = self.source(entry.source);
        let metric = source.and_then(|source| Some((source, source.file.metrics().get(entry.metric as usize)?)));
        metric.map(|(source, metric)| source.names.full(&source.file, metric)).unwrap_or_default()
    }

    pub(super) fn desc(&self, entry: &Entry) -> Option<MetricDesc> {
        let (source, cluster) = (self.source(entry.source)?, self.clusters.get(entry.source as usize)?);
        describe(*cluster, source.file.metrics().get(entry.metric as usize)?)
    }

    #[inline]
    pub(super) fn values(&self, item: Item) -> Option<ValuesOf<'_>> {
        let Entry { ty, start, end, missing, source, last, .. } = self.metrics.get(self.index(item)?)?;
        let places = self.places.get(*start as usize..*end as usize)?;
        Some(ValuesOf { ty: *ty, places, missing: *missing, only: (source == last).then_some(*source) })
    }

    /// Returns the instances of a metric. A singular metric has none.
    pub(super) fn instances_of(&self, item: Item) -> &[InstanceEntry] {
        let domain = self.metric(item).and_then(|entry| self.domains.get(&entry.indom?));
        domain.map(|domain| &*domain.instances).unwrap_or_default()
    }
}

/// Returns a file's description of a metric, or `None` if the item is out of range.
fn describe(cluster: u16, metric: &Metric) -> Option<MetricDesc> {
    let item = u16::try_from(metric.item).ok().and_then(|item| Item::try_new(cluster, item))?;
    let indom = metric.indom.map(|serial| exported_serial(cluster, serial));
    let (semantics, units) = match metric.ty {
        ValueType::Elapsed => (Semantics::Counter, Units::MICROSECONDS),
        _ => (metric.semantics, metric.units),
    };
    Some(MetricDesc { item, ty: metric.ty, indom, semantics, units })
}

/// Assigns clusters. A file gets the cluster that it requests, or the lowest free one. If files of several users
/// are `shared`, a file without a request keeps its cluster, so that a user cannot change the cluster of another one's file.
///
/// Files of one user may request the same cluster, to have metrics and instance domains in common. If their metrics have
/// the same items with different names, the later file gets a free cluster: a metric of PCP's agent would have two names
/// then, and the value of the first file for both.
fn assign_clusters(
    prefix: &str,
    sources: Vec<Arc<Source>>,
    before: &Clusters,
    is_shared: bool,
) -> (Vec<Arc<Source>>, Vec<u16>) {
    let previous = |source: &Source| match before.get(&source.name) {
        Some((uid, request, cluster)) if *uid == source.uid && *request == wanted(source) => Some(*cluster),
        _ => None,
    };
    // PCP's agent gives free clusters anew at each change. Files with a request that could not be met keep theirs.
    let own = |source: &Source| match wanted(source) {
        0 => previous(source).filter(|_| is_shared),
        wanted => Some(previous(source).unwrap_or(wanted)),
    };
    let mut used: HashSet<u16> = HashSet::new();
    if is_shared {
        used.extend(sources.iter().filter_map(|source| own(source)));
    }
    let mut lowest = 1..=Item::MAX_CLUSTER;
    let mut kept = Vec::with_capacity(sources.len());
    for source in sources {
        match own(&source).or_else(|| lowest.find(|cluster| !used.contains(cluster))) {
            Some(cluster) => {
                used.insert(cluster);
                kept.push((source, cluster));
            }
            None => source.log(prefix, format_args!("is left out: no cluster is free")),
        }
    }
    let (mut sources, mut clusters): (Vec<_>, Vec<_>) = kept.into_iter().unzip();
    for (index, of) in conflicts(&sources, &clusters, previous) {
        let (source, other) = (Arc::clone(&sources[index]), Path::new(&sources[of].name).display());
        let Some(free) = (1..=Item::MAX_CLUSTER).find(|cluster| !used.contains(cluster)) else {
            source.log(prefix, format_args!("is left out: no cluster is free"));
            clusters[index] = 0;
            continue;
        };
        used.insert(free);
        let requested = std::mem::replace(&mut clusters[index], free);
        let file = Path::new(&source.name).display();
        tracing::info!(
            source = %source.uid,
            "{prefix}: {file}: its metrics have cluster {free}, because {other} has other metrics with these numbers in \
             cluster {requested}"
        );
    }
    let mut exported = clusters.iter().map(|cluster| *cluster != 0);
    sources.retain(|_| exported.next().unwrap_or_default());
    clusters.retain(|cluster| *cluster != 0);
    (sources, clusters)
}

/// Returns the files that cannot have the same cluster as an earlier one, and that file. Files that have had the cluster
/// before come first.
fn conflicts(
    sources: &[Arc<Source>],
    clusters: &[u16],
    previous: impl Fn(&Source) -> Option<u16>,
) -> Vec<(usize, usize)> {
    let mut by_cluster: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
    clusters.iter().enumerate().for_each(|(index, cluster)| by_cluster.entry(*cluster).or_default().push(index));
    let mut found = Vec::new();
    for (cluster, mut files) in by_cluster.into_iter().filter(|(_, files)| files.len() > 1) {
        files.sort_by_key(|index| previous(&sources[*index]) != Some(cluster));
        let mut known: HashMap<u32, (usize, String)> = HashMap::new();
        let first = files.first().copied().unwrap_or_default();
        for index in files {
            let source = &*sources[index];
            let mut metrics: Vec<(u32, String)> = Vec::new();
            source.names.each(&source.file, |_, metric, name| {
                metrics.extend(name.ok().map(|name| (metric.item, name.to_owned())));
            });
            let other = metrics.iter().find_map(|(item, name)| known.get(item).filter(|(_, known)| known != name));
            if source.uid != sources[first].uid {
                found.push((index, first));
            } else if let Some((other, _)) = other {
                found.push((index, *other));
            } else {
                known.extend(metrics.into_iter().map(|(item, name)| (item, (index, name))));
            }
        }
    }
    found
}

/// A table that is being built.
struct Builder<'a> {
    prefix: &'a str,
    snapshot: Snapshot,
    /// Values of metrics that an earlier source has described, each with the index of its metric.
    more: Vec<(u32, Place)>,
    /// The index of each instance in its domain.
    orders: HashMap<Serial, HashMap<Inst, u32>>,
    /// Instances of a source that are left out, because an earlier source names the same identifier differently.
    strangers: HashSet<(Serial, u32, Inst)>,
}

impl<'a> Builder<'a> {
    fn new(prefix: &'a str, sources: Vec<Arc<Source>>, clusters: Vec<u16>) -> Builder<'a> {
        let metrics = sources.iter().map(|source| source.file.metrics().len()).sum();
        let nodes: usize = sources.iter().map(|source| source.file.nodes() + 1).sum();
        let mut items = Vec::new();
        items.resize_with(clusters.iter().max().map_or(0, |max| usize::from(*max) + 1), Vec::new);
        let snapshot = Snapshot {
            sources,
            clusters,
            names: Tree::with_capacity(metrics + nodes + 2),
            metrics: Vec::with_capacity(metrics),
            items,
            ..Snapshot::default()
        };
        Builder { prefix, snapshot, more: Vec::new(), orders: HashMap::new(), strangers: HashSet::new() }
    }

    fn of(&self, source: u32) -> Option<(Arc<Source>, u16)> {
        let cluster = self.snapshot.clusters.get(source as usize)?;
        Some((Arc::clone(self.snapshot.source(source)?), *cluster))
    }

    fn add_instances(&mut self, source: u32) {
        let Some((own, cluster)) = self.of(source) else { return };
        for (part, indom) in (0..).zip(own.file.indoms()) {
            let serial = exported_serial(cluster, indom.serial);
            let new = DomainEntry { uid: own.uid, instances: Vec::new(), parts: Vec::new() };
            let domain = self.snapshot.domains.entry(serial).or_insert(new);
            if domain.uid == own.uid {
                domain.parts.push((source, part));
                self.add_instances_of(serial, source, &own, indom);
            } else if !own.is_reported.load(Relaxed) {
                own.log(self.prefix, format_args!("instance domain {serial} belongs to another user's file"));
            }
        }
    }

    fn add_instances_of(&mut self, serial: Serial, source: u32, own: &Source, indom: &Indom) {
        let Some(domain) = self.snapshot.domains.get_mut(&serial) else { return };
        let order = self.orders.entry(serial).or_default();
        order.reserve(indom.instances().len());
        domain.instances.reserve_exact(indom.instances().len());
        for instance in indom.instances() {
            let Some(id) = Inst::from_word(instance.id as u32) else { continue };
            let Some(&known) = order.get(&id) else {
                order.insert(id, domain.instances.len() as u32);
                domain.instances.push(InstanceEntry { id, source, name: *instance });
                continue;
            };
            let name = own.file.instance_name(instance);
            let known = domain.instances.get(known as usize);
            let same = known.is_some_and(|known| {
                let source = self.snapshot.sources.get(known.source as usize);
                source.is_some_and(|source| source.file.instance_name(&known.name) == name)
            });
            if !same {
                if !own.is_reported.load(Relaxed) {
                    let name = String::from_utf8_lossy(name);
                    let text = format_args!("instance {id} of {serial}: name {name:?} contradicts another file");
                    own.log(self.prefix, text);
                }
                self.strangers.insert((serial, source, id));
            }
        }
    }

    fn add_metrics(&mut self, source: u32) {
        let Some((own, cluster)) = self.of(source) else { return };
        own.names.each(&own.file, |index, metric, name| {
            let added = name.map_err(Refusal::Name);
            if let Err(e) = added.and_then(|name| self.add_metric(name, (source, index), &own, cluster, metric)) {
                e.report(self.prefix, &own, metric);
            }
        });
    }

    fn add_metric(
        &mut self,
        name: &str,
        (source, metric_index): (u32, u32),
        own: &Source,
        cluster: u16,
        metric: &Metric,
    ) -> Result<(), Refusal> {
        let desc = describe(cluster, metric).ok_or(Refusal::Item)?;
        let MetricDesc { item, ty, indom, .. } = desc;
        let known = self.snapshot.index(item);
        let start = self.snapshot.places.len() as u32;
        if let Some(index) = known {
            self.add_values_to(index, name, source, desc)?;
        } else {
            let inserted = self.snapshot.names.insert_dynamic(name, pmid(item));
            inserted.map_err(|e| self.name_error(e, name, source))?;
            self.set_index(item, self.snapshot.metrics.len() as u32);
            let (end, missing) = (start, None);
            let entry = Entry { item, source, metric: metric_index, last: source, ty, indom, start, end, missing };
            self.snapshot.metrics.push(entry);
        }
        for value in metric.values() {
            let inst = indom.and_then(|_| Inst::from_word(value.instance as u32));
            if inst.is_none() != indom.is_none() || self.is_stranger(indom.zip(inst), source, own) {
                continue;
            }
            let place = Place { inst, source, slot: own.file.slot(*value) };
            match known {
                None => self.snapshot.places.push(place),
                Some(index) => self.more.push((index as u32, place)),
            }
        }
        let end = self.snapshot.places.len() as u32;
        if let Some(entry) = self.snapshot.metrics.last_mut().filter(|_| known.is_none()) {
            entry.end = end;
        }
        Ok(())
    }

    fn name_error(&self, e: InsertError, name: &str, source: u32) -> NameError {
        let other = self.snapshot.item(name).and_then(|item| self.snapshot.metric(item));
        if other.is_some_and(|entry| entry.source == source) { NameError::Twice } else { e.into() }
    }

    /// Lets a source contribute values to a metric that another record has described.
    fn add_values_to(&mut self, index: usize, name: &str, source: u32, desc: MetricDesc) -> Result<(), Refusal> {
        let Some(entry) = self.snapshot.metrics.get(index) else { return Err(Refusal::Item) };
        if self.snapshot.item(name) != Some(entry.item) {
            return Err(Refusal::ItemInUse(entry.item));
        }
        let is_same = self.snapshot.desc(entry) == Some(desc);
        let has_value = desc.indom.is_none() && entry.end > entry.start && entry.source != source;
        if let Some(entry) = self.snapshot.metrics.get_mut(index) {
            entry.last = source;
        }
        match (is_same, has_value) {
            (false, _) => Err(Refusal::Contradiction),
            (true, true) => Err(Refusal::Repeated),
            (true, false) => Ok(()),
        }
    }

    fn is_stranger(&self, of: Option<(Serial, Inst)>, source: u32, own: &Source) -> bool {
        of.is_some_and(|(serial, inst)| {
            let is_foreign = self.snapshot.domains.get(&serial).is_some_and(|domain| domain.uid != own.uid);
            is_foreign || !self.strangers.is_empty() && self.strangers.contains(&(serial, source, inst))
        })
    }

    fn set_index(&mut self, item: Item, index: u32) {
        if let Some(items) = self.snapshot.items.get_mut(usize::from(item.cluster())) {
            let place = usize::from(item.item());
            items.resize(items.len().max(place + 1), NONE);
            items[place] = index;
        }
    }

    fn finish(mut self) -> Snapshot {
        if !self.are_arranged() {
            self.arrange();
        }
        self.find_missing();
        let Snapshot { sources, clusters, domains, labels, .. } = &mut self.snapshot;
        for (number, (source, cluster)) in (0..).zip(sources.iter().zip(clusters)) {
            labels.add((number, source), *cluster, |subject| match subject {
                LabelSubject::InDom(serial) | LabelSubject::Instance(serial, _) => {
                    domains.get(&serial).is_none_or(|domain| domain.uid == source.uid)
                }
                LabelSubject::Cluster(_) | LabelSubject::Item(_) => true,
            });
            source.is_reported.store(true, Relaxed);
        }
        self.snapshot
    }

    /// Returns whether no value has to be moved or removed, as in most directories.
    fn are_arranged(&self) -> bool {
        let Snapshot { metrics, places, domains, .. } = &self.snapshot;
        self.more.is_empty()
            && metrics.iter().all(|entry| match entry.indom {
                None => entry.end - entry.start <= 1,
                Some(indom) => {
                    let places = places.get(entry.start as usize..entry.end as usize).unwrap_or_default();
                    domains.get(&indom).map_or(places.is_empty(), |domain| domain.is_order_of(places))
                }
            })
    }

    /// Arranges the values by metric and instance. Values of unknown instances are removed, and all but the first of
    /// each instance.
    fn arrange(&mut self) {
        let Builder { snapshot, more, orders, .. } = self;
        let Snapshot { sources, metrics, places, domains, .. } = snapshot;
        let arrived = std::mem::replace(places, Vec::with_capacity(places.len() + more.len()));
        more.sort_by_key(|(metric, _)| *metric);
        let mut more = std::mem::take(more).into_iter().peekable();
        for (index, entry) in (0..).zip(metrics) {
            let start = places.len();
            places.extend_from_slice(arrived.get(entry.start as usize..entry.end as usize).unwrap_or_default());
            places.extend(std::iter::from_fn(|| more.next_if(|(metric, _)| *metric == index)).map(|(_, place)| place));
            match entry.indom.map(|indom| domains.get(&indom).zip(orders.get(&indom))) {
                None => places.truncate(start + 1),
                Some(None) => places.truncate(start),
                Some(Some((domain, order))) => {
                    let repeated = domain.arrange(order, places, start);
                    report_repeated(self.prefix, sources, entry, &repeated);
                }
            }
            (entry.start, entry.end) = (start as u32, places.len() as u32);
        }
    }

    /// Sets the errors of metrics whose values are not complete.
    fn find_missing(&mut self) {
        let Snapshot { metrics, domains, clusters, .. } = &mut self.snapshot;
        let last: HashMap<u16, u32> = clusters.iter().copied().zip(0..).collect();
        for entry in metrics {
            let wanted = match entry.indom.map(|indom| domains.get(&indom)) {
                None => 1,
                Some(None) => 0,
                Some(Some(domain)) => domain.instances.len(),
            };
            // As in the C agent, the last file of the cluster determines the error.
            entry.missing = match last.get(&entry.item.cluster()) {
                _ if (entry.end - entry.start) as usize == wanted => None,
                Some(last) if *last == entry.last => Some(Error::INST),
                _ => Some(Error::PMID),
            };
        }
    }
}

impl DomainEntry {
    /// Returns whether these are values of all instances, in their order.
    fn is_order_of(&self, places: &[Place]) -> bool {
        let ids = self.instances.iter().map(|instance| Some(instance.id));
        places.len() == self.instances.len() && places.iter().map(|place| place.inst).eq(ids)
    }

    /// Sorts the places from `start` on in the order of the instances. Returns the sources whose values are left out,
    /// because an earlier source has values of the same instances.
    fn arrange(&self, order: &HashMap<Inst, u32>, places: &mut Vec<Place>, start: usize) -> Vec<u32> {
        let mut repeated = Vec::new();
        if self.is_order_of(places.get(start..).unwrap_or_default()) {
            return repeated;
        }
        let position = |place: &Place| order.get(&place.inst?).copied();
        let mut known: Vec<(u32, Place)> =
            places.drain(start..).filter_map(|place| Some((position(&place)?, place))).collect();
        known.sort_by_key(|(position, _)| *position);
        known.dedup_by(|(position, place), (before, first)| {
            let is_again = position == before;
            if is_again && place.source != first.source && !repeated.contains(&place.source) {
                repeated.push(place.source);
            }
            is_again
        });
        places.extend(known.into_iter().map(|(_, place)| place));
        repeated
    }
}

/// Logs that sources have instances of a metric that other sources have.
fn report_repeated(prefix: &str, sources: &[Arc<Source>], entry: &Entry, repeated: &[u32]) {
    let named = sources.get(entry.source as usize).and_then(|source| {
        let metric = source.file.metrics().get(entry.metric as usize)?;
        Some(String::from_utf8_lossy(source.file.name(metric)))
    });
    for source in repeated.iter().filter_map(|index| sources.get(*index as usize)) {
        if !source.is_reported.load(Relaxed) {
            let name = named.as_deref().unwrap_or_default();
            source
                .log(prefix, format_args!("instances of metric {name:?} are left out: another file has their values"));
        }
    }
}

/// Reason for leaving out a metric.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("its name {0}")]
    Name(#[from] NameError),
    #[error("its item is out of range")]
    Item,
    #[error("another metric has the identifier {0}")]
    ItemInUse(Item),
    #[error("another file has it with a different type, semantics, units or instance domain")]
    Contradiction,
    #[error("another file has its value")]
    Repeated,
}

impl Refusal {
    fn report(&self, prefix: &str, source: &Source, metric: &Metric) {
        let name = String::from_utf8_lossy(source.file.name(metric));
        match self {
            // PCP's agent logs nothing about names that it cannot insert, and PCP's tests expect nothing.
            Refusal::Name(NameError::Leaf | NameError::Reserved | NameError::TooMuch | NameError::Twice) => {
                let (file, uid) = (Path::new(&source.name).display(), source.uid);
                tracing::debug!(source = %uid, "{prefix}: {file}: metric {name:?} is left out: {self}");
            }
            _ if source.is_reported.load(Relaxed) => {}
            _ => source.log(prefix, format_args!("metric {name:?} is left out: {self}")),
        }
    }
}

/// Object that labels describe.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LabelSubject {
    /// All metrics of a cluster.
    Cluster(u16),
    /// A metric.
    Item(Item),
    /// An instance domain.
    InDom(Serial),
    /// An instance.
    Instance(Serial, Inst),
}

/// The labels of all files.
#[derive(Debug, Default)]
pub(super) struct LabelTable(HashMap<LabelSubject, Labels>);

/// The labels of a subject. They are merged at the first access.
#[derive(Debug, Default)]
struct Labels {
    /// Index of each source, and of the label in that source.
    parts: Vec<(u32, u32)>,
    set: OnceLock<LabelSet>,
}

/// Largest number of labels per subject, from all files, that are merged: twice as many as a set can hold. Further
/// labels are left out.
const MOST: usize = 512;

impl LabelTable {
    /// Returns the labels of a subject, or `None` if it has none. `sources` must be those of the table.
    pub(super) fn get(&self, of: LabelSubject, prefix: &str, sources: &[Arc<Source>]) -> Option<&LabelSet> {
        let labels = self.0.get(&of)?;
        Some(labels.set.get_or_init(|| labels.merge(prefix, sources))).filter(|set| !set.is_empty())
    }

    /// Adds the labels of a source. `accepts` selects the subjects that the source may label.
    pub(super) fn add(
        &mut self,
        (number, source): (u32, &Source),
        cluster: u16,
        accepts: impl Fn(LabelSubject) -> bool,
    ) {
        for (index, label) in (0..).zip(source.file.labels()) {
            for subject in subjects(source, cluster, label).filter(|subject| accepts(*subject)) {
                let parts = &mut self.0.entry(subject).or_default().parts;
                if parts.len() < MOST {
                    parts.push((number, index));
                }
            }
        }
    }
}

impl Labels {
    fn merge(&self, prefix: &str, sources: &[Arc<Source>]) -> LabelSet {
        let mut all = LabelSet::new();
        for (number, index) in &self.parts {
            let Some(source) = sources.get(*number as usize) else { continue };
            let Some(label) = source.file.labels().get(*index as usize) else { continue };
            let optional = label.flags & u32::from(LabelFlags::OPTIONAL.bits()) != 0;
            let flags = if optional { LabelFlags::OPTIONAL } else { LabelFlags::empty() };
            match str::from_utf8(source.file.payload(label)).ok().and_then(|json| parse(json, flags)) {
                None => source.log(prefix, format_args!("a label is left out: it is not a JSON object")),
                Some(set) => {
                    if let Err(e) = all.merge(&set) {
                        source.log(prefix, format_args!("{e}"));
                    }
                }
            }
        }
        all
    }
}

/// Parses labels as PCP's agent shows them. Merging a set writes nested names in full into the text.
fn parse(json: &str, flags: LabelFlags) -> Option<LabelSet> {
    let mut set = LabelSet::parse_flagged(&escaped_json(json), flags).ok()?;
    set.merge(&set.clone()).ok()?;
    Some(set)
}

/// Returns the subjects of a label: one, unless its flags name several levels.
fn subjects(source: &Source, cluster: u16, label: &Label) -> impl Iterator<Item = LabelSubject> + use<> {
    let item = u16::try_from(label.identity).ok().and_then(|item| Item::try_new(cluster, item));
    let serial = exported_serial(cluster, label.identity);
    let inst = Inst::from_word(label.instance as u32);
    let wanted = source.file.header().cluster as u32;
    let own = label.identity == wanted || label.identity == u32::from(cluster);
    let flags = label.flags;
    [
        (LabelLevel::Cluster, own.then_some(LabelSubject::Cluster(cluster))),
        (LabelLevel::Item, item.map(LabelSubject::Item)),
        (LabelLevel::InDom, Some(LabelSubject::InDom(serial))),
        (LabelLevel::Instances, inst.map(|inst| LabelSubject::Instance(serial, inst))),
    ]
    .into_iter()
    .filter(move |(level, _)| flags & level.code() != 0)
    .filter_map(|(_, subject)| subject)
}
