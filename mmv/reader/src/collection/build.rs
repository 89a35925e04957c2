//! Building of tables, at once or in parts.

use std::path::Path;

use hashbrown::{HashMap, HashSet};
use pmapi::{Inst, Item, Serial};

use super::MetricDesc;
use super::labels::LabelTable;
use super::names::NameError;
use super::numbers::exported_serial;
use super::source::Source;
use super::tables::{Entry, Fetched, InstanceEntry, Missing, NONE, Place, Tables, describe};
use crate::reader::{Indom, Metric};

/// Tables of a group's files that are being built. Each step takes a few milliseconds at most.
#[derive(Debug)]
pub(super) struct Builder {
    tables: Tables,
    /// Values of metrics that an earlier record has described, each with the index of its metric.
    more: Vec<(u32, Place)>,
    /// Instances of a source that are left out, because another source has another name for the identifier.
    strangers: HashSet<(Serial, usize, Inst)>,
    /// Index of the present source's cluster in [`Tables::items`].
    cluster: usize,
    next: Step,
}

/// Next step of building.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// The instances of a source's domain, from this one on.
    Instances {
        source: usize,
        part: usize,
        first: usize,
    },
    /// The metrics of a source.
    Metrics(usize),
    Sort,
    Arrange,
    Missing,
    Labels,
    Nothing,
}

/// Instances that are added in a step.
const INSTANCES: usize = 8192;

impl Builder {
    pub(super) fn new(sources: &[&Source]) -> Builder {
        let metrics = sources.iter().map(|source| source.file.metrics().len()).sum();
        let values = sources.iter().map(|source| source.file.value_count() as usize).sum();
        let nodes: usize = sources.iter().map(|source| source.nodes).sum();
        Builder {
            tables: Tables::with_capacity(metrics, nodes, values),
            more: Vec::new(),
            strangers: HashSet::new(),
            cluster: 0,
            next: Step::Instances { source: 0, part: 0, first: 0 },
        }
    }

    /// Builds the tables of a group's files.
    pub(super) fn build(prefix: &str, sources: &[Source]) -> Tables {
        let sources: Vec<&Source> = sources.iter().collect();
        let mut builder = Builder::new(&sources);
        builder.go_on(prefix, &sources, || false);
        builder.tables
    }

    /// Does steps until the tables are complete or `is_over` returns true. The sources are always the same. Returns
    /// whether the tables are complete.
    pub(super) fn go_on(&mut self, prefix: &str, sources: &[&Source], is_over: impl Fn() -> bool) -> bool {
        while self.next != Step::Nothing {
            self.next = self.step(prefix, sources);
            if is_over() {
                break;
            }
        }
        self.next == Step::Nothing
    }

    /// Returns the tables, which must be complete.
    pub(super) fn into_tables(self) -> Tables {
        self.tables
    }

    fn step(&mut self, prefix: &str, sources: &[&Source]) -> Step {
        match self.next {
            Step::Instances { source, part, first } => match sources.get(source) {
                None => Step::Metrics(0),
                Some(own) => match own.file.indoms().get(part) {
                    None => Step::Instances { source: source + 1, part: 0, first: 0 },
                    Some(indom) if self.add_instances(prefix, sources, (source, part, first), indom) => {
                        Step::Instances { source, part: part + 1, first: 0 }
                    }
                    Some(_) => Step::Instances { source, part, first: first + INSTANCES },
                },
            },
            Step::Metrics(source) => match sources.get(source) {
                None => Step::Sort,
                Some(own) => {
                    self.add_metrics(prefix, sources, source as u32, own);
                    Step::Metrics(source + 1)
                }
            },
            Step::Sort => {
                self.more.sort_by_key(|(metric, _)| *metric);
                Step::Arrange
            }
            Step::Arrange => {
                if !self.are_arranged() {
                    self.arrange();
                }
                Step::Missing
            }
            Step::Missing => {
                self.find_missing(sources);
                Step::Labels
            }
            Step::Labels => {
                self.tables.labels = LabelTable::build(sources);
                self.tables.set_heads(prefix, sources);
                Step::Nothing
            }
            Step::Nothing => Step::Nothing,
        }
    }

    /// Adds some instances of a domain. The indexes are those of the source, of the domain in the source, and of the
    /// first instance to add. Returns whether all instances have been added.
    fn add_instances(
        &mut self,
        prefix: &str,
        sources: &[&Source],
        (source, part, first): (usize, usize, usize),
        indom: &Indom,
    ) -> bool {
        let Some(own) = sources.get(source) else { return true };
        let serial = exported_serial(own.cluster, indom.serial);
        let all = indom.instances();
        let end = all.len().min(first + INSTANCES);
        let instances = all.get(first..end).unwrap_or_default();
        let entry = self.tables.indoms.entry(serial).or_default();
        if first == 0 {
            entry.parts.push((source, part));
            entry.order.reserve(all.len());
            entry.instances.reserve(all.len());
        }
        for instance in instances {
            let Some(id) = Inst::from_word(instance.id as u32) else { continue };
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
                let name = String::from_utf8_lossy(name);
                own.log(prefix, format_args!("instance {id} of {serial}: name {name:?} contradicts another file"));
                self.strangers.insert((serial, source, id));
            }
        }
        end == all.len()
    }

    fn add_metrics(&mut self, prefix: &str, sources: &[&Source], source: u32, own: &Source) {
        let items = &mut self.tables.items;
        self.cluster = items.binary_search_by_key(&own.cluster, |(cluster, _)| *cluster).unwrap_or_else(|at| {
            items.insert(at, (own.cluster, Vec::new()));
            at
        });
        own.names(prefix).each(&own.file, |number, metric, name| {
            let added = name.map_err(Refusal::Name);
            let added = added.and_then(|name| self.add_metric(sources, name, source, own, number, metric));
            if let Err(e) = added {
                e.report(prefix, own, metric);
            }
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

    fn add_metric(
        &mut self,
        sources: &[&Source],
        name: &str,
        source: u32,
        own: &Source,
        metric_index: u32,
        metric: &Metric,
    ) -> Result<(), Refusal> {
        let desc = describe(own, metric).ok_or(Refusal::Item)?;
        let MetricDesc { item, ty, indom, .. } = desc;
        let known = self.index(item);
        let index = known.unwrap_or(self.tables.metrics.len());
        if let Some(entry) = known.and_then(|index| self.tables.metrics.get_mut(index)) {
            entry.last = source;
            // The source contributes further instances to a known metric.
            if self.tables.names.text(entry.name) != name {
                return Err(Refusal::ItemInUse(item));
            }
            if entry.desc_in(sources) != Some(desc) {
                return Err(Refusal::Contradiction);
            }
        } else {
            let name = self.tables.names.insert(name, item)?;
            self.set_index(item, index);
            self.tables.metrics.push(Entry { name, item, source, metric: metric_index, last: source, indom });
        }
        let start = self.tables.places.len() as u32;
        for value in metric.values() {
            let inst = indom.and_then(|_| Inst::from_word(value.instance as u32));
            let is_stranger =
                |(indom, inst)| !self.strangers.is_empty() && self.strangers.contains(&(indom, source as usize, inst));
            if inst.is_some() == indom.is_some() && !indom.zip(inst).is_some_and(is_stranger) {
                let place = Place { inst, source, metric: metric_index, index: value.index };
                match known {
                    None => self.tables.places.push(place),
                    Some(_) => self.more.push((index as u32, place)),
                }
            }
        }
        if known.is_none() {
            let end = self.tables.places.len() as u32;
            self.tables.fetched.push(Fetched { ty, start, end, missing: Missing::None });
        }
        Ok(())
    }

    /// Sets the errors of metrics whose values are not complete.
    fn find_missing(&mut self, sources: &[&Source]) {
        let last: HashMap<u16, u32> = sources.iter().map(|source| source.cluster).zip(0..).collect();
        let Tables { metrics, indoms, fetched, .. } = &mut self.tables;
        for (entry, fetched) in metrics.iter().zip(fetched) {
            let wanted = match entry.indom.map(|indom| indoms.get(&indom)) {
                None => 1,
                Some(None) => 0,
                Some(Some(indom)) => indom.instances.len(),
            };
            // As in the C agent, the last file of the cluster determines the error.
            fetched.missing = match last.get(&entry.item.cluster()) {
                _ if (fetched.end - fetched.start) as usize == wanted => Missing::None,
                Some(last) if *last == entry.last => Missing::Inst,
                _ => Missing::Pmid,
            };
        }
    }

    /// Returns whether no value has to be moved or removed, as in most groups.
    fn are_arranged(&self) -> bool {
        let Tables { metrics, fetched, places, indoms, .. } = &self.tables;
        self.more.is_empty()
            && metrics.iter().zip(fetched).all(|(entry, fetched)| match entry.indom {
                None => fetched.end - fetched.start <= 1,
                Some(indom) => {
                    let places = places.get(fetched.start as usize..fetched.end as usize).unwrap_or_default();
                    indoms.get(&indom).map_or(places.is_empty(), |indom| indom.is_order_of(places))
                }
            })
    }

    /// Arranges the values by metric and instance. Values of unknown instances are removed, and all but the first of
    /// each instance.
    fn arrange(&mut self) {
        let Tables { metrics, fetched, places, indoms, .. } = &mut self.tables;
        let arrived = std::mem::replace(places, Vec::with_capacity(places.len() + self.more.len()));
        let mut more = std::mem::take(&mut self.more).into_iter().peekable();
        for (index, (entry, fetched)) in (0..).zip(metrics.iter().zip(fetched)) {
            let start = places.len();
            places.extend_from_slice(arrived.get(fetched.start as usize..fetched.end as usize).unwrap_or_default());
            places.extend(std::iter::from_fn(|| more.next_if(|(metric, _)| *metric == index)).map(|(_, place)| place));
            match entry.indom.map(|indom| indoms.get(&indom)) {
                None => places.truncate(start + 1),
                Some(None) => places.truncate(start),
                Some(Some(indom)) => indom.arrange(places, start),
            }
            (fetched.start, fetched.end) = (start as u32, places.len() as u32);
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
