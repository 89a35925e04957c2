//! Samples: a name, labels, and a value.

use std::borrow::Cow;
use std::fmt;

use memchr::{memchr, memchr2};
use thiserror::Error;

use crate::space;

/// A sample: a metric's name, labels, a value, and what follows the value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample<'a> {
    key: &'a str,
    name: &'a str,
    /// Text between the braces. For a quoted name, the text after the name.
    labels: Option<&'a str>,
    value: &'a str,
    rest: &'a str,
}

/// The reason why a line is no sample.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum Reason {
    /// The line has a name and labels only.
    #[error("the value is missing")]
    NoValue,
    /// The line begins with a brace that no quoted name follows.
    #[error("the metric's name is missing: it must be before the opening brace, or in quotes after it")]
    NoName,
    /// A quoted name has no closing quote.
    #[error("the quoted name has no closing quote")]
    Name,
    /// A label's name is not followed by `=`.
    #[error("= must follow the name of a label")]
    NoEquals,
    /// A label's value does not begin with a quote.
    #[error("the value of a label must be in double quotes")]
    NoQuote,
    /// A label's value has no second quote.
    #[error("the value of a label has no closing double quote")]
    OpenQuote,
    /// A label is followed by neither `,` nor `}`.
    #[error(", or }} must follow a label")]
    NoComma,
    /// The labels do not end.
    #[error("the labels have no closing }}")]
    OpenBrace,
}

/// A line that is no sample.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[error("column {column}: {reason}")]
#[non_exhaustive]
pub struct Refusal {
    /// Position in the line, in bytes from 1 on.
    pub column: usize,
    /// Reason of the refusal at this column.
    pub reason: Reason,
}

impl Refusal {
    fn at(offset: usize, reason: Reason) -> Refusal {
        Refusal { column: offset + 1, reason }
    }

    /// Returns the refusal for a line that has `by` more bytes before this text.
    pub(crate) fn moved(self, by: usize) -> Refusal {
        Refusal { column: self.column + by, ..self }
    }
}

impl<'a> Sample<'a> {
    /// Parses a line without white space around it.
    #[inline]
    pub(crate) fn parse(line: &'a str) -> Result<Sample<'a>, Refusal> {
        let (name, labels, end) = match line.as_bytes().first() {
            Some(b'{') => quoted_name(line)?,
            _ => plain_name(line)?,
        };
        let key = line.get(..end).unwrap_or(line);
        Sample::with(key, name, labels, line)
    }

    /// Parses a line whose beginning is the key of an earlier sample, so that name and labels need not be parsed again.
    ///
    /// Returns the value and the text after it, or `None` if the line begins otherwise. White space around the line is
    /// ignored.
    #[inline]
    pub fn parse_known(line: &'a str, key: &str) -> Option<(&'a str, &'a str)> {
        let rest = space::trim(line).strip_prefix(key)?;
        if !key.ends_with('}') && (space::at(rest, 0) == 0 || rest.get(space::skip(rest, 0)..)?.starts_with('{')) {
            return None;
        }
        let (value, rest) = value_and_rest(rest, 0);
        (!value.is_empty()).then_some((value, rest))
    }

    #[inline]
    fn with(key: &'a str, name: &'a str, labels: Option<&'a str>, line: &'a str) -> Result<Sample<'a>, Refusal> {
        let (value, rest) = value_and_rest(line, key.len());
        if value.is_empty() {
            return Err(Refusal::at(line.len(), Reason::NoValue));
        }
        Ok(Sample { key, name, labels, value, rest })
    }

    /// Returns the text of name and labels. Samples with the same key have the same name and labels; the reverse is not
    /// true.
    pub fn key(&self) -> &'a str {
        self.key
    }

    /// Returns the name, without quotes around it, but with the escapes within.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Returns whether the sample has braces, although there may be no labels between them.
    pub fn has_labels(&self) -> bool {
        self.labels.is_some()
    }

    /// Iterates over the labels in the order of the line. A name may occur more than once.
    pub fn labels(&self) -> Labels<'a> {
        Labels { rest: self.labels.unwrap_or_default() }
    }

    /// Returns the value, which may be any text without white space.
    pub fn value(&self) -> &'a str {
        self.value
    }

    /// Returns what follows the value: a timestamp, an exemplar, both, or anything else. Empty if nothing does.
    pub fn rest(&self) -> &'a str {
        self.rest
    }
}

#[inline]
fn value_and_rest(line: &str, offset: usize) -> (&str, &str) {
    let begin = space::skip(line, offset);
    let end = word_end(line, begin, 0);
    (line.get(begin..end).unwrap_or_default(), space::trim_start(line.get(end..).unwrap_or_default()))
}

/// Returns the offset of the first white space or `stop` from `offset` on, or the length of the text. A `stop` of 0
/// means that only white space ends the word.
#[inline]
fn word_end(text: &str, mut offset: usize, stop: u8) -> usize {
    while let Some(&byte) = text.as_bytes().get(offset) {
        // Most bytes are letters and digits, so they are tested first.
        if byte > b' ' && byte < 0x80 && (byte != stop || stop == 0) {
            offset += 1;
        } else if byte == stop && stop != 0 || space::at(text, offset) > 0 {
            break;
        } else {
            offset += text.get(offset..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
        }
    }
    offset
}

/// A name, the text between the braces, and the offset where both end.
type Head<'a> = (&'a str, Option<&'a str>, usize);

#[inline]
fn plain_name(line: &str) -> Result<Head<'_>, Refusal> {
    let end = word_end(line, 0, b'{');
    let name = line.get(..end).unwrap_or_default();
    let brace = space::skip(line, end);
    if line.as_bytes().get(brace) != Some(&b'{') {
        return Ok((name, None, end));
    }
    let close = labels_end(line, brace + 1)?;
    Ok((name, line.get(brace + 1..close), close + 1))
}

/// Parses `{"name"}` and `{"name",a="b"}`, which UTF-8 names have.
fn quoted_name(line: &str) -> Result<Head<'_>, Refusal> {
    let quote = space::skip(line, 1);
    if line.as_bytes().get(quote) != Some(&b'"') {
        return Err(Refusal::at(0, Reason::NoName));
    }
    let rest = line.get(quote + 1..).unwrap_or_default();
    let len = value_end(rest, 0).ok_or(Refusal::at(quote, Reason::Name))?;
    let after = space::skip(line, quote + len + 2);
    let begin = match line.as_bytes().get(after) {
        Some(b',') => after + 1,
        Some(b'}') => after,
        _ => return Err(Refusal::at(after, Reason::NoComma)),
    };
    let close = labels_end(line, begin)?;
    let labels = line.get(begin..close).filter(|labels| !labels.is_empty());
    Ok((rest.get(..len).unwrap_or_default(), labels, close + 1))
}

/// Checks labels from `offset` on, and returns the offset of the brace that ends them.
#[inline]
fn labels_end(line: &str, mut offset: usize) -> Result<usize, Refusal> {
    loop {
        offset = space::skip(line, offset);
        match line.as_bytes().get(offset) {
            None => return Err(Refusal::at(offset, Reason::OpenBrace)),
            Some(b'}') => return Ok(offset),
            Some(_) => {}
        }
        let (_, value) = name_end(line, offset)?;
        let end = value_end(line, value).ok_or(Refusal::at(value, Reason::OpenQuote))?;
        offset = space::skip(line, end + 1);
        match line.as_bytes().get(offset) {
            Some(b',') => offset += 1,
            Some(b'}') => return Ok(offset),
            None => return Err(Refusal::at(offset, Reason::OpenBrace)),
            Some(_) => return Err(Refusal::at(offset, Reason::NoComma)),
        }
    }
}

/// Returns the offsets of the end of a label's name and of the beginning of its value, after its first quote.
///
/// A name in quotes, which UTF-8 names have, may contain white space and `=`. It is tried only if the name does not end
/// at the first of these, because PCP's agent accepts quotes as characters of names.
#[inline]
fn name_end(line: &str, offset: usize) -> Result<(usize, usize), Refusal> {
    // The first character always belongs to the name, even `=`.
    let first = line.get(offset..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
    let end = word_end(line, offset + first, b'=');
    value_begin(line, end).map(|begin| (end, begin)).or_else(|refusal| {
        let quoted = line.as_bytes().get(offset) == Some(&b'"');
        let end = value_end(line, offset + 1).filter(|_| quoted).ok_or(refusal)? + 1;
        value_begin(line, end).map(|begin| (end, begin)).map_err(|_| refusal)
    })
}

/// Returns the offset where the value of a label begins, whose name ends at `offset`.
#[inline]
fn value_begin(line: &str, offset: usize) -> Result<usize, Refusal> {
    let equals = space::skip(line, offset);
    if line.as_bytes().get(equals) != Some(&b'=') {
        return Err(Refusal::at(equals, Reason::NoEquals));
    }
    let quote = space::skip(line, equals + 1);
    if line.as_bytes().get(quote) != Some(&b'"') {
        return Err(Refusal::at(quote, Reason::NoQuote));
    }
    Ok(quote + 1)
}

/// Returns the offset of the quote that ends a label's value, or a name in quotes.
#[inline]
pub(crate) fn value_end(line: &str, begin: usize) -> Option<usize> {
    let mut offset = begin;
    loop {
        let rest = line.as_bytes().get(offset..)?;
        let at = memchr2(b'"', b'\\', rest)?;
        if rest.get(at) == Some(&b'"') {
            return Some(offset + at);
        }
        // The character after the backslash does not end the value. None of its bytes is a quote, even if it has
        // several.
        offset += at + 2;
    }
}

/// A label of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Label<'a> {
    /// Name, which may have any characters but white space and `=`. A name in quotes may have these, too, and keeps its
    /// quotes.
    pub name: &'a str,
    /// Value, with its escapes.
    pub value: LabelValue<'a>,
}

/// The value of a label as it is written in the document.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LabelValue<'a>(&'a str);

impl<'a> LabelValue<'a> {
    /// Returns the text as it is written between the quotes.
    pub fn raw(self) -> &'a str {
        self.0
    }

    /// Returns the unescaped text: `\\`, `\"` and `\n` are replaced. A backslash before another character is kept.
    pub fn text(self) -> Cow<'a, str> {
        if memchr(b'\\', self.0.as_bytes()).is_none() {
            return Cow::Borrowed(self.0);
        }
        let mut text = String::with_capacity(self.0.len());
        let mut chars = self.0.chars();
        while let Some(c) = chars.next() {
            match (c, if c == '\\' { chars.next() } else { None }) {
                ('\\', Some('n')) => text.push('\n'),
                ('\\', Some(escaped @ ('\\' | '"'))) => text.push(escaped),
                (c, next) => text.extend([c].into_iter().chain(next)),
            }
        }
        Cow::Owned(text)
    }
}

impl fmt::Debug for LabelValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Iterator over the labels of a sample.
#[derive(Clone, Debug)]
pub struct Labels<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Labels<'a> {
    type Item = Label<'a>;

    fn next(&mut self) -> Option<Label<'a>> {
        let text = space::trim_start(self.rest);
        if text.is_empty() {
            return None;
        }
        // The sample's parser has accepted this text, so that none of these fails.
        let (name, begin) = name_end(text, 0).ok()?;
        let end = value_end(text, begin)?;
        let name = text.get(..name)?;
        let value = LabelValue(text.get(begin..end)?);
        let rest = space::trim_start(text.get(end + 1..)?);
        self.rest = rest.strip_prefix(',').unwrap_or(rest);
        Some(Label { name, value })
    }
}
