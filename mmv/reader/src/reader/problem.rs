//! Errors and problems of files.

use std::io;

use nix::errno::Errno;

use crate::format::Section;

/// Error that prevents all use of a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is not a regular file.
    #[error("is not a regular file")]
    NotRegular,
    /// The file is larger than [`MAX_LEN`](super::MAX_LEN), or contains more data than the caller accepts.
    #[error("has {len} bytes, more than the reader accepts")]
    TooLong {
        /// Size of the file, or number of bytes that it contains.
        len: u64,
    },
    /// The file is shorter than a header.
    #[error("has {len} bytes, less than a header")]
    TooShort {
        /// Size of the file, in bytes.
        len: u64,
    },
    /// The file does not begin with [`MAGIC`](crate::format::MAGIC).
    #[error("begins with {:?}, not with \"MMV\"", .0.escape_ascii().to_string())]
    Magic([u8; 4]),
    /// The version of the format is not known.
    #[error("has version {0}, not 1 to 3")]
    Version(i32),
    /// The file is being written: its generation numbers are 0 or differ.
    #[error("is being written: its generations are {g1} and {g2}")]
    InFlux {
        /// The first generation number.
        g1: u64,
        /// The second generation number.
        g2: u64,
    },
    /// The table of contents has fewer than 2 or more than [`MAX_TOCS`](super::MAX_TOCS) entries.
    #[error("has {0} sections, not 2 to {max}", max = super::MAX_TOCS)]
    Contents(i32),
    /// The table of contents is longer than the file.
    #[error("{tocs} sections do not fit into {len} bytes")]
    ContentsBeyondEnd {
        /// Number of entries.
        tocs: i32,
        /// Size of the file, in bytes.
        len: u64,
    },
    /// The process that the file depends on has ended.
    #[error("its process {0} is gone")]
    Owner(i32),
    /// The owner of the file has used up a quota.
    #[error("is left out: its owner has too many {what}", what = .what)]
    LeftOut {
        /// The resource whose quota is used up.
        what: String,
    },
    /// The cluster has more than 12 bits.
    #[error("cluster {0} is not in 0 to 4095")]
    Cluster(i32),
}

impl ReadError {
    /// Returns whether another attempt may succeed: the file is being written, or the system lacks memory or
    /// descriptors.
    pub fn is_temporary(&self) -> bool {
        match self {
            // A file begins with zeros until its writer has written the header.
            ReadError::InFlux { .. } | ReadError::TooShort { .. } | ReadError::Magic([0, 0, 0, 0]) => true,
            ReadError::Io(e) => is_of_system(e) || e.kind() == io::ErrorKind::WouldBlock,
            _ => false,
        }
    }
}

/// Returns whether a failed system call may succeed later, although the file is unchanged.
pub(crate) fn is_temporary(e: &io::Error) -> bool {
    let code = e.raw_os_error().map(Errno::from_raw);
    is_of_system(e)
        || matches!(code, Some(Errno::EAGAIN | Errno::EACCES | Errno::EPERM | Errno::ETXTBSY | Errno::EBUSY))
}

/// Returns whether the system lacks a resource or fails, independently of the file.
pub(crate) fn is_of_system(e: &io::Error) -> bool {
    let code = e.raw_os_error().map(Errno::from_raw);
    let all = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::ENOBUFS, Errno::EIO, Errno::EINTR, Errno::ESTALE];
    code.is_some_and(|code| all.contains(&code))
}

/// A part of a file that was left out. An index is that of a record in its section.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Problem {
    /// Section of an unknown type.
    #[error("unknown section {code:#x}")]
    Section { code: u32 },
    /// Number of records that is negative or too large.
    #[error("{section:?}: invalid count {count}")]
    Count { section: Section, count: i32 },
    /// Records that are not all in the file.
    #[error("{section:?}: {count} records at offset {offset} are not all in the file")]
    BeyondEnd { section: Section, offset: u64, count: i32 },
    /// Records that overlap the file's header.
    #[error("{section:?}: its records overlap the header")]
    OverHeader { section: Section },
    /// Second section of a type.
    #[error("{section:?}: more than one section")]
    Repeated { section: Section },
    /// Metric whose name is not in the file.
    #[error("metric {index}: its name is not in the file")]
    MetricName { index: u32 },
    /// Metric whose item number is too large.
    #[error("metric {index}: item {item} is not in 0 to 1023")]
    Item { index: u32, item: u32 },
    /// Metric with the item number of another.
    #[error("metric {index}: item {item} belongs to another metric")]
    DuplicateItem { index: u32, item: u32 },
    /// Metric of an unknown type.
    #[error("metric {index}: unknown type {code}")]
    Type { index: u32, code: i32 },
    /// Metric with unknown semantics.
    #[error("metric {index}: unknown semantics {code}")]
    Semantics { index: u32, code: i32 },
    /// Instance domain whose serial number is out of range.
    #[error("instance domain {index}: invalid serial number {serial}")]
    Serial { index: u32, serial: u32 },
    /// Instance domain whose instances are not all in the file.
    #[error("instance domain {index}: its {count} instances are not all in the file")]
    Instances { index: u32, count: u32 },
    /// Instance whose name is not in the file.
    #[error("instance domain {serial}: the name of instance {index} is not in the file")]
    InstanceName { serial: u32, index: u32 },
    /// Value whose metric is not in the file.
    #[error("value {index}: its metric is not in the file")]
    ValueMetric { index: u32 },
    /// Value whose instance is not in the file.
    #[error("value {index}: its instance is not in the file")]
    ValueInstance { index: u32 },
}

/// The first problems of a file, and their total number.
#[derive(Clone, Debug, Default)]
pub struct Problems {
    first: Vec<Problem>,
    count: u64,
}

impl Problems {
    /// Number of problems that are kept.
    const KEPT: usize = 32;

    pub(super) fn push(&mut self, problem: Problem) {
        self.count += 1;
        if self.first.len() < Self::KEPT {
            self.first.push(problem);
        }
    }

    /// Returns the first problems, at most 32.
    pub fn first(&self) -> &[Problem] {
        &self.first
    }

    /// Returns the total number of problems.
    pub fn count(&self) -> u64 {
        self.count
    }
}
