//! The contents of one file, checked when it is read.

mod directory;
mod load;
mod problem;
mod process;
mod source;

use pmapi::{Semantics, Units};
use pmda::TextKind;

pub(crate) use directory::{Directory, Identity, Stamp};
use load::{Table, check_header};
pub use problem::{Problem, Problems, ReadError};
pub(crate) use problem::{is_of_system, is_temporary};
pub(crate) use process::Process;
use source::Image;
pub use source::MAX_LEN;
pub(crate) use source::{peek, read_at};

use crate::format::{Bytes, Header, MetricRecord, NameAt, VALUE_LEN, ValueRecord, ValueType, Version};

/// Largest number of entries in a table of contents. The format has six kinds of sections.
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
        // No file is larger than `u32::MAX`, so the text is not in the file.
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

    /// Frees memory that is not used.
    fn shrink(&mut self) {
        if let Values::Many(values) = self {
            values.shrink_to_fit();
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

/// Consecutive values of a file that are read together. Values without a metric, which may be in holes, are between runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Index of the first value.
    pub first: u32,
    /// Number of values in earlier runs.
    pub slot: u32,
    pub count: u32,
}

/// Largest number of values in a run, and of values without a metric between two that are in one run. A gap is not
/// larger than a page, so runs take at most twice the memory of the file's data.
const RUN: u32 = 2048;
const GAP: u32 = 4096 / VALUE_LEN as u32;

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
    /// The ranges of values that belong to metrics, ascending.
    runs: Vec<Run>,
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
            runs: Vec::new(),
            problems: Problems::default(),
        };
        file.load(view);
        Ok(file)
    }

    /// Returns the header of the file.
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

    /// Returns the name in the record with this index. The metric itself may have been left out.
    pub(crate) fn record_name(&self, index: u32) -> &[u8] {
        let at = self.records.record(index, self.version.metric_len());
        let record = MetricRecord::read(self.image.bytes(), at, self.version);
        record.map_or(&[], |record| self.text_at(record.name))
    }

    /// Returns a metric's help text, if it has one.
    pub fn help(&self, metric: &Metric, kind: TextKind) -> Option<&[u8]> {
        self.help_at(metric.help, kind)
    }

    /// Returns an instance domain's help text, if it has one.
    pub fn indom_help(&self, indom: &Indom, kind: TextKind) -> Option<&[u8]> {
        self.help_at(indom.help, kind)
    }

    /// Returns an instance's name.
    pub fn instance_name(&self, instance: &Instance) -> &[u8] {
        self.text_at(instance.name)
    }

    /// Returns a label's JSON text.
    pub fn payload(&self, label: &Label) -> &[u8] {
        self.text_at(label.payload)
    }

    /// Returns the value with this index, as of the time when the file was read.
    pub fn value(&self, index: u32) -> Option<ValueRecord> {
        if index >= self.values.count {
            return None;
        }
        ValueRecord::read(self.image.bytes(), self.values.record(index, VALUE_LEN))
    }

    /// Returns the string of a string value, as of the time when the file was read.
    pub fn string(&self, value: &ValueRecord) -> Option<&[u8]> {
        self.image.bytes().string(u64::try_from(value.extra).ok()?)
    }

    fn text_at(&self, NameAt { at, room }: NameAt) -> &[u8] {
        self.image.bytes().text(at, room).unwrap_or_default()
    }

    fn help_at(&self, HelpAt { short, long }: HelpAt, kind: TextKind) -> Option<&[u8]> {
        match if kind == TextKind::OneLine { short } else { long } {
            0 => None,
            at => self.image.bytes().string(at.into()),
        }
    }
}
