//! What a model does besides converting samples: it forgets what documents no longer need, gives memory back, and keeps
//! its tables.

use hashbrown::HashMap;
use std::sync::Arc;

use super::{HEAVY, Model, SPARE, Working};
use crate::keys::{Keys, Target};
use crate::labels::Labels;
use crate::metric::{Metric, NO_SLOT, Named, Shape, fitting};
use crate::naming;

/// Memory for a metric, in bytes, besides its texts.
const METRIC: usize = 512;
/// Memory for an instance's name, in bytes, besides the name: its places in the tables of the model and of the agent.
const NAME: usize = 128;
/// Memory for the values of an instance, in bytes, besides its labels. An instance of the table that no document has
/// had needs none.
const VALUE: usize = 144;
/// Number of places in memory that have a copy of a name: the table, the exported names, and the text of the table's file.
const COPIES: usize = 3;

/// Returns the memory for a metric, in bytes, without its instances.
pub(super) fn of_metric(name: &str, oneline: &str, text: &str, labels: usize) -> usize {
    METRIC + COPIES * name.len() + oneline.len() + text.len() + labels
}

/// Returns the memory for the name of an instance, in bytes.
pub(super) fn of_name(name: &str) -> usize {
    NAME + COPIES * name.len()
}

/// Returns the memory for the values and labels of an instance, in bytes.
pub(super) fn of_value(labels: usize) -> usize {
    VALUE + labels
}

/// Returns the memory for an instance that a document has, in bytes, besides what it already has.
pub(super) fn more_for(metric: &Metric, known: Option<u32>, name: &str, labels: &Labels) -> usize {
    let Some(at) = known.map(|known| known as usize) else { return of_name(name) + of_value(labels.len()) };
    let named = metric.instances();
    match named.and_then(|named| named.slots.get(at)) {
        Some(slot) if *slot != NO_SLOT => {
            let before = named.and_then(|named| named.labels.get(at)?.as_ref()).map_or(0, Labels::len);
            labels.len().saturating_sub(before)
        }
        _ => of_value(labels.len()),
    }
}

/// Returns how much of the limit of instances one with this name uses. A long name uses as much as several short ones.
pub(super) fn cost(name: &str) -> usize {
    1 + name.len() / HEAVY
}

impl Working {
    /// Returns the memory for a metric and its instances, in bytes.
    fn footprint(&self) -> usize {
        let metric = &*self.published;
        let notes = metric.more.as_ref().map_or(0, |more| more.notes.len());
        let of_metric = of_metric(&metric.name, &metric.oneline, metric.text(), metric.labels.len() + notes);
        of_metric + metric.instances().map_or(0, |named| self.of_names() + of_values(named))
    }

    fn of_names(&self) -> usize {
        self.table.as_ref().map_or(0, |table| table.names(0).map(of_name).sum())
    }
}

fn of_values(named: &Named) -> usize {
    let labels = |at: usize| named.labels.get(at).and_then(Option::as_ref).map_or(0, Labels::len);
    let used = named.slots.iter().enumerate().filter(|(_, slot)| **slot != NO_SLOT);
    used.map(|(at, _)| of_value(labels(at))).sum()
}

impl Model {
    /// Gives memory back until the model uses at most `target` bytes, if possible: forgets the last instances of the
    /// metrics that have most, and the samples that are not exported. The numbers of instances are kept in the tables on
    /// disk.
    pub(super) fn cut(&mut self, target: usize) {
        self.save();
        let mut footprint: usize = self.metrics.iter().map(Working::footprint).sum();
        // The rest is for the keys of the instances that stay.
        let most = target - target / 5;
        while footprint > most {
            let count = |working: &Working| working.published.instances().map_or(0, |named| named.names.len());
            let largest = self.metrics.iter_mut().max_by_key(|working| count(working)).filter(|of| count(of) > 1);
            let Some(largest) = largest else { break };
            let (before, number) = (largest.footprint(), count(largest));
            // At least this part of the metric must go, but no metric loses all while others have more.
            let part = (footprint - most).saturating_mul(number).div_ceil(before.max(1)).clamp(1, number / 2);
            largest.keep(number - part, self.likeness);
            footprint -= before - largest.footprint();
        }
        if footprint > most {
            let metrics = self.metrics.iter_mut().filter(|working| working.published.more.is_some());
            metrics.for_each(|working| Arc::make_mut(&mut working.published).more = None);
        }
        self.renumber();
        self.share.set(self.footprint());
    }

    /// Reads the tables of metrics again that have been cut, if there is plenty of memory now. Must be called when there
    /// is a document: a source without one keeps no memory from others.
    ///
    /// # Errors
    /// The reason why a table cannot be read now.
    pub(crate) fn thaw(&mut self) -> Result<(), String> {
        for at in 0..self.metrics.len() {
            let Some(working) = self.metrics.get(at) else { break };
            let missing = working.table.as_ref().map_or(0, |table| table.missing());
            if missing == 0 || !self.share.has_plenty(missing * (NAME + VALUE)) {
                continue;
            }
            let (number, before) = (working.published.number, working.of_names());
            let table = self.instance_table(number)?;
            let Some(working) = self.metrics.get_mut(at) else { break };
            let metric = Arc::make_mut(&mut working.published);
            if let (Some(table), Shape::Plural(instances)) = (&table, &mut metric.shape) {
                naming::show_all(table, instances, self.likeness);
            }
            working.table = table.map(Box::new);
            self.share.give(before);
            self.list = None;
        }
        Ok(())
    }

    /// Returns the memory for all metrics, instances and keys, in bytes.
    fn footprint(&self) -> usize {
        self.known.bytes() + self.metrics.iter().map(Working::footprint).sum::<usize>()
    }

    /// Gives new slots to all instances that have one, without gaps, and forgets the keys of those that are gone.
    fn renumber(&mut self) {
        let mut new = vec![NO_SLOT; self.slots as usize];
        let mut naming = Vec::new();
        (self.slots, self.instances, self.list) = (0, 0, None);
        for working in &mut self.metrics {
            let slots = match &mut Arc::make_mut(&mut working.published).shape {
                Shape::Singular(slot) => std::slice::from_mut(slot),
                Shape::Plural(instances) => {
                    self.instances += instances.names.iter().map(|name| cost(name)).sum::<usize>();
                    &mut instances.slots[..]
                }
            };
            for slot in slots.iter_mut().filter(|slot| **slot != NO_SLOT) {
                let before = std::mem::replace(slot, self.slots) as usize;
                naming.push(self.naming.get_mut(before).and_then(Option::take));
                if let Some(new) = new.get_mut(before) {
                    *new = self.slots;
                }
                self.slots += 1;
            }
        }
        (self.naming, self.values) = (naming, Vec::new());
        self.known.replace(&mut self.order, |target| match target {
            Target::Excluded => None,
            Target::Slot { slot, ty, metric } => {
                let slot = new.get(slot as usize).copied().filter(|slot| *slot != NO_SLOT)?;
                Some(Target::Slot { slot, ty, metric })
            }
        });
        self.shrink();
    }

    /// Returns the published metrics.
    pub(crate) fn list(&mut self) -> Arc<[Arc<Metric>]> {
        let metrics = &self.metrics;
        let list = || metrics.iter().map(|metric| Arc::clone(&metric.published)).collect();
        Arc::clone(self.list.get_or_insert_with(list))
    }

    /// Gives each metric the labels of its last sample, as PCP's agent does.
    pub(super) fn update_labels(&mut self) {
        let mut labels: HashMap<u16, Vec<(&str, &str)>> = HashMap::new();
        for number in &self.order {
            let Some((_, Target::Slot { slot, metric, .. })) = self.known.get(*number) else { continue };
            let Some(Some(pairs)) = self.naming.get(slot as usize) else { continue };
            let Some(working) = self.metrics.get(metric as usize) else { continue };
            let of = labels.entry(metric).or_insert_with(|| working.published.labels.iter().collect());
            naming::merge(of, pairs);
        }
        let packed = labels.into_iter().map(|(metric, labels)| (metric, Labels::new(fitting(labels.into_iter()))));
        let labels: Vec<(u16, Labels)> = packed.collect();
        for (metric, labels) in labels {
            let working = self.metrics.get_mut(metric as usize);
            if let Some(working) = working.filter(|working| working.published.labels != labels) {
                Arc::make_mut(&mut working.published).labels = labels;
                self.list = None;
            }
        }
    }

    /// Makes the next document parse all samples again, because the rules or limits have changed.
    pub(crate) fn reconsider(&mut self) {
        self.share.give(self.known.bytes());
        self.known = Keys::new();
        self.order = Vec::new();
    }

    /// Removes the keys that are not in the last document, if there are many.
    pub(super) fn forget_keys(&mut self) {
        if self.known.len() > 2 * self.order.len() + SPARE {
            self.known.keep(&mut self.order);
            self.settle();
        }
    }

    /// Gives back what was taken for keys that are forgotten, and for samples, metrics and labels that were refused
    /// after that.
    pub(super) fn settle(&mut self) {
        let surplus = self.share.used().saturating_sub(self.footprint());
        self.share.give(surplus);
    }

    /// Frees memory that the next documents do not need.
    pub(super) fn shrink(&mut self) {
        self.known.shrink();
        self.order.shrink_to_fit();
        self.naming.shrink_to_fit();
        self.values.shrink_to_fit();
        self.metrics.shrink_to_fit();
        self.items.shrink();
        self.metrics.iter_mut().filter_map(|metric| metric.table.as_mut()).for_each(|table| table.shrink());
        for metric in self.metrics.iter_mut().filter_map(|metric| Arc::get_mut(&mut metric.published)) {
            if let Shape::Plural(instances) = &mut metric.shape {
                instances.shrink();
            }
        }
    }

    /// Schedules the writing of tables that have changed.
    pub(crate) fn save(&mut self) {
        if let Some(store) = &self.store {
            store.retry();
        }
        self.items.save();
        for table in self.metrics.iter_mut().filter_map(|metric| metric.table.as_mut()) {
            table.save();
        }
    }
}

impl Working {
    /// Keeps only the first instances.
    fn keep(&mut self, most: usize, likeness: crate::metric::Likeness) {
        let Some(table) = &mut self.table else { return };
        table.truncate(most);
        if let Shape::Plural(instances) = &mut Arc::make_mut(&mut self.published).shape {
            instances.slots.truncate(most);
            instances.labels.truncate(most);
            naming::show_all(table, instances, likeness);
            instances.shrink();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{Budget, Share};
    use crate::url_file::Rules;

    fn model() -> Model {
        let mut model = Model::unsaved("a".into(), 10_000);
        model.share = Share::new(&Budget::new(64 << 20));
        model
    }

    /// What was taken for a sample that is refused is not lost at each reading.
    #[test]
    fn documents_that_are_refused_use_no_more_memory_each_time() {
        for text in ["a{x=\"1\"} 1\na 2\n", "b 1\n0c 2\n", "# TYPE d histogram\nd 1\n"] {
            let mut model = model();
            let used: Vec<usize> = (0..50)
                .map(|_| {
                    model.read(text, &Rules::default());
                    model.share.used()
                })
                .collect();
            assert_eq!(used[1], used[49], "{text}");
        }
    }

    /// What was taken for metrics that are left out is given back when their names have gone.
    #[test]
    fn names_that_change_all_the_time_use_no_more_memory() {
        let mut model = model();
        let mut most = Vec::new();
        for round in 0..60 {
            let text: String = (0..500).map(|n| format!("m{round}_{n} 1\n")).collect();
            model.read(&text, &Rules::default());
            most.push(model.share.used());
        }
        let largest = |from: usize| most.iter().skip(from).take(20).max();
        assert_eq!(largest(20), largest(40), "{most:?}");
    }
}
