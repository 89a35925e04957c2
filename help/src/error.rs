use crate::Target;
use std::io;
use std::path::{Path, PathBuf};

/// Why help text could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be opened, read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A help source is malformed.
    #[error("{}:{line}: {reason}", path.display())]
    Source {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The reason.
        reason: String,
    },
    /// A file is no index of help text, or one of another version than 2.
    #[error("{}: not the index of version 2 help text", path.display())]
    Version {
        /// The file.
        path: PathBuf,
    },
    /// A compiled file is malformed.
    #[error("{}: {reason}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// An entry cannot be written.
    #[error("help text of {name} ({target}): {reason}")]
    Entry {
        /// The entry's name.
        name: String,
        /// The entry's target.
        target: Target,
        /// The reason.
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

/// What pmdaOpenHelp(3) returns in the same case: `-EINVAL` for malformed files.
impl From<Error> for pmapi::Error {
    fn from(e: Error) -> Self {
        const EINVAL: i32 = 22;
        match e {
            Error::Io { source, .. } => source.into(),
            _ => pmapi::Error::from_errno(EINVAL),
        }
    }
}
