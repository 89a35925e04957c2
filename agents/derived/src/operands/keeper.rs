//! An agent that is started, and started again when it has failed.

use std::time::{Duration, Instant};

use pmapi::{Error, Result};
use pmda::collector::{self, Channel as _, Collector, Launch, Process, Starting, State};
use tracing::{info, warn};

use super::child;

/// Keeps an agent running. Only [`Keeper::ask`] waits for it, and for a limited time: one that does not answer by then
/// is ended, and started again after a while.
#[derive(Debug)]
pub(super) struct Keeper {
    name: String,
    command: Vec<String>,
    stage: Stage,
    /// How long it stays away when it fails again.
    pause: Duration,
    /// How often it has become ready to be asked.
    readied: u64,
    /// Why it failed last.
    failure: String,
    /// How often [`Keeper::problem`] has become another one.
    turns: u64,
}

#[derive(Debug)]
enum Stage {
    /// It is to be started at this time.
    Away(Instant),
    /// It has to send its version until this time.
    Starting(Starting, Instant),
    Up {
        agent: Box<Collector<Process>>,
        since: Instant,
        /// Whether it can be asked, as far as it has been looked at.
        ready: bool,
    },
}

impl Keeper {
    /// How long an agent stays away that has failed once.
    const SHORTEST: Duration = Duration::from_millis(500);
    /// How long one stays away that fails all the time.
    const LONGEST: Duration = Duration::from_secs(60);
    /// How long it may take until its version comes.
    const VERSION: Duration = Collector::<Process>::HANDSHAKE_TIMEOUT;
    /// The longest answer.
    const LONGEST_ANSWER: u32 = 64 << 20;
    /// How soon to look again after an agent that starts.
    pub(super) const LOOK: Duration = Duration::from_millis(10);

    /// It is started by the first [`Keeper::tend`].
    pub(super) fn new(name: String, command: Vec<String>) -> Keeper {
        Keeper {
            name,
            command,
            stage: Stage::Away(Instant::now()),
            pause: Self::SHORTEST,
            readied: 0,
            failure: String::new(),
            turns: 0,
        }
    }

    /// Whether it can be asked.
    pub(super) fn is_ready(&self) -> bool {
        matches!(self.stage, Stage::Up { ready: true, .. })
    }

    /// Whether it is being started, and has not failed yet.
    pub(super) fn is_starting(&self) -> bool {
        matches!(self.stage, Stage::Starting(..))
    }

    /// How often it has become ready: what it has told may be otherwise when this is another number.
    pub(super) fn readied(&self) -> u64 {
        self.readied
    }

    /// Its name, and why it cannot be asked.
    pub(super) fn problem(&self) -> Option<(&str, &str)> {
        let why = match self.stage {
            Stage::Up { ready: true, .. } => return None,
            Stage::Up { .. } => "not ready",
            _ if self.failure.is_empty() => "no answer yet",
            _ => &self.failure,
        };
        Some((&self.name, why))
    }

    /// How often that has become something else.
    pub(super) fn turns(&self) -> u64 {
        self.turns
    }

    /// When to call [`Keeper::tend`] next, besides before each request.
    pub(super) fn due(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Away(until) => Some(*until),
            Stage::Starting(..) => Some(Instant::now() + Self::LOOK),
            // One that is not ready says so between requests.
            Stage::Up { ready: false, .. } => Some(Instant::now() + Self::SHORTEST),
            Stage::Up { .. } => None,
        }
    }

    /// Starts it when it is time to, and looks at what it has said without being asked. Waits for nothing.
    pub(super) fn tend(&mut self) {
        let now = Instant::now();
        if matches!(self.stage, Stage::Away(until) if until <= now) {
            match self.launch() {
                Ok(starting) => {
                    self.stage = Stage::Starting(starting, now + Self::VERSION);
                }
                Err(e) => self.fail(&e),
            }
        }
        if let Stage::Starting(starting, until) = &mut self.stage {
            match starting.wait(Some(Duration::ZERO)) {
                Ok(agent) => {
                    info!("agent {} has started, process {}", self.name, agent.pid().unwrap_or_default());
                    let mut agent = Box::new(agent);
                    child::introduce(&mut agent).unwrap_or_else(|e| warn!("agent {}: {e}", self.name));
                    self.stage = Stage::Up { agent, since: now, ready: false };
                }
                Err(collector::Error::TimedOut(_)) if now < *until => {}
                Err(collector::Error::TimedOut(_)) => self.fail(&collector::Error::TimedOut(Self::VERSION)),
                Err(e) => self.fail(&e),
            }
        }
        if let Stage::Up { agent, ready, .. } = &mut self.stage {
            let settled = agent.settle();
            let was_ready = std::mem::replace(ready, agent.state() == State::Ready);
            self.readied += u64::from(*ready && !was_ready);
            self.turns += u64::from(*ready != was_ready);
            if let Err(e) = settled {
                self.fail(&e);
            }
        }
    }

    /// Tells it to end, and does not wait until it has.
    pub(super) fn close(&mut self) {
        if let Stage::Up { agent, .. } = &mut self.stage {
            agent.channel_mut().close();
        }
    }

    /// Asks it for something, and gives it until a time to answer.
    ///
    /// # Errors
    /// Those of its answers; `PM_ERR_AGAIN` while it is away, or not ready, and when it fails.
    pub(super) fn ask<T>(
        &mut self,
        until: Instant,
        request: impl FnOnce(&mut Collector<Process>) -> collector::Result<T>,
    ) -> Result<T> {
        let Stage::Up { agent, ready: true, .. } = &mut self.stage else { return Err(Error::AGAIN) };
        // What is left is not enough for any agent: it is not its fault.
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::AGAIN);
        }
        agent.set_timeout(Some(left));
        match (request(agent), agent.state()) {
            (Ok(answer), _) => Ok(answer),
            (Err(e), State::Dropped) => {
                self.fail(&e);
                Err(Error::AGAIN)
            }
            (Err(_), State::NotReady) => {
                if let Stage::Up { ready, .. } = &mut self.stage {
                    *ready = false;
                    self.turns += 1;
                }
                Err(Error::AGAIN)
            }
            (Err(e), State::Ready) => Err(match e.code() {
                // pmcd would take them for failures of its own.
                Error::IPC | Error::TIMEOUT => Error::AGAIN,
                code => code,
            }),
        }
    }

    /// Ends it, and leaves it alone for a while. One that ran well for long begins with a short pause.
    fn fail(&mut self, why: &collector::Error) {
        if matches!(self.stage, Stage::Up { since, .. } if since.elapsed() > Self::LONGEST) {
            self.pause = Self::SHORTEST;
        }
        warn!("agent {}: {why}; it is started again in {:?}", self.name, self.pause);
        self.failure = why.to_string();
        self.turns += 1;
        self.stage = Stage::Away(Instant::now() + self.pause);
        self.pause = (2 * self.pause).min(Self::LONGEST);
    }

    fn launch(&self) -> collector::Result<Starting> {
        let mut command = child::command(&self.command);
        let complaints = child::Complaints::of(&mut command)?;
        let starting = Launch::pipe(command).limit(Self::LONGEST_ANSWER).isolated().begin()?;
        complaints.log(&self.name)?;
        Ok(starting)
    }
}
