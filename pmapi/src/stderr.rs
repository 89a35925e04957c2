//! A line on standard error from within an application.

use std::io;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{Whence, lseek, write};

/// Longest line in bytes: a pipe that is ready takes as much without blocking (`PIPE_BUF`).
const LONGEST: usize = 4096;

/// Writes a line to standard error, unless that could block or end the application. Returns whether it was written.
///
/// It is not written to a pipe or terminal that is full, a pipe without a reader, a closed descriptor, or a file that would
/// exceed `RLIMIT_FSIZE`. The lock of [`io::Stderr`] is not used: another thread may have held it when this process was
/// forked.
pub fn tell(text: &str) -> bool {
    let mut line = text.as_bytes().to_vec();
    line.truncate(LONGEST - 1);
    line.push(b'\n');
    is_safe(line.len() as u64).unwrap_or(false) && {
        // A background process may not write to some terminals (stty tostop); with the signal blocked, it may.
        let before = SigSet::from(Signal::SIGTTOU).thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK);
        let written = write(io::stderr(), &line);
        if let Ok(before) = before {
            _ = before.thread_set_mask();
        }
        written.is_ok()
    }
}

/// Returns whether standard error takes `len` bytes at once, without a signal.
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
