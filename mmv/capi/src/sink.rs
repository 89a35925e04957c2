//! A buffered writer of the records and strings of a file.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Write};

use mmv::format::STRING_LEN;

use crate::own::copy;
use crate::sys::Lock;

/// Bytes that are written at once. For larger writes, file systems allocate larger blocks of memory.
const FULL: usize = 128 << 10;

/// The buffers of the last start. They are reused, because touching new memory takes as long as writing the file. They are
/// not on the stack, which may be small.
static SPARE: Lock<Option<Buffers>> = Lock::new(None);

/// Bytes to be written: first the records, then the strings.
///
/// A string has 256 bytes, and most texts are short. A place for a string therefore stays one, and only the end of the
/// former text is overwritten: to fill all places with NULs would take half as long as writing them.
struct Buffers {
    records: Box<[u8]>,
    strings: Vec<[u8; STRING_LEN]>,
    /// Number of bytes at the start of each string that may differ from NUL.
    used: Vec<u8>,
}

impl Buffers {
    fn new() -> io::Result<Buffers> {
        let (mut records, mut strings, mut used) = (Vec::new(), Vec::new(), Vec::new());
        let room = records.try_reserve_exact(FULL);
        let room = room.and_then(|()| strings.try_reserve_exact(FULL / STRING_LEN));
        room.and_then(|()| used.try_reserve_exact(FULL / STRING_LEN)).map_err(|_| ErrorKind::OutOfMemory)?;
        records.resize(FULL, 0);
        Ok(Buffers { records: records.into(), strings, used })
    }
}

/// A buffered writer of records and strings.
pub(crate) struct Sink<'a> {
    file: &'a File,
    buffers: Buffers,
    /// Length of the records, in bytes.
    len: usize,
    /// Number of strings.
    strings: usize,
}

impl<'a> Sink<'a> {
    pub(crate) fn new(file: &'a File) -> io::Result<Sink<'a>> {
        let spare = SPARE.try_lock().and_then(|mut spare| spare.take());
        Ok(Sink { file, buffers: spare.map_or_else(Buffers::new, Ok)?, len: 0, strings: 0 })
    }

    /// Writes the rest, and keeps the buffers for the next start.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.spill()?;
        if let Some(mut spare) = SPARE.try_lock() {
            *spare = Some(self.buffers);
        }
        Ok(())
    }

    /// Returns room for `LEN` bytes of a record.
    #[inline(always)]
    pub(crate) fn place<const LEN: usize>(&mut self) -> io::Result<&mut [u8; LEN]> {
        const { assert!(LEN <= FULL) };
        if self.len + LEN > FULL || self.strings > 0 {
            self.spill()?;
        }
        let start = self.len;
        self.len += LEN;
        let place = self.buffers.records.get_mut(start..).and_then(|rest| rest.first_chunk_mut());
        place.ok_or_else(|| ErrorKind::InvalidInput.into())
    }

    #[inline(always)]
    pub(crate) fn put<const LEN: usize>(&mut self, bytes: &[u8; LEN]) -> io::Result<()> {
        *self.place()? = *bytes;
        Ok(())
    }

    /// Appends `count` records, the one of each position.
    #[inline(always)]
    pub(crate) fn put_all<const LEN: usize>(
        &mut self,
        count: usize,
        record: impl Fn(usize) -> [u8; LEN],
    ) -> io::Result<()> {
        const { assert!(LEN <= FULL) };
        let mut done = 0;
        while done < count {
            if self.len + LEN > FULL || self.strings > 0 {
                self.spill()?;
            }
            let start = self.len;
            let room = ((FULL - start) / LEN).min(count - done);
            self.len += room * LEN;
            let places = self.buffers.records.get_mut(start..self.len).unwrap_or_default().chunks_exact_mut(LEN);
            places.enumerate().for_each(|(position, place)| place.copy_from_slice(&record(done + position)));
            done += room;
        }
        Ok(())
    }

    /// Appends a string: as much of a text as fits into its bytes with a terminating NUL, padded with NULs.
    #[inline(always)]
    pub(crate) fn put_string(&mut self, text: &[u8]) -> io::Result<()> {
        const { assert!(STRING_LEN - 1 <= u8::MAX as usize) };
        if self.len + (self.strings + 1) * STRING_LEN > FULL {
            self.spill()?;
        }
        let text = text.get(..STRING_LEN - 1).unwrap_or(text);
        let Buffers { strings, used, .. } = &mut self.buffers;
        if self.strings == strings.len() {
            strings.push([0; STRING_LEN]);
            used.push(0);
        }
        if let (Some(string), Some(used)) = (strings.get_mut(self.strings), used.get_mut(self.strings)) {
            let (place, rest) = string.split_at_mut(text.len());
            copy(place, text);
            let former = usize::from(*used).saturating_sub(text.len());
            rest.iter_mut().take(former).for_each(|byte| *byte = 0);
            *used = text.len() as u8;
        }
        self.strings += 1;
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn spill(&mut self) -> io::Result<()> {
        let records = self.buffers.records.get(..self.len).unwrap_or_default();
        let strings = self.buffers.strings.get(..self.strings).unwrap_or_default().as_flattened();
        let mut file = self.file;
        let written = match file.write_vectored(&[IoSlice::new(records), IoSlice::new(strings)]) {
            Err(e) if e.kind() == ErrorKind::Interrupted => 0,
            written => written?,
        };
        file.write_all(records.get(written..).unwrap_or_default())?;
        file.write_all(strings.get(written.saturating_sub(self.len)..).unwrap_or_default())?;
        (self.len, self.strings) = (0, 0);
        Ok(())
    }
}

/// Copies as much of a text as fits into a place with a terminating NUL, padded with NULs.
#[inline(always)]
pub(crate) fn put_text(place: &mut [u8], text: &[u8]) {
    place.fill(0);
    let len = text.len().min(place.len().saturating_sub(1));
    if let (Some(place), Some(text)) = (place.get_mut(..len), text.get(..len)) {
        copy(place, text);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    /// The buffers have what was written before: long texts, in the places of short ones.
    #[test]
    fn buffers_are_reused() {
        let file = tempfile::tempfile().unwrap();
        let mut expected = Vec::new();
        for round in 0..4 {
            let mut sink = Sink::new(&file).unwrap();
            for _ in 0..700 {
                sink.put(&[round; 24]).unwrap();
                expected.extend([round; 24]);
            }
            sink.put_all(9000, |position| [position as u8; 24]).unwrap();
            (0..9000).for_each(|position| expected.extend([position as u8; 24]));
            for at in 0..1300 {
                let text = vec![b'a' + round; (at * 37 + usize::from(round) * 101) % 300];
                sink.put_string(&text).unwrap();
                let mut place = [0; STRING_LEN];
                let kept = text.get(..STRING_LEN - 1).unwrap_or(&text);
                place[..kept.len()].copy_from_slice(kept);
                expected.extend(place);
            }
            put_text(sink.place::<8>().unwrap(), b"0123456789");
            expected.extend(*b"0123456\0");
            put_text(sink.place::<8>().unwrap(), b"01");
            expected.extend(*b"01\0\0\0\0\0\0");
            sink.finish().unwrap();
        }
        let mut found = vec![0; expected.len() + 1];
        assert_eq!(file.read_at(&mut found, 0).unwrap(), expected.len());
        assert!(found.starts_with(&expected));
    }
}
