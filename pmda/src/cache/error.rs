//! The errors of storing instances, and of the file.

use std::io;
use std::path::PathBuf;

use pmapi::InDom;
use thiserror::Error;

/// The reason why an instance cannot be stored.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum CacheError {
    /// A name that is empty, begins with a space, or contains a newline or NUL. The file cannot contain it.
    #[error("instance domain {indom}: {name:?} cannot be the name of an instance")]
    Name {
        /// The domain of the cache.
        indom: InDom,
        /// The invalid name.
        name: String,
    },
    /// Another instance has the same name up to the first space.
    #[error(
        "instance domain {indom}: {name:?} has the same name up to the first space as {other:?}; .whole_names() at the declaration of the table or cache lets both be there"
    )]
    Clash {
        /// The domain of the cache.
        indom: InDom,
        /// The name that was to be stored.
        name: String,
        /// The instance that is in the cache.
        other: String,
    },
    /// The instance has another key, or another instance has the key.
    #[error("instance domain {indom}: {name:?} has another key, or its key is that of {other:?}")]
    Key {
        /// The domain of the cache.
        indom: InDom,
        /// The name that was to be stored.
        name: String,
        /// The instance that is in the cache: with this name, or with this key.
        other: String,
    },
    /// All numbers are in use, or all numbers for the key.
    #[error("instance domain {0}: too many instances")]
    Full(InDom),
    /// A number that is in use is larger than the new maximum.
    #[error("instance domain {indom}: instance {largest} is larger than the maximum {max}")]
    TooSmall {
        /// The domain of the cache.
        indom: InDom,
        /// The new maximum.
        max: u32,
        /// The largest number in use.
        largest: u32,
    },
}

/// The reason why the file of a cache cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CacheFileError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file has lines that PCP does not write. Valid lines have been loaded.
    #[error("{}:{line}: {reason}", path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Number of the first invalid line, from 1.
        line: usize,
        /// The defect of that line.
        reason: &'static str,
    },
}

impl From<CacheError> for pmapi::Error {
    fn from(e: CacheError) -> Self {
        match e {
            CacheError::Name { .. } | CacheError::Full(_) => pmapi::Error::GENERIC,
            CacheError::Clash { .. } => pmapi::Error::from_errno(nix::errno::Errno::EINVAL as i32),
            CacheError::Key { .. } => pmapi::Error::INST,
            CacheError::TooSmall { .. } => pmapi::Error::TOOBIG,
        }
    }
}
