//! The files of tables. A thread writes them, so that neither requests nor readings wait for the disk. Its
//! data go the other way than those of a [`Background`](pmda::Background).

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use pcp_base::file;
use pmapi::Domain;
use tracing::error;

/// Largest file that is read, in bytes.
const LONGEST: u64 = 256 << 20;
/// Longest time that the end of the agent waits for the disk.
const LAST: Duration = Duration::from_secs(60);
/// Time after which files that could not be written are written again.
const RETRY: Duration = Duration::from_secs(10);

/// Bytes that may be written at once, and bytes per second after that. Otherwise a source whose names change all the time
/// would keep the disk busy.
const AT_ONCE: u64 = 64 << 20;
const PER_SECOND: u64 = 1 << 20;
/// Bytes that a file counts as, besides its content.
const FILE: u64 = 4 << 10;

/// Returns whether an error of the system may pass, so that a file that cannot be read now can be read later.
pub(crate) fn may_pass(e: &io::Error) -> bool {
    use Errno::{EAGAIN, EINTR, EIO, EMFILE, ENFILE, ENOMEM, ESTALE, ETIMEDOUT};
    let passing = [EAGAIN, EINTR, EIO, EMFILE, ENFILE, ENOMEM, ESTALE, ETIMEDOUT];
    e.raw_os_error().is_some_and(|code| passing.iter().any(|errno| *errno as i32 == code))
}

/// The directory of the tables, and their contents that are not written yet.
#[derive(Debug)]
pub(crate) struct Store {
    dir: PathBuf,
    domain: Domain,
    state: Mutex<State>,
    /// Notified when the thread that writes ends, and when it is not to wait for [`Pace`].
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Contents by number, each until it is written.
    unwritten: HashMap<u32, Arc<[u8]>>,
    /// Numbers of the files to write now. The others of `unwritten` could not be written.
    due: BTreeSet<u32>,
    /// Whether there is a thread that writes.
    is_writing: bool,
    /// Whether the agent ends, so that nothing is waited for.
    is_closing: bool,
    pace: Pace,
    /// Time of the last failure.
    failed: Option<Instant>,
}

/// The rate of what is written.
#[derive(Debug, Default)]
struct Pace {
    /// Time at which [`AT_ONCE`] may be written again.
    until: Option<Instant>,
}

impl Pace {
    /// Returns how long to wait before the next file.
    fn wait(&self, now: Instant) -> Duration {
        let used = self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        used.saturating_sub(Duration::from_secs(AT_ONCE / PER_SECOND))
    }

    fn wrote(&mut self, now: Instant, len: usize) {
        let time = Duration::from_secs_f64((len as u64 + FILE) as f64 / PER_SECOND as f64);
        self.until = Some(self.until.map_or(now, |until| until.max(now)) + time);
    }
}

impl Store {
    pub(crate) fn new(dir: PathBuf, domain: Domain) -> Arc<Store> {
        Arc::new(Store { dir, domain, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Returns the path of a table's file. The number is that of a source, or of an instance domain.
    pub(crate) fn path(&self, number: u32) -> PathBuf {
        self.dir.join(format!("{}.{number}.py", self.domain.get()))
    }

    /// Returns the content that a table was last saved with.
    ///
    /// # Errors
    /// Those of reading the file.
    pub(crate) fn load(&self, number: u32) -> io::Result<Vec<u8>> {
        if let Some(unwritten) = self.lock().unwritten.get(&number) {
            return Ok(unwritten.to_vec());
        }
        file::read(&self.path(number), LONGEST)
    }

    /// Lets the thread write the content of a table. An older content that it has not begun to write is dropped.
    pub(crate) fn save(self: &Arc<Self>, number: u32, content: Vec<u8>) {
        let mut state = self.lock();
        state.unwritten.insert(number, content.into());
        state.due.insert(number);
        self.start(state);
    }

    /// Writes files again that could not be written some time ago.
    pub(crate) fn retry(self: &Arc<Self>) {
        let mut state = self.lock();
        if state.is_writing || state.failed.is_none_or(|failed| failed.elapsed() < RETRY) {
            return;
        }
        state.failed = None;
        state.due = state.unwritten.keys().copied().collect();
        self.start(state);
    }

    /// Waits until all files have been written, or could not be written. A disk that hangs is not waited for.
    pub(crate) fn flush(&self) {
        let (begin, mut state) = (Instant::now(), self.lock());
        state.is_closing = true;
        self.changed.notify_all();
        while state.is_writing && begin.elapsed() < LAST {
            state = self.changed.wait_timeout(state, LAST).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_closing = false;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread that writes, unless it runs. If there can be no thread, the caller writes.
    fn start(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        if std::mem::replace(&mut state.is_writing, true) {
            return;
        }
        drop(state);
        let own = Arc::clone(self);
        if pcp_base::thread::spawn("writer", move || own.write()).is_err() {
            self.write();
        }
    }

    /// Writes files until none is due.
    fn write(&self) {
        let mut state = self.lock();
        while let Some(number) = state.due.first().copied() {
            let now = Instant::now();
            let rest = state.pace.wait(now);
            if !rest.is_zero() && !state.is_closing {
                state = self.changed.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            state.due.remove(&number);
            let Some(content) = state.unwritten.get(&number).cloned() else { continue };
            state.pace.wrote(now, content.len());
            drop(state);
            // A file is replaced by renaming a new one, so an agent that is killed meanwhile leaves the old file. The new
            // file does not follow links, which another user may have put in its place.
            let path = self.path(number);
            let written = file::replace(&path, &content);
            state = self.lock();
            match written {
                // The content may be another one by now, which is due.
                Ok(()) if state.unwritten.get(&number).is_some_and(|now| Arc::ptr_eq(now, &content)) => {
                    state.unwritten.remove(&number);
                }
                Ok(()) => {}
                Err(e) => {
                    error!("{}: {e}: new names may get other numbers after a restart", path.display());
                    state.failed = Some(Instant::now());
                }
            }
        }
        // The memory for very many files is not needed again.
        state.unwritten.shrink_to_fit();
        state.is_writing = false;
        self.changed.notify_all();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;

    fn store(dir: &std::path::Path) -> Arc<Store> {
        Store::new(dir.to_owned(), Domain::new(144).unwrap())
    }

    #[test]
    fn the_last_content_counts() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        for round in 0..100_u32 {
            for number in 0..5 {
                store.save(number, round.to_string().into_bytes());
                assert_eq!(store.load(number).unwrap(), round.to_string().as_bytes());
            }
        }
        store.flush();
        assert!(store.lock().unwritten.is_empty());
        for number in 0..5 {
            assert_eq!(fs::read(dir.path().join(format!("144.{number}.py"))).unwrap(), b"99");
        }
    }

    #[test]
    fn what_is_written_has_a_pace() {
        let (mut pace, begin) = (Pace::default(), Instant::now());
        let mut written = 0;
        while pace.wait(begin).is_zero() {
            pace.wrote(begin, 6 << 20);
            written += 6;
        }
        assert!((64..=70).contains(&written), "{written} MiB");
        let wait = pace.wait(begin);
        assert!(wait <= Duration::from_secs(7), "{wait:?}");
        assert!(pace.wait(begin + wait).is_zero());
        // Very many small files count, too.
        let files = (0..).take_while(|_| {
            pace.wrote(begin, 0);
            pace.wait(begin + Duration::from_secs(1000)).is_zero()
        });
        assert!(files.count() < 300_000);
    }

    /// Tables of a source that changes all the time wait. The last content is written in any case.
    #[test]
    fn the_end_waits_for_no_pace() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let path = dir.path().join("144.1.py");
        store.lock().pace.until = Instant::now().checked_add(1000 * LAST);
        for round in 0..100_u32 {
            store.save(1, round.to_string().into_bytes());
            store.save(2, round.to_string().into_bytes());
        }
        let begin = Instant::now();
        assert!(!path.exists() && store.load(1).unwrap() == b"99");
        store.flush();
        assert_eq!(fs::read(path).unwrap(), b"99");
        assert!(store.lock().unwritten.is_empty() && begin.elapsed() < LAST);
    }

    /// A content that cannot be written is kept, and written when that is possible.
    #[test]
    fn a_directory_that_is_missing_for_some_time() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        let store = store(&missing);
        store.save(1, b"one".to_vec());
        store.flush();
        assert_eq!(store.load(1).unwrap(), b"one");
        fs::create_dir(&missing).unwrap();
        store.retry();
        store.flush();
        assert!(!missing.join("144.1.py").exists(), "it is too early");
        store.lock().failed = Instant::now().checked_sub(RETRY);
        store.retry();
        store.flush();
        assert_eq!(fs::read(missing.join("144.1.py")).unwrap(), b"one");
        assert!(store.lock().unwritten.is_empty());
    }
}
