//! Option `--check`: shows the metrics of a document, and the lines that are refused with the reasons, without running
//! as an agent. Nothing is written.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use pcp_base::{escape, file};
use pmapi::{Atom, Item, Units};

use crate::document::{Coding, Document, Unreadable, decoded};
use crate::http::{Client, LATE, Means};
use crate::metric::{Likeness, Metric, Refused, Sample, Shape};
use crate::model::Model;
use crate::options::Options;
use crate::reader::local;
use crate::runtime::{self, Slow};
use crate::script::{self, Bounds};
use crate::url_file::{Limits, Rules, UrlFile, presentable};

/// Largest number of values printed for a metric.
const VALUES: usize = 5;
/// Largest number of refused lines that are printed.
const LINES: usize = 20;

/// Runs the option `--check`. The exit code is 1 if there is no document, a line is refused, or something is left out.
pub(crate) fn check(subject: &str, options: &Options) -> ExitCode {
    match report(subject, options) {
        Ok((text, code)) => {
            // It has texts of the server.
            escape::print(text);
            code
        }
        Err(reason) => {
            escape::eprint(format_args!("pmdaopenmetrics: {reason}\n"));
            ExitCode::FAILURE
        }
    }
}

fn report(subject: &str, options: &Options) -> Result<(String, ExitCode), String> {
    let Source { document, rules, shown, limits, coding } = Source::read(subject, options)?;
    let text = document.into_text(coding.charset).map_err(|full| full.of(""))?;
    let instances = limits.instances.unwrap_or_else(|| options.instances());
    let read = |likeness| {
        let mut model = Model::unsaved("SOURCE".into(), instances);
        (model.likeness, model.reasons) = (likeness, LINES);
        model.read(&text, &rules)
    };
    let sample = read(Likeness::Better);
    let mut out = format!("{shown}: {} bytes, {} lines with values", sample.bytes, sample.lines);
    let _ = writeln!(out, ", {} metrics, parsed in {:?}", sample.metrics.len(), sample.parsing);
    for metric in sample.metrics.iter() {
        describe(&mut out, metric, &sample);
    }
    if sample.left_out > 0 {
        let _ = writeln!(out, "\n{} metrics and instances are left out: there are too many", sample.left_out);
    }
    refusals(&mut out, &sample.refused, &read(Likeness::Exact).refused);
    let is_whole = sample.left_out == 0 && sample.refused.count == 0;
    Ok((out, if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

/// Writes the lines that are refused, and what PCP's agent does with the document.
fn refusals(out: &mut String, refused: &Refused, by_pcp: &Refused) {
    if refused.count == 0 {
        return;
    }
    let _ = writeln!(out);
    for (line, reason) in &refused.first {
        let _ = writeln!(out, "line {line} is refused: {reason}");
    }
    let more = refused.count.saturating_sub(refused.first.len() as u64);
    if more > 0 {
        let _ = writeln!(out, "and {more} more lines are refused");
    }
    let _ = match by_pcp.first.first() {
        Some((line, _)) => writeln!(out, "PCP's agent would read neither line {line} nor any line after it."),
        None => writeln!(out, "PCP's agent would read all lines, and have no value or an arbitrary one for these."),
    };
}

/// Writes the description of a metric, and some of its values.
fn describe(out: &mut String, metric: &Metric, sample: &Sample) {
    let item = Item::try_new(1, metric.number);
    let indom = if metric.instances().is_none() { "no instances" } else { "with instances" };
    let number = item.map(Item::item).unwrap_or_default();
    let _ = writeln!(out, "\nopenmetrics.SOURCE.{} (item {number}) [{}]", metric.name, metric.oneline);
    let units = if metric.units == Units::NONE { "none".to_owned() } else { metric.units.to_string() };
    let _ = writeln!(out, "    {}, {}, {indom}, units {units}", metric.ty, metric.semantics);
    let value = |slot: usize| match sample.values.get(slot).and_then(|value| value.atom()) {
        None => "no value".to_owned(),
        Some(Err(e)) => format!("no value: {e}"),
        Some(Ok(Atom::Double(number))) => number.to_string(),
        Some(Ok(atom)) => atom.to_string(),
    };
    let instances = match &metric.shape {
        Shape::Singular(slot) => {
            let _ = writeln!(out, "    value {}", value(*slot as usize));
            return;
        }
        Shape::Plural(instances) => instances,
    };
    let all = instances.slots().count();
    for (inst, slot) in instances.slots().take(VALUES) {
        let name = instances.names.get(inst.word() as usize).map_or("", |name| name);
        let _ = writeln!(out, "    inst [{inst} or {name:?}] value {}", value(slot));
    }
    if all > VALUES {
        let _ = writeln!(out, "    and {} more instances", all - VALUES);
    }
}

/// A document, and the rules for it.
struct Source {
    document: Document,
    coding: Coding,
    rules: Rules,
    limits: Limits,
    /// Name of the document, without secrets.
    shown: String,
}

impl Source {
    /// Reads a document: from a URL, a `.url` file or a script, or from a file that is itself the document.
    fn read(subject: &str, options: &Options) -> Result<Source, String> {
        if subject.contains("://") {
            let file = UrlFile::parse(subject).map_err(|(_, reason)| reason)?;
            return Source::of(file, options);
        }
        let path = Path::new(subject);
        let failed = |e: std::io::Error| format!("{subject}: {e}");
        if path.extension().is_some_and(|end| end == "url") {
            let text = file::read(path, options.bytes()).map_err(failed)?;
            let file = UrlFile::parse(&String::from_utf8_lossy(&text));
            let file = file.map_err(|(line, reason)| format!("{subject}: line {line}: {reason}"))?;
            for (line, warning) in &file.warnings {
                escape::eprint(format_args!("{subject}: line {line}: {warning}\n"));
            }
            return Source::of(file, options);
        }
        let shown = subject.to_owned();
        let is_script = std::os::unix::fs::MetadataExt::mode(&path.metadata().map_err(failed)?) & 0o100 != 0;
        if is_script {
            return Source::of_script(&path.canonicalize().map_err(failed)?, options, shown);
        }
        let document = local(path, Document::new(&options.permits(), options.bytes(), 0))?;
        Ok(Source { document, coding: Coding::default(), rules: Rules::default(), limits: Limits::default(), shown })
    }

    fn of_script(path: &Path, options: &Options, shown: String) -> Result<Source, String> {
        let beside = path.with_extension("conf");
        let text = match file::read(&beside, options.bytes()) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(format!("{}: {e}", beside.display())),
            text => text.unwrap_or_default(),
        };
        let UrlFile { rules, limits, warnings, .. } = UrlFile::parse_script(&String::from_utf8_lossy(&text))
            .map_err(|(line, reason)| format!("{}: line {line}: {reason}", beside.display()))?;
        for (line, warning) in warnings {
            escape::eprint(format_args!("{}: line {line}: {warning}\n", beside.display()));
        }
        let time = limits.timeout.unwrap_or_else(|| options.script_timeout());
        let bounds =
            Bounds { permits: &options.permits(), time, bytes: limits.bytes.unwrap_or_else(|| options.bytes()) };
        let output = runtime::run(script::run(path, &bounds, || async { true })).map_err(|e| e.to_string())?;
        let output = output.map_err(|failure| format!("{shown}: {}", failure.reason))?;
        escape::eprint(String::from_utf8_lossy(&output.errors));
        Ok(Source { document: output.document, coding: Coding::default(), rules, limits, shown })
    }

    fn of(file: UrlFile, options: &Options) -> Result<Source, String> {
        let shown = presentable(&file.url);
        let limit = file.limits.bytes.unwrap_or_else(|| options.bytes());
        let permits = options.permits();
        let (document, coding) = if let Some(path) = file.url.strip_prefix("file://") {
            (local(path.as_ref(), Document::new(&permits, limit, 0))?, Coding::default())
        } else {
            let deadline = Instant::now() + file.limits.timeout.unwrap_or_else(|| options.timeout());
            let failed = |reason: String| format!("{shown}: {reason}");
            let authorization = file.access.authorization().map_err(failed)?;
            let mut means = Means { permits: &permits, slow: &mut Slow::default(), deadline, bytes: limit, usual: 0 };
            let mut client = Client::new(&file).map_err(failed)?;
            let answer = runtime::run(client.get(&file, authorization, &mut means)).map_err(|e| e.to_string())?;
            let answer = answer.map_err(|failure| failed(failure.reason))?;
            let document = decoded(answer.document, &answer.coding, deadline).map_err(|e| match e {
                Unreadable::Late => failed(LATE.to_owned()),
                Unreadable::Other(reason) => failed(reason),
            });
            (document?, answer.coding)
        };
        Ok(Source { document, coding, rules: file.rules, limits: file.limits, shown })
    }
}
