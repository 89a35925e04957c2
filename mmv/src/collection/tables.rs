//! The files' metrics and instance domains, put together.

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};
use pmapi::{Inst, Item, Semantics, Serial, Units};

use super::MetricDesc;
use super::labels::LabelTable;
use super::names::{check_place, full_name};
use super::source::Source;
use crate::format::ValueType;
use crate::reader::{Indom, Instance, Metric};

/// What all files together have. Sources are meant by their index.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub names: BTreeMap<String, Item>,
    /// The metrics in the order of the files.
    pub order: Vec<Item>,
    pub metrics: HashMap<Item, Entry>,
    pub indoms: BTreeMap<Serial, IndomEntry>,
    pub labels: LabelTable,
}

/// A metric.
#[derive(Debug)]
pub(super) struct Entry {
    pub name: String,
    pub desc: MetricDesc,
    /// The first file that has it.
    pub source: usize,
    /// Its index in that file.
    pub metric: usize,
    /// In the order of the instances.
    pub values: Vec<Place>,
}

/// Where a value is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub inst: Option<Inst>,
    pub source: usize,
    pub metric: usize,
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
        let mut builder = Builder { prefix, tables: Tables::default(), strangers: HashSet::new() };
        for (index, source) in sources.iter().enumerate() {
            for (part, indom) in source.file.indoms().iter().enumerate() {
                builder.add_indom(sources, index, part, indom);
            }
        }
        for (index, source) in sources.iter().enumerate() {
            for (metric_index, metric) in source.file.metrics().iter().enumerate() {
                if let Err(e) = builder.add_metric(sources, index, metric_index, metric) {
                    let name = String::from_utf8_lossy(source.file.name(metric)).into_owned();
                    tracing::error!("{prefix}: {}: metric {name:?} is left out: {e}", source.name.display());
                }
            }
        }
        let mut tables = builder.tables;
        tables.sort_values();
        tables.labels = LabelTable::build(sources);
        tables
    }

    /// Puts values into the order of their instances; those of no known instance go.
    fn sort_values(&mut self) {
        for entry in self.metrics.values_mut() {
            let Some(indom) = entry.desc.indom else { continue };
            let empty = IndomEntry::default();
            let order = &self.indoms.get(&indom).unwrap_or(&empty).order;
            let position = |place: &Place| place.inst.and_then(|inst| order.get(&inst).copied());
            entry.values.retain(|place| position(place).is_some());
            entry.values.sort_by_key(position);
        }
    }
}

struct Builder<'a> {
    prefix: &'a str,
    tables: Tables,
    /// Instances of a source whose identifier has another name in the domain.
    strangers: HashSet<(Serial, usize, Inst)>,
}

impl Builder<'_> {
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
        let name = full_name(self.prefix, own, own.file.name(metric))?;
        let item = u16::try_from(metric.item).ok().and_then(|item| Item::try_new(own.cluster, item));
        let item = item.ok_or(Refusal::Item)?;
        let indom = metric.indom.map(|serial| exported_serial(own.cluster, serial));
        let desc = match metric.ty {
            ValueType::Elapsed => (Semantics::Counter, Units::MICROSECONDS),
            _ => (metric.semantics, metric.units),
        };
        let desc = MetricDesc { item, ty: metric.ty, indom, semantics: desc.0, units: desc.1 };
        if let Some(entry) = self.tables.metrics.get(&item) {
            // Another part of the same metric, with other instances.
            if entry.name != name {
                return Err(Refusal::ItemInUse(item));
            }
            if entry.desc != desc {
                return Err(Refusal::Contradiction);
            }
        } else {
            check_place(&self.tables.names, &name)?;
            self.tables.names.insert(name.clone(), item);
            self.tables.order.push(item);
        }
        let new = || Entry { name, desc, source, metric: metric_index, values: Vec::new() };
        let entry = self.tables.metrics.entry(item).or_insert_with(new);
        let mut known: HashSet<Option<Inst>> = entry.values.iter().map(|place| place.inst).collect();
        for value in metric.values() {
            let inst = indom.and_then(|_| Inst::from_word(value.instance.cast_unsigned()));
            let stranger = indom.zip(inst).is_some_and(|(d, inst)| self.strangers.contains(&(d, source, inst)));
            if inst.is_some() == indom.is_some() && !stranger && known.insert(inst) {
                entry.values.push(Place { inst, source, metric: metric_index, index: value.index });
            }
        }
        Ok(())
    }
}

/// Why a metric is left out.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("its name {0}")]
    Name(#[from] super::names::NameError),
    #[error("its item is out of range")]
    Item,
    #[error("another metric has the identifier {0}")]
    ItemInUse(Item),
    #[error("another file has it with another type, semantics, units or instance domain")]
    Contradiction,
}
