//! A configuration file that is read again when it changes.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A file, and what was last seen of it.
#[derive(Debug)]
pub struct Watch {
    path: PathBuf,
    seen: Seen,
}

#[derive(Debug)]
enum Seen {
    Nothing,
    /// The open file, its state, and when its path was last looked up.
    Content(File, State, Instant),
    Failure(Option<i32>),
}

/// Changes whenever a file is written, replaced, renamed or removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct State {
    inode: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    links: u64,
}

impl State {
    fn of(m: &Metadata) -> State {
        State {
            inode: (m.dev(), m.ino()),
            size: m.size(),
            modified: (m.mtime(), m.mtime_nsec()),
            changed: (m.ctime(), m.ctime_nsec()),
            links: m.nlink(),
        }
    }
}

/// How long a directory or a symbolic link on the way may change unnoticed.
const PATH: Duration = Duration::from_secs(1);

impl Watch {
    /// Watches a file that may be there or not.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Watch { path: path.into(), seen: Seen::Nothing }
    }

    /// The content, if the file is not what it was at the last call: at first always. A failure,
    /// such as the absence of the file, comes once, until there is another one or the file is back.
    ///
    /// While nothing changes this costs one system call, which looks at the open file and not at its
    /// path: another file in its place is seen at once, another directory or symbolic link on the way
    /// to it within a second.
    pub fn changed(&mut self) -> Option<io::Result<Vec<u8>>> {
        if let Seen::Content(file, state, looked_up) = &mut self.seen {
            let same = file.metadata().is_ok_and(|m| State::of(&m) == *state);
            if same && looked_up.elapsed() < PATH {
                return None;
            }
            if same && std::fs::metadata(&self.path).is_ok_and(|m| State::of(&m) == *state) {
                *looked_up = Instant::now();
                return None;
            }
        }
        match self.read() {
            Ok((content, seen)) => {
                self.seen = seen;
                Some(Ok(content))
            }
            Err(e) => {
                let news = !matches!(self.seen, Seen::Failure(code) if code == e.raw_os_error());
                self.seen = Seen::Failure(e.raw_os_error());
                news.then_some(Err(e))
            }
        }
    }

    fn read(&self) -> io::Result<(Vec<u8>, Seen)> {
        let mut file = File::open(&self.path)?;
        // Before the content: what is written in between counts as a change.
        let state = State::of(&file.metadata()?);
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        Ok((content, Seen::Content(file, state, Instant::now())))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
        fs::write(dir.path().join("new"), "other").unwrap();
        fs::rename(dir.path().join("new"), &path).unwrap();
        assert_eq!(watch.changed().unwrap().unwrap(), b"other");
        fs::rename(&path, dir.path().join("away")).unwrap();
        assert_eq!(watch.changed().unwrap().unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(watch.changed().is_none());
        fs::write(&path, "back").unwrap();
        assert_eq!(watch.changed().unwrap().unwrap(), b"back");
        fs::remove_file(&path).unwrap();
        assert!(watch.changed().unwrap().is_err());
    }

    #[test]
    fn a_symbolic_link_may_lead_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two, link] = ["one", "two", "link"].map(|name| dir.path().join(name));
        fs::write(&one, "1").unwrap();
        fs::write(&two, "2").unwrap();
        std::os::unix::fs::symlink(&one, &link).unwrap();
        let mut watch = Watch::new(&link);
        assert_eq!(watch.changed().unwrap().unwrap(), b"1");
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&two, &link).unwrap();
        std::thread::sleep(PATH);
        assert_eq!(watch.changed().unwrap().unwrap(), b"2");
    }
}
