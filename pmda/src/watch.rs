//! A configuration file that is read again when it changes.

use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fs, io};

/// A file, and what was last seen of it.
#[derive(Debug)]
pub struct Watch {
    path: PathBuf,
    seen: Option<Seen>,
}

#[derive(PartialEq, Eq, Debug)]
enum Seen {
    Content { modified: SystemTime, len: u64 },
    Failure(Option<i32>),
}

impl Watch {
    /// Watches a file that may be there or not.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Watch { path: path.into(), seen: None }
    }

    /// The content, if the file is not what it was at the last call: at first always. A failure,
    /// such as the absence of the file, comes once, until there is another one or the file is back.
    ///
    /// Costs one system call while nothing changes.
    pub fn changed(&mut self) -> Option<io::Result<Vec<u8>>> {
        let seen =
            match fs::metadata(&self.path).and_then(|m| Ok(Seen::Content { modified: m.modified()?, len: m.len() })) {
                Ok(seen) => seen,
                Err(e) => Seen::Failure(e.raw_os_error()),
            };
        if self.seen.as_ref() == Some(&seen) {
            return None;
        }
        self.seen = Some(seen);
        Some(fs::read(&self.path))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_come_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("conf");
        let mut watch = Watch::new(&path);
        assert!(watch.changed().unwrap().is_err());
        assert!(watch.changed().is_none());
        fs::write(&path, "one").unwrap();
        assert_eq!(watch.changed().unwrap().unwrap(), b"one");
        assert!(watch.changed().is_none());
        fs::write(&path, "three").unwrap();
        assert_eq!(watch.changed().unwrap().unwrap(), b"three");
        fs::remove_file(&path).unwrap();
        assert_eq!(watch.changed().unwrap().unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(watch.changed().is_none());
    }
}
