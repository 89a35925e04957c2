//! Mistakes in declarations.

use pmapi::{Inst, Item, Serial};
use thiserror::Error;

/// A mistake in the declarations of an agent, or in a metric or instance domain that it adds while it runs.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Mistake {
    /// An invalid name of a metric (PMNS(5)).
    #[error("metric {0:?}: names are components of letters, digits and _, separated by dots")]
    Name(String),
    /// Two metrics have the same name.
    #[error("metric {0}: declared twice")]
    Twice(String),
    /// A metric whose name is a prefix of another metric's name.
    #[error("metric {0}: there are metrics below it")]
    Inner(String),
    /// A dynamic metric that is not below a name of [`Setup::dynamic`](crate::Setup::dynamic).
    #[error("metric {0}: not below a name that is declared dynamic")]
    NotDynamic(String),
    /// A declared metric at, below or above a name of [`Setup::dynamic`](crate::Setup::dynamic).
    #[error("metric {metric}: at, below or above the dynamic name {root}")]
    Static {
        /// Name of the metric.
        metric: String,
        /// The dynamic name.
        root: String,
    },
    /// An alias for a metric that does not exist.
    #[error("metric {alias}: there is no metric {item}")]
    NoMetric {
        /// The other name.
        alias: String,
        /// Item of the metric.
        item: Item,
    },
    /// Two metrics have the same item.
    #[error("metrics {first} and {second}: both are item {item}")]
    SameItem {
        /// Name of the metric that was declared first.
        first: String,
        /// Name of the other metric.
        second: String,
        /// Their item.
        item: Item,
    },
    /// A metric whose instance domain is not declared.
    #[error("metric {metric}: instance domain {indom} is not declared")]
    Undeclared {
        /// Name of the metric.
        metric: String,
        /// Its instance domain.
        indom: Serial,
    },
    /// An instance domain that is declared twice.
    #[error("instance domain {0}: declared twice")]
    IndomTwice(Serial),
    /// Two instances with the same number or name.
    #[error("instance domain {indom}: instance {inst} ({name:?}) is declared twice")]
    InstanceTwice {
        /// The instance domain.
        indom: Serial,
        /// Number of the second instance.
        inst: Inst,
        /// Its name.
        name: String,
    },
    /// An instance with an empty name, or a name with a NUL.
    #[error("instance domain {indom}: instance {inst} has no name")]
    InstanceName {
        /// The instance domain.
        indom: Serial,
        /// Number of the instance.
        inst: Inst,
    },
    /// An instance with an invalid number.
    #[error("instance domain {indom}: {name:?} has the invalid number 4294967295")]
    InstanceNumber {
        /// The instance domain.
        indom: Serial,
        /// Name of the instance.
        name: String,
    },
    /// A restricted metric of an agent that does not ask for the identity of its clients.
    #[error("metric {0}: restricted, but Agent::WANTS has no Features::AUTHORIZE")]
    Restricted(String),
    /// A getter that takes another type than the agent.
    #[error("{of}: the getter takes a {getter}, but the agent is a {agent}")]
    Getter {
        /// Metric or instance domain of the getter.
        of: String,
        /// Name of the type that the getter takes.
        getter: &'static str,
        /// Name of the agent's type.
        agent: &'static str,
    },
    /// A getter of a dynamic metric, whose values [`Agent::fetch`](crate::Agent::fetch) puts.
    #[error("metric {0}: a dynamic metric has no getter")]
    DynamicGetter(String),
    /// Invalid labels.
    #[error("{of}: {reason}")]
    Labels {
        /// What the labels are of, such as `metric disk.free`.
        of: String,
        /// What is wrong with them.
        reason: String,
    },
    /// An invalid declaration of an option for Install.
    #[error("argument {option:?}: {reason}")]
    Argument {
        /// The option.
        option: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A configuration file or template that Install cannot copy, or that PCP's tool would not read.
    #[error("file {path:?}: {reason}")]
    File {
        /// Path of the file.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An invalid name of the user that the agent runs as.
    #[error("user {0:?}: not the name of a user")]
    User(String),
    /// One-line help with a newline, or help with a NUL.
    #[error("{0}")]
    Help(String),
}

/// All mistakes in an agent's declarations.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct Mistakes(pub Vec<Mistake>);

pub(crate) fn check_help(of: &str, oneline: &str, text: &str) -> Result<(), Mistake> {
    if oneline.contains('\n') {
        return Err(Mistake::Help(format!("{of}: the one-line help has several lines")));
    }
    if oneline.contains('\0') || text.contains('\0') {
        return Err(Mistake::Help(format!("{of}: the help contains a NUL")));
    }
    Ok(())
}
