//! What the supervisor writes to pmcd. A pmcd that does not read must not stop the supervision of the agent.

use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags};
use pcp_pdu::FROM_AGENT;
use pcp_pdu::handshake::encode_error;
use pmapi::Error;
use pmda::host::SessionError;

use crate::wire::wait;

/// Bytes that are written at once. A pipe or socket that is ready for writing has room for them: a pipe has a free page,
/// and a socket an amount that does not depend on what is written.
const ROOM: usize = 16;

/// The connection to pmcd, while the supervisor has it.
///
/// A mode without waiting (`O_NONBLOCK`) would also concern the process with the agent. Instead, each write of a few bytes
/// follows a check for room, which nothing else can take: only one of the two processes writes at a time.
#[derive(Debug)]
pub(crate) struct Output {
    file: File,
    /// PDUs that pmcd has not made room for. The supervisor reads no request meanwhile, so there are few.
    left: Vec<u8>,
}

impl Output {
    pub(crate) fn new(file: File) -> Output {
        Output { file, left: Vec::new() }
    }

    /// Writes bytes, or keeps them until there is room.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        self.left.extend_from_slice(bytes);
        self.flush()
    }

    /// Writes an ERROR PDU, or keeps it until there is room.
    pub(crate) fn error(&mut self, error: Error) -> Result<(), SessionError> {
        encode_error(&mut self.left, FROM_AGENT, Err(error)).map_err(|e| SessionError::Write(io::Error::other(e)))?;
        self.flush()
    }

    /// Returns whether bytes are kept.
    pub(crate) fn waits(&self) -> bool {
        !self.left.is_empty()
    }

    /// Writes what is kept, as far as there is room.
    pub(crate) fn flush(&mut self) -> Result<(), SessionError> {
        while self.waits() && self.is_ready()? {
            let next = self.left.get(..ROOM).unwrap_or(&self.left);
            match self.file.write(next) {
                Ok(len) => drop(self.left.drain(..len)),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(SessionError::Write(e)),
            }
        }
        Ok(())
    }

    /// Writes what is kept, and returns whether there is room for a further ERROR PDU.
    pub(crate) fn has_room(&mut self) -> Result<bool, SessionError> {
        self.flush()?;
        Ok(!self.waits() && self.is_ready()?)
    }

    /// Returns whether a write would not wait. If pmcd has closed the connection, it would fail.
    fn is_ready(&self) -> Result<bool, SessionError> {
        let mut fds = [PollFd::new(self.file.as_fd(), PollFlags::POLLOUT)];
        wait(&mut fds, Some(Instant::now())).map_err(SessionError::Write)?;
        // A signal may have interrupted the call: the supervisor then checks again.
        Ok(fds.iter().any(|fd| fd.any() == Some(true)))
    }
}

impl AsFd for Output {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use nix::fcntl::{FcntlArg, fcntl};
    use nix::unistd::pipe;

    use super::*;

    /// Writes errors until some are kept, and reads all.
    fn fill_and_empty(mut input: impl Read, output: OwnedFd) {
        let mut output = Output::new(output.into());
        let mut count = 0;
        while !output.waits() {
            assert!(count < 1 << 20);
            output.error(Error::AGAIN).unwrap();
            count += 1;
        }
        assert!(!output.has_room().unwrap());
        output.error(Error::PMDAREADY).unwrap();
        let (mut expected, mut found) = (Vec::new(), Vec::new());
        (0..count).for_each(|_| encode_error(&mut expected, FROM_AGENT, Err(Error::AGAIN)).unwrap());
        encode_error(&mut expected, FROM_AGENT, Err(Error::PMDAREADY)).unwrap();
        let mut part = [0; 64];
        while output.waits() {
            let len = input.read(&mut part).unwrap();
            found.extend_from_slice(part.get(..len).unwrap());
            output.flush().unwrap();
        }
        drop(output);
        input.read_to_end(&mut found).unwrap();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_full_connection_keeps_nothing_waiting() {
        let (input, output) = pipe().unwrap();
        fcntl(&output, FcntlArg::F_SETPIPE_SZ(1)).unwrap();
        fill_and_empty(File::from(input), output);
        let (input, output) = UnixStream::pair().unwrap();
        fill_and_empty(input, output.into());
    }

    #[test]
    fn a_closed_connection_is_an_error() {
        let (input, output) = pipe().unwrap();
        drop(input);
        assert!(matches!(Output::new(output.into()).error(Error::AGAIN), Err(SessionError::Write(_))));
    }
}
