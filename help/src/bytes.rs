//! Functions on byte strings that match those of C.

// Unlike `is_ascii_whitespace`, this accepts the vertical tab.
pub(crate) use pmapi::cnum::is_space;

/// Returns `bytes` without leading white space.
pub(crate) fn trim_space_start(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().position(|b| !is_space(*b)).unwrap_or(bytes.len());
    bytes.get(start..).unwrap_or_default()
}

/// Returns `bytes` without newlines at the end. Other white space stays.
pub(crate) fn trim_newlines_end(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|b| *b != b'\n').map_or(0, |last| last + 1);
    bytes.get(..end).unwrap_or_default()
}
