//! What the definitions of a configuration are: descriptors and values, or the reasons why there are none.

use std::fmt;
use std::thread::sleep;
use std::time::Duration;

use pcp_base::escape;
use pcp_derived::{Column, Evaluator, Plan, Source};
use pcp_pdu::desc::RawDesc;
use pcp_pdu::print::Print;
use pmapi::{Atom, Desc, Error, Inst};

use crate::config::{Config, GroupConfig, Place, Problem};
use crate::metrics;

/// Number of samples to take, and the time between them.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// Number of samples. With 0, the report has descriptors and no values.
    pub count: u32,
    /// Time between samples.
    pub interval: Duration,
}

/// Lines to print about a configuration, in its order.
#[derive(Debug)]
pub struct Report {
    lines: Vec<Line>,
}

#[derive(Debug)]
enum Line {
    Good(Good),
    Bad(Problem),
}

/// Values with their instances.
type Shown = Vec<(Option<Instance>, String)>;

/// Definition that is a metric.
#[derive(Debug)]
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
    /// Creates a report of the problems of a configuration, and removes them from it.
    pub fn new(config: &mut Config) -> Report {
        Report { lines: config.problems.drain(..).map(Line::Bad).collect() }
    }

    /// Adds a problem.
    pub fn problem(&mut self, problem: Problem) {
        self.lines.push(Line::Bad(problem));
    }

    /// Prints the lines, with `tsv` as tab-separated fields. Returns whether there are no problems other than warnings.
    pub fn print(mut self, tsv: bool) -> bool {
        self.lines.sort_by(|a, b| a.place().cmp(b.place()));
        let text: String = if tsv {
            self.lines.iter().filter_map(Line::tsv).collect()
        } else {
            self.lines.iter().map(|line| format!("{line}\n")).collect()
        };
        // It has names and values of any user's programs.
        escape::print(text);
        !self.lines.iter().any(|line| matches!(line, Line::Bad(problem) if !problem.is_warning()))
    }

    /// Samples a group by `take`, which returns the time of a sample, and adds its definitions. Each has the values of
    /// the last sample that had its operands. `go_back` sets the time of the source for the names of its instances.
    ///
    /// After `PM_ERR_EOL` of `take` there are no more samples. Any other error stands in place of all values.
    pub fn definitions<S: Source>(
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

#[derive(Debug)]
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
