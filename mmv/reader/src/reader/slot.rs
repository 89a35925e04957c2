//! Files that stay open between requests.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A file that may be open.
///
/// The last process that closes a deleted file frees its memory and blocks, which takes more than 50 ms for a GiB. The
/// owner of a file can let it grow while this process has it open, and then delete it. A thread therefore closes large
/// files.
#[derive(Debug, Default)]
pub(crate) struct Slot(Option<fs::File>);

/// Largest file that is closed at once, in bytes.
const SMALL: u64 = 1 << 20;

/// Largest number of files that wait to be closed. Further ones are closed at once.
const WAITING: usize = 256;

/// Files that wait to be closed, and whether there is a thread for them.
static CLOSING: Mutex<(VecDeque<fs::File>, bool)> = Mutex::new((VecDeque::new(), false));

impl Slot {
    pub(crate) fn new(file: fs::File) -> Slot {
        Slot(Some(file))
    }

    pub(crate) fn get(&self) -> Option<&fs::File> {
        self.0.as_ref()
    }

    /// Returns the file, or opens it.
    ///
    /// # Errors
    /// Those of `open`.
    pub(crate) fn get_or_open<E>(&mut self, open: impl FnOnce() -> Result<fs::File, E>) -> Result<&fs::File, E> {
        let file = match self.0.take() {
            Some(file) => file,
            None => open()?,
        };
        Ok(self.0.insert(file))
    }

    /// Closes the file.
    pub(crate) fn close(&mut self) {
        if let Some(file) = self.0.take().filter(is_large) {
            close_apart(file);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.close();
    }
}

/// Returns whether closing a file may take long. Reading a file's holes takes memory, too.
fn is_large(file: &fs::File) -> bool {
    file.metadata().is_ok_and(|m| m.len().max(m.blocks().saturating_mul(512)) > SMALL)
}

/// Lets a thread close a file. The thread ends after the last file.
fn close_apart(file: fs::File) {
    let mut closing = lock();
    if closing.0.len() >= WAITING {
        return;
    }
    closing.0.push_back(file);
    if !closing.1 {
        closing.1 = pmapi::thread::spawn("mmv close", close_all).is_ok();
        if !closing.1 {
            closing.0.clear();
        }
    }
    #[cfg(test)]
    APART.set(APART.get() + 1);
}

fn close_all() {
    loop {
        let mut closing = lock();
        let Some(file) = closing.0.pop_front() else {
            closing.1 = false;
            return;
        };
        drop(closing);
        drop(file);
    }
}

fn lock() -> MutexGuard<'static, (VecDeque<fs::File>, bool)> {
    CLOSING.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
thread_local! {
    /// Number of files of this thread that another thread closes.
    pub(crate) static APART: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_thread_closes_large_files() {
        let dir = tempfile::tempdir().unwrap();
        let open = |name: &str, len| {
            let file = fs::File::create(dir.path().join(name)).unwrap();
            file.set_len(len).unwrap();
            Slot::new(file)
        };
        let apart = APART.get();
        drop(open("small", SMALL));
        assert_eq!(APART.get(), apart);
        (0..10).for_each(|n| drop(open(&format!("large{n}"), SMALL + 1)));
        assert_eq!(APART.get(), apart + 10);
        let is_open = || {
            let fds = fs::read_dir("/proc/self/fd").unwrap().flatten();
            fds.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|path| path.parent() == Some(dir.path()))
        };
        let start = Instant::now();
        while is_open() {
            assert!(start.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
