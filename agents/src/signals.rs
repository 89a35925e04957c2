//! The signals that end the program in an orderly way.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// What has asked the program to end.
#[derive(Debug)]
pub(crate) struct Signals(Arc<AtomicUsize>);

impl Signals {
    /// From now on signals do not end the program by themselves.
    pub(crate) fn catch() -> io::Result<Signals> {
        let received = Arc::new(AtomicUsize::new(0));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            flag::register_usize(signal, received.clone(), signal as usize)?;
        }
        Ok(Signals(received))
    }

    /// The last signal.
    pub(crate) fn received(&self) -> Option<usize> {
        Some(self.0.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }
}
