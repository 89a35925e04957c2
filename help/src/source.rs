//! The source format of help text (newhelp(1)).
//!
//! A line `@ NAME SUMMARY` begins an entry, and the lines up to the next `@` are its text. Lines that begin with `#`
//! are comments, also within a text. Lines before the first `@` are ignored.
//!
//! `NAME` is a metric's name or `DOMAIN.CLUSTER.ITEM`, or an instance domain's `DOMAIN.SERIAL`. `DOMAIN` is a number
//! or, in an agent's file, the symbol of its `domain.h`.

use crate::bytes::{is_space, trim_newlines_end, trim_space_start};
use crate::{Entry, Error, Target};
use pmapi::{Domain, InDom, Item, PmId, Serial};
use std::path::Path;
use std::str;

/// Resolves the names of a help source.
pub trait Resolver {
    /// Returns the PMID of a metric's name; `None` when it is unknown.
    fn metric(&self, name: &str) -> Option<PmId>;

    /// Returns the domain of a symbol such as `SIMPLE`; `None` when it is unknown.
    fn domain(&self, symbol: &str) -> Option<Domain>;
}

/// Resolves nothing: sources may only contain numbers.
impl Resolver for () {
    fn metric(&self, _: &str) -> Option<PmId> {
        None
    }

    fn domain(&self, _: &str) -> Option<Domain> {
        None
    }
}

impl<R: Resolver + ?Sized> Resolver for &R {
    fn metric(&self, name: &str) -> Option<PmId> {
        (**self).metric(name)
    }

    fn domain(&self, symbol: &str) -> Option<Domain> {
        (**self).domain(symbol)
    }
}

/// Parses a help source into entries, in the order of the source. `path` is used only in errors.
///
/// # Errors
///
/// [`Error::Source`] for the first entry that has no name, a name that [`target`] cannot resolve, the target of an
/// earlier entry, or a NUL.
pub fn parse(text: &[u8], path: &Path, resolver: &impl Resolver) -> Result<Vec<Entry>, Error> {
    let mut entries = Vec::new();
    let mut seen = std::collections::HashMap::new();
    for raw in raw_entries(text) {
        let error = |reason| Error::Source { path: path.to_path_buf(), line: raw.line, reason };
        if raw.name.is_empty() {
            return Err(error("an entry without a name".into()));
        }
        if raw.has_nul() {
            return Err(error(format!("{}: the entry contains a NUL byte", raw.name())));
        }
        let target = target(&raw.name(), resolver).map_err(|reason| error(format!("{}: {reason}", raw.name())))?;
        if let Some(line) = seen.insert(target, raw.line) {
            return Err(error(format!("{}: line {line} already has an entry for {target}", raw.name())));
        }
        entries.push(raw.into_entry(target));
    }
    Ok(entries)
}

/// An entry of a help source with an unresolved name.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Raw<'a> {
    /// Number of its first line, from 1.
    pub line: usize,
    /// Number of the line after the entry's last line.
    pub end: usize,
    /// First line after the `@` and white space. Empty if only an `@` is there.
    pub head: &'a [u8],
    /// First word of `head`.
    pub name: &'a [u8],
    /// Rest of `head`, without leading white space.
    pub oneline: &'a [u8],
    /// Other lines, without comments and without newlines at the end.
    pub text: Vec<u8>,
}

impl Raw<'_> {
    /// Returns the name as text, for messages and for [`target`]. Invalid UTF-8 becomes U+FFFD.
    pub fn name(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.name)
    }

    /// Converts to an entry with the resolved target.
    pub fn into_entry(self, target: Target) -> Entry {
        Entry { name: self.name.to_vec(), target, oneline: self.oneline.to_vec(), text: self.text }
    }

    /// Returns whether the entry contains a NUL, which would end a string early in the compiled files.
    pub fn has_nul(&self) -> bool {
        self.head.contains(&0) || self.text.contains(&0)
    }
}

/// Splits a help source into entries, without resolving their names.
pub fn raw_entries(text: &[u8]) -> impl Iterator<Item = Raw<'_>> {
    let mut lines = text.split_inclusive(|b| *b == b'\n').zip(1..).peekable();
    while lines.next_if(|(line, _)| !line.starts_with(b"@")).is_some() {}
    let end_of_text = text.split_inclusive(|b| *b == b'\n').count() + 1;
    std::iter::from_fn(move || {
        let (head, line) = lines.next()?;
        let head = head.strip_suffix(b"\n").unwrap_or(head);
        let head = trim_space_start(head.get(1..).unwrap_or_default());
        let (name, oneline) = head.split_at(head.iter().position(|b| is_space(*b)).unwrap_or(head.len()));
        let mut text = Vec::new();
        while let Some((line, _)) = lines.next_if(|(line, _)| !line.starts_with(b"@")) {
            if !line.starts_with(b"#") {
                text.extend_from_slice(line);
            }
        }
        text.truncate(trim_newlines_end(&text).len());
        let end = lines.peek().map_or(end_of_text, |(_, line)| *line);
        Some(Raw { line, end, head, name, oneline: trim_space_start(oneline), text })
    })
}

/// Resolves a name of a help source, first as the name of a metric, then as `DOMAIN.CLUSTER.ITEM` or `DOMAIN.SERIAL`.
///
/// # Errors
///
/// A message when it is none of these, or when a number is out of range.
pub fn target(name: &str, resolver: &impl Resolver) -> Result<Target, &'static str> {
    const UNKNOWN: &str = "neither a metric's name nor DOMAIN.CLUSTER.ITEM nor DOMAIN.SERIAL";
    if let Some(pmid) = resolver.metric(name) {
        return Ok(Target::Metric(pmid));
    }
    let mut parts = name.split('.');
    let (Some(symbol), Some(first), second, None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err(UNKNOWN);
    };
    let domain = match decimal(symbol) {
        Some(number) => u16::try_from(number).ok().and_then(Domain::new).ok_or("the domain is not 1 to 510")?,
        None => resolver.domain(symbol).ok_or(UNKNOWN)?,
    };
    let first = decimal(first).ok_or(UNKNOWN)?;
    let Some(second) = second else {
        let serial = Serial::try_new(first).ok_or("the serial number has more than 22 bits")?;
        return Ok(Target::InDom(InDom::new(domain, serial)));
    };
    let cluster = u16::try_from(first).unwrap_or(u16::MAX);
    let item = u16::try_from(decimal(second).ok_or(UNKNOWN)?).unwrap_or(u16::MAX);
    let item = Item::try_new(cluster, item).ok_or("the cluster is over 4095 or the item over 1023")?;
    Ok(Target::Metric(PmId::new(domain, item)))
}

/// Parses a decimal number. One that needs more than 32 bits becomes `u32::MAX`, which is too large for every field.
fn decimal(digits: &str) -> Option<u32> {
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().unwrap_or(u32::MAX))
}

/// Writes entries as a help source, with a blank line before each.
///
/// # Errors
///
/// [`Error::Entry`] when the source format cannot express an entry:
/// - a line of its text begins with `#` or `@`,
/// - its summary contains a newline,
/// - its name is empty or contains white space, or
/// - it contains a NUL.
pub fn write<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Result<Vec<u8>, Error> {
    let mut source = Vec::new();
    for entry in entries {
        entry.check()?;
        let text = trim_newlines_end(&entry.text);
        if text.split(|b| *b == b'\n').any(|line| line.starts_with(b"#") || line.starts_with(b"@")) {
            return Err(Error::entry(entry, "a line of the text begins with # or @"));
        }
        source.extend_from_slice(b"\n@ ");
        source.extend_from_slice(&entry.name);
        for part in
            [&b" "[..], trim_space_start(&entry.oneline), b"\n", text, if text.is_empty() { b"" } else { b"\n" }]
        {
            source.extend_from_slice(part);
        }
    }
    Ok(source)
}
