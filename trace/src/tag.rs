//! Names of what is traced.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use thiserror::Error;

use crate::protocol::{self, Kind, MAX_TAG};

/// The name of a transaction, a point, an observation or a counter, prepared once for any number of
/// uses. A copy is another handle of the same.
///
/// Each kind has its own names: a transaction and a point may have the same tag.
#[derive(Clone)]
pub struct Tag(Arc<Prepared>);

struct Prepared {
    /// For TCP.
    pdu: Box<[u8]>,
    /// For each kind the file in which it was last used, in the upper half, and its number there.
    numbers: [AtomicU64; Kind::ALL.len()],
}

/// Why a text is no tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum TagError {
    /// `PMTRACE_ERR_TAGNAME`.
    #[error("a tag cannot be empty")]
    Empty,
    /// `PMTRACE_ERR_TAGLENGTH`.
    #[error("a tag of {0} bytes: {MAX_TAG} are the most")]
    TooLong(usize),
    /// C's strings end there.
    #[error("a tag cannot have a NUL")]
    Nul,
}

impl Tag {
    /// A tag of 1 to 254 bytes without NUL.
    pub fn new(name: &str) -> Result<Tag, TagError> {
        match name.len() {
            0 => Err(TagError::Empty),
            len if len > MAX_TAG => Err(TagError::TooLong(len)),
            _ if name.contains('\0') => Err(TagError::Nul),
            _ => {
                let pdu = protocol::prepare(name.as_bytes()).into();
                Ok(Tag(Arc::new(Prepared { pdu, numbers: Default::default() })))
            }
        }
    }

    /// The text.
    pub fn name(&self) -> &str {
        std::str::from_utf8(self.bytes()).unwrap_or_default()
    }

    fn bytes(&self) -> &[u8] {
        protocol::tag_of(&self.0.pdu)
    }

    pub(crate) fn prepared(&self) -> &[u8] {
        &self.0.pdu
    }

    /// The number in a file, which `find` knows.
    #[inline]
    pub(crate) fn number(&self, kind: Kind, file: u32, find: impl FnOnce(&[u8]) -> io::Result<u32>) -> io::Result<u32> {
        let last = &self.0.numbers[kind as usize - 1];
        let known = last.load(Relaxed);
        if known >> 32 == u64::from(file) {
            return Ok(known as u32);
        }
        let number = find(self.bytes())?;
        last.store(u64::from(file) << 32 | u64::from(number), Relaxed);
        Ok(number)
    }
}

impl TryFrom<&str> for Tag {
    type Error = TagError;

    fn try_from(name: &str) -> Result<Tag, TagError> {
        Tag::new(name)
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tag").field(&self.name()).finish()
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_to_254_bytes() {
        assert_eq!(Tag::new("").unwrap_err(), TagError::Empty);
        assert_eq!(Tag::new("a\0b").unwrap_err(), TagError::Nul);
        assert_eq!(Tag::new(&"x".repeat(255)).unwrap_err(), TagError::TooLong(255));
        for name in ["a", "third sleep", "größer", &"x".repeat(254)] {
            assert_eq!(Tag::new(name).unwrap().name(), name);
        }
    }
}
