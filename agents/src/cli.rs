//! The command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use pmapi::{Config, interval};
use pmda::Failure;

use crate::builtin;
use crate::fleet::Plan;

/// Starts agents over pipes, as pmcd does, and shows their live metrics
///
/// In a terminal the values are refreshed until q or Ctrl-C; otherwise two samples are printed. The
/// agents are processes of their own with their files in a temporary directory. No PCP is needed, and
/// an installed one is left alone.
#[derive(Parser, Debug)]
#[command(name = "pcp-agents", after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Agents to start [default: all but trace, which needs a port]
    #[arg(value_name = "AGENT", value_parser = names())]
    agents: Vec<String>,

    /// Time between samples: seconds, or with units such as 500msec
    #[arg(short = 't', long, value_name = "TIME", default_value = "1", value_parser = interval_of)]
    pub(crate) interval: Duration,

    /// End after N samples, 0 for never [default: 2; in a terminal never]
    #[arg(short, long, value_name = "N")]
    pub(crate) samples: Option<u64>,

    /// Print plain text even in a terminal
    #[arg(long)]
    pub(crate) plain: bool,

    /// Print JSON: a line for each metric in each sample
    #[arg(long, conflicts_with = "plain")]
    pub(crate) json: bool,

    /// Name space of COMMAND's metrics, see PMNS(5)
    #[arg(long, value_name = "FILE", requires = "command")]
    pmns: Option<PathBuf>,

    /// Start another agent, in any language, by its command line
    #[arg(last = true, value_name = "COMMAND", requires = "pmns")]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "Examples:
  pcp-agents simple
  pcp-agents --json -s 0 | jq -c '[.metric, .values]'
  pcp-agents --pmns /var/lib/pcp/pmdas/simple/root -- /var/lib/pcp/pmdas/simple/pmdasimple -d 253";

fn names() -> PossibleValuesParser {
    builtin::AGENTS.iter().map(|agent| agent.name).collect::<Vec<_>>().into()
}

fn interval_of(text: &str) -> Result<Duration, String> {
    let interval = interval::parse(text).map_err(|e| e.to_string())?;
    if interval < Duration::from_millis(10) { Err("less than 10 milliseconds".to_owned()) } else { Ok(interval) }
}

impl Options {
    /// The agents to start, with their files under `scratch`.
    pub(crate) fn plans(&self, scratch: &Path) -> Result<Vec<Plan>, Failure> {
        let mut plans = Vec::new();
        for agent in builtin::AGENTS {
            let all = self.agents.is_empty() && self.command.is_empty();
            if all && agent.by_default || self.agents.iter().any(|name| name == agent.name) {
                plans.push(builtin::plan(agent, scratch).map_err(|e| format!("{}: {e}", agent.name))?);
            }
        }
        if let Some(path) = &self.pmns {
            let include = Config::load().var_dir().join("pmns");
            let names = pmns::Loader::new().include_dir(include).load(path).map_err(|e| e.to_string())?;
            plans.push(builtin::foreign(&self.command, names, scratch)?);
        }
        Ok(plans)
    }
}
