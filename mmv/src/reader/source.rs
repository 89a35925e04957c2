//! Bytes from the file system.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::{Cut, File, ReadError};
use crate::format::{Bytes, Flags, HEADER_LEN, Header, STRING_LEN, VALUE_LEN};

/// The largest file that is read: two million values and more. The directory is open to others,
/// and a file without contents can claim any size.
pub const MAX_LEN: u64 = 256 << 20;

/// What is read of a file at once, rather than in two steps.
const FRONT: usize = 4 << 10;

impl File {
    /// Reads a file; the error says why nothing of it can be shown.
    pub fn open(path: impl AsRef<Path>) -> Result<File, ReadError> {
        Self::read(&open(path.as_ref())?)
    }

    /// Reads an open file, as [`open`](File::open) does.
    pub fn read(file: &fs::File) -> Result<File, ReadError> {
        let mut bytes = Vec::new();
        let mut read = Self::read_with(file, &file.metadata()?, &mut bytes)?;
        read.bytes = Cut::from(bytes);
        Ok(read)
    }

    /// Reads an open file that is described so, for who knows with that what the records of the metrics say: they are
    /// not in memory then. `buffer` is for the time being.
    pub(crate) fn read_lean(file: &fs::File, metadata: &fs::Metadata, buffer: &mut Vec<u8>) -> Result<File, ReadError> {
        let mut read = Self::read_with(file, metadata, buffer)?;
        read.bytes = Cut::new(buffer, read.dispensable());
        Ok(read)
    }

    /// All but the bytes, which are in the buffer.
    fn read_with(file: &fs::File, metadata: &fs::Metadata, buffer: &mut Vec<u8>) -> Result<File, ReadError> {
        if !metadata.is_file() {
            return Err(ReadError::NotRegular);
        }
        if metadata.len() > MAX_LEN {
            return Err(ReadError::TooLong { len: metadata.len() });
        }
        buffer.resize(metadata.len() as usize, 0);
        let len = read_at(file, buffer, 0)?;
        buffer.truncate(len);
        // Whoever writes a file in its place changes the generation first.
        let now = generations(file)?;
        let parsed = Self::parse_in(Bytes::new(buffer))?;
        match now {
            (g1, g2) if g1 == parsed.header.g1 && g2 == g1 => Ok(parsed),
            (g1, g2) => Err(ReadError::InFlux { g1, g2 }),
        }
    }

    /// Reads values again; the error of a file that has become shorter is that of its end.
    pub fn reread_values(&mut self, file: &fs::File, first: u32, count: u32) -> io::Result<()> {
        let count = count.min(self.values.count.saturating_sub(first));
        let at = self.values.record(first, VALUE_LEN);
        match self.bytes.range_mut(at, count as usize * VALUE_LEN) {
            Some(range) => file.read_exact_at(range, at),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Reads the generation numbers as they are now and, when they are near, all values: whether they
    /// are. `buffer` is for the time being.
    pub(crate) fn reread_front(&mut self, file: &fs::File, buffer: &mut Vec<u8>) -> io::Result<((u64, u64), bool)> {
        let at = self.values.at as usize;
        let end = at + self.values.count as usize * VALUE_LEN;
        let near = end <= FRONT;
        buffer.resize(if near { end.max(HEADER_LEN) } else { HEADER_LEN }, 0);
        file.read_exact_at(buffer, 0)?;
        let header = Header::read(Bytes::new(buffer)).ok_or(io::ErrorKind::UnexpectedEof)?;
        if near && let (Some(old), Some(new)) = (self.bytes.range_mut(at as u64, end - at), buffer.get(at..end)) {
            old.copy_from_slice(new);
        }
        Ok(((header.g1, header.g2), near))
    }

    /// How many values there are.
    pub fn value_count(&self) -> u32 {
        self.values.count
    }

    /// The string at an offset as it is now, up to its NUL; an error when it is not in the file.
    pub fn reread_string(&self, file: &fs::File, at: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        buffer.resize(STRING_LEN, 0);
        file.read_exact_at(buffer, at)?;
        let end = buffer.iter().position(|b| *b == 0).unwrap_or(STRING_LEN);
        buffer.truncate(end);
        Ok(())
    }
}

/// Opens a file for reading; what is no regular file must not block.
pub(crate) fn open(path: &Path) -> io::Result<fs::File> {
    OpenOptions::new().read(true).custom_flags((OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).bits()).open(path)
}

/// The two generation numbers as they are now.
pub(crate) fn generations(file: &fs::File) -> Result<(u64, u64), ReadError> {
    let mut bytes = [0; HEADER_LEN];
    let len = read_at(file, &mut bytes, 0)?;
    let bytes = Bytes::new(bytes.get(..len).unwrap_or_default());
    let header = Header::read(bytes).ok_or(ReadError::TooShort { len: len as u64 })?;
    Ok((header.g1, header.g2))
}

fn read_at(file: &fs::File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
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

impl Header {
    /// The process that must live for the file to be valid, if it asks for that.
    pub fn owner(&self) -> Option<i32> {
        (self.flags.contains(Flags::PROCESS) && self.process != 0).then_some(self.process)
    }
}

/// Whether there is a process with this identifier.
pub fn process_exists(process: i32) -> bool {
    process > 0 && kill(Pid::from_raw(process), None) != Err(Errno::ESRCH)
}
