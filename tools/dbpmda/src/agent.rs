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
use pcp_collector::{Address, Channel as _, Error, Launch, LoadError, SharedObject, Stream};
use pcp_pdu::FrameError;
use pcp_pdu::codec::Writer;
use pcp_pdu::handshake::{Attr, Features, encode_creds, encode_error};
use pcp_pdu::{HEADER, Header, Pdu, PduType};
use pmda::dso::abi::Interface;

use crate::console::{Console, Way, err};

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
    console: Console,
    child: Option<Child>,
    /// Whether the connection closes without the error with which pmcd ends a client.
    is_left: bool,
}

/// Kind of connection.
enum Link {
    Stream(Stream),
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
    pub(crate) fn start<'a>(
        program: &[u8],
        arguments: impl Iterator<Item = &'a [u8]>,
        console: &Console,
    ) -> io::Result<Self> {
        let mut command = Command::new(OsStr::from_bytes(program));
        command.args(arguments.map(OsStr::from_bytes));
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
        let mut agent = Agent::new(Link::Stream(stream), program, console);
        agent.child = child;
        Ok(agent)
    }

    /// Connects to an agent that listens.
    pub(crate) fn connect(address: &Address, name: &[u8], console: &Console) -> io::Result<Self> {
        let stream = Stream::socket(address.connect()?)?;
        let mut agent = Agent::new(Link::Stream(stream), name, console);
        agent.is_socket = true;
        Ok(agent)
    }

    /// Loads an agent from a shared object.
    #[allow(unsafe_code, reason = "the agent is a shared object")]
    pub(crate) fn load(path: &[u8], init: &str, domain: i32, console: &Console) -> Result<Self, LoadError> {
        let file = OsStr::from_bytes(path).as_ref();
        // SAFETY: the user of dbpmda asks for the code of this file to be run.
        let object = unsafe { SharedObject::open_with_debug(file, init, domain, console.options())? };
        let (version, interface) = (object.pmapi(), object.interface());
        let (entry, asked) = (object.entry(), Interface::challenge(0).interface);
        let challenge = format!("challenge: pmda_interface={asked:#x} pmapi_version=2");
        console.trace("pdu", format_args!("DSO init {init}->{entry:#x}() domain=0 {challenge}"));
        console
            .trace("pdu", format_args!("DSO has domain={domain} pmda_interface={interface} pmapi_version={version}"));
        let mut agent = Agent::new(Link::Shared(Box::new(object)), path, console);
        agent.version = Some(version);
        Ok(agent)
    }

    fn new(link: Link, name: &[u8], console: &Console) -> Self {
        let fd = match &link {
            Link::Stream(stream) => stream.descriptor().map_or(-1, |fd| fd.as_raw_fd()),
            Link::Shared(_) => -1,
        };
        let (name, console) = (name.to_owned(), console.clone());
        let (version, child, has_profile, is_socket, is_left) = (None, None, false, false, false);
        Agent { link, name, version, has_profile, is_socket, fd, console, child, is_left }
    }

    /// Returns the shared object, if the agent is one.
    pub(crate) fn object(&mut self) -> Option<&mut SharedObject> {
        match &mut self.link {
            Link::Shared(object) => Some(object),
            Link::Stream(_) => None,
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
        match self.object() {
            Some(object) => object.attribute(0, attr).map_err(pmapi::Error::code),
            None => self.send(|out| attr.encode(out, 0)),
        }
    }

    /// Returns the process identifier of a program that was started here.
    pub(crate) fn pid(&self) -> Option<u32> {
        Some(self.child.as_ref()?.id())
    }

    /// Exchanges versions; the agent sends first. An agent that does not respond stays connected.
    pub(crate) fn exchange_versions(&mut self, seconds: u32) {
        let (name, console) = (String::from_utf8_lossy(&self.name).into_owned(), self.console.clone());
        match self.receive_within(Some(Duration::from_secs(seconds.into()))) {
            Ok(reply) if reply.header.pdu == PduType::CREDS => {
                if let Err(code) = self.answer_creds(&reply) {
                    let code = error_text(code);
                    err!(console, "Warning: version exchange failed for PMDA {name}: {code}\n");
                }
                return;
            }
            Ok(reply) => {
                err!(console, "pmdaversion: expecting PDU_CREDS, got PDU type {}\n", reply.header.pdu);
                console.show_recent();
            }
            Err(0) => err!(console, "pmdaversion: expecting PDU_CREDS, got EOF\n"),
            Err(code) => err!(console, "__pmGetPDU({}): {}\n", self.fd, error_text(code)),
        }
        err!(console, "Warning: no version exchange with PMDA {name} after {seconds} secs\n");
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
        let stream = match &mut self.link {
            Link::Stream(stream) => stream,
            Link::Shared(object) => return object.send(&bytes, None).map_err(|e| e.code().code()),
        };
        self.console.show_pdu(Way::Sent, self.fd, header, &bytes);
        let code = match stream.send(&bytes, None) {
            Ok(()) => {
                self.console.note_pdu(Way::Sent, self.fd, header);
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
        self.console.trace("pdu", format_args!("__pmXmitPDU: {kind} result -1 != {}\n__pmXmitPDU: {why}", header.len));
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
        self.receive_within(None)
    }

    fn receive_within(&mut self, timeout: Option<Duration>) -> Result<Reply, i32> {
        let (mut bytes, fd, console) = (Vec::new(), self.fd, &self.console);
        let stream = match &mut self.link {
            Link::Stream(stream) => stream,
            Link::Shared(object) => {
                let header = object.receive(&mut bytes, None).map_err(|e| e.code().code())?;
                return Ok(Reply { header, bytes });
            }
        };
        match stream.receive(&mut bytes, timeout) {
            Ok(header) => {
                console.note_pdu(Way::Received, fd, header);
                console.show_pdu(Way::Received, fd, header, &bytes);
                return Ok(Reply { header, bytes });
            }
            Err(Error::Closed) => return Err(0),
            Err(Error::TimedOut(_)) => return Err(pmapi::Error::TIMEOUT.code()),
            // Bytes that are not a PDU are skipped.
            Err(Error::CutShort(have)) => {
                notify_cut_short(console, fd, have, stream.unread());
                stream.discard(have);
            }
            Err(Error::Frame(FrameError::TooShort(len) | FrameError::TooLong(len))) => {
                console.notify("Error", format_args!("__pmGetPDU: fd={fd} illegal PDU len={len} in hdr"));
                stream.discard(HEADER);
            }
            Err(Error::Frame(FrameError::BadType(code))) => {
                console.notify("Error", format_args!("__pmGetPDU: fd={fd} illegal PDU type={code} in hdr"));
                stream.discard(HEADER);
            }
            Err(_) => {}
        }
        Err(pmapi::Error::IPC.code())
    }
}

/// Shows that the agent's output ended within a PDU, after `have` bytes of it.
fn notify_cut_short(console: &Console, fd: i32, have: usize, bytes: &[u8]) {
    let word = |at: usize| bytes.get(4 * at..)?.first_chunk().map(|word| u32::from_be_bytes(*word));
    let Some(len) = word(0) else {
        return console.notify("Error", format_args!("__pmGetPDU: fd={fd} hdr read: bad len={have}"));
    };
    let first = have.min(HEADER);
    let (want, got) = ((len as usize).saturating_sub(first), have - first);
    console.notify("Error", format_args!("__pmGetPDU: fd={fd} data read: have {first}, want {want}, got {got}"));
    let Some(pdu) = word(1) else { return };
    let from = word(2).map_or_else(String::new, |from| format!(" from={from:#x}"));
    console.notify("Error", format_args!("__pmGetPDU: PDU hdr: len={len:#x} type={pdu:#x}{from}"));
}

impl Drop for Agent {
    /// Sends the error with which pmcd ends a client; the connection closes afterwards. Unloading a shared object ends
    /// its client.
    fn drop(&mut self) {
        if !self.is_left && self.interface().is_none() {
            // Sending fails if the agent has ended.
            let _ = self.send(|out| encode_error(out, 0, Err(pmapi::Error::NOTCONN)));
        }
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
