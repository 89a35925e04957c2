//! The proxy between pmcd and the process with the agent.
//!
//! It passes one request at a time to that process, and the answer to pmcd as soon as it is whole. While the process is
//! away, or does not return from a call, it answers pmcd's requests itself. No wait depends on one peer alone.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pcp_base::backoff::{Backoff, doubling};
use pcp_pdu::handshake::{Features, VERSION, encode_creds, encode_error};
use pcp_pdu::{FROM_AGENT, Header, Pdu, PduType};
use pmapi::Error;
use pmda::BoxError;
use pmda::host::{Program, SessionError};
use signal_hook::consts::SIGCHLD;
use tracing::{info, warn};

use crate::child::{AgentProcess, Ending, adopt_orphans, catch_termination};
use crate::clients::{Clients, ROOM};
use crate::link::{Link, widen};
use crate::options::Options;

/// Pauses before the agent is restarted, after repeated failures.
const PAUSES: [Duration; 8] = {
    let mut pauses = doubling(Duration::from_millis(500));
    pauses[7] = Duration::from_secs(60);
    pauses
};
/// Time without failures after which the pauses begin again with the first one.
const STABLE: Duration = PAUSES[7];
/// Time for loading the agent before pmcd gets the version, for which it waits three seconds.
const PROMPT: Duration = Duration::from_secs(2);
/// Longest time for loading the agent.
const LOAD: Duration = Duration::from_secs(30);
/// Longest time for which a call may continue after pmcd was answered in place of the agent.
const LATE: Duration = Duration::from_secs(30);
/// Time for the agent's process to end after it has closed its pipe.
const GRACE: Duration = Duration::from_millis(500);
/// Time for the agent's process to end after pmcd has closed the connection.
const CLOSED: Duration = Duration::from_secs(5);

/// Longest PDU that is accepted from pmcd, in bytes. Clients may send pmcd 64 KiB, unless its option `-L` sets another
/// limit.
const LONGEST: u32 = 16 << 20;
/// Largest number of bytes that wait for an agent that does not read them: attributes and the profile, which a restarted
/// agent gets, and 16 MiB that come later.
const MISSED: usize = ROOM + LONGEST as usize + (16 << 20);

/// Stage of the process with the agent.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// There is no process. The next one is started at this time.
    Gone(Instant),
    /// The process loads the agent. It must have done so by this time.
    Loading(Instant),
    /// The agent waits for a request.
    Idle,
    /// The agent works on a request, which it got at this time.
    Asked(PduType, Instant),
    /// The agent has not returned from a call in time, and pmcd has got an answer in its place.
    Late {
        /// Begin of the call.
        since: Instant,
        /// Time at which the process is killed.
        until: Instant,
    },
}

/// Descriptors on which something has happened.
struct Ready {
    pmcd: bool,
    agent: bool,
    wake: bool,
}

/// The proxy of one agent.
pub(crate) struct Proxy<'a> {
    name: String,
    entry: String,
    patience: Duration,
    program: &'a Program,
    pmcd: Link,
    /// `None` in stage [`Stage::Gone`].
    agent: Option<(AgentProcess, Link)>,
    stage: Stage,
    /// Becomes readable when a process has ended, or a signal asks this one to end.
    wake: UnixStream,
    /// The other end of `wake`.
    signalled: UnixStream,
    /// Whether a signal has asked this process to end.
    terminated: Arc<AtomicBool>,
    /// Time at which the agent became ready.
    since: Instant,
    /// When this process ends, after pmcd has closed the connection while the agent works on a request. `None` after the
    /// answer.
    closed: Option<Instant>,
    /// Whether pmcd has been notified that the agent is not ready.
    refused: bool,
    /// Features by which the agent requests attributes of clients.
    features: Features,
    clients: Clients,
    backoff: Backoff,
}

impl<'a> Proxy<'a> {
    /// Creates a proxy for the agent that the options name, over the connection to pmcd.
    ///
    /// # Errors
    /// The errors of the system for a signal handler or a socket.
    pub(crate) fn new(options: &Options, program: &'a Program, input: File, output: File) -> io::Result<Self> {
        let (wake, signalled) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        adopt_orphans()?;
        signal_hook::low_level::pipe::register(SIGCHLD, signalled.try_clone()?)?;
        let pmcd = Link::new(input, output, LONGEST)?;
        widen(pmcd.output());
        Ok(Proxy {
            name: options.name(),
            entry: options.entry(),
            patience: options.patience,
            program,
            pmcd,
            agent: None,
            stage: Stage::Gone(Instant::now()),
            wake,
            signalled,
            terminated: Arc::default(),
            since: Instant::now(),
            closed: None,
            refused: false,
            features: Features::AUTHORIZE | Features::CONTAINER,
            clients: Clients::default(),
            backoff: Backoff::default(),
        })
    }

    /// Serves pmcd until it closes the connection.
    ///
    /// # Errors
    /// The reason why the agent cannot be loaded, or a failure of the connection to pmcd.
    pub(crate) fn run(mut self) -> Result<(), BoxError> {
        self.start()?;
        self.load()?;
        let mut creds = Vec::new();
        encode_creds(&mut creds, std::process::id() as i32, self.features)?;
        self.pmcd.send(&creds).map_err(SessionError::Write)?;
        if !self.greet()? {
            return Ok(());
        }
        catch_termination(&self.terminated, &self.signalled)?;
        let mut turned = Ok(true);
        while !self.terminated.load(Relaxed) && matches!(turned, Ok(true)) {
            turned = self.turn();
        }
        self.leave();
        match turned {
            // pmcd has left during a call, as it may, and the answer is for nobody.
            Err(e) if self.closed.is_some() && matches!(e.downcast_ref(), Some(SessionError::Left)) => Ok(()),
            turned => turned.map(drop),
        }
    }

    fn start(&mut self) -> io::Result<()> {
        self.agent = Some(AgentProcess::start()?);
        self.stage = Stage::Loading(Instant::now() + LOAD);
        Ok(())
    }

    /// Waits until the first process has loaded the agent, and records its features. pmcd does not wait for an agent that
    /// takes long: the features then ask for all attributes of clients.
    fn load(&mut self) -> Result<(), BoxError> {
        let until = Instant::now() + PROMPT;
        while let Some((_, link)) = &mut self.agent {
            if Instant::now() >= until {
                warn!("{}: {} has not returned for {PROMPT:?}", self.name, self.entry);
                return Ok(());
            }
            wait(&mut [PollFd::new(link.input(), PollFlags::POLLIN)], Some(until))?;
            let is_open = matches!(link.fill(), Ok(Some(_)));
            if let Some(features) = loaded(link)? {
                self.features &= features;
                self.stage = Stage::Idle;
                return Ok(());
            }
            if !is_open {
                let ending = self.end(Instant::now() + GRACE);
                return Err(format!("{} has ended the process: {ending}", self.entry).into());
            }
        }
        Ok(())
    }

    /// Reads the CREDS PDU of pmcd; false at the end of file.
    fn greet(&mut self) -> Result<bool, BoxError> {
        loop {
            if let Some((header, pdu)) = self.pmcd.next_pdu()? {
                return match Pdu::decode(header, pdu) {
                    Ok(Pdu::Creds(creds)) => match creds.version() {
                        Some((VERSION, _)) | None => Ok(true),
                        Some((version, _)) => Err(SessionError::Version(version).into()),
                    },
                    _ => Err(SessionError::Greeting(header.pdu).into()),
                };
            }
            wait(&mut [PollFd::new(self.pmcd.input(), PollFlags::POLLIN)], None)?;
            if self.pmcd.fill()?.is_none() {
                return Ok(false);
            }
        }
    }

    /// Serves the PDUs that have come, waits for an event, and acts on it. Returns false when the connection to pmcd has ended.
    fn turn(&mut self) -> Result<bool, BoxError> {
        self.program.tick();
        while self.accepts_requests() {
            let Some((header, pdu)) = self.pmcd.next_pdu()? else { break };
            let pdu = pdu.to_vec();
            self.serve(header, &pdu)?;
        }
        let ready = self.wait()?;
        self.pmcd.flush().map_err(of_answer)?;
        if let Some((_, link)) = &mut self.agent {
            // If the process has closed its pipe, the other pipe says so.
            let _ = link.flush();
        }
        // In this order: a process may answer and end at once.
        if ready.agent {
            self.read_agent()?;
        }
        if ready.wake {
            self.look_after()?;
        }
        self.timers()?;
        if self.closed.is_some_and(|at| at <= Instant::now()) {
            warn!("{}: the agent goes on after pmcd has closed the connection, and is killed", self.name);
            return Ok(false);
        }
        Ok(!ready.pmcd || self.read_pmcd()?)
    }

    /// Returns whether the next PDU of pmcd may be served. While pmcd does not read its answers, none is, so that few
    /// answers wait.
    fn accepts_requests(&self) -> bool {
        self.pmcd.unsent() == 0 && !matches!(self.stage, Stage::Asked(..))
    }

    /// Waits for pmcd, the process, a signal, or the next deadline.
    fn wait(&self) -> io::Result<Ready> {
        let until = match self.stage {
            Stage::Gone(at) | Stage::Loading(at) | Stage::Late { until: at, .. } => Some(at),
            Stage::Asked(_, since) => since.checked_add(self.patience),
            Stage::Idle => None,
        };
        let until = until.into_iter().chain(self.closed).min();
        let mut fds = vec![PollFd::new(self.wake.as_fd(), PollFlags::POLLIN)];
        let agent = self.agent.as_ref().map(|(_, link)| {
            fds.push(PollFd::new(link.input(), PollFlags::POLLIN));
            if link.unsent() > 0 {
                fds.push(PollFd::new(link.output(), PollFlags::POLLOUT));
            }
            1
        });
        if self.pmcd.unsent() > 0 {
            fds.push(PollFd::new(self.pmcd.output(), PollFlags::POLLOUT));
        }
        let events = match self.accepts_requests() {
            true => Some(PollFlags::POLLIN),
            false if self.pmcd.unsent() > 0 || self.closed.is_some() => None,
            // Only the end of the connection matters.
            false => Some(PollFlags::from_bits_retain(libc::POLLRDHUP)),
        };
        let pmcd = events.map(|events| {
            fds.push(PollFd::new(self.pmcd.input(), events));
            fds.len() - 1
        });
        wait(&mut fds, until)?;
        let is_ready = |at: Option<usize>| at.and_then(|at| fds.get(at)).is_some_and(|fd| fd.any().unwrap_or(true));
        Ok(Ready { pmcd: is_ready(pmcd), agent: is_ready(agent), wake: is_ready(Some(0)) })
    }

    /// Reads what pmcd has sent. Returns false at the end of file. During a call, that only limits the time that is left:
    /// there may be requests before it.
    fn read_pmcd(&mut self) -> Result<bool, BoxError> {
        if matches!(self.stage, Stage::Asked(..)) {
            self.closed = Some(Instant::now() + CLOSED);
            return Ok(true);
        }
        Ok(self.pmcd.fill()?.is_some())
    }

    /// Ends the process after the connection to pmcd has ended. Functions of the agent that run at the exit of its process
    /// get time, unless a call has not returned.
    fn leave(&mut self) {
        if self.terminated.load(Relaxed) {
            return;
        }
        if let (Stage::Idle, Some((process, link))) = (self.stage, self.agent.take()) {
            drop(link);
            match process.end(Instant::now() + CLOSED, &self.terminated) {
                Some(status) if status.success() => {}
                Some(status) => {
                    warn!("{}: the agent has ended after pmcd has closed the connection: {status}", self.name);
                }
                None => warn!("{}: the agent goes on after pmcd has closed the connection, and is killed", self.name),
            }
        }
    }

    /// Serves a PDU of pmcd.
    fn serve(&mut self, header: Header, pdu: &[u8]) -> Result<(), BoxError> {
        if !header.pdu.is_request() {
            self.tell(header, pdu);
            return Ok(());
        }
        match (self.stage, &mut self.agent) {
            (Stage::Idle, Some((_, link))) => {
                // If the process has ended, its other pipe says so.
                let _ = link.send(pdu);
                self.stage = Stage::Asked(header.pdu, Instant::now());
                Ok(())
            }
            _ => self.refuse(header.pdu),
        }
    }

    /// Passes a PDU to the agent that has no answer, and keeps what a restarted agent needs.
    fn tell(&mut self, header: Header, pdu: &[u8]) {
        if !self.clients.record(header, pdu) {
            warn!("{}: too many attributes of clients; after a restart, the agent gets only the first ones", self.name);
        }
        if let (Stage::Idle | Stage::Late { .. }, Some((_, link))) = (self.stage, &mut self.agent) {
            let _ = link.send(pdu);
            if link.unsent() > MISSED {
                self.fail("the agent has missed too many PDUs about clients");
            }
        }
    }

    /// Answers a request that the agent cannot answer now.
    ///
    /// pmcd passes the attributes of each new client to agents that ask for them. While one of these is not ready, pmcd
    /// refuses all new clients. Such an agent therefore stays ready, and each request is answered with `PM_ERR_AGAIN`.
    /// Clients get the same error when an agent is not ready.
    fn refuse(&mut self, request: PduType) -> Result<(), BoxError> {
        let refusal = if self.features.is_empty() { refusal(request) } else { Error::AGAIN };
        self.refused |= refusal == Error::PMDANOTREADY;
        self.error(refusal)
    }

    /// Sends an ERROR PDU to pmcd.
    fn error(&mut self, error: Error) -> Result<(), BoxError> {
        let mut pdu = Vec::new();
        encode_error(&mut pdu, FROM_AGENT, Err(error))?;
        self.send(&pdu)
    }

    fn send(&mut self, pdu: &[u8]) -> Result<(), BoxError> {
        Ok(self.pmcd.send(pdu).map_err(of_answer)?)
    }

    /// Reads what the process has sent, and acts on its end. Returns whether something has come.
    fn read_agent(&mut self) -> Result<bool, BoxError> {
        let Some((_, link)) = &mut self.agent else { return Ok(false) };
        let read = link.fill().unwrap_or(None);
        self.answers()?;
        if read.is_none() && self.agent.is_some() {
            let ending = self.end(Instant::now() + GRACE);
            self.died(&ending)?;
        }
        Ok(read.is_some_and(|bytes| bytes > 0))
    }

    /// Acts on the PDUs that the process has sent.
    fn answers(&mut self) -> Result<(), BoxError> {
        while let Some((_, link)) = &mut self.agent {
            if let Stage::Loading(_) = self.stage {
                match loaded(link) {
                    Ok(Some(_)) => self.loaded()?,
                    Ok(None) => return Ok(()),
                    Err(e) => self.fail(&e.to_string()),
                }
                continue;
            }
            match (link.next_pdu(), self.stage) {
                (Ok(None), _) => return Ok(()),
                (Ok(Some((_, pdu))), Stage::Asked(..)) => {
                    self.stage = Stage::Idle;
                    self.pmcd.send(pdu).map_err(of_answer)?;
                    self.closed = None;
                }
                (Ok(Some(_)), Stage::Late { since, .. }) => {
                    info!("{}: the agent has returned after {:.1} s", self.name, since.elapsed().as_secs_f64());
                    self.ready()?;
                }
                (Ok(Some((header, _))), _) => {
                    let why = format!("the agent's process has sent a {} PDU without a request", header.pdu);
                    self.fail(&why);
                }
                (Err(e), _) => {
                    let why = format!("the agent's process has sent an invalid answer: {e}");
                    self.refuse_last()?;
                    self.fail(&why);
                }
            }
        }
        Ok(())
    }

    /// Passes profile and attributes of clients to an agent that has just been loaded.
    fn loaded(&mut self) -> Result<(), BoxError> {
        let Some((process, link)) = &mut self.agent else { return Ok(()) };
        for pdu in self.clients.pdus() {
            let _ = link.send(pdu);
        }
        if self.backoff.failures() > 0 {
            info!("{}: the agent runs again, process {}", self.name, process.id());
        }
        self.since = Instant::now();
        self.ready()
    }

    /// Makes the agent serve requests again.
    fn ready(&mut self) -> Result<(), BoxError> {
        self.stage = Stage::Idle;
        if std::mem::take(&mut self.refused) { self.error(Error::PMDAREADY) } else { Ok(()) }
    }

    /// Acts on signals: processes that have ended or stopped.
    fn look_after(&mut self) -> Result<(), BoxError> {
        // Only that something has come matters.
        let _ = (&self.wake).read(&mut [0; 64]);
        let Some((process, _)) = &mut self.agent else { return Ok(()) };
        process.reap_orphans();
        if process.kill_stopped() {
            warn!("{}: a signal has stopped the agent, and it is killed", self.name);
        }
        match process.ended() {
            Some(status) => {
                // Its last answer may have come since the last look.
                while self.read_agent()? {}
                if self.agent.is_some() { self.died(&Ending(Some(status))) } else { Ok(()) }
            }
            None => Ok(()),
        }
    }

    /// Ends the process, which gets time until `until` to end by itself.
    fn end(&mut self, until: Instant) -> Ending {
        Ending(self.agent.take().and_then(|(process, _)| process.end(until, &self.terminated)))
    }

    /// Acts on the end of the process.
    fn died(&mut self, ending: &Ending) -> Result<(), BoxError> {
        let within = match self.stage {
            Stage::Asked(request, _) => format!(" in a {request} request"),
            _ => String::new(),
        };
        self.refuse_last()?;
        self.fail(&format!("the agent has ended{within}: {ending}"));
        Ok(())
    }

    /// Answers the request that the agent works on, if there is one.
    fn refuse_last(&mut self) -> Result<(), BoxError> {
        match self.stage {
            Stage::Asked(request, _) => self.refuse(request),
            _ => Ok(()),
        }
    }

    /// Ends the process, and schedules the next one. After a long time without failures the pause is short again.
    fn fail(&mut self, why: &str) {
        let has_served = matches!(self.stage, Stage::Idle | Stage::Asked(..));
        if has_served && self.since.elapsed() > STABLE {
            self.backoff.succeeded();
        }
        let pause = self.backoff.failed(&PAUSES);
        warn!("{}: {why}; restarting it in {pause:?}", self.name);
        self.agent = None;
        self.stage = Stage::Gone(Instant::now() + pause);
        self.closed = None;
    }

    fn timers(&mut self) -> Result<(), BoxError> {
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
            Stage::Asked(request, since) if since + self.patience <= now => {
                self.refuse(request)?;
                self.stage = Stage::Late { since, until: now + LATE };
                self.closed = None;
                let taken = Duration::from_millis(since.elapsed().as_millis() as u64);
                warn!(
                    "{}: the agent has not returned from a {request} PDU for {taken:?}, and is not ready until it does",
                    self.name
                );
            }
            Stage::Late { since, until } if until <= now => {
                self.fail(&format!("the agent has not returned for {:.1} s", since.elapsed().as_secs_f64()));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Returns the features of the agent, if its process has sent them.
///
/// # Errors
/// The reason why the agent cannot be loaded.
fn loaded(link: &mut Link) -> Result<Option<Features>, BoxError> {
    let Some((header, pdu)) = link.next_pdu()? else { return Ok(None) };
    match Pdu::decode(header, pdu) {
        Ok(Pdu::Creds(creds)) => Ok(Some(creds.version().map_or(Features::empty(), |(_, features)| features))),
        Ok(Pdu::Text(reason)) => Err(String::from_utf8_lossy(reason.text).into()),
        _ => Err(format!("a {} PDU in place of the version", header.pdu).into()),
    }
}

/// Returns the error for the answer to a request that the agent cannot handle now.
///
/// pmcd ignores `PM_ERR_PMDANOTREADY` in answers about names. It would then mistake the later notification that the
/// agent is ready for the answer to its next request.
fn refusal(request: PduType) -> Error {
    match request {
        PduType::PMNS_NAMES | PduType::PMNS_IDS | PduType::PMNS_CHILD | PduType::PMNS_TRAVERSE => Error::AGAIN,
        _ => Error::PMDANOTREADY,
    }
}

/// Converts the error of writing an answer.
fn of_answer(e: io::Error) -> SessionError {
    match e.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => SessionError::Left,
        _ => SessionError::Write(e),
    }
}

/// Waits for one of the descriptors, until a time at most.
fn wait(fds: &mut [PollFd<'_>], until: Option<Instant>) -> io::Result<()> {
    // Rounding down would poll without waiting at the end.
    let left = until.map(|until| until.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000));
    let timeout = left.map_or(PollTimeout::NONE, |left| PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
    match poll(fds, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
