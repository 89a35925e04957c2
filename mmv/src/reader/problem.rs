//! What can be wrong with a file.

use std::io;

use nix::errno::Errno;

use crate::format::Section;

/// Why a file has nothing to offer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is no regular file.
    #[error("is no regular file")]
    NotRegular,
    /// It is larger than [`MAX_LEN`](super::MAX_LEN), or holds more than its reader accepts.
    #[error("has {len} bytes, more than a reader takes")]
    TooLong {
        /// Its size, or the bytes that it holds.
        len: u64,
    },
    /// It has no room for a header.
    #[error("has {len} bytes, less than a header")]
    TooShort {
        /// Its size.
        len: u64,
    },
    /// It is no mmv file.
    #[error("begins with {:?}, not with \"MMV\"", .0.escape_ascii().to_string())]
    Magic([u8; 4]),
    /// Its format is unknown.
    #[error("has version {0}, known are 1 to 3")]
    Version(i32),
    /// It is being written.
    #[error("is being written: its generations are {g1} and {g2}")]
    InFlux {
        /// The first generation number.
        g1: u64,
        /// The second generation number.
        g2: u64,
    },
    /// It has too few sections, or too many.
    #[error("has {0} sections, not 2 to {max}", max = super::MAX_TOCS)]
    Contents(i32),
    /// Its contents don't fit.
    #[error("{tocs} sections don't fit into {len} bytes")]
    ContentsBeyondEnd {
        /// How many sections there should be.
        tocs: i32,
        /// Its size.
        len: u64,
    },
    /// The process that it depends on is gone.
    #[error("its process {0} is gone")]
    Owner(i32),
    /// Its owner has used up a quota.
    #[error("is left out: its owner has too many {what}", what = .what)]
    LeftOut {
        /// What there is too much of.
        what: String,
    },
    /// Its cluster has more than 12 bits.
    #[error("cluster {0} is not in 0 to 4095")]
    Cluster(i32),
}

impl ReadError {
    /// Whether the next attempt may succeed although the file stays as it is, or as its writer is about to make it: the
    /// file is being written, or the system lacks memory or descriptors.
    pub fn is_temporary(&self) -> bool {
        match self {
            // Zeros are what a file begins with before its writer has come to the header.
            ReadError::InFlux { .. } | ReadError::TooShort { .. } | ReadError::Magic([0, 0, 0, 0]) => true,
            ReadError::Io(e) => is_of_system(e) || e.kind() == io::ErrorKind::WouldBlock,
            _ => false,
        }
    }
}

/// Whether a system call may succeed at the next attempt, although the file is as it was.
pub(crate) fn is_temporary(e: &io::Error) -> bool {
    let code = e.raw_os_error().map(Errno::from_raw);
    is_of_system(e)
        || matches!(code, Some(Errno::EAGAIN | Errno::EACCES | Errno::EPERM | Errno::ETXTBSY | Errno::EBUSY))
}

/// Whether the system lacks something, or fails, whatever the file is.
pub(crate) fn is_of_system(e: &io::Error) -> bool {
    let code = e.raw_os_error().map(Errno::from_raw);
    let all = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::ENOBUFS, Errno::EIO, Errno::EINTR, Errno::ESTALE];
    code.is_some_and(|code| all.contains(&code))
}

/// Something in a file that was left out. Indexes are those of the records in their section.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Problem {
    #[error("unknown section {code:#x}")]
    Section { code: u32 },
    #[error("{section:?}: a count of {count} is impossible")]
    Count { section: Section, count: i32 },
    #[error("{section:?}: {count} records at offset {offset} are not all in the file")]
    BeyondEnd { section: Section, offset: u64, count: i32 },
    #[error("{section:?}: its records lie over the header")]
    OverHeader { section: Section },
    #[error("{section:?}: more than one section")]
    Repeated { section: Section },
    #[error("metric {index}: its name is not in the file")]
    MetricName { index: u32 },
    #[error("metric {index}: item {item} is not in 0 to 1023")]
    Item { index: u32, item: u32 },
    #[error("metric {index}: item {item} is another metric's")]
    DuplicateItem { index: u32, item: u32 },
    #[error("metric {index}: unknown type {code}")]
    Type { index: u32, code: i32 },
    #[error("metric {index}: unknown semantics {code}")]
    Semantics { index: u32, code: i32 },
    #[error("instance domain {index}: impossible number {serial}")]
    Serial { index: u32, serial: u32 },
    #[error("instance domain {index}: its {count} instances are not all in the file")]
    Instances { index: u32, count: u32 },
    #[error("instance domain {serial}: the name of instance {index} is not in the file")]
    InstanceName { serial: u32, index: u32 },
    #[error("value {index}: its metric is none of the file's")]
    ValueMetric { index: u32 },
    #[error("value {index}: its instance is not in the file")]
    ValueInstance { index: u32 },
}

/// The problems of a file: the first ones, and how many there are.
#[derive(Clone, Debug, Default)]
pub struct Problems {
    first: Vec<Problem>,
    count: u64,
}

impl Problems {
    /// How many problems are kept.
    const KEPT: usize = 32;

    pub(super) fn push(&mut self, problem: Problem) {
        self.count += 1;
        if self.first.len() < Self::KEPT {
            self.first.push(problem);
        }
    }

    /// The first problems.
    pub fn first(&self) -> &[Problem] {
        &self.first
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }
}
