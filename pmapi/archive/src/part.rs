//! One of the archives that are open as one.

use std::path::Path;

use pcp_pdu::event::Stamp;

use crate::decode::index::IndexEntry;
use crate::decode::label::Label;
use crate::error::Result;
use crate::log::Log;
use crate::meta::{DiskInDom, Metadata};

/// One of the archives that are open as one, in the order of their start: from [`Archive::parts`](crate::Archive::parts).
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    pub(crate) metadata: &'a Metadata,
    pub(crate) log: &'a Log,
}

impl<'a> Part<'a> {
    /// Returns the name by which the archive was opened, or the base name of an archive from a directory.
    pub fn name(self) -> &'a Path {
        &self.log.name
    }

    /// Returns the label (pmGetArchiveLabel(3)).
    pub fn label(self) -> &'a Label {
        &self.log.label
    }

    /// Returns the time of the last complete record (pmGetArchiveEnd(3)).
    ///
    /// # Errors
    /// `PM_ERR_LOGREC` if there is no complete record, `-errno` for a file that cannot be read.
    pub fn end(self) -> Result<Stamp> {
        self.log.end()
    }

    /// Returns the temporal index, which is empty if the file is missing.
    pub fn index(self) -> &'a [IndexEntry] {
        &self.log.index
    }

    /// Returns the path of the metadata file.
    pub fn meta_path(self) -> &'a Path {
        &self.log.files.meta
    }

    /// Returns the length of the metadata file after decompression, in bytes.
    ///
    /// # Errors
    /// Errors of [`Archive::open`](crate::Archive::open) about files.
    pub fn meta_len(self) -> Result<u64> {
        self.log.len_of(None)
    }

    /// Returns the length of a volume after decompression, in bytes.
    ///
    /// # Errors
    /// `PM_ERR_LOGFILE` for a missing volume, `-errno` for one that cannot be read.
    pub fn volume_len(self, volume: u32) -> Result<u64> {
        self.log.len_of(Some(volume))
    }

    /// Iterates over the records of instance domains in the metadata file, in the order of the file.
    pub fn disk_indoms(self) -> impl Iterator<Item = DiskInDom<'a>> {
        self.metadata.disk_indoms(self.log.file, self.log.label.version)
    }
}
