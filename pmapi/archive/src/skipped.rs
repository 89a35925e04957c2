//! Archives and volumes that are left out, for a warning.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::error::ArchiveError;

/// Errors of files that are left out.
#[derive(Debug, Default)]
pub(crate) struct Skipped(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// What is left out. Each counts once, however often it is read.
    known: HashSet<PathBuf>,
    /// Errors that the application has not taken.
    errors: Vec<ArchiveError>,
}

impl Skipped {
    /// Adds an error because of which a volume, or the archive with a base name, is left out.
    pub(crate) fn add(&self, what: PathBuf, error: ArchiveError) {
        let State { known, errors } = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.insert(what) {
            errors.push(error);
        }
    }

    pub(crate) fn take(&self) -> Vec<ArchiveError> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).errors)
    }
}
