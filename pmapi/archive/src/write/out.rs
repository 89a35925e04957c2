//! Files to which only whole records are appended.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use pcp_base::file::Dir;

use super::state::EINVAL;
use crate::error::{ArchiveError, Result};

/// A file being written, and records that have not been written yet.
#[derive(Debug)]
pub(super) struct Out {
    path: PathBuf,
    /// `None` for a file that the first pending records create.
    file: Option<File>,
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
        Ok(Out { path: path.to_owned(), file: Some(create(path)?), written: 0, pending: Vec::new() })
    }

    /// Returns a file that is created together with its first records, and must not exist then.
    pub(super) fn later(path: PathBuf, pending: Vec<u8>) -> Out {
        Out { path, file: None, written: 0, pending }
    }

    /// Opens a file to append to it. Another user may have put a link or a FIFO in its place.
    ///
    /// # Errors
    /// `-errno` for a file that cannot be written, or is not regular.
    pub(super) fn append(path: &Path) -> Result<Out> {
        let fail = |e| ArchiveError::io(path, &e);
        let (dir, name) = Dir::of(path).map_err(fail)?;
        let file = dir.file(name, OFlag::O_WRONLY | OFlag::O_NONBLOCK, 0).map_err(fail)?;
        if !file.metadata().map_err(fail)?.is_file() {
            return Err(ArchiveError::file(path, EINVAL, "this is not a regular file"));
        }
        Self::at_end(path, file)
    }

    fn at_end(path: &Path, file: File) -> Result<Out> {
        let written = file.metadata().map_err(|e| ArchiveError::io(path, &e))?.len();
        Ok(Out { path: path.to_owned(), file: Some(file), written, pending: Vec::new() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the length of the file including pending records.
    pub(super) fn len(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    /// Returns whether the file exists.
    pub(super) fn is_created(&self) -> bool {
        self.file.is_some()
    }

    /// Writes the pending records. After a failure the file ends as before or does not exist, and the records are still
    /// pending.
    ///
    /// # Errors
    /// `-EEXIST` for a file that is to be created, and `-errno` for a failed write, for instance `-ENOSPC`.
    pub(super) fn flush(&mut self) -> Result {
        if self.pending.is_empty() {
            return Ok(());
        }
        match &self.file {
            Some(file) => {
                if let Err(e) = file.write_all_at(&self.pending, self.written) {
                    // Every reader would treat a part of a record as damage.
                    _ = file.set_len(self.written);
                    return Err(ArchiveError::io(&self.path, &e));
                }
            }
            None => self.file = Some(self.create_with_pending()?),
        }
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Creates the file with the pending records.
    fn create_with_pending(&self) -> Result<File> {
        let file = create(&self.path)?;
        if let Err(e) = file.write_all_at(&self.pending, 0) {
            // Readers and appending writers would refuse an archive whose last volume is empty.
            _ = std::fs::remove_file(&self.path);
            return Err(ArchiveError::io(&self.path, &e));
        }
        Ok(file)
    }

    /// Replaces the open file, so that a test may let the next call fail.
    #[cfg(test)]
    pub(super) fn swap_file(&mut self, file: &mut Option<File>) {
        std::mem::swap(&mut self.file, file);
    }

    /// Writes the pending records, and waits until the file is on its device.
    ///
    /// # Errors
    /// `-errno` for a failed write.
    pub(super) fn sync(&mut self) -> Result {
        self.flush()?;
        let synced = self.file.as_ref().map_or(Ok(()), File::sync_all);
        synced.map_err(|e| ArchiveError::io(&self.path, &e))
    }
}

/// Creates a file, which must not exist.
fn create(path: &Path) -> Result<File> {
    File::options().write(true).create_new(true).open(path).map_err(|e| ArchiveError::io(path, &e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmapi::Error;

    #[test]
    fn a_full_device_keeps_what_is_pending() {
        let path = Path::new("/dev/full");
        assert!(Out::append(path).is_err(), "a device is no archive");
        let mut out = Out::at_end(path, File::options().write(true).open(path).unwrap()).unwrap();
        out.pending = b"record".to_vec();
        let error = out.flush().unwrap_err();
        assert_eq!((error.code(), out.pending.as_slice()), (Error::from_errno(28), &b"record"[..]));
        assert_eq!(error.to_string(), "/dev/full: No space left on device (os error 28)");
    }
}
