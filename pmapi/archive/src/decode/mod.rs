//! Decoding of records, without input or output.

pub(crate) mod index;
pub(crate) mod label;
pub(crate) mod meta;
pub(crate) mod record;

use pcp_pdu::event::Stamp;

use crate::error::Bad;

/// Result of decoding.
pub(crate) type Decoded<T> = Result<T, Bad>;

/// Version of the format of an archive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Version {
    /// Version 2: seconds of 32 bits and microseconds.
    V2,
    /// Version 3: seconds of 64 bits and nanoseconds.
    V3,
}

impl Version {
    /// Returns the number of the version.
    pub const fn number(self) -> u32 {
        match self {
            Version::V2 => 2,
            Version::V3 => 3,
        }
    }

    /// Returns the length of the label record at the start of each file, in bytes.
    pub const fn label_len(self) -> usize {
        match self {
            Version::V2 => 132,
            Version::V3 => 808,
        }
    }

    /// Returns the length of a timestamp in bytes.
    pub(crate) const fn stamp_len(self) -> usize {
        match self {
            Version::V2 => 8,
            Version::V3 => 12,
        }
    }
}

/// Reader of big-endian fields.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
    pos: usize,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Fields<'a> {
        Fields { bytes, pos: 0 }
    }

    pub(crate) fn pos(&self) -> usize {
        self.pos
    }

    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.pos
    }

    pub(crate) fn bytes(&mut self, len: usize, field: &'static str) -> Decoded<&'a [u8]> {
        let taken = self.bytes.get(self.pos..).and_then(|rest| rest.get(..len));
        let taken = taken.ok_or_else(|| Bad::record(self.pos, format!("{field} goes beyond the end of the record")))?;
        self.pos += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Decoded<[u8; N]> {
        let at = self.pos;
        let bytes = self.bytes(N, field)?;
        bytes.try_into().map_err(|_| Bad::record(at, field))
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Decoded<u32> {
        self.array(field).map(u32::from_be_bytes)
    }

    pub(crate) fn i32(&mut self, field: &'static str) -> Decoded<i32> {
        self.array(field).map(i32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Decoded<u64> {
        self.array(field).map(u64::from_be_bytes)
    }

    pub(crate) fn count(&mut self, field: &'static str) -> Decoded<usize> {
        let at = self.pos;
        usize::try_from(self.i32(field)?).map_err(|_| Bad::record(at, format!("{field} is negative")))
    }

    pub(crate) fn stamp(&mut self, version: Version) -> Decoded<Stamp> {
        Ok(match version {
            Version::V2 => {
                Stamp { seconds: self.i32("timestamp")?.into(), nanoseconds: self.u32("timestamp")?.wrapping_mul(1000) }
            }
            Version::V3 => {
                // The low word of the seconds comes first, unlike in offsets.
                let (low, high) = (self.u32("timestamp")?, self.u32("timestamp")?);
                let seconds = (u64::from(high) << 32 | u64::from(low)) as i64;
                Stamp { seconds, nanoseconds: self.u32("timestamp")? }
            }
        })
    }
}
