//! Metric specifications of command lines: a metric with its source and instances (pmParseMetricSpec(3)).

use std::fmt;
use std::str::FromStr;

use crate::cnum::is_space;

/// Metric with its source and instances (`pmMetricSpec`).
///
/// ```text
/// [HOST:]METRIC[[INSTANCE,...]]    @:METRIC...    ARCHIVE/METRIC...
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MetricSpec {
    /// Source of the values; `None` when the text does not name it.
    pub source: Option<Source>,
    /// Name of the metric.
    pub metric: String,
    /// External names of instances; an empty list means all instances.
    pub instances: Vec<String>,
}

/// Source of values (`PM_CONTEXT_*`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// Host of a pmcd.
    Host(String),
    /// Path of an archive.
    Archive(String),
    /// Agents in the same process (`@:`).
    Local,
}

/// Syntax error in a text. `Display` gives libpcp's message without its final newline: the text, and below it a caret
/// at the error with the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpecError {
    text: String,
    at: usize,
    reason: &'static str,
}

impl SpecError {
    /// An error at a byte of the text.
    pub fn new(text: &str, at: usize, reason: &'static str) -> SpecError {
        SpecError { text: text.to_owned(), at, reason }
    }

    /// Returns the byte offset of the error in the text.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Returns the reason, without the text and the caret.
    pub fn reason(&self) -> &'static str {
        self.reason
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = self.text.get(..self.at).unwrap_or(&self.text);
        // Tabs stay, so that the caret is below the error.
        let indent: String = before.chars().map(|c| if c.is_ascii_graphic() { ' ' } else { c }).collect();
        write!(f, "{}\n{indent}^ -- {}", self.text, self.reason)
    }
}

impl std::error::Error for SpecError {}

impl FromStr for MetricSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<MetricSpec, SpecError> {
        let mut scan = Scan { text, at: 0 };
        scan.skip_space();
        let source = scan.source()?;
        scan.skip_space();
        let metric = scan.metric()?;
        scan.skip_space();
        let instances = if scan.peek() == Some(b'[') { scan.instances()? } else { Vec::new() };
        scan.skip_space();
        if scan.peek().is_some() {
            return Err(scan.error("unexpected extra characters"));
        }
        Ok(MetricSpec { source, metric, instances })
    }
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        self.skip_while(is_space);
    }

    fn skip_while(&mut self, skip: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&skip) {
            self.at += 1;
        }
    }

    fn error(&self, reason: &'static str) -> SpecError {
        SpecError::new(self.text, self.at, reason)
    }

    /// Returns a part of the text. Both ends are character boundaries: they are at ASCII characters or after an escaped
    /// one.
    fn part(&self, start: usize, end: usize) -> &'a str {
        self.text.get(start..end).unwrap_or_default()
    }

    /// Skips one byte, or a backslash and the first byte after it.
    fn step(&mut self) {
        let escaped = self.peek() == Some(b'\\') && self.at + 1 < self.text.len();
        self.at += if escaped { 2 } else { 1 };
    }

    /// Consumes the source, which ends at the last colon or slash before the instances.
    fn source(&mut self) -> Result<Option<Source>, SpecError> {
        let head = self.part(self.at, self.text.len()).split('[').next().unwrap_or_default();
        let Some(mark) = head.rfind([':', '/']) else { return Ok(None) };
        let is_host = head.get(mark..).is_some_and(|rest| rest.starts_with(':'));
        let name = head.get(..mark).unwrap_or_default().trim_end_matches(|c| u8::try_from(c).is_ok_and(is_space));
        if name.is_empty() {
            return Err(self.error(if is_host { "host name expected" } else { "archive name expected" }));
        }
        self.at += mark + 1;
        Ok(Some(match name {
            "@" if is_host => Source::Local,
            _ if is_host => Source::Host(unescape(name)),
            _ => Source::Archive(unescape(name)),
        }))
    }

    fn metric(&mut self) -> Result<String, SpecError> {
        let start = self.at;
        while let Some(b) = self.peek().filter(|&b| !is_space(b) && b != b'[') {
            if b == b']' || b == b',' {
                return Err(self.error("unexpected character in metric name"));
            }
            self.step();
        }
        if self.at == start {
            return Err(self.error("performance metric name expected"));
        }
        Ok(unescape(self.part(start, self.at)))
    }

    fn instances(&mut self) -> Result<Vec<String>, SpecError> {
        self.at += 1;
        self.skip_space();
        let start = self.at;
        let mut quoted = false;
        loop {
            match self.peek() {
                None if quoted => return Err(self.error("closing \" and ] expected")),
                None => return Err(self.error("closing ] expected")),
                Some(b']') if !quoted => break,
                Some(b'"') => quoted = !quoted,
                _ => {}
            }
            self.step();
        }
        let end = self.at;
        let mut names = Scan { text: self.part(0, end), at: start };
        let mut instances = Vec::new();
        while names.at < end {
            instances.push(names.instance().map_err(|reason| SpecError::new(self.text, names.at, reason))?);
            names.skip_while(|b| is_space(b) || b == b',');
        }
        self.at = end + 1;
        Ok(instances)
    }

    fn instance(&mut self) -> Result<String, &'static str> {
        let quoted = self.peek() == Some(b'"');
        self.at += usize::from(quoted);
        let start = self.at;
        loop {
            match self.peek() {
                None if quoted => return Err("closing \" expected (pmParseMetricSpec botch?)"),
                None => break,
                Some(b'"') if quoted => break,
                Some(b) if !quoted && (is_space(b) || b == b',') => break,
                _ => self.step(),
            }
        }
        let name = unescape(self.part(start, self.at));
        self.at += usize::from(quoted);
        Ok(name)
    }
}

/// Removes the backslashes that escape characters.
fn unescape(text: &str) -> String {
    let mut chars = text.chars();
    let mut out = String::with_capacity(text.len());
    while let Some(c) = chars.next() {
        out.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsed() {
        let spec: MetricSpec = " a\\:b.c : disk.dev [ sda,\"s d\\\"b\" , sdc ] ".parse().unwrap();
        assert_eq!(spec.source, Some(Source::Host("a:b.c".into())));
        assert_eq!(spec.metric, "disk.dev");
        assert_eq!(spec.instances, ["sda", "s d\"b", "sdc"]);
        let source = |text: &str| text.parse::<MetricSpec>().unwrap().source;
        assert_eq!(source("a"), None);
        assert_eq!(source("@:a"), Some(Source::Local));
        assert_eq!(source("/var/log/x/a.b[/dev]"), Some(Source::Archive("/var/log/x".into())));
    }

    #[test]
    fn refused() {
        let refused = |text: &str| text.parse::<MetricSpec>().unwrap_err().to_string();
        assert_eq!(refused("h:\ta]b"), "h:\ta]b\n  \t ^ -- unexpected character in metric name");
        assert_eq!(refused(""), "\n^ -- performance metric name expected");
        assert_eq!(refused("é[x"), "é[x\né  ^ -- closing ] expected");
        assert_eq!(refused("\\é]").len(), refused("\\é]").trim_end().len());
    }
}
