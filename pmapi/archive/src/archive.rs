//! An archive, or several archives as one, as clients see it.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pcp_base::escape::Escaped;
use pcp_pdu::event::Stamp;
use pmapi::Error;

use crate::decode::label::Label;
use crate::error::{ArchiveError, Result};
use crate::file::find::{Files, expand};
use crate::log::{Log, Opening};
use crate::meta::Metadata;
use crate::part::Part;
use crate::skipped::Skipped;

/// Options for opening archives.
#[derive(Clone, Debug)]
#[must_use = "it opens nothing until Options::open"]
pub struct Options {
    limit: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { limit: 4 << 30 }
    }
}

impl Options {
    /// Creates the default options.
    pub fn new() -> Options {
        Options::default()
    }

    /// Sets the largest size of a compressed file after decompression, in bytes. The default is 4 GiB. A file may not
    /// become longer than 64 MiB and 2000 times its size, unless it consists of blocks that are read one by one.
    pub fn decompressed_limit(mut self, bytes: u64) -> Options {
        self.limit = bytes;
        self
    }

    /// Opens an archive, as [`Archive::open`] does.
    ///
    /// # Errors
    /// Errors of [`Archive::open`].
    pub fn open(&self, name: impl AsRef<Path>) -> Result<Archive> {
        Archive::open_with(name.as_ref(), self)
    }
}

/// Recorded values of a host (`PM_CONTEXT_ARCHIVE`, pmNewContext(3)).
///
/// The metadata is in memory; values are read by a [`Cursor`](crate::Cursor). Several cursors may be at different
/// positions at the same time.
#[derive(Debug)]
pub struct Archive {
    pub(crate) logs: Vec<Log>,
    meta: Metadata,
    /// Whether several archives were to be opened.
    is_list: bool,
    skipped: Arc<Skipped>,
}

/// Inserts an archive by the time of its start.
fn insert(logs: &mut Vec<Log>, log: Log) -> Result {
    let start = log.label.start;
    let at = logs.partition_point(|other| other.label.start < start);
    if let Some(other) = logs.get(at).filter(|other| other.label.start == start) {
        let other = Escaped(other.files.base.display()).to_string();
        let reason = format!("the archive starts at the same time as {other}");
        return Err(ArchiveError::file(&log.files.base, Error::LOGOVERLAP, reason));
    }
    logs.insert(at, log);
    Ok(())
}

impl Archive {
    /// Opens an archive by its base name or the name of any of its files. A list of such names, separated by commas,
    /// opens several archives of one host as one. A directory in the list stands for all archives in it. Of several
    /// archives, those that are damaged, missing or unreadable are left out: see [`Archive::take_skipped`].
    ///
    /// # Errors
    /// The `PM_ERR_*` code in parentheses. A missing file (`-ENOENT`, `LOGFILE`); a label that is invalid (`LABEL`) or
    /// alone in its file (`NODATA`); damaged metadata (`LOGREC`, `RECTYPE`); a list of which no archive can be opened
    /// (`LOGFILE`). Archives of different hosts (`LOGHOST`), of the same start (`LOGOVERLAP`), or with different
    /// descriptors of a metric (`LOGCHANGETYPE` and others).
    pub fn open(name: impl AsRef<Path>) -> Result<Archive> {
        Options::new().open(name)
    }

    fn open_with(name: &Path, options: &Options) -> Result<Archive> {
        let names = expand(name);
        let mut opening = Opening { limit: options.limit, is_list: names.len() > 1, ..Opening::default() };
        let (mut logs, mut known, mut first) = (Vec::new(), HashSet::new(), None);
        let count = names.len();
        for named in names {
            let opened = named.and_then(|named| {
                let is_new = known.insert(named.path.clone());
                is_new.then(|| Log::open(named.name.clone(), named.files()?, &mut opening)).transpose()
            });
            match opened {
                Ok(None) => (),
                Ok(Some(log)) => insert(&mut logs, log)?,
                Err(e) if opening.is_list && e.is_damage() => {
                    first.get_or_insert_with(|| e.clone());
                    opening.skipped.add(e.path().to_owned(), e.skipping("the archive"));
                }
                Err(e) => return Err(e),
            }
        }
        if logs.is_empty() {
            let reason = first.map_or("there is no archive".to_owned(), |first| {
                format!("none of the {count} archives can be opened; the first: {first}")
            });
            return Err(ArchiveError::file(name, Error::LOGFILE, reason));
        }
        let Opening { mut meta, skipped, .. } = opening;
        meta.finish();
        Ok(Archive { logs, meta, is_list: count > 1, skipped })
    }

    /// Opens a single archive.
    pub(crate) fn of(name: PathBuf, files: Files) -> Result<Archive> {
        let mut opening = Opening { limit: Options::default().limit, ..Opening::default() };
        let logs = vec![Log::open(name, files, &mut opening)?];
        let Opening { mut meta, skipped, .. } = opening;
        meta.finish();
        Ok(Archive { logs, meta, is_list: false, skipped })
    }

    /// Returns why archives of a list, or the rest of one of them, or volumes, are left out. Each error is returned once
    /// and names the file.
    ///
    /// If [`Archive::open`] gets several archives, damage ends only the archive that it is in. An application calls
    /// this method after opening, and after reading, and warns its user. A single archive leaves out only volumes that
    /// are empty or cannot be opened, as libpcp does.
    pub fn take_skipped(&self) -> Vec<ArchiveError> {
        self.skipped.take()
    }

    /// Returns whether damage in an archive ends only that archive.
    pub(crate) fn skips(&self, error: &ArchiveError) -> bool {
        self.is_list && error.is_damage()
    }

    /// Returns the label of the first archive (pmGetArchiveLabel(3)).
    pub fn label(&self) -> &Label {
        // An archive has at least one log.
        &self.logs[0].label
    }

    /// Returns the time of the last complete record (pmGetArchiveEnd(3)), even if the archive is still being written. Of
    /// several archives, it is that of the last one with such a record before damage.
    ///
    /// # Errors
    /// `PM_ERR_LOGREC` if there is no complete record, `-errno` for a file that cannot be read.
    pub fn end(&self) -> Result<Stamp> {
        let mut last = None;
        for log in self.logs.iter().rev() {
            match log.end() {
                Err(e) if self.is_list => match log.readable_end(e) {
                    Ok(end) => return Ok(end),
                    Err(e) => _ = last.get_or_insert(e),
                },
                end => return end,
            }
        }
        // An archive has at least one log.
        Err(last.unwrap_or_else(|| ArchiveError::file(Path::new(""), Error::LOGFILE, "there is no archive")))
    }

    /// Returns the metadata of all archives.
    pub fn metadata(&self) -> &Metadata {
        &self.meta
    }

    /// Iterates over the archives that are open as one, in the order of their start.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = Part<'_>> {
        self.logs.iter().map(|log| Part { metadata: &self.meta, log })
    }

    /// Returns the first archive.
    pub fn first(&self) -> Part<'_> {
        Part { metadata: &self.meta, log: &self.logs[0] }
    }
}
