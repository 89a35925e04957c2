//! Configuration: definitions, the sources of their operands, and intervals.

mod loader;
mod place;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
mod toml;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use place::NameSpace;

use loader::{DERIVED, Loader};
use pcp_client::HostSpec;
use pcp_derived::{BindError, Definitions, Message, UnknownNames, read_files};
use pmapi::Domain;
use tracing::debug;

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

impl Config {
    /// Loads colon-separated files and directories. Files whose names end in `.toml` are TOML, all others have the
    /// format of pmLoadDerivedConfig(3). `host` is the default source of operands, and `names` contains the names in
    /// use.
    pub fn load(paths: &str, host: &HostSpec, names: &NameSpace) -> Config {
        let mut loader = Loader::new(host);
        loader.group(DERIVED);
        loader.environment();
        read_files(paths, &mut |path, text| {
            let file: Arc<str> = path.to_string_lossy().into();
            debug!("loading {file}");
            match text {
                Ok(text) if path.extension().is_some_and(|extension| extension == "toml") => {
                    toml::read(&mut loader, &file, &text);
                }
                Ok(text) => loader.definitions(&file, &String::from_utf8_lossy(&text)),
                Err(e) => loader.problem(&file, 0, e.to_string()),
            }
        });
        let mut config = loader.config;
        config.set_names(names);
        config.share();
        config
    }
}

impl Config {
    /// Copies the definitions of other groups with the same operands that the definitions of a group refer to. The
    /// copies are computed from the samples of the group that uses them, and are not shown.
    fn share(&mut self) {
        // Group and name of each definition, by the name that it is shown by, and by its own name.
        let mut homes: HashMap<String, (usize, String)> = HashMap::new();
        for (number, group) in self.groups.iter().enumerate() {
            for name in group.definitions.iter().map(|definition| definition.name()) {
                homes.entry(name.to_owned()).or_insert_with(|| (number, name.to_owned()));
            }
        }
        for (number, group) in self.groups.iter().enumerate() {
            for name in group.definitions.iter().map(|definition| definition.name()) {
                homes.insert(group.name_of(name), (number, name.to_owned()));
            }
        }
        for number in 0..self.groups.len() {
            let mut at = 0;
            // Copies are added at the end, and may refer to other definitions in turn.
            while let Some(definition) = self.groups[number].definitions.iter().nth(at) {
                let user = definition.name().to_owned();
                let names: Vec<String> = definition.names().map(str::to_owned).collect();
                for name in names {
                    let home = homes.get(&name).filter(|(home, _)| *home != number);
                    let Some((home, definition)) = home else { continue };
                    let outcome = self.take(number, *home, definition);
                    // A plain name may belong to another agent.
                    let is_ours = name == self.groups[*home].name_of(definition);
                    if let (Err(why), true, Some(place)) = (outcome, is_ours, self.groups[number].place(&user)) {
                        let text = format!("Error: {name} belongs to group {:?}, {why}", self.groups[*home].name);
                        self.problems.push(Problem { place: place.clone(), definition: Some(user.clone()), text });
                    }
                }
                at += 1;
            }
        }
    }

    /// Copies a definition from one group into another, under the name that clients see.
    fn take(&mut self, user: usize, home: usize, name: &str) -> Result<(), &'static str> {
        let Some((low, high)) = self.groups.split_at_mut_checked(user.max(home)) else { return Ok(()) };
        let (Some(low), Some(high)) = (low.get_mut(user.min(home)), high.first_mut()) else { return Ok(()) };
        let (user, home) = if user < home { (low, high) } else { (high, low) };
        let (Some(definition), shown) = (home.definitions.get(name), home.name_of(name)) else { return Ok(()) };
        if user.definitions.get(name).is_some() || user.taken.contains(&shown) {
            return Ok(());
        }
        if user.operands != home.operands {
            return Err("whose operands come from another source");
        }
        if definition.names().any(|name| user.definitions.get(name).is_some() && home.definitions.get(name).is_some()) {
            return Err("and refers to a name that is defined differently in this group");
        }
        let taken = user
            .definitions
            .register(&shown, definition.expression())
            .map_err(|_| "and this group cannot have another definition")?;
        taken.set_alias(name);
        user.places.extend(home.places.get(name).map(|place| (shown.clone(), place.clone())));
        user.taken.insert(shown);
        Ok(())
    }
}

/// Name and content of each file.
pub(crate) const READY: [(&str, &str); 4] = [
    ("cpu.conf", include_str!("../../etc/cpu.conf")),
    ("disk.conf", include_str!("../../etc/disk.conf")),
    ("memory.conf", include_str!("../../etc/memory.conf")),
    ("network.conf", include_str!("../../etc/network.conf")),
];
