//! The bytes of a file: how they are read from the file system, and those that stay in memory.

use std::fs::OpenOptions;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::{fs, io, mem};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{Whence, lseek64};

use super::load::Table;
use super::{File, HelpAt, Metric, ReadError, Run, ValueOf, check_header};
use crate::format::{Bytes, Extent, HEADER_LEN, Header, STRING_LEN, Sparse, VALUE_LEN};

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

/// Largest file that is read, in bytes: there is room for more than two million values. The limit is needed because
/// other users can write to the directory, and a sparse file can have any size.
pub const MAX_LEN: u64 = 256 << 20;

/// Memory per record of each kind, in bytes, including the tables of a collection and the agent.
const METRIC_COST: usize = 192;
const VALUE_COST: usize = 56;
/// Number of copies of instance names that a request for instances needs: as text, and in the answer.
const INSTANCE_TEXTS: usize = 3;
/// Memory per inner node of the name space, in bytes.
const NODE_COST: usize = 80;
const INDOM_COST: usize = 224;
const INSTANCE_COST: usize = 128;
const LABEL_COST: usize = 768;

/// Bytes read at the start of a request: the header, and the values if they are that near.
const FRONT: usize = 4 << 10;

/// Longest file that is read in one go, in bytes. For a longer file, the header is checked first.
const WHOLE: u64 = 64 << 10;

/// The beginning of a file, as a request has read it.
pub(crate) struct Front {
    /// Whether the file still has the generation that was read.
    pub is_current: bool,
    /// Whether the values were read, too.
    pub has_values: bool,
}

impl File {
    /// Opens and reads a file.
    ///
    /// # Errors
    /// * [`ReadError::Io`] if the file cannot be opened or read
    /// * [`ReadError::NotRegular`], or [`ReadError::TooLong`] for more than [`MAX_LEN`] bytes
    /// * the errors of [`parse`](File::parse)
    pub fn open(path: impl AsRef<Path>) -> Result<File, ReadError> {
        Self::read(&open(path.as_ref())?)
    }

    /// Reads an open file, and changes the position in it.
    ///
    /// # Errors
    /// The errors of [`open`](File::open).
    pub fn read(file: &fs::File) -> Result<File, ReadError> {
        Self::read_with(file, &file.metadata()?, MAX_LEN, Vec::new())
    }

    /// Reads an open file whose metadata is known, without keeping the records of metrics and values. It is for callers
    /// that need only the parsed form. `buffer` is scratch space.
    ///
    /// # Errors
    /// [`ReadError::TooLong`] if the file contains more than `most` bytes, and the errors of [`open`](File::open).
    pub(crate) fn read_lean(
        file: &fs::File,
        metadata: &fs::Metadata,
        most: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<File, ReadError> {
        buffer.clear();
        let mut read = Self::read_with(file, metadata, most, std::mem::take(buffer))?;
        let lean = read.image.without(&read.dispensable());
        *buffer = std::mem::replace(&mut read.image, lean).into_buffer();
        for metric in &mut read.metrics {
            metric.values.shrink();
        }
        read.metrics.shrink_to_fit();
        read.names.shrink_to_fit();
        Ok(read)
    }

    fn read_with(file: &fs::File, metadata: &fs::Metadata, most: u64, buffer: Vec<u8>) -> Result<File, ReadError> {
        // An application that registers a metric appends it to its file, and changes the generation numbers at last.
        const TRIES: u32 = 8;
        let mut read = Self::read_once(file, metadata, most, buffer);
        for _ in 1..TRIES {
            match read {
                Err(ReadError::InFlux { g1, g2 }) if g1 != 0 && g2 != 0 => {}
                read => return read,
            }
            std::thread::yield_now();
            read = Self::read_once(file, &file.metadata()?, most, Vec::new());
        }
        read
    }

    fn read_once(file: &fs::File, metadata: &fs::Metadata, most: u64, buffer: Vec<u8>) -> Result<File, ReadError> {
        let len = metadata.len();
        if !metadata.is_file() {
            return Err(ReadError::NotRegular);
        }
        if len > MAX_LEN {
            return Err(ReadError::TooLong { len });
        }
        if len > WHOLE {
            let mut header = [0; HEADER_LEN];
            file.read_exact_at(&mut header, 0)?;
            check_header(Bytes::new(&header), len)?;
        }
        let image = Image::read(file, metadata, most, buffer)?;
        // A process that overwrites a file in place changes the generation number first.
        let (g1, g2) = generations(file)?;
        let mut parsed = Self::parse_in(image.bytes())?;
        if g1 != parsed.header.g1 || g1 != g2 {
            return Err(ReadError::InFlux { g1, g2 });
        }
        parsed.image = image;
        Ok(parsed)
    }

    /// Returns the ranges of records that are dispensable once they have been parsed: those of metrics, unless a problem
    /// refers to them, and of values. Texts may overlap them in a file that is not written by a library.
    fn dispensable(&self) -> Vec<Range<u64>> {
        let range = |table: Table, size: usize| table.at..table.record(table.count, size);
        let of_metrics = Some(range(self.records, self.version.metric_len())).filter(|_| self.problems.count() == 0);
        let ranges = [of_metrics, Some(range(self.values, VALUE_LEN))];
        ranges.into_iter().flatten().filter(|range| self.is_without_texts(range)).collect()
    }

    fn is_without_texts(&self, range: &Range<u64>) -> bool {
        let apart = |at: u64, len: u64| at >= range.end || at.saturating_add(len) <= range.start;
        let help = |HelpAt { short, long }: HelpAt| {
            [short, long].into_iter().all(|at| at == 0 || apart(at.into(), STRING_LEN as u64))
        };
        let mut instances = self.indoms.iter().flat_map(|indom| &indom.instances).map(|instance| instance.name);
        self.metrics.iter().map(|metric| metric.help).all(help)
            && self.indoms.iter().map(|indom| indom.help).all(help)
            && instances.all(|name| apart(name.at, name.room as u64))
            && self.labels.iter().all(|label| apart(label.payload.at, label.payload.room as u64))
    }

    /// Returns the memory that the file needs, in bytes. This includes its part of a collection's tables, with `nodes`
    /// inner nodes, and the values that a request reads.
    pub(crate) fn memory(&self, nodes: usize) -> u64 {
        // The tree of names has them with their prefix, and while a new table is built, there are two trees.
        let texts = 4 * self.names.capacity() + self.image.memory() + nodes * NODE_COST;
        let instances: usize = self.indoms.iter().map(|indom| indom.instances.capacity()).sum();
        let values = self.runs.last().map_or(0, |last| (last.slot + last.count) as usize);
        let records = self.metrics.len() * METRIC_COST
            + self.indoms.len() * INDOM_COST
            + instances * INSTANCE_COST
            + values * VALUE_COST
            + self.labels.len() * LABEL_COST;
        (texts + records + INSTANCE_TEXTS * self.instance_text) as u64
    }

    /// Estimates the number of inner nodes of the name space: adjacent metrics share the nodes of their common prefix.
    pub(crate) fn nodes(&self) -> usize {
        if !self.names.contains(&b'.') {
            return 0;
        }
        let mut before = &[][..];
        let nodes = self.metrics.iter().map(|metric| {
            let name = self.name(metric);
            let shared = name.iter().zip(before).take_while(|(a, b)| a == b).count();
            before = name;
            name.iter().skip(shared).filter(|byte| **byte == b'.').count()
        });
        nodes.sum()
    }

    /// Returns the runs of values.
    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Returns the position of a value among the values of all runs.
    pub(crate) fn slot(&self, value: ValueOf) -> u32 {
        let after = self.runs.partition_point(|run| run.first <= value.index);
        let run = after.checked_sub(1).and_then(|index| self.runs.get(index));
        run.map_or(u32::MAX, |run| run.slot + (value.index - run.first))
    }

    /// Reads the present values of a run. `values` has room for all values of the file.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file has become shorter, and other errors of reading it.
    pub(crate) fn read_run(&self, file: &fs::File, run: Run, values: &mut [u8]) -> io::Result<()> {
        let range = run.slot as usize * VALUE_LEN..(run.slot + run.count) as usize * VALUE_LEN;
        let values = values.get_mut(range).ok_or(io::ErrorKind::UnexpectedEof)?;
        file.read_exact_at(values, self.values.record(run.first, VALUE_LEN))
    }

    /// Reads the present generation numbers and, if they are near the header, all values.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file has become shorter, and other errors of reading it.
    pub(crate) fn read_front(&self, file: &fs::File, values: &mut [u8]) -> io::Result<Front> {
        let mut front = [0; FRONT];
        let near = match &self.runs[..] {
            [run] if !values.is_empty() => {
                let at = self.values.record(run.first, VALUE_LEN) as usize;
                Some(at..at + run.count as usize * VALUE_LEN).filter(|range| range.end <= FRONT)
            }
            _ => None,
        };
        let len = near.as_ref().map_or(0, |range| range.end).max(HEADER_LEN);
        let front = front.get_mut(..len).unwrap_or_default();
        file.read_exact_at(front, 0)?;
        let header = Header::read(Bytes::new(front)).ok_or(io::ErrorKind::UnexpectedEof)?;
        let is_current = header.g1 == self.header.g1 && header.g2 == self.header.g1;
        let read = near.and_then(|range| front.get(range)).zip(values.get_mut(..));
        let has_values = read.is_some_and(|(read, values)| {
            let is_whole = read.len() == values.len();
            if is_whole {
                values.copy_from_slice(read);
            }
            is_whole
        });
        Ok(Front { is_current, has_values })
    }

    /// Returns the number of values.
    pub fn value_count(&self) -> u32 {
        self.values.count
    }

    /// Returns the weighted number of values: a text counts as `text`, and a metric without values as one value.
    pub(crate) fn weighted_values(&self, text: u64) -> u64 {
        let weigh = |metric: &Metric| {
            let weight = if metric.ty == crate::format::ValueType::String { text } else { 1 };
            metric.values().len().max(1) as u64 * weight
        };
        self.metrics.iter().map(weigh).sum()
    }
}

/// Opens a file for reading, without blocking on a FIFO or device.
pub(crate) fn open(path: &Path) -> io::Result<fs::File> {
    OpenOptions::new().read(true).custom_flags((OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).bits()).open(path)
}

/// Returns whether the header of a file that could not be shown is complete now.
pub(crate) fn peek(file: &fs::File) -> io::Result<bool> {
    let mut bytes = [0; HEADER_LEN];
    let len = read_at(file, &mut bytes, 0)?;
    let header = Header::read(Bytes::new(bytes.get(..len).unwrap_or_default()));
    Ok(header.is_some_and(|header| header.magic != [0; 4] && header.g1 != 0 && header.g1 == header.g2))
}

/// Returns the two present generation numbers.
fn generations(file: &fs::File) -> Result<(u64, u64), ReadError> {
    let mut bytes = [0; HEADER_LEN];
    let len = read_at(file, &mut bytes, 0)?;
    let bytes = Bytes::new(bytes.get(..len).unwrap_or_default());
    let header = Header::read(bytes).ok_or(ReadError::TooShort { len: len as u64 })?;
    Ok((header.g1, header.g2))
}
