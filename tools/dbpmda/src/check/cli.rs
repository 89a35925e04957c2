//! Command `dbpmda check`.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::{CommandFactory as _, Parser};
use pcp_base::escape::Escaped;
use pcp_base::file;
use pcp_collector::{Address, Launch, SharedObject};
use pcp_tools::{PmIds, Program};
use pmapi::{Domain, PmId};

use super::log::panics;
use super::{Limits, Report, Rule, check};

/// Exit code of a check that cannot begin.
const FAILURE: u8 = 2;

/// Check an agent against the rules of the protocol and of PCP.
///
/// Sends the agent all requests about the metrics of its name space. Prints a line for each breach of a rule: the rule,
/// the metric or instance domain or request, and a description. The last line has the number of metrics and values that
/// were checked.
///
/// Without --store, nothing is stored. The exit code is 0 if no rule is broken, 1 if rules are broken, 2 if the check
/// cannot begin.
#[derive(Parser)]
#[command(name = "dbpmda check", bin_name = "dbpmda check", version = version(), after_long_help = rules())]
struct Args {
    /// File with the names of metrics, instead of the default name space.
    #[arg(short, long, value_name = "FILE")]
    namespace: Option<PathBuf>,
    /// Check only the names of this domain.
    #[arg(short, long)]
    domain: Option<u16>,
    /// Connect to an agent that listens on this Unix domain socket.
    #[arg(long, value_name = "PATH", conflicts_with = "inet")]
    unix: Option<PathBuf>,
    /// Connect to an agent that listens on this port of the local host.
    #[arg(long, value_name = "PORT")]
    inet: Option<u16>,
    /// Load an agent from a shared object: its file and the name of its entry point.
    #[arg(long, value_names = ["FILE", "INIT"], num_args = 2, conflicts_with_all = ["inet", "unix"])]
    dso: Option<Vec<String>>,
    /// Seconds that an answer may take.
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0)]
    limit: f64,
    /// Seconds to wait for an answer before giving up.
    #[arg(short, long, value_name = "SECONDS", default_value_t = 5.0)]
    timeout: f64,
    /// Store values that the agent must refuse. If it accepts them, the check changes the agent.
    #[arg(short, long)]
    store: bool,
    /// Look for panics in this log of the agent after the check.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Start an agent that talks over its standard input and output, with its arguments.
    #[arg(trailing_var_arg = true, required_unless_present_any = ["unix", "inet", "dso"],
        conflicts_with_all = ["unix", "inet", "dso"])]
    agent: Vec<OsString>,
}

fn version() -> String {
    pcp_base::build::version(env!("CARGO_PKG_VERSION"))
}

fn rules() -> String {
    let lines = Rule::ALL.iter().map(|rule| format!("  {:20}{}\n", rule.name(), rule.about()));
    format!("Rules:\n{}", lines.collect::<String>())
}

/// Returns the command line of `dbpmda check`.
pub fn command() -> clap::Command {
    Args::command()
}

/// Runs `dbpmda check`. The first of `arguments` is the name of the command.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let program = Program::new("", FAILURE);
    let args = match Args::try_parse_from(arguments) {
        Ok(args) => args,
        Err(e) => return pmda::host::print_clap_error(e, FAILURE),
    };
    try_run(&args, &program).unwrap_or_else(|code| code)
}

#[allow(unsafe_code, reason = "the agent may be a shared object")]
fn try_run(args: &Args, program: &Program) -> Result<ExitCode, ExitCode> {
    let names = names(args, program)?;
    let seconds = |of: f64| Duration::try_from_secs_f64(of).map_err(|e| program.fail(format_args!("{of}: {e}")));
    let limits = Limits { answer: seconds(args.limit)?, timeout: seconds(args.timeout)?, stores: args.store };
    if let Some([file, init]) = args.dso.as_deref() {
        let domain = names.first().map(|(_, pmid)| pmid.dynamic_root().unwrap_or(pmid.domain()));
        let domain = domain.ok_or_else(|| program.fail("no names"))?;
        // SAFETY: the user of dbpmda asks for the code of this file to be run.
        let agent = unsafe { SharedObject::collector(file.as_ref(), init, domain) }.map_err(|e| program.fail(e))?;
        return complete(check(agent, &names, limits), args, program);
    }
    let launch = match (&args.unix, args.inet, &*args.agent) {
        (Some(path), ..) => Launch::socket(Address::Unix(path.clone())),
        (_, Some(port), _) => Launch::socket(Address::Inet(port)),
        (.., [binary, rest @ ..]) => {
            let mut command = Command::new(binary);
            command.args(rest);
            Launch::pipe(command)
        }
        _ => return Err(program.fail("no agent")),
    };
    let agent = launch.handshake_timeout(Some(limits.timeout)).start().map_err(|e| program.fail(e))?;
    complete(check(agent, &names, limits), args, program)
}

/// Adds the panics in the agent's log to a report, and prints it.
fn complete(mut report: Report, args: &Args, program: &Program) -> Result<ExitCode, ExitCode> {
    if let Some(path) = &args.log {
        let log = file::read_input(path, file::TEXT_LIMIT)
            .map_err(|e| program.fail(format_args!("{}: {e}", path.display())))?;
        report.findings.extend(panics(&String::from_utf8_lossy(&log)));
    }
    Ok(print(&report))
}

/// Prints a report. Failed output, as into a closed pipe, does not change the exit code.
fn print(report: &Report) -> ExitCode {
    let mut out = std::io::stdout().lock();
    for finding in &report.findings {
        let _ = writeln!(out, "{}", Escaped(finding));
    }
    let _ = writeln!(out, "{report}");
    if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// Returns the names to check, all of one domain.
fn names(args: &Args, program: &Program) -> Result<Vec<(String, PmId)>, ExitCode> {
    let tree = program.load(args.namespace.as_deref(), PmIds::Shared)?;
    let domain = |pmid: PmId| pmid.dynamic_root().unwrap_or(pmid.domain());
    let wanted = match args.domain {
        None => None,
        Some(domain) => Some(Domain::new(domain).ok_or_else(|| program.fail(format_args!("{domain}: not a domain")))?),
    };
    let leaves = tree.root().leaves().filter_map(|node| Some((node.path(), node.pmid()?)));
    let names: Vec<_> = leaves.filter(|(_, pmid)| wanted.is_none_or(|wanted| domain(*pmid) == wanted)).collect();
    match names.iter().map(|(_, pmid)| domain(*pmid)).collect::<std::collections::BTreeSet<_>>().len() {
        0 => Err(program.fail("the name space has no names to check")),
        1 => Ok(names),
        count => Err(program.fail(format_args!("the name space has names of {count} domains: choose one with -d"))),
    }
}
