//! Documents in files of this host (`file://`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Instant;

use pmapi::file;

use crate::document::Document;
use crate::http::Failure;

/// Reads the document of a file.
///
/// # Errors
/// Errors of [`file::open`] and of read(2), with the path; a document that is too long.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Document, String> {
    contents(path, limit).map_err(|e| format!("{}: {e}", path.display()))
}

fn contents(path: &Path, limit: u64) -> io::Result<Document> {
    let file = file::open(path)?;
    // Files of /proc claim a length of 0, and a file may grow.
    let expected = file.metadata()?.len().min(limit).saturating_add(1);
    let mut document = Document::new(usize::try_from(expected).unwrap_or_default());
    document.read_to_end(io::Read::take(&file, limit.saturating_add(1)))?;
    let is_too_long = document.len() as u64 > limit;
    if is_too_long { Err(io::Error::other(format!("longer than {limit} bytes"))) } else { Ok(document) }
}

/// Reads the files of a source, each in a thread of its own. On a network file system a thread may wait for ever. A source
/// has at most one such thread, and the threads that read sources do not wait for it.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// Receives the document of a reading that was not over in time.
    pending: Option<Receiver<Result<Document, String>>>,
}

impl Files {
    /// Reads the document of a file until a deadline.
    ///
    /// # Errors
    /// Errors of [`read`]; a reading that is not over in time, or that has not been over since an earlier one.
    pub(crate) fn read(&mut self, path: PathBuf, limit: u64, deadline: Instant) -> Result<Document, Failure> {
        if let Some(Err(TryRecvError::Empty)) = self.pending.as_ref().map(Receiver::try_recv) {
            return Err(late(&path));
        }
        self.pending = None;
        let shown = path.clone();
        let (done, document) = sync_channel(1);
        // The receiver is gone if the source has been removed.
        pmapi::thread::spawn("file", move || _ = done.send(read(&path, limit))).map_err(|e| e.to_string())?;
        match document.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(read) => Ok(read?),
            Err(_) => {
                self.pending = Some(document);
                Err(late(&shown))
            }
        }
    }
}

fn late(path: &Path) -> Failure {
    Failure { code: 0, reason: format!("{}: reading it has not ended in time", path.display()), is_late: true }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn files_have_a_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics");
        fs::write(&path, "a 1\n").unwrap();
        let mut files = Files::default();
        let mut read =
            |limit| files.read(path.clone(), limit, Instant::now() + LIMIT).map_err(|failure| failure.reason);
        assert_eq!(&*read(4).unwrap(), b"a 1\n");
        assert_eq!(read(3).unwrap_err(), format!("{}: longer than 3 bytes", path.display()));
        fs::remove_file(&path).unwrap();
        assert!(read(4).unwrap_err().ends_with("No such file or directory (os error 2)"));
    }

    /// A reading that hangs costs one thread, and the source continues once it is over.
    #[test]
    fn a_reading_that_hangs_is_not_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics");
        fs::write(&path, "a 1\n").unwrap();
        let (over, pending) = sync_channel(1);
        let mut files = Files { pending: Some(pending) };
        for _ in 0..2 {
            let failure = files.read(path.clone(), 100, Instant::now() + LIMIT).unwrap_err();
            assert!(failure.is_late, "{}", failure.reason);
        }
        over.send(Err("from before".to_owned())).unwrap();
        assert_eq!(&*files.read(path.clone(), 100, Instant::now() + LIMIT).unwrap(), b"a 1\n");
    }
}
