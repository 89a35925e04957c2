//! The PDUs of the trace protocol, version 1.
//!
//! All words are in network byte order. A PDU begins with its length in bytes, its type and the sender's process
//! identifier. The agent greets a client with [`Pdu::Ack`] of [`VERSION`]. The client then sends [`Pdu::Data`]. If the
//! client requests a reply, the agent counts the trace event, and then acknowledges its [`Kind`].

use thiserror::Error;

/// Default TCP port of the agent (`TRACE_PORT`).
pub const PORT: u16 = 4323;
/// Version of the protocol (`TRACE_PDU_VERSION`).
pub const VERSION: i32 = 1;
/// Longest tag, in bytes. With its NUL, its length must fit 8 bits.
pub const MAX_TAG: usize = 254;
/// Length of an acknowledgement, in bytes.
pub const ACK_LEN: usize = HEADER + 4;
/// Length of the longest PDU, in bytes.
pub const MAX_LEN: usize = TAG + 256;

const ACK: u32 = 0x7050;
const DATA: u32 = 0x7051;
/// Bytes of length, type and process identifier.
const HEADER: usize = 12;
/// Offset of the process identifier.
const PID: usize = 8;
/// Offsets in a DATA PDU: four single bytes, the value (a double), and the tag.
const DATA_VERSION: usize = HEADER;
const TAG_LEN: usize = HEADER + 1;
const KIND: usize = HEADER + 2;
const REPLY: usize = HEADER + 3;
const VALUE: usize = HEADER + 4;
const TAG: usize = VALUE + 8;
/// Bit of the byte at [`REPLY`]: the client requests an acknowledgement.
const WANTS_REPLY: u8 = 0x80;

/// Kind of a trace event (`TRACE_TYPE_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Transaction; the value is its duration in seconds.
    Transact = 1,
    /// Point; the value has no meaning.
    Point = 2,
    /// Observation of a value.
    Observe = 3,
    /// Value of an increasing counter.
    Counter = 4,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Kind; 4] = [Kind::Transact, Kind::Point, Kind::Observe, Kind::Counter];

    /// Returns the kind with this number on the wire, 1 to 4.
    pub fn from_number(number: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// Decoded PDU.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum Pdu<'a> {
    /// Acknowledgement of the agent: the protocol version, the kind that was counted, or a negative error code.
    Ack(i32),
    /// Trace event of a client.
    Data(Data<'a>),
}

/// Trace event as a client sends it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Data<'a> {
    /// Kind of the trace event.
    pub kind: Kind,
    /// Whether the client requests an acknowledgement.
    pub reply: bool,
    /// Seconds of a transaction, or the application's value.
    pub value: f64,
    /// The tag, without its NUL; never empty.
    pub tag: &'a [u8],
}

/// Error of a PDU that is not valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// No PDU has this length, in bytes.
    #[error("illegal length {0}")]
    Length(u32),
    /// The protocol has no PDU of this type.
    #[error("unknown PDU type 0x{0:x}")]
    Type(u32),
    /// Unsupported version of the protocol.
    #[error("unsupported version {0}")]
    Version(u8),
    /// Kind other than the four.
    #[error("unknown trace type {0}")]
    Kind(u8),
    /// The tag is empty, or longer than its PDU.
    #[error("tag of {tag} bytes in a PDU of {pdu} bytes")]
    Tag {
        /// Length of the tag with its NUL, in bytes.
        tag: usize,
        /// Length of the PDU, in bytes.
        pdu: usize,
    },
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*word))
}

/// Decodes the first PDU in `bytes`. Returns it with its length, or `None` while it is incomplete.
///
/// # Errors
/// [`DecodeError`] for a PDU that is not valid. The position of the next one is unknown then.
pub fn next(bytes: &[u8]) -> Result<Option<(Pdu<'_>, usize)>, DecodeError> {
    let Some(len) = word(bytes, 0) else { return Ok(None) };
    let whole = usize::try_from(len).ok().filter(|len| (ACK_LEN..=MAX_LEN).contains(len));
    let whole = whole.ok_or(DecodeError::Length(len))?;
    let Some(pdu) = bytes.get(..whole) else { return Ok(None) };
    Ok(Some((decode(pdu)?, whole)))
}

fn decode(pdu: &[u8]) -> Result<Pdu<'_>, DecodeError> {
    let short = DecodeError::Length(pdu.len() as u32);
    match word(pdu, 4).ok_or(short)? {
        ACK if pdu.len() == ACK_LEN => Ok(Pdu::Ack(word(pdu, HEADER).ok_or(short)? as i32)),
        ACK => Err(short),
        DATA => decode_data(pdu).map(Pdu::Data),
        other => Err(DecodeError::Type(other)),
    }
}

fn decode_data(pdu: &[u8]) -> Result<Data<'_>, DecodeError> {
    let short = DecodeError::Length(pdu.len() as u32);
    let (head, rest) = pdu.split_first_chunk::<TAG>().ok_or(short)?;
    if i32::from(head[DATA_VERSION]) != VERSION {
        return Err(DecodeError::Version(head[DATA_VERSION]));
    }
    let kind = Kind::from_number(head[KIND]).ok_or(DecodeError::Kind(head[KIND]))?;
    let len = usize::from(head[TAG_LEN]);
    let tag = rest.get(..len).and_then(|tag| tag.split(|byte| *byte == 0).next()).filter(|tag| !tag.is_empty());
    let tag = tag.ok_or(DecodeError::Tag { tag: len, pdu: pdu.len() })?;
    let value = head.last_chunk().map_or(0.0, |value| f64::from_be_bytes(*value));
    Ok(Data { kind, reply: head[REPLY] & WANTS_REPLY != 0, value, tag })
}

/// Encodes an acknowledgement from the process `pid`.
pub fn encode_ack(code: i32, pid: u32) -> [u8; ACK_LEN] {
    let mut pdu = [0; ACK_LEN];
    for (to, word) in pdu.chunks_exact_mut(4).zip([ACK_LEN as u32, ACK, pid, code as u32]) {
        to.copy_from_slice(&word.to_be_bytes());
    }
    pdu
}

/// Encodes a DATA PDU with a valid tag, and zeros for the parts that [`append`] fills in.
pub(crate) fn prepare(tag: &[u8]) -> Vec<u8> {
    let len = TAG + (tag.len() + 1).next_multiple_of(4);
    let mut pdu = Vec::with_capacity(len);
    for word in [len as u32, DATA, 0] {
        pdu.extend_from_slice(&word.to_be_bytes());
    }
    pdu.extend_from_slice(&[VERSION as u8, (tag.len() + 1) as u8, 0, 0]);
    pdu.extend_from_slice(&[0; 8]);
    pdu.extend_from_slice(tag);
    pdu.push(0);
    pdu.resize(len, b'~');
    pdu
}

/// Returns the tag of a prepared PDU.
pub(crate) fn tag_of(prepared: &[u8]) -> &[u8] {
    prepared.get(TAG..).and_then(|tag| tag.split(|byte| *byte == 0).next()).unwrap_or_default()
}

/// A PDU of [`prepare`], with the values to fill in.
#[derive(Clone, Copy)]
pub(crate) struct Prepared<'a> {
    pub(crate) prepared: &'a [u8],
    pub(crate) pid: u32,
    pub(crate) kind: Kind,
    pub(crate) reply: bool,
    pub(crate) value: f64,
}

/// Appends a prepared PDU, with its values filled in.
#[inline]
pub(crate) fn append(out: &mut Vec<u8>, pdu: &Prepared<'_>) {
    let from = out.len();
    out.extend_from_slice(pdu.prepared);
    let bytes = &mut out[from..];
    bytes[PID..DATA_VERSION].copy_from_slice(&pdu.pid.to_be_bytes());
    bytes[KIND] = pdu.kind as u8;
    bytes[REPLY] = if pdu.reply { WANTS_REPLY } else { 0 };
    bytes[VALUE..TAG].copy_from_slice(&pdu.value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pdu(tag: &[u8], kind: Kind, reply: bool, value: f64) -> Vec<u8> {
        let mut out = Vec::new();
        append(&mut out, &Prepared { prepared: &prepare(tag), pid: 7, kind, reply, value });
        out
    }

    #[test]
    fn data_is_what_c_sends() {
        // pmtracepoint("tstate1"), synchronous.
        let bytes = [
            &[0, 0, 0, 32, 0, 0, 0x70, 0x51, 0, 0, 0, 7, 1, 8, 2, 0x80][..],
            &[0xbf, 0xf0, 0, 0, 0, 0, 0, 0],
            b"tstate1\0",
        ];
        assert_eq!(pdu(b"tstate1", Kind::Point, true, -1.0), bytes.concat());
        // A tag that does not fill its words.
        let bytes = [
            &[0, 0, 0, 32, 0, 0, 0x70, 0x51, 0, 0, 0, 7, 1, 5, 4, 0][..],
            &[0x40, 0x69, 0, 0, 0, 0, 0, 0],
            b"cnt1\0~~~",
        ];
        assert_eq!(pdu(b"cnt1", Kind::Counter, false, 200.0), bytes.concat());
    }

    #[test]
    fn what_is_encoded_comes_back() {
        for len in [1, 2, 3, 4, 124, 125, 126, 127, 253, MAX_TAG] {
            let tag = vec![b'x'; len];
            let bytes = pdu(&tag, Kind::Observe, false, 0.5);
            let data = Data { kind: Kind::Observe, reply: false, value: 0.5, tag: &tag };
            assert_eq!(next(&bytes), Ok(Some((Pdu::Data(data), bytes.len()))));
            assert!(bytes.len() <= MAX_LEN && tag_of(&bytes) == tag);
            (0..bytes.len()).for_each(|cut| assert_eq!(next(&bytes[..cut]), Ok(None), "{cut}"));
        }
        let ack = encode_ack(-12010, 7);
        assert_eq!(next(&ack), Ok(Some((Pdu::Ack(-12010), 16))));
    }

    #[test]
    fn what_is_no_pdu() {
        let good = pdu(b"tag", Kind::Point, false, -1.0);
        let with = |changes: &[(usize, u8)]| {
            let mut bytes = good.clone();
            changes.iter().for_each(|&(at, byte)| bytes[at] = byte);
            next(&bytes).unwrap_err()
        };
        assert_eq!(with(&[(3, 15)]), DecodeError::Length(15));
        assert_eq!(with(&[(2, 2)]), DecodeError::Length(512 + 28));
        assert_eq!(with(&[(0, 0x80)]), DecodeError::Length(0x8000_001c));
        assert_eq!(with(&[(3, 20)]), DecodeError::Length(20));
        assert_eq!(with(&[(7, 0x52)]), DecodeError::Type(0x7052));
        assert_eq!(with(&[(7, 0x50)]), DecodeError::Length(28));
        assert_eq!(with(&[(12, 2)]), DecodeError::Version(2));
        assert_eq!(with(&[(14, 0)]), DecodeError::Kind(0));
        assert_eq!(with(&[(14, 5)]), DecodeError::Kind(5));
        assert_eq!(with(&[(13, 0)]), DecodeError::Tag { tag: 0, pdu: 28 });
        assert_eq!(with(&[(13, 5)]), DecodeError::Tag { tag: 5, pdu: 28 });
        assert_eq!(with(&[(24, 0)]), DecodeError::Tag { tag: 4, pdu: 28 });
    }
}
