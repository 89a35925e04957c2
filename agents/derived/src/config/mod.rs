//! What the agent shall derive, from what, and how often.

mod load;
mod place;
mod ready;
mod share;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
mod toml;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pcp_client::HostSpec;
use pcp_derive::{BindError, Definitions, Message};
use pmapi::Domain;

pub(crate) use place::NameSpace;
pub(crate) use ready::READY;

use crate::ROOT;

/// What a configuration says. What is wrong with a part of it leaves the other parts as they are.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) groups: Vec<Group>,
    pub(crate) problems: Vec<Problem>,
}

/// Definitions that are evaluated together, from one sample of their operands.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// The time between samples; `None`: the agent's.
    pub(crate) interval: Option<Duration>,
    pub(crate) operands: Operands,
    pub(crate) definitions: Definitions,
    /// A metric that does not exist has no values instead of being an error.
    pub(crate) novalue: bool,
    /// By definition; one that is not here is shown as `derived.NAME`.
    pub(crate) shown: HashMap<String, Shown>,
    /// Where each definition stands.
    places: HashMap<String, Place>,
    /// Definitions of other groups that those of this one refer to.
    taken: HashSet<String>,
    /// Where a file describes the group itself.
    described: Option<Place>,
}

/// Where a group's operands are.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Operands {
    Host(HostSpec),
    Agents(Vec<AgentSpec>),
}

/// An agent that is started for its metrics.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct AgentSpec {
    pub(crate) name: String,
    pub(crate) domain: Domain,
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
    /// The file with its names; without one the agent is asked for them.
    pub(crate) pmns: Option<PathBuf>,
}

/// How a metric is shown.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Shown {
    /// Its name; `None`: `derived.NAME`.
    pub(crate) name: Option<String>,
    /// Each a name and a value in JSON.
    pub(crate) labels: Vec<(String, String)>,
}

/// A line of a file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    pub(crate) file: Arc<str>,
    /// From 1; 0 for the file as a whole.
    pub(crate) line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.file),
            line => write!(f, "{}:{line}", self.file),
        }
    }
}

/// What is wrong with a part of a configuration. `Display` is as libpcp prints it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Problem {
    pub(crate) place: Place,
    /// The definition that it is about, if that much can be said.
    pub(crate) definition: Option<String>,
    /// With a caret below the expression if it is none.
    pub(crate) text: String,
}

impl Problem {
    /// Whether the definition is good nevertheless.
    pub(crate) fn is_warning(&self) -> bool {
        self.text.starts_with("Warning")
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { file, line } = &self.place;
        match line {
            0 => write!(f, "{file}: {}", self.text),
            line => write!(f, "[{file}:{line}] {}", self.text),
        }
    }
}

impl From<Message> for Problem {
    fn from(message: Message) -> Problem {
        let mut text = format!("{}: {}", message.severity, message.text);
        message.detail.iter().for_each(|line| text.extend(["\n", line]));
        let place = Place { file: message.file.into(), line: message.line };
        Problem { place, definition: message.metric, text }
    }
}

impl Group {
    /// Returns whether another configuration of the group means the same, wherever it stands.
    pub(crate) fn means_the_same(&self, other: &Group) -> bool {
        let Group { name, interval: _, operands, definitions, novalue, shown, places: _, taken, described: _ } = self;
        (name, operands, definitions) == (&other.name, &other.operands, &other.definitions)
            && (novalue, shown, taken) == (&other.novalue, &other.shown, &other.taken)
    }

    /// Returns whether each definition stands where it does in another configuration.
    pub(crate) fn stands_the_same(&self, other: &Group) -> bool {
        self.places == other.places && self.described == other.described
    }

    /// The name that a definition is shown by.
    pub(crate) fn name_of(&self, definition: &str) -> String {
        let given = self.shown.get(definition).and_then(|shown| shown.name.clone());
        given.unwrap_or_else(|| format!("{ROOT}.{definition}"))
    }

    /// Whether a definition is shown by this group.
    pub(crate) fn shows(&self, definition: &str) -> bool {
        !self.taken.contains(definition)
    }

    /// Where a definition stands.
    pub(crate) fn place(&self, definition: &str) -> Option<&Place> {
        self.places.get(definition)
    }

    /// Why a definition means nothing.
    pub(crate) fn problem(&self, definition: &str, why: &BindError) -> Problem {
        let place =
            self.place(definition).cloned().unwrap_or_else(|| Place { file: self.name.as_str().into(), line: 0 });
        let text = format!("Semantic error: derived metric {definition}: {why}");
        Problem { place, definition: Some(definition.to_owned()), text }
    }
}
