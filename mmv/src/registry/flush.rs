//! Periodic flushes.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use once_cell::race::OnceBox;

use super::Inner;
#[cfg(doc)]
use super::inner::LONGEST_WAIT;
use super::inner::{Phase, State};
use crate::handle::{Output, Quantiles};
use crate::notice;
use crate::sync::Held;

const EVERY_SECOND: Duration = Duration::from_secs(1);

/// Time at which a flush writes a file after failures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Attempt {
    Now,
    /// The flush writes the file after a pause, which becomes longer with each failure.
    WhenDue,
}

impl Inner {
    /// Flushes values, and publishes lazy registrations, earlier failures to publish, and files that were removed.
    ///
    /// Does nothing if another thread has been writing the file for longer than [`LONGEST_WAIT`].
    pub(super) fn flush(&self, attempt: Attempt) {
        if !self.is_free_in_time() {
            return;
        }
        self.flush_values();
        let Some(disk) = self.lock_disk() else { return };
        let Some(mut state) = self.lock() else { return };
        let not_copied = self.copy_changes(&mut state);
        let hidden_by = self.look_for_file(&mut state);
        let error =
            if attempt == Attempt::Now || state.backoff.is_due() { self.publish_in_time(&mut state) } else { None };
        drop((state, disk));
        self.log(error);
        self.log_hidden(hidden_by);
        if let Some(e) = not_copied {
            notice::warn(format_args!("{}: readers see old values, as writing failed: {e}", self.options.name));
        }
    }

    /// Flushes and publishes for the last time.
    pub(super) fn flush_last(&self) {
        self.flush_values();
        let disk = self.lock_disk();
        let error = self.lock().and_then(|mut state| {
            _ = self.copy_changes(&mut state);
            self.publish_in_time(&mut state)
        });
        drop(disk);
        self.log(error);
    }

    fn publish_in_time(&self, state: &mut State) -> Option<io::Error> {
        if state.batches == 0 { self.publish_if_stale(state) } else { None }
    }

    fn flush_values(&self) {
        let Some(mut state) = self.lock() else { return };
        let flushes = state.shared.flushes();
        drop(state);
        flushes.iter().for_each(|what| what.flush());
        self.distributions.flush();
    }

    /// Writes changed values to a file that is not their home. Returns only the first of consecutive errors.
    #[must_use]
    fn copy_changes(&self, state: &mut State) -> Option<io::Error> {
        let (contents, Phase::Exporting(published)) = state.contents()? else { return None };
        // If the program has closed the file, it is opened again.
        published.file.get().ok()?;
        let result = published.copy(&contents);
        let warned = std::mem::replace(&mut state.warned_of_copy, result.is_err());
        result.err().filter(|_| !warned)
    }

    /// Adds a distribution, whose quantiles each flush computes.
    pub(crate) fn add_distribution(self: &Arc<Self>, period: Duration, resolution: f64, output: Output) -> Quantiles {
        let quantiles = self.distributions.add(period, resolution, output);
        let no_thread = self.lock().and_then(|mut state| self.ensure_thread(&mut state));
        self.log_no_thread(no_thread);
        quantiles
    }

    /// Starts the flush thread if there is something to flush. Returns an error that the caller must
    /// [log](Inner::log_no_thread) once nothing is locked.
    #[must_use]
    pub(super) fn ensure_thread(self: &Arc<Self>, state: &mut State) -> Option<io::Error> {
        let period = self.options.flush_every.unwrap_or(EVERY_SECOND);
        let (contents, Phase::Exporting(published)) = state.contents()? else { return None };
        let needed = self.options.lazy
            || self.options.flush_every.is_some()
            || published.is_copied(contents.home)
            || state.shared.has_flushes()
            || !self.distributions.is_empty();
        if !needed || period.is_zero() || state.thread.is_some() {
            return None;
        }
        let weak = Arc::downgrade(self);
        let own = Arc::new(OnceBox::new());
        let of_thread = Arc::clone(&own);
        let spawned = pcp_base::thread::spawn_without_signals("mmv", move || {
            of_thread.get_or_init(|| Box::new(thread::current()));
            while exporting(&weak).is_some() {
                thread::park_timeout(period);
                let Some(inner) = exporting(&weak) else { return };
                inner.flush(Attempt::WhenDue);
                inner.end_if_due();
            }
        });
        match spawned {
            Ok(()) => {
                state.thread = Some(own);
                self.lacks_thread.store(false, Relaxed);
            }
            Err(e) => {
                state.thread_pauses.failed(&[EVERY_SECOND]);
                self.lacks_thread.store(true, Relaxed);
                let is_first = !std::mem::replace(&mut state.warned_of_thread, true);
                return is_first.then_some(e);
            }
        }
        None
    }

    /// Starts the flush thread if that has failed, for example at the limit of threads, and a second has passed.
    #[inline]
    pub(crate) fn retry_thread(self: &Arc<Self>) {
        if self.lacks_thread.load(Relaxed) {
            self.retry_thread_now();
        }
    }

    #[cold]
    fn retry_thread_now(self: &Arc<Self>) {
        let due = |state: &Held<'_, State>| state.thread_pauses.is_due();
        let no_thread = self.lock().filter(due).and_then(|mut state| self.ensure_thread(&mut state));
        self.log_no_thread(no_thread);
    }

    pub(super) fn log_no_thread(&self, error: Option<io::Error>) {
        if let Some(e) = error {
            notice::warn(format_args!("{}: some values are not exported: no flush thread: {e}", self.options.name));
        }
    }
}

/// Returns the registry while this process exports it.
fn exporting(inner: &Weak<Inner>) -> Option<Arc<Inner>> {
    inner.upgrade().filter(|inner| inner.lock().is_some_and(|state| matches!(state.phase, Phase::Exporting(_))))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;
    use crate::Registry;

    const LONG: Duration = Duration::from_secs(20);

    /// The flush thread ends the export once the disk answers, also of a registry that was dropped in the meantime.
    #[test]
    fn an_export_ends_in_a_limited_time_while_the_disk_hangs() {
        for is_dropped in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let registry = Registry::builder("test").directory(dir.path()).flush_every(Duration::from_millis(20));
            let registry = registry.build().unwrap();
            let counter: crate::Counter = registry.counter("counter").register().unwrap();
            registry.try_start().unwrap();
            let path = registry.path().unwrap();
            let inner = Arc::clone(registry.inner());
            // As a thread whose disk hangs.
            let (disk, state) = (inner.lock_disk().unwrap(), inner.lock().unwrap());
            let (done, is_done) = mpsc::channel();
            let kept = (!is_dropped).then(|| registry.clone());
            thread::spawn(move || {
                let start = Instant::now();
                registry.flush();
                counter.inc();
                if is_dropped {
                    drop(registry);
                } else {
                    registry.stop();
                }
                done.send(start.elapsed()).unwrap();
            });
            let took = is_done.recv_timeout(LONG);
            let existed = path.exists();
            drop((state, disk));
            drop(inner);
            assert!(took.is_ok_and(|took| took < LONG / 2) && existed, "{took:?} {existed}");
            let start = Instant::now();
            while path.exists() {
                assert!(start.elapsed() < LONG, "the export goes on");
                thread::sleep(Duration::from_millis(10));
            }
            drop(kept);
        }
    }

    #[test]
    fn an_export_that_was_to_end_and_is_started_again_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::builder("test").directory(dir.path()).build().unwrap();
        let counter: crate::Counter = registry.counter("counter").register().unwrap();
        registry.try_start().unwrap();
        let held = registry.inner().lock().unwrap();
        thread::scope(|scope| scope.spawn(|| registry.stop()).join().unwrap());
        drop(held);
        registry.try_start().unwrap();
        counter.inc();
        registry.counter("another").register().unwrap();
        assert!(registry.path().is_some_and(|path| path.exists()));
        registry.stop();
        assert!(registry.path().is_none() && std::fs::read_dir(dir.path()).unwrap().next().is_none());
    }
}
