//! The combined metrics and instance domains of a group of files.

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};
use pmapi::{Error, Inst, Item, Semantics, Serial, Units};

use super::MetricDesc;
use super::labels::LabelTable;
use super::names::{Name, Names, head};
use super::numbers::exported_serial;
use super::source::Source;
use crate::format::ValueType;
use crate::reader::{Instance, Metric};

/// The combined contents of a group's files. Sources are identified by their index in the group.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub names: Names,
    /// The metrics, in the order of the files.
    pub metrics: Vec<Entry>,
    /// Per cluster, the index of each item's metric, or [`NONE`].
    pub items: Vec<(u16, Vec<u32>)>,
    /// The part of each metric's description that a fetch needs. These parts are close together in memory.
    pub fetched: Vec<Fetched>,
    /// The values of all metrics. Those of each metric are adjacent.
    pub places: Vec<Place>,
    pub indoms: BTreeMap<Serial, IndomEntry>,
    pub labels: LabelTable,
    /// The first components of names, each with the index of the first source that has it.
    heads: Vec<(u32, Box<str>)>,
}

/// A metric.
#[derive(Debug)]
pub(super) struct Entry {
    pub name: Name,
    pub item: Item,
    /// Index of the first source that has the metric.
    pub source: u32,
    /// Index of the metric in that source.
    pub metric: u32,
    /// Index of the last source that has the metric's item.
    pub last: u32,
    pub indom: Option<Serial>,
}

/// A metric's type, and the range of its values in [`Tables::places`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetched {
    pub ty: ValueType,
    pub start: u32,
    pub end: u32,
    pub missing: Missing,
}

/// The error for a singular metric, or for instances, without a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Missing {
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

/// Index that means no metric.
pub(super) const NONE: u32 = u32::MAX;

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
    /// Index of each contributing source, and of the domain in that source.
    pub parts: Vec<(usize, usize)>,
    pub order: HashMap<Inst, usize>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct InstanceEntry {
    pub id: Inst,
    pub source: usize,
    pub name: Instance,
}

impl Entry {
    pub(super) fn desc(&self, sources: &[Source]) -> Option<MetricDesc> {
        self.desc_of(sources.get(self.source as usize)?)
    }

    /// Returns the description while the tables are being built.
    pub(super) fn desc_in(&self, sources: &[&Source]) -> Option<MetricDesc> {
        self.desc_of(sources.get(self.source as usize)?)
    }

    fn desc_of(&self, source: &Source) -> Option<MetricDesc> {
        describe(source, source.file.metrics().get(self.metric as usize)?)
    }
}

/// Returns a file's description of a metric, or `None` if the item is out of range.
pub(super) fn describe(source: &Source, metric: &Metric) -> Option<MetricDesc> {
    let item = u16::try_from(metric.item).ok().and_then(|item| Item::try_new(source.cluster, item))?;
    let indom = metric.indom.map(|serial| exported_serial(source.cluster, serial));
    let (semantics, units) = match metric.ty {
        ValueType::Elapsed => (Semantics::Counter, Units::MICROSECONDS),
        _ => (metric.semantics, metric.units),
    };
    Some(MetricDesc { item, ty: metric.ty, indom, semantics, units })
}

impl Tables {
    pub(super) fn with_capacity(metrics: usize, nodes: usize, values: usize) -> Tables {
        Tables {
            names: Names::with_capacity(metrics + nodes),
            metrics: Vec::with_capacity(metrics),
            fetched: Vec::with_capacity(metrics),
            places: Vec::with_capacity(values),
            ..Tables::default()
        }
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

    /// Returns the instances of a metric. A singular metric has none.
    pub(super) fn instances_of(&self, sources: &[Source], item: Item) -> &[InstanceEntry] {
        let indom = self.metric(item).and_then(|entry| entry.desc(sources)?.indom);
        indom.and_then(|indom| self.indoms.get(&indom)).map(|indom| &*indom.instances).unwrap_or_default()
    }

    pub(super) fn set_heads(&mut self, prefix: &str, sources: &[&Source]) {
        self.heads = self.find_heads(prefix, sources);
    }

    fn find_heads(&self, prefix: &str, sources: &[&Source]) -> Vec<(u32, Box<str>)> {
        let mut all = sources.iter().flat_map(|source| source.heads());
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

impl IndomEntry {
    /// Returns whether these are values of all instances, in their order.
    pub(super) fn is_order_of(&self, places: &[Place]) -> bool {
        let ids = self.instances.iter().map(|instance| Some(instance.id));
        places.len() == self.instances.len() && places.iter().map(|place| place.inst).eq(ids)
    }

    /// Sorts the places from `start` on in the order of the instances.
    pub(super) fn arrange(&self, places: &mut Vec<Place>, start: usize) {
        if self.is_order_of(places.get(start..).unwrap_or_default()) {
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
