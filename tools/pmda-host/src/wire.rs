//! PDUs from pmcd, one at a time.
//!
//! No bytes are read beyond a PDU: they stay in the pipe or socket for the process that has the connection next.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pcp_pdu::{FrameError, HEADER, Header, PduType};
use pmapi::Error;
use pmda::host::SessionError;

/// Longest PDU that is accepted from pmcd, in bytes. Clients may send pmcd 64 KiB, unless its option `-L` sets another
/// limit.
pub(crate) const LONGEST: u32 = 16 << 20;

/// Bytes of memory by which a buffer grows. It never grows with the length that a header claims.
pub(crate) const STEP: usize = 64 << 10;

/// Bytes of memory that are kept for the next PDU.
const KEPT: usize = 1 << 20;

/// One direction of the connection to pmcd. The agent may make it non-blocking (`O_NONBLOCK`), which concerns both
/// processes: reads and writes wait nevertheless.
#[derive(Debug)]
pub(crate) struct Stream(File);

impl Stream {
    pub(crate) fn new(file: File) -> Stream {
        Stream(file)
    }

    /// Repeats `act` while it would block, each time after one of the events.
    pub(crate) fn repeat<R>(
        &mut self,
        events: PollFlags,
        mut act: impl FnMut(&mut File) -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            match act(&mut self.0) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                done => return done,
            }
            match poll(&mut [PollFd::new(self.0.as_fd(), events)], PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl Read for Stream {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.repeat(PollFlags::POLLIN, |file| file.read(space))
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.repeat(PollFlags::POLLOUT, |file| file.write(bytes))
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.repeat(PollFlags::POLLOUT, |file| file.write_vectored(parts))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Reads the header of a PDU into `pdu`; `None` at the end of file.
pub(crate) fn read_header(input: &mut impl Read, pdu: &mut Vec<u8>) -> Result<Option<Header>, SessionError> {
    if pdu.capacity() > KEPT {
        *pdu = Vec::new();
    }
    pdu.clear();
    pdu.resize(HEADER, 0);
    let have = fill(input, pdu)?;
    if have == 0 {
        return Ok(None);
    }
    if have < HEADER {
        return Err(SessionError::Cut(have));
    }
    header(pdu)
}

/// Returns the header of a PDU that begins with these bytes; `None` if they are fewer than a header.
pub(crate) fn header(bytes: &[u8]) -> Result<Option<Header>, SessionError> {
    match Header::parse(bytes)? {
        Some(header) if header.len > LONGEST => Err(FrameError::TooLong(header.len as i32).into()),
        header => Ok(header),
    }
}

/// Reads the rest of a PDU after its header.
pub(crate) fn read_body(input: &mut impl Read, header: Header, pdu: &mut Vec<u8>) -> Result<(), SessionError> {
    let len = header.len as usize;
    while pdu.len() < len {
        let start = pdu.len();
        pdu.resize(len.min(start + STEP), 0);
        let space = pdu.get_mut(start..).unwrap_or_default();
        let wanted = space.len();
        let have = fill(input, space)?;
        if have < wanted {
            return Err(SessionError::Cut(start + have));
        }
    }
    Ok(())
}

/// Reads until the space is full or the file ends. Returns the number of bytes.
fn fill(input: &mut impl Read, space: &mut [u8]) -> Result<usize, SessionError> {
    let mut have = 0;
    while let Some(rest) = space.get_mut(have..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(SessionError::Read(e)),
        }
    }
    Ok(have)
}

/// Writes both parts of an answer, with one system call if the reader keeps up.
pub(crate) fn write_parts(output: &mut impl Write, (mut head, mut rest): (&[u8], &[u8])) -> io::Result<()> {
    while !head.is_empty() {
        match output.write_vectored(&[IoSlice::new(head), IoSlice::new(rest)]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => {
                rest = rest.get(n.saturating_sub(head.len())..).unwrap_or_default();
                head = head.get(n..).unwrap_or_default();
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    output.write_all(rest)
}

/// Returns the error for the answer to a request that the agent cannot handle now.
///
/// pmcd ignores `PM_ERR_PMDANOTREADY` in answers about names. It would then mistake the later notification that the
/// agent is ready for the answer to its next request.
pub(crate) fn refusal(request: PduType) -> Error {
    match request {
        PduType::PMNS_NAMES | PduType::PMNS_IDS | PduType::PMNS_CHILD | PduType::PMNS_TRAVERSE => Error::AGAIN,
        _ => Error::PMDANOTREADY,
    }
}

/// Waits for one of the descriptors, until a time at most.
pub(crate) fn wait(fds: &mut [PollFd<'_>], until: Option<Instant>) -> io::Result<()> {
    // Rounding down would poll without waiting at the end.
    let left = until.map(|until| until.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000));
    let timeout = left.map_or(PollTimeout::NONE, |left| PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
    match poll(fds, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(mut bytes: &[u8]) -> Result<Option<(Header, usize)>, SessionError> {
        let mut pdu = Vec::new();
        let Some(header) = read_header(&mut bytes, &mut pdu)? else { return Ok(None) };
        read_body(&mut bytes, header, &mut pdu)?;
        assert_eq!(pdu.len(), header.len as usize);
        Ok(Some((header, bytes.len())))
    }

    #[test]
    fn a_pdu_is_read_and_nothing_after_it() {
        let header = Header { len: 16, pdu: PduType::DESC_REQ, from: 3 };
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend([0; 9]);
        assert_eq!(read(&bytes).unwrap(), Some((header, 5)));
        assert!(matches!(read(&bytes[..15]), Err(SessionError::Cut(15))));
        assert!(matches!(read(&bytes[..11]), Err(SessionError::Cut(11))));
        assert!(matches!(read(b""), Ok(None)));
    }

    #[test]
    fn parts_arrive_whole_however_few_bytes_are_taken() {
        struct Slow(Vec<u8>, usize);
        impl Write for Slow {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let n = bytes.len().min(self.1);
                self.0.extend_from_slice(&bytes[..n]);
                Ok(n)
            }
            fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
                let all = parts.iter().flat_map(|part| part.iter().copied()).take(self.1);
                let before = self.0.len();
                self.0.extend(all);
                Ok(self.0.len() - before)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        for chunk in 1..16 {
            for (head, rest) in [("0123456", "789abcde"), ("0123456789abcde", ""), ("0", "123456789abcde")] {
                let mut out = Slow(Vec::new(), chunk);
                write_parts(&mut out, (head.as_bytes(), rest.as_bytes())).unwrap();
                assert_eq!(out.0, b"0123456789abcde", "{chunk}");
            }
        }
    }

    #[test]
    fn lengths_have_a_limit_and_cost_nothing_by_themselves() {
        for (len, wrong) in [(LONGEST + 1, true), (11, true), (u32::MAX, true), (LONGEST, false)] {
            let bytes = Header { len, pdu: PduType::FETCH, from: 0 }.to_bytes();
            let mut pdu = Vec::new();
            assert_eq!(read_header(&mut &bytes[..], &mut pdu).is_err(), wrong, "{len}");
        }
        let (mut pdu, header) = (Vec::new(), Header { len: LONGEST, pdu: PduType::FETCH, from: 0 });
        read_header(&mut &header.to_bytes()[..], &mut pdu).unwrap();
        assert!(matches!(read_body(&mut &[0u8; 100][..], header, &mut pdu), Err(SessionError::Cut(112))));
        assert!(pdu.capacity() <= 2 * STEP);
    }
}
