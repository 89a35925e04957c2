//! Compressed blocks of an `.xz` file, each decompressed when it is read.
//!
//! The index at the end of a stream has the lengths of its blocks. A block is decoded as a separate stream: the
//! original stream's header, the block, and an index of this block alone, against which the decoder checks lengths and
//! checksum.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, PoisonError};

use super::compress::XZ_MEMORY;

/// Length of the head and of the foot of a stream.
const END: u64 = 12;
const HEAD_MAGIC: &[u8] = b"\xfd7zXZ\0";
const FOOT_MAGIC: &[u8] = b"YZ";
/// Largest size of the index of a compressed file, in bytes.
const MOST_INDEX: u64 = 16 << 20;
/// Largest number of blocks of a compressed file.
const MOST_BLOCKS: usize = 1 << 20;
/// Largest number of streams of a file, and of words of padding between them.
const MOST_PARTS: usize = 1 << 12;
/// Largest number of bytes of a block. `pmlogger_daily` makes blocks of 10 MiB.
const MOST_BLOCK: u64 = 32 << 20;
/// Number of blocks that are cached, and their largest size in bytes together. One block may be larger.
const KEPT: usize = 4;
const MOST_KEPT: usize = 64 << 20;

/// Blocks of a file.
#[derive(Debug)]
pub(super) struct Blocks {
    file: File,
    blocks: Vec<Block>,
    len: u64,
    /// Last blocks that were read, the newest first.
    kept: Mutex<VecDeque<(usize, Arc<Vec<u8>>)>>,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    /// Offset in the file.
    at: u64,
    /// Length in the file, without padding.
    packed: u64,
    /// Offset in the decompressed file.
    start: u64,
    /// Length in the decompressed file.
    len: u64,
    /// Flags of the stream.
    flags: [u8; 2],
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & 0_u32.wrapping_sub(crc & 1)))
    })
}

/// Reads a number of 7 bits a byte, the lowest first.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..63).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Returns the bytes of a file from `start` to `end`.
fn bytes_of(file: &File, start: u64, end: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; end.saturating_sub(start) as usize];
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes)
}

fn foot(flags: [u8; 2], index_len: usize) -> Vec<u8> {
    let words = (index_len / 4).saturating_sub(1) as u32;
    let body = [&words.to_le_bytes()[..], &flags].concat();
    [&crc32(&body).to_le_bytes(), &body[..], FOOT_MAGIC].concat()
}

fn head(flags: [u8; 2]) -> Vec<u8> {
    [HEAD_MAGIC, &flags, &crc32(&flags).to_le_bytes()].concat()
}

impl Block {
    fn padded(self) -> Option<u64> {
        self.packed.checked_next_multiple_of(4)
    }

    /// Returns the bytes after the block in a stream of this block alone.
    fn tail(self) -> Vec<u8> {
        let mut index = vec![0, 1];
        put_number(&mut index, self.packed);
        put_number(&mut index, self.len);
        index.resize(index.len().next_multiple_of(4), 0);
        index.extend(crc32(&index).to_le_bytes());
        let foot = foot(self.flags, index.len());
        index.extend(foot);
        index
    }
}

/// Reads the stream that ends at an offset of a file. Returns the offset of its start, and its blocks, whose `start` is
/// not set. Returns `None` if it is not a stream with an index.
fn stream(file: &File, end: u64) -> io::Result<Option<(u64, Vec<Block>)>> {
    let Some(foot_at) = end.checked_sub(END) else { return Ok(None) };
    let foot_bytes = bytes_of(file, foot_at, end)?;
    let &[_, _, _, _, a, b, c, d, e, f, ..] = foot_bytes.as_slice() else { return Ok(None) };
    let (index_len, flags) = ((u64::from(u32::from_le_bytes([a, b, c, d])) + 1) * 4, [e, f]);
    let Some(index_at) = foot_at.checked_sub(index_len).filter(|_| index_len <= MOST_INDEX) else { return Ok(None) };
    if foot_bytes != foot(flags, index_len as usize) {
        return Ok(None);
    }
    let index = bytes_of(file, index_at, foot_at)?;
    Ok(parse(&index, flags, index_at)
        .filter(|(start, _)| bytes_of(file, *start, *start + END).is_ok_and(|bytes| bytes == head(flags))))
}

/// Parses the index of a stream, which is at an offset of a file.
fn parse(index: &[u8], flags: [u8; 2], at: u64) -> Option<(u64, Vec<Block>)> {
    let (body, crc) = index.split_last_chunk::<4>()?;
    let mut rest = body.strip_prefix(&[0]).filter(|_| crc32(body).to_le_bytes() == *crc)?;
    let count = usize::try_from(number(&mut rest)?).ok().filter(|count| *count <= MOST_BLOCKS)?;
    let (mut blocks, mut all) = (Vec::new(), 0_u64);
    for _ in 0..count {
        let block = Block { at: all, packed: number(&mut rest)?, start: 0, len: number(&mut rest)?, flags };
        all = all.checked_add(block.padded()?)?;
        blocks.push(block);
    }
    let first = at.checked_sub(all)?;
    blocks.iter_mut().for_each(|block| block.at += first);
    Some((first.checked_sub(END)?, blocks))
}

impl Blocks {
    /// Reads the indexes of a file. Returns `None` if the file must be decompressed as a whole, because it has a single
    /// block or a large one, or is incomplete.
    ///
    /// # Errors
    /// Those of reading the file.
    pub(super) fn open(file: &File) -> io::Result<Option<Blocks>> {
        let mut end = file.metadata()?.len();
        let (mut blocks, mut parts) = (VecDeque::new(), 0);
        while end > 0 {
            parts += 1;
            if parts > MOST_PARTS || blocks.len() > MOST_BLOCKS {
                return Ok(None);
            }
            // Streams are padded with zeros.
            if end >= 4 && bytes_of(file, end - 4, end)? == [0; 4] {
                end -= 4;
                continue;
            }
            let Some((start, new)) = stream(file, end)? else { return Ok(None) };
            new.into_iter().rev().for_each(|block| blocks.push_front(block));
            end = start;
        }
        let (mut blocks, mut len) = (Vec::from(blocks), 0_u64);
        for block in &mut blocks {
            block.start = len;
            let Some(end) = len.checked_add(block.len).filter(|_| block.len <= MOST_BLOCK) else { return Ok(None) };
            len = end;
        }
        if blocks.len() < 2 {
            return Ok(None);
        }
        Ok(Some(Blocks { file: file.try_clone()?, blocks, len, kept: Mutex::default() }))
    }

    /// Returns the length after decompression.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Reads bytes at an offset of the decompressed file, at most to the end of a block. Returns 0 at the end of the
    /// file.
    ///
    /// # Errors
    /// Those of the decoder.
    pub(super) fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize> {
        let nth = self.blocks.partition_point(|block| block.start + block.len <= offset);
        let Some(block) = self.blocks.get(nth) else { return Ok(0) };
        let bytes = self.block(nth)?;
        let mut from = bytes.get((offset - block.start) as usize..).unwrap_or_default();
        from.read(to)
    }

    /// Decompresses a block, unless it is cached.
    fn block(&self, nth: usize) -> io::Result<Arc<Vec<u8>>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = kept.iter().position(|(other, _)| *other == nth) {
            let found = kept.remove(at).map_or_else(Arc::default, |(_, bytes)| bytes);
            kept.push_front((nth, found.clone()));
            return Ok(found);
        }
        let Some(block) = self.blocks.get(nth) else { return Ok(Arc::default()) };
        while kept.len() >= KEPT
            || !kept.is_empty()
                && kept.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() + block.len as usize > MOST_KEPT
        {
            kept.pop_back();
        }
        let bytes = self.decode(block).map_err(|e| {
            io::Error::new(e.kind(), format!("compressed block {} of {}: {e}", nth + 1, self.blocks.len()))
        })?;
        let bytes = Arc::new(bytes);
        kept.push_front((nth, bytes.clone()));
        Ok(bytes)
    }

    fn decode(&self, block: &Block) -> io::Result<Vec<u8>> {
        let (head, tail) = (head(block.flags), block.tail());
        let left = block.padded().unwrap_or(block.packed);
        let part = BufReader::new(Part { file: &self.file, at: block.at, left });
        let stream = head.as_slice().chain(part).chain(tail.as_slice());
        let reader = lzma_rust2::XzReader::new_mem_limit(stream, false, XZ_MEMORY);
        let mut bytes = Vec::with_capacity(block.len as usize);
        reader.take(block.len + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != block.len {
            let reason = format!("{} bytes after decompression, but the index has {}", bytes.len(), block.len);
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        Ok(bytes)
    }
}

/// Part of a file.
struct Part<'f> {
    file: &'f File,
    at: u64,
    left: u64,
}

impl io::Read for Part<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(to.len());
        let read = self.file.read_at(to.get_mut(..most).unwrap_or_default(), self.at)?;
        (self.at, self.left) = (self.at + read as u64, self.left - read as u64);
        Ok(read)
    }
}
