//! Command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Parser;
use clap::builder::PossibleValuesParser;
use pcp_view::{Plan, ViewOptions};
use pmda::Failure;

use crate::builtin;

/// Starts agents over pipes, as pmcd does, and shows their live metrics
///
/// In a terminal the values are refreshed until q or Ctrl-C. Elsewhere two samples are printed. Agents run
/// as processes with their files in a temporary directory. PCP is not needed, and an installed PCP is not
/// changed.
#[derive(Parser, Debug)]
#[command(name = "pcp-agents", version, after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Agents to start [default: all but trace, which needs a port]
    #[arg(value_name = "AGENT", value_parser = names())]
    agents: Vec<String>,

    #[command(flatten)]
    pub(crate) view: ViewOptions,

    /// File with the names of COMMAND's metrics, see PMNS(5). An agent of this framework writes them itself
    #[arg(long, value_name = "FILE", requires = "command")]
    pmns: Option<PathBuf>,

    /// Command line of another agent, in any language
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "Examples:
  pcp-agents simple
  pcp-agents --json -s 0 | jq -c '[.metric, .values]'
  pcp-agents -- target/release/pmdahello
  pcp-agents --pmns /var/lib/pcp/pmdas/simple/root -- /var/lib/pcp/pmdas/simple/pmdasimple -d 253";

fn names() -> PossibleValuesParser {
    builtin::AGENTS.iter().map(|agent| agent.name).collect::<Vec<_>>().into()
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
            plans.push(match &self.pmns {
                Some(names) => Plan::with_names(&self.command, names, scratch)?,
                None => Plan::own(&self.command, scratch)
                    .map_err(|e| format!("{e}; --pmns FILE names the metrics of any agent"))?,
            });
        }
        Ok(plans)
    }
}
