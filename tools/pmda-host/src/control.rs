//! Messages between the supervisor and the process with the agent.
//!
//! They are sent over a socket that keeps their boundaries. Requests and answers do not pass this socket, because the
//! process with the agent has the descriptors of pmcd's connection.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, recv, send, setsockopt, socketpair, sockopt::SendTimeout,
};
use nix::sys::time::TimeVal;
use pcp_pdu::handshake::Features;

/// Longest message, in bytes: an ATTR PDU has about 4 KiB at most.
const LONGEST: usize = 8 << 10;

/// Longest time, in seconds, for which the supervisor waits until the other process makes room for a message. The agent
/// may have stopped that process.
const ROOM: i64 = 1;

/// Longest time for passing PDUs about clients to the process with the agent.
const PASS: Duration = Duration::from_secs(2);

/// A message in either direction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// Message to the supervisor: the agent is loaded, and asks for attributes of clients according to its features.
    Loaded(Features),
    /// Message to the supervisor: the agent cannot be loaded, for this reason.
    Failed(String),
    /// Message to the supervisor: the first call after a time without calls begins.
    Busy,
    /// Message to the supervisor: the agent has returned from a call whose request the supervisor has answered.
    Back,
    /// A PDU about a client, in both directions. It must also be sent to a restarted agent.
    Client(Vec<u8>),
    /// Message to the agent's process: the process now has the connection.
    Serve,
}

/// One end of the socket between the supervisor and the agent's process.
#[derive(Debug)]
pub(crate) struct Control(OwnedFd);

impl Control {
    /// Creates both ends: that of the supervisor, and that of the process with the agent.
    pub(crate) fn pair() -> io::Result<(Control, OwnedFd)> {
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        setsockopt(&ours, SendTimeout, &TimeVal::new(ROOM, 0))?;
        Ok((Control(ours), theirs))
    }

    pub(crate) fn new(end: OwnedFd) -> Control {
        Control(end)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// In the supervisor, [`io::ErrorKind::WouldBlock`] if the socket is full for a second; and the errors of send(2).
    pub(crate) fn send(&self, message: &Message) -> io::Result<()> {
        let (tag, rest) = match message {
            Message::Loaded(features) => (b'L', features.bits().to_ne_bytes().to_vec()),
            Message::Failed(reason) => (b'F', reason.as_bytes().to_vec()),
            Message::Busy => (b'B', Vec::new()),
            Message::Back => (b'R', Vec::new()),
            Message::Client(pdu) => (b'C', pdu.clone()),
            Message::Serve => (b'S', Vec::new()),
        };
        let mut bytes = vec![tag];
        bytes.extend(rest);
        bytes.truncate(LONGEST);
        loop {
            match send(self.0.as_raw_fd(), &bytes, MsgFlags::MSG_NOSIGNAL) {
                Err(Errno::EINTR) => {}
                sent => return Ok(sent.map(drop)?),
            }
        }
    }

    /// Sends PDUs about clients. Returns false if the other process does not read them in time. If it has ended, returns
    /// true.
    pub(crate) fn send_clients(&self, pdus: Vec<Vec<u8>>) -> bool {
        let until = Instant::now() + PASS;
        let full = |pdu| self.send(&Message::Client(pdu)).is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock);
        pdus.into_iter().all(|pdu| !full(pdu) && Instant::now() < until)
    }

    /// Waits for a message. Returns `None` when the other process has ended.
    pub(crate) fn receive(&self) -> io::Result<Option<Message>> {
        self.take(MsgFlags::empty())
    }

    /// Returns a message that has arrived.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is none, and the errors of recv(2).
    pub(crate) fn poll(&self) -> io::Result<Option<Message>> {
        self.take(MsgFlags::MSG_DONTWAIT)
    }

    fn take(&self, flags: MsgFlags) -> io::Result<Option<Message>> {
        let mut bytes = [0; LONGEST];
        let len = loop {
            match recv(self.0.as_raw_fd(), &mut bytes, flags) {
                Err(Errno::EINTR) => {}
                Err(Errno::ECONNRESET) => return Ok(None),
                received => break received?,
            }
        };
        let Some((tag, rest)) = bytes.get(..len).and_then(<[u8]>::split_first) else { return Ok(None) };
        let message = match (tag, rest) {
            (b'L', &[a, b]) => Message::Loaded(Features::from_bits_retain(u16::from_ne_bytes([a, b]))),
            (b'F', reason) => Message::Failed(String::from_utf8_lossy(reason).into_owned()),
            (b'B', []) => Message::Busy,
            (b'R', []) => Message::Back,
            (b'C', pdu) => Message::Client(pdu.to_vec()),
            (b'S', []) => Message::Serve,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        Ok(Some(message))
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let (one, other) = Control::pair().unwrap();
        let other = Control::new(other);
        let messages = [
            Message::Loaded(Features::AUTHORIZE),
            Message::Failed("no file".to_owned()),
            Message::Busy,
            Message::Back,
            Message::Client(vec![1, 2, 3]),
            Message::Serve,
        ];
        messages.iter().for_each(|message| one.send(message).unwrap());
        for message in messages {
            assert_eq!(other.receive().unwrap(), Some(message));
        }
        assert_eq!(other.poll().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(one);
        assert_eq!(other.receive().unwrap(), None);
        assert!(other.send(&Message::Busy).is_err());
    }

    /// The agent can stop its process, which then reads no messages. The supervisor must not wait for it.
    #[test]
    fn a_full_socket_is_an_error() {
        let (one, other) = Control::pair().unwrap();
        assert!(!one.send_clients(vec![vec![0; LONGEST - 1]; 10_000]));
        let other = Control::new(other);
        while other.poll().is_ok() {}
        assert!(one.send_clients(vec![vec![0]]));
        drop(other);
        assert!(one.send_clients(vec![vec![0]; 10_000]));
    }

    #[test]
    fn bytes_that_are_no_message() {
        let (one, other) = Control::pair().unwrap();
        for bytes in [&b"L1"[..], b"B1", b"?"] {
            send(other.as_raw_fd(), bytes, MsgFlags::empty()).unwrap();
            assert_eq!(one.receive().unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }
}
