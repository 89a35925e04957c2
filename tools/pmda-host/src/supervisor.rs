//! The supervisor: watches the process with the agent, and takes the connection to pmcd whenever that process cannot
//! serve it.
//!
//! The process with the agent reads pmcd's requests and writes the answers itself, so that a request costs no more than
//! with a daemon of the agent. The word [`Phase`] in shared memory shows which of the two processes has the connection,
//! and whether pmcd waits for an answer.

mod startup;

use std::io::{ErrorKind, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use nix::libc;
use nix::poll::{PollFd, PollFlags};
use pcp_base::backoff::Backoff;
use pcp_pdu::handshake::{Features, encode_creds};
use pcp_pdu::{Pdu, PduType};
use pmapi::Error;
use pmda::Failure;
use pmda::host::Program;
use tracing::{info, warn};

use crate::child::{AgentProcess, Ending, catch_termination};
use crate::clients::Clients;
use crate::clock::now;
use crate::control::Message;
use crate::input::{Arrived, Input};
use crate::memory::{Phase, Shared};
use crate::output::Output;
use crate::wire::{refusal, wait};

/// Pauses before the agent is restarted, after repeated failures.
const PAUSES: [Duration; 8] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(16),
    Duration::from_secs(32),
    Duration::from_secs(60),
];
/// Time without failures after which the pauses begin again with the first one.
const STABLE: Duration = PAUSES[7];
/// Longest time for loading the agent.
const LOAD: Duration = Duration::from_secs(30);
/// Longest time for which a call may continue after pmcd was answered in place of the agent.
const LATE: Duration = Duration::from_secs(30);

/// Time for the process with the agent to end after pmcd has closed the connection. A process that the agent has forked may
/// read the end of file in its place.
const CLOSED: Duration = Duration::from_secs(5);

/// Stage of the process with the agent.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// There is no process. The next one is started at this time.
    Gone(Instant),
    /// The process loads the agent. It must have done so by this time.
    Loading(Instant),
    /// The agent is loaded, and pmcd has not greeted yet.
    Loaded,
    /// The process is to get the connection when pmcd has sent the rest of its present PDU, and there is room for an ERROR
    /// PDU to pmcd.
    Due {
        /// Whether the agent has returned from a call that took too long.
        late: bool,
    },
    /// The process has the connection.
    Serving,
    /// The agent has not returned from a call that took too long.
    Late {
        /// Begin of the call.
        since: Instant,
        /// Time at which the process is killed.
        until: Instant,
    },
}

/// The supervisor of one agent.
pub(crate) struct Supervisor<'a> {
    name: String,
    entry: String,
    patience: Duration,
    program: &'a Program,
    input: Input,
    output: Output,
    shared: Shared,
    /// Descriptors for the process with the agent.
    inherited: [i32; 3],
    /// Becomes readable when a process has ended, or a signal asks this one to end.
    ended: UnixStream,
    /// The other end of `ended`.
    signalled: UnixStream,
    /// Whether a signal has asked this process to end.
    terminated: Arc<AtomicBool>,
    /// `None` in stage [`Stage::Gone`].
    process: Option<AgentProcess>,
    stage: Stage,
    /// Time at which the process got the connection.
    since: Instant,
    /// Time at which the current call is to be checked.
    look: Option<Instant>,
    /// When this process ends, after pmcd has closed the connection.
    closed: Option<Instant>,
    /// Whether pmcd has been notified that the agent is not ready.
    refused: bool,
    /// Features by which the agent requests attributes of clients.
    features: Features,
    clients: Clients,
    backoff: Backoff,
}

impl<'a> Supervisor<'a> {
    /// Serves pmcd until it closes the connection.
    ///
    /// # Errors
    /// The reason why the agent cannot be loaded, or a failure of the connection to pmcd.
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        self.features = self.load()?;
        let mut creds = Vec::new();
        encode_creds(&mut creds, std::process::id() as i32, self.features)?;
        self.output.write(&creds)?;
        if !self.greet()? {
            return Ok(());
        }
        if let Stage::Loaded = self.stage {
            self.give()?;
        }
        catch_termination(&self.terminated, &self.signalled)?;
        while !self.terminated.load(Relaxed) && self.turn()? {}
        Ok(())
    }

    fn start(&mut self) -> Result<(), Failure> {
        self.shared.set_phase(Phase::Away);
        self.process = Some(AgentProcess::start(self.inherited)?);
        self.stage = Stage::Loading(Instant::now() + LOAD);
        Ok(())
    }

    /// Waits for an event and acts on it. Returns false at the end of pmcd's input.
    fn turn(&mut self) -> Result<bool, Failure> {
        self.program.tick();
        let asked = self.wait()?;
        self.output.flush()?;
        // Only that something has come matters.
        if let (Ok(_), Some(process)) = ((&self.ended).read(&mut [0; 64]), &mut self.process) {
            process.reap_orphans();
            if process.kill_stopped() {
                warn!("{}: a signal has stopped the agent, and it is killed", self.name);
            }
        }
        let ended = self.process.as_mut().and_then(AgentProcess::ended);
        if !self.messages()? {
            return Ok(false);
        }
        if let Some(status) = ended.filter(|_| self.process.is_some()) {
            return self.died(Some(status));
        }
        if self.closed.is_some_and(|at| at <= Instant::now()) {
            warn!("{}: the agent goes on after pmcd has closed the connection, and is killed", self.name);
            return Ok(false);
        }
        self.timers()?;
        if asked && !matches!(self.stage, Stage::Serving) && !self.answer()? {
            return Ok(false);
        }
        if let Stage::Due { .. } = self.stage {
            self.give()?;
        }
        Ok(true)
    }

    /// Waits for the process or the next deadline, and also for pmcd if the supervisor has the connection. Returns
    /// whether pmcd has sent something. While pmcd does not read, no further request is read, so that few answers wait.
    fn wait(&mut self) -> Result<bool, Failure> {
        let until = match self.stage {
            Stage::Gone(at) | Stage::Loading(at) | Stage::Late { until: at, .. } => Some(at),
            Stage::Serving | Stage::Loaded | Stage::Due { .. } => self.look,
        };
        let until = until.into_iter().chain(self.closed).min();
        let serves = matches!(self.stage, Stage::Serving);
        let mut fds = vec![PollFd::new(self.ended.as_fd(), PollFlags::POLLIN)];
        fds.extend(self.process.as_ref().map(|process| PollFd::new(process.control.as_fd(), PollFlags::POLLIN)));
        let lacks_room = matches!(self.stage, Stage::Due { .. }) && !self.input.is_within_pdu();
        let full = self.output.waits() || lacks_room;
        fds.extend(full.then(|| PollFd::new(self.output.as_fd(), PollFlags::POLLOUT)));
        let watched = match (serves, self.closed) {
            (false, _) if full => None,
            (false, _) => Some(PollFlags::POLLIN),
            (true, None) => Some(PollFlags::from_bits_retain(libc::POLLRDHUP)),
            (true, Some(_)) => None,
        };
        fds.extend(watched.map(|events| PollFd::new(self.input.as_fd(), events)));
        wait(&mut fds, until)?;
        let seen = watched.is_some() && fds.last().is_some_and(|fd| fd.any().unwrap_or(true));
        if seen && serves {
            self.closed = Some(Instant::now() + CLOSED);
        }
        Ok(seen && !serves)
    }

    /// Acts on the messages that have arrived. Returns false at the end of pmcd's input.
    fn messages(&mut self) -> Result<bool, Failure> {
        while let Some(process) = &self.process {
            match process.control.poll() {
                Ok(Some(message)) => self.message(message)?,
                Ok(None) => {
                    let status = self.process.take().and_then(AgentProcess::end);
                    return self.died(status);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(e) => self.abandon(&format!("an invalid message from the agent's process: {e}"))?,
            }
        }
        Ok(true)
    }

    fn message(&mut self, message: Message) -> Result<(), Failure> {
        match (message, self.stage) {
            (Message::Loaded(_), Stage::Loading(_)) => self.give(),
            (Message::Failed(reason), _) => {
                self.fail(&reason);
                Ok(())
            }
            (Message::Busy, _) => {
                self.look = Some(Instant::now() + self.patience);
                Ok(())
            }
            (Message::Back, Stage::Late { since, .. }) => {
                info!("{}: the agent has returned after {:.1} s", self.name, since.elapsed().as_secs_f64());
                self.give()
            }
            (Message::Client(pdu), _) if !self.clients.record(&pdu) => {
                warn!(
                    "{}: too many attributes of clients; after a restart, the agent gets only the first ones",
                    self.name
                );
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Gives the connection to the process, together with the data that its agent lacks.
    fn give(&mut self) -> Result<(), Failure> {
        let Some(process) = &self.process else { return Ok(()) };
        let late = matches!(self.stage, Stage::Late { .. } | Stage::Due { late: true });
        // The process reads whole PDUs, and writes its answers after the errors.
        if self.input.is_within_pdu() || !self.output.has_room()? {
            self.look = None;
            self.stage = Stage::Due { late };
            return Ok(());
        }
        let pdus = if late { self.clients.take_missed() } else { self.clients.all() };
        // If the process has ended, the next turn notices.
        if !process.control.send_clients(pdus) {
            self.fail("the agent's process does not read its messages");
            return Ok(());
        }
        if std::mem::take(&mut self.refused) {
            self.output.error(Error::PMDAREADY)?;
        }
        self.look = None;
        self.shared.rest();
        let _ = process.control.send(&Message::Serve);
        if !late && self.backoff.failures() > 0 {
            info!("{}: the agent runs again, process {}", self.name, process.id());
        }
        self.since = Instant::now();
        self.stage = Stage::Serving;
        Ok(())
    }

    /// Acts on the end of the process. Returns false at the end of pmcd's input.
    fn died(&mut self, status: Option<ExitStatus>) -> Result<bool, Failure> {
        self.process = None;
        let (phase, ending) = (self.shared.phase(), Ending(status));
        if !matches!(self.stage, Stage::Serving) {
            self.fail(&format!("the agent has ended: {ending}"));
            return Ok(true);
        }
        match phase {
            Some(Phase::Ended) if status.is_some_and(|status| status.success()) => return Ok(false),
            // Functions of the agent that run at the exit of its process.
            Some(Phase::Ended) if status.is_none_or(|status| status.signal().is_some()) => {
                warn!("{}: the agent has ended after pmcd has closed the connection: {ending}", self.name);
                return Ok(false);
            }
            Some(Phase::Ended) => return Err("the connection to pmcd cannot continue".into()),
            Some(Phase::Calling) => {
                let pdu = self.shared.call().0;
                self.refuse(pdu)?;
                self.fail(&format!("the agent has ended in a {pdu} request: {ending}"));
            }
            Some(Phase::Telling) => {
                let pdu = self.shared.call().0;
                self.fail(&format!("the agent has ended in a {pdu} PDU: {ending}"));
            }
            Some(Phase::Idle | Phase::Away) => {
                if let Some(header) = self.shared.header().filter(|_| phase == Some(Phase::Idle)) {
                    self.input.resume(header)?;
                }
                self.fail(&format!("the agent has ended: {ending}"));
            }
            Some(Phase::Reading | Phase::Writing) | None => {
                return Err(format!(
                    "the agent has ended within a PDU, so the connection to pmcd cannot continue: {ending}"
                )
                .into());
            }
        }
        Ok(true)
    }

    /// Answers a request that the agent cannot answer now.
    ///
    /// pmcd passes the attributes of each new client to agents that ask for them. While one of these is not ready, pmcd
    /// refuses all new clients. Such an agent therefore stays ready, and each request is answered with `PM_ERR_AGAIN`.
    /// Clients get the same error when an agent is not ready.
    fn refuse(&mut self, request: PduType) -> Result<(), Failure> {
        let refusal = if self.features.is_empty() { refusal(request) } else { Error::AGAIN };
        self.output.error(refusal)?;
        self.refused |= refusal == Error::PMDANOTREADY;
        Ok(())
    }

    /// Ends the process, and schedules the next one. After a long time without failures the pause is short again.
    fn fail(&mut self, why: &str) {
        if matches!(self.stage, Stage::Serving) && self.since.elapsed() > STABLE {
            self.backoff.succeeded();
        }
        let pause = self.backoff.failed(&PAUSES);
        warn!("{}: {why}; restarting it in {pause:?}", self.name);
        self.process = None;
        self.look = None;
        self.shared.rest();
        self.stage = Stage::Gone(Instant::now() + pause);
    }

    /// Ends a process that cannot be trusted. A request may be left without an answer.
    fn abandon(&mut self, why: &str) -> Result<(), Failure> {
        if matches!(self.stage, Stage::Serving) {
            return Err(why.into());
        }
        self.fail(why);
        Ok(())
    }

    fn timers(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        match self.stage {
            Stage::Gone(at) if at <= now => {
                if let Err(e) = self.start() {
                    self.fail(&format!("the process cannot be started: {e}"));
                }
            }
            Stage::Loading(until) if until <= now => {
                self.fail(&format!("{} has not returned for {LOAD:?}", self.entry));
            }
            Stage::Late { since, until } if until <= now => {
                self.fail(&format!("the agent has not returned for {:.1} s", since.elapsed().as_secs_f64()));
            }
            Stage::Serving if self.look.is_some_and(|at| at <= now) => self.check()?,
            _ => {}
        }
        Ok(())
    }

    /// Checks how long the current call takes, and takes the connection if that is too long.
    fn check(&mut self) -> Result<(), Failure> {
        let Some(phase) = self.shared.phase() else {
            return Err("the agent has overwritten the memory of this program".into());
        };
        if !phase.is_call() {
            self.look = None;
            self.shared.rest();
            // A call that has just begun relied on the watch.
            if self.shared.phase().is_some_and(Phase::is_call) && !self.shared.watch() {
                self.look = Some(Instant::now() + self.patience);
            }
            return Ok(());
        }
        let (pdu, started) = self.shared.call();
        let taken = Duration::from_millis(now().saturating_sub(started));
        if taken < self.patience {
            self.look = Some(Instant::now() + (self.patience - taken));
            return Ok(());
        }
        if !self.shared.change(phase, Phase::Away) {
            // The call has just returned.
            self.look = Some(Instant::now() + self.patience);
            return Ok(());
        }
        self.look = None;
        let now = Instant::now();
        self.stage = Stage::Late { since: now.checked_sub(taken).unwrap_or(now), until: now + LATE };
        if phase == Phase::Calling {
            self.refuse(pdu)?;
        }
        warn!(
            "{}: the agent has not returned from a {pdu} PDU for {taken:?}, and is not ready until it does",
            self.name
        );
        Ok(())
    }

    /// Reads what pmcd has sent. If that completes a request, answers it in the agent's place. Returns false at the end of
    /// file.
    fn answer(&mut self) -> Result<bool, Failure> {
        let (header, pdu) = match self.input.read()? {
            Arrived::Pdu(header, pdu) => (header, pdu),
            Arrived::Part => return Ok(true),
            Arrived::End => return Ok(false),
        };
        if header.pdu.is_request() {
            self.refuse(header.pdu)?;
            return Ok(true);
        }
        let recorded = match Pdu::decode(header, &pdu) {
            Ok(Pdu::Profile(_)) => {
                self.shared.set_profile(&pdu);
                true
            }
            Ok(Pdu::Attr(_) | Pdu::Error(_)) if matches!(self.stage, Stage::Late { .. }) => self.clients.miss(&pdu),
            Ok(Pdu::Attr(_) | Pdu::Error(_)) => self.clients.record(&pdu),
            _ => true,
        };
        if !recorded && matches!(self.stage, Stage::Late { .. }) {
            self.fail("the agent has missed too many PDUs about clients");
        }
        Ok(true)
    }
}
