//! Slices of bytes as C's text functions see them.

/// Whether C's `isspace` holds in the C locale; unlike `is_ascii_whitespace`, for a vertical tab too.
pub(crate) const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Without leading white space.
pub(crate) fn trim_space_start(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().position(|b| !is_space(*b)).unwrap_or(bytes.len());
    bytes.get(start..).unwrap_or_default()
}

/// Without newlines at the end; other white space stays.
pub(crate) fn trim_newlines_end(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|b| *b != b'\n').map_or(0, |last| last + 1);
    bytes.get(..end).unwrap_or_default()
}
