//! The connection to the agent.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::options::{Options, State};
use crate::protocol::{self, ACK_LEN, Kind, Pdu};
use crate::status::Shared;

/// How long a call waits for a connection that is made again: enough on the same host.
const GRACE: Duration = Duration::from_millis(10);

/// Why what was traced did not reach the agent.
#[derive(Clone, Debug, Error)]
pub enum Failure {
    /// The connection could not be made, or broke.
    #[error("{0}")]
    Io(Arc<io::Error>),
    /// The agent's access list has this host as disallowed (`PMTRACE_ERR_PERMISSION`).
    #[error("the agent does not allow this host")]
    Permission,
    /// As many connections as the agent allows this host (`PMTRACE_ERR_CONNLIMIT`).
    #[error("the agent allows no more connections of this host")]
    ConnLimit,
    /// An answer that makes no sense (`PMTRACE_ERR_IPC`).
    #[error("the agent's answer makes no sense")]
    Protocol,
}

impl Failure {
    /// Of an error code in an acknowledgement.
    fn from_code(code: i32) -> Failure {
        match code {
            -12010 => Failure::Permission,
            -12011 => Failure::ConnLimit,
            _ => Failure::Protocol,
        }
    }

    /// Whether the other side has closed the connection, as an agent does that ends.
    fn is_end(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        matches!(self, Failure::Io(e) if matches!(e.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Io(Arc::new(error))
    }
}

/// Connects, and waits for the agent's greeting.
pub(crate) fn connect(options: &Options) -> Result<TcpStream, Failure> {
    // A time-out of zero would mean none.
    let at_least = |time: Duration| time.max(Duration::from_millis(1));
    let mut failure = Failure::from(io::Error::from(io::ErrorKind::HostUnreachable));
    for address in (options.host.as_str(), options.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, at_least(options.connect_timeout)) {
            Ok(mut stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(at_least(options.request_timeout)))?;
                stream.set_write_timeout(Some(at_least(options.request_timeout)))?;
                acknowledgement(&mut stream)?;
                return Ok(stream);
            }
            Err(e) => failure = e.into(),
        }
    }
    Err(failure)
}

/// Reads an acknowledgement: the version, or the kind that was counted.
fn acknowledgement(stream: &mut TcpStream) -> Result<i32, Failure> {
    let mut ack = [0; ACK_LEN];
    stream.read_exact(&mut ack)?;
    match protocol::next(&ack) {
        Ok(Some((Pdu::Ack(code), _))) if code < 0 => Err(Failure::from_code(code)),
        Ok(Some((Pdu::Ack(code), _))) => Ok(code),
        _ => Err(Failure::Protocol),
    }
}

/// When the next attempt is due.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: usize,
    next: Option<Instant>,
}

impl Backoff {
    pub(crate) fn is_due(&self) -> bool {
        self.next.is_none_or(|next| next <= Instant::now())
    }

    pub(crate) fn succeeded(&mut self) {
        *self = Backoff::default();
    }

    pub(crate) fn failed(&mut self, delays: &[Duration]) {
        let delay = delays.get(self.failures).or(delays.last()).copied().unwrap_or_default();
        self.failures += 1;
        self.next = Some(Instant::now() + delay);
    }
}

/// When the light way is looked for again: before a connection is made, and now and then while there is one.
#[derive(Debug)]
pub(crate) struct Looks(Instant);

impl Default for Looks {
    fn default() -> Self {
        Looks(Instant::now())
    }
}

impl Looks {
    pub(crate) fn is_due(&mut self, connects: bool, options: &Options) -> bool {
        let now = Instant::now();
        let due = connects || now - self.0 >= options.look_every();
        if due {
            self.0 = now;
        }
        due
    }
}

#[derive(Debug)]
enum Connection {
    Down,
    /// In a thread of its own, so that nobody has to wait for it.
    Coming(Receiver<Result<TcpStream, Failure>>),
    Up(TcpStream),
}

/// The connection of the synchronous protocol.
#[derive(Debug)]
pub(crate) struct Link {
    connection: Connection,
    backoff: Backoff,
    looks: Looks,
    /// Nobody has waited for a connection yet.
    first: bool,
    pdu: Vec<u8>,
}

impl Default for Link {
    fn default() -> Self {
        let (connection, backoff, looks) = (Connection::Down, Backoff::default(), Looks::default());
        Link { connection, backoff, looks, first: true, pdu: Vec::new() }
    }
}

impl Link {
    pub(crate) fn is_time_to_look(&mut self, options: &Options) -> bool {
        let connects = matches!(self.connection, Connection::Down) && self.backoff.is_due();
        self.looks.is_due(connects, options)
    }

    /// Sends and waits for the acknowledgement; false when the agent has closed the connection, otherwise the mark is
    /// sent or missed.
    pub(crate) fn send(&mut self, shared: &Shared, prepared: &[u8], kind: Kind, value: f64) -> bool {
        self.pdu.clear();
        protocol::append(&mut self.pdu, prepared, kind, true, value);
        self.ensure(shared);
        if let Connection::Up(stream) = &mut self.connection {
            shared.say(State::PDU, || format!("sending {} bytes: {:?}", self.pdu.len(), protocol::next(&self.pdu)));
            match exchange(stream, &self.pdu, kind) {
                Ok(()) => {
                    shared.add_sent(1);
                    return true;
                }
                Err(failure) => {
                    let is_end = failure.is_end();
                    self.close();
                    shared.down(failure);
                    if is_end {
                        return false;
                    }
                }
            }
        }
        shared.add_missed(1);
        true
    }

    pub(crate) fn close(&mut self) {
        self.connection = Connection::Down;
    }

    /// Sees to it that there is a connection, if there can be one now.
    fn ensure(&mut self, shared: &Shared) {
        if matches!(self.connection, Connection::Down) && self.backoff.is_due() {
            self.connection = start(&shared.options);
        }
        let Connection::Coming(coming) = &self.connection else { return };
        let wait = if std::mem::take(&mut self.first) { shared.options.connect_timeout } else { GRACE };
        let lost = || Failure::from(io::Error::other("no thread to connect"));
        self.connection = match coming.recv_timeout(wait).or_else(|e| match e {
            RecvTimeoutError::Timeout => Err(()),
            RecvTimeoutError::Disconnected => Ok(Err(lost())),
        }) {
            Err(()) => return,
            Ok(Ok(stream)) => {
                self.backoff.succeeded();
                shared.up();
                Connection::Up(stream)
            }
            Ok(Err(failure)) => {
                self.backoff.failed(&shared.options.reconnect);
                shared.down(failure);
                Connection::Down
            }
        };
    }
}

fn start(options: &Options) -> Connection {
    let (sender, receiver) = sync_channel(1);
    let options = options.clone();
    let connecting = thread::Builder::new().name("pcp-trace-connect".into());
    // Without a thread the sender is dropped, which the receiver finds out.
    let _ = connecting.spawn(move || sender.send(connect(&options)));
    Connection::Coming(receiver)
}

fn exchange(stream: &mut TcpStream, pdu: &[u8], kind: Kind) -> Result<(), Failure> {
    stream.write_all(pdu)?;
    match acknowledgement(stream)? {
        code if code == kind as i32 => Ok(()),
        _ => Err(Failure::Protocol),
    }
}
