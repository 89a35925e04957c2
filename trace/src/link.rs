//! The connection of the synchronous TCP transport.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::options::{Options, State};
use crate::protocol::{self, ACK_LEN, Kind, Pdu, Prepared};
use crate::status::Shared;
use pcp_base::backoff::Backoff;
use pcp_base::file::Kept;
use pcp_base::thread;

/// How long a call waits for a reconnection: enough on the same host.
const GRACE: Duration = Duration::from_millis(10);

/// Shortest lifetime of a useful connection. A shorter one counts as a failed attempt.
const LASTING: Duration = Duration::from_secs(1);
/// Delay that replaces one that `Instant` cannot represent: 100 years.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Connects, and reads the agent's greeting.
pub(crate) fn connect(options: &Options) -> Result<Kept<TcpStream>, Failure> {
    let mut failure = Failure::from(io::Error::from(io::ErrorKind::HostUnreachable));
    for address in (options.host.as_str(), options.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, at_least(options.connect_timeout)) {
            Ok(stream) => {
                let kept = Kept::new(stream)?;
                let stream = kept.get()?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(at_least(options.request_timeout)))?;
                stream.set_write_timeout(Some(at_least(options.request_timeout)))?;
                acknowledgement(stream, after(options.request_timeout), options.request_timeout)?;
                return Ok(kept);
            }
            Err(e) => failure = e.into(),
        }
    }
    Err(failure)
}

/// Reads an acknowledgement until `end`. Returns the protocol version, or the kind that was counted.
///
/// The read timeout of the stream must be `timeout`. This function restores it.
fn acknowledgement(mut stream: &TcpStream, end: Instant, timeout: Duration) -> Result<i32, Failure> {
    let mut ack = [0; ACK_LEN];
    let mut read = match stream.read(&mut ack) {
        Err(e) if e.kind() == io::ErrorKind::Interrupted => 0,
        read => read?,
    };
    if read < ACK_LEN {
        // Otherwise each byte could take the whole timeout.
        read_rest(stream, &mut ack, &mut read, end)?;
        stream.set_read_timeout(Some(at_least(timeout)))?;
    }
    match protocol::next(&ack) {
        Ok(Some((Pdu::Ack(code), _))) if code < 0 => Err(Failure::from_code(code)),
        Ok(Some((Pdu::Ack(code), _))) => Ok(code),
        _ => Err(Failure::Protocol),
    }
}

#[cold]
fn read_rest(mut stream: &TcpStream, ack: &mut [u8], read: &mut usize, end: Instant) -> io::Result<()> {
    while *read < ack.len() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut ack[*read..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => *read += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Avoids a timeout of zero, which sockets do not accept.
fn at_least(time: Duration) -> Duration {
    time.max(Duration::from_millis(1))
}

/// Returns the time after `delay`, or after [`FOR_EVER`] if `Instant` cannot represent it.
fn after(delay: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(delay).unwrap_or(now + FOR_EVER)
}

/// Records that a connection has broken. A connection shorter than [`LASTING`] counts as a failed attempt, so that a
/// server that accepts and closes at once is not tried continuously.
pub(crate) fn broke(backoff: &mut Backoff, since: Instant, options: &Options) {
    if since.elapsed() < LASTING {
        backoff.failed(&options.reconnect);
    } else {
        backoff.succeeded();
    }
}

/// Times to check for the shared-memory transport: before each connection, and at intervals while one is up.
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
    /// A thread is connecting. The flag is true once a call has waited for it.
    Coming(Receiver<Result<Kept<TcpStream>, Failure>>, bool),
    /// Connected. The flag is true once a trace event was acknowledged.
    Up(Kept<TcpStream>, bool),
}

/// The connection, with its delays.
#[derive(Debug)]
pub(crate) struct Link {
    connection: Connection,
    backoff: Backoff,
    looks: Looks,
    /// No call has waited for a connection yet.
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

    /// Sends a trace event, and waits for the acknowledgement. Counts it as sent or missed, and returns true.
    ///
    /// Returns false, without counting, when the agent has closed a connection that had worked.
    pub(crate) fn send(&mut self, shared: &Shared, pdu: &Prepared<'_>) -> bool {
        self.pdu.clear();
        protocol::append(&mut self.pdu, pdu);
        self.ensure(shared);
        if let Connection::Up(stream, acknowledged) = &mut self.connection {
            shared.say(State::PDU, || format!("sending {} bytes: {:?}", self.pdu.len(), protocol::next(&self.pdu)));
            match exchange(stream, &self.pdu, pdu.kind, shared.options.request_timeout) {
                Ok(()) => {
                    if !std::mem::replace(acknowledged, true) {
                        self.backoff.succeeded();
                    }
                    shared.add_sent(1);
                    return true;
                }
                Err(failure) => {
                    // An agent that has exited may be restarted at once. An agent without a valid answer may have cost
                    // the whole timeout, and only one call in each delay may take that long.
                    let is_end = failure.is_end() && *acknowledged;
                    self.close();
                    shared.down(failure);
                    if is_end {
                        return false;
                    }
                    self.backoff.failed(&shared.options.reconnect);
                }
            }
        }
        shared.add_missed(1);
        true
    }

    pub(crate) fn close(&mut self) {
        self.connection = Connection::Down;
    }

    /// Closes the parent's connection in a forked child. A pending one belongs to a thread that does not exist here.
    pub(crate) fn abandon(&mut self) {
        if matches!(self.connection, Connection::Up(..)) {
            self.close();
        }
    }

    /// Starts connecting if an attempt is due, and waits for a pending connection: at most once for each attempt.
    fn ensure(&mut self, shared: &Shared) {
        if matches!(self.connection, Connection::Down) && self.backoff.is_due() {
            self.connection = start(&shared.options);
        }
        let Connection::Coming(coming, waited) = &mut self.connection else { return };
        let wait = match std::mem::replace(waited, true) {
            true => Duration::ZERO,
            false if std::mem::take(&mut self.first) => shared.options.connect_timeout,
            false => GRACE,
        };
        self.connection = match coming.recv_timeout(wait).or_else(|e| match e {
            RecvTimeoutError::Timeout => Err(()),
            RecvTimeoutError::Disconnected => {
                Ok(Err(Failure::from(io::Error::other("cannot start the thread that connects"))))
            }
        }) {
            Err(()) => return,
            Ok(Ok(stream)) => {
                shared.up();
                Connection::Up(stream, false)
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
    // If the thread cannot be started, the sender is dropped, and the receiver reports a disconnection.
    let _ = thread::spawn_without_signals("pcp-trace-connect", move || _ = sender.send(connect(&options)));
    Connection::Coming(receiver, false)
}

/// Sends a PDU, and reads its acknowledgement. Either may take up to `timeout`.
fn exchange(stream: &Kept<TcpStream>, pdu: &[u8], kind: Kind, timeout: Duration) -> Result<(), Failure> {
    let end = after(timeout);
    let mut stream = stream.get()?;
    stream.write_all(pdu)?;
    match acknowledgement(stream, end, timeout)? {
        code if code == kind as i32 => Ok(()),
        _ => Err(Failure::Protocol),
    }
}
