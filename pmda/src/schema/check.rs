//! What is wrong with what an agent declares.

use std::collections::{BTreeMap, HashMap, HashSet};

use pmapi::{Inst, Item, Serial};
use thiserror::Error;

use super::{Indom, Metric, Setup};

/// A mistake in what an agent declares, or adds while it runs.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
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
    /// A dynamic metric whose name is not below what the agent declared to be dynamic.
    #[error("metric {0}: not below a name that is declared dynamic")]
    NotDynamic(String),
    /// A declared metric at, below or above what the agent declared to be dynamic.
    #[error("metric {0}: the name space has {1} as dynamic")]
    Static(String, String),
    /// Another name for a metric that is not there.
    #[error("metric {0}: there is no metric {1}")]
    NoMetric(String, Item),
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
    /// A number that no instance can have.
    #[error("instance domain {0}: {1:?} has the number of no instance, 4294967295")]
    InstanceNumber(Serial, String),
    /// A metric that administrators alone may store, of an agent that is not told who its clients are.
    #[error("metric {0}: restricted, but Agent::WANTS has no Flags::AUTHORIZE")]
    Restricted(String),
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
            mistakes.extend(m.check_restriction(self.wants).err());
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
            mistakes.extend(check_help(&m.name, &m.oneline, &m.text).err());
            for root in &self.dynamic {
                let within = |a: &str, b: &str| a.strip_prefix(b).is_some_and(|r| r.is_empty() || r.starts_with('.'));
                if within(&m.name, root) || within(root, &m.name) {
                    mistakes.push(Mistake::Static(m.name.clone(), root.clone()));
                }
            }
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
            i.check(mistakes);
        }
    }
}

impl Indom {
    pub(crate) fn check(&self, mistakes: &mut Vec<Mistake>) {
        mistakes.extend(check_help(&format!("instance domain {}", self.serial), &self.oneline, &self.text).err());
        for (id, name) in self.instances.iter() {
            match Inst::from_word(id) {
                None => mistakes.push(Mistake::InstanceNumber(self.serial, name.to_owned())),
                Some(inst) if name.is_empty() || name.contains('\0') => {
                    mistakes.push(Mistake::InstanceName(self.serial, inst));
                }
                Some(_) => {}
            }
        }
        let twice = self.instances.twice();
        mistakes.extend(twice.map(|(inst, name)| Mistake::InstanceTwice(self.serial, inst, name.to_owned())));
    }
}

pub(crate) fn check_help(of: &str, oneline: &str, text: &str) -> Result<(), Mistake> {
    if oneline.contains('\n') {
        return Err(Mistake::Help(format!("{of}: the help in one line has several")));
    }
    if oneline.contains('\0') || text.contains('\0') {
        return Err(Mistake::Help(format!("{of}: the help contains a NUL")));
    }
    Ok(())
}
