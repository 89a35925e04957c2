//! Why an instance cannot be stored.

use pmapi::InDom;
use thiserror::Error;

/// Why an instance cannot be stored.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum CacheError {
    /// An empty name, one that begins with a space, or one with a newline or NUL: the file cannot hold it.
    #[error("instance domain {0}: {1:?} cannot be the name of an instance")]
    Name(InDom, String),
    /// Another instance has the same name up to the first space.
    #[error("instance domain {0}: {1:?} cannot be told from {2:?}")]
    Clash(InDom, String, String),
    /// The instance has another key, or another instance has the key.
    #[error("instance domain {0}: the key of {1:?} is not that of {2:?}")]
    Key(InDom, String, String),
    /// Every number is taken, or every one that the key leads to.
    #[error("instance domain {0}: too many instances")]
    Full(InDom),
    /// A number that is in use is over the new maximum.
    #[error("instance domain {0}: instance {2} is over {1}")]
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
