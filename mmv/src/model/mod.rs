//! What a registry holds, whatever the file's format is.

mod label;
mod values;

use hashbrown::{DefaultHashBuilder, HashMap, HashSet};
use indexmap::map::Entry;
use pmapi::{Semantics, Units};

pub(crate) use label::{Label, Subject};
pub(crate) use values::Runs;

use crate::format::{MAX_LABELS, MAX_METRICS, MAX_SERIAL, ValueType};
use crate::names::{check_instance, check_metric, check_text};
use crate::{Error, ids};

type IndexMap<K, V> = indexmap::IndexMap<K, V, DefaultHashBuilder>;
type IndexSet<K> = indexmap::IndexSet<K, DefaultHashBuilder>;

/// How a value is updated, which decides how it moves to another file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Added to: what was added to the old place is added to the new one.
    Added,
    /// Set: the old value goes to the new place unless one was set there already.
    Set,
    /// As `Set`, but never without a value.
    Counted,
    /// Set, value and start of the interval.
    Interval,
    /// A text.
    Text,
}

/// Help texts, by their numbers in the model.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Help {
    pub short: Option<TextId>,
    pub long: Option<TextId>,
}

/// Number of a help text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TextId(pub u16);

#[derive(Debug)]
pub(crate) struct Metric {
    /// 0 until [`Model::assign_items`], for those that did not ask for one.
    pub item: u16,
    pub ty: ValueType,
    pub kind: Kind,
    pub semantics: Semantics,
    pub units: Units,
    pub help: Help,
    /// Index of the instance domain.
    pub indom: Option<usize>,
    /// The runs of its values, in the order of the instances.
    run: usize,
    more: Vec<usize>,
}

impl Metric {
    pub(crate) fn new(ty: ValueType, kind: Kind, semantics: Semantics, units: Units) -> Metric {
        let help = Help::default();
        Metric { item: 0, ty, kind, semantics, units, help, indom: None, run: 0, more: Vec::new() }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Indom {
    pub serial: u32,
    pub help: Help,
    instances: IndexMap<Box<str>, i32>,
    ids: HashSet<i32>,
    /// The metrics that have values for it.
    metrics: Vec<usize>,
}

impl Indom {
    pub(crate) fn instances(&self) -> impl ExactSizeIterator<Item = (&str, i32)> {
        self.instances.iter().map(|(name, id)| (&**name, *id))
    }

    pub(crate) fn instance(&self, name: &str) -> Option<usize> {
        self.instances.get_index_of(name)
    }
}

/// Metrics, instance domains, values and labels.
#[derive(Debug, Default)]
pub(crate) struct Model {
    metrics: IndexMap<Box<str>, Metric>,
    indoms: IndexMap<Box<str>, Indom>,
    serials: HashSet<u32>,
    values: Runs,
    labels: Vec<Label>,
    texts: usize,
    /// Names that have children.
    nodes: HashSet<Box<str>>,
    /// Help texts, equal ones once.
    help: IndexSet<Box<str>>,
    /// What was asked for last: often the next metric has the same.
    last_help: Help,
    /// Items in use.
    items: Items,
    /// Metrics that have no item yet.
    unassigned: Vec<usize>,
}

/// A set of items.
#[derive(Clone, Debug)]
struct Items([bool; MAX_METRICS + 1]);

impl Default for Items {
    fn default() -> Self {
        Items([false; MAX_METRICS + 1])
    }
}

impl Items {
    fn contains(&self, item: u16) -> bool {
        self.0.get(usize::from(item)).is_some_and(|used| *used)
    }

    /// Adds an item, and says whether it is new and an item at all.
    fn insert(&mut self, item: u16) -> bool {
        self.0.get_mut(usize::from(item)).is_some_and(|used| !std::mem::replace(used, true))
    }
}

impl Model {
    pub(crate) fn metrics(&self) -> impl ExactSizeIterator<Item = (&str, &Metric)> {
        self.metrics.iter().map(|(name, metric)| (&**name, metric))
    }

    pub(crate) fn find_metric(&self, name: &str) -> Option<(usize, &Metric)> {
        self.metrics.get_full(name).map(|(index, _, metric)| (index, metric))
    }

    /// A metric by its index, which [`Model::add_metric`] gave.
    pub(crate) fn metric(&self, index: usize) -> &Metric {
        &self.metrics[index]
    }

    pub(crate) fn indoms(&self) -> impl ExactSizeIterator<Item = (&str, &Indom)> {
        self.indoms.iter().map(|(name, indom)| (&**name, indom))
    }

    /// An instance domain by its index, which [`Model::add_indom`] gave.
    pub(crate) fn indom(&self, index: usize) -> &Indom {
        &self.indoms[index]
    }

    pub(crate) fn indom_name(&self, index: usize) -> &str {
        self.indoms.get_index(index).map_or("", |(name, _)| name)
    }

    pub(crate) fn values(&self) -> &Runs {
        &self.values
    }

    /// A metric's value for an instance, or its only one.
    pub(crate) fn value(&self, metric: &Metric, instance: usize) -> Option<u32> {
        let run = |index: usize| self.values.get(index);
        let more = metric.more.partition_point(|index| run(*index).is_some_and(|run| run.instance <= instance));
        let index = more.checked_sub(1).and_then(|last| metric.more.get(last)).copied().unwrap_or(metric.run);
        let run = run(index).filter(|run| (run.instance..run.instance + run.count).contains(&instance))?;
        Some((run.first + instance - run.instance) as u32)
    }

    /// The help texts, equal ones once.
    pub(crate) fn help_texts(&self) -> impl ExactSizeIterator<Item = &str> {
        self.help.iter().map(|text| &**text)
    }

    pub(crate) fn labels(&self) -> &[Label] {
        &self.labels
    }

    pub(crate) fn texts(&self) -> usize {
        self.texts
    }

    /// Help of these texts, the empty ones left out.
    pub(crate) fn help(&mut self, short: &str, long: &str) -> Result<Help, Error> {
        let Help { short: last_short, long: last_long } = self.last_help;
        let help = Help { short: self.help_text(short, last_short)?, long: self.help_text(long, last_long)? };
        self.last_help = help;
        Ok(help)
    }

    fn help_text(&mut self, text: &str, last: Option<TextId>) -> Result<Option<TextId>, Error> {
        if text.is_empty() {
            return Ok(None);
        }
        if last.is_some_and(|TextId(number)| self.help.get_index(number.into()).is_some_and(|last| **last == *text)) {
            return Ok(last);
        }
        let number = match self.help.get_index_of(text) {
            Some(known) => known,
            None => {
                check_text("help text", text)?;
                self.help.insert_full(text.into()).0
            }
        };
        // Two each for the metrics and instance domains that there can be are less than 2^16, but
        // what is refused later may have had help too.
        let number = u16::try_from(number).map_err(|_| Error::TooManyMetrics(text.to_owned()))?;
        Ok(Some(TextId(number)))
    }

    /// Adds a metric and its values, and gives its index. `item` asks for a certain one.
    pub(crate) fn add_metric(&mut self, name: &str, item: Option<u16>, metric: Metric) -> Result<usize, Error> {
        check_metric(name)?;
        if self.metrics.len() == MAX_METRICS {
            return Err(Error::TooManyMetrics(name.to_owned()));
        }
        if let Some(item) = item {
            self.check_item(item)?;
        }
        if self.metrics.contains_key(name) {
            return Err(Error::InUse { what: "metric", name: name.to_owned() });
        }
        self.add_nodes(name)?;
        let index = self.metrics.len();
        match item {
            Some(item) => _ = self.items.insert(item),
            None => self.unassigned.push(index),
        }
        let instances = match metric.indom {
            None => 1,
            Some(indom) => {
                let indom = &mut self.indoms[indom];
                indom.metrics.push(index);
                indom.instances.len()
            }
        };
        let run = self.values.add(index, 0, instances);
        self.texts += if metric.kind == Kind::Text { instances } else { 0 };
        self.metrics.insert(name.into(), Metric { item: item.unwrap_or_default(), run, ..metric });
        Ok(index)
    }

    fn check_item(&self, item: u16) -> Result<(), Error> {
        if usize::from(item) > MAX_METRICS {
            return Err(Error::Range { what: "item", number: item.into(), min: 0, max: MAX_METRICS as u32 });
        }
        if self.items.contains(item) {
            return Err(Error::InUse { what: "item", name: item.to_string() });
        }
        Ok(())
    }

    /// Makes the ancestors of a name nodes that are no metrics, and sees that the name is no node.
    fn add_nodes(&mut self, name: &str) -> Result<(), Error> {
        if self.nodes.contains(name) {
            return Err(Error::Leaf(name.to_owned()));
        }
        // Whatever is a node already has ancestors that are.
        let new = ancestors(name).take_while(|ancestor| !self.nodes.contains(*ancestor)).count();
        if let Some(leaf) = ancestors(name).take(new).find(|ancestor| self.metrics.contains_key(*ancestor)) {
            return Err(Error::Leaf(leaf.to_owned()));
        }
        self.nodes.extend(ancestors(name).take(new).map(Box::from));
        Ok(())
    }

    fn add_value(&mut self, index: usize, instance: usize) {
        let metric = &mut self.metrics[index];
        let run = self.values.add(index, instance, 1);
        if run != metric.run && metric.more.last() != Some(&run) {
            metric.more.push(run);
        }
        self.texts += usize::from(metric.kind == Kind::Text);
    }

    /// Adds an instance domain and gives its index. `serial` asks for a certain number.
    pub(crate) fn add_indom(&mut self, name: &str, serial: Option<u32>, help: Help) -> Result<usize, Error> {
        if self.indoms.contains_key(name) {
            return Err(Error::InUse { what: "instance domain", name: name.to_owned() });
        }
        if let Some(number) = serial {
            if number == 0 || number > MAX_SERIAL {
                return Err(Error::Range { what: "instance domain", number, min: 1, max: MAX_SERIAL });
            }
            if self.serials.contains(&number) {
                return Err(Error::InUse { what: "instance domain", name: number.to_string() });
            }
        } else if self.serials.len() == MAX_SERIAL as usize {
            let number = MAX_SERIAL + 1;
            return Err(Error::Range { what: "instance domain", number, min: 1, max: MAX_SERIAL });
        }
        let serial = serial.unwrap_or_else(|| {
            1 + ids::probe(ids::hash(name), MAX_SERIAL.into(), |serial| self.serials.contains(&(1 + serial as u32)))
                as u32
        });
        self.serials.insert(serial);
        self.indoms.insert(name.into(), Indom { serial, help, ..Indom::default() });
        Ok(self.indoms.len() - 1)
    }

    /// Makes room for so many more instances.
    pub(crate) fn reserve_instances(&mut self, indom: usize, count: usize) {
        let indom = &mut self.indoms[indom];
        indom.instances.reserve(count);
        indom.ids.reserve(count);
    }

    /// Adds an instance, and values for it to every metric with its domain, and gives its index.
    /// `id` asks for a certain identifier.
    pub(crate) fn add_instance(&mut self, indom: usize, name: &str, id: Option<u32>) -> Result<usize, Error> {
        check_instance(name)?;
        let domain = &mut self.indoms[indom];
        let max = i32::MAX as u32;
        if let Some(number) = id {
            if number > max {
                return Err(Error::Range { what: "instance", number, min: 0, max });
            }
            if domain.ids.contains(&(number as i32)) {
                return Err(Error::InUse { what: "instance", name: number.to_string() });
            }
        }
        let ids = &domain.ids;
        let index = domain.instances.len();
        match domain.instances.entry(name.into()) {
            Entry::Occupied(_) => return Err(Error::InUse { what: "instance", name: name.to_owned() }),
            Entry::Vacant(entry) => {
                let id =
                    id.unwrap_or_else(|| ids::probe(ids::hash(name), 1 << 31, |id| ids.contains(&(id as i32))) as u32);
                entry.insert(id as i32);
                domain.ids.insert(id as i32);
            }
        }
        let metrics = std::mem::take(&mut domain.metrics);
        metrics.iter().for_each(|metric| self.add_value(*metric, index));
        self.indoms[indom].metrics = metrics;
        Ok(index)
    }

    pub(crate) fn add_label(&mut self, label: Label) -> Result<(), Error> {
        if self.labels.len() == MAX_LABELS {
            return Err(Error::TooManyLabels);
        }
        self.labels.push(label);
        Ok(())
    }

    /// Gives an item to every metric that has none: what it had before, or one that its name
    /// leads to. Metrics that come together get theirs in an order that follows from their names, so
    /// that the order in which a program registers them does not matter.
    pub(crate) fn assign_items(&mut self, before: &HashMap<Box<str>, u16>) {
        let metrics = &mut self.metrics;
        let hash = |index| (ids::hash(metrics.get_index(index).map_or("", |(name, _)| name)), index);
        let mut pending: Vec<(u64, usize)> = self.unassigned.drain(..).map(hash).collect();
        pending.sort_unstable();
        if !before.is_empty() {
            pending.retain(|(_, index)| {
                let Some((name, metric)) = metrics.get_index_mut(*index) else { return false };
                let Some(&item) = before.get(&**name).filter(|item| self.items.insert(**item)) else { return true };
                metric.item = item;
                false
            });
        }
        // What another metric had before is left free for its return, if there is room.
        let crowded = metrics.len() + before.len() > MAX_METRICS;
        let mut taken = self.items.clone();
        before.values().filter(|_| !crowded).for_each(|item| _ = taken.insert(*item));
        for (hash, index) in pending {
            let Some((_, metric)) = metrics.get_index_mut(index) else { continue };
            metric.item = ids::probe(hash, 1 << 10, |item| taken.contains(item as u16)) as u16;
            taken.insert(metric.item);
            self.items.insert(metric.item);
        }
    }
}

/// The nodes above a name, the nearest first.
fn ancestors(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(name.rsplit_once('.'), |(above, _)| above.rsplit_once('.')).map(|(above, _)| above)
}
