//! An agent's connection together with its process.

use std::io;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use pcp_pdu::Header;

use crate::group::ProcessGroup;
use crate::{Channel, Collector, Error, Result, Stream};

/// The connection to an agent, with its process if the collector has started it.
///
/// A drop closes the agent's input, kills the agent if it still runs after 150 ms, and waits for its end.
#[derive(Debug)]
pub struct Process {
    // Closed before `running` waits for the agent's end.
    stream: Stream,
    running: Running,
}

/// The process of an agent.
#[derive(Debug)]
struct Running {
    child: Option<Child>,
    /// The processes of an isolated agent.
    group: Option<ProcessGroup>,
}

/// The way in which an agent ended after its connection was closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum End {
    /// The agent ended by itself, with this status.
    Exited(ExitStatus),
    /// Killed, after it had ignored the end of its input for 150 ms, or as long as [`Collector::close_within`] has set.
    Killed,
    /// Not started by the collector, and therefore still running.
    NotStarted,
    /// Unknown: other code in this process has waited for it.
    Unknown,
}

impl Process {
    /// Time that pmcd gives its agents when it stops.
    pub(crate) const GRACE: Duration = Duration::from_millis(150);

    pub(crate) fn new(stream: Stream, child: Option<Child>, group: Option<ProcessGroup>) -> Process {
        Process { stream, running: Running { child, group } }
    }

    /// Returns the connection, and the process if the collector has started it. The agent continues until it notices
    /// the end of its input, or is killed with its [group](crate::Launch::isolated).
    pub fn into_parts(self) -> (Stream, Option<Child>) {
        let Process { stream, mut running } = self;
        (stream, running.child.take())
    }

    pub(crate) fn set_limit(&mut self, bytes: u32) {
        self.stream.set_limit(bytes);
    }

    /// Closes the connection and waits for the end of the process.
    pub(crate) fn end(&mut self, grace: Duration) -> End {
        self.stream.close();
        self.running.end(grace)
    }
}

impl Running {
    /// Adds the exit status to the error of a connection that an ending process has closed.
    fn explain(&mut self, e: Error) -> Error {
        let status = match (&e, &mut self.child) {
            (Error::Closed, Some(child)) => wait(child, Process::GRACE).ok().flatten(),
            _ => None,
        };
        status.map_or(e, Error::Ended)
    }

    fn end(&mut self, grace: Duration) -> End {
        let killed = self.group.take().is_some_and(|group| !group.end(Instant::now() + grace));
        let end = self.child.take().map_or(End::NotStarted, |child| reap(child, grace));
        if killed && matches!(end, End::Exited(_)) { End::Killed } else { end }
    }
}

/// Waits for a process that should end, and kills it after `grace`.
pub(crate) fn reap(mut child: Child, grace: Duration) -> End {
    match wait(&mut child, grace) {
        Ok(Some(status)) => End::Exited(status),
        Ok(None) => {
            // This fails only for a process that has ended meanwhile.
            let _ = child.kill();
            let _ = child.wait();
            End::Killed
        }
        // The number may belong to another process by now.
        Err(_) => End::Unknown,
    }
}

/// Waits for the end of a process; `None` if it still runs after `grace`.
fn wait(child: &mut Child, grace: Duration) -> io::Result<Option<ExitStatus>> {
    let end = Instant::now() + grace;
    let mut pause = Duration::from_millis(1);
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(Some(status)),
            None if Instant::now() < end => thread::sleep(pause),
            None => return Ok(None),
        }
        pause = (2 * pause).min(Duration::from_millis(20));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end(Process::GRACE);
    }
}

impl Channel for Process {
    fn send(&mut self, bytes: &[u8], timeout: Option<Duration>) -> Result {
        self.stream.send(bytes, timeout).map_err(|e| self.running.explain(e))
    }

    fn receive(&mut self, pdu: &mut Vec<u8>, timeout: Option<Duration>) -> Result<Header> {
        self.stream.receive(pdu, timeout).map_err(|e| self.running.explain(e))
    }

    fn close(&mut self) {
        self.stream.close();
    }
}

impl Collector<Process> {
    /// Returns the number of the agent's process, if the collector has started one.
    pub fn pid(&self) -> Option<u32> {
        Some(self.channel().running.child.as_ref()?.id())
    }

    /// Returns the exit status of the agent's process, if it has ended.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.channel_mut().running.child.as_mut()?.try_wait().ok()?
    }

    /// Closes the connection and ends the agent, as a drop does. Returns how the agent ended.
    pub fn close(self) -> End {
        self.close_within(Process::GRACE)
    }

    /// Closes the connection, and kills the agent if it has not ended after `grace`. Returns how the agent ended.
    pub fn close_within(mut self, grace: Duration) -> End {
        self.channel_mut().end(grace)
    }
}
