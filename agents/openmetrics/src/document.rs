//! Documents in memory, which may have a limited length each and all together, and what they are decoded from: encodings
//! that servers apply, and character sets that they declare.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use encoding_rs::{CoderResult, Encoding, UTF_8};
use flate2::{Crc, Decompress, FlushDecompress, Status};
use hyper::HeaderMap;
use hyper::header::{AsHeaderName, CONTENT_ENCODING, CONTENT_TYPE};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
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

/// Value of the header `Accept-Encoding`.
pub(crate) const ENCODINGS: &str = "gzip, deflate, zstd";
/// Largest window of a zstd frame, in bytes: the largest one for HTTP (RFC 9659). The decoder keeps as much in memory.
const WINDOW: u64 = 8 << 20;
/// Most frames of a zstd body with a window of more than [`SMALL`] bytes. To clear a window takes time.
const FRAMES: usize = 64;
const SMALL: u64 = 1 << 20;
/// Most encodings of a body.
const MOST: usize = 5;
/// Bytes that are decoded between two checks of the deadline.
const UNPACKED: usize = 32 << 10;
/// Magic number at the beginning of a zstd frame.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The reason why there is no document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unreadable {
    Late,
    Other(String),
}

impl From<Full> for Unreadable {
    fn from(full: Full) -> Self {
        Unreadable::Other(full.of("the answer is "))
    }
}

fn invalid(reason: impl ToString) -> Unreadable {
    Unreadable::Other(reason.to_string())
}

/// How a body is to be read, as the headers say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coding {
    /// Names of encodings, the last one applied first.
    encodings: Vec<String>,
    pub(crate) charset: Option<&'static Encoding>,
}

impl Coding {
    pub(crate) fn of(headers: &HeaderMap) -> Coding {
        // A body that was encoded several times may have a line for each time.
        let encodings = all(headers, CONTENT_ENCODING);
        let names = encodings.split(',').rev().map(|name| name.trim().to_ascii_lowercase());
        let encodings = names.filter(|name| !name.is_empty() && name != "identity").collect();
        Coding { encodings, charset: charset(&all(headers, CONTENT_TYPE)) }
    }

    pub(crate) fn is_encoded(&self) -> bool {
        !self.encodings.is_empty()
    }
}

fn all(headers: &HeaderMap, name: impl AsHeaderName) -> String {
    let values = headers.get_all(name).iter();
    values.map(|value| String::from_utf8_lossy(value.as_bytes())).collect::<Vec<_>>().join(",")
}

/// Returns the character set of a header `Content-Type`. ASCII is read as UTF-8, and so is an unknown one.
fn charset(content_type: &str) -> Option<&'static Encoding> {
    let parameters = content_type.split([';', ',']).skip(1).filter_map(|parameter| parameter.split_once('='));
    let mut values = parameters.filter(|(name, _)| name.trim().eq_ignore_ascii_case("charset")).map(|(_, value)| value);
    let label = values.next()?.trim().trim_matches(['"', '\'']).to_ascii_lowercase().replace('_', "-");
    let label = match label.as_str() {
        "ascii" | "us-ascii" => return None,
        "latin-1" => "latin1",
        "latin9" | "latin-9" => "iso-8859-15",
        "macroman" | "mac-roman" => "macintosh",
        other => other,
    };
    Encoding::for_label(label.as_bytes())
}

/// Decodes a body until a deadline. No intermediate result may be longer than the body's limit.
///
/// # Errors
/// The reason why there is no document.
pub(crate) fn decoded(mut body: Document, coding: &Coding, deadline: Instant) -> Result<Document, Unreadable> {
    let check = || if Instant::now() >= deadline { Err(Unreadable::Late) } else { Ok(()) };
    decoded_while(&mut body, coding, &check)?;
    Ok(body)
}

/// Stops at an error of this function, which is called again and again.
type Check<'a> = &'a dyn Fn() -> Result<(), Unreadable>;

fn decoded_while(body: &mut Document, coding: &Coding, check: Check<'_>) -> Result<(), Unreadable> {
    if coding.encodings.len() > MOST {
        return Err(invalid(format!("more than {MOST} encodings")));
    }
    for name in &coding.encodings {
        // A server that has nothing to send may name an encoding, too.
        if body.is_empty() {
            break;
        }
        let mut out = body.like();
        match name.as_str() {
            "gzip" | "x-gzip" => gzip(body, &mut out, check)?,
            "deflate" => deflate(body, &mut out, check)?,
            "zstd" => zstd(body, &mut out, check)?,
            // Programs put character sets and formats there.
            _ if is_text(body, coding.charset.is_some()) => continue,
            "br" | "compress" | "x-compress" => return Err(invalid(format!("unknown encoding {name}"))),
            // Other names may be anything, such as a part of the request.
            _ => return Err(invalid("unknown encoding")),
        }
        *body = out;
    }
    Ok(())
}

/// Returns whether bytes are text that nothing has compressed: UTF-8, or in a character set that the server declares.
fn is_text(bytes: &[u8], has_charset: bool) -> bool {
    let is_control = |byte: &u8| *byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r');
    !bytes.iter().any(is_control) && (has_charset || std::str::from_utf8(bytes).is_ok())
}

/// Appends the contents of a deflate stream, with the head and the checksum of zlib or without, and passes them to `each`.
/// `packed` is then what follows the stream.
///
/// # Errors
/// The stream is not valid, or ends too early.
fn inflate(
    packed: &mut &[u8],
    is_zlib: bool,
    out: &mut Document,
    check: Check<'_>,
    mut each: impl FnMut(&[u8]),
) -> Result<(), Unreadable> {
    let (mut decoder, mut piece) = (Decompress::new(is_zlib), [0; UNPACKED]);
    loop {
        check()?;
        let (read, written) = (decoder.total_in(), decoder.total_out());
        let status = decoder.decompress(packed, &mut piece, FlushDecompress::None).map_err(invalid)?;
        let (read, written) = ((decoder.total_in() - read) as usize, (decoder.total_out() - written) as usize);
        let text = piece.get(..written).unwrap_or_default();
        out.extend(text)?;
        each(text);
        *packed = packed.get(read..).unwrap_or_default();
        match status {
            Status::StreamEnd => return Ok(()),
            _ if (read, written) == (0, 0) => return Err(invalid(EARLY)),
            _ => {}
        }
    }
}

/// Reason for a body that ends before its contents do.
const EARLY: &str = "the answer ends too early";

/// Decodes the members of a gzip body. As with python-requests, the last one may lack its trailer, and what follows it is
/// ignored.
fn gzip(mut packed: &[u8], out: &mut Document, check: Check<'_>) -> Result<(), Unreadable> {
    loop {
        packed = after_head(packed)?;
        let mut crc = Crc::new();
        inflate(&mut packed, false, out, check, |text| crc.update(text))?;
        let Some((trailer, rest)) = packed.split_first_chunk::<8>() else { return Ok(()) };
        if *trailer != [crc.sum().to_le_bytes(), crc.amount().to_le_bytes()].as_flattened() {
            return Err(invalid("the checksum of the gzip encoding is wrong"));
        }
        packed = rest;
        if !packed.starts_with(&GZIP) {
            return Ok(());
        }
    }
}

/// Beginning of a gzip member: its magic number, and deflate as its method.
const GZIP: [u8; 3] = [0x1f, 0x8b, 8];

/// Returns what follows the head of a gzip member (RFC 1952, 2.3).
fn after_head(member: &[u8]) -> Result<&[u8], Unreadable> {
    let Some(([_, _, _, flags, ..], mut rest)) = member.split_first_chunk::<10>().filter(|_| member.starts_with(&GZIP))
    else {
        let is_short = GZIP.starts_with(member.get(..3).unwrap_or(member));
        return Err(invalid(if is_short { EARLY } else { "not gzip, which the answer says that it is" }));
    };
    // Extra field, name, comment, and checksum of the head.
    for flag in [4, 8, 16, 2] {
        if flags & flag != 0 {
            let len = match flag {
                4 => rest.first_chunk().map(|len| 2 + usize::from(u16::from_le_bytes(*len))),
                2 => Some(2),
                _ => rest.iter().position(|byte| *byte == 0).map(|at| at + 1),
            };
            rest = len.and_then(|len| rest.get(len..)).ok_or_else(|| invalid(EARLY))?;
        }
    }
    Ok(rest)
}

/// Decodes a body with the head of zlib, or without. As with python-requests, the checksum of zlib may be missing.
fn deflate(packed: &[u8], out: &mut Document, check: Check<'_>) -> Result<(), Unreadable> {
    let is_zlib = matches!(packed, [first, second, ..]
        if first & 0x0f == 8 && (u32::from(*first) << 8 | u32::from(*second)) % 31 == 0);
    let mut contents = packed;
    match inflate(&mut contents, is_zlib, out, check, |_| {}) {
        Err(Unreadable::Other(reason)) if is_zlib && reason == EARLY => {
            *out = out.like();
            let mut contents = packed.get(2..).unwrap_or_default();
            inflate(&mut contents, false, out, check, |_| {})
        }
        done => done,
    }
}

/// Decodes the frames of a zstd body. They share a decoder, and thus its memory.
fn zstd(mut packed: &[u8], out: &mut Document, check: Check<'_>) -> Result<(), Unreadable> {
    let (mut decoder, mut large) = (FrameDecoder::new(), 0);
    loop {
        let needed = window(packed).unwrap_or(0);
        if needed > WINDOW {
            return Err(invalid(format!("zstd needs {needed} bytes of memory, {WINDOW} at most")));
        }
        large += usize::from(needed > SMALL);
        if large > FRAMES {
            return Err(invalid(format!("more than {FRAMES} zstd frames with large windows")));
        }
        decoder.reset(&mut packed).map_err(invalid)?;
        while !decoder.is_finished() {
            check()?;
            decoder.decode_blocks(&mut packed, BlockDecodingStrategy::UptoBlocks(1)).map_err(invalid)?;
            if let Some(content) = decoder.collect() {
                out.extend(&content)?;
            }
        }
        if packed.is_empty() {
            return Ok(());
        }
    }
}

/// Returns the bytes that the decoder of a zstd frame keeps in memory. `None` if no frame begins here.
///
/// A frame has either a window, or the length of its content, which is the window (RFC 8878, 3.1.1.1).
fn window(frame: &[u8]) -> Option<u64> {
    let (descriptor, rest) = frame.strip_prefix(&ZSTD)?.split_first()?;
    if descriptor & 0x20 == 0 {
        let window = *rest.first()?;
        let base = 1u64 << (10 + (window >> 3));
        return Some(base + base / 8 * u64::from(window & 7));
    }
    let dictionary = [0, 1, 2, 4].get(usize::from(descriptor & 3)).copied()?;
    let length = 1usize << (descriptor >> 6);
    let content = rest.get(dictionary..dictionary + length)?;
    let number = content.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    // Lengths of two bytes begin with 256.
    Some(if length == 2 { number + 256 } else { number })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::Cell;
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;
    use crate::runtime::Permits;

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

    const TEXT: &[u8] = b"a 1\n";

    fn document(bytes: &[u8], most: u64) -> Document {
        let mut document = Document::new(&Permits::new(1, 0, usize::MAX), most, 0);
        document.extend(bytes).unwrap();
        document
    }

    fn coding(encodings: &str, content_type: &str) -> Coding {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, encodings.parse().unwrap());
        headers.insert(CONTENT_TYPE, content_type.parse().unwrap());
        Coding::of(&headers)
    }

    /// Decodes a body with a check of the deadline.
    fn read_while(packed: &[u8], encodings: &str, most: u64, check: Check<'_>) -> Result<Vec<u8>, Unreadable> {
        let mut body = document(packed, most);
        decoded_while(&mut body, &coding(encodings, "text/plain"), check).map(|()| body.to_vec())
    }

    fn read(packed: &[u8], encodings: &str, most: u64) -> Result<Vec<u8>, String> {
        read_while(packed, encodings, most, &|| Ok(())).map_err(|e| match e {
            Unreadable::Late => "late".to_owned(),
            Unreadable::Other(reason) => reason,
        })
    }

    fn gzipped(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn encodings() {
        let (gzip, mut zlib) = (gzipped(TEXT), ZlibEncoder::new(Vec::new(), Compression::fast()));
        zlib.write_all(TEXT).unwrap();
        let zlib = zlib.finish().unwrap();
        let mut raw = DeflateEncoder::new(Vec::new(), Compression::fast());
        raw.write_all(&gzip).unwrap();
        let both = raw.finish().unwrap();
        let mut raw = DeflateEncoder::new(Vec::new(), Compression::fast());
        raw.write_all(TEXT).unwrap();
        let raw = raw.finish().unwrap();
        let with = |bytes: &[u8], more: &[u8]| [bytes, more].concat();
        for (encodings, packed) in [
            ("", TEXT.to_vec()),
            ("identity", TEXT.to_vec()),
            ("gzip", gzip.clone()),
            ("X-GZip", gzip.clone()),
            ("gzip", [gzipped(b"a "), gzipped(b"1\n")].concat()),
            ("gzip", with(&gzip, &[0; 100])),
            ("gzip", with(&gzip, b"garbage")),
            ("deflate", zlib.clone()),
            ("deflate", with(&zlib, &[0; 8])),
            ("deflate", raw.clone()),
            ("deflate", with(&raw, &[0; 8])),
            ("gzip, deflate", both),
            ("gzip, gzip", gzipped(&gzip)),
            ("gzip, identity", gzip.clone()),
            ("utf-8", TEXT.to_vec()),
            ("utf-8, gzip", gzip.clone()),
            ("none", TEXT.to_vec()),
            ("br", TEXT.to_vec()),
            ("zstd", compress_to_vec(TEXT, CompressionLevel::Fastest)),
        ] {
            assert_eq!(read(&packed, encodings, 1000).as_deref(), Ok(TEXT), "{encodings}: {packed:x?}");
        }
        assert_eq!(read(b"", "gzip", 1000).as_deref(), Ok(&b""[..]));
        // As with python-requests, a checksum may be missing, but not be wrong.
        for (encoding, packed, most) in [("gzip", &gzip, 8), ("deflate", &zlib, 4)] {
            for missing in 1..=most {
                let packed = &packed[..packed.len() - missing];
                assert_eq!(read(packed, encoding, 1000).as_deref(), Ok(TEXT), "{encoding} without {missing}");
            }
        }
        // A head with all parts.
        let head = [&[0x1f, 0x8b, 8, 30, 0, 0, 0, 0, 0, 3, 2, 0, b'e', b'e'][..], b"name\0comment\0\x01\x02"].concat();
        let packed = [&head[..], &gzip[10..]].concat();
        assert_eq!(read(&packed, "gzip", 1000).as_deref(), Ok(TEXT));
        for len in 1..head.len() {
            assert_eq!(read(&packed[..len], "gzip", 1000).unwrap_err(), "the answer ends too early", "{len}");
        }
        let mut wrong = gzip.clone();
        wrong[gzip.len() - 5] ^= 1;
        for (encodings, packed, reason) in [
            ("gzip", &gzip[..gzip.len() - 10], "the answer ends too early"),
            ("gzip", &gzip[..7], "the answer ends too early"),
            ("gzip", TEXT, "not gzip, which the answer says that it is"),
            ("gzip", &wrong, "the checksum of the gzip encoding is wrong"),
            ("deflate", &zlib[..zlib.len() - 6], "the answer ends too early"),
            ("br", b"\x1b\x02", "unknown encoding br"),
            ("s3cret", b"\x1b\x02", "unknown encoding"),
            ("gzip,gzip,gzip,gzip,gzip,gzip", &gzip, "more than 5 encodings"),
        ] {
            assert_eq!(read(packed, encodings, 1000).unwrap_err(), reason, "{encodings}");
        }
        for (most, bomb) in
            [(1000, gzipped(&[b' '; 1001])), (1000, compress_to_vec(&[b' '; 1001][..], CompressionLevel::Fastest))]
        {
            let encoding = if bomb.starts_with(&ZSTD) { "zstd" } else { "gzip" };
            assert_eq!(read(&bomb, encoding, most).unwrap_err(), "the answer is longer than 1000 bytes");
        }
    }

    #[test]
    fn character_sets_of_headers() {
        for (content_type, name) in [
            ("text/plain", None),
            ("text/plain; version=0.0.4;charset=ISO-8859-1", Some("windows-1252")),
            ("text/plain; Charset = \"latin_1\" ; x=y", Some("windows-1252")),
            ("text/plain; charset='utf-16'", Some("UTF-16LE")),
            ("text/plain; charset=us-ascii", None),
            ("text/plain; charset=klingon", None),
            ("charset=koi8-r", None),
        ] {
            assert_eq!(coding("", content_type).charset.map(Encoding::name), name, "{content_type}");
        }
        // An encoding that is none, over a character set that is declared.
        let latin = coding("iso-8859-1", "text/plain; charset=iso-8859-1");
        assert!(decoded_while(&mut document(b"\xfc 1\n", 100), &latin, &|| Ok(())).is_ok());
        assert!(read(b"\xfc 1\n", "iso-8859-1", 100).is_err());
    }

    /// A frame with a raw block of one byte, which is the last block. The head says how much memory there must be.
    fn frame(head: &[u8]) -> Vec<u8> {
        [&ZSTD, head, &[9, 0, 0, b'x']].concat()
    }

    /// Small frames, members and blocks take long in relation to their length. The deadline holds between them.
    #[test]
    fn very_many_small_parts() {
        const PARTS: usize = 1000;
        let members = gzipped(b"").repeat(PARTS);
        // Stored blocks without content, after the head of zlib.
        let deflate =
            [&[0x78, 0x01][..], &[0, 0, 0, 0xff, 0xff].repeat(100 * PARTS), &[1, 0, 0, 0xff, 0xff, 0, 0, 0, 1]];
        let blocks = [&ZSTD[..], &[0x00, 0x00], &[0; 3 * PARTS], &[1, 0, 0]];
        for (encoding, packed, length, least) in [
            ("zstd", frame(&[0x00, 0]).repeat(PARTS), PARTS, PARTS),
            ("zstd", blocks.concat(), 0, PARTS),
            ("gzip", members, 0, PARTS),
            ("deflate", deflate.concat(), 0, 1),
        ] {
            let checks = Cell::new(0);
            let count = || {
                checks.set(checks.get() + 1);
                Ok(())
            };
            assert_eq!(read_while(&packed, encoding, 64 << 20, &count).unwrap().len(), length, "{encoding}");
            assert!(checks.get() >= least, "{encoding}: {} checks for {} bytes", checks.get(), packed.len());
            assert_eq!(read_while(&packed, encoding, 64 << 20, &|| Err(Unreadable::Late)), Err(Unreadable::Late));
        }
    }

    #[test]
    fn frames_that_need_much_memory() {
        for (head, needed) in
            [(&[0x00, 13 << 3][..], 8 << 20), (&[0x00, 0], 1 << 10), (&[0x00, 12 << 3 | 7], 7_864_320)]
        {
            assert_eq!(window(&frame(head)), Some(needed));
            assert_eq!(read(&frame(head), "zstd", 100).unwrap(), b"x");
        }
        for (head, needed) in
            [(&[0x00, 13 << 3 | 1][..], 9_437_184u64), (&[0x00, 16 << 3], 64 << 20), (&[0x00, 31 << 3 | 7], 15 << 38)]
        {
            let reason = format!("zstd needs {needed} bytes of memory, {WINDOW} at most");
            assert_eq!(read(&frame(head), "zstd", 64 << 20).unwrap_err(), reason);
        }
        for (head, needed) in [
            (&[0x20, 1][..], 1),
            (&[0x60, 1, 0], 257),
            (&[0xa0, 0, 0, 1, 0], 65536),
            (&[0xe1, 0, 0, 0, 0, 0, 0, 0, 0, 1], 1 << 56),
        ] {
            assert_eq!(window(&frame(head)), Some(needed), "{head:?}");
        }
        assert_eq!((window(b""), window(&ZSTD), window(b"\x50\x2a\x4d\x18")), (None, None, None));
        let large = frame(&[0x00, 13 << 3]);
        assert_eq!(read(&large.repeat(FRAMES), "zstd", 1000).unwrap(), b"x".repeat(FRAMES));
        let reason = format!("more than {FRAMES} zstd frames with large windows");
        assert_eq!(read(&large.repeat(FRAMES + 1), "zstd", 10_000).unwrap_err(), reason);
    }

    #[test]
    fn a_body_of_several_frames() {
        let packed = |text: &str| compress_to_vec(text.repeat(1000).as_bytes(), CompressionLevel::Fastest);
        let both = [packed("a"), packed("b")].concat();
        assert_eq!(read(&both, "zstd", 2000).unwrap(), ["a", "b"].map(|text| text.repeat(1000)).concat().as_bytes());
        assert_eq!(read(&both, "zstd", 1999).unwrap_err(), "the answer is longer than 1999 bytes");
        assert!(read(&both[..both.len() - 3], "zstd", 5000).is_err());
        assert!(read(&[&both[..], b"x"].concat(), "zstd", 5000).is_err());
    }
}
