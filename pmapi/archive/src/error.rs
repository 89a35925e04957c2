//! Errors: file, offset and reason.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use pcp_pdu::event::Stamp;
use pmapi::Error;

/// Result of reading an archive.
pub type Result<T = (), E = ArchiveError> = std::result::Result<T, E>;

/// Error in an archive: the file, the reason, and the offset in bytes if it is known.
///
/// [`ArchiveError::code`] is the `PM_ERR_*` code that libpcp returns in the same case.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}{}: {reason}", pcp_base::escape::Escaped(path.display()), At(*offset))]
pub struct ArchiveError {
    path: PathBuf,
    offset: Option<u64>,
    code: Error,
    reason: Cow<'static, str>,
    is_refusal: bool,
}

struct At(Option<u64>);

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.map_or(Ok(()), |offset| write!(f, ": byte {offset}"))
    }
}

impl ArchiveError {
    /// Creates an error about a whole file.
    pub(crate) fn file(path: &Path, code: Error, reason: impl Into<Cow<'static, str>>) -> ArchiveError {
        ArchiveError { path: path.to_owned(), offset: None, code, reason: reason.into(), is_refusal: false }
    }

    /// Creates an error about input of a writer, which the archive cannot hold.
    pub(crate) fn refusal(path: &Path, code: Error, reason: impl Into<Cow<'static, str>>) -> ArchiveError {
        ArchiveError { is_refusal: true, ..ArchiveError::file(path, code, reason) }
    }

    /// Creates an error at an offset of a file.
    pub(crate) fn at(path: &Path, offset: u64, bad: Bad) -> ArchiveError {
        let offset = offset.saturating_add(bad.at as u64);
        ArchiveError { offset: Some(offset), ..ArchiveError::file(path, bad.code, bad.reason) }
    }

    /// Creates the error for a failed system call on a file.
    pub(crate) fn io(path: &Path, error: &std::io::Error) -> ArchiveError {
        let code = error.raw_os_error().map_or(Error::LOGREC, Error::from_errno);
        ArchiveError::file(path, code, error.to_string())
    }

    /// Returns the code that libpcp returns in the same case, for instance `PM_ERR_LOGREC`.
    pub fn code(&self) -> Error {
        self.code
    }

    /// Returns whether a [`Writer`](crate::Writer) has refused its input because of its content or its time. The archive
    /// does not have the input, and the writer can continue. Other errors concern files, for instance a failed write.
    pub fn is_refusal(&self) -> bool {
        self.is_refusal
    }

    /// Returns whether an archive of a list with this error is left out. Errors about the list as a whole, such as two
    /// hosts, are not of this kind.
    pub(crate) fn is_damage(&self) -> bool {
        const DAMAGE: [Error; 6] =
            [Error::LABEL, Error::LOGREC, Error::LOGFILE, Error::NODATA, Error::RECTYPE, Error::FEATURE];
        self.code.code() > Error::GENERIC.code() || DAMAGE.contains(&self.code)
    }

    /// Adds to the reason what is left out because of the error.
    pub(crate) fn skipping(mut self, what: &str) -> ArchiveError {
        self.reason = format!("{}; {what} is skipped", self.reason).into();
        self
    }

    /// Returns the path of the file with the error.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the offset of the error within the uncompressed file, in bytes, if it is known.
    pub fn offset(&self) -> Option<u64> {
        self.offset
    }
}

impl From<ArchiveError> for Error {
    fn from(e: ArchiveError) -> Error {
        e.code
    }
}

/// Error in bytes: the offset from their start, and the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Bad {
    pub(crate) at: usize,
    pub(crate) code: Error,
    pub(crate) reason: Cow<'static, str>,
}

impl Bad {
    /// Creates an error with code `PM_ERR_LOGREC`.
    pub(crate) fn record(at: usize, reason: impl Into<Cow<'static, str>>) -> Bad {
        Bad { at, code: Error::LOGREC, reason: reason.into() }
    }
}

/// Time in a message: seconds since 1970, with all digits.
pub(crate) struct Shown(pub(crate) Stamp);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0.seconds, self.0.nanoseconds)
    }
}
