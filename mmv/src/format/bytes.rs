//! Checked access to the bytes of a file.

use std::ops::Range;

use super::STRING_LEN;

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
pub struct Sparse {
    /// The bytes of all extents, one after the other.
    pub data: Vec<u8>,
    /// The extents, except `apart`.
    pub extents: Vec<Extent>,
    /// A further extent, which does not overlap any other.
    pub apart: Extent,
}

/// Position of a range of the file in the data.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extent {
    /// Offset in the file.
    pub at: u64,
    /// Offset in the data.
    pub start: u32,
    /// Length, in bytes.
    pub len: u32,
}

impl Extent {
    /// Returns the offset in the file after the extent.
    pub fn end(&self) -> u64 {
        self.at + u64::from(self.len)
    }

    /// Returns the position in the data of `len` bytes at an offset in the file, if the extent has them all.
    #[inline]
    pub fn find(&self, at: u64, len: usize) -> Option<Range<usize>> {
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
    pub fn sparse(sparse: &'a Sparse, len: u64) -> Bytes<'a> {
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

    /// Returns the length of the file without its holes.
    pub fn data_len(self) -> u64 {
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
    pub fn records(self, at: u64, count: u32, size: usize) -> impl Iterator<Item = Range<u32>> + use<'a> {
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

    /// Returns the text at an offset, up to its NUL, or `room` bytes if it has none. All of these bytes must be in the
    /// file.
    pub fn text(self, at: u64, room: usize) -> Option<&'a [u8]> {
        let room = match self.slice(at, room) {
            Some(room) => room,
            None => self.beginning(at, room)?,
        };
        // Most texts are short.
        let end = room.iter().position(|byte| *byte == 0).unwrap_or(room.len());
        room.get(..end)
    }

    /// Returns the part of a range that is in an extent, if the range continues in a hole.
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
    pub(super) fn array<const N: usize>(self, field: usize) -> Option<[u8; N]> {
        self.front.get(field..field + N)?.try_into().ok()
    }

    #[inline]
    pub(super) fn u32(self, field: usize) -> Option<u32> {
        self.array(field).map(u32::from_ne_bytes)
    }

    #[inline]
    pub(super) fn i32(self, field: usize) -> Option<i32> {
        self.array(field).map(i32::from_ne_bytes)
    }

    #[inline]
    pub(super) fn u64(self, field: usize) -> Option<u64> {
        self.array(field).map(u64::from_ne_bytes)
    }
}
