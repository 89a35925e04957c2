//! The combined metrics and instance domains of a group of files.

use std::collections::BTreeMap;
use std::path::Path;

use hashbrown::{HashMap, HashSet};
use pmapi::{Error, Inst, Item, Semantics, Serial, Units};

use super::MetricDesc;
use super::labels::LabelTable;
use super::names::{Name, NameError, Names, head};
use super::numbers::exported_serial;
use super::source::Source;
use crate::format::ValueType;
use crate::reader::{Indom, Instance, Metric};

/// The combined contents of a group's files. Sources are identified by their index in the group.
#[derive(Debug, Default)]
pub(super) struct Tables {
    names: Names,
    /// The metrics, in the order of the files.
    metrics: Vec<Entry>,
    /// Per cluster, the index of each item's metric, or [`NONE`].
    items: Vec<(u16, Vec<u32>)>,
    /// The data that a fetch needs about each metric, close together in memory.
    fetched: Vec<Fetched>,
    /// The values of all metrics; those of one metric are adjacent.
    places: Vec<Place>,
    pub indoms: BTreeMap<Serial, IndomEntry>,
    pub labels: LabelTable,
    /// The first components of names, each with its first source.
    heads: Vec<(u32, Box<str>)>,
}

/// A metric.
#[derive(Debug)]
pub(super) struct Entry {
    name: Name,
    pub item: Item,
    /// Index of the first source that has the metric.
    pub source: u32,
    /// Index of the metric in that source.
    pub metric: u32,
    /// Index of the last source that has the metric's item.
    last: u32,
}

/// A metric's type, and the range of its values in [`Tables::places`].
#[derive(Clone, Copy, Debug)]
struct Fetched {
    ty: ValueType,
    start: u32,
    end: u32,
    missing: Missing,
}

/// The error for a singular metric, or for instances, without a value.
#[derive(Clone, Copy, Debug)]
enum Missing {
    /// No value is missing.
    None,
    Inst,
    Pmid,
}

/// The values of a metric.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values<'a> {
    pub ty: ValueType,
    /// Positions of the values, in the order of the instances.
    pub places: &'a [Place],
    /// The error for instances without a value, or for a singular metric without one. `None` if no value is missing.
    pub missing: Option<Error>,
}

/// Index of no metric.
const NONE: u32 = u32::MAX;

/// Position of a value in the sources.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub inst: Option<Inst>,
    pub source: u32,
    pub metric: u32,
    pub index: u32,
}

/// An instance domain, to which several sources may contribute.
#[derive(Debug, Default)]
pub(super) struct IndomEntry {
    pub instances: Vec<InstanceEntry>,
    /// Index of each contributing source, and the index of the domain there.
    pub parts: Vec<(usize, usize)>,
    order: HashMap<Inst, usize>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct InstanceEntry {
    pub id: Inst,
    pub source: usize,
    pub name: Instance,
}

impl Entry {
    pub(super) fn desc(&self, sources: &[Source]) -> Option<MetricDesc> {
        let source = sources.get(self.source as usize)?;
        describe(source, source.file.metrics().get(self.metric as usize)?)
    }
}

/// Returns a file's description of a metric, or `None` if the item is out of range.
fn describe(source: &Source, metric: &Metric) -> Option<MetricDesc> {
    let item = u16::try_from(metric.item).ok().and_then(|item| Item::try_new(source.cluster, item))?;
    let indom = metric.indom.map(|serial| exported_serial(source.cluster, serial));
    let (semantics, units) = match metric.ty {
        ValueType::Elapsed => (Semantics::Counter, Units::MICROSECONDS),
        _ => (metric.semantics, metric.units),
    };
    Some(MetricDesc { item, ty: metric.ty, indom, semantics, units })
}

impl Tables {
    pub(super) fn build(prefix: &str, sources: &[Source]) -> Tables {
        let mut builder = Builder::new(prefix, sources);
        for (index, source) in sources.iter().enumerate() {
            for (part, indom) in source.file.indoms().iter().enumerate() {
                builder.add_indom(index, part, indom);
            }
        }
        for (index, source) in (0..).zip(sources) {
            builder.begin(source);
            for ((name, metric), number) in source.names(prefix).iter().zip(source.file.metrics()).zip(0..) {
                let added = name.map_err(Refusal::Name);
                let added = added.and_then(|name| builder.add_metric(name, index, source, number, metric));
                if let Err(e) = added {
                    e.report(prefix, source, metric);
                }
            }
        }
        let mut tables = builder.finish();
        tables.labels = LabelTable::build(sources);
        tables.heads = tables.find_heads(prefix, sources);
        tables
    }

    /// Returns all metrics, in the order of the files.
    pub(super) fn metrics(&self) -> &[Entry] {
        &self.metrics
    }

    /// Returns the number of first components of the names, without prefix.
    pub(super) fn head_count(&self) -> usize {
        self.heads.len()
    }

    /// Returns the first components whose first source is this one, in the order of the metrics.
    pub(super) fn heads_of(&self, source: u32) -> impl DoubleEndedIterator<Item = &str> {
        let start = self.heads.partition_point(|(first, _)| *first < source);
        let end = self.heads.partition_point(|(first, _)| *first <= source);
        self.heads.get(start..end).unwrap_or_default().iter().map(|(_, head)| &**head)
    }

    /// Returns the metrics whose first source is this one.
    pub(super) fn metrics_of(&self, source: u32) -> &[Entry] {
        let start = self.metrics.partition_point(|entry| entry.source < source);
        let end = self.metrics.partition_point(|entry| entry.source <= source);
        self.metrics.get(start..end).unwrap_or_default()
    }

    pub(super) fn metric(&self, item: Item) -> Option<&Entry> {
        self.metrics.get(self.index(item)?)
    }

    pub(super) fn names(&self) -> &Names {
        &self.names
    }

    /// Returns the identifier of the metric with this name.
    pub(super) fn item(&self, name: &str) -> Option<Item> {
        self.names.item(name)
    }

    pub(super) fn name(&self, entry: &Entry) -> &str {
        self.names.text(entry.name)
    }

    #[inline]
    pub(super) fn values(&self, item: Item) -> Option<Values<'_>> {
        let Fetched { ty, start, end, missing } = *self.fetched.get(self.index(item)?)?;
        let missing = match missing {
            Missing::None => None,
            Missing::Inst => Some(Error::INST),
            Missing::Pmid => Some(Error::PMID),
        };
        Some(Values { ty, places: self.places.get(start as usize..end as usize)?, missing })
    }

    /// Returns the instances of a metric; none if it is singular.
    pub(super) fn instances_of(&self, sources: &[Source], item: Item) -> &[InstanceEntry] {
        let indom = self.metric(item).and_then(|entry| entry.desc(sources)?.indom);
        indom.and_then(|indom| self.indoms.get(&indom)).map(|indom| &*indom.instances).unwrap_or_default()
    }

    fn find_heads(&self, prefix: &str, sources: &[Source]) -> Vec<(u32, Box<str>)> {
        let mut all = sources.iter().flat_map(Source::heads);
        if let (Some(entry), Some(only)) = (self.metrics.first(), all.next()) {
            if all.all(|head| head == only) {
                return vec![(entry.source, only.into())];
            }
        }
        let mut heads: Vec<(u32, Box<str>)> = Vec::new();
        let mut seen = HashSet::new();
        for entry in &self.metrics {
            let head = head(self.name(entry).get(prefix.len() + 1..).unwrap_or_default());
            if heads.last().is_none_or(|(_, last)| **last != *head) && seen.insert(head) {
                heads.push((entry.source, head.into()));
            }
        }
        heads
    }

    #[inline]
    fn index(&self, item: Item) -> Option<usize> {
        let items = match &self.items[..] {
            [(cluster, items)] if *cluster == item.cluster() => items,
            many => &many.get(many.binary_search_by_key(&item.cluster(), |(cluster, _)| *cluster).ok()?)?.1,
        };
        let index = *items.get(usize::from(item.item()))?;
        (index != NONE).then_some(index as usize)
    }
}

struct Builder<'a> {
    prefix: &'a str,
    sources: &'a [Source],
    tables: Tables,
    /// Type and instance domain of each metric.
    shapes: Vec<(ValueType, Option<Serial>)>,
    /// The values, each with the index of its metric.
    values: Vec<(u32, Place)>,
    /// Instances of a source that are left out, because another source has another name for the identifier.
    strangers: HashSet<(Serial, usize, Inst)>,
    /// Index of the present source's cluster in [`Tables::items`].
    cluster: usize,
}

impl<'a> Builder<'a> {
    fn new(prefix: &'a str, sources: &'a [Source]) -> Builder<'a> {
        let metrics = sources.iter().map(|source| source.file.metrics().len()).sum();
        let values = sources.iter().map(|source| source.file.value_count() as usize).sum();
        let tables = Tables {
            names: Names::with_capacity(metrics),
            metrics: Vec::with_capacity(metrics),
            fetched: Vec::with_capacity(metrics),
            ..Tables::default()
        };
        let (shapes, values) = (Vec::with_capacity(metrics), Vec::with_capacity(values));
        Builder { prefix, sources, tables, shapes, values, strangers: HashSet::new(), cluster: 0 }
    }

    /// Begins with the metrics of a source.
    fn begin(&mut self, source: &Source) {
        let items = &mut self.tables.items;
        self.cluster = items.binary_search_by_key(&source.cluster, |(cluster, _)| *cluster).unwrap_or_else(|at| {
            items.insert(at, (source.cluster, Vec::new()));
            at
        });
    }

    /// Returns the index of the metric with an item of the present source's cluster.
    fn index(&self, item: Item) -> Option<usize> {
        let (_, items) = self.tables.items.get(self.cluster)?;
        let index = *items.get(usize::from(item.item()))?;
        (index != NONE).then_some(index as usize)
    }

    fn set_index(&mut self, item: Item, index: usize) {
        if let Some((_, items)) = self.tables.items.get_mut(self.cluster) {
            let item = usize::from(item.item());
            items.resize(items.len().max(item + 1), NONE);
            items[item] = index as u32;
        }
    }

    fn add_indom(&mut self, source: usize, part: usize, indom: &Indom) {
        let Some(own) = self.sources.get(source) else { return };
        let serial = exported_serial(own.cluster, indom.serial);
        let entry = self.tables.indoms.entry(serial).or_default();
        entry.parts.push((source, part));
        for instance in indom.instances() {
            let Some(id) = Inst::from_word(instance.id as u32) else { continue };
            let Some(&known) = entry.order.get(&id) else {
                entry.order.insert(id, entry.instances.len());
                entry.instances.push(InstanceEntry { id, source, name: *instance });
                continue;
            };
            let name = own.file.instance_name(instance);
            let same = entry.instances.get(known).is_some_and(|known| {
                self.sources.get(known.source).is_some_and(|s| s.file.instance_name(&known.name) == name)
            });
            if !same {
                let name = String::from_utf8_lossy(name);
                own.log(self.prefix, format_args!("instance {id} of {serial}: name {name:?} contradicts another file"));
                self.strangers.insert((serial, source, id));
            }
        }
    }

    fn add_metric(
        &mut self,
        name: &str,
        source: u32,
        own: &Source,
        metric_index: u32,
        metric: &Metric,
    ) -> Result<(), Refusal> {
        let desc = describe(own, metric).ok_or(Refusal::Item)?;
        let MetricDesc { item, indom, .. } = desc;
        let index = self.index(item).unwrap_or(self.tables.metrics.len());
        if let Some(entry) = self.tables.metrics.get_mut(index) {
            entry.last = source;
            // The source contributes further instances to a known metric.
            if self.tables.names.text(entry.name) != name {
                return Err(Refusal::ItemInUse(item));
            }
            if entry.desc(self.sources) != Some(desc) {
                return Err(Refusal::Contradiction);
            }
        } else {
            let name = self.tables.names.insert(name, item)?;
            self.set_index(item, index);
            self.tables.metrics.push(Entry { name, item, source, metric: metric_index, last: source });
            self.shapes.push((desc.ty, indom));
        }
        for value in metric.values() {
            let inst = indom.and_then(|_| Inst::from_word(value.instance as u32));
            let is_stranger =
                |(indom, inst)| !self.strangers.is_empty() && self.strangers.contains(&(indom, source as usize, inst));
            if inst.is_some() == indom.is_some() && !indom.zip(inst).is_some_and(is_stranger) {
                self.values.push((index as u32, Place { inst, source, metric: metric_index, index: value.index }));
            }
        }
        Ok(())
    }

    /// Sorts the values by metric and instance. Values of unknown instances are removed, and all but the first of each
    /// instance.
    fn finish(self) -> Tables {
        let Builder { sources, mut tables, shapes, mut values, .. } = self;
        let last: HashMap<u16, u32> = sources.iter().map(|source| source.cluster).zip(0..).collect();
        if !values.is_sorted_by_key(|(metric, _)| *metric) {
            values.sort_by_key(|(metric, _)| *metric);
        }
        let Tables { metrics, indoms, places, fetched, .. } = &mut tables;
        places.reserve_exact(values.len());
        let mut values = values.into_iter().peekable();
        for (index, (entry, (ty, indom))) in (0..).zip(metrics.iter().zip(shapes)) {
            let start = places.len();
            places
                .extend(std::iter::from_fn(|| values.next_if(|(metric, _)| *metric == index)).map(|(_, place)| place));
            let wanted = match indom.map(|indom| indoms.get(&indom)) {
                None => {
                    places.truncate(start + 1);
                    1
                }
                Some(None) => {
                    places.truncate(start);
                    0
                }
                Some(Some(indom)) => {
                    indom.arrange(places, start);
                    indom.instances.len()
                }
            };
            // As in the C agent, the last file of the cluster determines the error.
            let missing = match last.get(&entry.item.cluster()) {
                _ if places.len() - start == wanted => Missing::None,
                Some(last) if *last == entry.last => Missing::Inst,
                _ => Missing::Pmid,
            };
            fetched.push(Fetched { ty, start: start as u32, end: places.len() as u32, missing });
        }
        tables
    }
}

impl IndomEntry {
    /// Sorts the places from `start` on in the order of the instances.
    fn arrange(&self, places: &mut Vec<Place>, start: usize) {
        let ids = self.instances.iter().map(|instance| Some(instance.id));
        if places.iter().skip(start).map(|place| place.inst).eq(ids) {
            return;
        }
        let position = |place: &Place| self.order.get(&place.inst?).copied();
        let mut known: Vec<(usize, Place)> =
            places.drain(start..).filter_map(|place| Some((position(&place)?, place))).collect();
        known.sort_by_key(|(position, _)| *position);
        known.dedup_by_key(|(position, _)| *position);
        places.extend(known.into_iter().map(|(_, place)| place));
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
}

impl Refusal {
    fn report(&self, prefix: &str, source: &Source, metric: &Metric) {
        let name = String::from_utf8_lossy(source.file.name(metric));
        match self {
            Refusal::Name(NameError::Syntax) | Refusal::Item => {
                source.log(prefix, format_args!("metric {name:?} is left out: {self}"));
            }
            // PCP's agent logs nothing here, and PCP's tests expect nothing.
            _ => {
                let (file, uid) = (Path::new(&source.name).display(), source.uid);
                tracing::debug!(source = %format_args!("uid {uid}"), "{prefix}: {file}: metric {name:?} is left out: {self}");
            }
        }
    }
}
