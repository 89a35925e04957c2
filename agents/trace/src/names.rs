//! Exported names of tags: clients may send any bytes, which must not act on a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::str;

use pcp_base::escape::is_control;

/// Returns the name under which a tag is exported: its text, with some bytes escaped as `\xHH`.
///
/// These are bytes that are not UTF-8, and characters that act on a terminal: control characters, changes of direction,
/// and characters without width. Different tags have different names: a backslash that begins such a sequence in the
/// tag is escaped as `\x5c`.
pub(crate) fn shown(tag: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(tag) {
        Ok(text) if is_fit(text) => text.into(),
        _ => escaped(tag, is_fit_char).into(),
    }
}

/// Returns a text of several lines, with bytes escaped as by [`shown`], except newlines and tabs.
pub(crate) fn shown_lines(text: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(text) {
        Ok(text) if text.char_indices().all(|(at, c)| is_in_lines(c, &text[at..])) => text.into(),
        _ => escaped(text, is_in_lines).into(),
    }
}

fn is_fit(text: &str) -> bool {
    // The fast path: most tags are printable ASCII.
    text.as_bytes().iter().all(|byte| matches!(byte, b' '..=b'[' | b']'..=b'~'))
        || text.char_indices().all(|(at, c)| is_fit_char(c, &text[at..]))
}

fn is_in_lines(c: char, rest: &str) -> bool {
    matches!(c, '\n' | '\t') || is_fit_char(c, rest)
}

/// Returns whether the character `c`, with which `rest` begins, is exported without escaping.
fn is_fit_char(c: char, rest: &str) -> bool {
    match c {
        '\\' => !begins_sequence(rest.as_bytes()),
        _ => !is_control(c),
    }
}

fn begins_sequence(rest: &[u8]) -> bool {
    matches!(rest, [b'\\', b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
}

fn escaped(tag: &[u8], is_fit: impl Fn(char, &str) -> bool) -> String {
    let mut name = String::with_capacity(4 * tag.len());
    let escape = |name: &mut String, bytes: &[u8]| bytes.iter().for_each(|byte| _ = write!(name, "\\x{byte:02x}"));
    for chunk in tag.utf8_chunks() {
        for (at, c) in chunk.valid().char_indices() {
            if is_fit(c, &chunk.valid()[at..]) {
                name.push(c);
            } else {
                escape(&mut name, c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        escape(&mut name, chunk.invalid());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_escaped() {
        for (tag, name) in [
            (&b"third sleep"[..], "third sleep"),
            ("größer\u{fffd}".as_bytes(), "größer\u{fffd}"),
            (b"C:\\temp\\new", "C:\\temp\\new"),
            (b"a\nb\x1b[2J\x7f", "a\\x0ab\\x1b[2J\\x7f"),
            ("\u{9b}m".as_bytes(), "\\xc2\\x9bm"),
            ("\u{202e}x".as_bytes(), "\\xe2\\x80\\xaex"),
            (b"a\xff\xfe", "a\\xff\\xfe"),
            (b"a\\xff", "a\\x5cxff"),
            (b"\\\x01", "\\\\x01"),
            (b"\\x", "\\x"),
        ] {
            assert_eq!(shown(tag), name);
        }
    }

    #[test]
    fn texts_keep_their_lines() {
        assert_eq!(shown_lines(b"a\n\tb\x1b[0m\r"), "a\n\tb\\x1b[0m\\x0d");
    }

    #[test]
    fn different_tags_have_different_names() {
        let parts: [&[u8]; 8] = [b"\\", b"x", b"f", b"5c", b"\xff", b"\x01", b"\\xff", "\u{85}".as_bytes()];
        let mut names = std::collections::HashMap::new();
        for number in 0..8_usize.pow(4) {
            let tag = [0, 1, 2, 3].map(|at| parts[number / 8_usize.pow(at) % 8]).concat();
            if let Some(other) = names.insert(shown(&tag).into_owned(), tag.clone()) {
                assert_eq!(other, tag);
            }
        }
    }
}
