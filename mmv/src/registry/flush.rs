//! What is brought to the file from time to time.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::Inner;
use super::inner::{Phase, State};
use crate::handle::Flush;

const EVERY_SECOND: Duration = Duration::from_secs(1);

impl Inner {
    /// Flushes, and publishes what was registered lazily.
    pub(super) fn flush(&self) {
        let flushes = self.lock().shared.flushes();
        flushes.iter().for_each(|what| what.flush());
        let mut state = self.lock();
        let error = if state.batches == 0 { self.publish_if_stale(&mut state) } else { None };
        drop(state);
        self.log(error);
    }

    /// Has something flushed.
    pub(crate) fn add_flush<T: Flush + 'static>(self: &Arc<Self>, what: &Arc<T>) {
        let mut state = self.lock();
        state.shared.add_flush(what);
        self.ensure_thread(&mut state);
    }

    /// Starts the thread that flushes, when there is something to flush for it.
    pub(super) fn ensure_thread(self: &Arc<Self>, state: &mut State) {
        let period = self.options.flush_every.unwrap_or(EVERY_SECOND);
        let needed = self.options.lazy || self.options.flush_every.is_some() || state.shared.has_flushes();
        if !needed || period.is_zero() || state.thread.is_some() || !matches!(state.phase, Phase::Exporting(_)) {
            return;
        }
        let weak = Arc::downgrade(self);
        let run = move || loop {
            thread::park_timeout(period);
            let Some(inner) = weak.upgrade() else { return };
            if !matches!(inner.lock().phase, Phase::Exporting(_)) {
                return;
            }
            inner.flush();
        };
        match thread::Builder::new().name("mmv".into()).spawn(run) {
            Ok(handle) => state.thread = Some(handle.thread().clone()),
            Err(e) => tracing::warn!(target: "mmv", "{}: no thread for flushing: {e}", self.options.name),
        }
    }
}
