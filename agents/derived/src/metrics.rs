//! What the definitions of a group have become.

use std::collections::HashMap;

use pcp_derive::{Definition, Evaluator, Text, Values};
use pmapi::{Desc, Inst};
use pmda::prelude::{Instances, LabelSet};

use crate::config::{Group, Problem};

/// Bound definitions: those that are metrics, and why the others are none.
#[derive(PartialEq, Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) good: Vec<Metric>,
    pub(crate) bad: Vec<Bad>,
}

/// A definition that is a metric. It is known by its place among those that are.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Metric {
    /// The name that clients see.
    pub(crate) name: String,
    /// With the operands' instance domain.
    pub(crate) desc: Desc,
    pub(crate) oneline: String,
    pub(crate) help: String,
    /// Each a name and a value in JSON.
    pub(crate) labels: Vec<(String, String)>,
    /// Its place among the definitions.
    pub(crate) number: usize,
}

impl Metric {
    /// Whether clients see the same of both, apart from values.
    pub(crate) fn looks_like(&self, other: &Metric) -> bool {
        let desc = |metric: &Metric| (metric.desc.ty, metric.desc.indom, metric.desc.semantics, metric.desc.units);
        let texts = [(&self.name, &other.name), (&self.oneline, &other.oneline), (&self.help, &other.help)];
        desc(self) == desc(other) && texts.iter().all(|(a, b)| a == b) && self.labels == other.labels
    }
}

/// A definition that means nothing.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Bad {
    /// The definition's name.
    pub(crate) name: String,
    pub(crate) message: String,
}

impl Metrics {
    /// What binding has made of a group's definitions.
    pub(crate) fn new(group: &Group, evaluator: &Evaluator) -> Metrics {
        let mut metrics = Metrics::default();
        for (number, definition, desc) in shown(group, evaluator) {
            let name = definition.name();
            match desc {
                Ok(desc) => {
                    let text = |text| definition.text(text, true);
                    let (oneline, help) = (text(Text::OneLine), text(Text::Help).unwrap_or_default());
                    let shown = group.shown.get(name);
                    metrics.good.push(Metric {
                        name: group.name_of(name),
                        desc,
                        oneline: oneline.unwrap_or(definition.expression().trim()).replace('\n', " "),
                        help: help.to_owned(),
                        labels: shown.map(|shown| shown.labels.clone()).unwrap_or_default(),
                        number,
                    });
                }
                Err(problem) => metrics.bad.push(Bad { name: name.to_owned(), message: problem.to_string() }),
            }
        }
        metrics
    }
}

/// The definitions of a group that clients are to see, with their numbers and what binding has made of each.
pub(crate) fn shown<'a>(
    group: &'a Group,
    evaluator: &'a Evaluator,
) -> impl Iterator<Item = (usize, &'a Definition, Result<Desc, Problem>)> {
    let shown = group.definitions.iter().enumerate().filter(|(_, definition)| group.shows(definition.name()));
    shown.filter_map(|(number, definition)| {
        let desc = match evaluator.desc(number) {
            Ok(desc) => Ok(desc),
            Err(why) => Err(group.problem(definition.name(), why?)),
        };
        Some((number, definition, desc))
    })
}

/// The instances of an operand's domain, in its order.
#[derive(Debug, Default)]
pub(crate) struct List {
    instances: Vec<(Inst, String)>,
    /// Places, sorted by the instances' numbers.
    by_number: Vec<u32>,
    /// If somebody asks for them.
    labels: Option<Labels>,
}

/// The labels of a domain, and those of its instances.
#[derive(PartialEq, Debug, Default)]
pub(crate) struct Labels {
    pub(crate) indom: LabelSet,
    pub(crate) instances: HashMap<Inst, LabelSet>,
}

impl List {
    /// Names that are no UTF-8 have replacement characters.
    pub(crate) fn new(instances: impl IntoIterator<Item = (Inst, Vec<u8>)>) -> List {
        let text = |name: Vec<u8>| {
            String::from_utf8(name).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
        };
        let instances: Vec<_> = instances.into_iter().map(|(inst, name)| (inst, text(name))).collect();
        let mut by_number: Vec<u32> = (0..).take(instances.len()).collect();
        by_number.sort_by_key(|place| instances[*place as usize].0.word());
        List { instances, by_number, labels: None }
    }

    /// The same with labels.
    pub(crate) fn labelled(self, labels: Labels) -> List {
        List { labels: Some(labels), ..self }
    }

    /// The labels, if they have been asked for.
    pub(crate) fn labels(&self) -> Option<&Labels> {
        self.labels.as_ref()
    }

    fn find(&self, inst: Inst) -> Option<&str> {
        let get = |place: &u32| self.instances.get(*place as usize);
        let number = |place: &u32| get(place).map(|(inst, _)| inst.word());
        let at = self.by_number.binary_search_by_key(&Some(inst.word()), number).ok()?;
        get(self.by_number.get(at)?).map(|(_, name)| name.as_str())
    }

    /// Whether it has all instances that there are values for.
    pub(crate) fn is_of(&self, values: &Values) -> bool {
        values.iter().all(|(inst, _)| inst.is_some_and(|inst| self.find(inst).is_some()))
    }

    /// Whether an instance that both have has another name in the other.
    pub(crate) fn renames(&self, other: &List) -> bool {
        self.instances.iter().any(|(inst, name)| other.find(*inst).is_some_and(|other| other != name))
    }
}

impl Instances for List {
    fn len(&self) -> usize {
        self.instances.len()
    }

    fn each(&self, f: &mut dyn FnMut(Inst, &str)) {
        self.instances.iter().for_each(|(inst, name)| f(*inst, name));
    }

    fn name(&self, inst: Inst) -> Option<&str> {
        self.find(inst)
    }

    fn lookup(&self, name: &str) -> Option<Inst> {
        let exact = self.instances.iter().find(|(_, other)| other == name);
        let key = || self.instances.iter().find(|(_, other)| other.split(' ').next() == Some(name));
        exact.or_else(key).map(|(inst, _)| *inst)
    }
}
