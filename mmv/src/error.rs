//! Errors of registrations and exports.

use std::io;
use std::path::PathBuf;

use pmapi::LabelError;

use crate::format::{MAX_LABELS, MAX_METRICS};

/// Error of a registration or an export.
///
/// PCP's agent silently skips parts of a file that break its rules; registering such a part is an error here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name breaks the rules of pmns(5).
    #[error("{what} {name:?}: {reason}")]
    Name {
        /// Kind of item that has the name.
        what: &'static str,
        /// The invalid name.
        name: String,
        /// The rule that the name breaks.
        reason: &'static str,
    },
    /// A text is longer than its field in the file.
    #[error("{what} {text:?} has {len} bytes, at most {max} fit", len = text.len())]
    TooLong {
        /// The kind of text.
        what: &'static str,
        /// The text that is too long.
        text: String,
        /// Largest number of bytes that fit.
        max: usize,
    },
    /// A name, number, file or single-writer value is already in use.
    #[error("{what} {name} is in use")]
    InUse {
        /// Kind of item that is in use.
        what: &'static str,
        /// Name or number of the item.
        name: String,
    },
    /// The program has another global recorder of the `metrics` facade.
    #[error("the program has a recorder of the metrics facade already")]
    OtherRecorder,
    /// A number is out of range.
    #[error("{what} {number} is not in {min} to {max}")]
    Range {
        /// Item that the number identifies or counts.
        what: &'static str,
        /// The number that is out of range.
        number: u32,
        /// The smallest valid number.
        min: u32,
        /// The largest valid number.
        max: u32,
    },
    /// A metric's name would be both a leaf and an inner node of the name space.
    #[error("metric {0:?} is a leaf of the name space and cannot have children")]
    Leaf(String),
    /// The file has its maximum of 1,023 metrics, or the registry has too many distinct help texts.
    #[error("{0:?}: a file can have at most {MAX_METRICS} metrics; use another registry for more")]
    TooManyMetrics(String),
    /// The file has no room for more: [`RegistryBuilder::room`](crate::RegistryBuilder::room) sets how much it has. A limit
    /// of the process (`RLIMIT_FSIZE`, `RLIMIT_AS`, `RLIMIT_MEMLOCK`), or a file system without holes, makes it smaller.
    #[error(
        "the file has room for {max} {what}: RegistryBuilder::room sets this limit, which limits of the process lower"
    )]
    Full {
        /// Kind of the records.
        what: &'static str,
        /// Largest number of records.
        max: u32,
    },
    /// The instance domain has as many instances as [`Family::instance`](crate::Family::instance) may add.
    #[error("instance domain {indom:?} has {max} instances, the limit that RegistryBuilder::most_instances sets")]
    TooManyInstances {
        /// The domain's name.
        indom: String,
        /// Largest number of instances.
        max: usize,
    },
    /// The file has its maximum of 255 labels.
    #[error("a file can have at most {MAX_LABELS} labels")]
    TooManyLabels,
    /// A label's name or value is not valid.
    #[error("label {name:?}: {source}")]
    Label {
        /// The label's name.
        name: String,
        /// The rule that the label breaks.
        source: LabelError,
    },
    /// The instance domain belongs to another registry.
    #[error("instance domain {0:?} belongs to another registry")]
    ForeignInDom(String),
    /// Boundaries or quantiles do not ascend or are out of range, or the resolution is not positive.
    #[error("histogram {name:?}: {reason}")]
    Histogram {
        /// The histogram's name.
        name: String,
        /// The rule that the histogram breaks.
        reason: &'static str,
    },
    /// A forked child cannot register or start anything with its parent's registry. Create a registry after the fork.
    #[error("not possible in a forked child: {0}")]
    Forked(&'static str),
    /// The file could not be written, or there is no memory for new values (with the path `memory`).
    #[error("{path:?}: {source}")]
    Io {
        /// The file's path.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl Error {
    /// The error for a registration in a forked child.
    pub(crate) const FORKED: Error = Error::Forked("create a registry after the fork");
}
