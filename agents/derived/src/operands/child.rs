//! Child processes that are agents.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::process::Command;
use std::thread;

use nix::fcntl::OFlag;
use nix::sys::signal::SigSet;
use nix::unistd::{getegid, geteuid, pipe2};
use pcp_collector::{Collector, Process};
use pcp_pdu::handshake::Attribute;
use tracing::warn;

/// Environment variable that is set in every agent started by this one. Such an agent starts none itself, because a
/// configuration could start agents in an endless cycle.
const NESTED: &str = "PMDADERIVED_OPERAND";

/// Returns whether this process is itself an agent that was started for its metrics.
pub(super) fn is_nested() -> bool {
    std::env::var_os(NESTED).is_some()
}

/// Returns the command that starts an agent. [`Complaints`] reads its standard error.
pub(super) fn command(words: &[String]) -> Command {
    let mut words = words.iter().map(String::as_str);
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).env(NESTED, "1");
    command
}

/// Standard error of an agent, to be copied to the log at the log's limited rate.
pub(super) struct Complaints(File);

impl Complaints {
    /// Longest line, in bytes. The rest of a longer line becomes the next line.
    const LINE: usize = 1024;

    /// Creates a pipe, whose write end becomes the standard error of `command`.
    pub(super) fn of(command: &mut Command) -> io::Result<Complaints> {
        let (from, to) = pipe2(OFlag::O_CLOEXEC)?;
        command.stderr(to);
        Ok(Complaints(from.into()))
    }

    /// Starts a thread that logs each line until all write ends are closed.
    pub(super) fn log(self, agent: &str) -> io::Result<()> {
        let agent = agent.to_owned();
        let mut lines = BufReader::with_capacity(Self::LINE, self.0);
        thread::Builder::new().name("complaints".into()).spawn(move || {
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

/// Sends the client attributes of this process to an agent: user, group and process identifier.
pub(super) fn introduce(agent: &mut Collector<Process>) -> pcp_collector::Result {
    agent.attribute(Attribute::USERID, &geteuid().to_string())?;
    agent.attribute(Attribute::GROUPID, &getegid().to_string())?;
    agent.attribute(Attribute::PROCESSID, &std::process::id().to_string())?;
    Ok(())
}
