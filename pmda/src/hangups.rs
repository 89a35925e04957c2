//! SIGHUP, by which administrators tell an agent to look at its configuration again.

use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::SIGHUP;

/// SIGHUP, from the moment on that this is made: the signal no longer ends the process. For the `main` of an agent:
/// pmcd, which loads shared objects, has its own use for it.
///
/// Readable after a signal, for [`PollSet::readable`](crate::poll::PollSet::readable).
#[derive(Debug)]
pub struct Hangups(UnixStream);

impl Hangups {
    /// Catches the signal.
    pub fn catch() -> io::Result<Hangups> {
        let (signals, ours) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGHUP, signals)?;
        Ok(Hangups(ours))
    }

    /// Whether there has been a signal since the last call.
    pub fn take(&self) -> bool {
        let mut signals = [0; 64];
        (&self.0).read(&mut signals).is_ok_and(|n| n > 0)
    }
}

impl AsFd for Hangups {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
