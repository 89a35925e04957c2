//! What the definitions of a group have become.

use pmapi::derive::{Evaluator, Text};
use pmapi::{Desc, Inst};
use pmda::prelude::Instances;

use crate::config::Group;

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
        for (number, definition) in group.definitions.iter().enumerate() {
            let name = definition.name();
            match evaluator.desc(number) {
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
                Err(why) => {
                    let problem = why.map(|why| group.problem(name, why).to_string());
                    metrics.bad.push(Bad { name: name.to_owned(), message: problem.unwrap_or_default() });
                }
            }
        }
        metrics
    }
}

/// The instances of an operand's domain.
#[derive(Debug, Default)]
pub(crate) struct List(Vec<(Inst, String)>);

impl List {
    /// Names that are no UTF-8 have replacement characters.
    pub(crate) fn new(instances: impl IntoIterator<Item = (Inst, Vec<u8>)>) -> List {
        let text = |name: Vec<u8>| {
            String::from_utf8(name).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
        };
        List(instances.into_iter().map(|(inst, name)| (inst, text(name))).collect())
    }
}

impl Instances for List {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn each(&self, f: &mut dyn FnMut(Inst, &str)) {
        self.0.iter().for_each(|(inst, name)| f(*inst, name));
    }

    fn name(&self, inst: Inst) -> Option<&str> {
        self.0.iter().find(|(other, _)| *other == inst).map(|(_, name)| name.as_str())
    }

    fn lookup(&self, name: &str) -> Option<Inst> {
        let exact = self.0.iter().find(|(_, other)| other == name);
        let key = || self.0.iter().find(|(_, other)| other.split(' ').next() == Some(name));
        exact.or_else(key).map(|(inst, _)| *inst)
    }
}
