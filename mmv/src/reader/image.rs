//! The bytes of a file that are kept.

use std::io;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::{fs, mem};

use nix::errno::Errno;
use nix::unistd::{Whence, lseek64};

use super::source::read_at;
use super::{File, HelpAt, ReadError, Table};
use crate::format::{Bytes, Extent, STRING_LEN, VALUE_LEN};

/// The bytes of a file without holes, and without what is no longer needed.
#[derive(Debug, Default)]
pub(super) struct Image {
    extents: Vec<Extent>,
    len: u64,
    /// The values, which are asked for most, unless they are in the extents.
    values: Extent,
}

impl From<Vec<u8>> for Image {
    fn from(bytes: Vec<u8>) -> Self {
        Image { len: bytes.len() as u64, extents: vec![Extent { at: 0, bytes }], values: Extent::default() }
    }
}

/// A file may have this many bytes of holes and is read as if it had none.
const SLACK: u64 = 64 << 10;

/// No record is longer: this much of the hole on each side is in an extent, so that a record is in one extent.
const MARGIN: u64 = STRING_LEN as u64;

impl Image {
    /// Reads a file into a buffer or, when it has holes, its data into an image. What it costs is in proportion to the
    /// blocks that it has, whatever its length is.
    ///
    /// # Errors
    /// [`ReadError::TooLong`] when it holds more than `most` bytes.
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
        buffer.resize(len as usize, 0);
        let len = read_at(file, buffer, 0)?;
        buffer.truncate(len);
        Ok(None)
    }

    /// The bytes of a file with holes.
    fn read_data(file: &fs::File, len: u64, most: u64) -> Result<Option<Image>, ReadError> {
        let (mut extents, mut total, mut next): (Vec<Extent>, u64, u64) = (Vec::new(), 0, 0);
        while let Some(start) = seek(file, next, Whence::SeekData)?.filter(|start| *start < len) {
            let end = seek(file, start, Whence::SeekHole)?.unwrap_or(len).min(len);
            if end <= start {
                break;
            }
            let before = extents.last().map_or(0, Extent::end);
            let range = start.saturating_sub(MARGIN).max(before)..end.saturating_add(MARGIN).min(len);
            total += range.end - range.start;
            if total > most {
                return Err(ReadError::TooLong { len: total });
            }
            let bytes = read_range(file, range.clone())?;
            match extents.last_mut().filter(|last| last.end() == range.start) {
                Some(last) => last.bytes.extend_from_slice(&bytes),
                None => extents.push(Extent { at: range.start, bytes }),
            }
            next = end;
        }
        Ok(Some(Image { extents, len, values: Extent::default() }))
    }

    pub(super) fn bytes(&self) -> Bytes<'_> {
        let values = Some(&self.values).filter(|values| !values.bytes.is_empty());
        Bytes::sparse(&self.extents, values, self.len)
    }

    /// How many bytes of the file there are.
    pub(super) fn data_len(&self) -> u64 {
        self.bytes().data_len() + self.values.bytes.len() as u64
    }

    /// How many bytes are in memory.
    pub(super) fn memory(&self) -> usize {
        let extents: usize =
            self.extents.iter().map(|extent| extent.bytes.capacity() + mem::size_of::<Extent>() + HEAP_COST).sum();
        extents + self.values.bytes.capacity()
    }

    /// A record of the values.
    #[inline]
    pub(super) fn value(&self, at: u64) -> Option<&[u8]> {
        self.values.slice(at, VALUE_LEN).or_else(|| self.value_of_extents(at))
    }

    #[cold]
    fn value_of_extents(&self, at: u64) -> Option<&[u8]> {
        self.bytes().slice(at, VALUE_LEN)
    }

    /// A copy without a range that nothing lies in, and without most of the zeros that end texts.
    pub(super) fn copy(bytes: &[u8], without: Option<Range<usize>>, values: Range<u64>) -> Image {
        let len = bytes.len() as u64;
        let (start, end) = (values.start.min(len) as usize, values.end.min(len) as usize);
        let own = bytes.get(start..end).unwrap_or_default().to_vec();
        let end = start + own.len();
        let gap = without.unwrap_or(end..end);
        let [a, b] = split(0..start, &gap);
        let [c, d] = split(end..bytes.len(), &gap);
        let mut extents: Vec<Extent> = Vec::with_capacity(2);
        for range in [a, b, c, d] {
            let at = range.start as u64;
            let Some(part) = bytes.get(range).filter(|part| !part.is_empty()) else { continue };
            if part.len() >= WORTHWHILE {
                let extent =
                    |text: Range<usize>| Some(Extent { at: at + text.start as u64, bytes: part.get(text)?.to_vec() });
                extents.extend(texts(part).filter_map(extent));
            } else {
                extents.push(Extent { at, bytes: part.to_vec() });
            }
        }
        extents.shrink_to_fit();
        Image { extents, len, values: Extent { at: start as u64, bytes: own } }
    }

    /// Reads a range of the file again. What was in a hole stays zeros.
    pub(super) fn reread(&mut self, file: &fs::File, range: Range<u64>) -> io::Result<()> {
        if let Some(values) = Self::within(&mut self.values, &range) {
            return file.read_exact_at(values, range.start);
        }
        let first = self.extents.partition_point(|extent| extent.end() <= range.start);
        for extent in self.extents.iter_mut().skip(first).take_while(|extent| extent.at < range.end) {
            let (start, end) = (range.start.max(extent.at), range.end.min(extent.end()));
            let within = (start - extent.at) as usize..(end - extent.at) as usize;
            file.read_exact_at(extent.bytes.get_mut(within).unwrap_or_default(), start)?;
        }
        Ok(())
    }

    /// This range, when it is in one piece.
    pub(super) fn range_mut(&mut self, range: Range<u64>) -> Option<&mut [u8]> {
        let first = self.extents.partition_point(|extent| extent.end() <= range.start);
        match Self::within(&mut self.values, &range) {
            Some(values) => Some(values),
            None => Self::within(self.extents.get_mut(first)?, &range),
        }
    }

    fn within<'a>(extent: &'a mut Extent, range: &Range<u64>) -> Option<&'a mut [u8]> {
        let start = usize::try_from(range.start.checked_sub(extent.at)?).ok()?;
        let len = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
        extent.bytes.get_mut(start..start.checked_add(len)?)
    }
}

/// What the heap takes for an extent.
const HEAP_COST: usize = 16;

/// From so many bytes on, zeros are worth looking for.
const WORTHWHILE: usize = 4096;

/// Zeros are looked for in pieces of this length, and left out from two on.
const PIECE: usize = 64;

/// A range without a part.
fn split(range: Range<usize>, part: &Range<usize>) -> [Range<usize>; 2] {
    let middle = |at: usize| at.clamp(range.start, range.end);
    [range.start..middle(part.start), middle(part.end)..range.end]
}

/// The ranges without long runs of zeros.
fn texts(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let is_zero = |piece: &[u8]| piece.iter().fold(0, |all, byte| all | byte) == 0;
    let mut pieces = bytes.chunks(PIECE).enumerate();
    let mut done = false;
    std::iter::from_fn(move || {
        if done {
            return None;
        }
        let (first, _) = pieces.find(|(_, piece)| !is_zero(piece))?;
        let (mut last, mut zeros) = (first, 0);
        let ended = pieces.by_ref().any(|(index, piece)| {
            if is_zero(piece) {
                zeros += 1;
            } else {
                (last, zeros) = (index, 0);
            }
            zeros == 2
        });
        done = !ended;
        Some(first * PIECE..((last + 1) * PIECE).min(bytes.len()))
    })
}

/// Bytes of a file, fewer where it has become shorter.
fn read_range(file: &fs::File, range: Range<u64>) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    let len = read_at(file, &mut bytes, range.start)?;
    bytes.truncate(len);
    Ok(bytes)
}

/// Where data or a hole begins; nothing behind the last data, and everything where a file system does not know.
fn seek(file: &fs::File, from: u64, whence: Whence) -> io::Result<Option<u64>> {
    let is_data = matches!(whence, Whence::SeekData);
    match lseek64(file.as_fd(), from.cast_signed(), whence) {
        Ok(at) => Ok(Some(at.cast_unsigned())),
        Err(Errno::ENXIO) => Ok(None),
        Err(Errno::EINVAL) => Ok(is_data.then_some(from)),
        Err(e) => Err(e.into()),
    }
}

impl File {
    /// Where the records of the metrics are, most of many files: all that they say is known. Nothing when something else
    /// lies in them, or is to be said about them.
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
