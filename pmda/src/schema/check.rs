//! What is wrong with what an agent declares.

use std::collections::{BTreeMap, HashMap, HashSet};

use pmapi::label::LabelSet;
use pmapi::{Inst, Item, Serial};
use thiserror::Error;

use super::{Metric, Setup};

/// A mistake in what an agent declares.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Mistake {
    /// A name that no metric can have (PMNS(5)).
    #[error("metric {0:?}: names are components of letters, digits and _, separated by dots")]
    Name(String),
    /// Two metrics of one name.
    #[error("metric {0}: declared twice")]
    Twice(String),
    /// A metric whose name is the beginning of another one's.
    #[error("metric {0}: there are metrics below it")]
    Inner(String),
    /// Two metrics of one item.
    #[error("metrics {0} and {1}: both are item {2}")]
    SameItem(String, String, Item),
    /// A metric of an instance domain that is not declared.
    #[error("metric {0}: instance domain {1} is not declared")]
    Undeclared(String, Serial),
    /// An instance domain declared twice.
    #[error("instance domain {0}: declared twice")]
    IndomTwice(Serial),
    /// Two instances of one number or name.
    #[error("instance domain {0}: instance {1} ({2:?}) is there twice")]
    InstanceTwice(Serial, Inst, String),
    /// A name that no instance can have.
    #[error("instance domain {0}: instance {1} has no name")]
    InstanceName(Serial, Inst),
    /// Labels that are none.
    #[error("{0}: {1}")]
    Labels(String, String),
    /// Help that has more than one line where one is wanted, or a NUL.
    #[error("{0}")]
    Help(String),
}

/// All the mistakes of an agent.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct Mistakes(pub Vec<Mistake>);

impl Setup {
    pub(super) fn check_metrics(&self, mistakes: &mut Vec<Mistake>) {
        let mut names: BTreeMap<&str, &Metric> = BTreeMap::new();
        let mut items: HashMap<Item, &Metric> = HashMap::new();
        for m in &self.metrics {
            if !pmns::is_name(&m.name) {
                mistakes.push(Mistake::Name(m.name.clone()));
            }
            if names.insert(&m.name, m).is_some() {
                mistakes.push(Mistake::Twice(m.name.clone()));
            }
            if let Some(other) = items.insert(m.item, m).filter(|other| other.name != m.name) {
                mistakes.push(Mistake::SameItem(other.name.clone(), m.name.clone(), m.item));
            }
            if let Some(serial) = m.indom.filter(|serial| !self.indoms.iter().any(|i| i.serial == *serial)) {
                mistakes.push(Mistake::Undeclared(m.name.clone(), serial));
            }
            check_help(mistakes, &m.name, &m.oneline, &m.text);
        }
        // In this order a name comes before those below it, perhaps with others between.
        for name in names.keys() {
            let below = format!("{name}.");
            if names.range(below.as_str()..).next().is_some_and(|(next, _)| next.starts_with(&below)) {
                mistakes.push(Mistake::Inner((*name).to_owned()));
            }
        }
    }

    pub(super) fn check_indoms(&self, mistakes: &mut Vec<Mistake>) {
        let mut serials = HashSet::new();
        for i in &self.indoms {
            if !serials.insert(i.serial) {
                mistakes.push(Mistake::IndomTwice(i.serial));
            }
            check_help(mistakes, &format!("instance domain {}", i.serial), &i.oneline, &i.text);
            let mut ids = HashSet::new();
            let mut keys = HashSet::new();
            for (inst, name) in &i.instances {
                if name.is_empty() || name.contains('\0') {
                    mistakes.push(Mistake::InstanceName(i.serial, *inst));
                } else if !ids.insert(inst) | !keys.insert(crate::indom::key(name)) {
                    mistakes.push(Mistake::InstanceTwice(i.serial, *inst, name.clone()));
                }
            }
        }
    }
}

fn check_help(mistakes: &mut Vec<Mistake>, of: &str, oneline: &str, text: &str) {
    if oneline.contains('\n') {
        mistakes.push(Mistake::Help(format!("{of}: the help in one line has several")));
    }
    if oneline.contains('\0') || text.contains('\0') {
        mistakes.push(Mistake::Help(format!("{of}: the help contains a NUL")));
    }
}

pub(super) fn label_set(
    mistakes: &mut Vec<Mistake>,
    of: impl Fn() -> String,
    labels: Option<&serde_json::Value>,
) -> Option<LabelSet> {
    let mut set = LabelSet::new();
    let add = |(name, value): (&String, &serde_json::Value)| set.insert(name, value).map_err(|e| e.to_string());
    let added = labels?.as_object().ok_or_else(|| "not an object".to_owned()).and_then(|o| o.iter().try_for_each(add));
    match added {
        Ok(()) => Some(set),
        Err(e) => {
            mistakes.push(Mistake::Labels(of(), e));
            None
        }
    }
}
