//! Checks of archives (pmlogcheck(1)).

mod files;
mod index;
mod meta;
mod values;

use std::fmt;
use std::path::{Path, PathBuf};

use pcp_base::escape::Escaped;
use pcp_pdu::event::Stamp;
use pmapi::Error;

use crate::archive::Archive;
use crate::error::{ArchiveError, Shown};
use crate::file::find::{Files, expand};

/// Place of a finding in its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Place {
    /// The whole file.
    File,
    /// Record, by its number: the label is record 0 of a file. In the metadata, the record after the label has number 0
    /// as well.
    Record(u64),
    /// Entry of the temporal index by number, from 1.
    Entry(u64),
    /// Record of values by time.
    Time(Stamp),
}

/// Weight of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Weight {
    /// A counter went back. It may have wrapped, or been reset.
    Wrap,
    /// Readers can work in spite of the problem.
    Warning,
    /// Damage at which a reader of the archive ends with an error.
    Fatal,
}

/// Invalid data in an archive, or data that is probably invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// File of the archive.
    pub path: PathBuf,
    /// Place in the file.
    pub place: Place,
    /// Severity.
    pub weight: Weight,
    /// Description of the problem.
    pub reason: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Escaped(self.path.display()))?;
        match self.place {
            Place::File => (),
            Place::Record(number) => write!(f, "[record {number}]")?,
            Place::Entry(number) => write!(f, "[entry {number}]")?,
            Place::Time(time) => write!(f, "[{}]", Shown(time))?,
        }
        write!(f, ": {}", Escaped(&self.reason))
    }
}

/// Options of a check.
#[derive(Clone, Debug)]
#[must_use = "it checks nothing until Check::run"]
pub struct Check {
    volumes: bool,
    start: Option<Stamp>,
    finish: Option<Stamp>,
}

impl Default for Check {
    fn default() -> Check {
        Check::new()
    }
}

impl Check {
    /// Creates the options for a check of everything.
    pub fn new() -> Check {
        Check { volumes: true, start: None, finish: None }
    }

    /// Leaves out the values: only the files, the index and the metadata are checked.
    pub fn metadata_only(mut self) -> Check {
        self.volumes = false;
        self
    }

    /// Sets the start and end of the time in which values are checked. By default all values are checked.
    pub fn window(mut self, start: Option<Stamp>, finish: Option<Stamp>) -> Check {
        (self.start, self.finish) = (start, finish);
        self
    }

    /// Checks an archive in four passes, and reports its problems. The passes check the records and labels of every
    /// file, the temporal index, the metadata, the values. Errors of the first pass end the check. Of a list of archives,
    /// separated by commas, or with a directory for all archives in it, each is checked.
    ///
    /// Returns the largest weight, or `None` for archives without findings.
    pub fn run(&self, name: impl AsRef<Path>, mut report: impl FnMut(&Finding)) -> Option<Weight> {
        let list = expand(name.as_ref());
        if list.is_empty() {
            let mut findings = Findings { worst: None, report: &mut report };
            findings.error(&ArchiveError::file(name.as_ref(), Error::LOGFILE, "there is no archive"));
            return findings.worst;
        }
        let each = list.into_iter().map(|named| {
            let mut findings = Findings { worst: None, report: &mut report };
            let found = named.and_then(|named| Ok((named.path.clone(), named.files()?)));
            match found {
                Ok((path, files)) => self.passes(path, files, &mut findings),
                Err(e) => findings.error(&e),
            }
            findings.worst
        });
        each.max().flatten()
    }

    fn passes(&self, name: PathBuf, files: Files, to: &mut Findings<'_>) {
        files::check(&files, to);
        if to.worst == Some(Weight::Fatal) {
            return;
        }
        let archive = match Archive::of(name, files) {
            Ok(archive) => archive,
            Err(e) => return to.error(&e),
        };
        let [log, ..] = archive.logs.as_slice() else { return };
        index::check(log, to);
        meta::check(&archive, log, to);
        if self.volumes {
            values::check(&archive, log, (self.start, self.finish), to);
        }
    }
}

/// Receiver of findings.
struct Findings<'a> {
    worst: Option<Weight>,
    report: &'a mut dyn FnMut(&Finding),
}

impl Findings<'_> {
    fn add(&mut self, path: &Path, place: Place, weight: Weight, reason: impl Into<String>) {
        (self.report)(&Finding { path: path.to_owned(), place, weight, reason: reason.into() });
        self.worst = self.worst.max(Some(weight));
    }

    fn warn(&mut self, path: &Path, place: Place, reason: impl Into<String>) {
        self.add(path, place, Weight::Warning, reason);
    }

    fn error(&mut self, e: &ArchiveError) {
        let text = e.to_string();
        let path = Escaped(e.path().display()).to_string();
        let reason = text.strip_prefix(&path).map_or(&*text, |rest| rest.trim_start_matches(": "));
        self.add(e.path(), Place::File, Weight::Fatal, reason);
    }
}
