//! Metrics that a group's definitions have been bound to, and lists of instances.

use std::borrow::Cow;
use std::collections::HashMap;

use pcp_base::escape::exported_name;
use pcp_derived::{Column, Definition, DefinitionId, Evaluator};
use pcp_pdu::metadata::TextKind;
use pmapi::{Desc, Inst, LabelSet};
use pmda::Instances;

use crate::config::{GroupConfig, Problem};

/// Outcome of binding a group's definitions.
#[derive(PartialEq, Debug, Default)]
pub struct Metrics {
    /// Definitions that are metrics.
    pub good: Vec<Metric>,
    /// Definitions that could not be bound.
    pub bad: Vec<Bad>,
}

/// Definition that has been bound to a metric. Its index in [`Metrics::good`] is its place.
#[derive(Clone, PartialEq, Debug)]
pub struct Metric {
    /// Name that clients see.
    pub name: String,
    /// Descriptor, with the operands' instance domain.
    pub desc: Desc,
    /// One-line help text.
    pub oneline: String,
    /// Help text, possibly empty.
    pub help: String,
    /// Pairs of a name and a value in JSON.
    pub labels: Vec<(String, String)>,
    /// Identifier of the definition in its group.
    pub id: DefinitionId,
}

impl Metric {
    /// Returns whether both metrics look the same to clients, apart from their values.
    pub(crate) fn looks_like(&self, other: &Metric) -> bool {
        let desc = |metric: &Metric| (metric.desc.ty, metric.desc.indom, metric.desc.semantics, metric.desc.units);
        let texts = [(&self.name, &other.name), (&self.oneline, &other.oneline), (&self.help, &other.help)];
        desc(self) == desc(other) && texts.iter().all(|(a, b)| a == b) && self.labels == other.labels
    }
}

/// Definition that could not be bound.
#[derive(Clone, PartialEq, Debug)]
pub struct Bad {
    /// Name of the definition.
    pub name: String,
    /// Reason, in libpcp's format.
    pub message: String,
}

impl Metrics {
    /// Collects the outcome of binding a group's definitions.
    pub fn new(group: &GroupConfig, evaluator: &Evaluator) -> Metrics {
        let mut metrics = Metrics::default();
        for (id, definition, desc) in shown(group, evaluator) {
            let name = definition.name();
            match desc {
                Ok(desc) => {
                    let oneline = definition.text(TextKind::OneLine);
                    let help = definition.text(TextKind::Help).unwrap_or_default();
                    let shown = group.shown.get(name);
                    metrics.good.push(Metric {
                        name: group.name_of(name),
                        desc,
                        oneline: oneline.unwrap_or(definition.expression().trim()).replace('\n', " "),
                        help: help.to_owned(),
                        labels: shown.map(|shown| shown.labels.clone()).unwrap_or_default(),
                        id,
                    });
                }
                Err(problem) => metrics.bad.push(Bad { name: name.to_owned(), message: problem.to_string() }),
            }
        }
        metrics
    }
}

/// Returns the definitions that a group shows, each with its identifier and its descriptor or problem.
pub(crate) fn shown<'a>(
    group: &'a GroupConfig,
    evaluator: &'a Evaluator,
) -> impl Iterator<Item = (DefinitionId, &'a Definition, Result<Desc, Problem>)> {
    let shown = evaluator.ids().zip(group.definitions.iter()).filter(|(_, definition)| group.shows(definition.name()));
    shown.filter_map(|(id, definition)| {
        let desc = match evaluator.desc(id) {
            Ok(desc) => Ok(desc),
            Err(why) => Err(group.problem(definition.name(), why?)),
        };
        Some((id, definition, desc))
    })
}

/// Instances of an operand's domain, in the operand's order.
#[derive(Debug, Default)]
pub(crate) struct List {
    instances: Vec<(Inst, String)>,
    /// Indexes into `instances`, sorted by instance identifier.
    by_number: Vec<u32>,
    /// Labels, if a client has requested them.
    labels: Option<Labels>,
}

/// Labels of an instance domain and of its instances.
#[derive(PartialEq, Debug, Default)]
pub(crate) struct Labels {
    pub(crate) indom: LabelSet,
    pub(crate) instances: HashMap<Inst, LabelSet>,
}

impl Labels {
    fn size(&self) -> usize {
        let sets = self.instances.values().chain([&self.indom]);
        sets.flat_map(LabelSet::labels).map(|label| size_of::<LabelSet>() + label.name.len() + label.value.len()).sum()
    }
}

impl List {
    /// Creates a list without labels. The names are [as exported](exported_name).
    pub(crate) fn new(instances: impl IntoIterator<Item = (Inst, Vec<u8>)>) -> List {
        let instances: Vec<_> = instances.into_iter().map(|(inst, name)| (inst, text(name))).collect();
        let mut by_number: Vec<u32> = (0..).take(instances.len()).collect();
        by_number.sort_by_key(|place| instances[*place as usize].0.word());
        List { instances, by_number, labels: None }
    }

    /// Returns the memory of the list, in bytes.
    pub(crate) fn size(&self) -> usize {
        let names: usize = self.instances.iter().map(|(_, name)| name.len()).sum();
        let each = size_of::<(Inst, String)>() + size_of::<u32>();
        names + each * self.instances.len() + self.labels.as_ref().map_or(0, Labels::size)
    }

    /// Adds labels to the list.
    pub(crate) fn labelled(self, labels: Labels) -> List {
        List { labels: Some(labels), ..self }
    }

    /// Returns the labels, if a client has requested them.
    pub(crate) fn labels(&self) -> Option<&Labels> {
        self.labels.as_ref()
    }

    fn find(&self, inst: Inst) -> Option<&str> {
        let instance = |place: &u32| self.instances.get(*place as usize);
        let number = Some(inst.word());
        let at = self.by_number.binary_search_by_key(&number, |place| instance(place).map(|(inst, _)| inst.word()));
        instance(self.by_number.get(at.ok()?)?).map(|(_, name)| name.as_str())
    }

    /// Returns whether the list contains every instance of `values`.
    pub(crate) fn is_of(&self, values: &Column) -> bool {
        values.iter().all(|(inst, _)| inst.is_some_and(|inst| self.find(inst).is_some()))
    }

    /// Returns the number of instances.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.instances.len()
    }

    /// Returns whether an instance identifier has different names in the two lists.
    pub(crate) fn renames(&self, other: &List) -> bool {
        self.instances.iter().any(|(inst, name)| other.find(*inst).is_some_and(|other| other != name))
    }
}

impl Instances for List {
    fn each<'a>(&'a self, f: &mut dyn FnMut(Inst, &'a str)) {
        for (inst, name) in &self.instances {
            f(*inst, name);
        }
    }

    fn name(&self, inst: Inst) -> Option<&str> {
        self.find(inst)
    }
}

/// Returns a name as it is exported, without a copy unless it is changed.
fn text(name: Vec<u8>) -> String {
    let changed = match exported_name(&name) {
        Cow::Borrowed(_) => None,
        Cow::Owned(text) => Some(text),
    };
    changed.unwrap_or_else(|| String::from_utf8(name).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names are those of another agent, which may be PCP's.
    #[test]
    fn names_steer_no_terminal() {
        let names = [&b"cpu0"[..], b"\xc3\xa9 \\", b"x\x1b[2J", b"\xff"];
        let list = List::new((0..).map(Inst::new).zip(names.map(<[u8]>::to_vec)));
        let shown: Vec<_> = (0..4).filter_map(|inst| list.name(Inst::new(inst))).collect();
        assert_eq!(shown, ["cpu0", "é \\", r"x\u{1b}[2J", "\u{fffd}"]);
    }
}
