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
    #[error("metric {0}: at, below or above the dynamic name {1}")]
    Static(String, String),
    /// An alias for a metric that does not exist.
    #[error("metric {0}: there is no metric {1}")]
    NoMetric(String, Item),
    /// Two metrics have the same item.
    #[error("metrics {0} and {1}: both are item {2}")]
    SameItem(String, String, Item),
    /// A metric whose instance domain is not declared.
    #[error("metric {0}: instance domain {1} is not declared")]
    Undeclared(String, Serial),
    /// An instance domain that is declared twice.
    #[error("instance domain {0}: declared twice")]
    IndomTwice(Serial),
    /// Two instances with the same number or name.
    #[error("instance domain {0}: instance {1} ({2:?}) is declared twice")]
    InstanceTwice(Serial, Inst, String),
    /// An instance with an empty name, or a name with a NUL.
    #[error("instance domain {0}: instance {1} has no name")]
    InstanceName(Serial, Inst),
    /// An instance with an invalid number.
    #[error("instance domain {0}: {1:?} has the invalid number 4294967295")]
    InstanceNumber(Serial, String),
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
    #[error("{0}: {1}")]
    Labels(String, String),
    /// An invalid declaration of an option for Install.
    #[error("argument {0:?}: {1}")]
    Argument(String, &'static str),
    /// A configuration file or template that Install cannot copy, or that PCP's tool would not read.
    #[error("file {0:?}: {1}")]
    File(String, &'static str),
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
