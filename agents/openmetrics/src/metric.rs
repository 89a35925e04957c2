//! Metrics, their labels and values, and samples, as workers send them to the agent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use exposition::number;
use nix::errno::Errno;
use pmapi::{Atom, Error, Inst, Item, LabelFlags, LabelSet, Semantics, Serial, Type, Units};
use pmda::Instances;
use serde_json::{Map, Value as Json, json};

/// First serial number of the instance domains of metrics. PCP's agent uses the serials below for other domains.
const FIRST_SERIAL: u32 = 4096;
/// Largest number of metrics of a source.
pub(crate) const METRICS: u32 = 1024;
/// Longest name of a metric, in bytes.
pub(crate) const NAME: usize = 1 << 10;
/// Longest help of a metric, in bytes.
pub(crate) const HELP: usize = 64 << 10;
/// Largest number of a source. With a larger one, numbers of instance domains would be invalid.
pub(crate) const LAST_CLUSTER: u16 = 4091;

/// Returns the serial number of a metric's instance domain.
pub(crate) fn serial(item: Item) -> Option<Serial> {
    Serial::try_new(FIRST_SERIAL + u32::from(item.cluster()) * METRICS + u32::from(item.item()))
}

/// Returns the metric whose instance domain has this serial.
pub(crate) fn item_of(serial: Serial) -> Option<Item> {
    let number = serial.get().checked_sub(FIRST_SERIAL)?;
    Item::try_new(u16::try_from(number / METRICS).ok()?, u16::try_from(number % METRICS).ok()?)
}

/// Degree of likeness to PCP's agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Likeness {
    /// As in PCP's agent, a metric or instance with unexpected characters in a label has no labels, and there are no
    /// control metrics besides those of PCP's agent.
    Exact,
    Better,
}

/// Slot of an instance that no document has contained since the agent started.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// A metric of a source.
#[derive(Clone, Debug)]
pub(crate) struct Metric {
    pub(crate) number: u16,
    /// Name below the source's.
    pub(crate) name: Box<str>,
    pub(crate) ty: Type,
    pub(crate) semantics: Semantics,
    pub(crate) units: Units,
    pub(crate) oneline: Box<str>,
    /// Help after the first line.
    pub(crate) text: Box<str>,
    pub(crate) labels: Labels,
    /// Labels that do not identify the metric.
    pub(crate) notes: Labels,
    pub(crate) shape: Shape,
}

/// Location of a metric's values.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// The index of the only value in the samples, or `NO_SLOT`.
    Singular(u32),
    Plural(Box<Named>),
}

impl Metric {
    /// Returns the instances; `None` for a singular metric.
    pub(crate) fn instances(&self) -> Option<&Named> {
        match &self.shape {
            Shape::Singular(_) => None,
            Shape::Plural(instances) => Some(instances),
        }
    }
}

/// The instances of a metric, by their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Named {
    pub(crate) names: Vec<Arc<str>>,
    /// Whether each instance's name begins with its number.
    pub(crate) prefixed: bool,
    /// Index of the value in the samples, or `NO_SLOT`.
    pub(crate) slots: Vec<u32>,
    pub(crate) labels: Vec<Option<Labels>>,
}

impl Named {
    /// Labels of an instance: those of the document, and the full name as a note.
    pub(crate) fn labels_of(&self, inst: Inst, likeness: Likeness) -> LabelSet {
        let at = inst.word() as usize;
        let labels = self.labels.get(at).and_then(Option::as_ref);
        let pairs = labels.into_iter().flat_map(Labels::iter).filter(|(name, _)| *name != "instname");
        let Some(mut set) = label_set(pairs, likeness) else { return LabelSet::new() };
        if let Some(name) = self.names.get(at) {
            let name = if self.prefixed { (**name).to_owned() } else { format!("{at} {name}") };
            // A name that is too long for a label is left out.
            let _ = set.add_notes(json!({ "instname": name }));
        }
        set
    }

    /// Iterates over the numbers and slots of the instances that have had values.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (Inst, usize)> {
        let known = self.slots.iter().enumerate().filter(|(_, slot)| **slot != NO_SLOT);
        known.filter_map(|(at, slot)| Some((Inst::from_word(u32::try_from(at).ok()?)?, *slot as usize)))
    }
}

impl Instances for Named {
    fn each<'a>(&'a self, f: &mut dyn FnMut(Inst, &'a str)) {
        for (at, name) in self.names.iter().enumerate() {
            if let Some(inst) = u32::try_from(at).ok().and_then(Inst::from_word) {
                f(inst, name);
            }
        }
    }

    fn name(&self, inst: Inst) -> Option<&str> {
        self.names.get(inst.word() as usize).map(|name| &**name)
    }
}

/// Iterates over labels until they exceed the size of a label set. A document may have very many and very long labels
/// for each instance.
pub(crate) fn fitting<'a>(
    labels: impl Iterator<Item = (&'a str, &'a str)>,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let mut bytes = 0;
    labels.take(LabelSet::MAX_LABELS + 1).map_while(move |(name, value)| {
        let fits = bytes <= LabelSet::MAX_JSON;
        bytes += name.len() + value.len();
        fits.then(|| (cut(name, LabelSet::MAX_JSON), cut(value, LabelSet::MAX_JSON)))
    })
}

/// Returns the longest beginning of a text that has at most `most` bytes.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

/// Creates a label set without the labels that PCP does not allow or that do not fit. With [`Likeness::Exact`], returns
/// `None` if there is such a label, or a name that libpcp refuses before 7.2.
pub(crate) fn label_set<'a>(
    pairs: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    likeness: Likeness,
) -> Option<LabelSet> {
    if likeness == Likeness::Exact {
        if !pairs.clone().all(|(name, _)| name.starts_with(|first: char| first.is_ascii_alphabetic())) {
            return None;
        }
        // PCP's agent does not escape the values.
        let members: Vec<String> = pairs.map(|(name, value)| format!("\"{name}\":\"{value}\"")).collect();
        return LabelSet::parse_strict(&format!("{{{}}}", members.join(",")), LabelFlags::empty()).ok();
    }
    let all: Map<String, Json> = pairs.clone().map(|(name, value)| (name.to_owned(), value.into())).collect();
    // A set that grew by one label after the other would take a time that grows with the square of their number.
    Some(LabelSet::from_serialize(&all).unwrap_or_else(|_| valid_labels(pairs)))
}

/// Creates a set of the labels that PCP allows, as many as fit.
fn valid_labels<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> LabelSet {
    let (mut valid, mut length) = (Map::new(), 2);
    for (name, value) in pairs {
        let Ok(one) = LabelSet::from_serialize(json!({ name: value })) else { continue };
        // Its text without a brace, and a comma.
        let more = one.json().len() - 1;
        if length + more <= LabelSet::MAX_JSON && valid.len() < LabelSet::MAX_LABELS {
            length += more;
            valid.insert(name.to_owned(), value.into());
        }
    }
    LabelSet::from_serialize(valid).unwrap_or_default()
}

/// Lines of a document that could not be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refused {
    pub(crate) count: u64,
    /// The first ones, each with its number and the reason.
    pub(crate) first: Vec<(usize, String)>,
    /// Whether no line after the first one was read, as by PCP's agent.
    pub(crate) as_pcp: bool,
}

impl Refused {
    /// Returns the first line and the reason. Empty if all lines were read.
    pub(crate) fn text(&self) -> String {
        self.first.first().map_or_else(String::new, |(line, reason)| format!("{line}: {reason}"))
    }
}

/// Result of one reading of a source.
#[derive(Debug)]
pub(crate) struct Sample {
    /// All metrics since the agent started, including those that this document does not contain.
    pub(crate) metrics: Arc<[Arc<Metric>]>,
    pub(crate) values: Vec<Value>,
    pub(crate) taken: Instant,
    pub(crate) parsing: Duration,
    /// Length of the document in bytes.
    pub(crate) bytes: u64,
    /// Number of lines with values.
    pub(crate) lines: u64,
    /// Number of instances and metrics left out because of the limits.
    pub(crate) left_out: u64,
    pub(crate) refused: Refused,
    /// Whether the document has other samples than the previous one, or another order.
    pub(crate) reordered: bool,
}

impl Sample {
    /// Returns the text of `control.status`. PCP's agent says success although it has not read all lines.
    pub(crate) fn status(&self) -> String {
        if self.refused.count == 0 || self.refused.as_pcp { "success".to_owned() } else { self.refusal() }
    }

    /// Returns how many lines could not be read, with the first one and the reason.
    pub(crate) fn refusal(&self) -> String {
        let first = self.refused.text();
        match self.refused.count {
            _ if self.refused.as_pcp => format!("line {first}; neither this line nor those after it are read"),
            _ if self.lines == 0 => format!("no line could be read, line {first}"),
            1 => format!("a line could not be read, line {first}"),
            count => format!("{count} lines could not be read, the first is line {first}"),
        }
    }

    /// Returns whether the document has a metric.
    pub(crate) fn has(&self, metric: &Metric) -> bool {
        let has = |slot: usize| self.values.get(slot).is_some_and(|value| *value != Value::Absent);
        match &metric.shape {
            Shape::Singular(slot) => has(*slot as usize),
            Shape::Plural(instances) => instances.slots().any(|(_, slot)| has(slot)),
        }
    }
}

/// The value of an instance in a document.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) enum Value {
    /// The document does not have the instance.
    #[default]
    Absent,
    /// The document has a text that is not a value of the metric's type.
    Bad(Error),
    I32(i32),
    U32(u32),
    I64(i64),
    U64(u64),
    Float(f32),
    Double(f64),
    Text(Box<Text>),
}

/// A text. Boxed twice, because texts are rare and must not make other values longer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Text(Box<str>);

impl Value {
    /// Converts the text of a sample. As in PCP's agent, unsigned integers keep their low bits, and signed ones that
    /// are out of range have no value.
    #[inline]
    pub(crate) fn parse(text: &str, ty: Type) -> Value {
        match ty {
            Type::Double => number::float(text).map_or(Value::Bad(Error::AGAIN), Value::Double),
            Type::Float => number::float(text).map_or(Value::Bad(Error::AGAIN), |number| Value::Float(number as f32)),
            Type::String => Value::Text(Box::new(Text(text.into()))),
            Type::I32 | Type::U32 | Type::I64 | Type::U64 => integer(text, ty),
            _ => Value::Bad(Error::from_errno(Errno::EOPNOTSUPP as i32)),
        }
    }

    /// Returns the value for the reply to a fetch. `None` for an inactive instance.
    #[inline]
    pub(crate) fn atom(&self) -> Option<Result<Atom<'_>, Error>> {
        Some(Ok(match self {
            Value::Absent => return None,
            Value::Bad(e) => return Some(Err(*e)),
            Value::I32(number) => Atom::I32(*number),
            Value::U32(number) => Atom::U32(*number),
            Value::I64(number) => Atom::I64(*number),
            Value::U64(number) => Atom::U64(*number),
            Value::Float(number) => Atom::Float(*number),
            Value::Double(number) => Atom::Double(*number),
            Value::Text(text) => Atom::from(&*text.0),
        }))
    }
}

fn integer(text: &str, ty: Type) -> Value {
    let Some(number) = number::integer(text) else { return Value::Bad(Error::AGAIN) };
    let exact = match ty {
        Type::U32 => return Value::U32(number.low as u32),
        Type::U64 => return Value::U64(number.low),
        Type::I32 => number.exact.and_then(|exact| i32::try_from(exact).ok()).map(Value::I32),
        _ => number.exact.map(Value::I64),
    };
    exact.unwrap_or(Value::Bad(Error::from_errno(Errno::EINVAL as i32)))
}

/// Names and values. Each is encoded as its length in four bytes, followed by the text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Labels(Arc<[u8]>);

impl Labels {
    pub(crate) fn new<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Labels {
        let mut bytes = Vec::new();
        for text in pairs.flat_map(|(name, value)| [name, value]) {
            // A document is shorter than 4 GiB.
            bytes.extend_from_slice(&u32::try_from(text.len()).unwrap_or(0).to_ne_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        // All empty lists share one allocation.
        Labels(if bytes.is_empty() { Arc::default() } else { bytes.into() })
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let name = take(&mut rest)?;
            Some((name, take(&mut rest)?))
        })
    }
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let (len, after) = rest.split_first_chunk()?;
    let (text, after) = after.split_at_checked(u32::from_ne_bytes(*len) as usize)?;
    *rest = after;
    std::str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_instance_domains() {
        let last = Item::new(LAST_CLUSTER, 1023);
        for item in [Item::new(1, 0), Item::new(1, 1), Item::new(2, 1023), last] {
            assert_eq!(serial(item).and_then(item_of), Some(item));
        }
        assert_eq!(serial(Item::new(1, 1)).map(Serial::get), Some(5121));
        assert_eq!(serial(Item::new(LAST_CLUSTER + 1, 0)), None);
        assert_eq!(item_of(Serial::new(4095)), None);
    }

    /// The set is the one that results if each label is added on its own, and those that do not fit are left out.
    #[test]
    fn very_many_labels_and_invalid_ones() {
        let names: Vec<String> = (0..300).map(|n| format!("l{n}")).collect();
        let (few, long) = ("x".to_owned(), "x".repeat(500));
        for (count, invalid, value) in
            [(3, None, &few), (3, Some("a-b"), &few), (300, None, &few), (200, None, &long), (300, Some(""), &long)]
        {
            let pairs = names.iter().take(count).map(|name| &**name).chain(invalid).chain(["l0", "z"]);
            let pairs: Vec<(&str, &str)> = pairs.map(|name| (name, &**value)).collect();
            let mut each = LabelSet::new();
            let added = pairs.iter().filter(|(name, value)| each.add(json!({ *name: *value })).is_ok()).count();
            assert_eq!(added < pairs.len(), count == 200 || count == 300 || invalid.is_some());
            let set = label_set(pairs.iter().copied(), Likeness::Better).unwrap();
            assert!(
                !each.is_empty() && set.json() == each.json(),
                "{count} {invalid:?}\n{}\n{}",
                set.json(),
                each.json()
            );
        }
    }

    #[test]
    fn labels_of_instances() {
        let pairs = [("a", "x\"y"), ("instname", "i"), ("b-c", "1"), ("d", "é"), ("_block_size_resolved", "1")];
        let valid = [("b-c", "1"), ("_block_size_resolved", "1")];
        let named = Named {
            names: vec!["a:1".into(), "two".into(), "b".into()],
            prefixed: false,
            slots: vec![7, NO_SLOT, NO_SLOT],
            labels: vec![Some(Labels::new(pairs.into_iter())), None, Some(Labels::new(valid.into_iter()))],
        };
        let texts = [0, 1, 2, 3].map(|inst| named.labels_of(Inst::new(inst), Likeness::Better).json().to_owned());
        assert_eq!(texts[0], r#"{"_block_size_resolved":"1","a":"x\"y","d":"é","instname":"0 a:1"}"#);
        assert_eq!(texts[1], r#"{"instname":"1 two"}"#);
        assert_eq!(texts[2..], [r#"{"_block_size_resolved":"1","instname":"2 b"}"#, ""]);
        let exact = [0, 1, 2].map(|inst| named.labels_of(Inst::new(inst), Likeness::Exact).json().to_owned());
        // PCP's agent does not escape the quote, and libpcp 6 refuses the set with another name.
        assert_eq!(exact, ["", texts[1].as_str(), ""]);
        assert_eq!(named.slots().collect::<Vec<_>>(), [(Inst::new(0), 7)]);
    }

    #[test]
    fn very_many_values_are_short() {
        assert_eq!(size_of::<Value>(), 16);
    }

    #[test]
    fn texts_by_type() {
        let again = Value::Bad(Error::AGAIN);
        let invalid = Value::Bad(Error::from_errno(Errno::EINVAL as i32));
        for (text, ty, value) in [
            ("1.5", Type::Double, Value::Double(1.5)),
            ("abc", Type::Double, again.clone()),
            ("1e39", Type::Float, Value::Float(f32::INFINITY)),
            ("-1", Type::U32, Value::U32(u32::MAX)),
            ("4294967296", Type::U32, Value::U32(0)),
            ("2147483648", Type::I32, invalid.clone()),
            ("-2147483648", Type::I32, Value::I32(i32::MIN)),
            ("9223372036854775808", Type::I64, invalid),
            ("18446744073709551615", Type::U64, Value::U64(u64::MAX)),
            ("1.0", Type::U64, again),
            ("abc", Type::String, Value::Text(Box::new(Text("abc".into())))),
            ("1", Type::Aggregate, Value::Bad(Error::from_errno(95))),
        ] {
            assert_eq!(Value::parse(text, ty), value, "{text} {ty:?}");
        }
    }

    #[test]
    fn any_text() {
        let pairs = [("", ""), ("a", "b"), ("é", "\0\n\""), ("long", &"x".repeat(70_000))];
        let labels = Labels::new(pairs.into_iter());
        assert_eq!(labels.iter().collect::<Vec<_>>(), pairs);
        assert_eq!(Labels::new([].into_iter()).iter().count(), 0);
    }
}
