//! Records of the data volumes.

use pcp_pdu::event::Stamp;
use pcp_pdu::result::ValueSets;

use super::{Decoded, Fields, Version};
use crate::error::Bad;

/// Number of bytes before the record at which a record's slice begins: references to value blocks count from there.
pub(crate) const SLACK: usize = 8;

/// Number of bytes at the start of a record's slice that hold its length, its time and the number of its value sets, in
/// any version.
pub(crate) const HEAD: usize = SLACK + 4 + 12 + 4;

/// Length of the shortest record in bytes, which is a `<mark>`.
pub(crate) const fn shortest(version: Version) -> usize {
    version.stamp_len() + 12
}

/// Record of a data volume: values of metrics at a time (`pmResult`).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Record<'a> {
    /// Time of the values.
    pub time: Stamp,
    /// Values of each metric. Empty in a `<mark>` record.
    pub values: ValueSets<'a>,
    /// Length of the record in its file, in bytes; 0 for a `<mark>` between two archives.
    pub len: usize,
}

impl Record<'_> {
    /// Returns whether this is a `<mark>` record: a gap in time. Values before and after it must not be related.
    pub fn is_mark(&self) -> bool {
        self.values.is_empty()
    }
}

/// Decodes the timestamp of a record. The slice begins at the record's length.
pub(crate) fn time(version: Version, record: &[u8]) -> Decoded<Stamp> {
    let mut r = Fields::new(record);
    r.u32("length")?;
    r.stamp(version)
}

/// Decodes and checks a whole record. The slice begins [`SLACK`] bytes before the record and ends with it.
pub(crate) fn record(version: Version, bytes: &[u8]) -> Decoded<Record<'_>> {
    let len = bytes.len().saturating_sub(SLACK);
    let bytes = bytes.get(..bytes.len().saturating_sub(4)).unwrap_or_default();
    let mut r = Fields::new(bytes);
    r.bytes(SLACK + 4, "length")?;
    let time = r.stamp(version)?;
    let at = r.pos();
    let count = r.count("number of metrics")?;
    if count == 0 {
        return Ok(Record { time, values: ValueSets::empty(), len });
    }
    let values = ValueSets::within(bytes, r.pos(), count);
    let values = values.map_err(|e| Bad::record(at.saturating_sub(SLACK), format!("values are damaged: {e}")))?;
    Ok(Record { time, values, len })
}

/// Returns the value sets of a record of `len` bytes, unchecked. The slice is that of [`record`], or the start of it.
pub(crate) fn sets(version: Version, bytes: &[u8], len: usize) -> Decoded<ValueSets<'_>> {
    let bytes = bytes.get(..bytes.len().min((SLACK + len).saturating_sub(4))).unwrap_or_default();
    let mut r = Fields::new(bytes);
    r.bytes(SLACK + 4, "length")?;
    r.stamp(version)?;
    let count = r.count("number of metrics")?;
    Ok(ValueSets::unchecked(bytes, r.pos(), count))
}

/// Returns the offset of the first value set in a record's slice.
pub(crate) const fn first_set(version: Version) -> usize {
    SLACK + 4 + version.stamp_len() + 4
}
