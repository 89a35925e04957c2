//! Converts the documents of a source to metrics, instances and values.
//!
//! A document usually has the same samples as the one before, in the same order. `order` has their keys, so a sample
//! costs a comparison with the expected key, and the conversion of its value. Any other sample is looked up by its key.
//! Only samples with new keys are parsed.

mod upkeep;

use std::sync::Arc;
use std::time::Instant;

use exposition::{Line, Lines, Sample as Parsed};
use pmapi::{Item, LabelSet};
use tracing::{debug, info, warn};

use crate::budget::Share;
use crate::keys::{Keys, Target};
use crate::labels::Labels;
use crate::metadata::{Block, Samples, is_name};
use crate::metric::{
    HELP, HELPS, Likeness, METRICS, Metric, More, NAME, NO_SLOT, Named, Sample, Shape, cut, new_slot, serial,
};
use crate::naming::{self, Naming};
use crate::store::Store;
use crate::table::Table;
use crate::url_file::{Exemplars, Metadata, Rules};
use crate::value::Value;

/// The metrics of a source, and the tables of their numbers.
#[derive(Debug)]
pub(crate) struct Model {
    source: Arc<str>,
    cluster: u16,
    /// Where the tables are kept, if they are.
    store: Option<Arc<Store>>,
    items: Table,
    is_loaded: bool,
    /// Index of each metric by its number.
    by_number: Vec<Option<u16>>,
    metrics: Vec<Working>,
    /// The published metrics, until one of them changes.
    list: Option<Arc<[Arc<Metric>]>>,
    /// Targets of samples, by key.
    known: Keys<Target>,
    /// Numbers of the keys of the last document, in its order.
    order: Vec<u32>,
    /// Number of slots.
    slots: u32,
    /// Labels by slot, for instances whose names consist of all their labels. Not longer than the last one needs.
    naming: Vec<Option<Labels>>,
    values: Vec<Value>,
    /// Largest number of instances of all metrics together. An instance with a long name or long labels counts as
    /// several.
    pub(crate) limit: usize,
    pub(crate) likeness: Likeness,
    instances: usize,
    left_out: u64,
    /// Memory of the model, as a part of that of all sources.
    pub(crate) share: Share,
    /// Metrics, instances and samples of the current document that were left out because memory is short.
    short: u64,
}

/// A metric, and the data needed to add instances to it.
#[derive(Debug)]
struct Working {
    published: Arc<Metric>,
    by_pcp: bool,
    table: Option<Box<Table>>,
}

/// Outcome of a document, besides its values.
#[derive(Default)]
struct Outcome {
    lines: u64,
    /// Whether the document has other samples than the previous one, or another order.
    reordered: bool,
    refused: Option<(usize, String)>,
}

/// Longest reason for which a line is refused, in bytes.
const REASON: usize = 500;
/// Number of bytes of names and labels that count as one instance.
const HEAVY: usize = 1 << 10;

/// Unused metrics and keys are removed when there are more than twice as many metrics or keys as in the last document,
/// plus this number.
const SPARE: usize = 1000;

impl Model {
    /// Creates the model of a source with a certain number, which keeps its tables.
    pub(crate) fn new(source: Arc<str>, cluster: u16, store: &Arc<Store>, limit: usize) -> Model {
        Model { store: Some(Arc::clone(store)), is_loaded: false, cluster, ..Model::unsaved(source, limit) }
    }

    /// Gives memory back, if the source uses too much of it. Returns the metrics that are left of the published ones.
    pub(crate) fn give_back(&mut self) -> Option<Arc<[Arc<Metric>]>> {
        let target = self.share.target()?;
        self.cut(target);
        Some(self.list())
    }

    /// Reads the table of the metrics, once. Must be called before a document is read.
    ///
    /// # Errors
    /// The reason why it cannot be read now.
    pub(crate) fn load(&mut self) -> Result<(), String> {
        if let Some(store) = self.store.as_ref().filter(|_| !self.is_loaded) {
            self.items = Table::load(store, self.cluster.into(), METRICS as usize).map_err(|e| e.to_string())?;
            self.is_loaded = true;
        }
        Ok(())
    }

    /// Creates a model without tables on disk.
    pub(crate) fn unsaved(source: Arc<str>, limit: usize) -> Model {
        Model {
            source,
            cluster: 1,
            store: None,
            items: Table::unsaved(METRICS as usize),
            is_loaded: true,
            by_number: Vec::new(),
            metrics: Vec::new(),
            list: None,
            known: Keys::new(),
            order: Vec::new(),
            slots: 0,
            naming: Vec::new(),
            values: Vec::new(),
            limit,
            likeness: Likeness::Better,
            instances: 0,
            left_out: 0,
            share: Share::default(),
            short: 0,
        }
    }

    /// Reads a document, and returns its values. Reading ends at the first line that is refused.
    pub(crate) fn read(&mut self, text: &str, rules: &Rules) -> Sample {
        let begin = Instant::now();
        (self.left_out, self.short) = (0, 0);
        self.values.clear();
        self.values.resize(self.slots as usize, Value::Absent);
        let outcome = self.lines(text.strip_prefix('\u{feff}').unwrap_or(text), rules);
        if outcome.reordered {
            self.update_labels();
            self.forget_keys();
            self.shrink();
        }
        if outcome.refused.is_some() {
            self.settle();
        }
        self.share.leave_out(&self.source, self.short);
        Sample {
            metrics: self.list(),
            values: std::mem::take(&mut self.values),
            taken: begin,
            parsing: begin.elapsed(),
            bytes: text.len() as u64,
            lines: outcome.lines,
            left_out: self.left_out + self.short,
            refused: outcome.refused.map(|(line, reason)| (line, cut(&reason, REASON).to_owned())),
            reordered: outcome.reordered,
        }
    }

    fn lines(&mut self, text: &str, rules: &Rules) -> Outcome {
        let (mut outcome, mut cursor) = (Outcome::default(), 0);
        let (mut block, mut in_samples) = (Block::default(), false);
        for (number, line) in Lines::new(text) {
            let known = self.order.get(cursor).and_then(|number| self.known.get(*number));
            let known = known.and_then(|(key, target)| Some((Parsed::parse_known(line, key)?, target)));
            if let Some(((value, rest), target)) = known {
                cursor += 1;
                in_samples = true;
                outcome.lines += 1;
                self.put(target, value);
                if rules.exemplars == Exemplars::Metrics && !rest.is_empty() {
                    self.exemplar(line, rules);
                }
                continue;
            }
            let done = match Line::parse(line) {
                Ok(Line::Comment(comment)) => {
                    if std::mem::take(&mut in_samples) {
                        block = Block::default();
                    }
                    block.add(comment)
                }
                Ok(Line::Sample(sample)) => {
                    in_samples = true;
                    self.sample(&sample, &block, rules).map(|(number, target)| {
                        outcome.lines += 1;
                        outcome.reordered = true;
                        self.put(target, sample.value());
                        if let Some(number) = number {
                            self.expect(cursor, number);
                            cursor += 1;
                        }
                        if rules.exemplars == Exemplars::Metrics && !sample.rest().is_empty() {
                            self.exemplar(line, rules);
                        }
                    })
                }
                Ok(_) => Ok(()),
                Err(refusal) => Err(refusal.to_string()),
            };
            if let Err(reason) = done {
                outcome.refused = Some((number, reason));
                break;
            }
        }
        if cursor < self.order.len() {
            self.order.truncate(cursor);
            outcome.reordered = true;
        }
        outcome
    }

    /// Adds the exemplar of a sample, if it has one, as a value of a separate metric with the same instances.
    fn exemplar(&mut self, line: &str, rules: &Rules) {
        let Ok(Line::Sample(sample)) = Line::parse(line) else { return };
        let (key, name) = (sample.key(), sample.name());
        let Some((_, text)) = sample.rest().split_once('#') else { return };
        let Some(labels) = key.strip_prefix(name) else { return };
        let line = format!("{name}_exemplar{labels} 0");
        let block = Block { samples: Samples::Exemplars, ..Block::default() };
        let Ok(Line::Sample(own)) = Line::parse(&line) else { return };
        if let Ok((_, target)) = self.sample(&own, &block, rules) {
            self.put(target, text.trim());
        }
    }

    fn expect(&mut self, cursor: usize, number: u32) {
        // Of a document that repeats samples very often, the order is not kept.
        let has_room = self.order.len() <= 2 * self.known.len() + SPARE;
        match self.order.get_mut(cursor) {
            Some(expected) => *expected = number,
            None if has_room => self.order.push(number),
            None => {}
        }
    }

    #[inline]
    fn put(&mut self, target: Target, text: &str) {
        if let Target::Slot { slot, ty, .. } = target {
            if let Some(value) = self.values.get_mut(slot as usize) {
                *value = Value::parse(text, ty);
            }
        }
    }

    /// Returns the target of a sample, and the number of its key. There is no number if memory is too short for the key.
    ///
    /// # Errors
    /// The reason why the document must not be read further.
    fn sample(
        &mut self,
        sample: &Parsed<'_>,
        block: &Block<'_>,
        rules: &Rules,
    ) -> Result<(Option<u32>, Target), String> {
        let key = sample.key();
        if let Some(number) = self.known.find(key) {
            let target = self.known.get(number).map_or(Target::Excluded, |(_, target)| target);
            return Ok((Some(number), target));
        }
        // If memory is short, this document gets no more of it. Nothing is known about the sample next time.
        if self.short > 0 || !self.share.take(Keys::<Target>::bytes_of(key)) {
            self.short += 1;
            return Ok((None, Target::Excluded));
        }
        let target = self.target(sample, block, rules)?;
        if self.short > 0 {
            self.share.give(Keys::<Target>::bytes_of(key));
            return Ok((None, Target::Excluded));
        }
        Ok((Some(self.known.add(key, target)), target))
    }

    /// Takes memory. Counts what is left out otherwise.
    fn take(&mut self, bytes: usize) -> bool {
        let taken = self.share.take(bytes);
        self.short += u64::from(!taken);
        taken
    }

    fn target(&mut self, sample: &Parsed<'_>, block: &Block<'_>, rules: &Rules) -> Result<Target, String> {
        let name = sample.name();
        let labels = Naming::new(sample, &rules.filters);
        if !rules.filters.includes_metric(name) {
            info!(source = %self.source, "source {}: metric {name} is left out by a filter", self.source);
            return Ok(Target::Excluded);
        }
        let at = match self.known_metric(name) {
            Some(at) => at,
            None => match self.add(sample, &labels, block, rules)? {
                Some(at) => at,
                None => return Ok(Target::Excluded),
            },
        };
        self.instance(at, name, &labels)
    }

    /// Returns the index of a metric by its name in documents.
    fn known_metric(&self, name: &str) -> Option<usize> {
        let number = self.items.find(name)?;
        (*self.by_number.get(number as usize)?).map(usize::from)
    }

    /// Adds a metric. Returns `None` if the source has too many.
    fn add(
        &mut self,
        sample: &Parsed<'_>,
        labels: &Naming<'_>,
        block: &Block<'_>,
        rules: &Rules,
    ) -> Result<Option<usize>, String> {
        let (name, exported) = (sample.name(), naming::exported(sample));
        match is_name(&exported) {
            false if naming::is_quoted(sample) => return Ok(self.leave_out(name, "PCP allows no such name")),
            false => return Err(format!("invalid metric name {name:?}")),
            true if name.len() > NAME => return Ok(self.leave_out(name, "its name is too long")),
            true => {}
        }
        let (oneline, text) = block.help();
        let (oneline, text) = (cut(&oneline, HELP), cut(&text, HELP));
        let (of_labels, notes) = labels.of_metric();
        if !self.take(upkeep::of_metric(name, oneline, text, of_labels.len() + notes.len())) {
            return Ok(None);
        }
        let number = self.items.number(name).and_then(|number| u16::try_from(number).ok());
        let Some(number) = number.filter(|number| u32::from(*number) < METRICS) else {
            warn!(source = %self.source, "source {}: metric {name} is left out: {METRICS} at most", self.source);
            self.left_out += 1;
            return Ok(None);
        };
        let metadata: Option<&Metadata> = rules.metadata.iter().find(|metadata| metadata.pattern.matches(name));
        let is = block.describe(&exported, metadata)?;
        if is.name.len() > NAME {
            return Ok(self.leave_out(&is.name, "its name is too long"));
        }
        if let Some(warning) = &is.warning {
            warn!(source = %self.source, "source {}: metric {name}: {warning}", self.source);
        }
        let singular = is.singular || labels.included.is_none();
        let table = if singular { None } else { self.instance_table(number)?.map(Box::new) };
        let shape = if singular { Shape::Singular(NO_SLOT) } else { self.plural(table.as_deref()) };
        let metric = Metric {
            number,
            name: is.name.into(),
            ty: is.ty,
            semantics: is.semantics,
            units: is.units,
            oneline: HELPS.shared(oneline),
            labels: of_labels,
            more: (!text.is_empty() || notes.len() > 0).then(|| Box::new(More { text: text.into(), notes })),
            shape,
        };
        debug!("source {}: metric {} has number {number}", self.source, metric.name);
        self.list = None;
        self.metrics.push(Working { published: Arc::new(metric), by_pcp: is.by_pcp, table });
        let at = self.metrics.len() - 1;
        let place = usize::from(number);
        self.by_number.resize(self.by_number.len().max(place + 1), None);
        if let Some(of) = self.by_number.get_mut(place) {
            *of = u16::try_from(at).ok();
        }
        Ok(Some(at))
    }

    /// Returns the shape of a metric with instances. The instances are those of its table, if there is a table.
    fn plural(&mut self, table: Option<&Table>) -> Shape {
        let mut instances = Named::default();
        if let Some(table) = table {
            naming::show_all(table, &mut instances, self.likeness);
            self.instances += table.names(0).map(upkeep::cost).sum::<usize>();
        }
        Shape::Plural(Box::new(instances))
    }

    /// Leaves out a metric because of its name.
    fn leave_out(&mut self, name: &str, reason: &str) -> Option<usize> {
        warn!(source = %self.source, "source {}: metric {:?} is left out: {reason}", self.source, cut(name, 100));
        self.left_out += 1;
        None
    }

    /// Reads the table of a metric's instances, as far as there is memory for them.
    fn instance_table(&mut self, number: u16) -> Result<Option<Table>, String> {
        let Some(serial) = Item::try_new(self.cluster, number).and_then(serial) else { return Ok(None) };
        let Some(store) = &self.store else { return Ok(Some(Table::unsaved(usize::MAX))) };
        let mut table = Table::load(store, serial.get(), usize::MAX).map_err(|e| e.to_string())?;
        let fitting = table.names(0).take_while(|name| self.share.take(upkeep::of_name(name))).count();
        table.truncate(fitting);
        self.short += table.missing() as u64;
        Ok(Some(table))
    }

    /// Returns the instance that a sample belongs to.
    fn instance(&mut self, at: usize, name: &str, labels: &Naming<'_>) -> Result<Target, String> {
        let excluded = Ok(Target::Excluded);
        let Some(metric) = self.metrics.get_mut(at) else { return excluded };
        if metric.published.instances().is_none() {
            return Ok(self.single(at));
        }
        let Some(naming) = labels.naming() else {
            return Err(format!("a sample of metric {name} has no labels, unlike others"));
        };
        let Some(table) = &mut metric.table else { return excluded };
        let (instance, by_labels) = labels.instance_name(metric.by_pcp);
        if by_labels {
            table.prefix();
        }
        let (known, cost) = (table.find(&instance), upkeep::cost(&instance));
        let limit = if instance.len() <= LabelSet::MAX_JSON { self.limit } else { 0 };
        let has_room = known.is_some() || self.instances.saturating_add(cost) <= limit;
        if known.is_none() && table.missing() > 0 {
            self.short += 1;
            return excluded;
        }
        if has_room && !self.share.take(upkeep::more_for(&metric.published, known, &instance, &naming)) {
            self.short += 1;
            return excluded;
        }
        let Some(number) = has_room.then(|| table.number(&instance)).flatten() else {
            let (source, limit) = (&self.source, self.limit);
            let reason = if instance.len() > LabelSet::MAX_JSON { ", with shorter names" } else { "" };
            warn!(source = %source, "source {source}: an instance of {name} is left out: {limit} instances at most{reason}");
            self.left_out += 1;
            return excluded;
        };
        self.instances += if known.is_some() { 0 } else { cost };
        Ok(self.slot(at, number as usize, naming, by_labels))
    }

    /// Returns the slot of a singular metric.
    fn single(&mut self, at: usize) -> Target {
        let Some(working) = self.metrics.get_mut(at) else { return Target::Excluded };
        let ty = working.published.ty;
        let slot = match working.published.shape {
            Shape::Singular(NO_SLOT) => {
                let slot = new_slot(&mut self.slots, &mut self.values);
                self.list = None;
                Arc::make_mut(&mut working.published).shape = Shape::Singular(slot);
                slot
            }
            Shape::Singular(slot) => slot,
            Shape::Plural(_) => return Target::Excluded,
        };
        Target::Slot { slot, ty, metric: u16::try_from(at).unwrap_or(u16::MAX) }
    }

    /// Returns the slot of an instance, and records its labels.
    fn slot(&mut self, at: usize, inst: usize, labels: Labels, by_labels: bool) -> Target {
        let Some(working) = self.metrics.get_mut(at) else { return Target::Excluded };
        self.list = None;
        let metric = Arc::make_mut(&mut working.published);
        let Shape::Plural(instances) = &mut metric.shape else { return Target::Excluded };
        if let Some(table) = &working.table {
            naming::show_new(table, instances, self.likeness);
        }
        if instances.slots.len() <= inst {
            instances.slots.resize(inst + 1, NO_SLOT);
            instances.labels.resize(inst + 1, None);
        }
        let Some(slot) = instances.slots.get_mut(inst) else { return Target::Excluded };
        if *slot == NO_SLOT {
            *slot = new_slot(&mut self.slots, &mut self.values);
        }
        let slot = *slot;
        if let Some(of) = instances.labels.get_mut(inst) {
            let held = of.as_ref().map_or(0, |labels| labels.len() / HEAVY);
            let charged = self.instances - held.min(self.instances) + labels.len() / HEAVY;
            if charged <= self.limit.max(self.instances) {
                self.instances = charged;
                self.naming.resize(self.naming.len().max(slot as usize + 1), None);
                if let Some(naming) = self.naming.get_mut(slot as usize) {
                    *naming = by_labels.then(|| labels.clone());
                }
                *of = Some(labels);
            } else {
                let (source, limit) = (&self.source, self.limit);
                let name = &metric.name;
                warn!(source = %source, "source {source}: new labels of {name} are left out: {limit} instances at most");
                self.left_out += 1;
            }
        }
        Target::Slot { slot, ty: metric.ty, metric: u16::try_from(at).unwrap_or(u16::MAX) }
    }
}
