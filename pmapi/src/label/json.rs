//! Parsing of JSON text into a label set: compact text and index.

use serde::de::IgnoredAny;

use pcp_base::escape::escaped_json;

use super::{Entry, LabelError, LabelFlags, LabelSet, MAX_JSON, MAX_LABELS, MAX_NAME, RawLabel};

/// What happens to a label with an invalid name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Invalid {
    /// The label is left out, as libpcp does since 7.2.
    LeftOut,
    /// The set is refused.
    Refused,
}

pub(super) fn parse(text: &str, flags: LabelFlags, invalid: Invalid) -> Result<LabelSet, LabelError> {
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
    let out = String::with_capacity(text.len());
    let mut scan = Scan { rest: text, out, index: Vec::new(), flags, invalid, left_out: None };
    scan.object(Some(""))?;
    let Scan { out, mut index, left_out, .. } = scan;
    if index.is_empty() {
        return left_out.map_or(Ok(LabelSet::new()), Err);
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
    let set = parse(&escaped_json(&text), flags, Invalid::Refused)?;
    if set.index.iter().any(|entry| entry.path.is_some()) { LabelSet::new().merged(&set) } else { Ok(set) }
}

/// Checks that a name has letters, digits and underscores only, and dots in a compound name.
pub(super) fn check_name(name: &str, dots: bool) -> Result<(), LabelError> {
    if name.len() > MAX_NAME {
        return Err(LabelError::NameTooLong(name.len()));
    }
    let valid = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || (dots && b == b'.');
    if !name.is_empty() && name.bytes().all(valid) { Ok(()) } else { Err(LabelError::Name(name.to_owned())) }
}

struct Scan<'a> {
    rest: &'a str,
    out: String,
    index: Vec<Entry>,
    flags: LabelFlags,
    invalid: Invalid,
    /// Reason why the first invalid name is left out.
    left_out: Option<LabelError>,
}

impl<'a> Scan<'a> {
    /// Copies an object and records its members as labels. `prefix` is the name of the enclosing object with a dot;
    /// `None` in arrays, whose objects are no labels.
    fn object(&mut self, prefix: Option<&str>) -> Result<(), LabelError> {
        self.token();
        let start = self.out.len();
        while self.peek().is_some_and(|byte| byte != b'}') {
            let before = self.out.len();
            if self.peek() == Some(b',') {
                self.token();
                // The members before it may have been left out.
                self.out.truncate(before);
            }
            if before > start {
                self.out.push(',');
            }
            let name = self.token().trim_matches('"');
            match self.check(prefix, name) {
                Ok(()) => self.member(prefix, name)?,
                Err(e) if self.invalid == Invalid::Refused => return Err(e),
                Err(e) => {
                    self.left_out.get_or_insert(e);
                    self.token();
                    self.skip();
                    self.out.truncate(before);
                }
            }
        }
        self.token();
        Ok(())
    }

    fn check(&self, prefix: Option<&str>, name: &str) -> Result<(), LabelError> {
        check_name(name, self.flags.contains(LabelFlags::COMPOUND))?;
        match prefix.map_or(0, str::len) + name.len() {
            0..=MAX_NAME => Ok(()),
            long => Err(LabelError::NameTooLong(long)),
        }
    }

    /// Copies the value of a member, whose name was copied.
    fn member(&mut self, prefix: Option<&str>, name: &str) -> Result<(), LabelError> {
        let name_at = self.out.len() - 1 - name.len();
        self.token();
        let value_at = self.out.len();
        let Some(prefix) = prefix else { return self.value() };
        if self.peek() != Some(b'{') {
            self.value()?;
            return self.record(prefix, name, name_at, value_at, self.flags);
        }
        self.object(Some(&format!("{prefix}{name}.")))?;
        let empty = self.out.len() == value_at + 2;
        if empty { self.record(prefix, name, name_at, value_at, self.flags | LabelFlags::COMPOUND) } else { Ok(()) }
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
            (Some(format!("{prefix}{name}").into()), flags | LabelFlags::COMPOUND)
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

    /// Copies a value without recording labels.
    fn value(&mut self) -> Result<(), LabelError> {
        match self.peek() {
            Some(b'{') => return self.object(None),
            Some(b'[') => {}
            _ => {
                self.token();
                return Ok(());
            }
        }
        self.token();
        while self.peek().is_some_and(|byte| byte != b']') {
            if self.peek() == Some(b',') {
                self.token();
            }
            self.value()?;
        }
        self.token();
        Ok(())
    }

    /// Copies a value whatever the names in it are.
    fn skip(&mut self) {
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

    /// Returns the first byte of the next token, or `None` at the end, so that every loop terminates.
    fn peek(&mut self) -> Option<u8> {
        self.rest = self.rest.trim_start();
        self.rest.bytes().next()
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
