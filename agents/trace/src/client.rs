//! A TCP client: its partial PDU, and acknowledgements that wait to be sent.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};

use nix::sys::epoll::EpollFlags;
use trace::protocol::{self, Data, DecodeError, Pdu};

use crate::limits::{Account, Limits};

/// Bytes per read.
pub(crate) const READ: usize = 16 << 10;

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) host: Ipv4Addr,
    pub(crate) account: Account,
    /// The beginning of an incomplete PDU.
    rest: Vec<u8>,
    /// Acknowledgements that the client has not read. The agent does not read from the client meanwhile.
    unsent: Vec<u8>,
    pub(crate) asynchronous: bool,
    /// What the agent waits for at this client.
    pub(crate) waits: EpollFlags,
    /// Time at which the connection is closed unless a PDU is complete by then, in seconds of the server.
    pub(crate) due: u32,
    /// The client has not sent a whole PDU yet.
    fresh: bool,
    /// Whether `pdu-time` applies instead of `idle-time`: the client must send its first PDU, complete a PDU, or read
    /// its acknowledgements.
    owes: bool,
}

/// Why the agent closes a connection.
#[derive(Debug)]
pub(crate) enum Left {
    End,
    Failed(io::Error),
    Nonsense(DecodeError),
    /// The client has sent an acknowledgement, which only agents send.
    Ack,
    /// A time limit has passed: `pdu-time` or `idle-time`.
    Silent,
}

impl From<io::Error> for Left {
    fn from(error: io::Error) -> Left {
        Left::Failed(error)
    }
}

/// Context for serving one client. The buffers are shared by all clients.
pub(crate) struct Turn<'a> {
    pub(crate) buffer: &'a mut [u8],
    pub(crate) acks: &'a mut Vec<u8>,
    pub(crate) pid: u32,
    pub(crate) now: u32,
    pub(crate) limits: &'a Limits,
}

impl Turn<'_> {
    /// Allocates the buffer for reading from a client.
    pub(crate) fn buffer() -> Box<[u8]> {
        vec![0; protocol::MAX_LEN + READ].into()
    }

    fn after(&self, time: std::time::Duration) -> u32 {
        self.now.saturating_add(u32::try_from(time.as_secs()).unwrap_or(u32::MAX))
    }
}

impl Client {
    pub(crate) fn new(stream: TcpStream, host: Ipv4Addr, account: Account, due: u32) -> Client {
        let (rest, unsent) = (Vec::new(), Vec::new());
        Client {
            stream,
            host,
            account,
            rest,
            unsent,
            asynchronous: false,
            waits: EpollFlags::EPOLLIN,
            due,
            fresh: true,
            owes: true,
        }
    }

    /// Returns whether acknowledgements wait until the client has read earlier ones.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Serves the client: sends waiting acknowledgements, or else reads PDUs and passes trace events to `add`.
    ///
    /// Returns true when the client may have sent more than was read.
    pub(crate) fn turn(&mut self, turn: &mut Turn<'_>, add: &mut impl FnMut(Account, &Data<'_>)) -> Result<bool, Left> {
        turn.acks.clear();
        let mut more = false;
        let mut counted = 0;
        if self.has_unsent() {
            let sent = write(&mut self.stream, &self.unsent)?;
            self.unsent.drain(..sent);
        } else {
            let account = self.account;
            more = !self.receive(turn, &mut |data| {
                counted += 1;
                add(account, data);
            })?;
            let sent = write(&mut self.stream, turn.acks)?;
            self.unsent.extend_from_slice(turn.acks.get(sent..).unwrap_or_default());
        }
        self.fresh &= counted == 0;
        let owes = self.fresh || !self.rest.is_empty() || !self.unsent.is_empty();
        // Single bytes do not extend the time: only whole PDUs do.
        if counted > 0 || owes != self.owes {
            self.due = turn.after(if owes { turn.limits.pdu_time } else { turn.limits.idle_time });
        }
        self.owes = owes;
        Ok(more)
    }

    /// Reads and decodes PDUs. Returns true when everything was read.
    fn receive(&mut self, turn: &mut Turn<'_>, add: &mut impl FnMut(&Data<'_>)) -> Result<bool, Left> {
        let (before, free) = turn.buffer.split_at_mut_checked(self.rest.len()).ok_or(Left::End)?;
        before.copy_from_slice(&self.rest);
        let n = match self.stream.read(free) {
            Ok(0) => return Err(Left::End),
            Ok(n) => n,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return Ok(true),
            Err(e) => return Err(e.into()),
        };
        let is_full = n == free.len();
        let have = self.rest.len() + n;
        self.take(turn.buffer.get(..have).unwrap_or_default(), turn.acks, turn.pid, add)?;
        Ok(!is_full)
    }

    fn take(
        &mut self,
        mut bytes: &[u8],
        acks: &mut Vec<u8>,
        pid: u32,
        add: &mut impl FnMut(&Data<'_>),
    ) -> Result<(), Left> {
        while let Some((pdu, len)) = protocol::next(bytes).map_err(Left::Nonsense)? {
            let Pdu::Data(data) = pdu else { return Err(Left::Ack) };
            add(&data);
            self.asynchronous = !data.reply;
            if data.reply {
                acks.extend_from_slice(&protocol::encode_ack(data.kind as i32, pid));
            }
            bytes = bytes.get(len..).unwrap_or_default();
        }
        self.rest.clear();
        self.rest.extend_from_slice(bytes);
        Ok(())
    }
}

/// Writes as many bytes as the socket accepts now. Returns their number.
fn write(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    if bytes.is_empty() {
        return Ok(0);
    }
    match stream.write(bytes) {
        Ok(0) => Err(io::ErrorKind::WriteZero.into()),
        Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
        done => done,
    }
}
