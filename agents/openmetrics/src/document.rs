//! Documents in memory. All of them share a limit, so that many sources with long documents cannot use up the memory.

use std::io::{self, Read, Write};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::{fmt, str};

/// Bytes of each document that the shared limit does not count. Most documents are shorter.
const FREE: usize = 1 << 20;
/// Usual shared limit of all documents, in bytes beyond [`FREE`].
pub(crate) const MOST: usize = 256 << 20;
/// Smallest number of bytes by which a document grows.
const STEP: usize = 16 << 10;

static SHARED: Account = Account { used: AtomicUsize::new(0), most: AtomicUsize::new(MOST) };

/// Number of bytes that documents use together.
struct Account {
    used: AtomicUsize,
    most: AtomicUsize,
}

/// Sets the shared limit of all documents.
pub(crate) fn limit(bytes: usize) {
    SHARED.most.store(bytes, Relaxed);
}

/// A document, or a part of one.
pub(crate) struct Document {
    bytes: Vec<u8>,
    /// Part of the shared limit that this document uses, in bytes.
    counted: usize,
    account: &'static Account,
}

impl Document {
    /// Creates an empty document with room for `expected` bytes, if the shared limit allows that.
    pub(crate) fn new(expected: usize) -> Document {
        Document::of(&SHARED, expected)
    }

    fn of(account: &'static Account, expected: usize) -> Document {
        let mut document = Document { bytes: Vec::new(), counted: 0, account };
        // Without the room, the document grows as its bytes arrive.
        let _ = document.reserve(expected);
        document
    }

    /// Makes room for more bytes.
    fn reserve(&mut self, more: usize) -> io::Result<()> {
        let needed = self.bytes.len().saturating_add(more);
        if needed <= self.bytes.capacity() {
            return Ok(());
        }
        let counted = needed.saturating_sub(FREE);
        self.account.count(self.counted, counted)?;
        self.counted = counted.max(self.counted);
        self.bytes.reserve_exact(more);
        Ok(())
    }

    /// Appends all bytes of a reader. Reads the end of a document for which there is room without another allocation.
    ///
    /// # Errors
    /// Errors of the reader, and `OutOfMemory` beyond the shared limit.
    pub(crate) fn read_to_end(&mut self, mut reader: impl Read) -> io::Result<()> {
        loop {
            let room = self.bytes.capacity() - self.bytes.len();
            if room == 0 {
                self.reserve(self.bytes.len().max(STEP))?;
                continue;
            }
            if reader.by_ref().take(room as u64).read_to_end(&mut self.bytes)? < room {
                return Ok(());
            }
        }
    }

    /// Returns the document as text. Each invalid sequence is replaced by U+FFFD.
    ///
    /// # Errors
    /// `OutOfMemory` beyond the shared limit.
    pub(crate) fn into_text(mut self) -> io::Result<Text> {
        match String::from_utf8(std::mem::take(&mut self.bytes)) {
            Ok(text) => Ok(Text { text, _room: self }),
            Err(e) => {
                self.bytes = e.into_bytes();
                let mut valid = Document::of(self.account, self.bytes.len());
                for chunk in self.bytes.utf8_chunks() {
                    valid.write_all(chunk.valid().as_bytes())?;
                    if !chunk.invalid().is_empty() {
                        valid.write_all(char::REPLACEMENT_CHARACTER.encode_utf8(&mut [0; 4]).as_bytes())?;
                    }
                }
                valid.into_text()
            }
        }
    }
}

/// Appends bytes, with `OutOfMemory` beyond the shared limit.
impl Write for Document {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.bytes.capacity() - self.bytes.len() {
            self.reserve(bytes.len().max(self.bytes.len()).max(STEP))?;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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

impl Drop for Document {
    fn drop(&mut self) {
        self.account.used.fetch_sub(self.counted, Relaxed);
    }
}

/// The text of a document.
pub(crate) struct Text {
    text: String,
    /// Keeps the document's part of the shared limit.
    _room: Document,
}

impl std::ops::Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl Account {
    /// Counts a document that grows. An error means that the shared limit does not allow it.
    fn count(&self, before: usize, now: usize) -> io::Result<()> {
        let more = now.saturating_sub(before);
        let most = self.most.load(Relaxed);
        let grown = self.used.fetch_update(Relaxed, Relaxed, |used| {
            let sum = used.checked_add(more)?;
            (more == 0 || sum <= most).then_some(sum)
        });
        let full =
            |_| io::Error::new(io::ErrorKind::OutOfMemory, format!("all long documents need more than {most} bytes"));
        grown.map(drop).map_err(full)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// An account of its own, because other tests use the shared one.
    fn account(most: usize) -> &'static Account {
        Box::leak(Box::new(Account { used: AtomicUsize::new(0), most: AtomicUsize::new(most) }))
    }

    #[test]
    fn documents_share_a_limit_and_give_it_back() {
        let account = account(8 << 20);
        let read = |len: usize| {
            let mut document = Document::of(account, len + 1);
            document.read_to_end(io::repeat(b'x').take(len as u64)).map(|()| document)
        };
        // Short ones are not counted.
        let short: Vec<_> = (0..100).map(|_| read(FREE / 2).unwrap()).collect();
        assert_eq!(account.used.load(Relaxed), 0);
        let long = read(5 << 20).unwrap();
        assert_eq!(long.len(), 5 << 20);
        let refused = read(5 << 20).unwrap_err();
        assert_eq!(refused.to_string(), "all long documents need more than 8388608 bytes");
        assert!(account.used.load(Relaxed) <= 8 << 20);
        read(3 << 20).unwrap();
        drop((short, long));
        assert_eq!(account.used.load(Relaxed), 0);
        // The limit holds for a document that is alone, too.
        read(10 << 20).unwrap_err();
        assert_eq!(account.used.load(Relaxed), 0);
    }

    /// A server that promises much and sends nothing takes nothing away from others.
    #[test]
    fn room_for_an_expected_length_is_not_required() {
        let account = account(2 << 20);
        let first = Document::of(account, 2 << 20);
        let mut second = Document::of(account, 64 << 20);
        assert!(second.bytes.capacity() == 0 && first.bytes.capacity() >= 2 << 20);
        second.write_all(b"a 1\n").unwrap();
        assert_eq!(&*second, b"a 1\n");
    }

    #[test]
    fn the_end_of_an_expected_document_needs_no_more_room() {
        let text = "metric 1\n".repeat(1000);
        let mut document = Document::new(text.len() + 1);
        let room = document.bytes.capacity();
        document.read_to_end(text.as_bytes()).unwrap();
        assert_eq!((document.bytes.capacity(), &*document.into_text().unwrap()), (room, &*text));
    }

    #[test]
    fn text_is_as_the_standard_library_makes_it() {
        for bytes in [&b""[..], b"a", b"\xff", b"a\xf0\x90b\xe2\x82", "\u{fffd}\u{10ffff}".as_bytes(), b"\xed\xa0\x80x"]
        {
            let mut document = Document::new(0);
            document.write_all(bytes).unwrap();
            assert_eq!(&*document.into_text().unwrap(), String::from_utf8_lossy(bytes));
        }
    }
}
