//! Connections that carry PDUs in both directions: to pmcd, and to the process with the agent.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use pcp_pdu::{FrameError, Frames, Header};
use pmda::host::SessionError;

/// Size of a pipe, in bytes: the largest that users may set by default.
const PIPE: i32 = 1 << 20;

/// A connection that never blocks: neither a peer that does not read, nor one that stops within a PDU, stops the proxy.
#[derive(Debug)]
pub(crate) struct Link {
    input: File,
    output: File,
    frames: Frames,
    /// Longest PDU that is accepted, in bytes.
    longest: u32,
    /// Bytes that the peer has not made room for.
    left: VecDeque<u8>,
}

impl Link {
    /// Creates a link over two descriptors, which become non-blocking.
    ///
    /// # Errors
    /// The error of fcntl(2).
    pub(crate) fn new(input: File, output: File, longest: u32) -> io::Result<Link> {
        for file in [&input, &output] {
            let flags = OFlag::from_bits_retain(fcntl(file, FcntlArg::F_GETFL)?);
            fcntl(file, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        }
        Ok(Link { input, output, frames: Frames::new(), longest, left: VecDeque::new() })
    }

    pub(crate) fn input(&self) -> BorrowedFd<'_> {
        self.input.as_fd()
    }

    pub(crate) fn output(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }

    /// Reads once. Returns the number of bytes, which is 0 if none has come; `None` at the end of file.
    ///
    /// # Errors
    /// [`SessionError::Read`], or [`SessionError::Cut`] for the end of file within a PDU.
    pub(crate) fn fill(&mut self) -> Result<Option<usize>, SessionError> {
        match self.input.read(self.frames.space()) {
            Ok(0) if self.frames.pending() > 0 => Err(SessionError::Cut(self.frames.pending())),
            Ok(0) => Ok(None),
            Ok(n) => {
                self.frames.filled(n);
                Ok(Some(n))
            }
            Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => Ok(Some(0)),
            Err(e) => Err(SessionError::Read(e)),
        }
    }

    /// Returns the next whole PDU that has been read.
    ///
    /// # Errors
    /// [`SessionError::Frame`] for bytes that are not a PDU, and for a PDU that is too long.
    pub(crate) fn next_pdu(&mut self) -> Result<Option<(Header, &[u8])>, SessionError> {
        match Header::parse(self.frames.unread())? {
            Some(header) if header.len > self.longest => Err(FrameError::TooLong(header.len as i32).into()),
            _ => Ok(self.frames.next_pdu()?),
        }
    }

    /// Writes bytes, and keeps those that the peer has no room for.
    ///
    /// # Errors
    /// The error of write(2), such as `EPIPE`.
    pub(crate) fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while self.left.is_empty() && !bytes.is_empty() {
            let Some(written) = write(&self.output, bytes)? else { break };
            bytes = bytes.get(written..).unwrap_or_default();
        }
        self.left.extend(bytes);
        Ok(())
    }

    /// Writes the bytes that are kept, as far as there is room. After an error, they are dropped: poll(2) would otherwise
    /// report the closed connection at once, again and again.
    ///
    /// # Errors
    /// The error of write(2).
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while !self.left.is_empty() {
            let written = match write(&self.output, self.left.as_slices().0) {
                Ok(Some(written)) => written,
                Ok(None) => return Ok(()),
                Err(e) => {
                    self.left = VecDeque::new();
                    return Err(e);
                }
            };
            self.left.drain(..written);
            if self.left.is_empty() {
                self.left = VecDeque::new();
            }
        }
        Ok(())
    }

    /// Returns the number of bytes that are kept.
    pub(crate) fn unsent(&self) -> usize {
        self.left.len()
    }
}

/// Makes room for a large answer in a pipe, which otherwise needs a change of process for each part. Sockets refuse this. A
/// pipe keeps its size if the user's pipes already take too much memory.
pub(crate) fn widen(pipe: BorrowedFd<'_>) {
    let _ = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(PIPE));
}

/// Writes once; `None` if there is no room.
fn write(mut file: &File, bytes: &[u8]) -> io::Result<Option<usize>> {
    loop {
        match file.write(bytes) {
            Ok(written) => return Ok(Some(written)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use nix::unistd::pipe;
    use pcp_pdu::{HEADER, PduType};

    use super::*;

    fn file(fd: impl Into<OwnedFd>) -> File {
        fd.into().into()
    }

    fn nothing() -> File {
        File::open("/dev/null").unwrap()
    }

    /// Sends until bytes are kept, and reads all.
    fn fill_and_empty(mut input: File, output: File) {
        let mut link = Link::new(nothing(), output, 1 << 20).unwrap();
        let mut sent = Vec::new();
        while link.unsent() == 0 {
            assert!(sent.len() < 1 << 24);
            let part = [sent.len() as u8; 997];
            link.send(&part).unwrap();
            sent.extend(part);
        }
        link.send(b"end").unwrap();
        sent.extend(b"end");
        let (mut found, mut part) = (Vec::new(), [0; 5000]);
        while link.unsent() > 0 {
            let len = input.read(&mut part).unwrap();
            found.extend(&part[..len]);
            link.flush().unwrap();
        }
        drop(link);
        input.read_to_end(&mut found).unwrap();
        assert!(found == sent);
    }

    #[test]
    fn a_peer_that_does_not_read_gets_all_bytes_later() {
        let (input, output) = pipe().unwrap();
        fill_and_empty(file(input), file(output));
        let (input, output) = UnixStream::pair().unwrap();
        fill_and_empty(file(input), file(output));
    }

    #[test]
    fn a_closed_connection_is_an_error() {
        let (input, output) = pipe().unwrap();
        drop(input);
        let mut link = Link::new(nothing(), file(output), 99).unwrap();
        assert_eq!(link.send(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    }

    #[test]
    fn bytes_for_a_peer_that_has_left_are_not_kept() {
        let (input, output) = pipe().unwrap();
        let mut link = Link::new(nothing(), file(output), 99).unwrap();
        while link.unsent() == 0 {
            link.send(&[0; 4096]).unwrap();
        }
        drop(input);
        assert_eq!(link.flush().unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_eq!(link.unsent(), 0);
    }

    #[test]
    fn pdus_of_any_parts_up_to_a_length() {
        let pdu = |len: u32| {
            let mut pdu = Header { len, pdu: PduType::FETCH, from: 7 }.to_bytes().to_vec();
            pdu.resize(len as usize, 1);
            pdu
        };
        let (input, output) = pipe().unwrap();
        let (mut to, mut link) = (file(output), Link::new(file(input), nothing(), 5000).unwrap());
        let stream = [pdu(16), pdu(5000), pdu(HEADER as u32), pdu(16)].concat();
        let mut lens = Vec::new();
        for part in stream.chunks(7) {
            to.write_all(part).unwrap();
            while link.fill().unwrap() != Some(0) {}
            while let Some((header, bytes)) = link.next_pdu().unwrap() {
                assert_eq!(header.len as usize, bytes.len());
                lens.push(header.len);
            }
        }
        assert_eq!(lens, [16, 5000, 12, 16]);
        assert_eq!(link.fill().unwrap(), Some(0));
        to.write_all(&pdu(5001)[..HEADER]).unwrap();
        assert_eq!(link.fill().unwrap(), Some(HEADER));
        assert!(matches!(link.next_pdu(), Err(SessionError::Frame(FrameError::TooLong(5001)))));
        drop(to);
        assert!(matches!(link.fill(), Err(SessionError::Cut(HEADER))));
    }

    #[test]
    fn the_end_of_file() {
        let (input, output) = pipe().unwrap();
        drop(output);
        assert_eq!(Link::new(file(input), nothing(), 99).unwrap().fill().unwrap(), None);
    }
}
