//! Output: standard output through a buffer.

use std::io::{self, Write};

use pmapi::escape::Output;
use pmapi::{Domain, PmId};

/// Bytes after which the buffer is written.
const FULL: usize = 1 << 16;
/// Bytes after which the buffer is written in the middle of a value set.
pub(crate) const LARGE: usize = 1 << 20;

/// Buffered standard output.
pub(crate) struct Out {
    pub(crate) text: Vec<u8>,
    /// Number of times that the buffer was written.
    pub(crate) written: u64,
    to: Output<io::StdoutLock<'static>>,
}

impl Out {
    pub(crate) fn new() -> Out {
        Out { text: Vec::with_capacity(2 * FULL), written: 0, to: Output::to(io::stdout().lock()) }
    }

    /// Writes the buffer when it is full.
    #[inline]
    pub(crate) fn pass(&mut self) -> io::Result<()> {
        if self.text.len() >= FULL { self.flush() } else { Ok(()) }
    }

    /// Writes the buffer when it is very large. Several values with long names of instances must not need much memory.
    #[inline]
    pub(crate) fn pass_large(&mut self) -> io::Result<()> {
        if self.text.len() >= LARGE { self.flush() } else { Ok(()) }
    }

    /// Writes the buffer.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.written += 1;
        self.to.write_all(&self.text)?;
        self.text.clear();
        self.to.flush()
    }
}

/// Appends a decimal number; several times as fast as `write!`.
#[inline]
pub(crate) fn integer(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Smallest number of nine digits.
const HUNDRED_MILLION: u64 = 100_000_000;

/// Returns the eight decimal digits of a number below [`HUNDRED_MILLION`], the first one in the lowest byte. Splits all
/// groups of digits at once, so that nothing depends on the length of the number.
#[inline(always)]
fn eight_digits(number: u32) -> u64 {
    let (high, low) = (u64::from(number / 10_000), u64::from(number % 10_000));
    let fours = high | low << 32;
    // Divisions by 100 and 10, by multiplication: exact for these ranges.
    let hundreds = (fours * 5243) >> 19 & 0x0000_007f_0000_007f;
    let twos = hundreds | (fours - hundreds * 100) << 16;
    let tens = (twos * 103) >> 10 & 0x000f_000f_000f_000f;
    tens | (twos - tens * 10) << 8
}

/// The digit 0, and a newline, in each byte.
const ZEROS: u64 = 0x3030_3030_3030_3030;
const NEWLINES: u64 = 0x0a0a_0a0a_0a0a_0a0a;

/// Bytes of a text that are copied at once: a copy of fixed length takes a few instructions.
pub(crate) const PIECE: usize = 64;

/// Text that can be copied in pieces.
#[derive(Clone, Copy)]
pub(crate) struct Text<'t> {
    /// The text, and then at least [`PIECE`] bytes. Without them it is copied as slowly as any slice.
    bytes: &'t [u8],
    len: usize,
}

impl<'t> Text<'t> {
    /// Creates a text of the first `len` bytes of a slice, after which at least [`PIECE`] others should follow.
    #[inline]
    pub(crate) fn new(bytes: &'t [u8], len: usize) -> Text<'t> {
        Text { bytes, len }
    }

    /// Appends the text.
    #[inline(always)]
    pub(crate) fn append_to(self, out: &mut Vec<u8>) {
        match self.bytes.first_chunk::<PIECE>() {
            Some(piece) if self.len <= PIECE => {
                let end = out.len() + self.len;
                out.extend_from_slice(piece);
                out.truncate(end);
            }
            _ => out.extend_from_slice(self.bytes.get(..self.len).unwrap_or_default()),
        }
    }
}

/// Returns up to eight decimal digits without leading zeros, then newlines, and the number of digits. The digits are
/// those of [`eight_digits`].
#[inline(always)]
fn digits_line(digits: u64, leading: u32) -> ([u8; 16], usize) {
    let shown = (digits | ZEROS) >> leading | NEWLINES.checked_shl(64 - leading).unwrap_or_default();
    let line = u128::from(shown) | u128::from(NEWLINES) << 64;
    (line.to_le_bytes(), 8 - leading as usize / 8)
}

/// Returns the number of bits before the first digit that counts. The last digit always does.
#[inline(always)]
fn leading(digits: u64) -> u32 {
    digits.trailing_zeros().min(63) & !7
}

/// Appends a decimal number and a newline, in most cases without a branch that depends on its length.
#[inline(always)]
pub(crate) fn number_line(out: &mut Vec<u8>, (magnitude, is_negative): (u64, bool)) {
    if is_negative {
        out.push(b'-');
    }
    if magnitude < 10 {
        return out.extend_from_slice(&[b'0' + magnitude as u8, b'\n']);
    }
    if magnitude >= HUNDRED_MILLION {
        return long_number_line(out, magnitude);
    }
    let digits = eight_digits(magnitude as u32);
    let (line, len) = digits_line(digits, leading(digits));
    let end = out.len() + len + 1;
    out.extend_from_slice(&line);
    out.truncate(end);
}

/// Appends a number of more than eight digits, and a newline.
#[inline(never)]
fn long_number_line(out: &mut Vec<u8>, magnitude: u64) {
    let (high, low) = (magnitude / HUNDRED_MILLION, magnitude % HUNDRED_MILLION);
    if high < HUNDRED_MILLION {
        let digits = eight_digits(high as u32);
        let (line, len) = digits_line(digits, leading(digits));
        let end = out.len() + len;
        out.extend_from_slice(&line);
        out.truncate(end);
    } else {
        integer(out, high);
    }
    let (line, len) = digits_line(eight_digits(low as u32), 0);
    let end = out.len() + len + 1;
    out.extend_from_slice(&line);
    out.truncate(end);
}

/// Appends the identifier of a metric: `253.0.1`.
pub(crate) fn identifier(out: &mut Vec<u8>, pmid: PmId) {
    if pmid.domain() == Domain::DYNAMIC {
        // Has another form for some metrics.
        return put!(*out, "{pmid}");
    }
    integer(out, pmid.domain().get());
    for part in [pmid.item().cluster(), pmid.item().item()] {
        out.push(b'.');
        integer(out, part);
    }
}

/// Appends a decimal number with at least `width` digits, at most 9.
pub(crate) fn padded(out: &mut Vec<u8>, number: u32, width: usize) {
    let mut buffer = itoa::Buffer::new();
    let text = buffer.format(number).as_bytes();
    out.extend_from_slice(b"000000000".get(..width.saturating_sub(text.len())).unwrap_or_default());
    out.extend_from_slice(text);
}

/// Appends formatted text to a vector, which does not fail.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {
        _ = std::io::Write::write_fmt(&mut $out, format_args!($($arg)*))
    };
}
pub(crate) use put;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let text: Vec<u8> = (0..=255).collect();
        for len in [0, 1, PIECE - 1, PIECE, PIECE + 1, 150, 192] {
            for bytes in [text.as_slice(), text.get(..len).unwrap()] {
                let mut out = b"x".to_vec();
                Text::new(bytes, len).append_to(&mut out);
                assert_eq!(out.get(1..), text.get(..len));
            }
        }
    }

    #[test]
    fn lines_of_numbers() {
        let powers = (0..20).map(|digits| 10_u64.pow(digits));
        let near = powers.flat_map(|power| [power - 1, power, power + 1, power / 4 * 7, power / 100 * 99]);
        for number in near.chain([65_535, 4_294_967_295, u64::MAX / 10, u64::MAX]).chain(0..20_000) {
            for is_negative in [false, true] {
                let mut out = b"x".to_vec();
                number_line(&mut out, (number, is_negative));
                let sign = if is_negative { "-" } else { "" };
                assert_eq!(String::from_utf8(out).unwrap(), format!("x{sign}{number}\n"));
            }
        }
    }
}
