//! Keys and values of a trace event.

use std::fmt::{self, Display, Write as _};
use std::str;

use super::format::MAX_FIELDS;

/// Keys and values of a point or a transaction, for its event record. TCP transports ignore them.
///
/// All fields together take at most 856 bytes: each takes 3 bytes more than its key and value. A field that does not
/// fit is left out.
///
/// ```
/// let fields = pcp_trace::Fields::new().with("user", 7).with("path", "/cart");
/// assert_eq!(fields.iter().collect::<Vec<_>>(), [("user", "7"), ("path", "/cart")]);
/// ```
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Fields(Vec<u8>);

/// Bytes before the key: its length (one byte), and the value's (two bytes, little-endian).
const HEAD: usize = 3;

impl Fields {
    /// Creates an empty set of fields.
    pub const fn new() -> Fields {
        Fields(Vec::new())
    }

    /// Adds a field, and returns `self`. A field that does not fit is left out.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Display) -> Fields {
        self.add(key, value);
        self
    }

    /// Adds a field. Returns false, and adds nothing, if it does not fit, or its key is longer than 255 bytes.
    pub fn add(&mut self, key: &str, value: impl Display) -> bool {
        let before = self.0.len();
        let fits = u8::try_from(key.len()).is_ok_and(|len| self.put(len, key, &value).is_ok());
        if !fits {
            self.0.truncate(before);
        }
        fits
    }

    fn put(&mut self, len: u8, key: &str, value: &impl Display) -> fmt::Result {
        let at = self.0.len();
        self.0.extend_from_slice(&[len, 0, 0]);
        self.write_str(key)?;
        write!(self, "{value}")?;
        let value_len = self.0.len() - at - HEAD - key.len();
        let len = u16::try_from(value_len).map_err(|_| fmt::Error)?.to_le_bytes();
        self.0.get_mut(at + 1..at + HEAD).ok_or(fmt::Error)?.copy_from_slice(&len);
        Ok(())
    }

    /// Returns an iterator over keys and values, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let text = |bytes| str::from_utf8(bytes).unwrap_or_default();
        each(&self.0).map(move |(key, value)| (text(key), text(value)))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Appends text. Fails, without appending, if all fields would exceed 856 bytes.
impl fmt::Write for Fields {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_FIELDS {
            return Err(fmt::Error);
        }
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Decodes fields, up to the first one that is not complete.
pub(crate) fn each(mut bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    std::iter::from_fn(move || {
        let ([key, low, high], rest) = bytes.split_first_chunk::<HEAD>()?;
        let (key, rest) = rest.split_at_checked((*key).into())?;
        let (value, rest) = rest.split_at_checked(u16::from_le_bytes([*low, *high]).into())?;
        bytes = rest;
        Some((key, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_left_out() {
        let mut fields = Fields::new().with("a", "x".repeat(400)).with("", "");
        assert!(!fields.add("b", "y".repeat(500)) && !fields.add(&"k".repeat(256), 1));
        assert!(fields.add("größe", 1.5) && fields.add(&"k".repeat(255), ""));
        let lens: Vec<_> = fields.iter().map(|(key, value)| (key.len(), value.len())).collect();
        assert_eq!(lens, [(1, 400), (0, 0), (7, 3), (255, 0)]);
        assert!(fields.bytes().len() <= MAX_FIELDS);
        (0..fields.bytes().len()).for_each(|cut| assert!(each(&fields.bytes()[..cut]).count() < 4));
    }
}
