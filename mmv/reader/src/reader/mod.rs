//! The contents of one file, checked when it is read.

mod contents;
mod directory;
mod image;
mod problem;
mod process;
mod source;

use pmapi::{Semantics, Units};

use contents::{Table, Tables};
pub(crate) use directory::{Directory, Identity, Stamp};
use image::Image;
pub use problem::{Problem, Problems, ReadError};
pub(crate) use problem::{is_of_system, is_temporary};
pub(crate) use process::Process;
pub use source::MAX_LEN;
pub(crate) use source::peek;

use crate::format::{
    self, Bytes, Header, INDOM_LEN, IndomRecord, InstanceRecord, LABEL_LEN, LabelRecord, MAGIC, MetricRecord, NameAt,
    Toc, VALUE_LEN, ValueRecord, ValueType, Version, is_singular,
};

/// Most entries of a table of contents. The format has six kinds of sections.
pub const MAX_TOCS: usize = 1024;

/// A metric of a file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Metric {
    /// The item, at most 1023.
    pub item: u32,
    /// Type of the values in the file.
    pub ty: ValueType,
    /// Semantics of the values.
    pub semantics: Semantics,
    /// Dimension and scale.
    pub units: Units,
    /// Serial number of the instance domain, if there is one.
    pub indom: Option<u32>,
    /// Start and end of the name in [`File::names`].
    name: (u32, u32),
    help: HelpAt,
    values: Values,
}

impl Metric {
    /// Returns the positions of the metric's values, in the order of the file.
    pub fn values(&self) -> &[ValueOf] {
        match &self.values {
            Values::None => &[],
            Values::One(value) => std::slice::from_ref(value),
            Values::Many(values) => values,
        }
    }
}

/// Offsets of the help texts, or 0 for none.
#[derive(Clone, Copy, Debug)]
struct HelpAt {
    short: u32,
    long: u32,
}

impl HelpAt {
    fn new(short: u64, long: u64) -> HelpAt {
        // No file is larger than `u32::MAX`: the text is not in the file.
        let at = |at: u64| u32::try_from(at).unwrap_or(0);
        HelpAt { short: at(short), long: at(long) }
    }
}

/// Values of a metric: most metrics have one.
#[derive(Clone, Debug)]
enum Values {
    None,
    One(ValueOf),
    Many(Vec<ValueOf>),
}

impl Values {
    fn push(&mut self, value: ValueOf) {
        match self {
            Values::None => *self = Values::One(value),
            Values::One(first) => *self = Values::Many(vec![*first, value]),
            Values::Many(values) => values.push(value),
        }
    }
}

/// A value of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ValueOf {
    /// Index of the value among the values of the file.
    pub index: u32,
    /// Instance identifier; meaningless for a metric without instances.
    pub instance: i32,
}

/// An instance domain of a file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Indom {
    /// Serial number.
    pub serial: u32,
    help: HelpAt,
    instances: Vec<Instance>,
}

impl Indom {
    /// Returns the instances, in the order of the file.
    pub fn instances(&self) -> &[Instance] {
        &self.instances
    }
}

/// An instance of a file.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Instance {
    /// Instance identifier.
    pub id: i32,
    name: NameAt,
}

/// A label of a file.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Label {
    /// Level of the label, and whether it is optional (`PM_LABEL_*`).
    pub flags: u32,
    /// Number of the cluster, item or instance domain that has the label.
    pub identity: u32,
    /// Instance identifier, for labels of instances.
    pub instance: i32,
    payload: NameAt,
}

/// Kind of help text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Help {
    /// The one-line text.
    Short,
    /// The full text.
    Long,
}

/// A file as it was when it was read.
#[derive(Debug)]
pub struct File {
    image: Image,
    header: Header,
    version: Version,
    /// The names of all metrics, concatenated.
    names: Vec<u8>,
    metrics: Vec<Metric>,
    indoms: Vec<Indom>,
    labels: Vec<Label>,
    /// Length of the names of all instances as text.
    instance_text: usize,
    records: Table,
    values: Table,
    problems: Problems,
}

impl File {
    /// Parses the bytes of a file.
    ///
    /// # Errors
    /// A [`ReadError`] if the header or the table of contents is not valid. Other invalid parts are left out, see
    /// [`problems`](File::problems).
    pub fn parse(bytes: Vec<u8>) -> Result<File, ReadError> {
        let mut file = Self::parse_in(Bytes::new(&bytes))?;
        file.image = Image::from(bytes);
        Ok(file)
    }

    /// Parses everything, without keeping the bytes.
    fn parse_in(view: Bytes<'_>) -> Result<File, ReadError> {
        let (header, version) = check_header(view, view.len())?;
        let mut file = File {
            image: Image::default(),
            header,
            version,
            names: Vec::new(),
            metrics: Vec::new(),
            indoms: Vec::new(),
            labels: Vec::new(),
            instance_text: 0,
            records: Table::default(),
            values: Table::default(),
            problems: Problems::default(),
        };
        file.load(view);
        Ok(file)
    }

    /// Returns the header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the version of the format.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the metrics, in the order of the file.
    pub fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    /// Returns the instance domains, in the order of the file.
    pub fn indoms(&self) -> &[Indom] {
        &self.indoms
    }

    /// Returns the labels, in the order of the file.
    pub fn labels(&self) -> &[Label] {
        &self.labels
    }

    /// Returns the problems of parts that were left out.
    pub fn problems(&self) -> &Problems {
        &self.problems
    }

    /// Returns a metric's name, without prefix.
    pub fn name(&self, metric: &Metric) -> &[u8] {
        let (start, end) = metric.name;
        self.names.get(start as usize..end as usize).unwrap_or_default()
    }

    /// Returns the name in a metric's record, which may have been left out.
    pub(crate) fn record_name(&self, index: u32) -> &[u8] {
        let at = self.records.record(index, self.version.metric_len());
        let record = MetricRecord::read(self.image.bytes(), at, self.version);
        record.map_or(&[], |record| self.text_at(record.name))
    }

    /// Returns a metric's help text, if it has one.
    pub fn help(&self, metric: &Metric, which: Help) -> Option<&[u8]> {
        self.help_at(metric.help, which)
    }

    /// Returns an instance domain's help text, if it has one.
    pub fn indom_help(&self, indom: &Indom, which: Help) -> Option<&[u8]> {
        self.help_at(indom.help, which)
    }

    /// Returns an instance's name.
    pub fn instance_name(&self, instance: &Instance) -> &[u8] {
        self.text_at(instance.name)
    }

    /// Returns a label's JSON text.
    pub fn payload(&self, label: &Label) -> &[u8] {
        self.text_at(label.payload)
    }

    /// Returns the value with this index, as of the last time that it was read.
    pub fn value(&self, index: u32) -> Option<ValueRecord> {
        if index >= self.values.count {
            return None;
        }
        ValueRecord::of(self.image.value(self.values.record(index, VALUE_LEN))?)
    }

    /// Returns the string of a string value, as of the time when the file was read.
    pub fn string(&self, value: &ValueRecord) -> Option<&[u8]> {
        self.image.bytes().string(u64::try_from(value.extra).ok()?)
    }

    fn text_at(&self, NameAt { at, room }: NameAt) -> &[u8] {
        self.image.bytes().text(at, room).unwrap_or_default()
    }

    fn help_at(&self, HelpAt { short, long }: HelpAt, which: Help) -> Option<&[u8]> {
        match if which == Help::Short { short } else { long } {
            0 => None,
            at => self.image.bytes().string(at.into()),
        }
    }
}

/// Checks a header, given the first bytes of a file and its length.
fn check_header(bytes: Bytes<'_>, len: u64) -> Result<(Header, Version), ReadError> {
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

impl File {
    fn load(&mut self, bytes: Bytes<'_>) {
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
        // Removes metrics that were only kept for their index.
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
        let metric_len = self.version.metric_len() as u64;
        for range in bytes.records(table.at, table.count, VALUE_LEN) {
            for index in range {
                let Some(value) = ValueRecord::read(bytes, table.record(index, VALUE_LEN)) else { break };
                if let Err(problem) = self.load_value(index, &value, metrics.at, metric_len, bytes) {
                    self.problems.push(problem);
                }
            }
        }
    }

    #[inline]
    fn load_value(
        &mut self,
        index: u32,
        value: &ValueRecord,
        metrics: u64,
        metric_len: u64,
        bytes: Bytes<'_>,
    ) -> Result<(), Problem> {
        let from = value.metric.checked_sub(metrics).filter(|from| from % metric_len == 0);
        let metric = from.and_then(|from| usize::try_from(from / metric_len).ok());
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

    fn load_indoms(&mut self, table: Table, bytes: Bytes<'_>) {
        // Bounds the memory: overlapping domains could claim more instances than the file has bytes for.
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

/// Returns the length of a name as text: each byte that is not UTF-8 becomes a character of three bytes.
fn text_len(name: &[u8]) -> usize {
    if std::str::from_utf8(name).is_ok() { name.len() } else { 3 * name.len() }
}

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
            semantics: Semantics::Counter,
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
