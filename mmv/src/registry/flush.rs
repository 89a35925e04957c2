//! What is brought to the file from time to time.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::Inner;
use super::inner::{Phase, State};
use super::publish::process;
use crate::handle::{Output, Quantiles};

const EVERY_SECOND: Duration = Duration::from_secs(1);

impl Inner {
    /// Flushes, and publishes what was registered lazily, or could not be published before, or was removed by others. What
    /// fails again and again is tried at ever longer intervals, unless it is to be tried `now`.
    pub(super) fn flush(&self, now: bool) {
        self.flush_values();
        let Some(mut state) = self.lock() else { return };
        let not_copied = if state.exports() { self.copy_changes(&mut state) } else { None };
        self.look_for_file(&mut state);
        let rests = state.rest.is_some_and(|(until, _)| Instant::now() < until);
        let error = if now || !rests { self.publish_in_time(&mut state) } else { None };
        drop(state);
        self.log(error);
        if let Some(e) = not_copied {
            tracing::warn!(target: "mmv", "{}: values are not exported to PCP: {e}", self.options.name);
        }
    }

    /// Flushes, and publishes what was registered lazily, for the last time.
    pub(super) fn flush_last(&self) {
        self.flush_values();
        let error = self.lock().and_then(|mut state| {
            if state.exports() {
                self.copy_changes(&mut state);
            }
            self.publish_in_time(&mut state)
        });
        self.log(error);
    }

    fn publish_in_time(&self, state: &mut State) -> Option<io::Error> {
        if state.batches == 0 { self.publish_if_stale(state) } else { None }
    }

    fn flush_values(&self) {
        let Some(mut state) = self.lock() else { return };
        let (flushes, parents) =
            (state.shared.flushes(), matches!(state.phase, Phase::Exporting(_)) && !state.exports());
        drop(state);
        flushes.iter().for_each(|what| what.flush());
        // A parent's quantiles are not those of its child.
        if !parents {
            self.distributions.flush();
        }
    }

    /// Adds a distribution, whose quantiles are flushed.
    pub(crate) fn add_distribution(self: &Arc<Self>, period: Duration, resolution: f64, output: Output) -> Quantiles {
        let quantiles = self.distributions.add(period, resolution, output);
        let no_thread = self.lock().and_then(|mut state| self.ensure_thread(&mut state));
        self.log_no_thread(no_thread);
        quantiles
    }

    /// Starts the thread that flushes, when there is something to flush for it. An error is to be
    /// [logged](Inner::log_no_thread) when nothing is locked.
    #[must_use]
    pub(super) fn ensure_thread(self: &Arc<Self>, state: &mut State) -> Option<io::Error> {
        let period = self.options.flush_every.unwrap_or(EVERY_SECOND);
        let Phase::Exporting(published) = &state.phase else { return None };
        let flushes = || state.shared.has_flushes() || !self.distributions.is_empty();
        let needed = self.options.lazy || self.options.flush_every.is_some() || published.is_copied() || flushes();
        // A child that was forked has none of its parent's threads.
        let running = || state.thread.as_ref().is_some_and(|(owner, _)| *owner == process());
        if !needed || period.is_zero() || running() || !state.exports() {
            return None;
        }
        let weak = Arc::downgrade(self);
        let run = move || loop {
            thread::park_timeout(period);
            let Some(inner) = weak.upgrade() else { return };
            if !inner.lock().is_some_and(|state| state.exports()) {
                return;
            }
            inner.flush(false);
        };
        match thread::Builder::new().name("mmv".into()).spawn(run) {
            Ok(handle) => state.thread = Some((process(), handle.thread().clone())),
            Err(e) => return Some(e).filter(|_| !std::mem::replace(&mut state.warned_of_thread, true)),
        }
        None
    }

    pub(super) fn log_no_thread(&self, error: Option<io::Error>) {
        if let Some(e) = error {
            tracing::warn!(target: "mmv", "{}: no thread for flushing: {e}", self.options.name);
        }
    }
}
