//! Records of a file, and checked access to their bytes.

use std::ops::Range;
use std::time::Duration;

use pmapi::Units;

use super::{Flags, HEADER_LEN, INDOM_LEN, LABEL_LEN, NAME_LEN, PAYLOAD_LEN, STRING_LEN, TOC_LEN, VALUE_LEN, Version};

/// The bytes of an untrusted file, with checked access. Only the data of a sparse file is kept; holes read as zeros.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a> {
    /// The extent at the beginning of the file.
    front: &'a [u8],
    sparse: Option<&'a Sparse>,
    len: u64,
}

/// The data of a file with holes, as extents in ascending order.
#[derive(Debug, Default)]
pub(crate) struct Sparse {
    /// The bytes of all extents, one after the other.
    pub(crate) data: Vec<u8>,
    pub(crate) extents: Vec<Extent>,
    /// A further extent, which overlaps none of the others.
    pub(crate) apart: Extent,
}

/// Position of a range of the file in the data.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extent {
    /// Offset in the file.
    pub(crate) at: u64,
    /// Offset in the data.
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl Extent {
    pub(crate) fn end(&self) -> u64 {
        self.at + u64::from(self.len)
    }

    #[inline]
    pub(crate) fn find(&self, at: u64, len: usize) -> Option<Range<usize>> {
        let start = at.checked_sub(self.at)?;
        let end = start.checked_add(len as u64).filter(|end| *end <= self.len.into())?;
        Some(self.start as usize + start as usize..self.start as usize + end as usize)
    }
}

impl Sparse {
    fn bytes(&self, extent: &Extent) -> &[u8] {
        let start = extent.start as usize;
        self.data.get(start..start + extent.len as usize).unwrap_or_default()
    }

    /// Returns the bytes of the extent at the beginning of the file, and the other extents.
    fn split_front(&self) -> (&[u8], &[Extent]) {
        match self.extents.split_first() {
            Some((first, rest)) if first.at == 0 => (self.bytes(first), rest),
            _ => (&[], &self.extents),
        }
    }
}

/// Contents of holes. No record is longer.
static ZEROS: [u8; STRING_LEN] = [0; STRING_LEN];

impl<'a> Bytes<'a> {
    /// Wraps the bytes of a whole file.
    pub const fn new(bytes: &'a [u8]) -> Bytes<'a> {
        Bytes { front: bytes, sparse: None, len: bytes.len() as u64 }
    }

    /// Wraps the data of a file of length `len` with holes.
    pub(crate) fn sparse(sparse: &'a Sparse, len: u64) -> Bytes<'a> {
        Bytes { front: sparse.split_front().0, sparse: Some(sparse), len }
    }

    /// Returns the length of the file.
    pub const fn len(self) -> u64 {
        self.len
    }

    /// Returns whether the file is empty.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    pub(crate) fn data_len(self) -> u64 {
        self.sparse.map_or(self.front.len(), |sparse| sparse.data.len()) as u64
    }

    /// Returns `len` bytes at an offset, if they are in the file. In a sparse file, a range longer than the longest
    /// record must be in one extent.
    #[inline]
    pub fn slice(self, at: u64, len: usize) -> Option<&'a [u8]> {
        let start = usize::try_from(at).ok()?;
        match self.front.get(start..start.checked_add(len)?) {
            None => self.slice_behind(self.sparse?, at, len),
            found => found,
        }
    }

    #[cold]
    fn slice_behind(self, Sparse { data, extents, apart }: &'a Sparse, at: u64, len: usize) -> Option<&'a [u8]> {
        let end = at.checked_add(len as u64).filter(|end| *end <= self.len)?;
        if at < apart.end() && end > apart.at {
            return data.get(apart.find(at, len)?);
        }
        let before = extents.partition_point(|extent| extent.at <= at);
        if let Some(extent) = before.checked_sub(1).and_then(|index| extents.get(index)) {
            if let Some(found) = extent.find(at, len) {
                return data.get(found);
            }
            if at < extent.end() {
                return None;
            }
        }
        let is_hole = extents.get(before).is_none_or(|next| next.at >= end);
        is_hole.then(|| ZEROS.get(..len)).flatten()
    }

    /// Returns the indexes of a table's records that are in extents, ascending and without duplicates. An extent begins
    /// and ends with more zeros than a record has, except at the ends of the file. A record that is partly in an extent
    /// is therefore all zeros.
    pub(crate) fn records(self, at: u64, count: u32, size: usize) -> impl Iterator<Item = Range<u32>> + use<'a> {
        let size = size as u64;
        let indexes = move |start: u64, end: u64| {
            let first = start.saturating_sub(at).div_ceil(size);
            let last = end.saturating_sub(at) / size;
            first.min(count.into()) as u32..last.min(count.into()) as u32
        };
        let rest = self.sparse.map_or(&[][..], |sparse| sparse.split_front().1);
        let rest = rest.iter().map(move |extent| indexes(extent.at, extent.end()));
        let mut next = 0;
        std::iter::once(indexes(0, self.front.len() as u64)).chain(rest).map(move |range| {
            let range = range.start.max(next)..range.end.max(next);
            next = range.end;
            range
        })
    }

    /// Returns whether the file has `count` records of `size` bytes at an offset.
    pub fn has(self, at: u64, count: u64, size: usize) -> bool {
        let end = count.checked_mul(size as u64).and_then(|len| len.checked_add(at));
        end.is_some_and(|end| end <= self.len())
    }

    /// Returns the text at an offset, up to its NUL or the end of its `room`. The whole room must be in the file.
    pub fn text(self, at: u64, room: usize) -> Option<&'a [u8]> {
        let room = match self.slice(at, room) {
            Some(room) => room,
            None => self.beginning(at, room)?,
        };
        room.split(|&b| b == 0).next()
    }

    /// Returns the part in an extent of a range that continues in a hole.
    fn beginning(self, at: u64, len: usize) -> Option<&'a [u8]> {
        at.checked_add(len as u64).filter(|end| *end <= self.len)?;
        let sparse = self.sparse?;
        let before = sparse.extents.partition_point(|extent| extent.at <= at);
        let apart = Some(&sparse.apart).filter(|apart| (apart.at..apart.end()).contains(&at));
        let extent = apart.or_else(|| sparse.extents.get(before.checked_sub(1)?));
        let found = extent.and_then(|extent| Some((sparse.bytes(extent), usize::try_from(at - extent.at).ok()?)));
        let rest = found.and_then(|(bytes, start)| bytes.get(start..)).unwrap_or_default();
        Some(rest.get(..len).unwrap_or(rest))
    }

    /// Returns a string of the strings section.
    pub fn string(self, at: u64) -> Option<&'a [u8]> {
        self.text(at, STRING_LEN)
    }

    #[inline]
    fn array<const N: usize>(self, field: usize) -> Option<[u8; N]> {
        self.front.get(field..field + N)?.try_into().ok()
    }

    #[inline]
    fn u32(self, field: usize) -> Option<u32> {
        self.array(field).map(u32::from_ne_bytes)
    }

    #[inline]
    fn i32(self, field: usize) -> Option<i32> {
        self.array(field).map(i32::from_ne_bytes)
    }

    #[inline]
    fn u64(self, field: usize) -> Option<u64> {
        self.array(field).map(u64::from_ne_bytes)
    }
}

fn record<const LEN: usize>(fields: &[&[u8]]) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes.iter_mut().zip(fields.iter().copied().flatten()).for_each(|(byte, field)| *byte = *field);
    bytes
}

/// The header of a file (`mmv_disk_header_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The magic number, [`MAGIC`](super::MAGIC) in every valid file.
    pub magic: [u8; 4],
    /// The number of a [`Version`] in every valid file.
    pub version: i32,
    /// Generation number: the time of writing, or 0 while the file is not valid.
    pub g1: u64,
    /// Second generation number, which equals `g1` when the file is complete.
    pub g2: u64,
    /// Number of entries in the table of contents.
    pub tocs: i32,
    /// The file's flags.
    pub flags: Flags,
    /// Identifier of the process that wrote the file.
    pub process: i32,
    /// The cluster that the file requests, 0 for any.
    pub cluster: i32,
}

impl Header {
    /// Reads the header. Returns `None` if the file is too short for one.
    pub fn read(bytes: Bytes<'_>) -> Option<Header> {
        let bytes = Bytes::new(bytes.slice(0, HEADER_LEN)?);
        Some(Header {
            magic: bytes.array(0)?,
            version: bytes.i32(4)?,
            g1: bytes.u64(8)?,
            g2: bytes.u64(16)?,
            tocs: bytes.i32(24)?,
            flags: Flags(bytes.u32(28)?),
            process: bytes.i32(32)?,
            cluster: bytes.i32(36)?,
        })
    }

    /// Returns the header as bytes.
    pub fn bytes(&self) -> [u8; HEADER_LEN] {
        record(&[
            &self.magic,
            &self.version.to_ne_bytes(),
            &self.g1.to_ne_bytes(),
            &self.g2.to_ne_bytes(),
            &self.tocs.to_ne_bytes(),
            &self.flags.0.to_ne_bytes(),
            &self.process.to_ne_bytes(),
            &self.cluster.to_ne_bytes(),
        ])
    }
}

/// An entry of the table of contents (`mmv_disk_toc_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Toc {
    /// Code of a [`Section`](super::Section).
    pub section: u32,
    /// Number of records.
    pub count: i32,
    /// Offset of the first record.
    pub offset: u64,
}

impl Toc {
    /// Returns the offset of the entry with this index.
    pub const fn at(index: usize) -> u64 {
        HEADER_LEN as u64 + (index as u64) * TOC_LEN as u64
    }

    /// Reads the entry with this index. Returns `None` if it is not in the file.
    pub fn read(bytes: Bytes<'_>, index: usize) -> Option<Toc> {
        let bytes = Bytes::new(bytes.slice(Self::at(index), TOC_LEN)?);
        Some(Toc { section: bytes.u32(0)?, count: bytes.i32(4)?, offset: bytes.u64(8)? })
    }

    /// Returns the entry as bytes.
    pub fn bytes(&self) -> [u8; TOC_LEN] {
        record(&[&self.section.to_ne_bytes(), &self.count.to_ne_bytes(), &self.offset.to_ne_bytes()])
    }
}

/// An instance domain (`mmv_disk_indom_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndomRecord {
    /// Serial number.
    pub serial: u32,
    /// Number of instances.
    pub count: u32,
    /// Offset of the first instance.
    pub offset: u64,
    /// Offset of the one-line help text, or 0 for none.
    pub short: u64,
    /// Offset of the full help text, or 0 for none.
    pub long: u64,
}

impl IndomRecord {
    /// Reads the instance domain at an offset. Returns `None` if it is not in the file.
    pub fn read(bytes: Bytes<'_>, at: u64) -> Option<IndomRecord> {
        let bytes = Bytes::new(bytes.slice(at, INDOM_LEN)?);
        Some(IndomRecord {
            serial: bytes.u32(0)?,
            count: bytes.u32(4)?,
            offset: bytes.u64(8)?,
            short: bytes.u64(16)?,
            long: bytes.u64(24)?,
        })
    }

    /// Returns the instance domain as bytes.
    pub fn bytes(&self) -> [u8; INDOM_LEN] {
        record(&[
            &self.serial.to_ne_bytes(),
            &self.count.to_ne_bytes(),
            &self.offset.to_ne_bytes(),
            &self.short.to_ne_bytes(),
            &self.long.to_ne_bytes(),
        ])
    }
}

/// Position of a name: in its record (version 1) or in the strings section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameAt {
    /// Offset of the name.
    pub at: u64,
    /// Room for the name in bytes, including the terminating NUL.
    pub room: usize,
}

impl NameAt {
    const fn string(at: u64) -> NameAt {
        NameAt { at, room: STRING_LEN }
    }

    const fn inline(at: u64) -> NameAt {
        NameAt { at, room: NAME_LEN }
    }

    /// Returns the name, or `None` if it is not in the file.
    pub fn text(self, bytes: Bytes<'_>) -> Option<&[u8]> {
        bytes.text(self.at, self.room)
    }
}

/// An instance (`mmv_disk_instance_t`, `mmv_disk_instance2_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InstanceRecord {
    /// Offset of the instance domain.
    pub indom: u64,
    /// Instance identifier.
    pub internal: i32,
    /// Position of the name.
    pub name: NameAt,
}

impl InstanceRecord {
    /// Reads the instance at an offset. Returns `None` if it is not in the file.
    pub fn read(bytes: Bytes<'_>, at: u64, version: Version) -> Option<InstanceRecord> {
        let bytes = Bytes::new(bytes.slice(at, version.instance_len())?);
        let name = match version {
            Version::V1 => NameAt::inline(at.checked_add(16)?),
            Version::V2 | Version::V3 => NameAt::string(bytes.u64(16)?),
        };
        Some(InstanceRecord { indom: bytes.u64(0)?, internal: bytes.i32(12)?, name })
    }
}

/// A metric (`mmv_disk_metric_t`, `mmv_disk_metric2_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetricRecord {
    /// Position of the name.
    pub name: NameAt,
    /// Item number.
    pub item: u32,
    /// Code of a [`ValueType`](super::ValueType).
    pub ty: i32,
    /// Code of [`Semantics`](pmapi::Semantics), or 0 for a counter.
    pub semantics: i32,
    /// Dimension and scale.
    pub units: Units,
    /// Serial number of the instance domain; 0 and all ones mean none.
    pub indom: u32,
    /// Unused.
    pub padding: u32,
    /// Offset of the one-line help text, or 0 for none.
    pub short: u64,
    /// Offset of the full help text, or 0 for none.
    pub long: u64,
}

impl MetricRecord {
    /// Reads the metric at an offset. Returns `None` if it is not in the file.
    pub fn read(bytes: Bytes<'_>, at: u64, version: Version) -> Option<MetricRecord> {
        let bytes = Bytes::new(bytes.slice(at, version.metric_len())?);
        let (name, rest) = match version {
            Version::V1 => (NameAt::inline(at), NAME_LEN),
            Version::V2 | Version::V3 => (NameAt::string(bytes.u64(0)?), 8),
        };
        Some(MetricRecord {
            name,
            item: bytes.u32(rest)?,
            ty: bytes.i32(rest + 4)?,
            semantics: bytes.i32(rest + 8)?,
            units: Units::from_word(bytes.u32(rest + 12)?),
            indom: bytes.u32(rest + 16)?,
            padding: bytes.u32(rest + 20)?,
            short: bytes.u64(rest + 24)?,
            long: bytes.u64(rest + 32)?,
        })
    }
}

/// A value (`mmv_disk_value_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueRecord {
    /// The value. 32-bit values are in its first four bytes.
    pub word: u64,
    /// Offset of a string, or the negated start of a running interval in microseconds since the epoch.
    pub extra: i64,
    /// Offset of the metric.
    pub metric: u64,
    /// Offset of the instance.
    pub instance: u64,
}

impl ValueRecord {
    /// Reads the value at an offset. Returns `None` if it is not in the file.
    pub fn read(bytes: Bytes<'_>, at: u64) -> Option<ValueRecord> {
        Self::of(bytes.slice(at, VALUE_LEN)?)
    }

    /// Reads the value from the bytes of its record.
    #[inline]
    pub(crate) fn of(bytes: &[u8]) -> Option<ValueRecord> {
        let [word, extra, metric, instance] = bytes.as_chunks().0 else { return None };
        let word_of = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
        Some(ValueRecord {
            word: word_of(word),
            extra: word_of(extra).cast_signed(),
            metric: word_of(metric),
            instance: word_of(instance),
        })
    }

    /// Returns the first four bytes of the word, which hold a 32-bit value.
    pub fn half(&self) -> u32 {
        let [a, b, c, d, ..] = self.word.to_ne_bytes();
        u32::from_ne_bytes([a, b, c, d])
    }

    /// Returns an elapsed time in microseconds, including a running interval. `now` is the time since the epoch.
    pub fn elapsed(&self, now: Duration) -> i64 {
        let done = self.word.cast_signed();
        if self.extra >= 0 {
            return done;
        }
        done.wrapping_add(now.as_micros() as i64).wrapping_add(self.extra)
    }

    /// Returns the value as bytes.
    pub fn bytes(&self) -> [u8; VALUE_LEN] {
        let mut bytes = [0; VALUE_LEN];
        let words = [self.word, self.extra.cast_unsigned(), self.metric, self.instance];
        for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *place = word.to_ne_bytes();
        }
        bytes
    }
}

/// A label (`mmv_disk_label_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LabelRecord {
    /// Level of the label, and whether it is optional (`PM_LABEL_*`).
    pub flags: u32,
    /// Number of the cluster, item or instance domain that has the label.
    pub identity: u32,
    /// Instance identifier; -1 on the other levels.
    pub internal: i32,
    /// Position of the JSON text.
    pub payload: NameAt,
}

impl LabelRecord {
    /// Reads the label at an offset. Returns `None` if it is not in the file.
    pub fn read(bytes: Bytes<'_>, at: u64) -> Option<LabelRecord> {
        let bytes = Bytes::new(bytes.slice(at, LABEL_LEN)?);
        Some(LabelRecord {
            flags: bytes.u32(0)?,
            identity: bytes.u32(4)?,
            internal: bytes.i32(8)?,
            payload: NameAt { at: at.checked_add(12)?, room: PAYLOAD_LEN },
        })
    }
}
