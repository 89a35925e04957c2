//! Standard error of a started agent, in the log of this process.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::process::Command;
use std::thread;

use nix::fcntl::OFlag;
use nix::sys::signal::SigSet;
use nix::unistd::pipe2;
use tracing::warn;

/// Read end of a pipe, whose write end is the standard error of an agent.
pub(crate) struct StandardError(File);

impl StandardError {
    /// Longest line, in bytes. The rest of a longer line becomes the next line.
    const LINE: usize = 1024;

    /// Creates a pipe, whose write end becomes the standard error of `command`.
    pub(crate) fn of(command: &mut Command) -> io::Result<StandardError> {
        let (from, to) = pipe2(OFlag::O_CLOEXEC)?;
        command.stderr(to);
        Ok(StandardError(from.into()))
    }

    /// Starts a thread that logs each line until all write ends are closed.
    pub(crate) fn log(self, agent: String) -> io::Result<()> {
        let mut lines = BufReader::with_capacity(Self::LINE, self.0);
        thread::Builder::new().name("stderr".into()).spawn(move || {
            // In a shared object, signals are for pmcd's own thread.
            let _ = SigSet::all().thread_block();
            let mut line = Vec::new();
            loop {
                line.clear();
                match (&mut lines).take(Self::LINE as u64).read_until(b'\n', &mut line) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {
                        let text = String::from_utf8_lossy(&line);
                        warn!(source = agent, "agent {agent}: {}", text.trim_end_matches('\n'));
                    }
                }
            }
        })?;
        Ok(())
    }
}
