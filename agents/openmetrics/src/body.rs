//! Bodies of answers: encodings that servers apply, and character sets that they declare.

use std::io::{self, Read};
use std::time::Instant;

use encoding_rs::Encoding;
use flate2::bufread::{DeflateDecoder, GzDecoder, ZlibDecoder};
use hyper::HeaderMap;
use hyper::header::{AsHeaderName, CONTENT_ENCODING, CONTENT_TYPE};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::document::{Document, Full};

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
const PIECE: usize = 32 << 10;
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
            _ if is_text(body) => continue,
            "br" | "compress" | "x-compress" => return Err(invalid(format!("unknown encoding {name}"))),
            // Other names may be anything, such as a part of the request.
            _ => return Err(invalid("unknown encoding")),
        }
        *body = out;
    }
    Ok(())
}

/// Returns whether bytes are text that nothing has compressed.
fn is_text(bytes: &[u8]) -> bool {
    let has_control = |text: &str| text.chars().any(|c| c.is_control() && !matches!(c, '\t' | '\n' | '\r'));
    std::str::from_utf8(bytes).is_ok_and(|text| !has_control(text))
}

/// Appends all that a decoder returns.
fn read(mut decoder: impl Read, out: &mut Document, check: Check<'_>) -> Result<(), Unreadable> {
    let mut piece = [0; PIECE];
    loop {
        check()?;
        match decoder.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(len) => out.extend(piece.get(..len).unwrap_or_default())?,
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(invalid("the answer ends too early")),
            Err(e) => return Err(invalid(e)),
        }
    }
}

/// Decodes the members of a gzip body. What follows the last one is ignored, as python-requests does.
fn gzip(mut packed: &[u8], out: &mut Document, check: Check<'_>) -> Result<(), Unreadable> {
    loop {
        read(GzDecoder::new(&mut packed), out, check)?;
        if !packed.starts_with(&[0x1f, 0x8b]) {
            return Ok(());
        }
    }
}

/// Decodes a body with the head of zlib, or without.
fn deflate(packed: &[u8], out: &mut Document, check: Check<'_>) -> Result<(), Unreadable> {
    let is_zlib = matches!(packed, [first, second, ..]
        if first & 0x0f == 8 && (u32::from(*first) << 8 | u32::from(*second)) % 31 == 0);
    if is_zlib { read(ZlibDecoder::new(packed), out, check) } else { read(DeflateDecoder::new(packed), out, check) }
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
