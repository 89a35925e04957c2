//! Rules for a line by itself: names, numbers, escapes, and the white space between the parts of a sample.

use std::borrow::Cow;

use super::Violation;
use crate::{Line, Sample, number as lax, space};

/// Most characters of the labels of an exemplar.
const EXEMPLAR: usize = 128;

/// Names and values of labels, in the order of the names.
pub(super) type Labels<'a> = Vec<(&'a str, Cow<'a, str>)>;

/// Parses a number as the formats do: without `_` between digits, and without a sign before `NaN`.
pub(super) fn number(text: &str) -> Option<f64> {
    let has_sign = text.starts_with(['+', '-']);
    lax::float(text).filter(|number| !(text.contains('_') || number.is_nan() && has_sign))
}

pub(super) fn check_metric_name(name: &str) -> Result<(), Violation> {
    if is_name(name, "_:") { Ok(()) } else { Err(Violation::MetricName(name.to_owned())) }
}

/// Checks the name of a sample's metric. A name in quotes may have any characters.
pub(super) fn check_name(sample: &Sample<'_>) -> Result<(), Violation> {
    if sample.key().starts_with('{') { Ok(()) } else { check_metric_name(sample.name()) }
}

/// Returns the labels of a sample. A name in quotes may have any characters.
pub(super) fn labels<'a>(sample: &Sample<'a>) -> Result<Labels<'a>, Violation> {
    let mut labels = Labels::new();
    for label in sample.labels() {
        let is_quoted = label.name.len() > 2 && label.name.starts_with('"') && label.name.ends_with('"');
        if !is_quoted && !is_name(label.name, "_") {
            return Err(Violation::LabelName(label.name.to_owned()));
        }
        labels.push((label.name, label.value.text()));
    }
    labels.sort_unstable();
    match labels.iter().zip(labels.iter().skip(1)).find(|(a, b)| a.0 == b.0) {
        Some(((name, _), _)) => Err(Violation::LabelTwice((*name).to_owned())),
        None => Ok(labels),
    }
}

/// Checks the escapes of a sample of the Prometheus format. `OpenMetrics` allows a backslash before any character.
pub(super) fn check_escapes(sample: &Sample<'_>) -> Result<(), Violation> {
    match sample.labels().find(|label| !escapes_are_known(label.value.raw())) {
        Some(label) => Err(Violation::Escape(label.name.to_owned())),
        None => Ok(()),
    }
}

/// Checks the white space of a sample of the Prometheus format: spaces and tabs.
pub(super) fn check_spaces(line: &str) -> Result<(), Violation> {
    let is_odd = |(c, _)| space::is_space(c) && c != ' ' && c != '\t';
    if outside(line).any(is_odd) { Err(Violation::Separator) } else { Ok(()) }
}

/// Checks the white space and the commas of an `OpenMetrics` sample: single spaces around the value, none between
/// labels, and no comma after the last label.
pub(super) fn check_separators(line: &str, sample: &Sample<'_>) -> Result<(), Violation> {
    let (key, value, rest) = (sample.key(), sample.value(), sample.rest());
    let is_exact = line.strip_prefix(key).and_then(|line| line.strip_prefix(' ')?.strip_prefix(value)).is_some_and(
        |end| match rest {
            "" => end.is_empty(),
            rest => end.strip_prefix(' ') == Some(rest),
        },
    );
    let has_space = outside(key).any(|(c, _)| space::is_space(c));
    let has_comma = outside(key).any(|pair| matches!(pair, (',', Some('}')) | ('{', Some(','))));
    if is_exact && !has_space && !has_comma { Ok(()) } else { Err(Violation::Separator) }
}

/// Iterates over the characters outside of quotes, each with the next one.
fn outside(text: &str) -> impl Iterator<Item = (char, Option<char>)> {
    let (mut quoted, mut escaped) = (false, false);
    text.chars().zip(text.chars().skip(1).map(Some).chain([None])).filter(move |(c, _)| {
        if quoted && *c == '\\' && !escaped {
            escaped = true;
            return false;
        }
        let is_quote = *c == '"' && !escaped;
        escaped = false;
        quoted ^= is_quote;
        !quoted && !is_quote
    })
}

/// Parses what follows the value of an `OpenMetrics` sample. Returns the timestamp, and whether there is an exemplar.
pub(super) fn open_rest(rest: &str) -> Result<(Option<f64>, bool), Violation> {
    let refused = || Violation::Timestamp(rest.to_owned());
    let (time, exemplar) = match rest.split_once("# ") {
        Some(("", exemplar)) => ("", Some(exemplar)),
        Some((time, exemplar)) => (time.strip_suffix(' ').ok_or_else(refused)?, Some(exemplar)),
        None => (rest, None),
    };
    let finite = |text: &str| number(text).filter(|number| number.is_finite());
    let time = if time.is_empty() { None } else { Some(finite(time).ok_or_else(refused)?) };
    let Some(exemplar) = exemplar else { return Ok((time, false)) };
    // An exemplar is a sample without a name.
    let line = format!("e{exemplar}");
    let Ok(Line::Sample(sample)) = Line::parse(&line) else { return Err(refused()) };
    let labels = labels(&sample)?;
    check_separators(&line, &sample)?;
    let is_time = sample.rest().is_empty() || finite(sample.rest()).is_some();
    if !exemplar.starts_with('{') || number(sample.value()).is_none() || !is_time {
        return Err(refused());
    }
    let length = |text: &str| text.chars().count();
    if labels.iter().map(|(name, value)| length(name) + length(value)).sum::<usize>() > EXEMPLAR {
        return Err(Violation::ExemplarLength);
    }
    Ok((time, true))
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
