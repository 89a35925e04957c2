//! White space: that of Unicode, and the ASCII separators 0x1C to 0x1F, as in Python's `str.isspace`.

/// Returns whether a character is white space.
pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\x1c'..='\x1f')
}

/// Returns whether an ASCII byte is white space.
#[inline]
const fn is_ascii_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r' | 0x1c..=0x1f)
}

/// Returns the length in bytes of the white space character at a byte offset, or 0 for any other character. The offset
/// must be at a character boundary.
#[inline]
pub(crate) fn at(text: &str, offset: usize) -> usize {
    match text.as_bytes().get(offset) {
        Some(&byte) if byte < 0x80 => usize::from(is_ascii_space(byte)),
        Some(_) => wide_at(text, offset),
        None => 0,
    }
}

#[cold]
fn wide_at(text: &str, offset: usize) -> usize {
    let first = text.get(offset..).and_then(|rest| rest.chars().next());
    first.filter(|c| is_space(*c)).map_or(0, char::len_utf8)
}

/// Returns the offset of the first character from `offset` on that is not white space, or the length of the text.
#[inline]
pub(crate) fn skip(text: &str, mut offset: usize) -> usize {
    loop {
        match at(text, offset) {
            0 => return offset,
            len => offset += len,
        }
    }
}

#[inline]
pub(crate) fn trim_start(text: &str) -> &str {
    match text.as_bytes().first() {
        Some(&byte) if byte < 0x80 && !is_ascii_space(byte) => text,
        _ => text.trim_start_matches(is_space),
    }
}

#[inline]
pub(crate) fn trim(text: &str) -> &str {
    let text = trim_start(text);
    match text.as_bytes().last() {
        Some(&byte) if byte < 0x80 && !is_ascii_space(byte) => text,
        _ => text.trim_end_matches(is_space),
    }
}
