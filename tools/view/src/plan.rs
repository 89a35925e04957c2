//! Agents to start, and hosts with a pmcd to connect to.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use pcp_client::{ConnectError, Context};
use pmapi::Config;
use pmda::BoxError;

use crate::model::clean;
use crate::source::{Host, names_below};

/// Agent to start, or host with a pmcd to connect to.
#[derive(Debug)]
pub struct Plan {
    pub(crate) name: String,
    pub(crate) begin: Begin,
}

/// Source of the metrics.
#[derive(Debug)]
pub(crate) enum Begin {
    Start {
        command: Box<Command>,
        /// Names of the agent's metrics, and its dynamic roots.
        names: pmns::Tree,
        /// File with its standard error.
        log: PathBuf,
    },
    Ask(Box<Host>),
}

impl Plan {
    /// Plans the start of an agent with the names of its metrics and its dynamic roots. Standard error of the agent
    /// goes to a file in `scratch`. The agent gets a separate process group, so that Ctrl-C does not reach it.
    ///
    /// # Errors
    /// The error of the file's creation.
    pub fn new(
        name: impl Into<String>,
        mut command: Command,
        names: pmns::Tree,
        scratch: &Path,
    ) -> Result<Plan, io::Error> {
        let name = name.into();
        let log = scratch.join(Path::new(&name).with_extension("log").file_name().unwrap_or(OsStr::new("log")));
        command.stderr(File::create(&log)?).process_group(0);
        Ok(Plan { name, begin: Begin::Start { command: Box::new(command), names, log } })
    }

    /// Plans to show metrics from the pmcd of a host (pmNewContext(3)): those at or below the given names, or all
    /// except those of processes if there are no names. Connects to pmcd.
    ///
    /// # Errors
    /// A mistake in `host`, no connection, or a name that pmcd does not know.
    pub fn host(host: &str, names: &[String]) -> Result<Plan, BoxError> {
        let mut context = Context::connect(host).map_err(|e| match e {
            // The text has several lines, which point at the mistake.
            ConnectError::Spec(e) => format!("host {host:?}: {}", e.reason()),
            e => format!("host {host:?}: no connection to pmcd: {e}"),
        })?;
        for name in names {
            names_below(&mut context, std::slice::from_ref(name))
                .map_err(|e| format!("host {host:?}: metric {name:?}: {e}"))?;
        }
        let name = string(&mut context, "pmcd.hostname").unwrap_or_else(|| host.to_owned());
        let timezone = string(&mut context, "pmcd.timezone");
        Ok(Plan { name, begin: Begin::Ask(Box::new(Host { context, roots: names.to_vec(), timezone })) })
    }

    /// Returns the value of the label `agent` for its domains in a recording. Not needed for pmcd, which has such
    /// labels itself.
    pub(crate) fn label(&self) -> Option<&str> {
        Some(self.name.as_str()).filter(|_| self.asked().is_none())
    }

    /// Returns the host whose pmcd is asked.
    pub(crate) fn asked(&self) -> Option<&Host> {
        match &self.begin {
            Begin::Ask(host) => Some(host),
            Begin::Start { .. } => None,
        }
    }

    /// Plans the start of an agent in any language, with the file of its metrics' names (PMNS(5)). The environment should
    /// be that of a [`trial`](crate::trial).
    ///
    /// # Errors
    /// An error of the name space, or those of [`Plan::new`].
    pub fn with_names(command: Command, names: &Path, scratch: &Path) -> Result<Plan, BoxError> {
        let include = Config::load().var_dir().join("pmns");
        let names = pmns::Loader::new().include_dir(include).load(names).map_err(|e| e.to_string())?;
        let program = command.get_program();
        let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
        let name = name.strip_prefix("pmda").unwrap_or(&name).to_owned();
        Ok(Plan::new(name, command, names, scratch)?)
    }
}

/// Returns the value of a metric about pmcd and its host, unless it is empty.
fn string(context: &mut Context, metric: &str) -> Option<String> {
    let pmid = context.lookup_name(metric).ok()?;
    let sample = context.fetch(&[pmid]).ok()?;
    let (_, value) = sample.set(0)?.values().next()?;
    match value.atom(pmapi::Type::String).ok()? {
        pmapi::Atom::String(name) if !name.is_empty() => Some(clean(String::from_utf8_lossy(name))),
        _ => None,
    }
}
