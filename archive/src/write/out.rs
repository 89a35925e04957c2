//! Files that only grow, by whole records.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::{ArchiveError, Result};

/// File that is written, and the records that are not in it yet.
#[derive(Debug)]
pub(super) struct Out {
    path: PathBuf,
    file: File,
    /// Bytes that are in the file.
    written: u64,
    pub(super) pending: Vec<u8>,
}

impl Out {
    /// Creates a file, which must not exist.
    ///
    /// # Errors
    /// `-EEXIST`, and `-errno` for other failures.
    pub(super) fn create(path: &Path) -> Result<Out> {
        let file = File::options().write(true).create_new(true).open(path);
        let file = file.map_err(|e| ArchiveError::io(path, &e))?;
        Ok(Out { path: path.to_owned(), file, written: 0, pending: Vec::new() })
    }

    /// Opens a file to append to it.
    ///
    /// # Errors
    /// `-errno` for a file that cannot be written.
    pub(super) fn append(path: &Path) -> Result<Out> {
        let fail = |e| ArchiveError::io(path, &e);
        let file = File::options().write(true).open(path).map_err(fail)?;
        let written = file.metadata().map_err(fail)?.len();
        Ok(Out { path: path.to_owned(), file, written, pending: Vec::new() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the length of the file with what is not written yet.
    pub(super) fn len(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    /// Writes what is pending. After a failure the file ends as before, and the records are still pending.
    ///
    /// # Errors
    /// `-errno` for a failed write, for instance `-ENOSPC`.
    pub(super) fn flush(&mut self) -> Result {
        if self.pending.is_empty() {
            return Ok(());
        }
        if let Err(e) = self.file.write_all_at(&self.pending, self.written) {
            // A part of a record would be damage to every reader.
            _ = self.file.set_len(self.written);
            return Err(ArchiveError::io(&self.path, &e));
        }
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Writes what is pending, and waits until the file is on its device.
    ///
    /// # Errors
    /// `-errno` for a failed write.
    pub(super) fn sync(&mut self) -> Result {
        self.flush()?;
        self.file.sync_all().map_err(|e| ArchiveError::io(&self.path, &e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmapi::Error;

    #[test]
    fn a_full_device_keeps_what_is_pending() {
        let mut out = Out::append(Path::new("/dev/full")).unwrap();
        out.pending = b"record".to_vec();
        let error = out.flush().unwrap_err();
        assert_eq!((error.code(), out.pending.as_slice()), (Error::from_errno(28), &b"record"[..]));
        assert_eq!(error.to_string(), "/dev/full: No space left on device (os error 28)");
    }
}
