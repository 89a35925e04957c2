//! The process with the agent: reads pmcd's requests, calls the agent's functions, and writes the answers.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd as _, BorrowedFd};

use nix::poll::PollFlags;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, raise};
use nix::sys::stat::fstat;
use nix::unistd::{dup2_stdin, getppid};
use pcp_collector::{Answered, SharedObject};
use pcp_pdu::handshake::{Features, encode_error};
use pcp_pdu::label::{LabelReq, LabelSetRef, encode_label};
use pcp_pdu::{FROM_AGENT, Header, Pdu, PduType};
use pmapi::{Error, LabelLevel, LabelSet, RawLabel};
use pmda::Failure;
use pmda::host::{Program, SessionError};
use tracing::{debug, error, warn};

use crate::clock::now;
use crate::control::{Control, Message};
use crate::memory::{Phase, Shared, adopt, forget_tunables, keep_freed_memory};
use crate::options::Options;
use crate::wire::{Stream, read_body, read_header, write_parts};

/// Largest answer, in bytes.
const MAX_REPLY: usize = 64 << 20;

/// Memory for answers that is kept between requests, in bytes.
const KEPT: usize = 1 << 20;

/// Device and inode number of a file.
type FileId = (u64, u64);

/// The agent, and the state that the process shares with its supervisor.
struct Serving<'a> {
    agent: SharedObject,
    shared: Shared,
    control: Control,
    input: Stream,
    output: Stream,
    /// The files of input, output and control. The agent may close the descriptors, or open others in their place.
    files: Option<[FileId; 3]>,
    program: &'a Program,
    /// Name of the agent.
    name: String,
    pdu: Vec<u8>,
    answer: Vec<u8>,
    /// Whether the answer is in the result of the agent's last fetch, instead of `answer`.
    fetched: bool,
}

/// Reads a header through the shared memory, where the supervisor finds it.
struct Noted<'a> {
    input: &'a mut Stream,
    shared: &'a Shared,
    /// Number of bytes that have been read.
    have: usize,
}

impl Read for Noted<'_> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let (shared, have) = (self.shared, self.have);
        let count = self.input.repeat(PollFlags::POLLIN, |file| shared.read_header(file.as_fd(), have))?;
        let header = shared.header().unwrap_or_default();
        let read = header.iter().skip(have).take(count);
        space.iter_mut().zip(read).for_each(|(to, from)| *to = *from);
        self.have += count;
        Ok(count)
    }
}

/// Runs the process with the agent. `inherited` has the descriptors of input, output and shared memory, and the number
/// of the supervisor's process.
///
/// # Errors
/// A failure of the connections to pmcd or to the supervisor.
#[allow(unsafe_code, reason = "the agent is a shared object")]
pub(crate) fn run(options: &Options, program: &Program, inherited: [i32; 4]) -> Result<(), Failure> {
    set_pdeathsig(Signal::SIGKILL)?;
    let [input, output, memory, supervisor] = inherited;
    if getppid().as_raw() != supervisor {
        return Err("the supervisor has ended".into());
    }
    keep_freed_memory();
    forget_tunables();
    let [input, output] = [adopt(input)?, adopt(output)?].map(Stream::new);
    let shared = Shared::open(adopt(memory)?.into())?;
    let control = Control::new(io::stdin().as_fd().try_clone_to_owned()?);
    dup2_stdin(File::open("/dev/null")?)?;
    let (file, entry, domain) = (&options.so, options.entry(), options.domain.into());
    // SAFETY: this process exists to run the code of this file, which its command line names.
    let loaded = unsafe { SharedObject::open_with_debug(file, &entry, domain, options.debug()) };
    let mut agent = match loaded {
        Ok(agent) => agent,
        Err(e) => return Ok(control.send(&Message::Failed(e.to_string()))?),
    };
    // Threads of the agent may still run its functions when the process ends.
    agent.keep_loaded();
    control.send(&Message::Loaded(agent.features()))?;
    let (pdu, answer) = (Vec::new(), Vec::new());
    let name = options.name();
    let mut serving =
        Serving { agent, shared, control, input, output, files: None, program, name, pdu, answer, fetched: false };
    serving.files = serving.files();
    serving.serve()
}

impl Serving<'_> {
    fn serve(mut self) -> Result<(), Failure> {
        if !self.wait()? {
            return Ok(());
        }
        loop {
            self.program.tick();
            // In this order: the supervisor reads the header in phase `Idle`.
            self.shared.clear_header();
            self.shared.set_phase(Phase::Idle);
            let ended = match self.step() {
                Ok(true) => continue,
                Ok(false) => Ok(()),
                Err(e) => Err(e),
            };
            if self.files.is_none() || self.files() != self.files {
                self.give_up();
            }
            self.shared.set_phase(Phase::Ended);
            return ended;
        }
    }

    /// Returns the files of input, output and control; `None` if one of the descriptors is closed.
    fn files(&self) -> Option<[FileId; 3]> {
        let id = |fd: BorrowedFd<'_>| fstat(fd).ok().map(|found| (found.st_dev, found.st_ino));
        Some([id(self.input.as_fd())?, id(self.output.as_fd())?, id(self.control.as_fd())?])
    }

    /// Ends a process whose agent has closed the descriptors of the connection. The supervisor still has them, and
    /// starts another process.
    fn give_up(&self) {
        error!(source = "agent", "the agent has closed descriptors that are not its own");
        // An answer that could not be written is still due. A PDU of which a part was read is lost.
        self.shared.change(Phase::Writing, Phase::Calling);
        if self.shared.phase() != Some(Phase::Reading) {
            // Functions that run at the exit of the process could do anything now.
            let _ = raise(Signal::SIGKILL);
        }
    }

    /// Waits until the supervisor gives this process the connection. Returns false when the supervisor has ended.
    /// Passes the profile and the attributes of clients to the agent, if it does not have them.
    fn wait(&mut self) -> io::Result<bool> {
        let mut clients = Vec::new();
        self.shared.clear_header();
        loop {
            match self.control.receive()? {
                Some(Message::Client(pdu)) => clients.push(pdu),
                Some(Message::Serve) => break,
                Some(_) => return Err(io::ErrorKind::InvalidData.into()),
                None => return Ok(false),
            }
        }
        clients.push(self.shared.profile());
        for pdu in clients.iter().filter(|pdu| !pdu.is_empty()) {
            let Ok(Some(header)) = Header::parse(pdu) else { continue };
            self.begin(Phase::Telling, header)?;
            self.tell(header, pdu);
            if !self.shared.change(Phase::Telling, Phase::Idle) {
                // The supervisor has taken the connection.
                self.control.send(&Message::Back)?;
                return self.wait();
            }
        }
        Ok(true)
    }

    /// Serves one PDU. Returns false at the end of file.
    fn step(&mut self) -> Result<bool, Failure> {
        let mut noted = Noted { input: &mut self.input, shared: &self.shared, have: 0 };
        let Some(header) = read_header(&mut noted, &mut self.pdu)? else { return Ok(false) };
        self.shared.set_phase(Phase::Reading);
        read_body(&mut self.input, header, &mut self.pdu)?;
        debug!(target: "pdu", "got {} PDU, {} bytes, from {}", header.pdu, header.len, header.from);
        let pdu = std::mem::take(&mut self.pdu);
        let phase = if header.pdu.is_request() { Phase::Calling } else { Phase::Telling };
        self.remember(header, &pdu)?;
        self.begin(phase, header)?;
        if phase == Phase::Calling {
            self.ask(header, &pdu);
        } else {
            self.tell(header, &pdu);
        }
        self.pdu = pdu;
        if !self.shared.change(phase, Phase::Writing) {
            // The supervisor has answered, and has the connection until it gives it back.
            self.control.send(&Message::Back)?;
            return Ok(self.wait()?);
        }
        if phase == Phase::Calling {
            let parts = if self.fetched { self.agent.fetched() } else { (&self.answer[..], &[][..]) };
            debug!(target: "pdu", "sending {} bytes", parts.0.len() + parts.1.len());
            write_parts(&mut self.output, parts).map_err(SessionError::Write)?;
        }
        Ok(true)
    }

    /// Records the beginning of a call. Notifies the supervisor after a time without calls.
    fn begin(&mut self, phase: Phase, header: Header) -> io::Result<()> {
        if !self.shared.begin(phase, header.pdu, now()) {
            self.control.send(&Message::Busy)?;
        }
        Ok(())
    }

    /// Stores the data that the agent needs after a restart.
    fn remember(&mut self, header: Header, pdu: &[u8]) -> io::Result<()> {
        match header.pdu {
            PduType::PROFILE => self.shared.set_profile(pdu),
            PduType::ATTR | PduType::ERROR if self.wants_clients() && pdu.len() < 8000 => {
                self.control.send(&Message::Client(pdu.to_vec()))?;
            }
            _ => {}
        }
        Ok(())
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
