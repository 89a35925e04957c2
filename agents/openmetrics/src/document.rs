//! Documents in memory, which may have a limited length each and all together.

use std::fmt;
use std::sync::Arc;

use encoding_rs::{CoderResult, Encoding, UTF_8};
use tokio::sync::OwnedSemaphorePermit;

use crate::runtime::{MIB, Permits};

/// Smallest number of bytes by which a document grows.
const STEP: usize = 16 << 10;
/// Bytes that are decoded at a time. Each becomes at most three bytes of UTF-8.
const PIECE: usize = 4 << 10;

/// A document, or a part of one. The first MiB of each is free; the rest counts in [`Permits::memory`].
pub(crate) struct Document {
    bytes: Vec<u8>,
    most: u64,
    permits: Permits,
    counted: Option<OwnedSemaphorePermit>,
}

/// The reason why a document cannot grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Full {
    /// The document would be longer than this number of bytes.
    Length(u64),
    /// All long documents would need more than this number of bytes.
    Memory(usize),
}

impl Full {
    /// Describes the limit. `what` precedes the length of a document, such as "the answer is ".
    pub(crate) fn of(self, what: &str) -> String {
        match self {
            Full::Length(most) => format!("{what}longer than {most} bytes"),
            Full::Memory(most) => format!("all long documents need more than {most} bytes"),
        }
    }
}

impl Document {
    /// Creates an empty document of at most `most` bytes. It has room for `expected` bytes, as far as that is free.
    pub(crate) fn new(permits: &Permits, most: u64, expected: usize) -> Document {
        let free = expected.min(MIB).min(usize::try_from(most).unwrap_or(usize::MAX));
        Document { bytes: Vec::with_capacity(free), most, permits: permits.clone(), counted: None }
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// The limit that does not allow it.
    pub(crate) fn extend(&mut self, bytes: &[u8]) -> Result<(), Full> {
        let len = self.bytes.len() + bytes.len();
        if len as u64 > self.most {
            return Err(Full::Length(self.most));
        }
        if len > self.bytes.capacity() {
            let capacity = len.max(2 * self.bytes.len()).max(STEP);
            self.count(capacity)?;
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Counts the memory for a document that grows.
    fn count(&mut self, capacity: usize) -> Result<(), Full> {
        let before = self.counted.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = capacity.saturating_sub(MIB).div_ceil(MIB).saturating_sub(before);
        if more == 0 {
            return Ok(());
        }
        let number = u32::try_from(more).ok();
        let permit = number.and_then(|n| Arc::clone(&self.permits.memory).try_acquire_many_owned(n).ok());
        let permit = permit.ok_or(Full::Memory(self.permits.most * MIB))?;
        match &mut self.counted {
            Some(counted) => counted.merge(permit),
            None => self.counted = Some(permit),
        }
        Ok(())
    }

    /// Returns an empty document with the same limits.
    pub(crate) fn like(&self) -> Document {
        Document::new(&self.permits, self.most, 0)
    }

    /// Returns the document as text. What is not valid in `charset`, or in UTF-8, becomes U+FFFD.
    ///
    /// # Errors
    /// There is not enough memory for the text.
    pub(crate) fn into_text(mut self, charset: Option<&'static Encoding>) -> Result<Text, Full> {
        let charset = charset.unwrap_or(UTF_8);
        if charset == UTF_8 {
            // A byte order mark is not part of the text. Those of UTF-16 are not UTF-8: the decoder knows them.
            if self.bytes.starts_with("\u{feff}".as_bytes()) {
                self.bytes.drain(..3);
            }
            match String::from_utf8(std::mem::take(&mut self.bytes)) {
                Ok(text) => return Ok(Text { text, _room: self }),
                Err(e) => self.bytes = e.into_bytes(),
            }
        }
        let mut decoder = charset.new_decoder();
        let mut text = Document::new(&self.permits, self.most.saturating_mul(3).saturating_add(3), self.bytes.len());
        let (mut rest, mut piece) = (&self.bytes[..], [0; 3 * PIECE + 16]);
        loop {
            let (now, later) = rest.split_at(rest.len().min(PIECE));
            let (result, read, written, _) = decoder.decode_to_utf8(now, &mut piece, later.is_empty());
            text.extend(piece.get(..written).unwrap_or_default())?;
            rest = rest.get(read..).unwrap_or_default();
            if result == CoderResult::InputEmpty && rest.is_empty() {
                break;
            }
        }
        let bytes = std::mem::take(&mut text.bytes);
        Ok(Text { text: String::from_utf8(bytes).unwrap_or_default(), _room: text })
    }
}

impl std::ops::Deref for Document {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Document({} bytes)", self.bytes.len())
    }
}

/// The text of a document.
pub(crate) struct Text {
    text: String,
    /// Counts the memory of the text.
    _room: Document,
}

impl std::ops::Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn permits(mib: usize) -> Permits {
        Permits::new(1, 0, mib * MIB)
    }

    #[test]
    fn long_documents_share_a_limit_and_give_it_back() {
        let permits = permits(8);
        let read = |len: usize| {
            let mut document = Document::new(&permits, u64::MAX, 0);
            (0..len / STEP).try_for_each(|_| document.extend(&[b'x'; STEP])).map(|()| document)
        };
        // Short ones are not counted.
        let short: Vec<_> = (0..100).map(|_| read(MIB / 2).unwrap()).collect();
        assert_eq!(permits.memory.available_permits(), 8);
        let long = read(4 * MIB).unwrap();
        let refused = read(8 * MIB).unwrap_err();
        assert_eq!(refused.of(""), "all long documents need more than 8388608 bytes");
        read(4 * MIB).unwrap();
        assert_eq!(permits.memory.available_permits(), 8 - 3);
        drop((short, long));
        assert_eq!(permits.memory.available_permits(), 8);
        // The limit holds for a document that is alone, too.
        read(16 * MIB).unwrap_err();
        assert_eq!(permits.memory.available_permits(), 8);
    }

    #[test]
    fn text_is_as_the_standard_library_makes_it() {
        let long = [&b"x".repeat(PIECE - 1)[..], "é".as_bytes(), b"\xff"].concat();
        for bytes in
            [&b""[..], b"a", b"\xff", b"a\xf0\x90b\xe2\x82", "\u{fffd}\u{10ffff}".as_bytes(), b"\xed\xa0\x80x", &long]
        {
            let mut document = Document::new(&permits(8), 1 << 20, 0);
            document.extend(bytes).unwrap();
            assert_eq!(&*document.into_text(None).unwrap(), String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn character_sets() {
        for (label, bytes, text) in [
            ("iso-8859-1", &b"Z\xfcrich"[..], "Zürich"),
            ("windows-1252", b"\x84x\x93 \x80", "„x“ €"),
            ("koi8-r", b"\xcd", "м"),
            ("utf-16", b"\xff\xfea\0\xfc\0", "aü"),
            ("utf-16be", b"\0a\0\xfc", "aü"),
            ("utf-16le", b"a\0\x00\xd8", "a\u{fffd}"),
            // Without a character set, the byte order mark decides.
            ("", b"\xff\xfea\0\xfc\0", "aü"),
            ("", b"\xfe\xff\0a\0\xfc", "aü"),
            ("", b"\xef\xbb\xbfa\xc3\xbc", "aü"),
        ] {
            let mut document = Document::new(&permits(8), 1 << 20, 0);
            document.extend(bytes).unwrap();
            assert_eq!(&*document.into_text(Encoding::for_label(label.as_bytes())).unwrap(), text, "{label}");
        }
    }
}
