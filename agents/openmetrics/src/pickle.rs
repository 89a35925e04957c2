//! The files in which PCP's agent keeps its tables of names: a list of strings, and whether instance names begin with
//! their number, as two Python pickles of protocol 0.
//!
//! The reader accepts only what Python writes for such a list and such a flag: no object is built, nothing is executed,
//! and any other opcode is an error. The writer writes the same bytes as Python, so that PCP's agent reads the file.

use std::fmt::Write as _;

use thiserror::Error;

/// Most names of a table. Each takes much more memory than in the file.
const MOST: usize = 4 << 20;

/// Names by their numbers, and whether instance names begin with their number.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Names {
    pub(crate) names: Vec<String>,
    pub(crate) prefixed: bool,
}

/// Error for a file that is not a table of names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("byte {offset}: {reason}")]
pub(crate) struct Malformed {
    offset: usize,
    reason: &'static str,
}

/// Reads a table.
pub(crate) fn read(bytes: &[u8]) -> Result<Names, Malformed> {
    let mut file = File { bytes, offset: 0 };
    let names = file.list()?;
    // Older versions have no flag.
    let prefixed = if file.offset == bytes.len() { false } else { file.flag()? };
    Ok(Names { names, prefixed })
}

/// Encodes a table of names, and whether instance names begin with their number.
pub(crate) fn write<'a>(names: impl Iterator<Item = &'a str>, prefixed: bool) -> Vec<u8> {
    let mut out = b"(lp0\n".to_vec();
    let mut memo = String::new();
    for (number, name) in names.enumerate() {
        out.push(b'V');
        for c in name.chars() {
            escape(&mut out, c);
        }
        memo.clear();
        let _ = write!(memo, "\np{}\na", number + 1);
        out.extend_from_slice(memo.as_bytes());
    }
    out.extend_from_slice(if prefixed { b".I01\n." } else { b".I00\n." });
    out
}

/// Appends a character as Python's codec `raw-unicode-escape` does. Line breaks and backslashes are escaped too.
fn escape(out: &mut Vec<u8>, c: char) {
    match (c, u8::try_from(c)) {
        ('\\' | '\n' | '\0' | '\r' | '\x1a', _) => out.extend(format!("\\u{:04x}", u32::from(c)).bytes()),
        (_, Ok(byte)) => out.push(byte),
        _ if u32::from(c) > 0xffff => out.extend(format!("\\U{:08x}", u32::from(c)).bytes()),
        _ => out.extend(format!("\\u{:04x}", u32::from(c)).bytes()),
    }
}

struct File<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> File<'a> {
    fn fail<T>(&self, reason: &'static str) -> Result<T, Malformed> {
        Err(Malformed { offset: self.offset, reason })
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.offset).copied()
    }

    fn expect(&mut self, byte: u8, reason: &'static str) -> Result<(), Malformed> {
        if self.peek() != Some(byte) {
            return self.fail(reason);
        }
        self.offset += 1;
        Ok(())
    }

    /// Returns the rest of the line, and moves to the next line.
    fn line(&mut self) -> Result<&'a [u8], Malformed> {
        let rest = self.bytes.get(self.offset..).unwrap_or_default();
        let Some(len) = rest.iter().position(|byte| *byte == b'\n') else { return self.fail("a line has no end") };
        self.offset += len + 1;
        Ok(rest.get(..len).unwrap_or_default())
    }

    /// Skips the number under which an unpickler would remember the last object.
    fn memo(&mut self) -> Result<(), Malformed> {
        if self.peek() == Some(b'p') {
            self.offset += 1;
            self.line()?;
        }
        Ok(())
    }

    fn list(&mut self) -> Result<Vec<String>, Malformed> {
        self.expect(b'(', "no list")?;
        self.expect(b'l', "no list")?;
        self.memo()?;
        let mut names = Vec::new();
        while self.peek() == Some(b'V') {
            if names.len() >= MOST {
                return self.fail("too many names");
            }
            self.offset += 1;
            names.push(unescape(self.line()?));
            self.memo()?;
            self.expect(b'a', "a name is not part of the list")?;
        }
        self.expect(b'.', "something else than a name is in the list")?;
        Ok(names)
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        self.expect(b'I', "the flag is not a boolean")?;
        match self.line()? {
            b"00" => Ok(false),
            b"01" => Ok(true),
            _ => self.fail("the flag is not a boolean"),
        }
    }
}

/// Decodes `raw-unicode-escape`. Invalid characters become U+FFFD.
fn unescape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let len = match (byte, after.first()) {
            (b'\\', Some(b'u')) => 4,
            (b'\\', Some(b'U')) => 8,
            _ => {
                text.push(char::from(byte));
                continue;
            }
        };
        let digits = after.get(1..=len).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        text.push(code.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER));
        rest = after.get(len + 1..).unwrap_or_default();
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_table_of_pcps_agent() {
        let bytes = b"(lp0\nVcontrol\np1\naVdir.a\np2\na.I00\n.";
        let names = read(bytes).map(|table| (table.names, table.prefixed));
        assert_eq!(names, Ok((vec!["control".to_owned(), "dir.a".to_owned()], false)));
        assert_eq!(write(["control", "dir.a"].into_iter(), false), bytes);
        // Output of Python 3.11 for ['a\\b\n', 'é漢😀'] and True.
        let bytes = b"(lp0\nVa\\u005cb\\u000a\np1\naV\xe9\\u6f22\\U0001f600\np2\na.I01\n.";
        assert_eq!(read(bytes), Ok(Names { names: vec!["a\\b\n".to_owned(), "é漢😀".to_owned()], prefixed: true }));
        assert_eq!(write(["a\\b\n", "é漢😀"].into_iter(), true), bytes);
    }

    #[test]
    fn other_pickles_are_refused() {
        let attack = b"cos\nsystem\n(S'touch /tmp/x'\ntR.";
        for (bytes, offset) in [
            (&attack[..], 0),
            (b"(lp0\ncos\nsystem\n(Vtrue\ntRa.", 5),
            (b"(lp0\nVa\np1\na.cos\nsystem\n(Vtrue\ntR.", 13),
            (b"(lp0\nVa\np1\n", 11),
            (b"(lp0\nVa", 6),
            (b"\x80\x04]\x94.", 0),
            (b"", 0),
        ] {
            assert_eq!(read(bytes).map_err(|e| e.offset), Err(offset), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn very_many_names_are_refused() {
        let file = |names: usize| [b"(lp0\n", &b"V\na".repeat(names)[..], b".I00\n."].concat();
        assert_eq!(read(&file(MOST)).unwrap().names.len(), MOST);
        assert_eq!(read(&file(MOST + 1)).unwrap_err().to_string(), format!("byte {}: too many names", 5 + 3 * MOST));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(names in proptest::collection::vec(any::<String>(), 0..20), prefixed: bool) {
            let bytes = write(names.iter().map(String::as_str), prefixed);
            prop_assert_eq!(read(&bytes), Ok(Names { names, prefixed }));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = read(&bytes);
        }
    }
}
