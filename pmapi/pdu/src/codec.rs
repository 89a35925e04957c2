//! Reading and writing the fields of a PDU.

use byteorder::{BigEndian, ByteOrder};
use thiserror::Error;

use super::frame::MAX_LEN;
use super::{HEADER, Header, PduType};

/// Error in a PDU: the bytes do not match their PDU type. A peer gets `PM_ERR_IPC`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Field that extends beyond the end of the PDU.
    #[error("{pdu} PDU: {field}: {need} bytes needed, {have} left")]
    Short {
        /// Type of the PDU.
        pdu: PduType,
        /// Name of the field.
        field: &'static str,
        /// Bytes that the field needs.
        need: usize,
        /// Bytes that were left.
        have: usize,
    },
    /// PDU that continues after its last field.
    #[error("{pdu} PDU: {extra} bytes after its last field")]
    Trailing {
        /// Type of the PDU.
        pdu: PduType,
        /// Number of extra bytes.
        extra: usize,
    },
    /// Field with an invalid value.
    #[error("{pdu} PDU: {field}: {value} {reason}")]
    Bad {
        /// Type of the PDU.
        pdu: PduType,
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: i64,
        /// Reason why the value is invalid.
        reason: &'static str,
    },
    /// PDU of a type that pmcd and agents do not exchange.
    #[error("unexpected {0} PDU")]
    Unexpected(PduType),
}

impl From<DecodeError> for pmapi::Error {
    fn from(_: DecodeError) -> Self {
        pmapi::Error::IPC
    }
}

/// Result of decoding.
pub type Decoded<T> = Result<T, DecodeError>;

/// Reader of a PDU's fields, which never reads beyond the end of the PDU.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    pdu: PduType,
    bytes: &'a [u8],
    pos: usize,
}

impl<'a> Reader<'a> {
    /// Creates a reader of a whole PDU, positioned after its header.
    pub fn new(pdu: PduType, bytes: &'a [u8]) -> Self {
        Reader { pdu, bytes, pos: HEADER.min(bytes.len()) }
    }

    /// Creates a reader of the bytes of a PDU, positioned at offset `pos`.
    pub fn at(pdu: PduType, bytes: &'a [u8], pos: usize) -> Self {
        Reader { pdu, bytes, pos: pos.min(bytes.len()) }
    }

    /// Returns the offset of the next field from the start of the PDU, in bytes.
    pub fn pos(&self) -> usize {
        self.pos
    }

    /// Returns the whole PDU, header included, for offsets that count from its start.
    pub fn whole(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the number of bytes that are left.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.pos
    }

    /// Reads `n` bytes.
    ///
    /// # Errors
    /// [`DecodeError::Short`] when fewer bytes are left.
    pub fn bytes(&mut self, n: usize, field: &'static str) -> Decoded<&'a [u8]> {
        let rest = self.bytes.get(self.pos..).unwrap_or_default();
        let Some(taken) = rest.get(..n) else {
            return Err(DecodeError::Short { pdu: self.pdu, field, need: n, have: rest.len() });
        };
        self.pos += n;
        Ok(taken)
    }

    /// Reads `n` bytes, and skips the padding after them up to a multiple of four.
    ///
    /// # Errors
    /// [`DecodeError::Short`] when fewer bytes are left.
    pub fn padded(&mut self, n: usize, field: &'static str) -> Decoded<&'a [u8]> {
        let all = self.bytes(n.checked_next_multiple_of(4).unwrap_or(usize::MAX), field)?;
        Ok(&all[..n])
    }

    /// Reads `count` records of `size` bytes.
    ///
    /// # Errors
    /// [`DecodeError::Short`] when fewer bytes are left.
    pub fn records(&mut self, count: usize, size: usize, field: &'static str) -> Decoded<&'a [u8]> {
        self.bytes(count.saturating_mul(size), field)
    }

    /// Reads a big-endian word of 32 bits.
    ///
    /// # Errors
    /// [`DecodeError::Short`] when fewer bytes are left.
    pub fn u32(&mut self, field: &'static str) -> Decoded<u32> {
        self.bytes(4, field).map(BigEndian::read_u32)
    }

    /// Reads a signed big-endian word of 32 bits.
    ///
    /// # Errors
    /// [`DecodeError::Short`] when fewer bytes are left.
    pub fn i32(&mut self, field: &'static str) -> Decoded<i32> {
        self.bytes(4, field).map(BigEndian::read_i32)
    }

    /// Reads a signed big-endian number of 64 bits.
    ///
    /// # Errors
    /// [`DecodeError::Short`] when fewer bytes are left.
    pub fn i64(&mut self, field: &'static str) -> Decoded<i64> {
        self.bytes(8, field).map(BigEndian::read_i64)
    }

    /// Reads a word that is a number of elements or bytes.
    ///
    /// # Errors
    /// [`DecodeError::Bad`] for a negative number, [`DecodeError::Short`] when fewer bytes are left.
    pub fn count(&mut self, field: &'static str) -> Decoded<usize> {
        let n = self.i32(field)?;
        usize::try_from(n).map_err(|_| self.bad(field, n, "is negative"))
    }

    /// Reads a string: its length in a word, its bytes, padding.
    ///
    /// # Errors
    /// [`DecodeError::Bad`] for a negative length, [`DecodeError::Short`] when fewer bytes are left.
    pub fn string(&mut self, field: &'static str) -> Decoded<&'a [u8]> {
        let n = self.count(field)?;
        self.padded(n, field)
    }

    /// Creates the error for a field with an invalid value.
    pub fn bad(&self, field: &'static str, value: impl Into<i64>, reason: &'static str) -> DecodeError {
        DecodeError::Bad { pdu: self.pdu, field, value: value.into(), reason }
    }

    /// Checks that no bytes are left.
    ///
    /// # Errors
    /// [`DecodeError::Trailing`] when bytes are left.
    pub fn finish(self) -> Decoded<()> {
        match self.left() {
            0 => Ok(()),
            extra => Err(DecodeError::Trailing { pdu: self.pdu, extra }),
        }
    }
}

/// Iterates over the words of a list, whose length a [`Reader`] has checked.
pub fn words(list: &[u8]) -> impl ExactSizeIterator<Item = u32> + Clone + '_ {
    list.chunks_exact(4).map(BigEndian::read_u32)
}

/// Writer that appends a PDU to a buffer; [`Writer::finish`] fills in the length.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Writer<'a> {
    /// Starts a PDU. `from` is the sender: 0 for an agent, the client's context number for pmcd.
    pub fn new(out: &'a mut Vec<u8>, pdu: PduType, from: i32) -> Self {
        let start = out.len();
        out.extend_from_slice(&Header { len: 0, pdu, from }.to_bytes());
        Writer { out, start }
    }

    /// Appends a big-endian word of 32 bits.
    #[inline]
    pub fn u32(&mut self, v: u32) -> &mut Self {
        self.out.extend_from_slice(&v.to_be_bytes());
        self
    }

    /// Appends a signed big-endian word of 32 bits.
    pub fn i32(&mut self, v: i32) -> &mut Self {
        self.u32(v as u32)
    }

    /// Appends a word that is a number of elements or bytes. A number beyond the word's range occurs only in a PDU that
    /// [`Writer::finish`] refuses.
    #[inline]
    pub fn count(&mut self, v: usize) -> &mut Self {
        self.u32(v as u32)
    }

    /// Appends bytes without padding.
    pub fn bytes(&mut self, v: &[u8]) -> &mut Self {
        self.out.extend_from_slice(v);
        self
    }

    /// Appends bytes, and `~` up to a multiple of four.
    #[inline]
    pub fn padded(&mut self, v: &[u8]) -> &mut Self {
        let end = self.out.len() + v.len() + padding(v.len()).len();
        self.out.reserve(v.len() + 4);
        self.out.extend_from_slice(v);
        // Appending a whole word and truncating it is faster than appending a part of variable length.
        self.out.extend_from_slice(b"~~~~");
        self.out.truncate(end);
        self
    }

    /// Appends two big-endian words of 32 bits.
    #[inline]
    pub fn pair(&mut self, first: u32, second: u32) -> &mut Self {
        self.out.extend_from_slice(&(u64::from(first) << 32 | u64::from(second)).to_be_bytes());
        self
    }

    /// Appends a string: its length in a word, its bytes, padding.
    #[inline]
    pub fn string(&mut self, v: &[u8]) -> &mut Self {
        self.count(v.len()).padded(v)
    }

    /// Returns the number of bytes of this PDU so far.
    pub fn len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Returns false, since a PDU has at least a header.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Replaces the word at an offset from the start of the PDU.
    pub fn patch(&mut self, offset: usize, v: u32) {
        if let Some(word) = self.out.get_mut(self.start + offset..self.start + offset + 4) {
            BigEndian::write_u32(word, v);
        }
    }

    /// Completes the PDU with its length.
    ///
    /// # Errors
    /// `PM_ERR_TOOBIG` for a PDU over [`MAX_LEN`] bytes, which is removed from the buffer.
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

/// Returns the padding after `len` bytes, up to a multiple of four.
pub(super) fn padding(len: usize) -> &'static [u8] {
    &b"~~~"[..len.wrapping_neg() % 4]
}
