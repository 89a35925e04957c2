//! The files of a directory, without a name space.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;

use super::source::{Opened, Source, Values};
use crate::format::ValueRecord;
use crate::reader::{File, ValueOf};

/// A file of a collection, as a scan has read it. It stays readable when the collection no longer has it, if it
/// [stays open](super::Collection::keep_open).
#[derive(Clone, Debug)]
pub struct CollectedFile(Arc<Source>);

impl CollectedFile {
    pub(super) fn new(source: Arc<Source>) -> CollectedFile {
        CollectedFile(source)
    }

    /// Returns the name of the file in the directory.
    pub fn name(&self) -> &OsStr {
        &self.0.name
    }

    /// Returns the file's device and inode numbers.
    pub fn id(&self) -> (u64, u64) {
        (self.0.identity.device, self.0.identity.inode)
    }

    /// Returns the user identifier of the file's owner.
    pub fn owner(&self) -> u32 {
        self.0.owner
    }

    /// Returns the user identifier of the user who is charged for the file: see
    /// [`charge`](super::Collection::charge).
    pub fn account(&self) -> u32 {
        self.0.uid.0
    }

    /// Returns the contents, as the scan has read them.
    pub fn contents(&self) -> &File {
        &self.0.file
    }

    /// Returns whether both are the same contents of the same file.
    pub fn is_same(&self, other: &CollectedFile) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Reads the present values, and returns them with whether the application has not changed the file's metrics and
    /// instances since the scan.
    ///
    /// # Errors
    /// `NotFound` if the file does not stay open, and another one has its name; `UnexpectedEof` if it has become shorter;
    /// other errors of reading it.
    pub fn read(&self) -> io::Result<(PresentValues<'_>, bool)> {
        let (mut values, mut opened) = (Values::default(), Opened::default());
        let is_current = values.read_all(&self.0, &mut opened)?;
        Ok((PresentValues { file: self, values }, is_current))
    }
}

/// The values of a file at a time: [`CollectedFile::read`].
#[derive(Debug)]
pub struct PresentValues<'a> {
    file: &'a CollectedFile,
    values: Values,
}

impl PresentValues<'_> {
    /// Returns a value of one of the file's metrics.
    pub fn get(&self, value: ValueOf) -> Option<ValueRecord> {
        self.values.at(self.file.0.file.slot(value))
    }
}
