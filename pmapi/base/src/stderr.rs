//! A line on standard error from within an application.

use std::io::{self, IoSlice};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{SFlag, fstat};
use nix::sys::uio::writev;
use nix::unistd::{Whence, lseek};

/// Longest line in bytes: a pipe that is ready accepts this many without blocking (`PIPE_BUF`).
const LONGEST: usize = 4096;

/// Writes a line to standard error, unless that could block or end the application. Returns whether it was written.
///
/// It is not written to a pipe or terminal that is full, a pipe without a reader, a closed descriptor, or a file that
/// would exceed `RLIMIT_FSIZE`. The lock of [`io::Stderr`] is not used: another thread may have held it when this
/// process was forked. No memory is allocated, so a signal handler may call this.
pub fn tell(text: &str) -> bool {
    let text = text.as_bytes();
    let line = [IoSlice::new(text.get(..LONGEST - 1).unwrap_or(text)), IoSlice::new(b"\n")];
    let len: usize = line.iter().map(|part| part.len()).sum();
    is_safe(len as u64).unwrap_or(false) && {
        // A background process may not write to some terminals (stty tostop); it may if the signal is blocked.
        let before = SigSet::from(Signal::SIGTTOU).thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK);
        let written = writev(io::stderr(), &line);
        if let Ok(before) = before {
            _ = before.thread_set_mask();
        }
        written.is_ok()
    }
}

/// Returns whether standard error accepts `len` bytes at once, without a signal.
fn is_safe(len: u64) -> nix::Result<bool> {
    let stderr = io::stderr();
    let mut ready = [PollFd::new(std::os::fd::AsFd::as_fd(&stderr), PollFlags::POLLOUT)];
    poll(&mut ready, PollTimeout::ZERO)?;
    if ready.iter().any(|fd| fd.revents() != Some(PollFlags::POLLOUT)) {
        return Ok(false);
    }
    let stat = fstat(&stderr)?;
    if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
        return Ok(true);
    }
    // Whether the file is opened for appending or not.
    let end = stat.st_size.max(lseek(&stderr, 0, Whence::SeekCur)?);
    let (most, _) = getrlimit(Resource::RLIMIT_FSIZE)?;
    Ok(u64::try_from(end).is_ok_and(|end| end.saturating_add(len) <= most))
}
