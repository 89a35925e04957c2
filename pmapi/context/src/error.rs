//! Errors of contexts.

use pcp_archive::ArchiveError;
use pcp_client::ConnectError;
use pmapi::Error;

use crate::local::LocalError;

/// Error of a call of a [`Context`](crate::Context).
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContextError {
    /// Error of a call, with libpcp's code.
    #[error(transparent)]
    Pmapi(#[from] Error),
    /// Damage in an archive, or a file that cannot be read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// Failure to connect to pmcd.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Failure to open a local context.
    #[error(transparent)]
    Local(#[from] LocalError),
}

impl ContextError {
    /// Returns the code that libpcp returns in the same case.
    pub fn code(&self) -> Error {
        match self {
            ContextError::Pmapi(e) => *e,
            ContextError::Archive(e) => e.code(),
            ContextError::Connect(e) => e.clone().into(),
            ContextError::Local(_) => Error::GENERIC,
        }
    }
}
