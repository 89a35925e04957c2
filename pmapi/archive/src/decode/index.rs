//! Entries of the temporal index.

use pcp_pdu::event::Stamp;

use super::{Decoded, Fields, Version};

/// Entry of the temporal index: no record with a later time lies before the offsets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct IndexEntry {
    /// Time of the entry.
    pub time: Stamp,
    /// Number of the volume that [`IndexEntry::data`] is in.
    pub volume: i32,
    /// Offset in the metadata file, in bytes.
    pub meta: i64,
    /// Offset in the volume, in bytes.
    pub data: i64,
}

/// Length of an entry in bytes.
pub(crate) const fn entry_len(version: Version) -> usize {
    match version {
        Version::V2 => 20,
        Version::V3 => 32,
    }
}

/// Decodes an entry.
pub(crate) fn entry(version: Version, bytes: &[u8]) -> Decoded<IndexEntry> {
    let mut r = Fields::new(bytes);
    let time = r.stamp(version)?;
    let volume = r.i32("volume")?;
    let (meta, data) = match version {
        Version::V2 => (r.i32("offset")?.into(), r.i32("offset")?.into()),
        Version::V3 => (r.u64("offset")? as i64, r.u64("offset")? as i64),
    };
    Ok(IndexEntry { time, volume, meta, data })
}
