//! Agents that are started again when they fail.

use std::fmt;
use std::time::{Duration, Instant};

use nix::unistd::{getegid, geteuid};
use pcp_base::backoff::{Backoff, doubling};
use pcp_pdu::handshake::Attribute;
use pmapi::{Error, Result};
use tracing::{info, warn};

use crate::{AgentState, Channel as _, Collector, Launch, Process, Starting};

/// An agent that is kept running: started, asked, ended when it misses a deadline, and started again after a pause.
///
/// Only [`Supervisor::ask`] waits for the agent, and at most until a deadline. Everything else is done by
/// [`Supervisor::tend`], which the caller repeats as often as [`Supervisor::due`] says.
pub struct Supervisor {
    name: String,
    launch: Box<dyn FnMut() -> Launch + Send>,
    stage: Stage,
    /// Pauses after failures.
    backoff: Backoff,
    /// Number of times that the agent has become ready.
    readied: u64,
    /// Reason of the last failure.
    failure: String,
    /// Version of [`Supervisor::problem`].
    problem_version: u64,
}

#[derive(Debug)]
enum Stage {
    /// The agent is not running. It is started after the pause.
    Away,
    /// The agent has to send its version until this time.
    Starting(Starting, Instant),
    Up {
        agent: Box<Collector<Process>>,
        since: Instant,
        /// Whether the agent was ready when its state was last read.
        ready: bool,
    },
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor").field("name", &self.name).field("stage", &self.stage).finish_non_exhaustive()
    }
}

impl Supervisor {
    /// Pauses after repeated failures. The first one is also the time between calls of [`Supervisor::tend`] while the agent
    /// is not ready.
    const PAUSES: [Duration; 8] = doubling(Duration::from_millis(500));
    /// Time without failures after which the pauses begin again with the first one.
    const STABLE: Duration = Self::PAUSES[7];
    /// Longest time until the agent's version arrives.
    const VERSION: Duration = Collector::<Process>::HANDSHAKE_TIMEOUT;
    /// Time between calls of [`Supervisor::tend`] while the agent starts.
    pub const LOOK: Duration = Duration::from_millis(10);

    /// Creates a supervisor of an agent with a name for log lines. The first [`Supervisor::tend`] starts the agent;
    /// `launch` is called for each start.
    pub fn new(name: impl Into<String>, launch: impl FnMut() -> Launch + Send + 'static) -> Supervisor {
        Supervisor {
            name: name.into(),
            launch: Box::new(launch),
            stage: Stage::Away,
            backoff: Backoff::default(),
            readied: 0,
            failure: String::new(),
            problem_version: 0,
        }
    }

    /// Returns whether requests can be sent to the agent.
    pub fn is_ready(&self) -> bool {
        matches!(self.stage, Stage::Up { ready: true, .. })
    }

    /// Returns whether the agent is starting and has not failed.
    pub fn is_starting(&self) -> bool {
        matches!(self.stage, Stage::Starting(..))
    }

    /// Returns the number of times that the agent has become ready. After each time, its metrics may have changed.
    pub fn readied(&self) -> u64 {
        self.readied
    }

    /// Returns the agent's name and the reason why requests cannot be sent to it.
    pub fn problem(&self) -> Option<(&str, &str)> {
        let why = match self.stage {
            Stage::Up { ready: true, .. } => return None,
            Stage::Up { .. } => "not ready",
            _ if self.failure.is_empty() => "no answer yet",
            _ => &self.failure,
        };
        Some((&self.name, why))
    }

    /// Returns the version of [`Supervisor::problem`], which grows with each change.
    pub fn problem_version(&self) -> u64 {
        self.problem_version
    }

    /// Returns when [`Supervisor::tend`] has to be called next, apart from the call before each request, if it was called
    /// at `tended`.
    pub fn due(&self, tended: Instant) -> Option<Instant> {
        match &self.stage {
            Stage::Away => Some(Instant::now() + self.backoff.wait()),
            Stage::Starting(..) => Some(tended + Self::LOOK),
            // Such an agent sends a PDU when it becomes ready, which only `tend` reads.
            Stage::Up { ready: false, .. } => Some(tended + Self::PAUSES[0]),
            Stage::Up { .. } => None,
        }
    }

    /// Starts the agent if it is due, and reads its unsolicited messages. Does not wait.
    pub fn tend(&mut self) {
        let now = Instant::now();
        if matches!(self.stage, Stage::Away) && self.backoff.is_due() {
            match (self.launch)().begin() {
                Ok(starting) => {
                    self.stage = Stage::Starting(starting, now + Self::VERSION);
                }
                Err(e) => self.fail(&e),
            }
        }
        if let Stage::Starting(starting, until) = &mut self.stage {
            match starting.wait(Some(Duration::ZERO)) {
                Ok(agent) => {
                    let (name, pid) = (&self.name, agent.pid().unwrap_or_default());
                    info!(source = name, "agent {name} has started, process {pid}");
                    let mut agent = Box::new(agent);
                    introduce(&mut agent).unwrap_or_else(|e| {
                        warn!(source = name, "agent {name}: cannot report the user of this process to it: {e}")
                    });
                    self.stage = Stage::Up { agent, since: now, ready: false };
                }
                Err(crate::Error::TimedOut(_)) if now < *until => {}
                Err(crate::Error::TimedOut(_)) => self.fail(&crate::Error::TimedOut(Self::VERSION)),
                Err(e) => self.fail(&e),
            }
        }
        if let Stage::Up { agent, ready, .. } = &mut self.stage {
            let settled = agent.settle();
            let was_ready = std::mem::replace(ready, agent.state() == AgentState::Ready);
            self.readied += u64::from(*ready && !was_ready);
            self.problem_version += u64::from(*ready != was_ready);
            if let Err(e) = settled {
                self.fail(&e);
            }
        }
    }

    /// Closes the connection to the agent, without waiting for its end.
    pub fn close(&mut self) {
        if let Stage::Up { agent, .. } = &mut self.stage {
            agent.channel_mut().close();
        }
    }

    /// Sends a request to the agent, and waits for the reply at most until `until`.
    ///
    /// # Errors
    /// The error that the agent returns; `PM_ERR_AGAIN` while it is away or not ready, and if it fails.
    pub fn ask<T>(
        &mut self,
        until: Instant,
        request: impl FnOnce(&mut Collector<Process>) -> crate::Result<T>,
    ) -> Result<T> {
        let Stage::Up { agent, ready: true, .. } = &mut self.stage else { return Err(Error::AGAIN) };
        // No agent could answer any more, so the agent is not at fault.
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::AGAIN);
        }
        agent.set_timeout(Some(left));
        match (request(agent), agent.state()) {
            (Ok(answer), _) => Ok(answer),
            (Err(e), AgentState::Dropped) => {
                self.fail(&e);
                Err(Error::AGAIN)
            }
            (Err(_), AgentState::NotReady) => {
                if let Stage::Up { ready, .. } = &mut self.stage {
                    *ready = false;
                    self.problem_version += 1;
                }
                Err(Error::AGAIN)
            }
            (Err(e), _) => Err(match e.code() {
                // pmcd would take these codes for failures of this agent.
                Error::IPC | Error::TIMEOUT => Error::AGAIN,
                code => code,
            }),
        }
    }

    /// Ends the agent, and schedules its restart. After a long run without failures the pause is short again.
    fn fail(&mut self, why: &crate::Error) {
        if matches!(self.stage, Stage::Up { since, .. } if since.elapsed() > Self::STABLE) {
            self.backoff.succeeded();
        }
        let pause = self.backoff.failed(&Self::PAUSES);
        let name = &self.name;
        warn!(source = name, "agent {name}: {why}; restarting it in {pause:?}");
        self.failure = why.to_string();
        self.problem_version += 1;
        self.stage = Stage::Away;
    }
}

/// Sends the client attributes of this process to an agent: user, group and process identifier.
fn introduce(agent: &mut Collector<Process>) -> crate::Result {
    agent.attribute(Attribute::USERID, &geteuid().to_string())?;
    agent.attribute(Attribute::GROUPID, &getegid().to_string())?;
    agent.attribute(Attribute::PROCESSID, &std::process::id().to_string())?;
    Ok(())
}
