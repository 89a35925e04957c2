//! The bytes of a file that stay in memory.

use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::{fs, mem};

use nix::errno::Errno;
use nix::unistd::{Whence, lseek64};

use super::ReadError;
use crate::format::{Bytes, Extent, STRING_LEN, Sparse};

/// The bytes of a file, without its holes.
#[derive(Debug, Default)]
pub(super) struct Image {
    sparse: Sparse,
    len: u64,
}

impl From<Vec<u8>> for Image {
    fn from(data: Vec<u8>) -> Self {
        let len = data.len() as u64;
        let extents = vec![extent(0, 0, data.len())];
        Image { sparse: Sparse { data, extents, ..Sparse::default() }, len }
    }
}

/// Creates an extent. The casts are lossless, because no file has more than [`MAX_LEN`](super::MAX_LEN) bytes of data.
fn extent(at: u64, start: usize, len: usize) -> Extent {
    Extent { at, start: start as u32, len: len as u32 }
}

/// Largest total size of holes, in bytes, with which a file is read as if it had none.
const SLACK: u64 = 64 << 10;

/// Number of bytes of a hole that belong to the extents on both sides. No record is longer, so each record is in one
/// extent.
const MARGIN: u64 = STRING_LEN as u64;

impl Image {
    /// Reads a file. The cost is in proportion to the blocks of the file, not to its length. `data` is an empty buffer,
    /// whose memory is used.
    ///
    /// # Errors
    /// [`ReadError::TooLong`] if the file contains more than `most` bytes, and [`ReadError::Io`].
    pub(super) fn read(
        file: &fs::File,
        metadata: &fs::Metadata,
        most: u64,
        mut data: Vec<u8>,
    ) -> Result<Image, ReadError> {
        let len = metadata.len();
        if len.saturating_sub(metadata.blocks().saturating_mul(512)) > SLACK {
            return Self::read_data(file, len, most, data);
        }
        if len > most {
            return Err(ReadError::TooLong { len });
        }
        append(file, 0, len, &mut data)?;
        Ok(Image::from(data))
    }

    /// Reads the data of a file with holes.
    fn read_data(file: &fs::File, len: u64, most: u64, data: Vec<u8>) -> Result<Image, ReadError> {
        let mut sparse = Sparse { data, ..Sparse::default() };
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
                None => extents.push(extent(range.start, from, read)),
            }
            next = end;
        }
        Ok(Image { sparse, len })
    }

    pub(super) fn bytes(&self) -> Bytes<'_> {
        Bytes::sparse(&self.sparse, self.len)
    }

    /// Returns the memory of the image, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.sparse.data.capacity() + self.sparse.extents.capacity() * mem::size_of::<Extent>()
    }

    /// Returns the memory of the data, for another image.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        let mut data = self.sparse.data;
        data.clear();
        data
    }

    /// Copies the image without some ranges of the file, and without most of the zeros that pad texts. What is left out
    /// reads as zeros.
    pub(super) fn without(&self, ranges: &[Range<u64>]) -> Image {
        let mut parts: Vec<Range<u64>> = self.sparse.extents.iter().map(|extent| extent.at..extent.end()).collect();
        for range in ranges {
            parts = parts.into_iter().flat_map(|part| split(part, range)).filter(|part| !part.is_empty()).collect();
        }
        let texts = parts.into_iter().flat_map(|part| {
            let bytes = self.slice(&part);
            let whole = Some(0..bytes.len()).filter(|_| bytes.len() < WORTHWHILE);
            let searched = if whole.is_some() { &[][..] } else { bytes };
            whole
                .into_iter()
                .chain(texts(searched))
                .map(move |piece| part.start + piece.start as u64..part.start + piece.end as u64)
        });
        let texts: Vec<Range<u64>> = texts.collect();
        let mut data = Vec::with_capacity(texts.iter().map(|text| (text.end - text.start) as usize).sum());
        let extents = texts.into_iter().map(|text| {
            let (start, bytes) = (data.len(), self.slice(&text));
            data.extend_from_slice(bytes);
            extent(text.start, start, bytes.len())
        });
        let extents = extents.collect();
        Image { sparse: Sparse { data, extents, ..Sparse::default() }, len: self.len }
    }

    /// Returns the bytes of a range within an extent.
    fn slice(&self, range: &Range<u64>) -> &[u8] {
        self.bytes().slice(range.start, (range.end - range.start) as usize).unwrap_or_default()
    }
}

/// Shortest part that is searched for runs of zeros, in bytes.
const WORTHWHILE: usize = 4096;

/// Unit of the search for zeros, in bytes. Runs of two or more zero units are left out.
const PIECE: usize = 64;

/// Splits a range at a part, which is left out.
fn split(range: Range<u64>, part: &Range<u64>) -> [Range<u64>; 2] {
    let middle = |at: u64| at.clamp(range.start, range.end);
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
