//! The files' metrics and instance domains, put together.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use pmapi::{Error, Inst, Item, Semantics, Serial, Units};

use super::MetricDesc;
use super::labels::LabelTable;
use super::names::{NameError, Names, full_name};
use super::source::Source;
use crate::format::ValueType;
use crate::reader::{Indom, Instance, Metric};

/// What all files together have. Sources are meant by their index.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub names: Names,
    /// In the order of the files.
    pub metrics: Vec<Entry>,
    /// Each metric's place among them, by cluster and item; [`NONE`] where there is none.
    items: Vec<Vec<u32>>,
    /// What a fetch needs to know of each metric, close together.
    fetched: Vec<Fetched>,
    /// The values of all metrics, those of one together.
    places: Vec<Place>,
    pub indoms: BTreeMap<Serial, IndomEntry>,
    pub labels: LabelTable,
}

/// A metric.
#[derive(Debug)]
pub(super) struct Entry {
    pub name: Arc<str>,
    pub desc: MetricDesc,
    /// The first file that has it.
    pub source: usize,
    /// Its index in that file.
    pub metric: usize,
    /// The last file that has its item.
    last: usize,
}

/// A metric's type, and where its values are in the list of all places.
#[derive(Clone, Copy, Debug)]
struct Fetched {
    ty: ValueType,
    start: u32,
    end: u32,
    /// What becomes of instances without a value, if there are any; of the whole metric when it is singular.
    missing: Option<Error>,
}

/// The values of a metric.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values<'a> {
    pub ty: ValueType,
    /// In the order of the instances.
    pub places: &'a [Place],
    pub missing: Option<Error>,
}

/// No metric's place.
const NONE: u32 = u32::MAX;

/// Where a value is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub inst: Option<Inst>,
    pub source: u32,
    pub metric: u32,
    pub index: u32,
}

/// An instance domain, to which several files can contribute.
#[derive(Debug, Default)]
pub(super) struct IndomEntry {
    pub instances: Vec<InstanceEntry>,
    /// Source and index of each part.
    pub parts: Vec<(usize, usize)>,
    order: HashMap<Inst, usize>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct InstanceEntry {
    pub id: Inst,
    pub source: usize,
    pub name: Instance,
}

/// The number under which a file's instance domain is exported.
pub(super) fn exported_serial(cluster: u16, serial: u32) -> Serial {
    let number = (u32::from(cluster) << 11 | serial) & Serial::MAX;
    Serial::try_new(number).unwrap_or(const { Serial::new(0) })
}

impl Tables {
    pub(super) fn build(prefix: &str, sources: &[Source]) -> Tables {
        let mut builder = Builder::new(prefix, sources);
        for (index, source) in sources.iter().enumerate() {
            for (part, indom) in source.file.indoms().iter().enumerate() {
                builder.add_indom(sources, index, part, indom);
            }
        }
        for (index, source) in sources.iter().enumerate() {
            for (metric_index, metric) in source.file.metrics().iter().enumerate() {
                if let Err(e) = builder.add_metric(sources, index, metric_index, metric) {
                    let name = String::from_utf8_lossy(source.file.name(metric)).into_owned();
                    let file = source.name.display();
                    match e {
                        Refusal::Name(NameError::Syntax) | Refusal::Item => {
                            tracing::error!("{prefix}: {file}: metric {name:?} is left out: {e}");
                        }
                        // PCP's agent has nothing to say, and PCP's tests want to see nothing.
                        _ => tracing::debug!("{prefix}: {file}: metric {name:?} is left out: {e}"),
                    }
                }
            }
        }
        let mut tables = builder.finish(sources);
        tables.labels = LabelTable::build(sources);
        tables
    }

    pub(super) fn metric(&self, item: Item) -> Option<&Entry> {
        self.metrics.get(self.index(item)?)
    }

    #[inline]
    pub(super) fn values(&self, item: Item) -> Option<Values<'_>> {
        let Fetched { ty, start, end, missing } = *self.fetched.get(self.index(item)?)?;
        Some(Values { ty, places: self.places.get(start as usize..end as usize)?, missing })
    }

    /// The instances of a metric, none when it is singular.
    pub(super) fn instances_of(&self, item: Item) -> &[InstanceEntry] {
        let indom = self.metric(item).and_then(|entry| self.indoms.get(&entry.desc.indom?));
        indom.map_or(&[], |indom| &indom.instances)
    }

    #[inline]
    fn index(&self, item: Item) -> Option<usize> {
        let index = *self.items.get(usize::from(item.cluster()))?.get(usize::from(item.item()))?;
        (index != NONE).then_some(index as usize)
    }

    fn set_index(&mut self, item: Item, index: usize) {
        let (cluster, item) = (usize::from(item.cluster()), usize::from(item.item()));
        if self.items.len() <= cluster {
            self.items.resize(cluster + 1, Vec::new());
        }
        if let Some(items) = self.items.get_mut(cluster) {
            items.resize(items.len().max(item + 1), NONE);
            items[item] = index as u32;
        }
    }
}

struct Builder<'a> {
    prefix: &'a str,
    tables: Tables,
    /// Of each metric.
    values: Vec<Vec<Place>>,
    /// Instances of a source whose identifier has another name in the domain.
    strangers: HashSet<(Serial, usize, Inst)>,
    /// For the name of one metric.
    name: String,
}

impl<'a> Builder<'a> {
    fn new(prefix: &'a str, sources: &[Source]) -> Builder<'a> {
        let metrics = sources.iter().map(|source| source.file.metrics().len()).sum();
        let tables = Tables {
            names: Names::with_capacity(metrics),
            metrics: Vec::with_capacity(metrics),
            fetched: Vec::with_capacity(metrics),
            ..Tables::default()
        };
        Builder { prefix, tables, values: Vec::with_capacity(metrics), strangers: HashSet::new(), name: String::new() }
    }

    fn add_indom(&mut self, sources: &[Source], source: usize, part: usize, indom: &Indom) {
        let Some(own) = sources.get(source) else { return };
        let serial = exported_serial(own.cluster, indom.serial);
        let entry = self.tables.indoms.entry(serial).or_default();
        entry.parts.push((source, part));
        for instance in indom.instances() {
            let Some(id) = Inst::from_word(instance.id.cast_unsigned()) else { continue };
            let Some(&known) = entry.order.get(&id) else {
                entry.order.insert(id, entry.instances.len());
                entry.instances.push(InstanceEntry { id, source, name: *instance });
                continue;
            };
            let name = own.file.instance_name(instance);
            let same = entry.instances.get(known).is_some_and(|known| {
                sources.get(known.source).is_some_and(|s| s.file.instance_name(&known.name) == name)
            });
            if !same {
                let (prefix, file, name) = (self.prefix, own.name.display(), String::from_utf8_lossy(name));
                tracing::error!("{prefix}: {file}: instance {id} of {serial} has another name than {name:?}");
                self.strangers.insert((serial, source, id));
            }
        }
    }

    fn add_metric(
        &mut self,
        sources: &[Source],
        source: usize,
        metric_index: usize,
        metric: &Metric,
    ) -> Result<(), Refusal> {
        let Some(own) = sources.get(source) else { return Ok(()) };
        full_name(self.prefix, own, own.file.name(metric), &mut self.name)?;
        let item = u16::try_from(metric.item).ok().and_then(|item| Item::try_new(own.cluster, item));
        let item = item.ok_or(Refusal::Item)?;
        let indom = metric.indom.map(|serial| exported_serial(own.cluster, serial));
        let desc = match metric.ty {
            ValueType::Elapsed => (Semantics::Counter, Units::MICROSECONDS),
            _ => (metric.semantics, metric.units),
        };
        let desc = MetricDesc { item, ty: metric.ty, indom, semantics: desc.0, units: desc.1 };
        let index = self.tables.index(item).unwrap_or(self.tables.metrics.len());
        if let Some(entry) = self.tables.metrics.get_mut(index) {
            entry.last = source;
            // Another part of the same metric, with other instances.
            if *entry.name != *self.name {
                return Err(Refusal::ItemInUse(item));
            }
            if entry.desc != desc {
                return Err(Refusal::Contradiction);
            }
        } else {
            let name = self.tables.names.insert(&self.name, item)?;
            self.tables.set_index(item, index);
            self.tables.metrics.push(Entry { name, desc, source, metric: metric_index, last: source });
            self.values.push(Vec::new());
        }
        let Some(values) = self.values.get_mut(index) else { return Ok(()) };
        values.reserve_exact(metric.values().len());
        let only = values.is_empty() && metric.values().len() == 1;
        let mut known: HashSet<Option<Inst>> = values.iter().map(|place| place.inst).collect();
        for value in metric.values() {
            let inst = indom.and_then(|_| Inst::from_word(value.instance.cast_unsigned()));
            let stranger = indom.zip(inst).is_some_and(|(d, inst)| self.strangers.contains(&(d, source, inst)));
            if inst.is_some() == indom.is_some() && !stranger && (only || known.insert(inst)) {
                values.push(Place { inst, source: source as u32, metric: metric_index as u32, index: value.index });
            }
        }
        Ok(())
    }

    /// Puts values into the order of their instances; those of no known instance go.
    fn finish(self, sources: &[Source]) -> Tables {
        let mut tables = self.tables;
        let last: HashMap<u16, usize> = sources.iter().map(|source| source.cluster).zip(0..).collect();
        tables.places.reserve(self.values.iter().map(Vec::len).sum());
        for (entry, mut values) in tables.metrics.iter().zip(self.values) {
            let mut wanted = 1;
            if let Some(indom) = entry.desc.indom {
                let order = tables.indoms.get(&indom).map(|indom| &indom.order);
                wanted = order.map_or(0, HashMap::len);
                let position = |place: &Place| order?.get(&place.inst?).copied();
                values.retain(|place| position(place).is_some());
                values.sort_by_key(position);
            }
            let start = tables.places.len() as u32;
            tables.places.append(&mut values);
            let end = tables.places.len() as u32;
            // As the C agent has it, the last file of the cluster has the last word.
            let is_last = last.get(&entry.desc.item.cluster()) == Some(&entry.last);
            let error = if is_last { Error::INST } else { Error::PMID };
            let missing = ((end - start) as usize != wanted).then_some(error);
            tables.fetched.push(Fetched { ty: entry.desc.ty, start, end, missing });
        }
        tables
    }
}

/// Why a metric is left out.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("its name {0}")]
    Name(#[from] NameError),
    #[error("its item is out of range")]
    Item,
    #[error("another metric has the identifier {0}")]
    ItemInUse(Item),
    #[error("another file has it with another type, semantics, units or instance domain")]
    Contradiction,
}
