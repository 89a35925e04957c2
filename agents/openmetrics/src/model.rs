//! Converts the documents of a source to metrics, instances and values.
//!
//! A document usually has the same samples as the one before, in the same order. `order` has their keys, so a sample
//! costs a comparison with the expected key, and the conversion of its value. Any other sample is looked up by its key.
//! Only samples with new keys are parsed.
//!
//! A line that cannot be read has no value, and has no effect on other lines. A value is shown only if it is the value
//! of one series: never that of one of several samples with different labels.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use exposition::{Line, Lines, Sample as Parsed};
use pmapi::{Error, Item, LabelSet, Type};
use tracing::{debug, warn};

use crate::budget::Share;
use crate::metadata::{Block, Samples, is_name};
use crate::metric::{
    HELP, Labels, Likeness, METRICS, Metric, NAME, NO_SLOT, Named, Refused, Sample, Shape, Value, cut, fitting, serial,
};
use crate::naming::{self, Naming};
use crate::store::Store;
use crate::table::Table;
use crate::url_file::{Exemplars, Metadata, Rules};

/// The metrics of a source, and the tables of their numbers.
#[derive(Debug)]
pub(crate) struct Model {
    source: Arc<str>,
    cluster: u16,
    /// Where the tables are kept, if they are.
    store: Option<Arc<Store>>,
    items: Table,
    is_loaded: bool,
    /// The metrics in the order of their first samples.
    metrics: Vec<Working>,
    /// Index of each metric by its name in documents.
    by_name: HashMap<Box<str>, u16>,
    /// The published metrics, until one of them changes.
    list: Option<Arc<[Arc<Metric>]>>,
    /// Targets of samples, by key.
    known: HashMap<Arc<str>, Target>,
    /// The samples of the last document.
    order: Vec<(Arc<str>, Target)>,
    /// Memory for the keys, in bytes.
    keys: usize,
    values: Vec<Value>,
    /// The series that each value of this document is of, or [`NONE`] or [`SEVERAL`].
    series: Vec<u64>,
    /// Largest number of instances of all metrics together.
    pub(crate) limit: usize,
    pub(crate) likeness: Likeness,
    /// Largest number of refused lines that are kept of a document.
    pub(crate) reasons: usize,
    instances: usize,
    left_out: u64,
    /// Number of lines of the current document that have been read.
    lines: u64,
    /// Whether the current document has metadata or a line that has been read, unlike a page of text.
    is_document: bool,
    /// Reasons that the log has since the source's file was read.
    logged: Vec<&'static str>,
    /// Memory of the model.
    pub(crate) share: Share,
    /// Metrics, instances and samples of the current document that were left out because memory is short.
    short: u64,
}

/// A metric, and the data needed to add instances to it.
#[derive(Debug)]
struct Working {
    published: Arc<Metric>,
    /// Whether PCP's metadata describe the metric.
    by_pcp: bool,
    /// Whether PCP's metadata say that the metric is singular although its samples have labels.
    is_singular: bool,
    table: Option<Table>,
}

/// Use of the samples with a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    /// Samples with the key are not exported.
    Excluded,
    Slot {
        slot: u32,
        ty: Type,
        metric: u16,
        inst: u32,
        series: u64,
    },
}

/// A sample with its target and its key, which is not kept if memory is short.
type Found = (Target, Option<Arc<str>>);

/// Outcome of a document, besides its values.
#[derive(Default)]
struct Outcome {
    /// Whether the document has other samples than the previous one, or another order.
    reordered: bool,
    refused: Refused,
}

/// Series of a value that no sample has had yet.
const NONE: u64 = 0;
/// Series of a value that samples of several series have had.
const SEVERAL: u64 = 1;

/// Longest reason for which a line is refused, in bytes.
const REASON: usize = 500;
/// Memory for a key, in bytes, besides its text: its places in `known` and `order`.
const KEY: usize = 128;
/// Memory for a metric, in bytes, besides its texts.
const METRIC: usize = 512;
/// Memory for an instance, in bytes, besides its name and labels.
const INSTANCE: usize = 200;
/// Memory for the labels of an instance or metric, in bytes, besides their texts.
const LABELS: usize = 32;
/// Number of places in memory that have a copy of a name: the table, the exported names, and the text of the table's file.
const COPIES: usize = 3;
/// Keys that are not in the last document are forgotten if they need more memory than those that are in it, and this
/// number of bytes.
const SPARE: usize = 64 << 10;

fn of_key(key: &str) -> usize {
    KEY + key.len()
}

fn of_name(name: &str) -> usize {
    INSTANCE + COPIES * name.len()
}

fn of_labels(labels: &Labels) -> usize {
    LABELS + labels.len()
}

impl Model {
    /// Creates the model of a source with a certain number, which keeps its tables.
    pub(crate) fn new(source: Arc<str>, cluster: u16, store: &Arc<Store>, limit: usize) -> Model {
        Model { store: Some(Arc::clone(store)), is_loaded: false, cluster, ..Model::unsaved(source, limit) }
    }

    /// Creates a model without tables on disk.
    pub(crate) fn unsaved(source: Arc<str>, limit: usize) -> Model {
        Model {
            source,
            cluster: 1,
            store: None,
            items: Table::unsaved(METRICS as usize),
            is_loaded: true,
            metrics: Vec::new(),
            by_name: HashMap::new(),
            list: None,
            known: HashMap::new(),
            order: Vec::new(),
            keys: 0,
            values: Vec::new(),
            series: Vec::new(),
            limit,
            likeness: Likeness::Better,
            reasons: 1,
            instances: 0,
            left_out: 0,
            lines: 0,
            is_document: false,
            logged: Vec::new(),
            share: Share::default(),
            short: 0,
        }
    }

    /// Reads the table of the metrics, once. Must be called before a document is read.
    ///
    /// # Errors
    /// The reason why it cannot be read now.
    pub(crate) fn load(&mut self) -> Result<(), String> {
        if let Some(store) = self.store.as_ref().filter(|_| !self.is_loaded) {
            let items = Table::load(store, self.cluster.into(), METRICS as usize, |_| true);
            self.items = items.map_err(|e| e.to_string())?;
            self.is_loaded = true;
        }
        Ok(())
    }

    /// Reads a document, and returns its values.
    pub(crate) fn read(&mut self, text: &str, rules: &Rules) -> Sample {
        let begin = Instant::now();
        (self.left_out, self.short, self.lines, self.is_document) = (0, 0, 0, false);
        self.values = vec![Value::Absent; self.series.len()];
        self.series.fill(NONE);
        let outcome = self.lines(text.strip_prefix('\u{feff}').unwrap_or(text), rules);
        if outcome.reordered {
            self.update_labels();
            self.forget_keys();
            self.shrink();
        }
        self.share.leave_out(self.short);
        Sample {
            metrics: self.list(),
            values: std::mem::take(&mut self.values),
            taken: begin,
            parsing: begin.elapsed(),
            bytes: text.len() as u64,
            lines: self.lines,
            left_out: self.left_out + self.short,
            refused: outcome.refused,
            reordered: outcome.reordered,
        }
    }

    fn lines(&mut self, text: &str, rules: &Rules) -> Outcome {
        let (mut outcome, mut cursor) = (Outcome::default(), 0);
        let (mut block, mut in_samples) = (Block::default(), false);
        for (number, line) in Lines::new(text) {
            let expected = self.order.get(cursor);
            let known = expected.and_then(|(key, target)| Some((Parsed::parse_known(line, key)?, *target)));
            let done = if let Some(((value, rest), target)) = known {
                cursor += 1;
                in_samples = true;
                self.put(target, value, !rest.is_empty(), line, rules).map(|()| self.lines += 1)
            } else {
                match Line::parse(line) {
                    Ok(Line::Comment(comment)) => {
                        if std::mem::take(&mut in_samples) {
                            block = Block::default();
                        }
                        let added = block.add(comment);
                        self.is_document |= block.has_metadata();
                        added
                    }
                    Ok(Line::Sample(sample)) => {
                        in_samples = true;
                        outcome.reordered = true;
                        self.sample(&sample, &block, rules).and_then(|(target, key)| {
                            if let Some(key) = key {
                                self.expect(cursor, key, target);
                                cursor += 1;
                            }
                            self.put(target, sample.value(), !sample.rest().is_empty(), line, rules)?;
                            self.lines += 1;
                            Ok(())
                        })
                    }
                    Ok(_) => Ok(()),
                    Err(refusal) => Err(refusal.to_string()),
                }
            };
            let Err(reason) = done else { continue };
            outcome.refused.add(number, &reason, self.reasons);
            // Lines of a page in HTML are no samples, even if they look like some.
            let is_page = self.lines == 0 && line.trim_start().starts_with('<');
            outcome.refused.as_pcp = self.likeness == Likeness::Exact;
            if is_page || outcome.refused.as_pcp {
                break;
            }
        }
        if cursor < self.order.len() {
            self.order.truncate(cursor);
            outcome.reordered = true;
        }
        outcome
    }

    fn expect(&mut self, cursor: usize, key: Arc<str>, target: Target) {
        // Of a document that repeats samples very often, the order is not kept.
        let has_room = self.order.len() <= (2 * self.keys + SPARE) / KEY;
        match self.order.get_mut(cursor) {
            Some(expected) => *expected = (key, target),
            None if has_room => self.order.push((key, target)),
            None => {}
        }
    }

    /// Records the value of a sample.
    ///
    /// # Errors
    /// The reason why the text is no value of the metric, or why the value would be an arbitrary one.
    #[inline]
    fn put(&mut self, target: Target, text: &str, has_more: bool, line: &str, rules: &Rules) -> Result<(), String> {
        let Target::Slot { slot, ty, series, .. } = target else { return Ok(()) };
        let at = slot as usize;
        let (Some(value), Some(of)) = (self.values.get_mut(at), self.series.get_mut(at)) else { return Ok(()) };
        let new = Value::parse(text, ty);
        if self.likeness == Likeness::Better {
            if matches!(new, Value::Bad(_)) && !self.is_document && self.lines == 0 {
                // If the metric were new, it would not be added.
                return Err(no_value(text, ty));
            }
            // The same series twice may be several points of time. The last one counts, as in PCP's agent. Labels with
            // invalid UTF-8 may differ although their texts are the same.
            if *of != NONE && (*of != series || line.contains(char::REPLACEMENT_CHARACTER)) {
                (*of, *value) = (SEVERAL, Value::Bad(Error::AGAIN));
                return Err("samples with other labels have the same instance or metric in PCP".to_owned());
            }
            *of = series;
            if let Value::Bad(_) = new {
                if *value == Value::Absent {
                    *value = new;
                }
                return Err(no_value(text, ty));
            }
        }
        *value = new;
        if has_more && rules.exemplars == Exemplars::Metrics {
            self.exemplar(line, rules);
        }
        Ok(())
    }

    /// Adds the exemplar of a sample, if it has one, as a value of a separate metric with the same instances.
    #[cold]
    fn exemplar(&mut self, line: &str, rules: &Rules) {
        let Ok(Line::Sample(sample)) = Line::parse(line) else { return };
        let (key, name) = (sample.key(), sample.name());
        let Some((_, text)) = sample.rest().split_once('#') else { return };
        let Some(labels) = key.strip_prefix(name) else { return };
        let line = format!("{name}_exemplar{labels} 0");
        let block = Block { samples: Samples::Exemplars, ..Block::default() };
        let Ok(Line::Sample(own)) = Line::parse(&line) else { return };
        if let Ok((target, _)) = self.sample(&own, &block, rules) {
            let _ = self.put(target, text.trim(), false, &line, rules);
        }
    }

    /// Returns the target of a sample.
    ///
    /// # Errors
    /// The reason why it is not read.
    fn sample(&mut self, sample: &Parsed<'_>, block: &Block<'_>, rules: &Rules) -> Result<Found, String> {
        let key = sample.key();
        if let Some((key, target)) = self.known.get_key_value(key) {
            return Ok((*target, Some(Arc::clone(key))));
        }
        let target = self.target(sample, block, rules)?;
        // Without memory for the key, the sample is parsed each time.
        if !self.share.take(of_key(key)) {
            return Ok((target, None));
        }
        self.keys += of_key(key);
        let key: Arc<str> = key.into();
        let metric =
            if let Target::Slot { metric, .. } = target { self.metrics.get(usize::from(metric)) } else { None };
        // With PCP's metadata, an instance may have other labels each time.
        if metric.is_none_or(|metric| !metric.by_pcp) {
            self.known.insert(Arc::clone(&key), target);
        }
        Ok((target, Some(key)))
    }

    fn target(&mut self, sample: &Parsed<'_>, block: &Block<'_>, rules: &Rules) -> Result<Target, String> {
        let name = sample.name();
        if !rules.filters.includes_metric(name) {
            debug!("source {}: metric {name} is left out by a filter", self.source);
            return Ok(Target::Excluded);
        }
        let labels = Naming::new(sample, &rules.filters);
        let at = match self.by_name.get(name) {
            Some(at) => *at,
            None => match self.add(sample, &labels, block, rules)? {
                Some(at) => at,
                None => return Ok(Target::Excluded),
            },
        };
        self.instance(at, sample, &labels)
    }

    /// Adds a metric. Returns `None` if it is left out.
    fn add(
        &mut self,
        sample: &Parsed<'_>,
        labels: &Naming<'_>,
        block: &Block<'_>,
        rules: &Rules,
    ) -> Result<Option<u16>, String> {
        let (name, exported) = (sample.name(), naming::exported(sample));
        if !is_name(&exported) {
            if naming::is_quoted(sample) {
                return Ok(self.leave_out(name, "PCP allows no such name"));
            }
            return Err(format!("invalid metric name {:?}", cut(name, NAME)));
        }
        let metadata: Option<&Metadata> = rules.metadata.iter().find(|metadata| metadata.pattern.matches(name));
        let is = block.describe(&exported, metadata)?;
        if name.len().max(is.name.len()) > NAME {
            return Ok(self.leave_out(name, "its name is too long"));
        }
        self.check(sample.value(), is.ty)?;
        let (oneline, text) = block.help();
        let (oneline, text) = (cut(&oneline, HELP), cut(&text, HELP));
        let (of_metric, notes) = labels.of_metric();
        let texts = COPIES * name.len() + oneline.len() + text.len() + of_labels(&of_metric) + of_labels(&notes);
        if !self.take(METRIC + texts) {
            return Ok(None);
        }
        let number = self.items.number(name).and_then(|number| u16::try_from(number).ok());
        let Some(number) = number.filter(|number| u32::from(*number) < METRICS) else {
            self.share.give(METRIC + texts);
            return Ok(self.leave_out(name, "1024 metrics at most"));
        };
        if let Some(warning) = &is.warning {
            warn!(source = %self.source, "source {}: metric {name}: {warning}", self.source);
        }
        let singular = is.singular || labels.included.is_none();
        let table = if singular { None } else { self.instance_table(number)? };
        let metric = Metric {
            number,
            name: is.name.into(),
            ty: is.ty,
            semantics: is.semantics,
            units: is.units,
            oneline: oneline.into(),
            text: text.into(),
            labels: of_metric,
            notes,
            shape: if singular { Shape::Singular(NO_SLOT) } else { self.plural(table.as_ref()) },
        };
        debug!("source {}: metric {} has number {number}", self.source, metric.name);
        self.list = None;
        let at = u16::try_from(self.metrics.len()).unwrap_or(u16::MAX);
        let (by_pcp, is_singular) = (is.by_pcp, is.singular);
        self.metrics.push(Working { published: Arc::new(metric), by_pcp, is_singular, table });
        self.by_name.insert(name.into(), at);
        Ok(Some(at))
    }

    /// Checks the value of a new metric or instance. Text that is no document adds none.
    fn check(&self, text: &str, ty: Type) -> Result<(), String> {
        let is_document = self.is_document || self.lines > 0 || self.likeness == Likeness::Exact;
        match Value::parse(text, ty) {
            Value::Bad(_) if !is_document => Err(no_value(text, ty)),
            _ => Ok(()),
        }
    }

    /// Takes memory. Counts what is left out otherwise.
    fn take(&mut self, bytes: usize) -> bool {
        let taken = self.share.take(bytes);
        self.short += u64::from(!taken);
        taken
    }

    /// Returns the shape of a metric with instances. The instances are those of its table, if there is a table.
    fn plural(&mut self, table: Option<&Table>) -> Shape {
        let mut instances = Named::default();
        if let Some(table) = table {
            naming::show(table, &mut instances, self.likeness);
            self.instances += instances.names.len();
        }
        Shape::Plural(Box::new(instances))
    }

    /// Leaves out a metric or instance. The log has the first one for each reason.
    fn leave_out<T>(&mut self, name: &str, reason: &'static str) -> Option<T> {
        self.left_out += 1;
        if !self.logged.contains(&reason) {
            self.logged.push(reason);
            let (source, name, limit) = (&self.source, cut(name, 100), self.limit);
            warn!(source = %source, "source {source}: {name:?} is left out: {}", reason.replace('#', &limit.to_string()));
        }
        None
    }

    /// Reads the table of a metric's instances, as far as there is memory for them.
    fn instance_table(&mut self, number: u16) -> Result<Option<Table>, String> {
        let Some(serial) = Item::try_new(self.cluster, number).and_then(serial) else { return Ok(None) };
        let Some(store) = &self.store else { return Ok(Some(Table::unsaved(usize::MAX))) };
        let share = &mut self.share;
        let table = Table::load(store, serial.get(), usize::MAX, |name| share.take(of_name(name)));
        table.map(Some).map_err(|e| e.to_string())
    }

    /// Returns the instance that a sample belongs to.
    fn instance(&mut self, at: u16, sample: &Parsed<'_>, labels: &Naming<'_>) -> Result<Target, String> {
        let series = naming::series(sample);
        let Some(metric) = self.metrics.get_mut(usize::from(at)) else { return Ok(Target::Excluded) };
        let ty = metric.published.ty;
        if metric.published.instances().is_none() {
            let fits = labels.included.is_none() || metric.is_singular || self.likeness == Likeness::Exact;
            if !fits {
                let name = sample.name();
                let reason = "its samples with labels have no value until the agent starts again";
                return Err(format!("metric {name} had no labels when the agent began to read it: {reason}"));
            }
            let (slot, inst) = (self.single(at, labels), 0);
            return Ok(Target::Slot { slot, ty, metric: at, inst, series });
        }
        let Some(naming) = labels.naming() else {
            return Err(format!("a sample of metric {} has no labels, unlike others", sample.name()));
        };
        let (name, by_labels) = labels.instance_name(metric.by_pcp);
        let Some(table) = &mut metric.table else { return Ok(Target::Excluded) };
        let known = table.find(&name);
        let is_cut = table.is_cut();
        let number = match known {
            Some(known) => known,
            None => {
                self.check(sample.value(), ty)?;
                match self.new_instance(at, &name, is_cut) {
                    Some(number) => number,
                    None => return Ok(Target::Excluded),
                }
            }
        };
        let slot = self.slot(at, number, naming, by_labels);
        Ok(Target::Slot { slot, ty, metric: at, inst: number, series })
    }

    /// Adds an instance. Returns `None` if it is left out.
    fn new_instance(&mut self, at: u16, name: &str, is_cut: bool) -> Option<u32> {
        if name.len() > LabelSet::MAX_JSON {
            return self.leave_out(name, "its name is too long");
        }
        if self.instances >= self.limit {
            return self.leave_out(name, "# instances at most");
        }
        if is_cut || !self.share.take(of_name(name)) {
            self.short += 1;
            return None;
        }
        self.instances += 1;
        self.metrics.get_mut(usize::from(at))?.table.as_mut()?.number(name)
    }

    /// Adds a slot, and returns its index.
    fn new_slot(&mut self) -> u32 {
        self.values.push(Value::Absent);
        self.series.push(NONE);
        // Limits of metrics and instances end documents long before.
        u32::try_from(self.series.len() - 1).unwrap_or(NO_SLOT - 1)
    }

    /// Returns the slot of a singular metric, whose labels are those of its last sample.
    fn single(&mut self, at: u16, labels: &Naming<'_>) -> u32 {
        let next = u32::try_from(self.series.len()).unwrap_or(NO_SLOT - 1);
        let Some(working) = self.metrics.get_mut(usize::from(at)) else { return NO_SLOT };
        let (of_metric, notes) = labels.of_metric();
        let is_other = of_metric != working.published.labels || notes != working.published.notes;
        if is_other && self.likeness == Likeness::Better && self.share.take(of_labels(&of_metric) + of_labels(&notes)) {
            let metric = Arc::make_mut(&mut working.published);
            self.share.give(of_labels(&metric.labels) + of_labels(&metric.notes));
            (metric.labels, metric.notes, self.list) = (of_metric, notes, None);
        }
        match working.published.shape {
            Shape::Singular(NO_SLOT) => {
                Arc::make_mut(&mut working.published).shape = Shape::Singular(next);
                self.list = None;
                self.new_slot()
            }
            Shape::Singular(slot) => slot,
            Shape::Plural(_) => NO_SLOT,
        }
    }

    /// Returns the slot of an instance, and records its labels. They are left out if memory is short.
    fn slot(&mut self, at: u16, inst: u32, new: Labels, by_labels: bool) -> u32 {
        let next = u32::try_from(self.series.len()).unwrap_or(NO_SLOT - 1);
        let Some(working) = self.metrics.get_mut(usize::from(at)) else { return NO_SLOT };
        self.list = None;
        let metric = Arc::make_mut(&mut working.published);
        let (Shape::Plural(instances), Some(table)) = (&mut metric.shape, &mut working.table) else { return NO_SLOT };
        if by_labels {
            table.prefix();
        }
        naming::show(table, instances, self.likeness);
        let inst = inst as usize;
        if let Some(labels) = instances.labels.get_mut(inst) {
            self.share.give(labels.as_ref().map_or(0, of_labels));
            let fits = self.share.take(of_labels(&new));
            self.short += u64::from(!fits);
            *labels = fits.then_some(new);
        }
        match instances.slots.get_mut(inst) {
            Some(slot) if *slot == NO_SLOT => {
                *slot = next;
                self.new_slot()
            }
            Some(slot) => *slot,
            None => NO_SLOT,
        }
    }

    /// Returns the published metrics.
    fn list(&mut self) -> Arc<[Arc<Metric>]> {
        let metrics = &self.metrics;
        let list = || metrics.iter().map(|metric| Arc::clone(&metric.published)).collect();
        Arc::clone(self.list.get_or_insert_with(list))
    }

    /// Gives each metric the labels of its last sample, as PCP's agent does.
    fn update_labels(&mut self) {
        let mut all: HashMap<u16, Vec<(&str, &str)>> = HashMap::new();
        for (_, target) in &self.order {
            let Target::Slot { metric: at, inst, .. } = *target else { continue };
            let Some(working) = self.metrics.get(usize::from(at)) else { continue };
            let Some(instances) = working.published.instances() else { continue };
            let Some(Some(of)) = instances.labels.get(inst as usize) else { continue };
            let has_name = || of.iter().any(|(name, _)| matches!(name, "instname" | "instance"));
            if !(working.by_pcp && has_name()) {
                naming::merge(all.entry(at).or_insert_with(|| working.published.labels.iter().collect()), of);
            }
        }
        let all: Vec<(u16, Labels)> =
            all.into_iter().map(|(at, merged)| (at, Labels::new(fitting(merged.into_iter())))).collect();
        for (at, labels) in all {
            let working = self.metrics.get_mut(usize::from(at));
            if let Some(working) = working.filter(|working| working.published.labels != labels) {
                Arc::make_mut(&mut working.published).labels = labels;
                self.list = None;
            }
        }
    }

    /// Makes the next document parse all samples again, because the rules or limits have changed.
    pub(crate) fn reconsider(&mut self) {
        self.share.give(std::mem::take(&mut self.keys));
        (self.known, self.order) = (HashMap::new(), Vec::new());
        self.logged.clear();
    }

    /// Removes the keys that are not in the last document, if there are many.
    fn forget_keys(&mut self) {
        let wanted = self.order.iter().map(|(key, _)| of_key(key)).sum::<usize>();
        if self.keys <= 2 * wanted + SPARE {
            return;
        }
        let wanted: HashSet<&Arc<str>> = self.order.iter().map(|(key, _)| key).collect();
        self.known.retain(|key, _| wanted.contains(key));
        let bytes = wanted.iter().map(|key| of_key(key)).sum::<usize>();
        self.share.give(self.keys - bytes);
        self.keys = bytes;
    }

    /// Frees memory that the next documents do not need: there may be very many sources.
    fn shrink(&mut self) {
        self.order.shrink_to_fit();
        self.known.shrink_to_fit();
        self.metrics.shrink_to_fit();
        self.by_name.shrink_to_fit();
        self.series.shrink_to_fit();
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

impl Refused {
    /// Adds a line. Only the first ones keep their reason.
    fn add(&mut self, number: usize, reason: &str, most: usize) {
        self.count += 1;
        if self.first.len() < most {
            self.first.push((number, cut(reason, REASON).to_owned()));
        }
    }
}

#[cold]
fn no_value(text: &str, ty: Type) -> String {
    let text = cut(text, 100);
    match ty {
        Type::Double | Type::Float => format!("{text:?} is not a number"),
        _ => format!("{text:?} is not a value of type {ty}"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
