//! Scans of the configuration directory, in threads: a directory may be large, and a link may lead to a file system that
//! does not answer.

use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::config_dir::{Change, ConfigDir, Found};

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

/// The configuration directory, and the scan in progress.
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
    use super::*;
    use crate::config_dir::Order;
    use crate::trust::Owners;

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
