//! Configuration: definitions, the sources of their operands, and intervals.

mod debug;
mod load;
mod loader;
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
use pcp_derived::{BindError, Definitions, Message, UnknownNames};
use pmapi::Domain;

pub use place::NameSpace;
pub(crate) use ready::READY;

/// Root of the metrics' names, apart from metrics that the configuration puts elsewhere.
pub(crate) const ROOT: &str = "derived";

/// Logs a problem at a place of the configuration, one log line for each line of `text`. A caret below an expression is
/// a separate line.
pub(crate) fn warn_lines(place: &dyn fmt::Display, text: &str) {
    for line in text.lines() {
        tracing::warn!(source = %place, "{line}");
    }
}

/// Loaded configuration. A mistake in one part leaves the other parts in effect.
#[derive(Debug)]
pub struct Config {
    /// Groups of definitions.
    pub groups: Vec<GroupConfig>,
    /// Mistakes and warnings.
    pub problems: Vec<Problem>,
}

/// Definitions that are evaluated together, from the same sample of their operands.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    pub(crate) name: String,
    /// Time between samples. `None` for the agent's default.
    pub(crate) interval: Option<Duration>,
    pub(crate) operands: Operands,
    /// Definitions of the group, and copies of those of other groups that it refers to.
    pub definitions: Definitions,
    /// Whether a metric that does not exist has no values instead of an error.
    pub(crate) novalue: bool,
    /// How definitions are shown. A definition without an entry is `derived.NAME`.
    pub(crate) shown: HashMap<String, Shown>,
    /// Place of each definition in the configuration files.
    places: HashMap<String, Place>,
    /// Definitions of other groups that this group refers to, as copies.
    taken: HashSet<String>,
    /// Number of definitions of the group that were refused when it was loaded.
    pub(crate) refused: usize,
    /// Place of the group's own settings, if a file has any.
    described: Option<Place>,
}

impl GroupConfig {
    /// Returns how binding treats metrics that do not exist.
    pub fn unknown_names(&self) -> UnknownNames {
        if self.novalue { UnknownNames::NoValue } else { UnknownNames::Refused }
    }
}

/// Source of a group's operands.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Operands {
    Host(HostSpec),
    Agents(Vec<AgentSpec>),
}

/// Agent that is started for its metrics.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct AgentSpec {
    pub(crate) name: String,
    pub(crate) domain: Domain,
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
    /// File with the agent's names. `None` if the agent itself resolves names.
    pub(crate) pmns: Option<PathBuf>,
}

/// How a definition is shown.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Shown {
    /// Name of the metric. `None` for `derived.NAME`.
    pub(crate) name: Option<String>,
    /// Pairs of a name and a value in JSON.
    pub(crate) labels: Vec<(String, String)>,
}

/// Line of a configuration file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// Path of the file.
    pub file: Arc<str>,
    /// Line number from 1. 0 means the file as a whole.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.file),
            line => write!(f, "{}:{line}", self.file),
        }
    }
}

/// Problem in a configuration. `Display` prints it in libpcp's format.
#[derive(Clone, PartialEq, Debug)]
pub struct Problem {
    /// Line with the problem.
    pub place: Place,
    /// Definition with the problem, if it is known.
    pub definition: Option<String>,
    /// Message. After a syntax error, a caret below the expression marks the column.
    pub text: String,
}

impl Problem {
    /// Returns whether the definition is valid in spite of the problem.
    pub fn is_warning(&self) -> bool {
        self.text.starts_with("Warning")
    }

    /// Returns the subject of the problem: the definition, or the place.
    pub fn subject(&self) -> String {
        self.definition.clone().unwrap_or_else(|| self.place.to_string())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { file, line } = &self.place;
        match (line, self.text.strip_prefix("Warning: ")) {
            (0, None) => write!(f, "{file}: {}", self.text),
            (0, Some(text)) => write!(f, "Warning: {file}: {text}"),
            (line, _) => write!(f, "[{file}:{line}] {}", self.text),
        }
    }
}

impl From<Message> for Problem {
    fn from(message: Message) -> Problem {
        let mut text = format!("{}: {}", message.severity, message.text);
        for line in &message.detail {
            text.extend(["\n", line]);
        }
        let place = Place { file: message.file.into(), line: message.line };
        Problem { place, definition: message.metric, text }
    }
}

impl GroupConfig {
    /// Returns whether another configuration of the group has the same effect. Ignores intervals and line numbers.
    pub(crate) fn means_the_same(&self, other: &GroupConfig) -> bool {
        let GroupConfig { name, interval: _, operands, definitions, novalue, shown, taken, .. } = self;
        (name, operands, definitions) == (&other.name, &other.operands, &other.definitions)
            && (novalue, shown, taken) == (&other.novalue, &other.shown, &other.taken)
    }

    /// Returns whether another configuration of the group has the same definitions in the same lines.
    pub(crate) fn stands_the_same(&self, other: &GroupConfig) -> bool {
        self.places == other.places && self.described == other.described
    }

    /// Returns the name by which a definition is shown.
    pub(crate) fn name_of(&self, definition: &str) -> String {
        let given = self.shown.get(definition).and_then(|shown| shown.name.clone());
        given.unwrap_or_else(|| format!("{ROOT}.{definition}"))
    }

    /// Returns whether this group shows a definition. Definitions copied from other groups are not shown.
    pub(crate) fn shows(&self, definition: &str) -> bool {
        !self.taken.contains(definition)
    }

    /// Returns the place of a definition.
    pub(crate) fn place(&self, definition: &str) -> Option<&Place> {
        self.places.get(definition)
    }

    /// Returns the problem of a definition that cannot be bound.
    pub(crate) fn problem(&self, definition: &str, why: &BindError) -> Problem {
        let place =
            self.place(definition).cloned().unwrap_or_else(|| Place { file: self.name.as_str().into(), line: 0 });
        let text = format!("Semantic error: derived metric {definition}: {why}");
        Problem { place, definition: Some(definition.to_owned()), text }
    }
}
