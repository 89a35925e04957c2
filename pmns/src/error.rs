//! Problems of name spaces, and their positions in files.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Why a name space could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read.
    #[error("{}: {source}", path.display())]
    Open {
        /// The file, as it was given to [`Loader::load`](crate::Loader::load).
        path: PathBuf,
        /// Error of [`Files::read`](crate::Files::read).
        source: io::Error,
    },
    /// The text is malformed. The list has 1 to 1,000 problems. The first one is the first that libpcp would find.
    #[error("{}", Lines(.0))]
    Problems(Vec<Problem>),
}

/// The code that pmLoadNameSpace(3) returns for the same failure: that of the system call, or `PM_ERR_PMNS`.
impl From<Error> for pmapi::Error {
    fn from(e: Error) -> Self {
        match e {
            Error::Open { source, .. } => source.into(),
            Error::Problems(_) => pmapi::Error::PMNS,
        }
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Error::Problems(vec![problem])
    }
}

/// A mistake in the text of a name space.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Problem {
    /// Position of the mistake.
    pub place: Place,
    /// Description of the mistake, in libpcp's words where libpcp reports it too.
    pub reason: String,
    pub(crate) pass: Pass,
}

/// The pass over the text that finds a problem. Each pass has its own form of message in libpcp's tools.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Pass {
    /// pmcpp(1), with the line as preprocessed so far; `None` at the end of the text.
    Preprocess(Option<String>),
    /// The scanner or parser, with the line after preprocessing and the byte where the token begins.
    Parse { line: String, token: usize },
    /// The end of a block, for a name that occurs twice in the block.
    Duplicate,
    /// Assembly of the blocks into a tree.
    Assemble,
    /// Construction of the PMID index, when PMIDs must be unique.
    DuplicateId,
}

/// A position in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Place {
    /// Name of the file, as it was opened.
    pub file: Arc<str>,
    /// Line, from 1; 0 for the whole file.
    pub line: u32,
    /// Column in bytes, from 1. In the text that replaced a macro it is the column of the macro's name.
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.file),
            line => write!(f, "{}:{line}:{}", self.file, self.column),
        }
    }
}

/// `file:line:column: reason`
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

struct Lines<'a>(&'a [Problem]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            write!(f, "{}{problem}", if at == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}
