//! `dbpmda check`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;
use pmapi::escape::Escaped;
use pmapi::{Domain, PmId};
use pmda::collector::{Address, Launch};
use pmda::dso::SharedObject;
use pmns::cli::Program;

use super::{Finding, Limits, Rule, check};

/// Asks an agent everything that its name space has, and reports what breaks the rules of the protocol
/// and of PCP: a line for each, with the rule, what breaks it, and how.
///
/// Without --store nothing is stored. The exit code is 0 if all is well, 1 if rules are broken, 2 if the agent cannot
/// be asked.
#[derive(Parser)]
#[command(name = "dbpmda check", after_long_help = rules())]
struct Args {
    /// Names of metrics from this file, instead of the default name space.
    #[arg(short, long, value_name = "FILE")]
    namespace: Option<PathBuf>,
    /// Only names of this domain.
    #[arg(short, long)]
    domain: Option<u16>,
    /// An agent that listens on this socket.
    #[arg(long, value_name = "PATH", conflicts_with = "inet")]
    unix: Option<PathBuf>,
    /// An agent that listens on this port of this host.
    #[arg(long, value_name = "PORT")]
    inet: Option<u16>,
    /// An agent that is a shared object: its file and the name of its entry point.
    #[arg(long, value_names = ["FILE", "INIT"], num_args = 2, conflicts_with_all = ["inet", "unix"])]
    dso: Option<Vec<String>>,
    /// Seconds that an answer may take.
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0)]
    limit: f64,
    /// Seconds to wait for an answer before giving up.
    #[arg(short, long, value_name = "SECONDS", default_value_t = 5.0)]
    timeout: f64,
    /// Store values that an agent has to refuse. One that takes them is not what it was before.
    #[arg(short, long)]
    store: bool,
    /// An agent that talks over its standard input and output, with its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required_unless_present_any = ["unix", "inet", "dso"])]
    agent: Vec<OsString>,
}

fn rules() -> String {
    let lines = Rule::ALL.iter().map(|rule| format!("  {:20}{}\n", rule.name(), rule.about()));
    format!("Rules:\n{}", lines.collect::<String>())
}

/// Runs the command: the arguments begin with its name.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let program = Program::new("", 2);
    let args = match Args::try_parse_from(arguments) {
        Ok(args) => args,
        Err(e) => e.exit(),
    };
    try_run(&args, &program).unwrap_or_else(|code| code)
}

fn try_run(args: &Args, program: &Program) -> Result<ExitCode, ExitCode> {
    let names = names(args, program)?;
    let seconds = |of: f64| Duration::try_from_secs_f64(of).map_err(|e| program.fail(format_args!("{of}: {e}")));
    let limits = Limits { answer: seconds(args.limit)?, timeout: seconds(args.timeout)?, stores: args.store };
    if let Some([file, init]) = args.dso.as_deref() {
        let domain = names.first().map(|(_, pmid)| pmid.dynamic_root().unwrap_or(pmid.domain()));
        let domain = domain.ok_or_else(|| program.fail("no names"))?;
        let agent = SharedObject::collector(file.as_ref(), init, domain).map_err(|e| program.fail(e))?;
        return Ok(report(&check(agent, &names, limits)));
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
    Ok(report(&check(agent, &names, limits)))
}

fn report(findings: &[Finding]) -> ExitCode {
    for finding in findings {
        println!("{}", Escaped(finding));
    }
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// The names to ask for: of a single domain.
fn names(args: &Args, program: &Program) -> Result<Vec<(String, PmId)>, ExitCode> {
    let tree = program.load(args.namespace.as_deref(), false)?;
    let domain = |pmid: PmId| pmid.dynamic_root().unwrap_or(pmid.domain());
    let wanted = match args.domain {
        None => None,
        Some(domain) => Some(Domain::new(domain).ok_or_else(|| program.fail(format_args!("{domain} is no domain")))?),
    };
    let leaves = tree.root().leaves().filter_map(|node| Some((node.path(), node.pmid()?)));
    let names: Vec<_> = leaves.filter(|(_, pmid)| wanted.is_none_or(|wanted| domain(*pmid) == wanted)).collect();
    match names.iter().map(|(_, pmid)| domain(*pmid)).collect::<std::collections::BTreeSet<_>>().len() {
        0 => Err(program.fail("no names of that domain")),
        1 => Ok(names),
        count => Err(program.fail(format_args!("names of {count} domains: which one, with -d?"))),
    }
}
