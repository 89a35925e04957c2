//! The configuration directory: which sources there are. Threads scan it: it may be large, and a link may lead to a file
//! system that does not answer.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use std::{fs, io};

use tracing::{error, warn};

use crate::access::Owners;
use crate::reader::Kind;
use crate::store::may_pass;

/// A file of the directory that is a source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// Name of the source: the path below the directory without the file name's last ending, with dots in place of
    /// slashes.
    pub(crate) name: Arc<str>,
    pub(crate) path: Arc<Path>,
    pub(crate) kind: Kind,
}

/// The order in which new sources get their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    ByName,
    /// Order in which the directory lists its files.
    Any,
}

/// Whether the directories have changed since the last scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    No,
    /// The times of the directories have not changed, but a change within the same tick of the clock would not show.
    Unseen,
    /// The time of a directory has changed.
    Seen,
}

/// The directory with the sources, and its subdirectories.
#[derive(Debug)]
pub(crate) struct ConfigDir {
    path: PathBuf,
    order: Order,
    owners: Owners,
    /// Directories as of the last scan, with the times of their last changes.
    seen: Vec<(PathBuf, Option<SystemTime>)>,
    scanned: Option<Instant>,
    /// Whether the directories may have changed since the scan without a change of their times.
    is_fresh: bool,
    /// Whether the last scan could not read everything.
    is_incomplete: bool,
    /// Files whose problems have been logged.
    logged: HashSet<PathBuf>,
}

/// Largest number of files and directories that a scan reads.
const ENTRIES: usize = 100_000;
/// Deepest directory below the configuration directory.
const DEPTH: usize = 16;
/// Twice the coarsest tick of the kernel's clock for files.
const TICK: Duration = Duration::from_millis(20);
/// Time after which a scan looks for changes that do not change a directory's time, such as those of modes.
const PERIOD: Duration = Duration::from_secs(5);

impl ConfigDir {
    pub(crate) fn new(path: PathBuf, order: Order, owners: Owners) -> ConfigDir {
        ConfigDir {
            path,
            order,
            owners,
            seen: Vec::new(),
            scanned: None,
            is_fresh: false,
            is_incomplete: false,
            logged: HashSet::new(),
        }
    }

    /// Returns whether a scan may find other sources than the last one did.
    pub(crate) fn change(&self, now: Instant) -> Change {
        let Some(scanned) = self.scanned else { return Change::Seen };
        let age = now.saturating_duration_since(scanned);
        if self.is_fresh && age >= TICK || self.seen.iter().any(|(path, time)| changed(path) != *time) {
            Change::Seen
        } else if age >= PERIOD {
            Change::Unseen
        } else {
            Change::No
        }
    }

    /// Lists the sources. Returns `None` if the system cannot say now which there are, for instance because too many files
    /// are open.
    pub(crate) fn scan(&mut self) -> Option<Vec<Found>> {
        self.seen.clear();
        self.is_incomplete = false;
        let now = SystemTime::now();
        let mut files = Vec::new();
        if let Err(e) = self.walk(&self.path.clone(), 0, &mut files) {
            self.failed(&self.path.clone(), &e, "");
        }
        // A time in the far future differs from that of the next change.
        let is_fresh = |time: &SystemTime| match now.duration_since(*time) {
            Ok(age) => age < TICK,
            Err(ahead) => ahead.duration() < PERIOD,
        };
        self.is_fresh = self.seen.iter().any(|(_, time)| time.as_ref().is_none_or(is_fresh));
        self.scanned = Some(Instant::now());
        if self.order == Order::ByName {
            files.sort_unstable();
        }
        let mut found: Vec<Found> = files.into_iter().filter_map(|path| self.source(path)).collect();
        let mut first: HashMap<Arc<str>, Arc<Path>> = HashMap::new();
        found.retain(|source| match first.get(&source.name) {
            None => first.insert(source.name.clone(), source.path.clone()).is_none(),
            Some(other) => {
                self.log(&source.path, &format!("ignored: {} is a source with the same name", other.display()));
                false
            }
        });
        (!self.is_incomplete).then_some(found)
    }

    /// Logs an error. If the same file may be readable soon, the scan is incomplete.
    fn failed(&mut self, path: &Path, e: &io::Error, consequence: &str) {
        if may_pass(e) {
            self.is_incomplete = true;
            self.log(path, &format!("{e}: the sources stay as they are"));
        } else {
            self.log(path, &format!("{consequence}{e}"));
        }
    }

    fn walk(&mut self, dir: &Path, depth: usize, files: &mut Vec<PathBuf>) -> io::Result<()> {
        if depth > DEPTH {
            return Err(io::Error::other(format!("more than {DEPTH} nested directories")));
        }
        self.seen.push((dir.to_owned(), changed(dir)));
        // A user who can write to a directory can put a link to any program there.
        self.owners.check(&dir.metadata()?).map_err(io::Error::other)?;
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if files.len() + self.seen.len() >= ENTRIES {
                return Err(io::Error::other(format!(
                    "more than {ENTRIES} files and directories; the others are ignored"
                )));
            }
            let path = entry.path();
            // Links to directories are not followed, because they could form a circle.
            if entry.file_type()?.is_dir() {
                if let Err(e) = self.walk(&path, depth + 1, files) {
                    self.failed(&path, &e, "");
                }
            } else if !entry.file_name().as_encoded_bytes().starts_with(b".") {
                files.push(path);
            }
        }
        Ok(())
    }

    /// Returns the source of a file, or `None` if the file is not a source.
    fn source(&mut self, path: PathBuf) -> Option<Found> {
        let metadata = match path.metadata() {
            Ok(metadata) => metadata,
            Err(e) => {
                self.failed(&path, &e, "ignored: ");
                return None;
            }
        };
        if !metadata.is_file() {
            self.log(&path, "ignored: neither a regular file nor a directory, or a link to a directory");
            return None;
        }
        let is_script = metadata.mode() & 0o100 != 0;
        if !is_script && path.extension().is_none_or(|end| end != "url") {
            return None;
        }
        let below = path.strip_prefix(&self.path).ok()?.with_extension("");
        let name = below.to_string_lossy().replace('/', ".");
        if name == "control" {
            self.log(&path, "ignored: the names below control are those of the agent itself");
            return None;
        }
        if !is_source_name(&name) {
            self.log(
                &path,
                "ignored: its name is no name of metrics (letters, digits, _ and ., beginning with a letter)",
            );
            return None;
        }
        Some(Found { name: name.into(), path: path.into(), kind: if is_script { Kind::Script } else { Kind::Url } })
    }

    /// Logs a problem, once for each file.
    fn log(&mut self, path: &Path, problem: &str) {
        if self.logged.len() < ENTRIES && self.logged.insert(path.to_owned()) {
            if path == self.path {
                error!("{}: {problem}", path.display());
            } else {
                warn!("{}: {problem}", path.display());
            }
        }
    }
}

fn changed(dir: &Path) -> Option<SystemTime> {
    dir.metadata().and_then(|metadata| metadata.modified()).ok()
}

fn is_source_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'))
}

/// Time that a request waits for a scan after a change, as for the first reading of a new file.
const CHANGED: Duration = Duration::from_millis(100);
/// Time that a request waits for a scan that looks for changes again.
const AGAIN: Duration = Duration::from_millis(8);

/// Requests wait for changes for at most this part of the time, although the directory may change all the time.
const PART: u32 = 20;

/// When requests wait for changes.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Option<Instant>);

impl Waiting {
    /// Returns whether a request may wait now.
    pub(crate) fn may(&self, now: Instant) -> bool {
        self.0.is_none_or(|from| now >= from)
    }

    /// Records that a request has waited.
    pub(crate) fn waited(&mut self, begin: Instant, time: Duration) {
        self.0 = begin.checked_add(time * PART);
    }
}

/// The configuration directory, and the scan in progress. Each scan has a thread of its own rather than that of a
/// [`Background`](pmda::Background), so that the next request tries again if there can be no thread.
#[derive(Debug)]
pub(crate) struct Scans {
    dir: Arc<Mutex<ConfigDir>>,
    running: Option<Receiver<Option<Vec<Found>>>>,
}

impl Scans {
    pub(crate) fn new(dir: ConfigDir) -> Scans {
        Scans { dir: Arc::new(Mutex::new(dir)), running: None }
    }

    /// Begins the first scan, and waits for it for at most `most`.
    pub(crate) fn first(&mut self, most: Duration) -> Option<Vec<Found>> {
        self.begin(ConfigDir::scan);
        self.wait(most)
    }

    /// Begins a scan if another one may find other sources. If the request may wait, it waits shortly for this scan, once,
    /// or for `longest` if the directory has changed. Returns the sources of a scan that has ended, unless it was
    /// incomplete.
    pub(crate) fn refresh(&mut self, now: Instant, may_wait: bool, longest: Option<Duration>) -> Option<Vec<Found>> {
        if self.running.is_some() {
            return self.wait(Duration::ZERO);
        }
        let time = match lock(&self.dir).change(now) {
            Change::No => return None,
            Change::Unseen => AGAIN,
            Change::Seen => longest.unwrap_or(CHANGED),
        };
        self.begin(ConfigDir::scan);
        self.wait(if may_wait { time } else { Duration::ZERO })
    }

    /// Begins a scan in a thread. If there can be no thread, the next request tries again.
    fn begin(&mut self, scan: fn(&mut ConfigDir) -> Option<Vec<Found>>) {
        let (sender, found) = sync_channel(1);
        let dir = Arc::clone(&self.dir);
        let begun = pcp_base::thread::spawn("scan", move || {
            let _ = sender.send(scan(&mut lock(&dir)));
        });
        self.running = begun.is_ok().then_some(found);
    }

    fn wait(&mut self, most: Duration) -> Option<Vec<Found>> {
        let found = self.running.as_ref()?.recv_timeout(most);
        if found != Err(RecvTimeoutError::Timeout) {
            self.running = None;
        }
        found.ok().flatten()
    }
}

fn lock(dir: &Mutex<ConfigDir>) -> MutexGuard<'_, ConfigDir> {
    dir.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::fs::symlink;

    use nix::errno::Errno;

    use super::*;
    use crate::access::Owners;

    #[test]
    fn files_that_are_sources() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        fs::create_dir_all(path.join("sub/deep")).unwrap();
        fs::create_dir_all(path.join(".git")).unwrap();
        for name in
            ["b.url", "a.url", "twice.url", "sub/deep/x.y.url", "my-source.url", "control.url", ".git/x.url", "text"]
        {
            fs::write(path.join(name), "http://localhost\n").unwrap();
        }
        for name in ["run.sh", "twice"] {
            fs::write(path.join(name), "#!/bin/sh\n").unwrap();
            fs::set_permissions(path.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        symlink("nowhere", path.join("broken.url")).unwrap();
        symlink("..", path.join("sub/up")).unwrap();
        let mut config = ConfigDir::new(path.to_owned(), Order::ByName, Owners::Trusted);
        assert_eq!(config.change(Instant::now()), Change::Seen);
        let found: Vec<_> = config.scan().unwrap().into_iter().map(|found| (found.name, found.kind)).collect();
        let expected = [
            ("a", Kind::Url),
            ("b", Kind::Url),
            ("run", Kind::Script),
            ("sub.deep.x.y", Kind::Url),
            ("twice", Kind::Script),
        ];
        assert_eq!(found, expected.map(|(name, kind)| (name.into(), kind)));
        fs::write(path.join("sub/new.url"), "http://localhost\n").unwrap();
        let begin = Instant::now();
        while config.change(Instant::now()) != Change::Seen {
            assert!(begin.elapsed() < Duration::from_secs(60));
        }
        assert!(config.scan().unwrap().iter().any(|found| *found.name == *"sub.new"));
    }

    /// Sources do not go because the system has no descriptors or no memory for a while.
    #[test]
    fn errors_that_pass() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = ConfigDir::new(dir.path().to_owned(), Order::ByName, Owners::Trusted);
        for (errno, is_incomplete) in [
            (Errno::EMFILE, true),
            (Errno::ENFILE, true),
            (Errno::ENOMEM, true),
            (Errno::EIO, true),
            (Errno::ENOENT, false),
            (Errno::EACCES, false),
            (Errno::ELOOP, false),
            (Errno::ENOTDIR, false),
        ] {
            config.is_incomplete = false;
            config.failed(dir.path(), &io::Error::from(errno), "");
            assert_eq!(config.is_incomplete, is_incomplete, "{errno}");
        }
        assert_eq!(config.scan(), Some(Vec::new()));
    }

    /// Otherwise each request would scan a directory whose time is wrong.
    #[test]
    fn a_directory_of_the_future() {
        let dir = tempfile::tempdir().unwrap();
        let time = SystemTime::now() + 1000 * PERIOD;
        fs::File::open(dir.path()).unwrap().set_modified(time).unwrap();
        let mut config = ConfigDir::new(dir.path().to_owned(), Order::ByName, Owners::Trusted);
        assert!(config.scan().is_some());
        assert!(!config.is_fresh);
        fs::write(dir.path().join("a.url"), "http://localhost\n").unwrap();
        assert_eq!(config.change(Instant::now()), Change::Seen);
    }

    #[test]
    fn directories_of_others_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::write(dir.path().join("a.url"), "http://localhost\n").unwrap();
        symlink("/bin/true", open.join("b")).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
        let names = |path: &Path, owners| {
            let found = ConfigDir::new(path.to_owned(), Order::ByName, owners).scan().unwrap();
            found.iter().map(|found| &*found.name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(dir.path(), Owners::Trusted), "a");
        assert_eq!(names(&open, Owners::Trusted), "");
        assert_eq!(names(dir.path(), Owners::Any), "a open.b");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(names(dir.path(), Owners::Trusted), "a open.b");
    }

    /// Held by the test while scans must hang.
    static HOLD: Mutex<()> = Mutex::new(());

    /// A directory that changes at each request costs the others a small part of the time.
    #[test]
    fn requests_wait_for_a_part_of_the_time() {
        let (begin, mut waiting) = (Instant::now(), Waiting::default());
        let (mut now, mut waited) = (begin, Duration::ZERO);
        while now < begin + Duration::from_secs(100) {
            if waiting.may(now) {
                waiting.waited(now, CHANGED);
                waited += CHANGED;
                now += CHANGED;
            }
            now += Duration::from_millis(1);
        }
        assert!(waited > Duration::from_secs(4) && waited <= Duration::from_secs(5), "{waited:?}");
    }

    /// A request does not wait for a scan that hangs, and no other scan begins meanwhile.
    #[test]
    fn a_scan_that_hangs() {
        fn hangs(dir: &mut ConfigDir) -> Option<Vec<Found>> {
            drop(HOLD.lock());
            dir.scan()
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.url"), "http://localhost\n").unwrap();
        let mut scans = Scans::new(ConfigDir::new(dir.path().to_owned(), Order::ByName, Owners::Trusted));
        let hold = HOLD.lock().unwrap();
        scans.begin(hangs);
        assert_eq!(scans.wait(Duration::ZERO), None);
        for _ in 0..3 {
            assert_eq!(scans.refresh(Instant::now(), true, None), None);
        }
        drop(hold);
        let begin = Instant::now();
        let found = loop {
            match scans.refresh(Instant::now(), true, None) {
                None if begin.elapsed() < Duration::from_secs(60) => std::thread::yield_now(),
                found => break found.unwrap(),
            }
        };
        assert_eq!(found.iter().map(|found| &*found.name).collect::<Vec<_>>(), ["a"]);
        assert!(scans.running.is_none());
    }
}
