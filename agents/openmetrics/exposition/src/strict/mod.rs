//! Checks of a document against its format: the Prometheus text format 0.0.4, or `OpenMetrics` 1.0.
//!
//! [`Line::parse`](crate::Line::parse) accepts more than the formats. This module finds the lines that another reader
//! may refuse, and the reasons.

mod family;
mod histogram;
mod line;

use std::fmt;

use hashbrown::{HashMap, HashSet};
use thiserror::Error;

use crate::comment::split_name;
use crate::{Line, Reason, Sample};
use family::{Families, Point};
use line::{check_metric_name, number};

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
    /// The name of a metric has a character other than letters, digits, `_` and `:`, or begins with a digit.
    #[error("{0:?} is not a metric name")]
    MetricName(String),
    /// The name of a label has a character other than letters, digits and `_`, or begins with a digit.
    #[error("{0:?} is not a label name")]
    LabelName(String),
    /// A label occurs twice in a sample.
    #[error("label {0:?} occurs twice")]
    LabelTwice(String),
    /// A label's value has a backslash before a character other than `\`, `"` and `n`.
    #[error("the value of label {0:?} has a backslash before a character other than \\, \" and n")]
    Escape(String),
    /// The value is not a number.
    #[error("{0:?} is not a number")]
    Value(String),
    /// The text after the value is not a timestamp, nor an exemplar where one is allowed.
    #[error("{0:?} after the value is not a timestamp")]
    Timestamp(String),
    /// The document already has this sample, with the same labels.
    #[error("the document already has a sample with this name and these labels")]
    SampleTwice,
    /// The comment gives a type that the format does not have.
    #[error("{0:?} is not a type")]
    Type(String),
    /// A second comment of the same kind for a metric.
    #[error("{0} occurs twice for this metric")]
    CommentTwice(&'static str),
    /// The comment comes after a sample of its metric.
    #[error("{0} comes after samples of its metric")]
    CommentLate(&'static str),
    /// The comment lacks words.
    #[error("{0} must be followed by a metric's name and, except for HELP, another word")]
    CommentShort(&'static str),
    /// Spaces or tabs where the format does not allow them, or a blank line.
    #[error("OpenMetrics allows neither blank lines nor white space at the ends of a line")]
    Space,
    /// `# EOF` is not the last line.
    #[error("the document continues after # EOF")]
    NotLast,
    /// A comment that `OpenMetrics` does not have.
    #[error("OpenMetrics has only the comments TYPE, HELP, UNIT and EOF")]
    Comment,
    /// The line ends with CR LF.
    #[error("the line ends with a carriage return")]
    CarriageReturn,
    /// White space or commas that the format does not have between the parts of a sample.
    #[error("the parts of the sample are not separated as the format requires")]
    Separator,
    /// The document has no `# EOF`.
    #[error("# EOF is missing at the end")]
    NoEnd,
    /// The document already has the metric, or another one whose samples may have this name.
    #[error("the document already has a metric whose samples may have the name {0:?}")]
    MetricTwice(String),
    /// The metric's name does not end with `_` and its unit, or its type has no unit.
    #[error("the name does not end with _ and the unit {0:?}, or the metric is an info or stateset")]
    Unit(String),
    /// The type of the metric does not allow the value.
    #[error("the value must be {0}")]
    ValueOf(&'static str),
    /// A sample of a stateset lacks the label with the name of the metric.
    #[error("a stateset needs a label with the name of the metric")]
    StateLabel,
    /// A sample of a summary has no valid label `quantile`.
    #[error("a summary needs a label \"quantile\" from 0 to 1")]
    Quantile,
    /// A bucket has no valid label `le`.
    #[error("a bucket needs a label \"le\" with a number or +Inf")]
    Bound,
    /// The bounds of buckets do not ascend.
    #[error("the bound of the bucket is not greater than that of the previous bucket")]
    BucketOrder,
    /// The values of buckets descend.
    #[error("the value of the bucket is less than that of the previous bucket")]
    BucketValues,
    /// The samples of a histogram do not fit together.
    #[error("the histogram before this line is not valid: {0}")]
    Histogram(&'static str),
    /// A sample with an exemplar is neither a bucket nor the total of a counter.
    #[error("only buckets and totals of counters have exemplars")]
    ExemplarPlace,
    /// The labels of an exemplar are longer than 128 characters.
    #[error("the labels of the exemplar have more than 128 characters")]
    ExemplarLength,
    /// Samples with the same labels are not adjacent.
    #[error("samples of this metric with the same labels are not adjacent")]
    Apart,
    /// Only some samples with the same labels have a timestamp.
    #[error("samples with the same labels must either all have timestamps, or all have none")]
    SomeTimes,
    /// A timestamp is before that of the sample before.
    #[error("the timestamp is earlier than that of the previous sample")]
    Backwards,
}

/// A line that the format refuses.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Problem {
    /// Number of the line, from 1 on.
    pub line: usize,
    /// Reason why the format refuses the line.
    pub reason: Violation,
}

/// Checks documents line by line.
#[derive(Debug)]
pub struct Checker<'a> {
    format: Format,
    /// Metrics of a document in the Prometheus format.
    families: HashMap<&'a str, Family<'a>>,
    /// Samples of the lines before in the Prometheus format, as name and sorted labels.
    samples: HashSet<String>,
    /// Metrics of an `OpenMetrics` document.
    open: Families<'a>,
    ended: bool,
}

/// A metric in the Prometheus format.
#[derive(Debug, Default)]
struct Family<'a> {
    ty: Option<&'a str>,
    helped: bool,
    sampled: bool,
}

const TYPES: [&str; 5] = ["counter", "gauge", "histogram", "summary", "untyped"];
/// Endings that the names of samples have for metrics of some types in the Prometheus format.
const ENDINGS: [&str; 3] = ["_bucket", "_sum", "_count"];

impl<'a> Checker<'a> {
    /// Creates a checker for one document.
    pub fn new(format: Format) -> Checker<'a> {
        let (families, samples, open) = (HashMap::new(), HashSet::new(), Families::default());
        Checker { format, families, samples, open, ended: false }
    }

    /// Checks a document, and returns up to `most` problems. Only LF separates lines in both formats.
    pub fn check(text: &'a str, format: Format, most: usize) -> Vec<Problem> {
        let mut checker = Checker::new(format);
        let mut problems = Vec::new();
        let mut last = 1;
        for (number, line) in (1..).zip(text.split_terminator('\n')) {
            if problems.len() >= most {
                return problems;
            }
            last = number;
            problems.extend(checker.line(line).err().map(|reason| Problem { line: number, reason }));
        }
        problems.extend(checker.end().err().map(|reason| Problem { line: last, reason }));
        problems.truncate(most);
        problems
    }

    /// Checks the next line, without the LF at its end.
    ///
    /// # Errors
    /// The first [`Violation`] in the line, or in the histogram that ends before it.
    pub fn line(&mut self, line: &'a str) -> Result<(), Violation> {
        if self.ended {
            return Err(Violation::NotLast);
        }
        if line.ends_with('\r') {
            return Err(Violation::CarriageReturn);
        }
        let is_open = self.format == Format::OpenMetrics;
        if is_open && line.starts_with("# ") {
            return self.open_comment(line);
        }
        let trimmed = line.trim_matches([' ', '\t']);
        if is_open && (trimmed.is_empty() || trimmed.len() < line.len()) {
            return Err(Violation::Space);
        }
        match Line::parse(line).map_err(|refusal| refusal.reason)? {
            Line::Comment(_) if is_open => Err(Violation::Comment),
            Line::Comment(comment) => self.comment(comment),
            Line::Sample(sample) if is_open => self.open_sample(line, &sample),
            Line::Sample(sample) => self.sample(line, &sample),
            Line::Blank if trimmed.is_empty() => Ok(()),
            Line::Blank => Err(Violation::Separator),
        }
    }

    /// Checks the end of the document.
    ///
    /// # Errors
    /// [`Violation::NoEnd`] for an `OpenMetrics` document without `# EOF`.
    pub fn end(&mut self) -> Result<(), Violation> {
        if self.format == Format::Prometheus || self.ended {
            return Ok(());
        }
        self.open.end().and(Err(Violation::NoEnd))
    }

    /// Checks a comment of an `OpenMetrics` document. The help and the unit may be empty.
    fn open_comment(&mut self, line: &'a str) -> Result<(), Violation> {
        if line == "# EOF" {
            self.ended = true;
            return self.open.end();
        }
        let (kind, rest) = line.strip_prefix("# ").and_then(|rest| rest.split_once(' ')).unwrap_or_default();
        let kind = match (kind, line) {
            ("TYPE", _) | (_, "# TYPE") => "TYPE",
            ("HELP", _) | (_, "# HELP") => "HELP",
            ("UNIT", _) | (_, "# UNIT") => "UNIT",
            _ => return Err(Violation::Comment),
        };
        let (name, text) = if rest.starts_with('"') {
            let (name, text) = split_name(rest);
            (name, text.strip_prefix(' '))
        } else {
            let (name, text) = rest.split_once(' ').map_or((rest, None), |(name, text)| (name, Some(text)));
            if !name.is_empty() {
                check_metric_name(name)?;
            }
            (name, text)
        };
        let text = text.filter(|_| !name.is_empty()).ok_or(Violation::CommentShort(kind))?;
        self.open.comment(kind, name, text)
    }

    /// Checks a sample of an `OpenMetrics` document.
    fn open_sample(&mut self, line: &'a str, sample: &Sample<'a>) -> Result<(), Violation> {
        line::check_name(sample)?;
        let labels = line::labels(sample)?;
        line::check_separators(line, sample)?;
        let value = number(sample.value()).ok_or_else(|| Violation::Value(sample.value().to_owned()))?;
        let (time, has_exemplar) = line::open_rest(sample.rest())?;
        let point = Point { name: sample.name(), labels: &labels, value, time, has_exemplar };
        self.open.sample(&point)
    }

    /// Checks a comment of a document in the Prometheus format.
    fn comment(&mut self, comment: crate::Comment<'a>) -> Result<(), Violation> {
        let kind = match comment
            .keyword()
            .filter(|_| comment.text().get(1..).is_some_and(|text| text.starts_with([' ', '\t'])))
        {
            Some("TYPE") => "TYPE",
            Some("HELP") => "HELP",
            _ => return Ok(()),
        };
        let (name, mut words) = (comment.name().ok_or(Violation::CommentShort(kind))?, comment.description());
        if comment.words().nth(1).is_some_and(|word| !word.starts_with('"')) {
            check_metric_name(name)?;
        }
        let family = self.families.entry(name).or_default();
        if kind == "HELP" {
            return if std::mem::replace(&mut family.helped, true) {
                Err(Violation::CommentTwice(kind))
            } else {
                Ok(())
            };
        }
        if family.sampled {
            return Err(Violation::CommentLate(kind));
        }
        let ty = words.next().ok_or(Violation::CommentShort(kind))?;
        if !TYPES.contains(&ty) || words.next().is_some() {
            return Err(Violation::Type(ty.to_owned()));
        }
        if family.ty.replace(ty).is_some() { Err(Violation::CommentTwice(kind)) } else { Ok(()) }
    }

    /// Checks a sample of a document in the Prometheus format.
    fn sample(&mut self, line: &'a str, sample: &Sample<'a>) -> Result<(), Violation> {
        let name = sample.name();
        line::check_name(sample)?;
        let labels = line::labels(sample)?;
        line::check_escapes(sample)?;
        line::check_spaces(line)?;
        number(sample.value()).ok_or_else(|| Violation::Value(sample.value().to_owned()))?;
        if !sample.rest().is_empty() && sample.rest().parse::<i64>().is_err() {
            return Err(Violation::Timestamp(sample.rest().to_owned()));
        }
        let families = ENDINGS.iter().filter_map(|ending| name.strip_suffix(ending)).chain([name]);
        for family in families {
            if family == name || self.families.contains_key(family) {
                self.families.entry(family).or_default().sampled = true;
            }
        }
        if self.samples.insert(format!("{name:?}{labels:?}")) { Ok(()) } else { Err(Violation::SampleTwice) }
    }
}
