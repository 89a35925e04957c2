//! SIGHUP, by which administrators make an agent reload its configuration.

use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::SIGHUP;

/// Receiver of SIGHUP, which then no longer ends the process. It is for the `main` of an agent: pmcd, which loads
/// shared objects, uses the signal itself.
///
/// It is readable after a signal, for [`PollSet::readable`](crate::PollSet::readable).
#[derive(Debug)]
pub struct Sighup(UnixStream);

impl Sighup {
    /// Installs a handler for the signal.
    ///
    /// # Errors
    /// The error of socketpair(2) or sigaction(2).
    pub fn catch() -> io::Result<Sighup> {
        let (signals, ours) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGHUP, signals)?;
        Ok(Sighup(ours))
    }

    /// Returns whether the signal has arrived since the last call.
    pub fn take(&self) -> bool {
        let mut signals = [0; 64];
        (&self.0).read(&mut signals).is_ok_and(|n| n > 0)
    }
}

impl AsFd for Sighup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
