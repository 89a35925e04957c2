//! Parsing of JSON text into a label set: compact text and index.

use serde::de::IgnoredAny;

use crate::escape::escaped_json;

use super::{Entry, LabelError, LabelFlags, LabelSet, MAX_JSON, MAX_LABELS, MAX_NAME, RawLabel};

pub(super) fn parse(text: &str, flags: LabelFlags) -> Result<LabelSet, LabelError> {
    if text.is_empty() {
        return Ok(LabelSet::new());
    }
    if text.len() > MAX_JSON {
        return Err(LabelError::TooLong);
    }
    // From here on the text is valid JSON, nested no deeper than serde_json allows.
    serde_json::from_str::<IgnoredAny>(text)?;
    if !text.trim_start().starts_with('{') {
        return Err(LabelError::NotAnObject);
    }
    let mut scan = Scan { rest: text, out: String::with_capacity(text.len()), index: Vec::new(), flags };
    scan.object("")?;
    let Scan { out, mut index, .. } = scan;
    if index.is_empty() {
        return Ok(LabelSet::new());
    }
    index.sort_by(|a: &Entry, b| a.name(&out).cmp(b.name(&out)));
    if let Some((a, _)) = index.iter().zip(index.iter().skip(1)).find(|(a, b)| a.name(&out) == b.name(&out)) {
        return Err(LabelError::Duplicate(a.name(&out).to_owned()));
    }
    Ok(LabelSet { json: out, index })
}

/// Serializes labels. A string is interpreted as their JSON text. Flattens nested objects, because the wire encoding
/// has only the last component of their names. Escapes characters that act on a terminal.
pub(super) fn from(labels: impl serde::Serialize, flags: LabelFlags) -> Result<LabelSet, LabelError> {
    let mut text = serde_json::to_string(&labels)?;
    if text.starts_with('"') {
        text = serde_json::from_str(&text)?;
    }
    let set = parse(&escaped_json(&text), flags)?;
    if set.index.iter().any(|entry| entry.path.is_some()) { LabelSet::new().merged(&set) } else { Ok(set) }
}

/// Checks for a letter followed by letters, digits and underscores, and dots in a compound name.
pub(super) fn check_name(name: &str, dots: bool) -> Result<(), LabelError> {
    if name.len() > MAX_NAME {
        return Err(LabelError::NameTooLong(name.len()));
    }
    let valid = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || (dots && b == b'.'));
    if valid { Ok(()) } else { Err(LabelError::Name(name.to_owned())) }
}

struct Scan<'a> {
    rest: &'a str,
    out: String,
    index: Vec<Entry>,
    flags: LabelFlags,
}

impl<'a> Scan<'a> {
    /// Copies an object and records its members as labels. `prefix` is the name of the enclosing object with a dot.
    fn object(&mut self, prefix: &str) -> Result<(), LabelError> {
        self.token();
        while self.peek() != b'}' {
            if self.peek() == b',' {
                self.token();
            }
            let name = self.token().trim_matches('"');
            check_name(name, self.flags.contains(LabelFlags::COMPOUND))?;
            let name_at = self.out.len() - 1 - name.len();
            self.token();
            let value_at = self.out.len();
            let nested = self.peek() == b'{';
            if nested {
                let path = format!("{prefix}{name}.");
                self.object(&path)?;
            } else {
                self.value();
            }
            let empty = nested && self.out.len() == value_at + 2;
            if !nested || empty {
                let flags = if nested { self.flags | LabelFlags::COMPOUND } else { self.flags };
                self.record(prefix, name, name_at, value_at, flags)?;
            }
        }
        self.token();
        Ok(())
    }

    fn record(
        &mut self,
        prefix: &str,
        name: &str,
        name_at: usize,
        value_at: usize,
        flags: LabelFlags,
    ) -> Result<(), LabelError> {
        if self.index.len() == MAX_LABELS {
            return Err(LabelError::TooMany);
        }
        let (path, flags) = if prefix.is_empty() {
            (None, flags)
        } else {
            let path = format!("{prefix}{name}");
            check_name(&path, true)?;
            (Some(path.into()), flags | LabelFlags::COMPOUND)
        };
        // The compact text is no longer than the original, whose length fits.
        let offset = |n: usize| u16::try_from(n).map_err(|_| LabelError::TooLong);
        let raw = RawLabel {
            name: offset(name_at)?,
            name_len: u8::try_from(name.len()).map_err(|_| LabelError::NameTooLong(name.len()))?,
            flags,
            value: offset(value_at)?,
            value_len: offset(self.out.len() - value_at)?,
        };
        self.index.push(Entry { raw, path });
        Ok(())
    }

    /// Copies a value without recording labels, because objects inside of arrays are not labels.
    fn value(&mut self) {
        let mut depth = 0_usize;
        loop {
            match self.token().as_bytes().first() {
                Some(b'{' | b'[') => depth += 1,
                Some(b'}' | b']') => depth = depth.saturating_sub(1),
                None => return,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// Returns the first byte of the next token. At the end it returns `}`, so that every loop terminates.
    fn peek(&mut self) -> u8 {
        self.rest = self.rest.trim_start();
        self.rest.bytes().next().unwrap_or(b'}')
    }

    /// Copies the next token: a string with its quotes, a number, a word or a single character.
    fn token(&mut self) -> &'a str {
        self.rest = self.rest.trim_start();
        let bytes = self.rest.as_bytes();
        let len = match bytes.first() {
            None => 0,
            Some(b'"') => string_len(bytes),
            Some(b'{' | b'}' | b'[' | b']' | b',' | b':') => 1,
            Some(_) => self.rest.find([',', '}', ']', ' ', '\t', '\n', '\r']).unwrap_or(self.rest.len()),
        };
        let (token, rest) = self.rest.split_at_checked(len).unwrap_or((self.rest, ""));
        self.rest = rest;
        self.out.push_str(token);
        token
    }
}

fn string_len(bytes: &[u8]) -> usize {
    let mut escaped = false;
    let end = bytes.iter().skip(1).position(|&b| {
        let end = b == b'"' && !escaped;
        escaped = b == b'\\' && !escaped;
        end
    });
    end.map_or(bytes.len(), |at| at + 2)
}
