//! Reads bytes from the file system.

use std::fs::{self, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;

use super::image::read_at;
use super::{File, Image, Metric, ReadError, check_header, long_texts};
use crate::format::{Bytes, HEADER_LEN, Header, VALUE_LEN};

/// Largest file that is read, in bytes: there is room for more than two million values. The limit is needed because
/// other users can write to the directory, and a sparse file can have any size.
pub const MAX_LEN: u64 = 256 << 20;

/// Values of a metric are read together if at most this many other values are between them.
const GAP: u32 = 128;

/// Memory per record of each kind, in bytes, including the tables of a collection and the agent.
const METRIC_COST: usize = 192;
const VALUE_COST: usize = 40;
/// Number of copies of instance names that a request for instances needs: as text, and in the answer.
const INSTANCE_TEXTS: usize = 3;
/// Memory per inner node of the name space, in bytes.
const NODE_COST: usize = 256;
const INDOM_COST: usize = 224;
const INSTANCE_COST: usize = 128;
const LABEL_COST: usize = 768;

/// Bytes read at the start of a request: the header, and the values if they are that near.
const FRONT: usize = 4 << 10;

/// Longest file that is read in one go, in bytes. For a longer file, the header is checked first.
const WHOLE: u64 = 64 << 10;

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
        let mut buffer = Vec::new();
        let (mut read, image) = Self::read_with(file, &file.metadata()?, MAX_LEN, &mut buffer)?;
        read.image = image.unwrap_or_else(|| Image::from(buffer));
        Ok(read)
    }

    /// Reads an open file whose metadata is known, without keeping the records of the metrics. It is for callers that
    /// need only the parsed form. `buffer` is scratch space.
    ///
    /// # Errors
    /// [`ReadError::TooLong`] if the file contains more than `most` bytes, and the errors of [`open`](File::open).
    pub(crate) fn read_lean(
        file: &fs::File,
        metadata: &fs::Metadata,
        most: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<File, ReadError> {
        let (mut read, image) = Self::read_with(file, metadata, most, buffer)?;
        let end = read.values.record(read.values.count, VALUE_LEN);
        read.image = match image {
            Some(image) => image.without_zeros(),
            None => Image::copy(buffer, read.dispensable(), read.values.at..end),
        };
        Ok(read)
    }

    /// Parses everything. The bytes are in the buffer, or in the returned image if the file has holes.
    fn read_with(
        file: &fs::File,
        metadata: &fs::Metadata,
        most: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<(File, Option<Image>), ReadError> {
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
        // An application that registers metrics adds them to the file, and changes the generation numbers at last.
        const TRIES: u32 = 4;
        let mut tries = 1;
        loop {
            match Self::read_once(file, &file.metadata()?, most, buffer) {
                Err(ReadError::InFlux { g1, .. }) if g1 != 0 && tries < TRIES => tries += 1,
                read => return read,
            }
        }
    }

    fn read_once(
        file: &fs::File,
        metadata: &fs::Metadata,
        most: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<(File, Option<Image>), ReadError> {
        let image = Image::read(file, metadata, most, buffer)?;
        // A process that overwrites a file in place changes the generation number first.
        let now = generations(file)?;
        let parsed = Self::parse_in(image.as_ref().map_or(Bytes::new(buffer), Image::bytes))?;
        match now {
            (g1, g2) if g1 == parsed.header.g1 && g2 == g1 => Ok((parsed, image)),
            (g1, g2) => Err(ReadError::InFlux { g1, g2 }),
        }
    }

    /// Returns the memory that the file needs, in bytes. This includes its part of a collection's tables, with `nodes`
    /// inner nodes.
    pub(crate) fn memory(&self, nodes: usize) -> u64 {
        let texts = self.names.capacity() + self.image.memory() + nodes * NODE_COST;
        let instances: usize = self.indoms.iter().map(|indom| indom.instances.capacity()).sum();
        let records = self.metrics.len() * METRIC_COST
            + self.indoms.len() * INDOM_COST
            + instances * INSTANCE_COST
            + self.metrics.iter().map(|metric| metric.values().len()).sum::<usize>() * VALUE_COST
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

    /// Returns the weight of long names: of metrics, with `front` bytes before each, and of instances.
    pub(crate) fn long_texts(&self, front: usize) -> usize {
        self.metrics.iter().map(|metric| long_texts(front + self.name(metric).len())).sum::<usize>() + self.long_texts
    }

    /// Returns the number of bytes of the file that are in memory.
    pub(crate) fn data_len(&self) -> u64 {
        self.image.data_len()
    }

    /// Reads consecutive values again.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file has become shorter, and other errors of reading it.
    pub fn reread_values(&mut self, file: &fs::File, first: u32, count: u32) -> io::Result<()> {
        let count = count.min(self.values.count.saturating_sub(first));
        let at = self.values.record(first, VALUE_LEN);
        self.image.reread(file, at..at + u64::from(count) * VALUE_LEN as u64)
    }

    /// Reads the values of a metric again. Returns the number of values read, including those in gaps.
    pub(crate) fn reread_metric(&mut self, file: &fs::File, metric: usize) -> io::Result<u32> {
        let (values, image) = (self.values, &mut self.image);
        let of = self.metrics.get(metric).map_or(&[][..], Metric::values);
        let ([first, ..], [.., last]) = (of, of) else { return Ok(0) };
        let mut total = 0;
        let mut read = |range: Range<u32>| {
            total += range.end - range.start;
            image.reread(file, values.record(range.start, VALUE_LEN)..values.record(range.end, VALUE_LEN))
        };
        // The values of a metric are in ascending order.
        let all = first.index..last.index + 1;
        if all.len() <= of.len() + GAP as usize {
            read(all)?;
            return Ok(total);
        }
        let mut run = all.start..all.start;
        for value in of {
            if value.index > run.end + GAP {
                read(std::mem::replace(&mut run, value.index..value.index))?;
            }
            run.end = value.index + 1;
        }
        read(run)?;
        Ok(total)
    }

    /// Reads the present generation numbers and, if they are near the header, all values. Returns whether it read the
    /// values. `buffer` is scratch space.
    pub(crate) fn reread_front(&mut self, file: &fs::File, buffer: &mut Vec<u8>) -> io::Result<((u64, u64), bool)> {
        let at = self.values.at as usize;
        let end = at + self.values.count as usize * VALUE_LEN;
        let near = end <= FRONT;
        buffer.resize(if near { end.max(HEADER_LEN) } else { HEADER_LEN }, 0);
        file.read_exact_at(buffer, 0)?;
        let header = Header::read(Bytes::new(buffer)).ok_or(io::ErrorKind::UnexpectedEof)?;
        let range = at as u64..end as u64;
        let near = match (self.image.range_mut(range), buffer.get(at..end)) {
            (Some(old), Some(new)) if near => {
                old.copy_from_slice(new);
                true
            }
            _ => false,
        };
        Ok(((header.g1, header.g2), near))
    }

    /// Returns the number of values.
    pub fn value_count(&self) -> u32 {
        self.values.count
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
