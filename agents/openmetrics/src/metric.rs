//! Metrics and samples as the workers hand them to the agent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pmapi::{Inst, Item, LabelSet, Semantics, Serial, Type, Units};
use pmda::Instances;
use serde_json::json;

use crate::labels::Labels;
use crate::value::Value;

/// First serial number of the instance domains of metrics. Those below are PCP's agent's own.
const FIRST_SERIAL: u32 = 4096;
/// Most metrics of a source.
pub(crate) const METRICS: u32 = 1024;
/// Number of the last source: a later one would have instance domains with invalid numbers.
pub(crate) const LAST_CLUSTER: u16 = 4091;

/// Returns the serial number of a metric's instance domain.
pub(crate) fn serial(item: Item) -> Option<Serial> {
    Serial::try_new(FIRST_SERIAL + u32::from(item.cluster()) * METRICS + u32::from(item.item()))
}

/// Returns the metric that an instance domain belongs to.
pub(crate) fn item_of(serial: Serial) -> Option<Item> {
    let number = serial.get().checked_sub(FIRST_SERIAL)?;
    Item::try_new(u16::try_from(number / METRICS).ok()?, u16::try_from(number % METRICS).ok()?)
}

/// How much the agent is like PCP's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Likeness {
    /// Labels with characters that PCP's agent does not expect make it leave out all labels of a metric or instance. So
    /// does this one, and it has no other control metrics.
    Exact,
    Better,
}

/// A label: name and value.
pub(crate) type Pair = (Box<str>, Box<str>);

/// Slot of an instance that no document has had since the agent started.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// A metric of a source.
#[derive(Clone, Debug)]
pub(crate) struct Metric {
    pub(crate) number: u16,
    /// Name below the source's.
    pub(crate) name: String,
    pub(crate) ty: Type,
    pub(crate) semantics: Semantics,
    pub(crate) units: Units,
    pub(crate) oneline: String,
    pub(crate) text: String,
    pub(crate) singular: bool,
    pub(crate) labels: Vec<Pair>,
    /// Labels that do not identify the metric.
    pub(crate) notes: Vec<Pair>,
    pub(crate) instances: Named,
}

/// The instances of a metric, by their numbers. A singular metric has one without a name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Named {
    pub(crate) names: Vec<Arc<str>>,
    /// Whether the names begin with the number.
    pub(crate) prefixed: bool,
    /// Index of the value in the samples, or `NO_SLOT`.
    pub(crate) slots: Vec<u32>,
    pub(crate) labels: Vec<Option<Labels>>,
}

impl Named {
    /// Labels of an instance: those of the document, and the whole name as a note.
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

/// Iterates over the names and values of labels.
pub(crate) fn texts(pairs: &[Pair]) -> impl Iterator<Item = (&str, &str)> + Clone {
    pairs.iter().map(|(name, value)| (&**name, &**value))
}

/// Creates a label set. Labels that PCP does not allow are left out, and those that do not fit. With
/// [`Likeness::Exact`], one of them makes it `None`.
pub(crate) fn label_set<'a>(
    pairs: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    likeness: Likeness,
) -> Option<LabelSet> {
    if likeness == Likeness::Exact {
        // PCP's agent does not escape the values.
        let members: Vec<String> = pairs.map(|(name, value)| format!("\"{name}\":\"{value}\"")).collect();
        return LabelSet::parse(&format!("{{{}}}", members.join(","))).ok();
    }
    let mut set = LabelSet::new();
    for (name, value) in pairs {
        let _ = set.add(json!({ name: value }));
    }
    Some(set)
}

/// What one reading of a source has brought.
#[derive(Debug)]
pub(crate) struct Sample {
    /// All metrics since the agent started, also those that this document does not have.
    pub(crate) metrics: Arc<[Arc<Metric>]>,
    pub(crate) values: Vec<Value>,
    pub(crate) taken: Instant,
    pub(crate) parsing: Duration,
    /// Length of the document in bytes.
    pub(crate) bytes: u64,
    /// Number of lines with values.
    pub(crate) lines: u64,
    /// Instances and metrics that did not fit into the limits.
    pub(crate) left_out: u64,
    /// First line that was refused, and why. Nothing after it was read.
    pub(crate) refused: Option<(usize, String)>,
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

    #[test]
    fn labels_of_instances() {
        let pairs = [("a", "x\"y"), ("instname", "i"), ("b-c", "1"), ("d", "é")];
        let named = Named {
            names: vec!["a:1".into(), "two".into()],
            prefixed: false,
            slots: vec![7, NO_SLOT],
            labels: vec![Some(Labels::new(pairs.into_iter())), None],
        };
        let texts = [0, 1, 2].map(|inst| named.labels_of(Inst::new(inst), Likeness::Better).json().to_owned());
        assert_eq!(texts[0], r#"{"a":"x\"y","d":"é","instname":"0 a:1"}"#);
        assert_eq!(texts[1], r#"{"instname":"1 two"}"#);
        assert_eq!(texts[2], "");
        let exact = [0, 1].map(|inst| named.labels_of(Inst::new(inst), Likeness::Exact).json().to_owned());
        assert_eq!(exact, ["", texts[1].as_str()]);
        assert_eq!(named.slots().collect::<Vec<_>>(), [(Inst::new(0), 7)]);
    }
}
