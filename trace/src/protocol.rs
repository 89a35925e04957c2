//! The PDUs of the trace protocol, version 1.
//!
//! All words are big-endian. A PDU begins with its length in bytes, its type and the sender's process
//! id. The agent greets with an [`Pdu::Ack`] of [`VERSION`]; a client then sends [`Pdu::Data`], which
//! the agent acknowledges with the [`Kind`] if the client asks for that, after it has counted.

use thiserror::Error;

/// The port on which the agent waits (`TRACE_PORT`).
pub const PORT: u16 = 4323;
/// The version of the protocol (`TRACE_PDU_VERSION`).
pub const VERSION: i32 = 1;
/// The longest tag in bytes: with its NUL it has to fit a length of eight bits.
pub const MAX_TAG: usize = 254;
/// Bytes of an acknowledgement.
pub const ACK_LEN: usize = HEADER + 4;
/// Bytes of the longest PDU.
pub const MAX_LEN: usize = TAG + 256;

const ACK: u32 = 0x7050;
const DATA: u32 = 0x7051;
/// Bytes of length, type and process id.
const HEADER: usize = 12;
/// Where the process id is.
const PID: usize = 8;
/// Where the parts of DATA are: four bytes, the value, and the tag.
const DATA_VERSION: usize = HEADER;
const TAG_LEN: usize = HEADER + 1;
const KIND: usize = HEADER + 2;
const REPLY: usize = HEADER + 3;
const VALUE: usize = HEADER + 4;
const TAG: usize = VALUE + 8;
/// The bit of the last of the four bytes that asks for an acknowledgement.
const WANTS_REPLY: u8 = 0x80;

/// What a tag marks (`TRACE_TYPE_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A transaction; the value is its seconds.
    Transact = 1,
    /// A point that was passed; the value means nothing.
    Point = 2,
    /// An observed value.
    Observe = 3,
    /// A value that counts up.
    Counter = 4,
}

impl Kind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Kind; 4] = [Kind::Transact, Kind::Point, Kind::Observe, Kind::Counter];

    /// The kind of a number on the wire.
    pub fn from_number(number: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// A PDU, decoded.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pdu<'a> {
    /// From the agent: the version, the kind that was counted, or a negative error code.
    Ack(i32),
    /// From a client.
    Data(Data<'a>),
}

/// What a client tells the agent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Data<'a> {
    /// What the tag marks.
    pub kind: Kind,
    /// Whether the client waits for an acknowledgement.
    pub reply: bool,
    /// Seconds, or the application's value.
    pub value: f64,
    /// The tag's bytes, up to their NUL; never empty.
    pub tag: &'a [u8],
}

/// Why bytes are no PDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DecodeError {
    /// No PDU is as long.
    #[error("illegal length {0}")]
    Length(u32),
    /// A PDU of another type.
    #[error("unknown PDU type 0x{0:x}")]
    Type(u32),
    /// Another version of the protocol.
    #[error("version {0}")]
    Version(u8),
    /// None of the four kinds.
    #[error("unknown trace type {0}")]
    Kind(u8),
    /// A tag that is empty or longer than its PDU.
    #[error("tag of {tag} bytes in a PDU of {pdu}")]
    Tag {
        /// The tag's bytes, with its NUL.
        tag: usize,
        /// The PDU's.
        pdu: usize,
    },
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*word))
}

/// The first PDU of what has arrived, and its length; `None` while it is not whole.
///
/// An error means that what follows makes no sense either.
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
        ACK if pdu.len() == ACK_LEN => Ok(Pdu::Ack(word(pdu, HEADER).ok_or(short)?.cast_signed())),
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

/// An acknowledgement.
pub fn encode_ack(code: i32, pid: u32) -> [u8; ACK_LEN] {
    let mut pdu = [0; ACK_LEN];
    for (to, word) in pdu.chunks_exact_mut(4).zip([ACK_LEN as u32, ACK, pid, code.cast_unsigned()]) {
        to.copy_from_slice(&word.to_be_bytes());
    }
    pdu
}

/// The PDU of a tag, without what is different each time: see [`append`]. The tag is not checked here.
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

/// The tag of a prepared PDU.
pub(crate) fn tag_of(prepared: &[u8]) -> &[u8] {
    prepared.get(TAG..).and_then(|tag| tag.split(|byte| *byte == 0).next()).unwrap_or_default()
}

/// A prepared PDU, and what it says this time.
#[derive(Clone, Copy)]
pub(crate) struct Prepared<'a> {
    pub(crate) prepared: &'a [u8],
    /// The sender.
    pub(crate) pid: u32,
    pub(crate) kind: Kind,
    pub(crate) reply: bool,
    pub(crate) value: f64,
}

/// Appends a PDU.
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
