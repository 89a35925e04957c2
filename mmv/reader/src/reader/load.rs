//! Loads the records of a file, and checks each of them.

use pcp_base::escape::is_control;
use pmapi::Units;

use super::problem::{Problem, ReadError};
use super::{File, GAP, HelpAt, Indom, Instance, Label, MAX_TOCS, Metric, Problems, RUN, Run, ValueOf, Values};
use crate::format;
use crate::format::{
    Bytes, HEADER_LEN, Header, INDOM_LEN, IndomRecord, InstanceRecord, LABEL_LEN, LabelRecord, MAGIC, MAX_LABELS,
    MAX_METRICS, MetricRecord, Section, Toc, VALUE_LEN, ValueRecord, ValueType, Version, is_singular,
};

/// The records of a section, all of which are in the file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Table {
    pub at: u64,
    pub count: u32,
}

impl Table {
    pub(super) fn record(self, index: u32, size: usize) -> u64 {
        self.at + u64::from(index) * size as u64
    }
}

/// The first section of each kind.
#[derive(Default)]
pub(super) struct Tables {
    pub metrics: Option<Table>,
    pub indoms: Option<Table>,
    pub values: Option<Table>,
    pub labels: Option<Table>,
}

impl Tables {
    pub(super) fn add(&mut self, toc: Toc, version: Version, bytes: Bytes<'_>, problems: &mut Problems) {
        let Some(section) = Section::from_code(toc.section) else {
            return problems.push(Problem::Section { code: toc.section });
        };
        let (slot, size, max) = match section {
            Section::Metrics => (&mut self.metrics, version.metric_len(), MAX_METRICS),
            Section::Indoms => (&mut self.indoms, INDOM_LEN, pmapi::Serial::MAX as usize),
            Section::Values => (&mut self.values, VALUE_LEN, i32::MAX as usize),
            Section::Labels => (&mut self.labels, LABEL_LEN, MAX_LABELS),
            // These are found through the records that refer to them.
            Section::Instances | Section::Strings => return,
        };
        let count = u32::try_from(toc.count).ok().filter(|count| *count as usize <= max);
        let Some(count) = count else { return problems.push(Problem::Count { section, count: toc.count }) };
        if toc.offset < HEADER_LEN as u64 {
            return problems.push(Problem::OverHeader { section });
        }
        if !bytes.has(toc.offset, count.into(), size) {
            return problems.push(Problem::BeyondEnd { section, offset: toc.offset, count: toc.count });
        }
        if slot.is_some() {
            return problems.push(Problem::Repeated { section });
        }
        *slot = Some(Table { at: toc.offset, count });
    }
}

/// Checks a header, given the first bytes of a file and its length.
pub(super) fn check_header(bytes: Bytes<'_>, len: u64) -> Result<(Header, Version), ReadError> {
    let header = Header::read(bytes).ok_or(ReadError::TooShort { len })?;
    if header.magic != MAGIC {
        return Err(ReadError::Magic(header.magic));
    }
    if header.g1 == 0 || header.g1 != header.g2 {
        return Err(ReadError::InFlux { g1: header.g1, g2: header.g2 });
    }
    let version = Version::from_code(header.version).ok_or(ReadError::Version(header.version))?;
    let tocs = usize::try_from(header.tocs).ok().filter(|tocs| *tocs >= 2).ok_or(ReadError::Contents(header.tocs))?;
    if Toc::at(tocs) > len {
        return Err(ReadError::ContentsBeyondEnd { tocs: header.tocs, len });
    }
    if tocs > MAX_TOCS {
        return Err(ReadError::Contents(header.tocs));
    }
    if !(0..=i32::from(pmapi::Item::MAX_CLUSTER)).contains(&header.cluster) {
        return Err(ReadError::Cluster(header.cluster));
    }
    Ok((header, version))
}

/// Records to which other records refer, mostly in order.
struct InOrder {
    /// Offset of the first record.
    first: u64,
    /// Length of a record.
    len: u64,
    /// Index and offset of the last record that was looked up.
    last: (usize, u64),
}

impl InOrder {
    /// Returns the index of the record at an offset, or `None` if no record begins there.
    #[inline]
    fn index(&mut self, at: u64) -> Option<usize> {
        let (last, last_at) = self.last;
        let index = match at.checked_sub(last_at) {
            Some(0) => last,
            // Spares a division.
            Some(distance) if distance == self.len => last + 1,
            _ => {
                let from = at.checked_sub(self.first).filter(|from| from % self.len == 0)?;
                usize::try_from(from / self.len).ok()?
            }
        };
        self.last = (index, at);
        Some(index)
    }
}

impl File {
    pub(super) fn load(&mut self, bytes: Bytes<'_>) {
        let mut tables = Tables::default();
        // `check_header` has checked that the entries are in the file.
        for toc in (0..self.header.tocs as usize).map_while(|index| Toc::read(bytes, index)) {
            tables.add(toc, self.version, bytes, &mut self.problems);
        }
        if let Some(table) = tables.metrics {
            self.records = table;
            self.load_metrics(table, bytes);
        }
        if let Some(table) = tables.indoms {
            self.load_indoms(table, bytes);
        }
        if let Some(table) = tables.labels {
            self.load_labels(table, bytes);
        }
        if let Some(table) = tables.values {
            self.values = table;
            self.load_values(table, tables.metrics.unwrap_or_default(), bytes);
        }
        // Removes placeholders, which were only kept for their indexes.
        self.metrics.retain(|metric| !metric.is_nothing());
    }

    fn load_metrics(&mut self, table: Table, bytes: Bytes<'_>) {
        self.metrics.reserve_exact(table.count as usize);
        let mut seen = [false; format::MAX_METRICS + 1];
        for index in 0..table.count {
            let at = table.record(index, self.version.metric_len());
            let metric = MetricRecord::read(bytes, at, self.version);
            let checked = metric.ok_or(Problem::MetricName { index }).and_then(|record| {
                let metric = Metric::new(&record, index, bytes, &mut self.names)?;
                let seen = seen.get_mut(metric.item as usize).ok_or(Problem::Item { index, item: metric.item })?;
                if std::mem::replace(seen, true) {
                    Err(Problem::DuplicateItem { index, item: metric.item })
                } else {
                    Ok(metric)
                }
            });
            // A metric that is left out keeps its index, by which values refer to it.
            match checked {
                Ok(metric) => self.metrics.push(metric),
                Err(problem) => {
                    self.problems.push(problem);
                    self.metrics.push(Metric::nothing());
                }
            }
        }
    }

    fn load_values(&mut self, table: Table, metrics: Table, bytes: Bytes<'_>) {
        let mut order = InOrder { first: metrics.at, len: self.version.metric_len() as u64, last: (0, metrics.at) };
        for range in bytes.records(table.at, table.count, VALUE_LEN) {
            for index in range {
                let Some(value) = ValueRecord::read(bytes, table.record(index, VALUE_LEN)) else { break };
                match self.load_value(index, &value, &mut order, bytes) {
                    Ok(()) => self.add_to_run(index),
                    Err(problem) => self.problems.push(problem),
                }
            }
        }
    }

    #[inline]
    fn load_value(
        &mut self,
        index: u32,
        value: &ValueRecord,
        order: &mut InOrder,
        bytes: Bytes<'_>,
    ) -> Result<(), Problem> {
        let metric = order.index(value.metric);
        let metric = metric.and_then(|i| self.metrics.get_mut(i)).ok_or(Problem::ValueMetric { index })?;
        let instance = match metric.indom {
            None => -1,
            Some(_) => {
                let instance = InstanceRecord::read(bytes, value.instance, self.version);
                instance.ok_or(Problem::ValueInstance { index })?.internal
            }
        };
        metric.values.push(ValueOf { index, instance });
        Ok(())
    }

    /// Adds a value to the last run, or begins another one. The values come in ascending order.
    fn add_to_run(&mut self, index: u32) {
        let slot = match self.runs.last_mut() {
            Some(last) if index - last.first < RUN && index - last.first - last.count <= GAP => {
                last.count = index - last.first + 1;
                return;
            }
            last => last.map_or(0, |last| last.slot + last.count),
        };
        self.runs.push(Run { first: index, slot, count: 1 });
    }

    fn load_indoms(&mut self, table: Table, bytes: Bytes<'_>) {
        // Bounds the memory: overlapping domains could claim more instances than fit into the file.
        let mut room = bytes.data_len() / self.version.instance_len() as u64;
        for index in bytes.records(table.at, table.count, INDOM_LEN).flatten() {
            let Some(record) = IndomRecord::read(bytes, table.record(index, INDOM_LEN)) else { break };
            let inside = bytes.has(record.offset, record.count.into(), self.version.instance_len());
            let problem = if is_singular(record.serial) || record.serial > pmapi::Serial::MAX {
                Some(Problem::Serial { index, serial: record.serial })
            } else if inside && u64::from(record.count) <= room {
                None
            } else {
                Some(Problem::Instances { index, count: record.count })
            };
            if let Some(problem) = problem {
                self.problems.push(problem);
                continue;
            }
            room -= u64::from(record.count);
            let instances = self.load_instances(&record, bytes);
            let help = HelpAt::new(record.short, record.long);
            self.indoms.push(Indom { serial: record.serial, help, instances });
        }
    }

    fn load_instances(&mut self, indom: &IndomRecord, bytes: Bytes<'_>) -> Vec<Instance> {
        let table = Table { at: indom.offset, count: indom.count };
        let mut instances = Vec::with_capacity(indom.count as usize);
        for index in bytes.records(table.at, table.count, self.version.instance_len()).flatten() {
            let at = table.record(index, self.version.instance_len());
            let record = InstanceRecord::read(bytes, at, self.version).filter(|record| record.name.at != 0);
            match record.and_then(|record| Some((record, record.name.text(bytes)?))) {
                Some((record, name)) => {
                    self.instance_text += text_len(name);
                    instances.push(Instance { id: record.internal, name: record.name });
                }
                None => self.problems.push(Problem::InstanceName { serial: indom.serial, index }),
            }
        }
        instances
    }

    fn load_labels(&mut self, table: Table, bytes: Bytes<'_>) {
        let records = (0..table.count).map_while(|index| LabelRecord::read(bytes, table.record(index, LABEL_LEN)));
        self.labels.extend(records.map(|record| Label {
            flags: record.flags,
            identity: record.identity,
            instance: record.internal,
            payload: record.payload,
        }));
    }
}

/// Returns the length of an instance's name as clients get it, for its cost. A byte that is not UTF-8 becomes a character
/// of three bytes. A control character counts as several characters, because it is exported as up to ten.
fn text_len(name: &[u8]) -> usize {
    if name.iter().fold(true, |all, byte| all & (b' '..=b'~').contains(byte)) {
        return name.len();
    }
    let len = |c: char| if is_control(c) { CONTROL_LEN } else { SLOW * c.len_utf8() };
    name.utf8_chunks().map(|chunk| chunk.valid().chars().map(len).sum::<usize>() + 3 * chunk.invalid().len()).sum()
}

/// Factor for characters of a name that is not ASCII: each of them is compared with those that act on a terminal.
const SLOW: usize = 2;
/// Length that a control character in a name counts as.
const CONTROL_LEN: usize = 32;

impl Metric {
    fn new(record: &MetricRecord, index: u32, bytes: Bytes<'_>, names: &mut Vec<u8>) -> Result<Metric, Problem> {
        let name = record.name.text(bytes).filter(|_| record.name.at != 0).ok_or(Problem::MetricName { index })?;
        let start = names.len() as u32;
        names.extend_from_slice(name);
        Ok(Metric {
            item: record.item,
            ty: ValueType::from_code(record.ty).map_err(|_| Problem::Type { index, code: record.ty })?,
            semantics: format::semantics(record.semantics)
                .map_err(|_| Problem::Semantics { index, code: record.semantics })?,
            units: record.units,
            indom: (!is_singular(record.indom)).then_some(record.indom),
            name: (start, names.len() as u32),
            help: HelpAt::new(record.short, record.long),
            values: Values::None,
        })
    }

    /// Returns a placeholder for a metric that is left out.
    fn nothing() -> Metric {
        Metric {
            item: u32::MAX,
            ty: ValueType::NoSupport,
            semantics: pmapi::Semantics::Counter,
            units: Units::NONE,
            indom: None,
            name: (0, 0),
            help: HelpAt::new(0, 0),
            values: Values::None,
        }
    }

    fn is_nothing(&self) -> bool {
        self.item == u32::MAX
    }
}
