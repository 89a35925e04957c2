//! Names of what is traced.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::protocol::{self, MAX_TAG};

/// The name of a transaction, a point, an observation or a counter, prepared once for any number of
/// uses. A copy is another handle of the same.
///
/// Each kind has its own names: a transaction and a point may have the same tag.
#[derive(Clone)]
pub struct Tag(Arc<[u8]>);

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
            _ => Ok(Tag(protocol::prepare(name.as_bytes(), std::process::id()).into())),
        }
    }

    /// The text.
    pub fn name(&self) -> &str {
        std::str::from_utf8(protocol::tag_of(&self.0)).unwrap_or_default()
    }

    pub(crate) fn prepared(&self) -> &[u8] {
        &self.0
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
