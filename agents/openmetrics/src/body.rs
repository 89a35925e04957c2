//! Bodies of answers, which servers may compress.

use std::io::{self, Read};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use flate2::read::{MultiGzDecoder, ZlibDecoder};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::document::Document;

/// Largest window of a zstd frame, in bytes: the largest one for HTTP (RFC 9659). The decoder keeps as much in memory.
const WINDOW: u64 = 8 << 20;
/// Number of windows of [`WINDOW`] bytes that all zstd frames of a body may need together, in addition to the length of
/// the longest document. Servers send one frame, and tools that compress in parallel send one for several MiB.
const WINDOWS: u64 = 4;
/// Largest memory for a frame, in bytes, that any number of readers may use at a time.
const SMALL: u64 = 1 << 20;
/// Held while a body is decoded with a frame that needs more. Its packed bytes have all arrived, so that nobody waits for
/// a server.
static LARGE: Turn = Turn { is_taken: Mutex::new(false), given_back: Condvar::new() };
/// Time between two checks of the deadline by a thread that waits for its turn.
const PAUSE: Duration = Duration::from_millis(20);
/// Names of encodings that servers use, although the agent did not ask for most of them.
const REGISTERED: [&str; 8] = ["br", "compress", "deflate", "gzip", "identity", "x-compress", "x-gzip", "zstd"];
/// Magic number at the beginning of a zstd frame.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Length of a document, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) most: u64,
    /// Expected length of the document, in bytes.
    pub(crate) usual: usize,
}

/// Reads and uncompresses a body until a deadline. Neither the body nor the document may be longer than `limit`.
///
/// # Errors
/// `TimedOut` after the deadline. Other kinds for a body that is invalid or too long.
pub(crate) fn decoded(body: impl Read, encoding: &str, limit: Limit, deadline: Instant) -> io::Result<Document> {
    let check = || {
        let is_late = Instant::now() >= deadline;
        if is_late { Err(io::Error::new(io::ErrorKind::TimedOut, "no complete answer in time")) } else { Ok(()) }
    };
    decoded_while(body, encoding, limit, &check)
}

/// Stops at an error of this function, which is called again and again.
type Check<'a> = &'a dyn Fn() -> io::Result<()>;

/// Reader that checks the deadline before each reading, even if bytes have arrived. Few bytes may take long to
/// uncompress.
struct Timed<'a, R> {
    inner: R,
    check: Check<'a>,
}

impl<R: Read> Read for Timed<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (self.check)()?;
        self.inner.read(buf)
    }
}

fn decoded_while(body: impl Read, encoding: &str, limit: Limit, check: Check<'_>) -> io::Result<Document> {
    let Limit { most: limit, usual } = limit;
    let most = limit.saturating_add(1);
    let body = Timed { inner: body, check }.take(most);
    // Slightly more than usual, so that the end is found without another allocation.
    let mut document = Document::new(usual + usual / 16 + 64);
    match encoding {
        "" | "identity" => document.read_to_end(body)?,
        "gzip" | "x-gzip" => document.read_to_end(MultiGzDecoder::new(body).take(most))?,
        "deflate" => document.read_to_end(ZlibDecoder::new(body).take(most))?,
        "zstd" => {
            let mut packed = Document::new(0);
            packed.read_to_end(body)?;
            if packed.len() as u64 > limit {
                return Err(too_long(limit));
            }
            zstd(&packed, limit, &mut document, check)?;
        }
        other => {
            // Other names may be anything, such as a part of the request.
            let is_known = other.split(',').all(|name| REGISTERED.contains(&name.trim()));
            let name = if is_known { format!(" {other}") } else { String::new() };
            return Err(io::Error::new(io::ErrorKind::Unsupported, format!("unknown encoding{name}")));
        }
    };
    if document.len() as u64 > limit { Err(too_long(limit)) } else { Ok(document) }
}

fn too_long(limit: u64) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("the answer is longer than {limit} bytes"))
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Appends the content of zstd frames to `document`. The frames share a decoder, and thus its memory.
fn zstd(mut packed: &[u8], limit: u64, document: &mut Document, check: Check<'_>) -> io::Result<()> {
    let mut decoder = FrameDecoder::new();
    let (mut all, most_of_all) = (0_u64, limit.saturating_add(WINDOWS * WINDOW));
    let mut turn = None;
    loop {
        let (needed, most) = memory(packed, limit).unwrap_or((0, WINDOW));
        if needed > most {
            return Err(invalid(format!("zstd needs {needed} bytes of memory, {most} at most")));
        }
        all = all.saturating_add(needed);
        if all > most_of_all {
            return Err(invalid(format!("zstd frames need more than {most_of_all} bytes of memory together")));
        }
        if needed > SMALL && turn.is_none() {
            turn = Some(LARGE.wait(check)?);
        }
        decoder.reset(&mut packed).map_err(|e| invalid(e.to_string()))?;
        while !decoder.is_finished() {
            check()?;
            let one = BlockDecodingStrategy::UptoBlocks(1);
            decoder.decode_blocks(&mut packed, one).map_err(|e| invalid(e.to_string()))?;
            if (document.len() + decoder.can_collect()) as u64 > limit {
                return Err(too_long(limit));
            }
            decoder.collect_to_writer(&mut *document)?;
        }
        if packed.is_empty() {
            return Ok(());
        }
    }
}

/// Lets one thread at a time use much memory.
#[derive(Debug)]
struct Turn {
    is_taken: Mutex<bool>,
    given_back: Condvar,
}

/// The turn of a thread, until it is dropped.
struct Taken(&'static Turn);

impl Turn {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other thread has its turn.
    ///
    /// # Errors
    /// That of `check`.
    fn wait(&'static self, check: Check<'_>) -> io::Result<Taken> {
        let mut is_taken = self.lock();
        while *is_taken {
            check()?;
            is_taken = self.given_back.wait_timeout(is_taken, PAUSE).unwrap_or_else(PoisonError::into_inner).0;
        }
        *is_taken = true;
        Ok(Taken(self))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        *self.0.lock() = false;
        self.0.given_back.notify_one();
    }
}

/// Returns the bytes that the decoder of a zstd frame keeps in memory, and the most that are allowed. `None` if no frame
/// begins here.
///
/// A frame has either a window, or the length of its content, which is the window (RFC 8878, 3.1.1.1).
fn memory(frame: &[u8], limit: u64) -> Option<(u64, u64)> {
    let rest = frame.strip_prefix(&ZSTD)?;
    let (descriptor, rest) = rest.split_first()?;
    if descriptor & 0x20 == 0 {
        let window = *rest.first()?;
        let base = 1u64 << (10 + (window >> 3));
        return Some((base + base / 8 * u64::from(window & 7), WINDOW));
    }
    let dictionary = [0, 1, 2, 4].get(usize::from(descriptor & 3)).copied()?;
    let length = 1usize << (descriptor >> 6);
    let content = rest.get(dictionary..dictionary + length)?;
    let number = content.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    // Lengths of two bytes begin with 256.
    Some((if length == 2 { number + 256 } else { number }, limit))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::Cell;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn read(packed: &[u8], most: u64) -> Result<Vec<u8>, String> {
        let document = decoded_while(packed, "zstd", Limit { most, usual: 0 }, &|| Ok(()));
        document.map(|document| document.to_vec()).map_err(|e| e.to_string())
    }

    /// A frame with a raw block of one byte, which is the last block. The head says how much memory there must be.
    fn frame(head: &[u8]) -> Vec<u8> {
        [&ZSTD, head, &[9, 0, 0, b'x']].concat()
    }

    /// Decodes a body until the deadline is checked for the given time. Returns the number of checks.
    fn late_at(packed: &[u8], encoding: &str, at: usize) -> (usize, io::Result<Document>) {
        let checks = Cell::new(0);
        let check = || {
            checks.set(checks.get() + 1);
            if checks.get() == at { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
        };
        let done = decoded_while(packed, encoding, Limit { most: 64 << 20, usual: 0 }, &check);
        (checks.get(), done)
    }

    /// Small frames, members and blocks take long in relation to their length. The deadline holds between them.
    #[test]
    fn very_many_small_parts() {
        const PARTS: usize = 100_000;
        let member = GzEncoder::new(Vec::new(), Compression::fast()).finish().unwrap();
        // Stored blocks without content, after the head of zlib.
        let deflate = [&[0x78, 0x01][..], &[0, 0, 0, 0xff, 0xff].repeat(PARTS), &[1, 0, 0, 0xff, 0xff, 0, 0, 0, 1]];
        let blocks = [&ZSTD[..], &[0x00, 0x00], &[0; 3 * PARTS], &[1, 0, 0]];
        for (encoding, packed, length, every) in [
            ("zstd", frame(&[0x00, 0]).repeat(PARTS / 4), PARTS / 4, 10),
            ("zstd", blocks.concat(), 0, 3),
            ("gzip", member.repeat(PARTS), 0, 32 << 10),
            ("deflate", deflate.concat(), 0, 32 << 10),
        ] {
            let (checks, done) = late_at(&packed, encoding, 0);
            assert_eq!(done.unwrap().len(), length, "{encoding}");
            assert!(checks > packed.len() / every, "{encoding}: {checks} checks for {} bytes", packed.len());
            let (stopped, done) = late_at(&packed, encoding, checks / 2);
            assert_eq!((stopped, done.unwrap_err().kind()), (checks / 2, io::ErrorKind::TimedOut), "{encoding}");
        }
    }

    #[test]
    fn many_frames_with_large_windows() {
        let largest = frame(&[0x00, 13 << 3]);
        let windows = usize::try_from(WINDOWS).unwrap();
        for (limit, many) in [(100, windows + 1), (WINDOW - 1, windows + 1), (WINDOW - 1, 100_000)] {
            assert_eq!(read(&largest.repeat(windows), limit).unwrap(), b"x".repeat(windows));
            let reason = format!("zstd frames need more than {} bytes of memory together", limit + WINDOWS * WINDOW);
            assert_eq!(read(&largest.repeat(many), limit).unwrap_err(), reason);
        }
        // These need no more than the document that they contain.
        assert_eq!(read(&frame(&[0x20, 1]).repeat(1000), 10_000).unwrap(), b"x".repeat(1000));
    }

    /// A thread that waits for others to decode large frames does not wait longer than its deadline.
    #[test]
    fn waiting_for_a_turn_ends() {
        static OWN: Turn = Turn { is_taken: Mutex::new(false), given_back: Condvar::new() };
        let first = OWN.wait(&|| Ok(())).unwrap();
        let (checks, late) = (Cell::new(0), io::ErrorKind::TimedOut);
        let check = || {
            checks.set(checks.get() + 1);
            if checks.get() == 3 { Err(late.into()) } else { Ok(()) }
        };
        assert_eq!(OWN.wait(&check).map(drop).unwrap_err().kind(), late);
        let second = std::thread::spawn(|| OWN.wait(&|| Ok(())).map(drop));
        drop(first);
        second.join().unwrap().unwrap();
        OWN.wait(&|| Err(late.into())).unwrap();
    }

    #[test]
    fn a_body_of_several_frames() {
        let packed = |text: &str| compress_to_vec(text.repeat(1000).as_bytes(), CompressionLevel::Fastest);
        let both = [packed("a"), packed("b")].concat();
        for limit in [2000, 5000] {
            assert_eq!(read(&both, limit).unwrap(), ["a", "b"].map(|text| text.repeat(1000)).concat().as_bytes());
        }
        for limit in [0, 10, 999, 1000, 1999] {
            assert_eq!(read(&both, limit).unwrap_err(), format!("the answer is longer than {limit} bytes"));
        }
        assert!(read(&both[..both.len() - 3], 5000).is_err());
        assert!(read(b"", 5000).is_err() && read(&[&both[..], b"x"].concat(), 5000).is_err());
    }

    #[test]
    fn frames_that_need_much_memory() {
        for (head, needed) in
            [(&[0x00, 13 << 3][..], 8 << 20), (&[0x00, 0], 1 << 10), (&[0x00, 12 << 3 | 7], 7_864_320)]
        {
            assert_eq!(memory(&frame(head), 5), Some((needed, WINDOW)));
            assert_eq!(read(&frame(head), 100).unwrap(), b"x");
        }
        for (head, needed) in
            [(&[0x00, 13 << 3 | 1][..], 9_437_184u64), (&[0x00, 16 << 3], 64 << 20), (&[0x00, 31 << 3 | 7], 15 << 38)]
        {
            let reason = format!("zstd needs {needed} bytes of memory, {WINDOW} at most");
            assert_eq!(read(&frame(head), 64 << 20).unwrap_err(), reason);
        }
        for (head, needed) in [
            (&[0x20, 1][..], 1),
            (&[0x60, 1, 0], 257),
            (&[0xa0, 0, 0, 1, 0], 65536),
            (&[0xe1, 0, 0, 0, 0, 0, 0, 0, 0, 1], 1 << 56),
        ] {
            assert_eq!(memory(&frame(head), 64), Some((needed, 64)), "{head:?}");
        }
        assert_eq!(read(&frame(&[0x20, 1]), 100).unwrap(), b"x");
        assert_eq!(read(&frame(&[0x60, 1, 0]), 100).unwrap_err(), "zstd needs 257 bytes of memory, 100 at most");
        assert_eq!((memory(b"", 1), memory(&ZSTD, 1), memory(b"\x50\x2a\x4d\x18", 1)), (None, None, None));
    }
}
