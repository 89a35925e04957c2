//! Derived metrics over archives compared with libpcp, record by record. Here all of them are fetched together, in libpcp
//! only those with the same operands: it loses differences in a record that lacks an operand.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pcp_context::Context;
use pcp_derived::{Definitions, Scope};
use pmapi::{Atom, Converted, Desc, OptionWord as _, PmId, Semantics, Type};
use testkit::{Pcp, Version};

/// Largest number of an archive's metrics that expressions use.
const METRICS: usize = 60;
/// Largest total size of an archive's files, in bytes.
const SMALL: u64 = 400_000;

/// Expressions over a metric `X` besides those that every metric has. Each metric has a few of them.
const FORMS: [&str; 20] = [
    "matchinst(/a/, X)",
    "matchinst(!/[0-9]/, X)",
    "avg(matchinst(/^[a-d]/, X))",
    "defined(X) ? X : 1",
    "delta(X) > 0 ? delta(X) : 0",
    "count(X) ? sum(X) : 0",
    "sum(delta(X))",
    "instant(delta(X))",
    "-delta(X)",
    "X * 1.5",
    "instant(X) - 1000000000",
    "instant(X) != 0",
    "instant(X) > 3 && instant(X) < 100000",
    "instant(X) >= 5 || instant(X) == 2",
    "rescale(X, \"Kbyte\")",
    "rescale(X, \"sec\")",
    "rescale(X, \"count x 10^3\")",
    "instant(X) * mkconst(2, type=\"u32\", semantics=\"instant\")",
    "mkconst(5, units=\"Mbyte\") + mkconst(7, units=\"Kbyte\") + 0 * count(X)",
    "novalue(type=\"32\") + count(X)",
];

/// Archives that are left out. Most have values whose encoding does not match their type: these are errors here, and
/// wrong values in libpcp. `bug_v2` has an instance of a singular metric. In `all-irix-6.5.25`, libpcp returns an error
/// for a sum of two deltas, although each delta has values.
const DAMAGED: [&str; 9] = [
    "bozo.client_v2",
    "960624.08.17_v2",
    "ace_v2",
    "babylon.pmview_v2",
    "babylon.percpu_v2",
    "rattle",
    "src-rattle",
    "bug_v2",
    "all-irix-6.5.25",
];

/// Definition, and a key that is that of other definitions with the same operands.
struct Defined {
    key: String,
    name: String,
    expression: String,
}

fn archives() -> Vec<PathBuf> {
    let dir = Pcp::required().testsuite().join("archives");
    let entries = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut found: Vec<PathBuf> = entries
        .filter_map(|name| Some(name.strip_suffix(".meta")?.to_owned()))
        .filter(|base| dir.join(format!("{base}.0")).metadata().is_ok_and(|file| file.len() < SMALL))
        .filter(|base| !DAMAGED.contains(&base.as_str()))
        .map(|base| dir.join(base))
        .collect();
    found.sort();
    found
}

fn is_number(desc: &Desc) -> bool {
    matches!(desc.ty, Type::I32 | Type::U32 | Type::I64 | Type::U64 | Type::Float | Type::Double)
}

/// Returns names and expressions over the metrics of an archive. Leaves out what differs from libpcp: `rate` before
/// PCP 7; `max` and `min`, which have a value there without values to compare; `!`, which leaves bytes of fractions
/// undefined there; and `scalar`, with which it ends the process.
fn definitions(context: &mut Context) -> Vec<Defined> {
    let is_newer = Pcp::required().version() >= Version(7, 0, 0);
    let mut names = context.traverse("").unwrap();
    names.sort();
    let mut metrics: Vec<(String, Desc)> = Vec::new();
    for name in names {
        let pmid = context.lookup_name(&name).unwrap();
        // Derived metrics of the recorded host have numbers that libpcp uses for its own derived metrics.
        let desc = context.lookup_desc(pmid).ok().filter(|desc| is_number(desc) && pmid.domain().get() != 511);
        metrics.extend(desc.map(|desc| (name, desc)));
    }
    let step = metrics.len() / METRICS + 1;
    let metrics: Vec<_> = metrics.into_iter().step_by(step).collect();
    let mut expressions: Vec<(String, Vec<String>)> = Vec::new();
    for ((name, desc), nth) in metrics.iter().zip(0..) {
        let forms = FORMS.iter().skip(nth % 3).step_by(3).map(|form| form.replace('X', name));
        let functions = ["delta", "instant", "avg", "count", "sum"].map(|function| format!("{function}({name})"));
        let mut list: Vec<String> = forms.chain(functions).collect();
        let is_counter = desc.semantics == Semantics::Counter;
        list.push(format!("-{name}"));
        list.push(format!("{name} * 3"));
        list.push(format!("delta({name}) + delta({name})"));
        if Pcp::required().version() < Version(6, 2, 2) {
            // It ends the process with libpcp 6.3.8 and 7.2.1.
            list.push(format!("delta(instant({name}))"));
        }
        if is_newer {
            list.push(format!("rate({name})"));
            list.push(format!("rate({name}) / 2"));
        }
        if !is_counter {
            list.push(format!("{name} > 7"));
            list.push(format!("{name} / ({name} + 1)"));
        }
        expressions.push((name.clone(), list));
    }
    for ((a, left), (b, right)) in metrics.iter().zip(metrics.iter().skip(1)) {
        if left.indom == right.indom && left.units == right.units && left.semantics == right.semantics {
            let list = [format!("{a} + {b}"), format!("{a} - {b}"), format!("delta({a}) - delta({b})")];
            expressions.push((format!("{a} {b}"), list.into()));
        }
    }
    // A few old archives have metric names that expressions cannot contain.
    let mut valid = Definitions::new(Scope::Context);
    let all = expressions.into_iter().flat_map(|(key, list)| list.into_iter().map(move |one| (key.clone(), one)));
    let named =
        all.enumerate().map(|(nth, (key, expression))| Defined { key, name: format!("judge.d{nth}"), expression });
    named.filter(|defined| valid.register(&defined.name, &defined.expression).is_ok()).collect()
}

/// Returns the values of definitions, in the form of the program.
fn libpcp(program: &Path, archive: &Path, definitions: &[Defined]) -> String {
    let text: String =
        definitions.iter().map(|Defined { key, name, expression }| format!("{key}\t{name}\t{expression}\n")).collect();
    let mut program = Command::new(program);
    testkit::answers(program.arg(archive).env("PCP_DERIVED_CONFIG", "").stderr(Stdio::null()), &text)
}

/// Fetches definitions together.
fn ours(context: &mut Context, definitions: &[Defined], left_out: &HashSet<usize>) -> String {
    let (mut text, mut wanted): (String, Vec<(usize, PmId, Desc)>) = (String::new(), Vec::new());
    for Defined { name, expression, .. } in definitions {
        context.add_derived(name, expression).unwrap();
    }
    for (nth, Defined { name, .. }) in definitions.iter().enumerate() {
        let pmid = context.lookup_name(name).unwrap();
        if let Some(desc) = context.lookup_desc(pmid).ok().filter(|_| !left_out.contains(&nth)) {
            wanted.push((nth, pmid, desc));
        }
    }
    let pmids: Vec<PmId> = wanted.iter().map(|(_, pmid, _)| *pmid).collect();
    while let Ok(mut sample) = context.fetch(&pmids) {
        sample.sort_instances();
        let time = format!("{}.{:06}", sample.time().seconds, sample.time().nanoseconds / 1000);
        for ((nth, _, desc), set) in
            wanted.iter().zip(sample.sets()).filter(|(_, set)| set.error.is_some() || !set.is_empty())
        {
            let count = set.error.map_or(set.len() as i32, pmapi::Error::code);
            writeln!(text, "{nth} at {time}: {count}").unwrap();
            for (inst, value) in set.values() {
                match value.extract(desc.ty, Type::Double) {
                    Ok(Converted::Atom(Atom::Double(number))) => {
                        writeln!(text, "  {} {number:?}", inst.word() as i32).unwrap();
                    }
                    _ => writeln!(text, "  {} ?", inst.word() as i32).unwrap(),
                }
            }
        }
    }
    text
}

/// Returns the lines of each definition.
fn by_definition(text: &str) -> BTreeMap<usize, Vec<&str>> {
    let (mut found, mut nth) = (BTreeMap::<usize, Vec<&str>>::new(), 0);
    for line in text.lines() {
        if let Some((number, _)) = line.split_once(" at ") {
            nth = number.parse().unwrap();
        } else if !line.starts_with(' ') {
            continue;
        }
        found.entry(nth).or_default().push(line);
    }
    found
}

/// Returns whether two lines are the same, except for the rate of a metric that falls: in libpcp the difference wraps
/// around.
fn same(expression: &str, ours: &str, theirs: &str) -> bool {
    if ours == theirs {
        return true;
    }
    let split = |line: &str| -> Option<(String, f64)> {
        let (inst, number) = line.strip_prefix("  ")?.split_once(' ')?;
        Some((inst.to_owned(), number.parse().ok()?))
    };
    match (split(ours), split(theirs)) {
        (Some(ours), Some(theirs)) => {
            let has_fallen = ours.1 < 0.0 && theirs.1 > 0.0;
            // libpcp computes with the time in a long double.
            let is_close = (ours.1 - theirs.1).abs() <= 2.0 * f64::EPSILON * theirs.1.abs();
            let is_same_rate = expression.starts_with("rate(") && (has_fallen || is_close);
            ours.0 == theirs.0 && (ours.1 == theirs.1 || (ours.1.is_nan() && theirs.1.is_nan()) || is_same_rate)
        }
        _ => false,
    }
}

#[test]
#[ignore = "needs PCP"]
// Slow: libpcp evaluates each definition over the installed archives.
fn derived_metrics_as_in_libpcp() {
    let dir = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/derived.c");
    let program = testkit::compile(source, &dir, &["-lpcp"]);
    let (mut values, mut differences) = (0, Vec::new());
    for path in archives() {
        let Ok(mut context) = Context::open_archive(&path) else { continue };
        let definitions = definitions(&mut context);
        if definitions.is_empty() {
            continue;
        }
        let theirs = libpcp(&program, &path, &definitions);
        let left_out: HashSet<usize> =
            theirs.lines().filter_map(|line| line.strip_prefix("none ")?.parse().ok()).collect();
        let found = ours(&mut context, &definitions, &left_out);
        let (found, theirs) = (by_definition(&found), by_definition(&theirs));
        for (nth, Defined { key, expression, .. }) in definitions.iter().enumerate() {
            let [mut found, theirs] = [&found, &theirs].map(|all| all.get(&nth).cloned().unwrap_or_default());
            // With one of two operands a record leaves the difference of the other alone. libpcp has none after it.
            if key.contains(' ') {
                let mut is_theirs = false;
                found.retain(|line| {
                    is_theirs = if line.starts_with(' ') { is_theirs } else { theirs.contains(line) };
                    is_theirs
                });
            }
            let differs = (0..found.len().max(theirs.len())).find(|at| match (found.get(*at), theirs.get(*at)) {
                (Some(left), Some(right)) => !same(expression, left, right),
                _ => true,
            });
            values += found.iter().filter(|line| line.starts_with(' ')).count();
            if let Some(at) = differs {
                let (left, right) = (found.get(at), theirs.get(at));
                differences.push(format!("{}: {expression}: {left:?}, libpcp's {right:?}", path.display()));
            }
        }
    }
    println!("{values} equal values, {} differences", differences.len());
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(values > 1_000_000);
}
