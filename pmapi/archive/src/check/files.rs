//! First pass: checks that the records and labels in every file are complete.

use std::path::Path;

use super::{Findings, Place, Weight};
use crate::decode::Version;
use crate::decode::index::entry_len;
use crate::decode::label::Label;
use crate::error::Result;
use crate::file::Source;
use crate::file::find::Files;

/// Bytes that are read at once.
const CHUNK: usize = 1 << 18;
/// Largest number of bytes of a compressed file after decompression.
const LIMIT: u64 = 4 << 30;
/// Length of the field at both ends of a record.
const LEN: u64 = 4;

/// Kind of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Index,
    Meta,
    Volume,
}

/// Bytes of a file, read forward through a buffer.
struct Bytes {
    source: Source,
    chunk: Vec<u8>,
    start: u64,
}

impl Bytes {
    /// Returns a word; `None` at the end.
    fn word(&mut self, at: u64) -> Result<Option<u32>> {
        let is_here = at >= self.start && at + LEN <= self.start + self.chunk.len() as u64;
        if !is_here {
            self.chunk.resize(CHUNK, 0);
            let read = self.source.read_at(&mut self.chunk, at)?;
            (self.start, _) = (at, self.chunk.truncate(read));
        }
        let from = (at - self.start) as usize;
        Ok(self.chunk.get(from..).and_then(|rest| rest.first_chunk()).map(|word| u32::from_be_bytes(*word)))
    }
}

/// Checks every file.
pub(super) fn check(files: &Files, to: &mut Findings<'_>) {
    let index = files.index.iter().map(|path| (path, Kind::Index));
    let all = index.chain([(&files.meta, Kind::Meta)]).chain(files.volumes.values().map(|path| (path, Kind::Volume)));
    let mut first = None;
    for (path, kind) in all {
        if let Err(e) = check_file(path, kind, &mut first, to) {
            to.error(&e);
        }
    }
}

/// `first` is the version of the first volume, once it is known.
fn check_file(path: &Path, kind: Kind, first: &mut Option<Version>, to: &mut Findings<'_>) -> Result {
    let mut bytes = Bytes { source: Source::open(path, LIMIT)?, chunk: Vec::new(), start: 0 };
    let len = bytes.source.len()?;
    let mut version = Version::V2;
    let (mut at, mut number) = (0, 0);
    while at < len {
        let place = Place::Record(number);
        let end = match whole(&mut bytes, at, len)? {
            Ok(end) => end,
            Err(reason) => {
                to.add(
                    path,
                    place,
                    Weight::Fatal,
                    format!("{reason}; the last whole record ends at byte {at} of {len}"),
                );
                return Ok(());
            }
        };
        if number == 0 {
            version = match label(&bytes.source)? {
                Ok(version) => version,
                Err(reason) => {
                    to.add(path, place, Weight::Fatal, reason);
                    return Ok(());
                }
            };
            if kind == Kind::Volume {
                let expected = first.get_or_insert(version).number();
                if version.number() != expected {
                    let reason =
                        format!("a volume of version {}, the first is of version {expected}", version.number());
                    to.add(path, place, Weight::Fatal, reason);
                    return Ok(());
                }
            }
            if kind == Kind::Index {
                return entries(path, version, len - end, to);
            }
        } else if kind == Kind::Meta {
            check_type(path, (number, bytes.word(at + LEN)?.unwrap_or_default()), version, to);
        }
        (at, number) = (end, number + 1);
    }
    if number < 2 {
        to.warn(path, Place::File, "there is no data in the file");
    }
    Ok(())
}

/// Returns the end of the record at an offset, or the reason why the record is invalid.
fn whole(bytes: &mut Bytes, at: u64, file: u64) -> Result<Result<u64, String>> {
    let Some(head) = bytes.word(at)? else {
        return Ok(Err(format!("{} bytes in place of a record's length", file - at)));
    };
    let Some(len) = u64::try_from(head as i32).ok().filter(|len| *len >= 2 * LEN) else {
        return Ok(Err(format!("the length at the start of the record is {}", head as i32)));
    };
    if at + len > file {
        return Ok(Err(format!("the record has {len} bytes, but {} are left in the file", file - at)));
    }
    let tail = bytes.word(at + len - LEN)?.unwrap_or_default();
    if tail != head {
        return Ok(Err(format!("the length at the end of the record is {}, at its start {head}", tail as i32)));
    }
    Ok(Ok(at + len))
}

fn label(source: &Source) -> Result<Result<Version, String>> {
    let mut start = [0; 808];
    let read = source.read_at(&mut start, 0)?;
    let label = Label::decode(start.get(..read).unwrap_or_default());
    Ok(label.map(|label| label.version).map_err(|e| format!("the label is invalid: {}", e.reason)))
}

fn entries(path: &Path, version: Version, len: u64, to: &mut Findings<'_>) -> Result {
    let size = entry_len(version) as u64;
    if len % size != 0 {
        let reason = format!("{} bytes in place of an entry of {size}", len % size);
        to.add(path, Place::Entry(len / size + 1), Weight::Fatal, reason);
    } else if len == 0 {
        to.warn(path, Place::File, "there is no data in the file");
    }
    Ok(())
}

fn check_type(path: &Path, (number, kind): (u64, u32), version: Version, to: &mut Findings<'_>) {
    let other = match (version, kind) {
        (Version::V2, 5..=7) => 3,
        (Version::V3, 2 | 3) => 2,
        _ => return,
    };
    let reason = format!("a metadata record of type {kind}, which is of version {other}");
    to.warn(path, Place::Record(number), reason);
}
