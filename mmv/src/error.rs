//! What can be wrong with a registration.

use std::io;
use std::path::PathBuf;

use pmapi::label::LabelError;

use crate::format::{MAX_LABELS, MAX_METRICS};

/// Why something could not be registered or exported.
///
/// What PCP's agent would silently skip when it reads the file is an error here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name breaks the rules of pmns(5).
    #[error("{what} {name:?}: {reason}")]
    Name {
        /// What has the name.
        what: &'static str,
        /// The name.
        name: String,
        /// The rule that it breaks.
        reason: &'static str,
    },
    /// A text is longer than its place in the file.
    #[error("{what} {text:?} has {len} bytes, at most {max} fit", len = text.len())]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// The text.
        text: String,
        /// How many bytes fit.
        max: usize,
    },
    /// A name or number is in use.
    #[error("{what} {name} is in use")]
    InUse {
        /// What is in use.
        what: &'static str,
        /// The name or number.
        name: String,
    },
    /// A number is out of range.
    #[error("{what} {number} is not in {min} to {max}")]
    Range {
        /// What the number is for.
        what: &'static str,
        /// The number.
        number: u32,
        /// The smallest possible.
        min: u32,
        /// The largest possible.
        max: u32,
    },
    /// One metric's name is the beginning of another's.
    #[error("metric {0:?} is a leaf of the name space and cannot have children")]
    Leaf(String),
    /// The file is full.
    #[error("{0:?}: a file can have at most {MAX_METRICS} metrics; use another registry for more")]
    TooManyMetrics(String),
    /// The file is full.
    #[error("a file can have at most {MAX_LABELS} labels")]
    TooManyLabels,
    /// A label is not valid.
    #[error("label {name:?}: {source}")]
    Label {
        /// Its name.
        name: String,
        /// What is wrong.
        source: LabelError,
    },
    /// An instance domain belongs to another registry.
    #[error("instance domain {0:?} belongs to another registry")]
    ForeignInDom(String),
    /// A boundary or quantile is not in ascending order or out of range.
    #[error("histogram {name:?}: {reason}")]
    Histogram {
        /// The histogram.
        name: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// A process that was forked from the one that made the registry cannot do this.
    #[error("not in a forked child: {0}")]
    Forked(&'static str),
    /// The file could not be written.
    #[error("{path:?}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Error {
    /// Something was locked for more than a second when the process was forked.
    pub(crate) const TORN: Error = Error::Forked("another thread was writing the file when the process was forked");
}
