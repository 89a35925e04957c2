//! The errors of storing instances.

use pmapi::InDom;
use thiserror::Error;

/// The reason why an instance cannot be stored.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum CacheError {
    /// A name that is empty, begins with a space, or contains a newline or NUL. The file cannot contain it.
    #[error("instance domain {0}: {1:?} cannot be the name of an instance")]
    Name(InDom, String),
    /// Another instance has the same name up to the first space.
    #[error(
        "instance domain {0}: {1:?} has the same name up to the first space as {2:?}; .whole_names() at the declaration of the table or cache lets both be there"
    )]
    Clash(InDom, String, String),
    /// The instance has another key, or another instance has the key.
    #[error("instance domain {0}: {1:?} has another key, or its key is that of {2:?}")]
    Key(InDom, String, String),
    /// All numbers are in use, or all numbers for the key.
    #[error("instance domain {0}: too many instances")]
    Full(InDom),
    /// A number that is in use is larger than the new maximum.
    #[error("instance domain {0}: instance {2} is larger than the maximum {1}")]
    TooSmall(InDom, u32, u32),
}

impl From<CacheError> for pmapi::Error {
    fn from(e: CacheError) -> Self {
        match e {
            CacheError::Name(..) | CacheError::Full(_) => pmapi::Error::GENERIC,
            CacheError::Clash(..) => pmapi::Error::from_errno(nix::errno::Errno::EINVAL as i32),
            CacheError::Key(..) => pmapi::Error::INST,
            CacheError::TooSmall(..) => pmapi::Error::TOOBIG,
        }
    }
}
