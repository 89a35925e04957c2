//! Errors of help text.

use crate::Target;
use std::io;
use std::path::{Path, PathBuf};

/// Why help text could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be opened, read, written or renamed.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// A help source is malformed.
    #[error("{}:{line}: {reason}", path.display())]
    Source {
        /// Path of the source.
        path: PathBuf,
        /// First line of the malformed entry, from 1.
        line: usize,
        /// Description of the mistake.
        reason: String,
    },
    /// A file is not an index of help text, or its version is not 2.
    #[error("{}: not the index of version 2 help text", path.display())]
    Version {
        /// Path of the file.
        path: PathBuf,
    },
    /// A compiled file is malformed.
    #[error("{}: {reason}", path.display())]
    Format {
        /// Path of the file.
        path: PathBuf,
        /// Description of the mistake.
        reason: String,
    },
    /// The format cannot express an entry.
    #[error("help text of {name} ({target}): {reason}")]
    Entry {
        /// Name of the entry.
        name: String,
        /// Target of the entry.
        target: Target,
        /// Description of the mistake.
        reason: &'static str,
    },
}

impl Error {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { path: path.to_path_buf(), source }
    }

    pub(crate) fn format(path: &Path, reason: impl Into<String>) -> Error {
        Error::Format { path: path.to_path_buf(), reason: reason.into() }
    }

    pub(crate) fn entry(entry: &crate::Entry, reason: &'static str) -> Error {
        Error::Entry { name: String::from_utf8_lossy(&entry.name).into_owned(), target: entry.target, reason }
    }
}

/// The code that pmdaOpenHelp(3) returns for the same failure: that of the system call, or `-EINVAL` for a malformed
/// file.
impl From<Error> for pmapi::Error {
    fn from(e: Error) -> Self {
        const EINVAL: i32 = 22;
        match e {
            Error::Io { source, .. } => source.into(),
            _ => pmapi::Error::from_errno(EINVAL),
        }
    }
}
