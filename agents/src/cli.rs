//! Command line.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Parser};
use pcp_view::{Plan, ViewOptions};
use pmapi::build;
use pmda::Failure;

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
    pub(crate) fn plans(&self, scratch: &Path) -> Result<Vec<Plan>, Failure> {
        let mut plans = Vec::new();
        for agent in builtin::AGENTS {
            let all = self.agents.is_empty() && self.command.is_empty();
            if all && agent.by_default || self.agents.iter().any(|name| name == agent.name) {
                plans.push(builtin::plan(agent, scratch).map_err(|e| format!("{}: {e}", agent.name))?);
            }
        }
        if !self.command.is_empty() {
            let command = || -> Result<Command, Failure> {
                let (program, args) = self.command.split_first().ok_or("no command")?;
                let mut command = Command::new(program);
                command.args(args).envs(pcp_view::trial(scratch)?);
                Ok(command)
            };
            let names = self.pmns.clone().map_or_else(|| own_names(command()?, scratch), Ok)?;
            plans.push(Plan::with_names(command()?, &names, scratch)?);
        }
        Ok(plans)
    }
}

/// Makes an agent of this framework write its directory. Returns the file of its names.
fn own_names(mut write: Command, scratch: &Path) -> Result<PathBuf, Failure> {
    let dir = scratch.join("written");
    let ended =
        write.arg("--write-pmda").arg(&dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let program = write.get_program().display();
    match ended {
        Err(e) => Err(format!("{program}: {e}").into()),
        Ok(status) if status.success() && dir.join("root").exists() => Ok(dir.join("root")),
        Ok(_) => Err(format!("{program} is not an agent of this framework: give its names with --pmns FILE").into()),
    }
}
