//! Option `--check`: binds a configuration to the metrics of its pmcds and agents, and prints the outcome, without
//! running as an agent.

use std::collections::HashSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use pcp_client::{Context, HostSpec, Settings};
use pcp_derived::{Descs, Evaluator, Live, Plan};
use pmapi::Domain;
use pmda::clap::ArgMatches;

use crate::config::{Config, GroupConfig, NameSpace, Operands, Place, Problem, ROOT};
use crate::operands::Source as _;
use crate::operands::agents::{Agents, Pool};
use crate::report::{Report, Sampling};

/// Longest time that agents may take to start, and to answer the requests of one sample.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs the option `--check`, and returns the exit code: 1 if the configuration has problems other than warnings.
/// Returns `None` without the option.
pub(crate) fn check(given: &ArgMatches, domain: Domain) -> Option<ExitCode> {
    let (path, host): (&String, &HostSpec) = (given.get_one("check")?, given.get_one("host")?);
    let sampling = Sampling { count: *given.get_one("samples")?, interval: *given.get_one("interval")? };
    let mut config = Config::load(path, host, &NameSpace::installed(domain));
    let mut report = Report::new(&mut config);
    for group in config.groups.iter().filter(|group| !group.definitions.is_empty()) {
        add(&mut report, group, sampling);
    }
    Some(if report.print(given.get_flag("tsv")) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Adds the definitions of a group to the report.
fn add(report: &mut Report, group: &GroupConfig, sampling: Sampling) {
    let definitions = &group.definitions;
    match &group.operands {
        Operands::Host(host) => match metrics_of(host, group) {
            Ok((mut names, mut live)) => {
                let evaluator = Evaluator::bind(definitions, &mut names, group.unknown_names());
                let start = Instant::now();
                let take = |evaluator: &mut Evaluator, plan: &Plan, live: &mut Live| {
                    live.take(evaluator.operands_of(plan)).map(|_| start.elapsed())
                };
                report.definitions(group, evaluator, sampling, &mut live, take, |_, _| ());
            }
            Err(e) => {
                let place = Place { file: host.to_string().into(), line: 0 };
                report.problem(Problem { place, definition: None, text: e.to_string() });
            }
        },
        Operands::Agents(specs) => {
            let mut agents = Agents::new(Pool::default().fleet(specs), PATIENCE);
            // Their failures are problems, and errors in place of values.
            let names = agents.connect().and_then(|_| agents.names(Descs::default(), definitions));
            for (subject, text) in agents.problems() {
                let place = Place { file: subject.into(), line: 0 };
                report.problem(Problem { place, definition: None, text });
            }
            let evaluator = Evaluator::bind(definitions, &mut names.unwrap_or_default(), group.unknown_names());
            let start = Instant::now();
            let take = |evaluator: &mut Evaluator, plan: &Plan, agents: &mut Agents| {
                agents.take(evaluator, plan).map(|_| start.elapsed())
            };
            report.definitions(group, evaluator, sampling, &mut agents, take, |_, _| ());
        }
    }
}

/// Connects to a pmcd and looks up the metrics that a group refers to. Leaves out the group's own metrics, which pmcd
/// has if the agent is running.
fn metrics_of(host: &HostSpec, group: &GroupConfig) -> pmapi::Result<(Descs, Live)> {
    let mut context = Context::new(host.clone(), Settings::default())?;
    let own: HashSet<String> = group.definitions.iter().map(|own| group.name_of(own.name())).collect();
    let names = group.definitions.iter().flat_map(|definition| definition.names());
    let others = names.filter(|name| name.split('.').next() != Some(ROOT) && !own.contains(*name));
    let names = Descs::lookup(&mut context, others)?;
    Ok((names, Live::new(context)))
}
