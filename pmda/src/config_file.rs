//! A configuration file that is reloaded when it changes.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A file and its last known state.
///
/// [`Setup::configuration`](crate::Setup::configuration) returns the one that `Install` brings. An agent with an option
/// for its file makes its own:
///
/// ```
/// use pmda::ConfigFile;
///
/// let mut file = ConfigFile::new("/nonexistent/shop.conf").with_default("open 9 to 17");
/// assert_eq!(file.changed().transpose()?.as_deref(), Some(&b"open 9 to 17"[..]));
/// assert!(file.changed().is_none());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct ConfigFile {
    path: PathBuf,
    /// Content while the file does not exist.
    default: Option<Vec<u8>>,
    seen: Seen,
}

#[derive(Debug)]
enum Seen {
    Nothing,
    Content(Content),
    BoxError(Option<i32>),
}

/// The content that was read last.
#[derive(Debug)]
struct Content {
    /// The open file.
    file: File,
    /// State of the file before it was read.
    state: State,
    /// Time of the last look-up of the path.
    looked_up: Instant,
    /// The content, and the time until which a write may leave the state unchanged.
    recent: Option<(Instant, Vec<u8>)>,
}

/// State of a file, which changes whenever the file is written, replaced, renamed or removed.
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

    /// Returns the time for which the file may be written again without a change of its state. File times come from a
    /// clock with coarse ticks, which may be ahead of the system's clock or be set back.
    fn tick(&self) -> Option<Duration> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = u64::try_from(self.changed.0).unwrap_or_default();
        let nanoseconds = u32::try_from(self.changed.1).unwrap_or_default();
        let tick = if nanoseconds == 0 { SECONDS } else { TICK };
        (now < Duration::new(seconds, nanoseconds).saturating_add(tick)).then_some(tick)
    }
}

/// Longest time for which a change of a directory or symbolic link in the path may go unnoticed.
const PATH: Duration = Duration::from_secs(1);

/// Twice the coarsest tick of the kernel's clock for files, which is 10 ms.
const TICK: Duration = Duration::from_millis(20);

/// Tick of file systems whose times are whole seconds, or even ones.
const SECONDS: Duration = Duration::from_secs(2);

/// Longest file that is read, in bytes.
const LONGEST: u64 = 1 << 26;

impl ConfigFile {
    /// Watches a file, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        ConfigFile { path: path.into(), default: None, seen: Seen::Nothing }
    }

    /// Sets the content while the file does not exist, which is then no failure.
    #[must_use]
    pub fn with_default(mut self, content: impl Into<Vec<u8>>) -> Self {
        self.default = Some(content.into());
        self
    }

    /// Returns the content if the file has changed since the last call; the first call always returns it. A failure,
    /// such as a missing file, is returned once, until another failure or the return of the file. A file that is not
    /// regular, or longer than 64 MiB, is a failure.
    ///
    /// Without a change this costs one system call, on the open file and not on its path. A replaced file is seen at
    /// once; a changed directory or symbolic link in its path within a second. Just after a change, each call reads the
    /// file again, because another write may fall into the same tick of the file system's clock.
    pub fn changed(&mut self) -> Option<io::Result<Vec<u8>>> {
        if let Seen::Content(content) = &mut self.seen {
            if content.is_same(&self.path) {
                return None;
            }
        }
        match self.read() {
            Ok((bytes, content)) => {
                self.seen = Seen::Content(content);
                Some(Ok(bytes))
            }
            Err(e) => {
                let news = !matches!(self.seen, Seen::BoxError(code) if code == e.raw_os_error());
                self.seen = Seen::BoxError(e.raw_os_error());
                let default = self.default.as_ref().filter(|_| e.kind() == io::ErrorKind::NotFound);
                news.then(|| default.cloned().ok_or(e))
            }
        }
    }

    fn read(&self) -> io::Result<(Vec<u8>, Content)> {
        let file = pcp_base::file::open(&self.path)?;
        // The state is read before the content, so that a write in between counts as a change.
        let state = State::of(&file.metadata()?);
        let bytes = pcp_base::file::read_from(&file, LONGEST)?;
        let recent = state.tick().map(|tick| (Instant::now() + tick, bytes.clone()));
        Ok((bytes, Content { file, state, looked_up: Instant::now(), recent }))
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Content {
    /// Returns whether the file is unchanged.
    fn is_same(&mut self, path: &Path) -> bool {
        if !self.file.metadata().is_ok_and(|m| State::of(&m) == self.state) {
            return false;
        }
        if let Some((until, bytes)) = &self.recent {
            // The time is read before the file: a later write changes the state.
            let is_last = Instant::now() >= *until;
            if !holds(&self.file, bytes) {
                return false;
            }
            if is_last {
                self.recent = None;
            }
        }
        if self.looked_up.elapsed() >= PATH {
            if !std::fs::metadata(path).is_ok_and(|m| State::of(&m) == self.state) {
                return false;
            }
            self.looked_up = Instant::now();
        }
        true
    }
}

/// Returns whether a file has this content.
fn holds(file: &File, mut bytes: &[u8]) -> bool {
    let mut buffer = [0; 4096];
    let mut at = 0;
    loop {
        match file.read_at(&mut buffer, at) {
            Ok(0) => return bytes.is_empty(),
            Ok(n) => match bytes.strip_prefix(buffer.get(..n).unwrap_or_default()) {
                Some(rest) => (bytes, at) = (rest, at + n as u64),
                None => return false,
            },
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
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
        let mut watch = ConfigFile::new(&path);
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
    fn the_default_stands_for_a_file_that_does_not_exist() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("conf");
        let mut watch = ConfigFile::new(&path).with_default("default");
        assert_eq!(watch.changed().unwrap().unwrap(), b"default");
        assert!(watch.changed().is_none());
        fs::write(&path, "one").unwrap();
        assert_eq!(watch.changed().unwrap().unwrap(), b"one");
        fs::remove_file(&path).unwrap();
        assert_eq!(watch.changed().unwrap().unwrap(), b"default");
        // Another failure is one.
        fs::create_dir(&path).unwrap();
        assert!(watch.changed().unwrap().is_err());
    }

    #[test]
    fn changes_within_a_tick_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("conf");
        fs::write(&path, "0000").unwrap();
        let mut watch = ConfigFile::new(&path);
        assert_eq!(watch.changed().unwrap().unwrap(), b"0000");
        for n in 1..1000 {
            let text = format!("{n:04}");
            fs::write(&path, &text).unwrap();
            assert_eq!(watch.changed().unwrap().unwrap(), text.as_bytes());
        }
    }

    #[test]
    fn a_file_is_read_no_more_when_its_time_has_passed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("conf");
        fs::write(&path, "text").unwrap();
        let mut watch = ConfigFile::new(&path);
        assert_eq!(watch.changed().unwrap().unwrap(), b"text");
        std::thread::sleep(TICK);
        assert!(watch.changed().is_none());
        let Seen::Content(content) = &watch.seen else { panic!() };
        assert!(content.recent.is_none());
    }

    #[test]
    fn a_fifo_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("conf");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut watch = ConfigFile::new(&path);
        assert_eq!(watch.changed().unwrap().unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(watch.changed().is_none());
    }

    #[test]
    fn a_symbolic_link_may_lead_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two, link] = ["one", "two", "link"].map(|name| dir.path().join(name));
        fs::write(&one, "1").unwrap();
        fs::write(&two, "2").unwrap();
        std::os::unix::fs::symlink(&one, &link).unwrap();
        let mut watch = ConfigFile::new(&link);
        assert_eq!(watch.changed().unwrap().unwrap(), b"1");
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&two, &link).unwrap();
        std::thread::sleep(PATH);
        assert_eq!(watch.changed().unwrap().unwrap(), b"2");
    }
}
