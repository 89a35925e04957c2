//! Connection to an agent.

use std::ffi::OsStr;
use std::io::{
    self,
    ErrorKind::{OutOfMemory, WouldBlock},
};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Child, Command};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use pcp_collector::{Address, Channel as _, Collector, Error, Launch, LoadError, SharedObject, Stream};
use pcp_pdu::FrameError;
use pcp_pdu::codec::Writer;
use pcp_pdu::handshake::{Attr, Features, encode_creds, encode_error};
use pcp_pdu::{HEADER, Header, Pdu, PduType};
use pmapi::debug::Debug;
use pmda::dso::abi::Interface;

use crate::console::{Console, err};
use crate::trace::{Trace, Way};

/// Agent that exchanges PDUs, whatever its state. A process continues after the connection closes, until it notices.
pub(crate) struct Agent {
    link: Link,
    /// Program, address or file that was opened.
    pub(crate) name: Vec<u8>,
    /// PMAPI version, from the CREDS PDU or the shared object.
    pub(crate) version: Option<u8>,
    /// Whether the agent has received a profile.
    pub(crate) has_profile: bool,
    is_socket: bool,
    /// Descriptor from which PDUs are read, for messages.
    fd: i32,
    trace: Trace,
    child: Option<Child>,
    /// Whether the connection closes without a word.
    is_left: bool,
}

/// Kind of connection.
enum Link {
    Stream(Box<Collector<Stream>>),
    Shared(Box<SharedObject>),
}

/// PDU from an agent.
pub(crate) struct Reply {
    pub(crate) header: Header,
    pub(crate) bytes: Vec<u8>,
}

impl Reply {
    /// Decodes the PDU; `None` if its content is invalid for its type.
    pub(crate) fn pdu(&self) -> Option<Pdu<'_>> {
        Pdu::decode(self.header, &self.bytes).ok()
    }
}

impl Agent {
    /// Starts a program and connects to its standard input and output.
    pub(crate) fn start(program: &[u8], arguments: &[Vec<u8>], trace: &Trace, console: &Console) -> io::Result<Self> {
        let mut command = Command::new(OsStr::from_bytes(program));
        command.args(arguments.iter().map(|word| OsStr::from_bytes(word)));
        let (stream, child) = match Launch::pipe(command).open() {
            Ok(process) => process.into_parts(),
            Err(Error::Spawn { source, .. }) if !matches!(source.kind(), WouldBlock | OutOfMemory) => {
                // In C the forked process notices that the program cannot be executed, and ends.
                err!(console, "execvp: {}\n", pmapi::Error::from(source));
                let ((_, to), (from, _)) = (pipe2(OFlag::O_CLOEXEC)?, pipe2(OFlag::O_CLOEXEC)?);
                (Stream::new(from, to)?, None)
            }
            Err(Error::Spawn { source, .. } | Error::Io(source)) => return Err(source),
            Err(e) => return Err(io::Error::other(e)),
        };
        let mut agent = Agent::new(stream, program, trace);
        agent.child = child;
        Ok(agent)
    }

    /// Connects to an agent that listens.
    pub(crate) fn connect(address: &Address, name: &[u8], trace: &Trace) -> io::Result<Self> {
        let mut agent = Agent::new(Stream::socket(address.connect()?)?, name, trace);
        agent.is_socket = true;
        Ok(agent)
    }

    fn new(stream: Stream, name: &[u8], trace: &Trace) -> Self {
        let fd = stream.descriptor().map_or(-1, |fd| fd.as_raw_fd());
        let mut collector = Collector::new(stream);
        collector.set_timeout(None);
        Agent {
            link: Link::Stream(Box::new(collector)),
            name: name.to_owned(),
            version: None,
            has_profile: false,
            is_socket: false,
            fd,
            trace: trace.clone(),
            child: None,
            is_left: false,
        }
    }

    /// Loads an agent from a shared object.
    pub(crate) fn load(path: &[u8], init: &str, domain: i32, trace: &Trace) -> Result<Self, LoadError> {
        let object = SharedObject::open_with_debug(OsStr::from_bytes(path).as_ref(), init, domain, trace.options())?;
        let (version, interface) = (object.pmapi(), object.interface());
        let (entry, asked) = (object.entry(), Interface::challenge(0).interface);
        let challenge = format!("challenge: pmda_interface={asked:#x} pmapi_version=2");
        trace.line("pdu", format_args!("DSO init {init}->{entry:#x}() domain=0 {challenge}"));
        trace.line("pdu", format_args!("DSO has domain={domain} pmda_interface={interface} pmapi_version={version}"));
        Ok(Agent {
            link: Link::Shared(Box::new(object)),
            name: path.to_owned(),
            version: Some(version),
            has_profile: false,
            is_socket: false,
            fd: -1,
            trace: trace.clone(),
            child: None,
            is_left: false,
        })
    }

    /// Keeps a shared object loaded until the process ends.
    pub(crate) fn kept(mut self) -> Agent {
        if let Link::Shared(object) = &mut self.link {
            object.keep_loaded();
        }
        self
    }

    /// Passes debug options on to the libpcp of a shared object.
    pub(crate) fn set_debug(&self, options: Debug) {
        if let Link::Shared(object) = &self.link {
            object.set_debug(options);
        }
    }

    /// Closes the connection without the error with which pmcd ends a client.
    pub(crate) fn leave(mut self) {
        self.is_left = true;
    }

    /// Returns the interface version if the agent is a shared object.
    pub(crate) fn interface(&self) -> Option<u8> {
        match &self.link {
            Link::Shared(object) => Some(object.interface()),
            Link::Stream(_) => None,
        }
    }

    /// Sends an attribute of the client.
    pub(crate) fn attribute(&mut self, attr: Attr<'_>) -> Result<(), i32> {
        match &mut self.link {
            Link::Shared(object) => object.attribute(0, attr).map_err(pmapi::Error::code),
            Link::Stream(_) => self.send(|out| attr.encode(out, 0)),
        }
    }

    /// Returns the process identifier of a program that was started here.
    pub(crate) fn pid(&self) -> Option<u32> {
        Some(self.child.as_ref()?.id())
    }

    /// Exchanges versions; the agent sends first. An agent that does not respond stays connected.
    pub(crate) fn exchange_versions(&mut self, seconds: u32, console: &Console) {
        let name = String::from_utf8_lossy(&self.name).into_owned();
        self.set_timeout(Some(Duration::from_secs(seconds.into())));
        let received = self.receive();
        self.set_timeout(None);
        match received {
            Ok(reply) if reply.header.pdu == PduType::CREDS => {
                if let Err(code) = self.answer_creds(&reply) {
                    let code = error_text(code);
                    err!(console, "Warning: version exchange failed for PMDA {name}: {code}\n");
                }
                return;
            }
            Ok(reply) => {
                err!(console, "pmdaversion: expecting PDU_CREDS, got PDU type {}\n", reply.header.pdu);
                self.trace.show_recent();
            }
            Err(0) => err!(console, "pmdaversion: expecting PDU_CREDS, got EOF\n"),
            Err(code) => err!(console, "__pmGetPDU({}): {}\n", self.fd, error_text(code)),
        }
        err!(console, "Warning: no version exchange with PMDA {name} after {seconds} secs\n");
    }

    fn set_timeout(&mut self, timeout: Option<Duration>) {
        if let Link::Stream(collector) = &mut self.link {
            collector.set_timeout(timeout);
        }
    }

    fn answer_creds(&mut self, reply: &Reply) -> Result<(), i32> {
        let Some(Pdu::Creds(creds)) = reply.pdu() else { return Err(pmapi::Error::IPC.code()) };
        let Some((version, _)) = creds.version() else { return Ok(()) };
        self.version = Some(version);
        let pid = std::process::id() as i32;
        self.send(|out| encode_creds(out, pid, Features::default()))
    }

    /// Sends a PDU. The error is a code of libpcp.
    pub(crate) fn send(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> pmapi::Result) -> Result<(), i32> {
        let mut bytes = Vec::new();
        encode(&mut bytes).map_err(pmapi::Error::code)?;
        let header = Header::parse(&bytes).ok().flatten().ok_or(pmapi::Error::IPC.code())?;
        let collector = match &mut self.link {
            Link::Stream(collector) => collector,
            Link::Shared(object) => return object.send(&bytes, None).map_err(|e| e.code().code()),
        };
        self.trace.show(Way::Sent, self.fd, header, &bytes);
        let code = match collector.send_bytes(&bytes) {
            Ok(()) => {
                self.trace.note(Way::Sent, self.fd, header);
                return Ok(());
            }
            Err(Error::Closed) if !self.is_socket => pmapi::Error::from_errno(Errno::EPIPE as i32),
            Err(Error::Io(e)) => e.into(),
            Err(e) => e.code(),
        };
        let (kind, why) = if self.is_socket {
            ("socket __pmSend()", "PM_ERR_IPC because __pmSocketClosed() (maybe error 32 from oserror())".into())
        } else {
            ("non-socket write()", format!("error {} from oserror()", code.code()))
        };
        self.trace.line("pdu", format_args!("__pmXmitPDU: {kind} result -1 != {}\n__pmXmitPDU: {why}", header.len));
        Err(code.code())
    }

    /// Sends a PDU that consists of 32-bit words.
    pub(crate) fn send_words(&mut self, pdu: PduType, words: &[u32]) -> Result<(), i32> {
        self.send(|out| {
            let mut w = Writer::new(out, pdu, 0);
            for word in words {
                w.u32(*word);
            }
            w.finish()
        })
    }

    /// Waits for a PDU. The error is a code of libpcp, or 0 at the end of the agent's output.
    pub(crate) fn receive(&mut self) -> Result<Reply, i32> {
        let fd = self.fd;
        let collector = match &mut self.link {
            Link::Stream(collector) => collector,
            Link::Shared(object) => {
                let mut bytes = Vec::new();
                let header = object.receive(&mut bytes, None).map_err(|e| e.code().code())?;
                return Ok(Reply { header, bytes });
            }
        };
        let e = match collector.receive_bytes() {
            Ok((header, bytes)) => {
                self.trace.note(Way::Received, fd, header);
                self.trace.show(Way::Received, fd, header, bytes);
                return Ok(Reply { header, bytes: bytes.to_owned() });
            }
            Err(e) => e,
        };
        match e {
            Error::Closed => return Err(0),
            Error::TimedOut(_) => return Err(pmapi::Error::TIMEOUT.code()),
            Error::CutShort(have) => {
                self.notify_cut_short(have);
                self.discard(have);
            }
            Error::Frame(FrameError::TooShort(len) | FrameError::TooLong(len)) => {
                self.trace.notify("Error", format_args!("__pmGetPDU: fd={fd} illegal PDU len={len} in hdr"));
                self.discard(HEADER);
            }
            Error::Frame(FrameError::BadType(code)) => {
                self.trace.notify("Error", format_args!("__pmGetPDU: fd={fd} illegal PDU type={code} in hdr"));
                self.discard(HEADER);
            }
            _ => {}
        }
        Err(pmapi::Error::IPC.code())
    }

    /// Skips bytes that are not a PDU.
    fn discard(&mut self, bytes: usize) {
        if let Link::Stream(collector) = &mut self.link {
            collector.channel_mut().discard(bytes);
        }
    }

    fn notify_cut_short(&self, have: usize) {
        let Link::Stream(collector) = &self.link else { return };
        let (fd, bytes) = (self.fd, collector.channel().unread());
        let word = |at: usize| bytes.get(4 * at..)?.first_chunk().map(|word| u32::from_be_bytes(*word));
        let Some(len) = word(0) else {
            return self.trace.notify("Error", format_args!("__pmGetPDU: fd={fd} hdr read: bad len={have}"));
        };
        let first = have.min(HEADER);
        let (want, got) = ((len as usize).saturating_sub(first), have - first);
        self.trace.notify("Error", format_args!("__pmGetPDU: fd={fd} data read: have {first}, want {want}, got {got}"));
        let Some(pdu) = word(1) else { return };
        let from = word(2).map_or_else(String::new, |from| format!(" from={from:#x}"));
        self.trace.notify("Error", format_args!("__pmGetPDU: PDU hdr: len={len:#x} type={pdu:#x}{from}"));
    }
}

impl Drop for Agent {
    /// Sends the error with which pmcd ends a client; the connection closes afterwards.
    fn drop(&mut self) {
        if self.is_left || self.interface().is_some() {
            // Unloading a shared object ends its client.
            return;
        }
        // Sending fails if the agent has ended.
        let _ = self.send(|out| encode_error(out, 0, Err(pmapi::Error::NOTCONN)));
    }
}

/// Returns the text of pmErrStr(3), which also has texts for codes that are not errors.
pub(crate) fn error_text(code: i32) -> String {
    match pmapi::Error::from_code(code) {
        Some(error) => error.to_string(),
        None if code == 0 => "No error".to_owned(),
        None => format!("No such PMAPI error code ({code})"),
    }
}
