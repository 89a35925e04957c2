//! An archive, or several archives as one, as clients see it.

use std::collections::HashSet;
use std::path::Path;

use pcp_pdu::event::Stamp;
use pmapi::Error;

use crate::decode::index::IndexEntry;
use crate::decode::label::Label;
use crate::error::{ArchiveError, Result};
use crate::file::find::expand;
use crate::log::Log;
use crate::meta::Metadata;

/// Options for opening archives.
#[derive(Clone, Debug)]
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
}

impl Archive {
    /// Opens an archive by its base name or the name of any of its files. A list of such names, separated by commas,
    /// opens several archives of one host as one. A directory in the list stands for all archives in it.
    ///
    /// # Errors
    /// The `PM_ERR_*` code in parentheses. A missing file (`-ENOENT`, `LOGFILE`); a label that is invalid (`LABEL`) or
    /// alone in its file (`NODATA`); damaged metadata (`LOGREC`, `RECTYPE`); archives of different hosts (`LOGHOST`),
    /// of the same start (`LOGOVERLAP`), or with different descriptors of a metric (`LOGCHANGETYPE` and others).
    pub fn open(name: impl AsRef<Path>) -> Result<Archive> {
        Options::new().open(name)
    }

    fn open_with(name: &Path, options: &Options) -> Result<Archive> {
        let mut logs: Vec<Log> = Vec::new();
        let mut meta = Metadata::default();
        let mut known = HashSet::new();
        for named in expand(name)? {
            let name = named.path.clone();
            if !known.insert(name.clone()) {
                continue;
            }
            let host = logs.first().map(|log| log.label.host.clone());
            let log = Log::open(named.files()?, options.limit, host.as_deref(), &mut meta)?;
            let start = log.label.start;
            let at = logs.partition_point(|other| other.label.start < start);
            if logs.get(at).is_some_and(|other| other.label.start == start) {
                let reason = "the archive starts at the same time as another one";
                return Err(ArchiveError::file(&name, Error::LOGOVERLAP, reason));
            }
            logs.insert(at, log);
        }
        meta.finish();
        Ok(Archive { logs, meta })
    }

    /// Returns the label of the first archive (pmGetArchiveLabel(3)).
    pub fn label(&self) -> &Label {
        // An archive has at least one log.
        &self.logs[0].label
    }

    /// Returns the time of the last complete record (pmGetArchiveEnd(3)), even if the archive is still being written.
    ///
    /// # Errors
    /// `PM_ERR_LOGREC` if there is no complete record, `-errno` for a file that cannot be read.
    pub fn end(&self) -> Result<Stamp> {
        self.logs[self.logs.len() - 1].end()
    }

    /// Returns the metadata of all archives.
    pub fn metadata(&self) -> &Metadata {
        &self.meta
    }

    /// Returns the number of archives.
    pub fn parts(&self) -> usize {
        self.logs.len()
    }

    /// Returns the temporal index of the first archive, which is empty if the file is missing.
    pub fn index(&self) -> &[IndexEntry] {
        &self.logs[0].index
    }

    /// Returns the path of the first archive's metadata file.
    pub fn meta_path(&self) -> &Path {
        &self.logs[0].files.meta
    }

    /// Returns the length of the first archive's metadata file after decompression, in bytes.
    ///
    /// # Errors
    /// Errors of [`Archive::open`] about files.
    pub fn meta_len(&self) -> Result<u64> {
        self.logs[0].len_of(None)
    }

    /// Returns the length of a volume of the first archive after decompression, in bytes.
    ///
    /// # Errors
    /// `PM_ERR_LOGFILE` for a missing volume, `-errno` for one that cannot be read.
    pub fn volume_len(&self, volume: u32) -> Result<u64> {
        self.logs[0].len_of(Some(volume))
    }
}
