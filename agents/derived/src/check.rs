//! Options `--check` and `--write`: bind a configuration and print the outcome, without running as an agent.

use std::collections::HashSet;
use std::fmt;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use pcp_archive::Archive;
use pcp_client::{Context, HostSpec, Settings};
use pcp_derive::{Column, Descs as HostDescs, Evaluator, Live, Plan, Source};
use pcp_pdu::desc::RawDesc;
use pcp_pdu::print::Print;
use pmapi::{Atom, Desc, Domain, Error, Inst, escape};
use pmda::clap::ArgMatches;

use crate::config::{Config, GroupConfig, NameSpace, Operands, Place, Problem, ROOT};
use crate::operands::agents::Agents;
use crate::recorded::{Descs, Recorded, Step, Wanted};
use crate::{metrics, write};

/// Longest time that agents may take to start, and to answer the requests of one sample.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs the options `--check` and `--write`, and returns the exit code. Returns `None` without them.
///
/// The exit code is 1 if the configuration has problems other than warnings, or the archive cannot be read or written.
pub(crate) fn check(given: &ArgMatches, domain: Domain) -> Option<ExitCode> {
    let ended = match (given.contains_id("write"), given.contains_id("check")) {
        (true, _) => write::run(given, domain),
        (_, true) => report(given, domain),
        _ if given.contains_id("archive") => {
            escape::eprint("pmdaderived: --archive needs --check or --write\n");
            None
        }
        _ => return None,
    };
    Some(ended.unwrap_or(ExitCode::FAILURE))
}

fn report(given: &ArgMatches, domain: Domain) -> Option<ExitCode> {
    let (path, host): (&String, &HostSpec) = (given.get_one("check")?, given.get_one("host")?);
    let names = NameSpace::installed(domain);
    let mut config = Config::load(path, host, &names);
    let sampling = Sampling { count: *given.get_one("samples")?, interval: *given.get_one("interval")? };
    let mut report = Report { lines: config.problems.drain(..).map(Line::Bad).collect() };
    let archive = match given.get_one::<String>("archive").map(Archive::open).transpose() {
        Ok(archive) => archive,
        Err(e) => {
            escape::eprint(format_args!("pmdaderived: {e}\n"));
            return None;
        }
    };
    archive.iter().for_each(write::warn_skipped);
    for group in config.groups.iter().filter(|group| !group.definitions.is_empty()) {
        match &archive {
            Some(archive) => report.recorded(group, sampling, archive),
            None => report.group(group, sampling),
        }
    }
    archive.iter().for_each(write::warn_skipped);
    report.lines.sort_by(|a, b| a.place().cmp(b.place()));
    let text: String = if given.get_flag("tsv") {
        report.lines.iter().filter_map(Line::tsv).collect()
    } else {
        report.lines.iter().map(|line| format!("{line}\n")).collect()
    };
    // It has names and values of any user's programs.
    escape::print(text);
    let bad = report.lines.iter().any(|line| matches!(line, Line::Bad(problem) if !problem.is_warning()));
    Some(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[derive(Clone, Copy)]
struct Sampling {
    count: u32,
    interval: Duration,
}

/// Lines to print, in the order of the configuration.
struct Report {
    lines: Vec<Line>,
}

enum Line {
    Good(Good),
    Bad(Problem),
}

/// Values with their instances.
type Shown = Vec<(Option<Instance>, String)>;

/// Definition that is a metric.
struct Good {
    place: Place,
    /// Name of the definition.
    name: String,
    shown: String,
    desc: Desc,
    /// Values, if samples are taken.
    values: Option<Result<Shown, Error>>,
}

impl Report {
    fn group(&mut self, group: &GroupConfig, sampling: Sampling) {
        let definitions = &group.definitions;
        match &group.operands {
            Operands::Host(host) => match metrics_of(host, group) {
                Ok((mut names, mut live)) => {
                    let evaluator = Evaluator::bind(definitions, &mut names, group.unknown_names());
                    let start = Instant::now();
                    let take = |evaluator: &mut Evaluator, plan: &Plan, live: &mut Live| {
                        live.take(evaluator.operands_of(plan)).map(|_| start.elapsed())
                    };
                    self.definitions(group, evaluator, sampling, &mut live, take, |_, _| ());
                }
                Err(e) => {
                    let place = Place { file: host.to_string().into(), line: 0 };
                    self.lines.push(Line::Bad(Problem { place, definition: None, text: e.to_string() }));
                }
            },
            Operands::Agents(specs) => {
                let mut agents = Agents::start(specs);
                agents.begin(Instant::now() + PATIENCE);
                agents.wait_for_start(Instant::now() + PATIENCE);
                for (name, why) in agents.problems() {
                    let place = Place { file: format!("agent {name}").into(), line: 0 };
                    self.lines.push(Line::Bad(Problem { place, definition: None, text: why.to_owned() }));
                }
                let evaluator = Evaluator::bind(definitions, &mut agents, group.unknown_names());
                let start = Instant::now();
                let take = |evaluator: &mut Evaluator, plan: &Plan, agents: &mut Agents| {
                    agents.begin(Instant::now() + PATIENCE);
                    // An agent that does not answer has an error in place of its values.
                    agents.take(evaluator.operands_of(plan));
                    Ok(start.elapsed())
                };
                self.definitions(group, evaluator, sampling, &mut agents, take, |_, _| ());
            }
        }
    }

    /// Evaluates a group over the first records of an archive that have any of its operands.
    fn recorded(&mut self, group: &GroupConfig, sampling: Sampling, archive: &Archive) {
        let evaluator = Evaluator::bind(&group.definitions, &mut Descs(archive), group.unknown_names());
        let sampling = Sampling { interval: Duration::ZERO, ..sampling };
        let mut wanted = Wanted::default();
        wanted.add(&evaluator, &evaluator.plan(evaluator.ids()));
        let take = |evaluator: &mut Evaluator, plan: &Plan, recorded: &mut Recorded<'_>| loop {
            match recorded.next(&wanted)? {
                Step::Values => return Ok(recorded.elapsed()),
                Step::Mark => evaluator.forget(plan),
                Step::End => return Err(Error::EOL),
            }
        };
        self.definitions(group, evaluator, sampling, &mut Recorded::new(archive), take, Recorded::go_back);
    }

    /// Samples a group by `take`, which returns the time of a sample, and adds its definitions. Each has the values of
    /// the last sample that had its operands. `go_back` sets the time of the source for the names of its instances.
    fn definitions<S: Source>(
        &mut self,
        group: &GroupConfig,
        mut evaluator: Evaluator,
        sampling: Sampling,
        source: &mut S,
        take: impl Fn(&mut Evaluator, &Plan, &mut S) -> Result<Duration, Error>,
        go_back: impl Fn(&mut S, Duration),
    ) {
        let plan = evaluator.plan(evaluator.ids());
        let mut outcome = Ok(());
        let mut last: Vec<(Duration, Result<Column, Error>)> = Vec::new();
        last.resize_with(evaluator.len(), || (Duration::ZERO, Ok(Column::default())));
        for sample in 0..sampling.count {
            sleep(if sample > 0 { sampling.interval } else { Duration::ZERO });
            match take(&mut evaluator, &plan, source) {
                Ok(time) => {
                    outcome = Ok(());
                    evaluator.evaluate(&plan, time, source);
                    let current = last.iter_mut().zip(evaluator.ids()).filter(|(_, id)| evaluator.is_current(*id));
                    current.for_each(|(last, id)| *last = (time, evaluator.values(id).cloned()));
                }
                // The archive has fewer samples.
                Err(Error::EOL) if sample > 0 => break,
                Err(e) => outcome = Err(e),
            }
        }
        for (id, definition, desc) in metrics::shown(group, &evaluator) {
            let name = definition.name();
            match desc {
                Ok(desc) => {
                    let Some((time, values)) = last.get(id.index()) else { continue };
                    go_back(source, *time);
                    let values = outcome.and(values.as_ref().map_err(|e| *e));
                    let values = (sampling.count > 0).then(|| values.map(|values| shown(values, &desc, source)));
                    let Some(place) = group.place(name).cloned() else { continue };
                    let good = Good { place, name: name.to_owned(), shown: group.name_of(name), desc, values };
                    self.lines.push(Line::Good(good));
                }
                Err(problem) => self.lines.push(Line::Bad(problem)),
            }
        }
    }
}

/// Connects to a pmcd and looks up the metrics that a group refers to. Leaves out the group's own metrics, which pmcd
/// has if the agent is running.
fn metrics_of(host: &HostSpec, group: &GroupConfig) -> pmapi::Result<(HostDescs, Live)> {
    let mut context = Context::new(host.clone(), Settings::default())?;
    let own: HashSet<String> = group.definitions.iter().map(|own| group.name_of(own.name())).collect();
    let names = group.definitions.iter().flat_map(|definition| definition.names());
    let others = names.filter(|name| name.split('.').next() != Some(ROOT) && !own.contains(*name));
    let names = HostDescs::lookup(&mut context, others)?;
    Ok((names, Live::new(context)))
}

/// Formats values as pminfo does, each with its instance.
fn shown(values: &Column, desc: &Desc, source: &mut impl Source) -> Shown {
    let mut shown = Vec::with_capacity(values.len());
    for (inst, value) in values.iter() {
        let mut name = Vec::new();
        if let (Some(indom), Some(inst)) = (desc.indom, inst) {
            // Without a name the instance is printed as `???`.
            let _ = source.instance_name(indom, inst, &mut name);
        }
        let instance = inst.map(|inst| Instance { inst, name: String::from_utf8_lossy(&name).into_owned() });
        let text = match value {
            Atom::String(text) => format!("\"{}\"", String::from_utf8_lossy(text)),
            value => Print::new(value, 1).to_string(),
        };
        shown.push((instance, text));
    }
    shown
}

struct Instance {
    inst: Inst,
    name: String,
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => f.write_str("???"),
            name => write!(f, "\"{name}\""),
        }
    }
}

impl Line {
    fn place(&self) -> &Place {
        match self {
            Line::Good(good) => &good.place,
            Line::Bad(problem) => &problem.place,
        }
    }

    /// Formats the line for `--tsv`: the definition's name, `OK` and the metric, or `ERR` with kind and text of the
    /// error. Returns `None` for warnings, and for problems that are not about a definition.
    fn tsv(&self) -> Option<String> {
        match self {
            Line::Good(good) => Some(good.tsv()),
            Line::Bad(problem) => {
                if problem.is_warning() {
                    return None;
                }
                let mut lines = problem.text.lines();
                let (kind, text) = match problem.text.split_once(": ").unwrap_or_default() {
                    ("Semantic error", text) => ("semantic", text.split_once(": ").unwrap_or_default().1.to_owned()),
                    (_, text) if text.lines().next().unwrap_or_default().ends_with("syntax error") => {
                        let mut lines = lines.by_ref().skip(2);
                        let column = lines.next().and_then(|line| line.find('^')).map_or(-1, |at| at as i64);
                        ("syntax", format!("col {column}: {}", lines.next().unwrap_or_default()))
                    }
                    (_, text) => ("other", text.replace('\n', " ")),
                };
                Some(format!("{}\tERR\t{kind}\t{text}\n", problem.definition.as_ref()?))
            }
        }
    }
}

impl Good {
    fn units(&self) -> String {
        if self.desc.units.is_dimensionless() { "none".to_owned() } else { self.desc.units.to_string() }
    }

    fn tsv(&self) -> String {
        let (ty, indom) = (self.desc.ty.description(), if self.desc.indom.is_some() { "SET" } else { "NULL" });
        let mut line = format!("{}\tOK\ttype={ty} indom={indom} sem={} ", self.name, self.desc.semantics);
        line.extend(["units=", &self.units()]);
        match &self.values {
            None => {}
            Some(Err(e)) => line.push_str(&format!("\tE:Error: {e}")),
            Some(Ok(values)) => {
                let mut separator = "\t{";
                for (instance, value) in values {
                    let instance = instance.as_ref().map_or("\"\"".to_owned(), Instance::to_string);
                    line.extend([separator, &instance, "=", value]);
                    separator = ",";
                }
                line.push_str(if values.is_empty() { "\t{}" } else { "}" });
            }
        }
        line + "\n"
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Good(good) => good.fmt(f),
            Line::Bad(problem) => problem.fmt(f),
        }
    }
}

/// Prints the metric as `pminfo -d` and `pminfo -f` do.
impl fmt::Display for Good {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.shown, RawDesc::from(self.desc))?;
        match &self.values {
            None => Ok(()),
            Some(Err(e)) => write!(f, "\nError: {e}"),
            Some(Ok(values)) if values.is_empty() => f.write_str("\nNo value(s) available!"),
            Some(Ok(values)) => values.iter().try_for_each(|(instance, value)| match instance {
                None => write!(f, "\n    value {value}"),
                Some(instance) => write!(f, "\n    inst [{} or {instance}] value {value}", instance.inst),
            }),
        }
    }
}
