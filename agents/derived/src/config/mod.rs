//! What the agent shall derive, from what, and how often.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use pmapi::Domain;
use pmapi::context::HostSpec;
use pmapi::derive::{Controls, Definitions, Message, Scope};

/// The group of what files in the format of pmLoadDerivedConfig(3) define.
const DERIVED: &str = "derived";

/// What a configuration says. What is wrong with a part of it leaves the other parts as they are.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) groups: Vec<Group>,
    pub(crate) problems: Vec<Problem>,
}

/// Definitions that are evaluated together, from one sample of their operands.
#[derive(Debug)]
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

/// What is wrong with a part of a configuration.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Problem {
    pub(crate) file: String,
    /// From 1; 0 when it is about the file as a whole.
    pub(crate) line: usize,
    /// As libpcp has it, with a caret below the expression.
    pub(crate) text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.text),
            line => write!(f, "[{}:{line}] {}", self.file, self.text),
        }
    }
}

impl From<Message> for Problem {
    fn from(message: Message) -> Problem {
        let mut text = format!("{}: {}", message.severity, message.text);
        message.detail.iter().for_each(|line| text.extend(["\n", line]));
        Problem { file: message.file, line: message.line, text }
    }
}

impl Config {
    /// Loads files and directories, with colons between; `host` is where operands are for who does not say so.
    pub(crate) fn load(paths: &str, host: &HostSpec) -> Config {
        let (mut definitions, mut controls) = (Definitions::new(Scope::Global), Controls::default());
        let problems = match definitions.load(paths, &mut controls) {
            Ok(loaded) => loaded.messages.into_iter().map(Problem::from).collect(),
            Err(e) => vec![Problem { file: paths.to_owned(), line: 0, text: e.to_string() }],
        };
        controls.apply(&mut definitions);
        let group = Group {
            name: DERIVED.to_owned(),
            interval: None,
            operands: Operands::Host(host.clone()),
            definitions,
            novalue: controls.novalue(),
            shown: HashMap::new(),
        };
        Config { groups: vec![group], problems }
    }
}
