//! The conversation with pmcd over any reader and writer.

use std::io::{self, IoSlice, Read, Write};
use std::os::fd::AsFd;

use pmapi::pdu::handshake::{self, Flags};
use pmapi::pdu::{FrameError, Frames, Pdu, PduType};
use thiserror::Error;
use tracing::{debug, error, warn};

use crate::agent::Agent;
use crate::engine::{Engine, Reply};
use crate::poll::Poll;

/// A connection with pmcd.
#[derive(Debug)]
pub struct Session<R, W> {
    input: R,
    output: W,
    frames: Frames,
    greeted: bool,
}

/// Why a session ended before its end of file.
#[derive(Debug, Error)]
pub enum SessionError {
    /// What came is no stream of PDUs.
    #[error("IPC error: {0}")]
    Frame(#[from] FrameError),
    /// pmcd did not begin with its version.
    #[error("version exchange failure, got {0} PDU expecting CREDS")]
    Greeting(PduType),
    /// pmcd speaks another version.
    #[error("version exchange failure, pmcd has PDU version {0}")]
    Version(u8),
    /// The input ended within a PDU.
    #[error("end of file after {0} bytes of a PDU")]
    Cut(usize),
    /// Reading failed.
    #[error("reading from pmcd: {0}")]
    Read(#[source] io::Error),
    /// Writing failed.
    #[error("writing to pmcd: {0}")]
    Write(#[source] io::Error),
}

impl<R: Read, W: Write> Session<R, W> {
    /// Opens the version exchange: pmcd waits three seconds for it.
    pub fn open(input: R, mut output: W, flags: Flags) -> Result<Self, SessionError> {
        let mut creds = Vec::new();
        let pid = std::process::id() as i32;
        handshake::encode_creds(&mut creds, pid, flags).map_err(|e| SessionError::Write(io::Error::other(e)))?;
        output.write_all(&creds).and_then(|()| output.flush()).map_err(SessionError::Write)?;
        Ok(Session { input, output, frames: Frames::new(), greeted: false })
    }

    /// Answers PDUs until the end of file, and nothing else: the agent's
    /// [sources](Agent::sources) are not waited for.
    pub fn run<A: Agent>(&mut self, engine: &mut Engine<A>) -> Result<(), SessionError> {
        while self.receive(engine)? {}
        Ok(())
    }

    /// Answers PDUs until the end of file, wakes the agent for its [sources](Agent::sources), and tells
    /// pmcd when it becomes ready (pmdaMain(3)). `not_ready`: pmcd waits for that before it asks
    /// anything (`notready` in pmcd.conf).
    pub fn serve<A: Agent>(&mut self, engine: &mut Engine<A>, not_ready: bool) -> Result<(), SessionError>
    where
        R: AsFd,
    {
        engine.can_tell(not_ready);
        let mut poll = Poll::default();
        loop {
            if self.greeted && engine.becomes_ready() {
                let mut ready = Vec::new();
                let encoded = handshake::encode_ready(&mut ready).map_err(io::Error::other);
                debug!(target: "pdu", "sending that the agent is ready");
                encoded.and_then(|()| write_both(&mut self.output, &ready, &[])).map_err(SessionError::Write)?;
            }
            if poll.wait(&self.input, engine).map_err(SessionError::Read)? && !self.receive(engine)? {
                return Ok(());
            }
        }
    }

    /// Reads once and answers the PDUs that are whole; false at the end of file.
    fn receive<A: Agent>(&mut self, engine: &mut Engine<A>) -> Result<bool, SessionError> {
        let n = match self.input.read(self.frames.space()) {
            Ok(0) if self.frames.pending() > 0 => return Err(SessionError::Cut(self.frames.pending())),
            Ok(0) => {
                if !self.greeted {
                    error!(critical = true, "version exchange failure, end of file expecting CREDS");
                }
                return Ok(false);
            }
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(e) => return Err(SessionError::Read(e)),
        };
        self.frames.filled(n);
        while self.step(engine)? {}
        Ok(true)
    }

    /// Answers one PDU if a whole one has arrived.
    fn step<A: Agent>(&mut self, engine: &mut Engine<A>) -> Result<bool, SessionError> {
        let Some((header, bytes)) = self.frames.next_pdu()? else { return Ok(false) };
        debug!(target: "pdu", "got {} PDU, {} bytes, from {}", header.pdu, header.len, header.from);
        if !self.greeted {
            self.greeted = true;
            return match Pdu::decode(header, bytes) {
                Ok(Pdu::Creds(creds)) => match creds.version() {
                    Some((handshake::VERSION, _)) => Ok(true),
                    Some((version, _)) => Err(SessionError::Version(version)),
                    None => {
                        warn!("CREDS PDU without a version");
                        Ok(true)
                    }
                },
                Err(e) => {
                    error!("{e}");
                    Err(SessionError::Greeting(header.pdu))
                }
                Ok(_) => Err(SessionError::Greeting(header.pdu)),
            };
        }
        if let Reply::Pdu(head, rest) = engine.handle(header, bytes) {
            debug!(target: "pdu", "sending {} bytes", head.len() + rest.len());
            write_both(&mut self.output, head, rest).map_err(SessionError::Write)?;
            engine.sent();
        }
        Ok(true)
    }
}

/// Writes two parts with one system call, if the other side takes them.
fn write_both(output: &mut impl Write, mut head: &[u8], mut rest: &[u8]) -> io::Result<()> {
    while !head.is_empty() && !rest.is_empty() {
        match output.write_vectored(&[IoSlice::new(head), IoSlice::new(rest)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                let of_head = n.min(head.len());
                head = &head[of_head..];
                rest = &rest[n - of_head..];
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    output.write_all(head)?;
    output.write_all(rest)?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a few bytes at a time.
    struct Slow(Vec<u8>, usize);

    impl Write for Slow {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            let n = buf.len().min(self.1);
            self.0.extend_from_slice(&buf[..n]);
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn parts_arrive_whole_however_few_bytes_are_taken() {
        for chunk in 1..12 {
            let mut out = Slow(Vec::new(), chunk);
            write_both(&mut out, b"0123456", b"789abcde").unwrap();
            assert_eq!(out.0, b"0123456789abcde");
        }
    }
}
