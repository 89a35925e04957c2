//! The process with the agent: reads requests from the proxy, calls the agent's functions, and writes the answers.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Read as _, Write as _};
use std::os::fd::AsFd as _;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, raise};
use nix::unistd::{dup2_stdin, dup2_stdout, getppid};
use pcp_collector::{Answered, SharedObject};
use pcp_pdu::handshake::{Features, encode_creds, encode_error};
use pcp_pdu::label::{LabelReq, LabelSetRef, encode_label};
use pcp_pdu::metadata::Text;
use pcp_pdu::{FROM_AGENT, Frames, Header, Pdu};
use pmapi::{Error, LabelLevel, LabelSet, RawLabel};
use pmda::BoxError;
use pmda::host::Program;
use tracing::{debug, error, warn};

use crate::options::Options;

/// Largest answer, in bytes.
pub(crate) const MAX_REPLY: usize = 64 << 20;

/// Memory for answers that is kept between requests, in bytes.
const KEPT: usize = 1 << 20;

/// The agent, and the pipes to the proxy.
struct Serving<'a> {
    agent: SharedObject,
    requests: File,
    answers: File,
    program: &'a Program,
    /// Name of the agent.
    name: String,
    answer: Vec<u8>,
    /// Whether the answer is in the result of the agent's last fetch, instead of `answer`.
    fetched: bool,
}

/// Runs the process with the agent, whose parent must be the proxy. Standard input and output are the pipes to the proxy.
/// The first PDU to the proxy is CREDS with the agent's features, or TEXT with the reason why it cannot be loaded.
///
/// # Errors
/// A failure of the connection to the proxy.
#[allow(unsafe_code, reason = "the agent is a shared object")]
pub(crate) fn run(options: &Options, program: &Program, parent: i32) -> Result<(), BoxError> {
    set_pdeathsig(Signal::SIGKILL)?;
    if getppid().as_raw() != parent {
        return Err("the proxy has ended".into());
    }
    // Output of the agent goes to the log, not into the middle of a PDU.
    let requests = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let answers = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    dup2_stdin(File::open("/dev/null")?)?;
    dup2_stdout(io::stderr())?;
    let (file, entry, domain) = (&options.so, options.entry(), options.domain.into());
    // SAFETY: this process exists to run the code of this file, which its command line names.
    let loaded = unsafe { SharedObject::open_with_debug(file, &entry, domain, options.debug()) };
    let mut first = Vec::new();
    let mut agent = match loaded {
        Ok(agent) => agent,
        Err(e) => {
            Text { ident: 0, text: e.to_string().as_bytes() }.encode(&mut first, FROM_AGENT)?;
            return Ok(write(&answers, &first, &[])?);
        }
    };
    // Threads of the agent may still run its functions when the process ends.
    agent.keep_loaded();
    encode_creds(&mut first, std::process::id() as i32, agent.features())?;
    let (name, answer) = (options.name(), Vec::new());
    let mut serving = Serving { agent, requests, answers, program, name, answer, fetched: false };
    let served = write(&serving.answers, &first, &[]).map_err(BoxError::from).and_then(|()| serving.serve());
    let code = served.as_ref().err().and_then(|e| e.downcast_ref::<io::Error>()?.raw_os_error());
    if code == Some(Errno::EBADF as i32) {
        error!(source = "agent", "the agent has closed descriptors that are not its own");
        // Functions that run at the exit of the process could do anything now.
        let _ = raise(Signal::SIGKILL);
    }
    served
}

impl Serving<'_> {
    /// Serves requests until the proxy closes its pipe.
    fn serve(&mut self) -> Result<(), BoxError> {
        let mut frames = Frames::new();
        loop {
            self.program.tick();
            while let Some((header, pdu)) = frames.next_pdu()? {
                debug!(target: "pdu", "got {} PDU, {} bytes, from {}", header.pdu, header.len, header.from);
                if !header.pdu.is_request() {
                    self.tell(header, pdu);
                    continue;
                }
                self.ask(header, pdu);
                let (head, rest) = if self.fetched { self.agent.fetched() } else { (&self.answer[..], &[][..]) };
                debug!(target: "pdu", "sending {} bytes", head.len() + rest.len());
                write(&self.answers, head, rest)?;
            }
            let space = frames.space();
            match repeat(&self.requests, PollFlags::POLLIN, |mut requests| requests.read(space))? {
                0 => return Ok(()),
                n => frames.filled(n),
            }
        }
    }

    fn wants_clients(&self) -> bool {
        self.agent.features().intersects(Features::AUTHORIZE | Features::CONTAINER)
    }

    /// Calls the agent for a PDU that has no answer.
    fn tell(&mut self, header: Header, pdu: &[u8]) {
        let told = match Pdu::decode(header, pdu) {
            Ok(Pdu::Attr(_)) if !self.wants_clients() => return,
            Ok(Pdu::Error(e)) if e.status() != Err(Error::NOTCONN) => {
                return error!(source = "pmcd", "unexpected ERROR PDU from pmcd");
            }
            Ok(pdu @ (Pdu::Profile(_) | Pdu::Attr(_) | Pdu::Error(_))) => {
                self.answer.clear();
                self.agent.answer(header, pdu, &mut self.answer)
            }
            Ok(_) => return error!(source = "pmcd", "unexpected {} PDU from pmcd", header.pdu),
            Err(e) => return error!(source = "pmcd", "{e}"),
        };
        if let Err(e) = told {
            warn!(source = "agent", "the agent refuses a {} PDU of client {}: {e}", header.pdu, header.from);
        }
    }

    /// Calls the agent for a request, and leaves the answer in `self.answer`.
    fn ask(&mut self, header: Header, pdu: &[u8]) {
        self.answer.clear();
        self.fetched = false;
        if self.answer.capacity() > KEPT {
            self.answer = Vec::new();
        }
        let answered = match Pdu::decode(header, pdu) {
            Ok(pdu) if pdu.asks_nothing() => {
                error!(source = "pmcd", "invalid {} PDU: an empty request, or more than one name or PMID", header.pdu);
                return self.fail(Error::IPC);
            }
            Ok(Pdu::LabelReq(req)) if self.agent.interface() < 7 => {
                default_labels(req, &self.name, &mut self.answer).map(|()| Answered::Appended)
            }
            Ok(pdu) => self.agent.answer(header, pdu, &mut self.answer),
            Err(e) => {
                error!(source = "pmcd", "{e}");
                return self.fail(Error::IPC);
            }
        };
        match answered {
            Ok(Answered::Fetched) => {
                let (head, rest) = self.agent.fetched();
                self.fetched = head.len() + rest.len() <= MAX_REPLY;
                if !self.fetched {
                    self.too_big(header);
                }
            }
            Ok(_) if self.answer.len() > MAX_REPLY => self.too_big(header),
            Ok(Answered::Appended) => {}
            Ok(_) => self.fail(Error::NYI),
            Err(e) => self.fail(presentable(e)),
        }
    }

    fn too_big(&mut self, header: Header) {
        error!(source = "agent", "the answer to a {} PDU is over {MAX_REPLY} bytes", header.pdu);
        self.fail(Error::TOOBIG);
    }

    fn fail(&mut self, e: Error) {
        self.answer.clear();
        // An ERROR PDU has 16 bytes, which always fit.
        let _ = encode_error(&mut self.answer, FROM_AGENT, Err(e));
    }
}

/// Answers a request for labels in place of an agent with an interface before version 7, which has no function for
/// labels. As in pmcd, the domain of such an agent has a default label.
fn default_labels(req: LabelReq, agent: &str, out: &mut Vec<u8>) -> pmapi::Result {
    let set =
        Some(req.bits).filter(|bits| *bits == LabelLevel::Domain as i32).and_then(|_| LabelSet::domain(agent).ok());
    let labels: Vec<RawLabel> = set.iter().flat_map(LabelSet::index).collect();
    let set = set.as_ref().map(|set| LabelSetRef { inst: None, labels: Ok(&labels), json: set.json().as_bytes() });
    encode_label(out, FROM_AGENT, req, set.as_slice())
}

/// Returns the error that pmcd gets for an error of the agent. pmcd would interpret some errors as a failure of the
/// connection and drop the agent, and others as a change of the agent's state.
fn presentable(e: Error) -> Error {
    match e {
        Error::PMDANOTREADY | Error::PMDAREADY | Error::TIMEOUT | Error::IPC => Error::AGAIN,
        e if e == Error::from_errno(nix::errno::Errno::EPIPE as i32) => Error::AGAIN,
        e => e,
    }
}

/// Writes both parts of an answer, with one system call if the proxy keeps up.
fn write(answers: &File, head: &[u8], rest: &[u8]) -> io::Result<()> {
    let mut both = [IoSlice::new(head), IoSlice::new(rest)];
    let mut parts = &mut both[..];
    // Removes empty parts.
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        match repeat(answers, PollFlags::POLLOUT, |mut answers| answers.write_vectored(parts))? {
            0 => return Err(ErrorKind::WriteZero.into()),
            n => IoSlice::advance_slices(&mut parts, n),
        }
    }
    Ok(())
}

/// Repeats a read or write that a signal has interrupted, or that would block because the agent has made the pipe
/// non-blocking.
fn repeat(file: &File, events: PollFlags, mut act: impl FnMut(&File) -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match act(file) {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                match poll(&mut [PollFd::new(file.as_fd(), events)], PollTimeout::NONE) {
                    Ok(_) | Err(Errno::EINTR) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            done => return done,
        }
    }
}
