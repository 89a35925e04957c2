//! Reading and writing the fields of a PDU.

use byteorder::{BigEndian, ByteOrder};
use thiserror::Error;

use super::{HEADER, Header, PduType};

/// Why bytes are no PDU, or not the PDU that their type says. Towards a peer it is `PM_ERR_IPC`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DecodeError {
    /// A field reaches past the end of the PDU.
    #[error("{pdu} PDU: {field}: {need} bytes needed, {have} left")]
    Short {
        /// The PDU.
        pdu: PduType,
        /// The field that was short.
        field: &'static str,
        /// Bytes that the field takes.
        need: usize,
        /// Bytes that were left.
        have: usize,
    },
    /// The PDU goes on after its last field.
    #[error("{pdu} PDU: {extra} bytes after its last field")]
    Trailing {
        /// The PDU.
        pdu: PduType,
        /// Bytes too many.
        extra: usize,
    },
    /// A field has a value that it cannot have.
    #[error("{pdu} PDU: {field}: {value} {reason}")]
    Bad {
        /// The PDU.
        pdu: PduType,
        /// The field.
        field: &'static str,
        /// What it says.
        value: i64,
        /// What is wrong with that.
        reason: &'static str,
    },
    /// A PDU of this type has no meaning between pmcd and an agent.
    #[error("unexpected {0} PDU")]
    Unexpected(PduType),
}

impl From<DecodeError> for pmapi::Error {
    fn from(_: DecodeError) -> Self {
        pmapi::Error::IPC
    }
}

/// The result of decoding.
pub type Decoded<T> = Result<T, DecodeError>;

/// Takes fields off the front of a PDU, and never more than there is.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    pdu: PduType,
    bytes: &'a [u8],
    pos: usize,
}

impl<'a> Reader<'a> {
    /// A reader of a whole PDU, placed after its header.
    pub fn new(pdu: PduType, bytes: &'a [u8]) -> Self {
        Reader { pdu, bytes, pos: HEADER.min(bytes.len()) }
    }

    /// The offset of the next field from the start of the PDU.
    pub fn pos(&self) -> usize {
        self.pos
    }

    /// Bytes that are left.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.pos
    }

    /// The next `n` bytes.
    pub fn bytes(&mut self, n: usize, field: &'static str) -> Decoded<&'a [u8]> {
        let rest = self.bytes.get(self.pos..).unwrap_or_default();
        let Some(taken) = rest.get(..n) else {
            return Err(DecodeError::Short { pdu: self.pdu, field, need: n, have: rest.len() });
        };
        self.pos += n;
        Ok(taken)
    }

    /// `n` bytes, and the padding after them up to a multiple of four.
    pub fn padded(&mut self, n: usize, field: &'static str) -> Decoded<&'a [u8]> {
        let all = self.bytes(n.checked_next_multiple_of(4).unwrap_or(usize::MAX), field)?;
        Ok(&all[..n])
    }

    /// `count` records of `size` bytes.
    pub fn records(&mut self, count: usize, size: usize, field: &'static str) -> Decoded<&'a [u8]> {
        self.bytes(count.saturating_mul(size), field)
    }

    /// A word.
    pub fn u32(&mut self, field: &'static str) -> Decoded<u32> {
        self.bytes(4, field).map(BigEndian::read_u32)
    }

    /// A signed word.
    pub fn i32(&mut self, field: &'static str) -> Decoded<i32> {
        self.bytes(4, field).map(BigEndian::read_i32)
    }

    /// Two words that are one signed number.
    pub fn i64(&mut self, field: &'static str) -> Decoded<i64> {
        self.bytes(8, field).map(BigEndian::read_i64)
    }

    /// A word that counts something: not negative.
    pub fn count(&mut self, field: &'static str) -> Decoded<usize> {
        let n = self.i32(field)?;
        usize::try_from(n).map_err(|_| self.bad(field, n, "is negative"))
    }

    /// A string: its length in a word, its bytes, padding.
    pub fn string(&mut self, field: &'static str) -> Decoded<&'a [u8]> {
        let n = self.count(field)?;
        self.padded(n, field)
    }

    /// The error that a field cannot have a value.
    pub fn bad(&self, field: &'static str, value: impl Into<i64>, reason: &'static str) -> DecodeError {
        DecodeError::Bad { pdu: self.pdu, field, value: value.into(), reason }
    }

    /// That nothing is left.
    pub fn finish(self) -> Decoded<()> {
        match self.left() {
            0 => Ok(()),
            extra => Err(DecodeError::Trailing { pdu: self.pdu, extra }),
        }
    }
}

/// The words of a list that a [`Reader`] has checked.
pub fn words(list: &[u8]) -> impl ExactSizeIterator<Item = u32> + Clone + '_ {
    list.chunks_exact(4).map(BigEndian::read_u32)
}

/// Appends a PDU to a buffer; [`Writer::finish`] puts in its length.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Writer<'a> {
    /// Starts a PDU. `from` is the sender: 0 for an agent, the client's slot for pmcd.
    pub fn new(out: &'a mut Vec<u8>, pdu: PduType, from: i32) -> Self {
        let start = out.len();
        out.extend_from_slice(&Header { len: 0, pdu, from }.to_bytes());
        Writer { out, start }
    }

    /// A word.
    pub fn u32(&mut self, v: u32) -> &mut Self {
        self.out.extend_from_slice(&v.to_be_bytes());
        self
    }

    /// A signed word.
    pub fn i32(&mut self, v: i32) -> &mut Self {
        self.u32(v as u32)
    }

    /// A word that counts something. Lengths beyond a word's range can only come with a PDU that
    /// [`Writer::finish`] refuses.
    pub fn count(&mut self, v: usize) -> &mut Self {
        self.u32(v as u32)
    }

    /// Bytes as they are.
    pub fn bytes(&mut self, v: &[u8]) -> &mut Self {
        self.out.extend_from_slice(v);
        self
    }

    /// Bytes, and `~` up to a multiple of four.
    #[inline]
    pub fn padded(&mut self, v: &[u8]) -> &mut Self {
        let end = self.out.len() + v.len() + padding(v.len()).len();
        self.out.reserve(v.len() + 4);
        self.out.extend_from_slice(v);
        // A whole word, of which a part is taken back: faster than a part of any length.
        self.out.extend_from_slice(b"~~~~");
        self.out.truncate(end);
        self
    }

    /// Two words.
    #[inline]
    pub fn pair(&mut self, first: u32, second: u32) -> &mut Self {
        self.out.extend_from_slice(&(u64::from(first) << 32 | u64::from(second)).to_be_bytes());
        self
    }

    /// A string: its length, its bytes, padding.
    pub fn string(&mut self, v: &[u8]) -> &mut Self {
        self.count(v.len()).padded(v)
    }

    /// Bytes of this PDU so far.
    pub fn len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Never: a PDU has a header.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Replaces the word at an offset from the start of the PDU.
    pub fn patch(&mut self, offset: usize, v: u32) {
        if let Some(word) = self.out.get_mut(self.start + offset..self.start + offset + 4) {
            BigEndian::write_u32(word, v);
        }
    }

    /// Puts the length in. A PDU that is too long for its length field is taken back and becomes
    /// `PM_ERR_TOOBIG`.
    pub fn finish(mut self) -> pmapi::Result {
        match i32::try_from(self.len()) {
            Ok(len) if len <= MAX_LEN => {
                self.patch(0, len as u32);
                Ok(())
            }
            _ => {
                self.out.truncate(self.start);
                Err(pmapi::Error::TOOBIG)
            }
        }
    }
}

/// The longest PDU that libpcp reads.
pub const MAX_LEN: i32 = i32::MAX - 1024;

/// What follows `len` bytes to make their number a multiple of four.
pub(super) fn padding(len: usize) -> &'static [u8] {
    &b"~~~"[..len.wrapping_neg() % 4]
}
