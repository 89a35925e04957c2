//! The model: the contents of a registry, independent of the file's format.

mod items;
mod label;
mod named;
mod values;

use std::collections::{HashMap, HashSet};

use pmapi::{Semantics, Units};

use items::Items;
use label::check_set;
pub(crate) use label::{Label, Subject};
use named::Named;
pub(crate) use values::Runs;

use crate::format::{MAX_LABELS, MAX_METRICS, MAX_SERIAL, ValueType};
use crate::names::{check_instance, check_metric, check_text};
use crate::{Error, ids};

/// The way in which a value is updated. Handles of a metric are all of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Amounts are added.
    Added,
    /// The value is set, or cleared.
    Set,
    /// The value is set. There always is a value.
    Counted,
    /// The value is set, with the start of the running interval.
    Interval,
    /// A text in one of two buffers.
    Text,
}

/// The object to which a string of the file belongs, by its index.
#[derive(Clone, Copy, Debug)]
enum Origin {
    Help(u16),
    Metric(u16),
    /// An instance of a domain.
    Instance(u16, u32),
}

/// Numbers of records, with which a file grows or that it has.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counts {
    pub metrics: usize,
    pub indoms: usize,
    pub instances: usize,
    pub labels: usize,
    pub strings: usize,
    pub texts: usize,
    pub values: usize,
}

/// Help texts, by their numbers in the model.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Help {
    pub short: Option<TextId>,
    pub long: Option<TextId>,
}

/// Number of a help text in the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TextId(pub u16);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    /// The item. It is 0 until [`Model::assign_items`], unless the registration chose one.
    pub item: u16,
    pub ty: ValueType,
    pub kind: Kind,
    pub semantics: Semantics,
    pub units: Units,
    pub help: Help,
    /// Index of the name among the strings.
    pub name: u32,
    /// Index of the instance domain, which is less than [`MAX_SERIAL`].
    indom: Option<u16>,
}

impl Metric {
    pub(crate) fn new(ty: ValueType, kind: Kind, semantics: Semantics, units: Units) -> Metric {
        let help = Help::default();
        Metric { item: 0, ty, kind, semantics, units, help, name: 0, indom: None }
    }

    /// Sets the instance domain by its index.
    pub(crate) fn over(self, indom: Option<usize>) -> Metric {
        Metric { indom: indom.map(|index| index as u16), ..self }
    }

    /// Returns the index of the instance domain.
    pub(crate) fn indom(&self) -> Option<usize> {
        self.indom.map(usize::from)
    }
}

/// An instance of a domain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instance {
    pub id: i32,
    /// Index of the name among the strings.
    pub name: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Indom {
    pub serial: u32,
    pub help: Help,
    instances: Named<Instance>,
    ids: HashSet<i32>,
    /// Number of identifiers at the upper end that are known to be taken.
    passed: i32,
    /// Indexes of the metrics over the domain.
    metrics: Vec<usize>,
}

/// Number of possible identifiers.
const IDS: u64 = 1 << 31;

impl Indom {
    pub(crate) fn instances(&self) -> impl ExactSizeIterator<Item = (&str, Instance)> {
        self.instances.iter().map(|(name, instance)| (name, *instance))
    }

    pub(crate) fn len(&self) -> usize {
        self.instances.len()
    }

    /// Returns the instance with an index below [`Indom::len`].
    pub(crate) fn at(&self, index: usize) -> Instance {
        self.instances[index]
    }

    pub(crate) fn instance(&self, name: &str) -> Option<usize> {
        self.instances.find(name)
    }

    /// Returns the indexes of the metrics over the domain.
    pub(crate) fn metrics(&self) -> &[usize] {
        &self.metrics
    }

    /// Returns the identifier of the instance with this index.
    pub(crate) fn id(&self, instance: usize) -> i32 {
        self.instances[instance].id
    }

    /// Reserves memory for `count` more instances.
    fn reserve(&mut self, count: usize) {
        self.instances.reserve(count);
        self.ids.reserve(count);
    }

    /// Adds an instance and returns its index. `id` is the identifier that the registration chose, `string` the index of
    /// its name among the strings.
    fn add(&mut self, name: &str, id: Option<u32>, string: usize) -> Result<usize, Error> {
        check_instance(name)?;
        let max = i32::MAX as u32;
        if let Some(number) = id {
            if number > max {
                return Err(Error::Range { what: "instance", number, min: 0, max });
            }
            if self.ids.contains(&(number as i32)) {
                return Err(Error::InUse { what: "instance", name: number.to_string() });
            }
        }
        let id = id.unwrap_or_else(|| self.free_id(name));
        let Some(index) = self.instances.insert(name, Instance { id: id as i32, name: string as u32 }) else {
            return Err(Error::InUse { what: "instance", name: name.to_owned() });
        };
        self.ids.insert(id as i32);
        Ok(index)
    }

    /// Returns a free identifier derived from the name. If too many names lead to the same identifier, returns the
    /// highest free one. The search checks each of the highest identifiers only once for all names together.
    fn free_id(&mut self, name: &str) -> u32 {
        let hash = ids::hash(name);
        let taken = |id: u64| self.ids.contains(&(id as i32));
        // The first one is nearly always free.
        if !taken(hash % IDS) {
            return (hash % IDS) as u32;
        }
        if let Some(near) = ids::probe_near(hash, IDS, taken) {
            return near as u32;
        }
        let highest = (0..=i32::MAX - self.passed).rev().find(|id| !self.ids.contains(id)).unwrap_or_default();
        self.passed = i32::MAX - highest;
        highest as u32
    }
}

/// Metrics, instance domains, values and labels.
#[derive(Debug, Default)]
pub(crate) struct Model {
    metrics: Named<Metric>,
    indoms: Named<Indom>,
    serials: HashSet<u32>,
    values: Runs,
    labels: Vec<Label>,
    texts: usize,
    /// Number of instances of all domains.
    instances: usize,
    /// The objects to which the strings of the file belong.
    strings: Vec<Origin>,
    /// Inner nodes of the name space.
    nodes: Named<()>,
    /// Length of the longest inner node's name, in bytes.
    longest_node: usize,
    /// Length of the name of the last metric's parent node, in bytes.
    last_above: usize,
    /// Help texts, without duplicates.
    help: Named<u32>,
    /// The help of the last metric or domain, which the next one often shares.
    last_help: Help,
    /// Items in use.
    items: Items,
    /// Metrics that have no item yet.
    unassigned: Vec<usize>,
}

impl Model {
    pub(crate) fn metrics(&self) -> impl ExactSizeIterator<Item = (&str, &Metric)> {
        self.metrics.iter()
    }

    pub(crate) fn find_metric(&self, name: &str) -> Option<(usize, &Metric)> {
        let index = self.metrics.find(name)?;
        Some((index, &self.metrics[index]))
    }

    /// Returns the metric with an index that [`Model::add_metric`] returned.
    pub(crate) fn metric(&self, index: usize) -> &Metric {
        &self.metrics[index]
    }

    pub(crate) fn indoms(&self) -> impl ExactSizeIterator<Item = (&str, &Indom)> {
        self.indoms.iter()
    }

    /// Returns the instance domain with an index that [`Model::add_indom`] returned.
    pub(crate) fn indom(&self, index: usize) -> &Indom {
        &self.indoms[index]
    }

    pub(crate) fn indom_name(&self, index: usize) -> &str {
        self.indoms.name(index)
    }

    pub(crate) fn values(&self) -> &Runs {
        &self.values
    }

    /// Returns the strings of the file, from an index on.
    pub(crate) fn strings_from(&self, first: usize) -> impl Iterator<Item = &str> {
        let strings = self.strings.get(first..).unwrap_or_default();
        strings.iter().map(|origin| match *origin {
            Origin::Help(index) => self.help.name(index.into()),
            Origin::Metric(index) => self.metrics.name(index.into()),
            Origin::Instance(indom, index) => self.indoms[indom.into()].instances.name(index as usize),
        })
    }

    /// Returns the index of a help text among the strings.
    pub(crate) fn help_string(&self, TextId(number): TextId) -> u32 {
        self.help[number.into()]
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            metrics: self.metrics.len(),
            indoms: self.indoms.len(),
            instances: self.instances,
            labels: self.labels.len(),
            strings: self.strings.len(),
            texts: self.texts,
            values: self.values.len(),
        }
    }

    pub(crate) fn labels(&self) -> &[Label] {
        &self.labels
    }

    /// Adds help texts, except for empty ones.
    pub(crate) fn help(&mut self, short: &str, long: &str) -> Result<Help, Error> {
        let last = self.last_help;
        let text = |id: Option<TextId>| id.map_or("", |TextId(number)| self.help.name(number.into()));
        if text(last.short) != short || text(last.long) != long {
            self.last_help = Help { short: self.help_text(short)?, long: self.help_text(long)? };
        }
        Ok(self.last_help)
    }

    fn help_text(&mut self, text: &str) -> Result<Option<TextId>, Error> {
        if text.is_empty() {
            return Ok(None);
        }
        let number = match self.help.find(text) {
            Some(known) => known,
            None => {
                check_text("help text", text)?;
                // Two texts for each possible metric and domain are less than 2^16, but registrations that failed may
                // have added more.
                let number = u16::try_from(self.help.len()).map_err(|_| Error::TooManyMetrics(text.to_owned()))?;
                self.help.insert(text, self.strings.len() as u32);
                self.strings.push(Origin::Help(number));
                number.into()
            }
        };
        Ok(Some(TextId(number as u16)))
    }

    /// Adds a metric and its values, and returns its index. `item` is the item that the registration chose.
    pub(crate) fn add_metric(&mut self, name: &str, item: Option<u16>, metric: Metric) -> Result<usize, Error> {
        check_metric(name)?;
        if self.metrics.len() == MAX_METRICS {
            return Err(Error::TooManyMetrics(name.to_owned()));
        }
        if let Some(item) = item {
            self.check_item(item)?;
        }
        // All ancestors of a registered name are nodes already.
        let above = self.add_nodes(name)?;
        let metric = Metric { item: item.unwrap_or_default(), name: self.strings.len() as u32, ..metric };
        let Some(index) = self.metrics.insert(name, metric) else {
            return Err(Error::InUse { what: "metric", name: name.to_owned() });
        };
        self.last_above = above;
        self.strings.push(Origin::Metric(index as u16));
        match item {
            Some(item) => _ = self.items.insert(item),
            None => self.unassigned.push(index),
        }
        let instances = match metric.indom() {
            None => 1,
            Some(indom) => {
                let indom = &mut self.indoms[indom];
                indom.metrics.push(index);
                indom.instances.len()
            }
        };
        self.values.add(index, 0, instances);
        self.texts += if metric.kind == Kind::Text { instances } else { 0 };
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

    /// Adds the ancestors of a name as inner nodes, and returns the length of its parent's name. Fails if the name is
    /// an inner node, or one of its ancestors a metric.
    fn add_nodes(&mut self, name: &str) -> Result<usize, Error> {
        if name.len() <= self.longest_node && self.nodes.contains(name) {
            return Err(Error::Leaf(name.to_owned()));
        }
        // The previous metric often has the same parent.
        let before = self.metrics.name(self.metrics.len().wrapping_sub(1)).as_bytes();
        let (above, own) = name.as_bytes().split_at_checked(self.last_above).unwrap_or_default();
        if before.starts_with(above) && own.first() == Some(&b'.') && !own.iter().skip(1).any(|b| *b == b'.') {
            return Ok(above.len());
        }
        // All ancestors of a node are nodes.
        let new = ancestors(name).take_while(|ancestor| !self.nodes.contains(ancestor)).count();
        if let Some(leaf) = ancestors(name).take(new).find(|ancestor| self.metrics.contains(ancestor)) {
            return Err(Error::Leaf(leaf.to_owned()));
        }
        ancestors(name).take(new).for_each(|ancestor| _ = self.nodes.insert(ancestor, ()));
        let above = ancestors(name).next().map_or(0, str::len);
        self.longest_node = self.longest_node.max(above);
        Ok(above)
    }

    fn add_value(&mut self, index: usize, instance: usize) {
        self.values.add(index, instance, 1);
        self.texts += usize::from(self.metrics[index].kind == Kind::Text);
    }

    /// Adds an instance domain with its instances, or nothing after an error. Returns its index. `serial` and the
    /// numbers of the instances are those that the registration chose.
    pub(crate) fn add_indom(
        &mut self,
        name: &str,
        serial: Option<u32>,
        help: Help,
        instances: &[(&str, Option<u32>)],
    ) -> Result<usize, Error> {
        if self.indoms.contains(name) {
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
        let mut indom = Indom { serial, help, ..Indom::default() };
        indom.reserve(instances.len());
        let strings = self.strings.len()..;
        instances.iter().zip(strings).try_for_each(|((name, id), string)| indom.add(name, *id, string).map(drop))?;
        let index = self.indoms.len() as u16;
        self.strings.extend((0..instances.len() as u32).map(|instance| Origin::Instance(index, instance)));
        self.instances += instances.len();
        self.serials.insert(serial);
        self.indoms.insert(name, indom);
        Ok(self.indoms.len() - 1)
    }

    /// Adds an instance, with a value for each metric over its domain, and returns its index. `id` is the identifier
    /// that the registration chose.
    pub(crate) fn add_instance(&mut self, indom: usize, name: &str, id: Option<u32>) -> Result<usize, Error> {
        let domain = &mut self.indoms[indom];
        let index = domain.add(name, id, self.strings.len())?;
        self.strings.push(Origin::Instance(indom as u16, index as u32));
        self.instances += 1;
        let metrics = std::mem::take(&mut domain.metrics);
        metrics.iter().for_each(|metric| self.add_value(*metric, index));
        self.indoms[indom].metrics = metrics;
        Ok(index)
    }

    /// Returns an error unless labels fit into the file, and together with those of `subject` into a label set. `None`
    /// is a subject without labels.
    pub(crate) fn check_labels(&self, new: &[Label], subject: Option<Subject>) -> Result<(), Error> {
        if self.labels.len() + new.len() > MAX_LABELS {
            return Err(Error::TooManyLabels);
        }
        let known = self.labels.iter().filter(|known| Some(known.subject) == subject);
        check_set(known.chain(new))
    }

    /// Adds labels that were [checked](Model::check_labels).
    pub(crate) fn add_labels(&mut self, labels: Vec<Label>, subject: Subject) {
        self.labels.extend(labels.into_iter().map(|label| Label { subject, ..label }));
    }

    /// Assigns an item to every metric without one: the one in `before`, or one derived from its name. Metrics that
    /// were registered together get theirs in the order of their hashes, so the order of registration does not matter.
    pub(crate) fn assign_items(&mut self, before: &HashMap<Box<str>, u16>) {
        let Model { metrics, items, .. } = self;
        // The index replaces the last bits of the hash.
        let key = |index| ids::hash(metrics.name(index)) & !INDEX | index as u64;
        let mut pending = items::sorted(self.unassigned.drain(..).map(key).collect());
        if !before.is_empty() {
            pending.retain(|key| {
                let index = (key & INDEX) as usize;
                let Some(&item) = before.get(metrics.name(index)) else { return true };
                let is_free = items.insert(item);
                if is_free {
                    metrics[index].item = item;
                }
                !is_free
            });
        }
        // If there is room, items of absent metrics stay free, in case these are registered again.
        let crowded = metrics.len() + before.len() > MAX_METRICS;
        let mut taken = items.clone();
        if !crowded {
            for item in before.values() {
                taken.insert(*item);
            }
        }
        for key in pending {
            let Some(item) = taken.free(items::start(key)) else { continue };
            metrics[(key & INDEX) as usize].item = item;
            taken.insert(item);
            items.insert(item);
        }
    }
}

/// The bits of a sort key that hold a metric's index.
const INDEX: u64 = MAX_METRICS as u64;

/// Returns the ancestors of a name, the parent first.
fn ancestors(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(name.rsplit_once('.'), |(above, _)| above.rsplit_once('.')).map(|(above, _)| above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_whose_identifiers_are_taken_gets_a_high_one() {
        let mut model = Model::default();
        let indom = model.add_indom("indom", None, Help::default(), &[]).unwrap();
        let max = i32::MAX as u32;
        // Names can be chosen so that thousands lead to the same identifier: here the neighbours are taken by number.
        for name in ["a", "b", "c"] {
            let start = (ids::hash(name) % (1 << 31)) as u32;
            (0..64).for_each(|n| _ = model.add_instance(indom, &format!("{name}{n}"), Some(start + n)).unwrap());
        }
        model.add_instance(indom, "high", Some(max - 1)).unwrap();
        let ids = ["a", "b", "c"].map(|name| {
            let index = model.add_instance(indom, name, None).unwrap();
            model.indom(indom).id(index) as u32
        });
        assert_eq!(ids, [max, max - 2, max - 3]);
    }
}
