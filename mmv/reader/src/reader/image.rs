//! The bytes of a file that stay in memory.

use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::{fs, mem};

use nix::errno::Errno;
use nix::unistd::{Whence, lseek64};

use super::{File, HelpAt, ReadError, Table};
use crate::format::{Bytes, Extent, STRING_LEN, Sparse, VALUE_LEN};

/// The bytes of a file, without holes and dispensable records. The values, which are read most, are in a separate
/// extent unless the file has holes.
#[derive(Debug, Default)]
pub(super) struct Image {
    sparse: Sparse,
    len: u64,
}

impl From<Vec<u8>> for Image {
    fn from(data: Vec<u8>) -> Self {
        let len = data.len() as u64;
        Image { sparse: Sparse { extents: vec![extent(0, 0, data.len())], data, apart: Extent::default() }, len }
    }
}

/// Creates an extent. The casts are lossless, because no file has more than [`MAX_LEN`](super::MAX_LEN) bytes of data.
fn extent(at: usize, start: usize, len: usize) -> Extent {
    Extent { at: at as u64, start: start as u32, len: len as u32 }
}

/// Largest total size of holes, in bytes, with which a file is read as if it had none.
const SLACK: u64 = 64 << 10;

/// Number of bytes of a hole that belong to the extents on both sides. No record is longer, so each record is in one
/// extent.
const MARGIN: u64 = STRING_LEN as u64;

impl Image {
    /// Reads a file into the buffer or, if it has holes, its data into an image. The cost is in proportion to the
    /// blocks of the file, not to its length.
    ///
    /// # Errors
    /// [`ReadError::TooLong`] if the file contains more than `most` bytes, and [`ReadError::Io`].
    pub(super) fn read(
        file: &fs::File,
        metadata: &fs::Metadata,
        most: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Image>, ReadError> {
        let len = metadata.len();
        if len.saturating_sub(metadata.blocks().saturating_mul(512)) > SLACK {
            return Self::read_data(file, len, most);
        }
        if len > most {
            return Err(ReadError::TooLong { len });
        }
        buffer.clear();
        append(file, 0, len, buffer)?;
        Ok(None)
    }

    /// Reads the data of a file with holes.
    fn read_data(file: &fs::File, len: u64, most: u64) -> Result<Option<Image>, ReadError> {
        let mut sparse = Sparse::default();
        let mut next = 0;
        while let Some(start) = seek(file, next, Whence::SeekData)?.filter(|start| *start < len) {
            let end = seek(file, start, Whence::SeekHole)?.unwrap_or(len).min(len);
            if end <= start {
                break;
            }
            let Sparse { data, extents, .. } = &mut sparse;
            let before = extents.last().map_or(0, Extent::end);
            let range = start.saturating_sub(MARGIN).max(before)..end.saturating_add(MARGIN).min(len);
            let (from, total) = (data.len(), data.len() as u64 + range.end - range.start);
            if total > most {
                return Err(ReadError::TooLong { len: total });
            }
            // Fewer if the file has become shorter.
            let read = append(file, range.start, range.end - range.start, data)?;
            match extents.last_mut().filter(|last| last.end() == range.start) {
                Some(last) => last.len += read as u32,
                None => extents.push(extent(range.start as usize, from, read)),
            }
            next = end;
        }
        Ok(Some(Image { sparse, len }))
    }

    pub(super) fn bytes(&self) -> Bytes<'_> {
        Bytes::sparse(&self.sparse, self.len)
    }

    /// Returns the number of bytes of the file that are in memory.
    pub(super) fn data_len(&self) -> u64 {
        self.sparse.data.len() as u64
    }

    /// Returns the memory of the image, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.sparse.data.capacity() + self.sparse.extents.capacity() * mem::size_of::<Extent>()
    }

    /// Returns the record of a value.
    #[inline]
    pub(super) fn value(&self, at: u64) -> Option<&[u8]> {
        match self.sparse.apart.find(at, VALUE_LEN) {
            Some(found) => self.sparse.data.get(found),
            None => self.value_of_extents(at),
        }
    }

    #[cold]
    fn value_of_extents(&self, at: u64) -> Option<&[u8]> {
        self.bytes().slice(at, VALUE_LEN)
    }

    /// Copies a file without the dispensable range, and without most of the zeros that pad texts.
    pub(super) fn copy(bytes: &[u8], without: Option<Range<usize>>, values: Range<u64>) -> Image {
        let len = bytes.len();
        let values = values.start.min(len as u64) as usize..values.end.min(len as u64) as usize;
        let gap = without.unwrap_or(values.end..values.end);
        let [a, b] = split(0..values.start, &gap);
        let [c, d] = split(values.end..len, &gap);
        let mut parts: Vec<Range<usize>> = Vec::new();
        for range in [a, b, c, d] {
            let Some(part) = bytes.get(range.clone()).filter(|part| !part.is_empty()) else { continue };
            if part.len() >= WORTHWHILE {
                parts.extend(texts(part).map(|text| range.start + text.start..range.start + text.end));
            } else {
                parts.push(range);
            }
        }
        let mut data = Vec::with_capacity(values.len() + parts.iter().map(Range::len).sum::<usize>());
        let mut add = |part: Range<usize>| {
            let start = data.len();
            data.extend_from_slice(bytes.get(part.clone()).unwrap_or_default());
            extent(part.start, start, data.len() - start)
        };
        let apart = add(values);
        let extents = parts.into_iter().map(add).collect();
        Image { sparse: Sparse { data, extents, apart }, len: len as u64 }
    }

    /// Returns the image without most of the zeros that pad texts, which read as a hole.
    pub(super) fn without_zeros(&self) -> Image {
        let (mut data, mut extents) = (Vec::new(), Vec::new());
        for known in &self.sparse.extents {
            let start = known.start as usize;
            let bytes = self.sparse.data.get(start..start + known.len as usize).unwrap_or_default();
            for part in texts(bytes) {
                extents.push(extent(known.at as usize + part.start, data.len(), part.len()));
                data.extend_from_slice(bytes.get(part).unwrap_or_default());
            }
        }
        data.shrink_to_fit();
        Image { sparse: Sparse { data, extents, apart: Extent::default() }, len: self.len }
    }

    /// Reads a range of the file again. Bytes in holes are not read, and stay zero.
    pub(super) fn reread(&mut self, file: &fs::File, range: Range<u64>) -> io::Result<()> {
        let Sparse { data, extents, apart } = &mut self.sparse;
        let len = (range.end - range.start) as usize;
        if let Some(values) = apart.find(range.start, len).and_then(|found| data.get_mut(found)) {
            return file.read_exact_at(values, range.start);
        }
        let first = extents.partition_point(|extent| extent.end() <= range.start);
        for extent in extents.iter().skip(first).take_while(|extent| extent.at < range.end) {
            let (start, end) = (range.start.max(extent.at), range.end.min(extent.end()));
            let found = extent.find(start, (end - start) as usize).and_then(|found| data.get_mut(found));
            file.read_exact_at(found.unwrap_or_default(), start)?;
        }
        Ok(())
    }

    /// Returns a range, if it is contiguous in memory.
    pub(super) fn range_mut(&mut self, range: Range<u64>) -> Option<&mut [u8]> {
        let Sparse { data, extents, apart } = &mut self.sparse;
        let len = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
        data.get_mut(apart.find(range.start, len).or_else(|| {
            let first = extents.partition_point(|extent| extent.end() <= range.start);
            extents.get(first)?.find(range.start, len)
        })?)
    }
}

/// Shortest part that is searched for runs of zeros, in bytes.
const WORTHWHILE: usize = 4096;

/// Unit of the search for zeros, in bytes. Runs of two or more zero units are left out.
const PIECE: usize = 64;

/// Splits a range at a part, which is left out.
fn split(range: Range<usize>, part: &Range<usize>) -> [Range<usize>; 2] {
    let middle = |at: usize| at.clamp(range.start, range.end);
    [range.start..middle(part.start), middle(part.end)..range.end]
}

/// Returns the ranges between long runs of zeros.
fn texts(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let is_zero = |index: usize| {
        let rest = bytes.get(index * PIECE..).unwrap_or_default();
        match rest.first_chunk::<PIECE>() {
            Some(piece) => piece.iter().fold(0, |all, byte| all | byte) == 0,
            None => rest.iter().all(|byte| *byte == 0),
        }
    };
    let count = bytes.len().div_ceil(PIECE);
    let mut next = 0;
    std::iter::from_fn(move || {
        let first = (next..count).find(|index| !is_zero(*index))?;
        let mut end = first + 1;
        next = end;
        // A single piece of zeros is kept.
        while next < count && next - end < 2 {
            if !is_zero(next) {
                end = next + 1;
            }
            next += 1;
        }
        Some(first * PIECE..(end * PIECE).min(bytes.len()))
    })
}

/// Appends `len` bytes from an offset of a file, or those up to its end. Returns their number. Changes
/// the position in the file. The memory is not cleared first, because that would take as long as reading.
fn append(mut file: &fs::File, at: u64, len: u64, bytes: &mut Vec<u8>) -> io::Result<usize> {
    file.seek(SeekFrom::Start(at))?;
    bytes.reserve(len as usize);
    file.take(len).read_to_end(bytes)
}

pub(crate) fn read_at(file: &fs::File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// Returns the offset where data or a hole begins, or `None` after the last data. On file systems without support for
/// this, the whole file is data.
fn seek(file: &fs::File, from: u64, whence: Whence) -> io::Result<Option<u64>> {
    let is_data = matches!(whence, Whence::SeekData);
    match lseek64(file.as_fd(), from as i64, whence) {
        Ok(at) => Ok(Some(at as u64)),
        Err(Errno::ENXIO) => Ok(None),
        Err(Errno::EINVAL) => Ok(is_data.then_some(from)),
        Err(e) => Err(e.into()),
    }
}

impl File {
    /// Returns the range of the metric records if it is dispensable: everything in it is parsed. Returns `None` if
    /// other records overlap it, or a problem refers to it.
    pub(super) fn dispensable(&self) -> Option<Range<usize>> {
        let size = |table: Table, size: usize| u64::from(table.count) * size as u64;
        let gap = self.records.at..self.records.at + size(self.records, self.version.metric_len());
        let apart = |at: u64, len: u64| at >= gap.end || at.saturating_add(len) <= gap.start;
        let help = |HelpAt { short, long }: HelpAt| {
            [short, long].into_iter().all(|at| at == 0 || apart(at.into(), STRING_LEN as u64))
        };
        let mut instances = self.indoms.iter().flat_map(|indom| &indom.instances).map(|instance| instance.name);
        let all_apart = self.problems.count() == 0
            && apart(self.values.at, size(self.values, VALUE_LEN))
            && self.metrics.iter().map(|metric| metric.help).all(help)
            && self.indoms.iter().map(|indom| indom.help).all(help)
            && instances.all(|name| apart(name.at, name.room as u64))
            && self.labels.iter().all(|label| apart(label.payload.at, label.payload.room as u64));
        all_apart.then_some(())?;
        Some(usize::try_from(gap.start).ok()?..usize::try_from(gap.end).ok()?)
    }
}
