//! Rules of `OpenMetrics` for a metric as a whole: the names of its samples, the labels and values that its type allows,
//! and the order of its samples.

use std::borrow::Cow;

use hashbrown::HashSet;

use super::Violation;
use super::histogram::Histogram;

/// Type of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Type {
    Counter,
    Gauge,
    Histogram,
    GaugeHistogram,
    Info,
    StateSet,
    Summary,
    Unknown,
}

impl Type {
    fn of(word: &str) -> Option<Type> {
        Some(match word {
            "counter" => Type::Counter,
            "gauge" => Type::Gauge,
            "histogram" => Type::Histogram,
            "gaugehistogram" => Type::GaugeHistogram,
            "info" => Type::Info,
            "stateset" => Type::StateSet,
            "summary" => Type::Summary,
            "unknown" => Type::Unknown,
            _ => return None,
        })
    }

    /// Returns the endings that the names of samples have after the name of the metric.
    fn endings(self) -> &'static [&'static str] {
        match self {
            Type::Counter => &["_total", "_created"],
            Type::Histogram => &["_bucket", "_count", "_sum", "_created"],
            Type::GaugeHistogram => &["_bucket", "_gcount", "_gsum"],
            Type::Info => &["_info"],
            Type::Summary => &["", "_count", "_sum", "_created"],
            Type::Gauge | Type::StateSet | Type::Unknown => &[""],
        }
    }

    fn is_histogram(self) -> bool {
        matches!(self, Type::Histogram | Type::GaugeHistogram)
    }
}

/// A sample, as its metric checks it.
#[derive(Debug)]
pub(super) struct Point<'s, 'a> {
    pub(super) name: &'a str,
    /// Names and values, in the order of the names.
    pub(super) labels: &'s [(&'a str, Cow<'a, str>)],
    pub(super) value: f64,
    pub(super) time: Option<f64>,
    pub(super) has_exemplar: bool,
}

/// The metrics of a document, one after the other.
#[derive(Debug, Default)]
pub(super) struct Families<'a> {
    /// Names of the metrics before and of their samples.
    names: HashSet<Cow<'a, str>>,
    current: Option<Family<'a>>,
}

#[derive(Debug)]
struct Family<'a> {
    name: &'a str,
    ty: Option<Type>,
    unit: Option<&'a str>,
    helped: bool,
    sampled: bool,
    groups: HashSet<String>,
    /// Labels and timestamp of the last sample, without the label that its type adds.
    group: Option<(String, Option<f64>)>,
    /// Samples of the group with this timestamp.
    samples: HashSet<String>,
    histogram: Histogram,
}

impl<'a> Families<'a> {
    /// Checks the comment `TYPE`, `HELP` or `UNIT` of a metric.
    pub(super) fn comment(&mut self, kind: &'static str, name: &'a str, text: &'a str) -> Result<(), Violation> {
        let begun =
            if self.current.as_ref().is_some_and(|family| family.name == name) { Ok(()) } else { self.begin(name) };
        let Some(family) = &mut self.current else { return begun };
        begun.and(family.describe(kind, text, &mut self.names))
    }

    /// Checks a sample.
    pub(super) fn sample(&mut self, point: &Point<'_, 'a>) -> Result<(), Violation> {
        let is_own = self.current.as_ref().is_some_and(|family| family.ending(point.name).is_some());
        let begun = if is_own { Ok(()) } else { self.begin(point.name) };
        let Some(family) = &mut self.current else { return begun };
        family.sampled = true;
        let ordered = family.order(point);
        begun.and(ordered).and(family.check(point))
    }

    /// Ends the last metric.
    pub(super) fn end(&mut self) -> Result<(), Violation> {
        self.current.take().map_or(Ok(()), |mut family| family.end_point())
    }

    fn begin(&mut self, name: &'a str) -> Result<(), Violation> {
        let ended = self.end();
        self.current = Some(Family {
            name,
            ty: None,
            unit: None,
            helped: false,
            sampled: false,
            groups: HashSet::new(),
            group: None,
            samples: HashSet::new(),
            histogram: Histogram::default(),
        });
        ended.and(reserve(&mut self.names, name.into()))
    }
}

fn reserve<'a>(names: &mut HashSet<Cow<'a, str>>, name: Cow<'a, str>) -> Result<(), Violation> {
    if names.contains(&name) {
        return Err(Violation::MetricTwice(name.into_owned()));
    }
    names.insert(name);
    Ok(())
}

impl<'a> Family<'a> {
    fn ty(&self) -> Type {
        self.ty.unwrap_or(Type::Unknown)
    }

    /// Returns the ending of a sample's name, or `None` for a sample of another metric.
    fn ending(&self, name: &'a str) -> Option<&'a str> {
        let ending = name.strip_prefix(self.name)?;
        self.ty().endings().contains(&ending).then_some(ending)
    }

    fn describe(
        &mut self,
        kind: &'static str,
        text: &'a str,
        names: &mut HashSet<Cow<'a, str>>,
    ) -> Result<(), Violation> {
        if self.sampled {
            return Err(Violation::CommentLate(kind));
        }
        let known = match kind {
            "HELP" => std::mem::replace(&mut self.helped, true),
            "UNIT" => self.unit.replace(text).is_some(),
            _ => {
                let ty = Type::of(text).ok_or_else(|| Violation::Type(text.to_owned()))?;
                self.ty.replace(ty).is_some()
            }
        };
        if known {
            return Err(Violation::CommentTwice(kind));
        }
        if kind == "TYPE" {
            for ending in self.ty().endings().iter().filter(|ending| !ending.is_empty()) {
                reserve(names, format!("{}{ending}", self.name).into())?;
            }
        }
        let unit = self.unit.unwrap_or_default();
        let fits = self.name.strip_suffix(unit).is_some_and(|rest| rest.ends_with('_'));
        if unit.is_empty() || fits && !matches!(self.ty(), Type::Info | Type::StateSet) {
            return Ok(());
        }
        Err(Violation::Unit(unit.to_owned()))
    }

    /// Checks the value, the labels and the exemplar of a sample.
    fn check(&mut self, point: &Point<'_, 'a>) -> Result<(), Violation> {
        let (ty, ending) = (self.ty(), self.ending(point.name).unwrap_or_default());
        check_value(ty, ending, point.value)?;
        let label = |name: &str| point.labels.iter().find(|(known, _)| *known == name).map(|(_, value)| &**value);
        let number = |name: &str| label(name).and_then(super::number);
        match (ty, ending) {
            (Type::StateSet, _) if label(self.name).is_none() => return Err(Violation::StateLabel),
            (Type::Summary, "") if !number("quantile").is_some_and(|number| (0.0..=1.0).contains(&number)) => {
                return Err(Violation::Quantile);
            }
            _ => {}
        }
        let has_exemplars = ty == Type::Counter && ending == "_total" || ty.is_histogram() && ending == "_bucket";
        if point.has_exemplar && !has_exemplars {
            return Err(Violation::ExemplarPlace);
        }
        if ty.is_histogram() {
            let bound = number("le").filter(|bound| bound.is_finite() || label("le") == Some("+Inf"));
            self.histogram.add(ending, bound, point.value)?;
        }
        Ok(())
    }

    /// Checks that samples with the same labels are adjacent, and their timestamps.
    fn order(&mut self, point: &Point<'_, 'a>) -> Result<(), Violation> {
        let own = match (self.ty(), self.ending(point.name)) {
            (Type::Histogram | Type::GaugeHistogram, Some("_bucket")) => "le",
            (Type::Summary, Some("")) => "quantile",
            (Type::StateSet, _) => self.name,
            _ => "",
        };
        let labels: Vec<_> = match self.ty() {
            // All labels of an information are its value.
            Type::Info => Vec::new(),
            _ => point.labels.iter().filter(|(name, _)| *name != own).collect(),
        };
        let (group, time) = (format!("{labels:?}"), point.time);
        let series = format!("{}{:?}", point.name, point.labels);
        let Some((_, before)) = self.group.as_ref().filter(|(before, _)| *before == group) else {
            let ended = self.end_point();
            self.samples.clear();
            self.samples.insert(series);
            self.group = Some((group.clone(), time));
            let is_new = self.groups.insert(group);
            return ended.and(if is_new { Ok(()) } else { Err(Violation::Apart) });
        };
        let ordered = match (*before, time) {
            (None, Some(_)) | (Some(_), None) => Err(Violation::SomeTimes),
            (Some(before), Some(time)) if time < before && self.ty() != Type::Info => Err(Violation::Backwards),
            _ => Ok(()),
        };
        if *before != time {
            let ended = self.end_point();
            self.samples.clear();
            self.samples.insert(series);
            self.group = Some((group, time));
            return ordered.and(ended);
        }
        // Two samples may have the same timestamp, because it may be rounded.
        let is_new = self.samples.insert(series);
        ordered.and(if is_new || time.is_some() { Ok(()) } else { Err(Violation::SampleTwice) })
    }

    /// Ends the samples with the same labels and timestamp.
    fn end_point(&mut self) -> Result<(), Violation> {
        let histogram = std::mem::take(&mut self.histogram);
        if self.ty().is_histogram() && self.group.is_some() { histogram.end() } else { Ok(()) }
    }
}

/// Checks the value of a sample by the type of its metric and the ending of its name.
fn check_value(ty: Type, ending: &str, value: f64) -> Result<(), Violation> {
    let is_count = value >= 0.0 && value.fract() == 0.0;
    let (valid, expected) = match (ty, ending) {
        (Type::Histogram | Type::GaugeHistogram, "_bucket" | "_count" | "_gcount") | (Type::Summary, "_count") => {
            (is_count, "an integer, and not negative")
        }
        (Type::Counter, "_total") | (Type::Histogram | Type::Summary, "_sum") => {
            (value >= 0.0, "a number, and not negative")
        }
        (Type::GaugeHistogram, "_gsum") => (!value.is_nan(), "a number"),
        (Type::Summary, "") => (value >= 0.0 || value.is_nan(), "not negative"),
        (Type::Info, _) => (value == 1.0, "1"),
        (Type::StateSet, _) => (value == 0.0 || value == 1.0, "0 or 1"),
        _ => (true, ""),
    };
    if valid { Ok(()) } else { Err(Violation::ValueOf(expected)) }
}
