//! Boundaries of PDUs in a stream of bytes, without any input or output.

use byteorder::{BigEndian, ByteOrder};
use thiserror::Error;

use super::{HEADER, PduType};

/// Longest PDU that libpcp reads, in bytes.
pub const MAX_LEN: i32 = i32::MAX - 1024;

/// Header of a PDU: 12 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Length of the whole PDU in bytes, header included.
    pub len: u32,
    /// Type of the PDU.
    pub pdu: PduType,
    /// Sender. From pmcd, the client's context number; from an agent, 0, but in `CREDS` its process identifier.
    pub from: i32,
}

impl Header {
    /// Returns the wire encoding, in network byte order.
    pub fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        BigEndian::write_u32(&mut bytes, self.len);
        BigEndian::write_i32(&mut bytes[4..], self.pdu.code());
        BigEndian::write_i32(&mut bytes[8..], self.from);
        bytes
    }

    /// Parses the header at the start of `bytes`; `None` while there are too few bytes.
    ///
    /// # Errors
    /// [`FrameError`] for an invalid length or type.
    pub fn parse(bytes: &[u8]) -> Result<Option<Header>, FrameError> {
        let Some(head) = bytes.get(..HEADER) else { return Ok(None) };
        let len = BigEndian::read_i32(head);
        let code = BigEndian::read_i32(&head[4..]);
        if len < HEADER as i32 {
            return Err(FrameError::TooShort(len));
        }
        if len > MAX_LEN {
            return Err(FrameError::TooLong(len));
        }
        if code < 0 {
            return Err(FrameError::BadType(code));
        }
        Ok(Some(Header { len: len as u32, pdu: PduType::new(code), from: BigEndian::read_i32(&head[8..]) }))
    }
}

/// Error in a stream of PDUs, after which the next PDU cannot be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Length that does not cover the header.
    #[error("PDU length {0} is less than that of its header")]
    TooShort(i32),
    /// Length over the limit of all peers (`PM_ERR_TOOBIG`).
    #[error("PDU length {0} is over the limit")]
    TooLong(i32),
    /// Negative type.
    #[error("PDU type {0} is negative")]
    BadType(i32),
}

impl From<FrameError> for pmapi::Error {
    fn from(e: FrameError) -> Self {
        match e {
            FrameError::TooLong(_) => pmapi::Error::TOOBIG,
            _ => pmapi::Error::IPC,
        }
    }
}

/// Buffer that collects bytes and returns whole PDUs.
///
/// The buffer grows with the bytes that have arrived (at most doubling), never with the length that
/// a header claims.
#[derive(Debug)]
pub struct Frames {
    buf: Vec<u8>,
    start: usize,
    end: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Self::new()
    }
}

impl Frames {
    /// Bytes of memory at first. Most requests fit, and an agent starts faster with fewer pages to touch.
    const INITIAL: usize = 4 * 1024;
    /// Bytes of memory that are always kept, even if few are used.
    const KEPT: usize = 1 << 20;

    /// Creates an empty buffer.
    pub fn new() -> Self {
        Frames { buf: vec![0; Self::INITIAL], start: 0, end: 0 }
    }

    /// Returns space to read into, which is never empty. [`Frames::filled`] must follow.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            // One large PDU must not keep its memory forever.
            if self.buf.len() > Self::KEPT && self.end < self.buf.len() / 16 {
                self.buf = vec![0; Self::INITIAL];
            }
            self.start = 0;
            self.end = 0;
        } else if self.end == self.buf.len() {
            if self.start > 0 {
                self.buf.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            if self.end > self.buf.len() / 2 {
                self.buf.resize(self.buf.len() * 2, 0);
            }
        }
        &mut self.buf[self.end..]
    }

    /// Records that `n` bytes have been written at the start of [`Frames::space`].
    pub fn filled(&mut self, n: usize) {
        self.end = (self.end + n).min(self.buf.len());
    }

    /// Returns the next whole PDU; `None` until more bytes arrive.
    ///
    /// # Errors
    /// [`FrameError`] for an invalid header, after which there is no further PDU.
    pub fn next_pdu(&mut self) -> Result<Option<(Header, &[u8])>, FrameError> {
        let have = &self.buf[self.start..self.end];
        let Some(header) = Header::parse(have)? else { return Ok(None) };
        let len = header.len as usize;
        if have.len() < len {
            return Ok(None);
        }
        let start = self.start;
        self.start += len;
        Ok(Some((header, &self.buf[start..start + len])))
    }

    /// Returns the number of bytes that [`Frames::next_pdu`] has not returned yet.
    pub fn pending(&self) -> usize {
        self.end - self.start
    }

    /// Returns the bytes that [`Frames::next_pdu`] has not returned yet.
    pub fn unread(&self) -> &[u8] {
        self.buf.get(self.start..self.end).unwrap_or_default()
    }

    /// Drops unread bytes. After a [`FrameError`] the next PDU cannot be found, unless the caller knows where it
    /// begins.
    pub fn discard(&mut self, bytes: usize) {
        self.start = self.start.saturating_add(bytes).min(self.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESC_REQ: [u8; 16] = [0, 0, 0, 16, 0, 0, 0x70, 4, 0, 0, 0, 0, 0x3f, 0x40, 0, 1];

    fn feed(frames: &mut Frames, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let space = frames.space();
            let n = space.len().min(rest.len());
            space[..n].copy_from_slice(&rest[..n]);
            frames.filled(n);
            rest = &rest[n..];
        }
    }

    #[test]
    fn a_pdu_cut_at_every_place() {
        for cut in 0..DESC_REQ.len() {
            let mut frames = Frames::new();
            feed(&mut frames, &DESC_REQ[..cut]);
            assert_eq!(frames.next_pdu().unwrap(), None);
            assert_eq!(frames.unread(), &DESC_REQ[..cut]);
            feed(&mut frames, &DESC_REQ[cut..]);
            let (header, bytes) = frames.next_pdu().unwrap().unwrap();
            assert_eq!((header.pdu, header.len, bytes), (PduType::DESC_REQ, 16, &DESC_REQ[..]));
            assert_eq!(frames.next_pdu().unwrap(), None);
            assert_eq!(frames.pending(), 0);
        }
    }

    #[test]
    fn many_pdus_with_a_large_one_between() {
        let mut large = vec![7u8; 100_000];
        large[..4].copy_from_slice(&100_000u32.to_be_bytes());
        large[4..8].copy_from_slice(&0x7001u32.to_be_bytes());
        let stream: Vec<u8> = [&DESC_REQ[..], &large, &DESC_REQ, &DESC_REQ].concat();
        for chunk in [1000, 4096, 70_000, stream.len()] {
            let mut frames = Frames::new();
            let mut lens = Vec::new();
            for part in stream.chunks(chunk) {
                feed(&mut frames, part);
                while let Some((header, bytes)) = frames.next_pdu().unwrap() {
                    assert_eq!(header.len as usize, bytes.len());
                    lens.push(header.len);
                }
            }
            assert_eq!(lens, [16, 100_000, 16, 16]);
        }
    }

    #[test]
    fn a_claimed_length_allocates_nothing() {
        let mut frames = Frames::new();
        feed(&mut frames, &[0x7f, 0, 0, 0, 0, 0, 0x70, 1, 0, 0, 0, 0]);
        assert_eq!(frames.next_pdu(), Ok(None));
        assert!(frames.space().len() <= Frames::INITIAL);
    }

    #[test]
    fn discarded() {
        let mut frames = Frames::new();
        feed(&mut frames, &[0, 0, 0, 4, 1]);
        feed(&mut frames, &DESC_REQ);
        assert_eq!(frames.unread().len(), 21);
        frames.discard(5);
        assert_eq!(frames.next_pdu().unwrap().unwrap().1, DESC_REQ);
        frames.discard(100);
        assert!(frames.unread().is_empty());
        assert_eq!(frames.next_pdu(), Ok(None));
    }

    #[test]
    fn heads_that_no_pdu_has() {
        let parse =
            |len: i32, code: i32| Header::parse(&[&len.to_be_bytes()[..], &code.to_be_bytes(), &[0; 4]].concat());
        assert_eq!(parse(11, 0x7000), Err(FrameError::TooShort(11)));
        assert_eq!(parse(-1, 0x7000), Err(FrameError::TooShort(-1)));
        assert_eq!(parse(i32::MAX, 0x7000), Err(FrameError::TooLong(i32::MAX)));
        assert_eq!(parse(12, -5), Err(FrameError::BadType(-5)));
    }

    #[test]
    fn memory_of_a_large_pdu_is_given_back() {
        let mut frames = Frames::new();
        let len = 8 << 20;
        let large = Header { len, pdu: PduType::FETCH, from: 1 };
        feed(&mut frames, &[&large.to_bytes()[..], &vec![0; len as usize - HEADER]].concat());
        assert_eq!(frames.next_pdu().unwrap().unwrap().0, large);
        // The memory is kept as long as such PDUs arrive.
        let kept = frames.space().len();
        assert!(kept >= len as usize);
        feed(&mut frames, &DESC_REQ);
        assert!(frames.next_pdu().unwrap().is_some());
        assert_eq!(frames.space().len(), Frames::INITIAL);
    }
}
