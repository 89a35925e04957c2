//! Tags: the names of trace events.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use thiserror::Error;

use crate::protocol::{self, Kind, MAX_TAG};

/// Name of a transaction, a point, an observation or a counter: 1 to 254 bytes, without NUL.
///
/// A tag is prepared once and used any number of times. Clones share it. Each kind of trace event has its own names: a
/// transaction and a point may use the same tag.
///
/// ```
/// let tag = pcp_trace::Tag::new("order")?;
/// assert_eq!(tag.name(), "order");
/// # Ok::<(), pcp_trace::TagError>(())
/// ```
#[derive(Clone)]
pub struct Tag(Arc<Prepared>);

struct Prepared {
    /// The PDU for TCP, as `protocol::prepare` encodes it.
    pdu: Box<[u8]>,
    /// Cache for each kind: identifier of the file in which the tag was last used (upper half), number in that file.
    numbers: [AtomicU64; Kind::ALL.len()],
}

/// Error of [`Tag::new`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum TagError {
    /// The name is empty (`PMTRACE_ERR_TAGNAME`).
    #[error("a tag cannot be empty")]
    Empty,
    /// The name has this many bytes, more than 254 (`PMTRACE_ERR_TAGLENGTH`).
    #[error("tag of {0} bytes: at most {MAX_TAG} are allowed")]
    TooLong(usize),
    /// The name contains a NUL, with which C's strings end.
    #[error("a tag cannot contain a NUL")]
    Nul,
}

impl Tag {
    /// Prepares a tag.
    ///
    /// # Errors
    /// [`TagError`] for a name that is empty, longer than 254 bytes, or contains a NUL.
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

    /// Returns the name of the tag.
    pub fn name(&self) -> &str {
        std::str::from_utf8(self.bytes()).unwrap_or_default()
    }

    fn bytes(&self) -> &[u8] {
        protocol::tag_of(&self.0.pdu)
    }

    pub(crate) fn prepared(&self) -> &[u8] {
        &self.0.pdu
    }

    /// Returns the tag's number in the file with identifier `file`: from the cache, or else from `find`.
    #[inline]
    pub(crate) fn number(&self, kind: Kind, file: u32, find: impl FnOnce(&str) -> io::Result<u32>) -> io::Result<u32> {
        let last = &self.0.numbers[kind as usize - 1];
        let known = last.load(Relaxed);
        if known >> 32 == u64::from(file) {
            return Ok(known as u32);
        }
        let number = find(self.name())?;
        last.store(u64::from(file) << 32 | u64::from(number), Relaxed);
        Ok(number)
    }
}

/// Tags are equal, and ordered, by their names.
impl PartialEq for Tag {
    fn eq(&self, other: &Tag) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Tag {}

impl PartialOrd for Tag {
    fn partial_cmp(&self, other: &Tag) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Tag {
    fn cmp(&self, other: &Tag) -> Ordering {
        self.bytes().cmp(other.bytes())
    }
}

impl Hash for Tag {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes().hash(state);
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

    #[test]
    fn tags_are_keys_by_their_names() {
        let tag = |name| Tag::new(name).unwrap();
        assert_eq!(std::collections::HashSet::from([tag("a"), tag("b"), tag("a")]).len(), 2);
        assert!(tag("a") < tag("b"));
    }
}
