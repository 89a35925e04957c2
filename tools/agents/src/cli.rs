//! Command line.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Parser};
use pcp_base::build;
use pcp_view::{Plan, Printed, ViewOptions};
use pmda::BoxError;

use crate::builtin;

/// Starts agents over pipes, as pmcd does, and shows their live metrics
///
/// In a terminal the values are refreshed until q or Ctrl-C. Elsewhere two samples are printed. Agents run
/// as processes with their files in a temporary directory. PCP is not needed, and an installed PCP is not
/// changed.
#[derive(Parser, Debug)]
#[command(name = "pcp-agents", version = build::version(env!("CARGO_PKG_VERSION")), after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Agents to start [default: all but openmetrics and trace]
    #[arg(value_name = "AGENT", value_parser = Names, conflicts_with = "replay")]
    agents: Vec<String>,

    #[command(flatten)]
    pub(crate) view: ViewOptions,

    /// File with the names of COMMAND's metrics, see PMNS(5). An agent of this framework writes them itself
    #[arg(long, value_name = "FILE", requires = "command")]
    pmns: Option<PathBuf>,

    /// Command line of another agent, in any language
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "replay")]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "Examples:
  pcp-agents simple
  pcp-agents --json -s 0 | jq -c '[.metric, .values]'
  pcp-agents -- target/release/pmdahello
  pcp-agents --pmns /var/lib/pcp/pmdas/simple/root -- /var/lib/pcp/pmdas/simple/pmdasimple -d 253";

/// Names of the agents that this program contains.
#[derive(Clone, Copy, Debug)]
struct Names;

impl Names {
    fn known() -> PossibleValuesParser {
        builtin::AGENTS.iter().map(|agent| agent.name).collect::<Vec<_>>().into()
    }
}

impl TypedValueParser for Names {
    type Value = String;

    fn parse_ref(&self, command: &clap::Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        let left_out = builtin::OPTIONAL.iter().find(|name| value == **name && !builtin::contains(name));
        if let Some(name) = left_out {
            let text = format!("this program was built without agent {name}: build it with --features {name}\n");
            return Err(clap::Error::raw(ErrorKind::InvalidValue, text).with_cmd(command));
        }
        if value == "replay" {
            let text = "--replay BASE shows a recording; agent replay serves one to pmcd (./Install replay)\n";
            return Err(clap::Error::raw(ErrorKind::InvalidValue, text).with_cmd(command));
        }
        Names::known().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Names::known().possible_values()?.collect::<Vec<_>>().into_iter()).map(|all| Box::new(all) as _)
    }
}

impl Options {
    /// Plans the start of the agents, with their files in `scratch`.
    pub(crate) fn plans(&self, scratch: &Path) -> Result<Vec<Plan>, BoxError> {
        let mut plans = Vec::new();
        for agent in builtin::AGENTS {
            let all = self.agents.is_empty() && self.command.is_empty();
            if all && agent.by_default || self.agents.iter().any(|name| name == agent.name) {
                plans.push(builtin::plan(agent, scratch).map_err(|e| format!("{}: {e}", agent.name))?);
            }
        }
        if let Some((program, args)) = self.command.split_first() {
            let trial = pcp_view::trial(scratch)?;
            let command = || {
                let mut command = Command::new(program);
                command.args(args).envs(trial.iter().map(|(name, path)| (name, path)));
                command
            };
            let mut started = command();
            let names = match &self.pmns {
                Some(names) => names.clone(),
                None => {
                    let has_log = |arg: &OsString| ["-l", "--log"].iter().any(|option| begins(arg, option));
                    if !args.iter().any(has_log) {
                        // Its log, which has the reason if it ends, is its standard error.
                        started.args(["--log", "-"]);
                    }
                    own_names(command(), scratch)?
                }
            };
            plans.push(Plan::with_names(started, &names, scratch)?);
        }
        Ok(plans)
    }
}

fn begins(word: &OsStr, with: &str) -> bool {
    word.as_encoded_bytes().starts_with(with.as_bytes())
}

/// Makes an agent of this framework write its directory. Returns the file of its names.
fn own_names(mut write: Command, scratch: &Path) -> Result<PathBuf, BoxError> {
    let dir = scratch.join("written");
    write.arg(WRITE).arg(&dir).stdin(Stdio::null());
    let program = write.get_program().to_owned();
    let program = program.display();
    let ended = write.output().map_err(|e| format!("{program}: {e}"))?;
    if ended.status.success() && dir.join("root").exists() {
        return Ok(dir.join("root"));
    }
    if ended.status.success() && !ended.stdout.is_empty() {
        return Err(Printed(String::from_utf8_lossy(&ended.stdout).into_owned()).into());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let reason = reason(&said);
    Err(match &*reason {
        "" if ended.status.success() => not_ours(&program),
        "" => format!("{} ({})", not_ours(&program), ended.status),
        // It does not know the option.
        reason if reason.contains(WRITE) => not_ours(&program),
        reason => reason.to_owned(),
    }
    .into())
}

/// Option with which an agent of this framework writes its directory.
const WRITE: &str = "--write-pmda";

fn not_ours(program: &impl std::fmt::Display) -> String {
    format!("{program} is not an agent of this framework: give its names with --pmns FILE")
}

/// Returns what an agent says before its usage.
fn reason(said: &str) -> String {
    let lines = said.lines().map(str::trim).skip_while(|line| line.is_empty());
    let lines = lines.take_while(|line| !line.is_empty() && !line.to_lowercase().starts_with("usage"));
    lines.take(MOST_LINES).collect::<Vec<_>>().join("; ")
}

/// Largest number of lines of a reason.
const MOST_LINES: usize = 10;
