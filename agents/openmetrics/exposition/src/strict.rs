//! Checks of a document against its format: the Prometheus text format 0.0.4, or `OpenMetrics` 1.0.
//!
//! [`Line::parse`](crate::Line::parse) accepts more than the formats. This module says which lines another reader may
//! refuse, and why.

use std::borrow::Cow;
use std::fmt;

use hashbrown::{HashMap, HashSet};
use thiserror::Error;

use crate::{Line, Lines, Reason, Sample, number};

/// Format of a document.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Format {
    /// Prometheus text format 0.0.4.
    Prometheus,
    /// `OpenMetrics` 1.0.
    OpenMetrics,
}

impl Format {
    /// Guesses the format: a document whose last line is `# EOF` is `OpenMetrics`.
    pub fn of(text: &str) -> Format {
        let last = text.trim_end_matches('\n').rsplit('\n').next();
        if last == Some("# EOF") { Format::OpenMetrics } else { Format::Prometheus }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Prometheus => "Prometheus text format 0.0.4",
            Format::OpenMetrics => "OpenMetrics 1.0",
        })
    }
}

/// The reason why a format refuses a line.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Violation {
    /// The line is no sample in any format.
    #[error("{0}")]
    Sample(#[from] Reason),
    /// The name of a metric has other characters than letters, digits, `_` and `:`, or begins with a digit.
    #[error("{0:?} is no name of a metric")]
    MetricName(String),
    /// The name of a label has other characters than letters, digits and `_`, or begins with a digit.
    #[error("{0:?} is no name of a label")]
    LabelName(String),
    /// A label occurs twice in a sample.
    #[error("label {0:?} occurs twice")]
    LabelTwice(String),
    /// A label's value has a backslash before another character than `\`, `"` and `n`.
    #[error("label {0:?} has a backslash that escapes nothing")]
    Escape(String),
    /// The value is no number.
    #[error("{0:?} is no number")]
    Value(String),
    /// What follows the value is no timestamp, and no exemplar where one is allowed.
    #[error("{0:?} after the value is no timestamp")]
    Timestamp(String),
    /// The sample has been before, with the same labels.
    #[error("the sample has been before, with the same labels")]
    SampleTwice,
    /// The comment gives a type that the format does not have.
    #[error("{0:?} is no type")]
    Type(String),
    /// The same comment has been before for this metric.
    #[error("{0} has been before for this metric")]
    CommentTwice(&'static str),
    /// The comment comes after a sample of its metric.
    #[error("{0} comes after samples of its metric")]
    CommentLate(&'static str),
    /// The comment lacks words.
    #[error("{0} lacks a name or a word after it")]
    CommentShort(&'static str),
    /// Spaces or tabs are where the format has none, or a blank line.
    #[error("OpenMetrics has no blank lines, and no white space around lines")]
    Space,
    /// `# EOF` is not the last line.
    #[error("# EOF is not the last line")]
    NotLast,
    /// A comment that `OpenMetrics` does not have.
    #[error("OpenMetrics has only the comments TYPE, HELP, UNIT and EOF")]
    Comment,
}

/// A line that the format refuses.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Problem {
    /// Number of the line, from 1 on.
    pub line: usize,
    /// What is wrong.
    pub reason: Violation,
}

/// Checks documents line by line.
#[derive(Debug)]
pub struct Checker<'a> {
    format: Format,
    families: HashMap<&'a str, Family<'a>>,
    /// Samples that have been, as name and sorted labels.
    samples: HashSet<String>,
    ended: bool,
}

#[derive(Debug, Default)]
struct Family<'a> {
    ty: Option<&'a str>,
    helped: bool,
    sampled: bool,
}

const TYPES: [&str; 5] = ["counter", "gauge", "histogram", "summary", "untyped"];
const OPENMETRICS_TYPES: [&str; 8] =
    ["counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset", "unknown"];
/// Endings of the names of samples that a metric of some type has.
const ENDINGS: [&str; 7] = ["_total", "_created", "_bucket", "_sum", "_count", "_info", "_gcount"];

impl<'a> Checker<'a> {
    /// Creates a checker for one document.
    pub fn new(format: Format) -> Checker<'a> {
        Checker { format, families: HashMap::new(), samples: HashSet::new(), ended: false }
    }

    /// Checks a document, and returns up to `most` problems.
    pub fn check(text: &'a str, format: Format, most: usize) -> Vec<Problem> {
        let mut checker = Checker::new(format);
        let problems = Lines::new(text).filter_map(|(line, text)| {
            let reason = checker.line(text).err()?;
            Some(Problem { line, reason })
        });
        problems.take(most).collect()
    }

    /// Checks the next line.
    ///
    /// # Errors
    /// The first [`Violation`] in the line.
    pub fn line(&mut self, line: &'a str) -> Result<(), Violation> {
        if self.ended {
            return Err(Violation::NotLast);
        }
        let is_open = self.format == Format::OpenMetrics;
        let trimmed = line.trim_matches([' ', '\t']);
        if is_open && (trimmed.is_empty() || trimmed.len() < line.len()) {
            return Err(Violation::Space);
        }
        match Line::parse(line).map_err(|refusal| refusal.reason)? {
            Line::Comment(comment) => self.comment(comment),
            Line::Sample(sample) => self.sample(&sample),
            _ => Ok(()),
        }
    }

    fn comment(&mut self, comment: crate::Comment<'a>) -> Result<(), Violation> {
        let is_open = self.format == Format::OpenMetrics;
        let mut words = comment.words();
        let kind = match words.next().filter(|_| comment.text().starts_with("# ")) {
            Some("TYPE") => "TYPE",
            Some("HELP") => "HELP",
            Some("UNIT") if is_open => "UNIT",
            Some("EOF") if is_open => {
                self.ended = true;
                return Ok(());
            }
            _ if is_open => return Err(Violation::Comment),
            _ => return Ok(()),
        };
        let name = words.next().ok_or(Violation::CommentShort(kind))?;
        check_metric_name(name)?;
        let family = self.families.entry(name).or_default();
        if family.sampled && kind != "HELP" {
            return Err(Violation::CommentLate(kind));
        }
        match kind {
            "HELP" if std::mem::replace(&mut family.helped, true) => Err(Violation::CommentTwice(kind)),
            "TYPE" => {
                let ty = words.next().ok_or(Violation::CommentShort(kind))?;
                let types: &[&str] = if is_open { &OPENMETRICS_TYPES } else { &TYPES };
                if !types.contains(&ty) || words.next().is_some() {
                    return Err(Violation::Type(ty.to_owned()));
                }
                if family.ty.replace(ty).is_some() {
                    return Err(Violation::CommentTwice(kind));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn sample(&mut self, sample: &Sample<'a>) -> Result<(), Violation> {
        let name = sample.name();
        // A name in quotes may have any characters.
        if !sample.key().starts_with('{') {
            check_metric_name(name)?;
        }
        let mut labels: Vec<(&str, Cow<'a, str>)> = Vec::new();
        for label in sample.labels() {
            if !is_name(label.name, "_") {
                return Err(Violation::LabelName(label.name.to_owned()));
            }
            if labels.iter().any(|(name, _)| *name == label.name) {
                return Err(Violation::LabelTwice(label.name.to_owned()));
            }
            if !escapes_are_known(label.value.raw()) {
                return Err(Violation::Escape(label.name.to_owned()));
            }
            labels.push((label.name, label.value.text()));
        }
        number::float(sample.value())
            .filter(|_| !sample.value().contains('_'))
            .ok_or_else(|| Violation::Value(sample.value().to_owned()))?;
        self.check_rest(sample)?;
        let families = ENDINGS.iter().filter_map(|ending| name.strip_suffix(ending)).chain([name]);
        for family in families {
            if family == name || self.families.contains_key(family) {
                self.families.entry(family).or_default().sampled = true;
            }
        }
        labels.sort_unstable();
        if self.samples.insert(format!("{name:?}{labels:?}")) { Ok(()) } else { Err(Violation::SampleTwice) }
    }

    /// Checks the timestamp, and the exemplar that `OpenMetrics` may have.
    fn check_rest(&self, sample: &Sample<'a>) -> Result<(), Violation> {
        let refused = || Violation::Timestamp(sample.rest().to_owned());
        let (time, exemplar) = match (self.format, sample.rest().split_once('#')) {
            (Format::OpenMetrics, Some((time, exemplar))) => (time.trim_end_matches(' '), Some(exemplar)),
            _ => (sample.rest(), None),
        };
        let is_time = match self.format {
            _ if time.is_empty() => true,
            Format::Prometheus => time.parse::<i64>().is_ok(),
            Format::OpenMetrics => number::float(time).is_some_and(f64::is_finite),
        };
        // An exemplar is a sample without a name.
        let is_exemplar = exemplar.is_none_or(|text| {
            let text = format!("exemplar{}", text.trim_start_matches(' '));
            matches!(Line::parse(&text), Ok(Line::Sample(exemplar))
                if exemplar.has_labels() && number::float(exemplar.value()).is_some()
                    && (exemplar.rest().is_empty() || number::float(exemplar.rest()).is_some()))
        });
        if is_time && is_exemplar { Ok(()) } else { Err(refused()) }
    }
}

fn check_metric_name(name: &str) -> Result<(), Violation> {
    if is_name(name, "_:") { Ok(()) } else { Err(Violation::MetricName(name.to_owned())) }
}

fn is_name(name: &str, others: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || others.contains(c))
        && chars.all(|c| c.is_ascii_alphanumeric() || others.contains(c))
}

fn escapes_are_known(raw: &str) -> bool {
    let mut bytes = raw.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'\\' && !matches!(bytes.next(), Some(b'\\' | b'"' | b'n')) {
            return false;
        }
    }
    true
}
