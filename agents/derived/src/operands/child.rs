//! Processes that end with this one.

use std::io::{self, BufRead as _, BufReader, PipeReader, Read as _};
use std::process::Command;
use std::thread;

use nix::sys::signal::SigSet;
use nix::unistd::{getegid, geteuid};
use pcp_pdu::handshake::Attribute;
use pmda::collector::{self, Collector, Process};
use tracing::warn;

/// In every agent that this one has started: such an agent starts none, or a configuration could go round in circles.
const NESTED: &str = "PMDADERIVED_OPERAND";

/// Whether this process is an agent that was started for its metrics itself.
pub(super) fn is_nested() -> bool {
    std::env::var_os(NESTED).is_some()
}

/// The command that starts an agent. What it writes to its standard error comes by [`Complaints`].
pub(super) fn command(words: &[String]) -> Command {
    let mut words = words.iter().map(String::as_str);
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).env(NESTED, "1");
    command
}

/// The standard error of an agent, on its way to the log. The log has no more of it than of anybody's lines.
pub(super) struct Complaints(PipeReader);

impl Complaints {
    /// Longest line, in bytes: the rest of a longer one is the next.
    const LINE: usize = 1024;

    /// Gives a command the other end.
    pub(super) fn of(command: &mut Command) -> io::Result<Complaints> {
        let (from, to) = io::pipe()?;
        command.stderr(to);
        Ok(Complaints(from))
    }

    /// Starts the thread that reads lines, until nobody can write them.
    pub(super) fn log(self, agent: &str) -> io::Result<()> {
        let agent = agent.to_owned();
        let mut lines = BufReader::with_capacity(Self::LINE, self.0);
        thread::Builder::new().name("complaints".into()).spawn(move || {
            // In pmcd, which loads the shared object, signals are for its own thread.
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

/// Tells an agent that wants to know for whom it works: for this process.
pub(super) fn introduce(agent: &mut Collector<Process>) -> collector::Result {
    agent.attribute(Attribute::USERID, &geteuid().to_string())?;
    agent.attribute(Attribute::GROUPID, &getegid().to_string())?;
    agent.attribute(Attribute::PROCESSID, &std::process::id().to_string())?;
    Ok(())
}
