//! What the documents of a source become: metrics, instances and values.
//!
//! A document usually has the same samples as the one before, in the same order. `order` has their keys, and so a
//! sample costs the comparison with the expected key, and the conversion of its value. Any other sample is looked up by
//! its key, and only one whose key is new is parsed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use exposition::{Line, Lines, Sample as Parsed};
use hashbrown::HashMap;
use pmapi::{Domain, Item, Type};
use tracing::{debug, info, warn};

use crate::keys::Keys;
use crate::labels::Labels;
use crate::metadata::{Block, Samples, is_name};
use crate::metric::{METRICS, Metric, NO_SLOT, Named, Pair, Sample, serial};
use crate::naming::{self, Naming};
use crate::table::Table;
use crate::url_file::{Exemplars, Metadata, Rules};
use crate::value::Value;

/// The metrics of a source, and the tables of their numbers.
#[derive(Debug)]
pub(crate) struct Model {
    source: String,
    domain: Domain,
    cluster: u16,
    /// Directory of the tables, if they are kept.
    tables: Option<PathBuf>,
    items: Table,
    by_name: HashMap<Box<str>, usize>,
    metrics: Vec<Working>,
    /// The published metrics, until one of them changes.
    list: Option<Arc<[Arc<Metric>]>>,
    /// What became of each sample, by its key.
    known: Keys<Target>,
    /// The numbers of the keys of the last document, in its order.
    order: Vec<u32>,
    /// Labels by slot, of instances that are named by all of their labels.
    naming: Vec<Option<Labels>>,
    values: Vec<Value>,
    /// Most instances of all metrics together.
    pub(crate) limit: usize,
    instances: usize,
    left_out: u64,
}

/// A metric, and what is needed to add instances to it.
#[derive(Debug)]
struct Working {
    published: Arc<Metric>,
    by_pcp: bool,
    table: Option<Table>,
}

/// What becomes of the samples with a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    /// They are not exported.
    Excluded,
    Slot {
        slot: u32,
        ty: Type,
        metric: u32,
    },
}

/// Outcome of a document, besides its values.
#[derive(Default)]
struct Outcome {
    lines: u64,
    /// Whether the samples are others than those of the last document, or in another order.
    reordered: bool,
    refused: Option<(usize, String)>,
}

/// Most metrics, or keys, that may be known beyond twice those of the last document.
const SPARE: usize = 1000;

impl Model {
    /// Creates the model of a source, with the tables that are in a directory.
    pub(crate) fn new(source: &str, domain: Domain, cluster: u16, tables: PathBuf, limit: usize) -> Model {
        let path = tables.join(format!("{}.{cluster}.py", domain.get()));
        Model {
            tables: Some(tables),
            items: Table::load(path, METRICS as usize),
            cluster,
            ..Model::unsaved(source, domain, limit)
        }
    }

    /// Creates a model whose tables are not kept.
    pub(crate) fn unsaved(source: &str, domain: Domain, limit: usize) -> Model {
        Model {
            source: source.to_owned(),
            domain,
            cluster: 1,
            tables: None,
            items: Table::unsaved(METRICS as usize),
            by_name: HashMap::new(),
            metrics: Vec::new(),
            list: None,
            known: Keys::new(),
            order: Vec::new(),
            naming: Vec::new(),
            values: Vec::new(),
            limit,
            instances: 0,
            left_out: 0,
        }
    }

    /// Reads a document, and returns its values. It is read up to the first line that is refused.
    pub(crate) fn read(&mut self, text: &str, rules: &Rules) -> Sample {
        let begin = Instant::now();
        self.left_out = 0;
        self.values.clear();
        self.values.resize(self.naming.len(), Value::Absent);
        let outcome = self.lines(text, rules);
        if outcome.reordered {
            self.update_labels();
            self.forget_keys();
            self.shrink();
        }
        let metrics = &self.metrics;
        let list =
            self.list.get_or_insert_with(|| metrics.iter().map(|metric| Arc::clone(&metric.published)).collect());
        Sample {
            metrics: Arc::clone(list),
            values: std::mem::take(&mut self.values),
            taken: begin,
            parsing: begin.elapsed(),
            bytes: text.len() as u64,
            lines: outcome.lines,
            left_out: self.left_out,
            refused: outcome.refused,
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
                        self.expect(cursor, number);
                        cursor += 1;
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

    /// Puts the exemplar of a sample, if it has one, as a value of a metric of its own with the same instances.
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
        match self.order.get_mut(cursor) {
            Some(expected) => *expected = number,
            None => self.order.push(number),
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

    /// Finds what becomes of a sample, and the number of its key.
    ///
    /// # Errors
    /// The reason why the document must not be read further.
    fn sample(&mut self, sample: &Parsed<'_>, block: &Block<'_>, rules: &Rules) -> Result<(u32, Target), String> {
        let key = sample.key();
        if let Some(number) = self.known.find(key) {
            return Ok((number, self.known.get(number).map_or(Target::Excluded, |(_, target)| target)));
        }
        let target = self.target(sample, block, rules)?;
        Ok((self.known.add(key, target), target))
    }

    fn target(&mut self, sample: &Parsed<'_>, block: &Block<'_>, rules: &Rules) -> Result<Target, String> {
        let name = sample.name();
        let labels = Naming::new(sample, &rules.filters);
        let at = match self.by_name.get(name) {
            Some(at) => *at,
            None if !rules.filters.includes_metric(name) => {
                info!(source = %self.source, "source {}: metric {name} is left out by a filter", self.source);
                return Ok(Target::Excluded);
            }
            None => match self.add(sample, &labels, block, rules)? {
                Some(at) => at,
                None => return Ok(Target::Excluded),
            },
        };
        self.instance(at, name, &labels)
    }

    /// Adds a metric. `None` if the source has too many.
    fn add(
        &mut self,
        sample: &Parsed<'_>,
        labels: &Naming<'_>,
        block: &Block<'_>,
        rules: &Rules,
    ) -> Result<Option<usize>, String> {
        let (name, exported) = (sample.name(), naming::exported(sample));
        if !is_name(&exported) {
            return Err(format!("invalid metric name {name:?}"));
        }
        let number = self.items.number(name).and_then(|number| u16::try_from(number).ok());
        let Some(number) = number.filter(|number| u32::from(*number) < METRICS) else {
            warn!(source = %self.source, "source {}: metric {name} is left out: {METRICS} at most", self.source);
            self.left_out += 1;
            return Ok(None);
        };
        let metadata: Option<&Metadata> = rules.metadata.iter().find(|metadata| metadata.pattern.matches(name));
        let is = block.describe(&exported, metadata)?;
        if let Some(warning) = &is.warning {
            warn!(source = %self.source, "source {}: metric {name}: {warning}", self.source);
        }
        let singular = is.singular || labels.included.is_none();
        let table = (!singular).then(|| self.instance_table(number)).flatten();
        let mut instances = Named::default();
        if let Some(table) = &table {
            naming::show_all(table, &mut instances);
            self.instances += table.len();
        }
        let (oneline, text) = block.help();
        let (labels, notes) = labels.of_metric();
        let metric = Metric {
            number,
            name: is.name,
            ty: is.ty,
            semantics: is.semantics,
            units: is.units,
            oneline,
            text,
            singular,
            labels,
            notes,
            instances,
        };
        debug!("source {}: metric {} has number {number}", self.source, metric.name);
        self.list = None;
        self.metrics.push(Working { published: Arc::new(metric), by_pcp: is.by_pcp, table });
        self.by_name.insert(name.into(), self.metrics.len() - 1);
        Ok(Some(self.metrics.len() - 1))
    }

    fn instance_table(&self, number: u16) -> Option<Table> {
        let serial = serial(Item::try_new(self.cluster, number)?)?;
        let Some(tables) = &self.tables else { return Some(Table::unsaved(usize::MAX)) };
        let path = tables.join(format!("{}.{}.py", self.domain.get(), serial.get()));
        Some(Table::load(path, usize::MAX))
    }

    /// Finds the instance that a sample is the value of.
    fn instance(&mut self, at: usize, name: &str, labels: &Naming<'_>) -> Result<Target, String> {
        let excluded = Ok(Target::Excluded);
        let Some(metric) = self.metrics.get_mut(at) else { return excluded };
        if metric.published.singular {
            return Ok(self.slot(at, 0, None, None));
        }
        let Some(naming) = labels.naming() else {
            return Err(format!("metric {name} has labels elsewhere, but none here"));
        };
        let Some(table) = &mut metric.table else { return excluded };
        let (instance, by_labels) = labels.instance_name(metric.by_pcp);
        let known = table.len();
        if by_labels {
            table.prefix();
        }
        let room = if self.instances < self.limit { Some(()) } else { table.find(&instance).map(|_| ()) };
        let Some(number) = room.and_then(|()| table.number(&instance)) else {
            let (source, limit) = (&self.source, self.limit);
            warn!(source = %source, "source {source}: an instance of {name} is left out: {limit} instances at most");
            self.left_out += 1;
            return excluded;
        };
        self.instances += table.len() - known;
        Ok(self.slot(at, number as usize, Some(naming), Some(by_labels)))
    }

    /// Returns the slot of an instance, and records its labels.
    fn slot(&mut self, at: usize, inst: usize, labels: Option<Labels>, by_labels: Option<bool>) -> Target {
        let Some(working) = self.metrics.get_mut(at) else { return Target::Excluded };
        self.list = None;
        let metric = Arc::make_mut(&mut working.published);
        if let Some(table) = &working.table {
            naming::show_new(table, &mut metric.instances);
        }
        let instances = &mut metric.instances;
        if instances.slots.len() <= inst {
            instances.slots.resize(inst + 1, NO_SLOT);
            instances.labels.resize(inst + 1, None);
        }
        if let Some(of) = instances.labels.get_mut(inst) {
            of.clone_from(&labels);
        }
        let Some(slot) = instances.slots.get_mut(inst) else { return Target::Excluded };
        if *slot == NO_SLOT {
            *slot = u32::try_from(self.naming.len()).unwrap_or(NO_SLOT);
            self.naming.push(None);
            self.values.push(Value::Absent);
        }
        if let Some(naming) = self.naming.get_mut(*slot as usize) {
            *naming = labels.filter(|_| by_labels == Some(true));
        }
        Target::Slot { slot: *slot, ty: metric.ty, metric: u32::try_from(at).unwrap_or(u32::MAX) }
    }

    /// Gives each metric the labels of its last sample, as PCP's agent does.
    fn update_labels(&mut self) {
        let mut labels: HashMap<u32, Vec<Pair>> = HashMap::new();
        for number in &self.order {
            let Some((_, Target::Slot { slot, metric, .. })) = self.known.get(*number) else { continue };
            let Some(Some(pairs)) = self.naming.get(slot as usize) else { continue };
            let Some(working) = self.metrics.get(metric as usize) else { continue };
            let of = labels.entry(metric).or_insert_with(|| working.published.labels.clone());
            for (name, value) in pairs.iter() {
                match of.iter_mut().find(|(known, _)| &**known == name) {
                    Some((_, known)) if &**known != value => *known = value.into(),
                    Some(_) => {}
                    None => of.push((name.into(), value.into())),
                }
            }
        }
        for (metric, labels) in labels {
            let working = self.metrics.get_mut(metric as usize);
            if let Some(working) = working.filter(|working| working.published.labels != labels) {
                Arc::make_mut(&mut working.published).labels = labels;
                self.list = None;
            }
        }
    }

    /// Forgets keys that the last document does not have, if they are many.
    fn forget_keys(&mut self) {
        if self.known.len() > 2 * self.order.len() + SPARE {
            self.known.keep(&mut self.order);
        }
    }

    /// Gives back memory that the next documents do not need.
    fn shrink(&mut self) {
        self.known.shrink();
        self.order.shrink_to_fit();
        self.naming.shrink_to_fit();
        self.values.shrink_to_fit();
    }

    /// Writes the tables that have changed.
    pub(crate) fn save(&mut self) {
        self.items.save();
        for table in self.metrics.iter_mut().filter_map(|metric| metric.table.as_mut()) {
            table.save();
        }
    }
}
