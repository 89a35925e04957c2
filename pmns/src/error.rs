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
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The text is malformed: one problem at least, the first that libpcp would find.
    #[error("{}", Lines(.0))]
    Problems(Vec<Problem>),
}

/// What pmLoadNameSpace(3) returns in the same case.
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

/// What is wrong at a place of a name space's text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The place.
    pub place: Place,
    /// What is wrong, in libpcp's words where it sees the same.
    pub reason: String,
    pub(crate) pass: Pass,
}

/// Which pass over a name space finds a problem; decides how libpcp's tools tell it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Pass {
    /// pmcpp(1), with the line as it was by then; none at the end of the text.
    Preprocess(Option<String>),
    /// The scanner or parser, with the line after preprocessing and the byte where the token begins.
    Parse { line: String, token: usize },
    /// The end of a block, which has a name twice.
    Duplicate,
    /// Putting the blocks together into a tree.
    Assemble,
    /// Building the index of PMIDs, which must be unique.
    DuplicateId,
}

/// A place in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The file as it was opened.
    pub file: Arc<str>,
    /// From 1; 0 for the whole file.
    pub line: u32,
    /// In bytes, from 1; within the text of a macro, where its name stands.
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
