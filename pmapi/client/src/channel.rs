//! Connection that sends and receives PDUs, each within a time limit.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::Settings;
use super::settings::after;
use pcp_pdu::client::Answer;
use pcp_pdu::{Frames, Header, Pdu};
use pmapi::{Error, Result};

/// Connected socket.
#[derive(Debug)]
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn limit(&self, left: Duration) -> io::Result<()> {
        let left = Some(left);
        match self {
            Stream::Unix(s) => s.set_read_timeout(left).and_then(|()| s.set_write_timeout(left)),
            Stream::Tcp(s) => s.set_read_timeout(left).and_then(|()| s.set_write_timeout(left)),
        }
    }

    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(s) => s.read(to),
            Stream::Tcp(s) => s.read(to),
        }
    }

    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(s) => s.write(from),
            Stream::Tcp(s) => s.write(from),
        }
    }
}

/// Repeats `step` while signals interrupt it, until `deadline`.
fn transfer(
    stream: &mut Stream,
    deadline: Instant,
    mut step: impl FnMut(&mut Stream) -> io::Result<usize>,
) -> Result<usize> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::TIMEOUT);
        }
        // The system counts in microseconds, and zero means no limit.
        stream.limit(left.max(Duration::from_micros(1)))?;
        match step(stream) {
            Ok(0) => return Err(Error::IPC),
            Ok(n) => return Ok(n),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Err(Error::TIMEOUT),
            Err(_) => return Err(Error::IPC),
        }
    }
}

/// Connection to pmcd. It is closed after a time-out, at the end of the stream and after invalid data. Otherwise a late
/// answer would count as that of the next request.
#[derive(Debug)]
pub(super) struct Channel {
    stream: Option<Stream>,
    frames: Frames,
    out: Vec<u8>,
    timeout: Duration,
    /// Longest PDU that is accepted, in bytes.
    longest: u32,
}

impl Channel {
    pub(super) fn new(stream: Stream, settings: &Settings) -> Channel {
        let (timeout, longest) = (settings.request_timeout, settings.longest_answer);
        Channel { stream: Some(stream), frames: Frames::new(), out: Vec::new(), timeout, longest }
    }

    pub(super) fn is_open(&self) -> bool {
        self.stream.is_some()
    }

    pub(super) fn close(&mut self) {
        self.stream = None;
    }

    fn within(&mut self, act: impl FnOnce(&mut Stream, &mut Frames, &[u8], Instant) -> Result) -> Result {
        let stream = self.stream.as_mut().ok_or(Error::IPC)?;
        let deadline = after(self.timeout);
        let result = act(stream, &mut self.frames, &self.out, deadline);
        if result.is_err() {
            self.stream = None;
        }
        result
    }

    /// Sends the request that `encode` appends to a buffer; pmcd ignores the sender in its header.
    ///
    /// Closes the connection if unread bytes are left: they belong to no request, so answers no longer match requests.
    pub(super) fn send(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> Result) -> Result {
        if self.frames.pending() > 0 {
            self.close();
        }
        self.out.clear();
        encode(&mut self.out)?;
        self.within(|stream, _, mut bytes, deadline| {
            while !bytes.is_empty() {
                let sent = transfer(stream, deadline, |s| s.write(bytes))?;
                bytes = bytes.get(sent..).unwrap_or_default();
            }
            Ok(())
        })
    }

    /// Sends encoded bytes.
    pub(super) fn send_bytes(&mut self, parts: &[&[u8]]) -> Result {
        self.send(|out| {
            parts.iter().for_each(|part| out.extend_from_slice(part));
            Ok(())
        })
    }

    /// Receives a line of text, which pmproxy sends before PDUs.
    pub(super) fn line(&mut self, longest: usize) -> Result<Vec<u8>> {
        let mut line = Vec::new();
        self.within(|stream, _, _, deadline| {
            let mut byte = [0];
            while line.len() < longest {
                transfer(stream, deadline, |s| s.read(&mut byte))?;
                if matches!(byte, [b'\n' | b'\r']) {
                    return Ok(());
                }
                line.extend(byte);
            }
            Err(Error::IPC)
        })?;
        Ok(line)
    }

    /// Receives an answer; an ERROR PDU with a negative code becomes an error.
    pub(super) fn receive(&mut self) -> Result<Answer<'_>> {
        let answer = self.receive_any()?;
        if let Answer::Pdu(Pdu::Error(e)) = &answer {
            e.status()?;
        }
        Ok(answer)
    }

    /// Receives a PDU of any type, also an ERROR PDU.
    pub(super) fn receive_any(&mut self) -> Result<Answer<'_>> {
        let longest = self.longest;
        self.within(|stream, frames, _, deadline| {
            loop {
                match Header::parse(frames.unread())? {
                    Some(head) if head.len > longest => return Err(Error::TOOBIG),
                    Some(head) if frames.pending() >= head.len as usize => return Ok(()),
                    _ => {}
                }
                let got = transfer(stream, deadline, |s| s.read(frames.space()))?;
                frames.filled(got);
            }
        })?;
        let (header, bytes) = self.frames.next_pdu()?.ok_or(Error::IPC)?;
        Ok(Answer::decode(header, bytes)?)
    }

    /// Sends a request and receives its answer.
    pub(super) fn ask(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> Result) -> Result<Answer<'_>> {
        self.send(encode)?;
        self.receive()
    }
}
