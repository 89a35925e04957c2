//! Signals that end the program after it has ended its agents.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// Number of the last signal that has arrived.
#[derive(Debug)]
pub(crate) struct Signals(Arc<AtomicUsize>);

impl Signals {
    /// Catches the signals, which no longer end the program by themselves.
    pub(crate) fn catch() -> io::Result<Signals> {
        let received = Arc::new(AtomicUsize::new(0));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            flag::register_usize(signal, received.clone(), signal as usize)?;
        }
        Ok(Signals(received))
    }

    /// Returns the number of the last signal.
    pub(crate) fn received(&self) -> Option<usize> {
        Some(self.0.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }
}
