//! CPU time of evaluation compared with libpcp's in the same run: `cargo bench -p pcp-derived`.
//!
//! The C program (`peer.c`) is compiled if libpcp is installed. It runs before and after the Rust side.

#![allow(clippy::expect_used)]

use std::collections::HashMap;
use std::fs;
use std::hint::black_box;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use pcp_derived::{
    DefinitionId, Definitions, Evaluator, Load, Metadata, Missing, Operand, Scope, Source, UnknownNames,
};
use pmapi::{Atom, Desc, Domain, Error, InDom, Inst, Item, PmId, Semantics, Serial, Type, Units};

/// Name, operands and expression of definitions over operands with equal instances.
const EQUAL: &[[&str; 3]] = &[
    ["plus", "b.a,b.c", "b.a + b.c"],
    ["minus", "b.a,b.c", "b.a - b.c"],
    ["times", "b.a,b.c", "b.a * b.c"],
    ["over", "b.a,b.c", "b.a / b.c"],
    ["less", "b.a,b.c", "b.a < b.c"],
    ["less_equal", "b.a,b.c", "b.a <= b.c"],
    ["equal", "b.a,b.c", "b.a == b.c"],
    ["greater_equal", "b.a,b.c", "b.a >= b.c"],
    ["greater", "b.a,b.c", "b.a > b.c"],
    ["not_equal", "b.a,b.c", "b.a != b.c"],
    ["and", "b.a,b.c", "b.a && b.c"],
    ["or", "b.a,b.c", "b.a || b.c"],
    ["mixed", "b.a,b.real", "b.a * b.real"],
    ["scaled", "b.bytes,b.kbytes", "b.bytes + b.kbytes"],
    ["constant", "b.a", "b.a * 2.5"],
    ["mkconst", "b.bytes", "b.bytes * mkconst(3, type=u64)"],
    ["negative", "b.a", "-b.a"],
    ["not", "b.a", "!b.a"],
    ["ternary", "b.a,b.c", "b.a > 5 ? b.a : b.c"],
    ["scalar_guard", "b.a,b.c", "count(b.a) > 5 ? b.a : b.c"],
    ["novalue", "b.a,b.c", "b.c > 7 ? novalue() : b.a"],
    ["defined", "b.a,b.c", "defined(b.a) ? b.a : b.c"],
    ["rescale", "b.bytes", "rescale(b.bytes, \"Mbyte\")"],
    ["delta", "b.bytes", "delta(b.bytes)"],
    ["rate", "b.bytes", "rate(b.bytes)"],
    ["instant", "b.bytes", "instant(b.bytes)"],
    ["avg", "b.a", "avg(b.a)"],
    ["count", "b.a", "count(b.a)"],
    ["max", "b.a", "max(b.a)"],
    ["min", "b.a", "min(b.a)"],
    ["sum", "b.a", "sum(b.a)"],
    ["scalar", "b.a", "scalar(b.a)"],
    ["pattern", "b.a", "matchinst(/5$/, b.a)"],
    ["not_pattern", "b.a", "matchinst(!/5$/, b.a)"],
    ["instance", "b.a", "b.a[i7]"],
];
const DIFFERENT: &[[&str; 3]] = &[
    ["plus", "b.even,b.third", "b.even + b.third"],
    ["over", "b.even,b.third", "b.even / b.third"],
    ["greater", "b.even,b.third", "b.even > b.third"],
    ["or", "b.even,b.third", "b.even || b.third"],
];

/// Number of instances, number of rounds, definitions, and the largest ratio that is a success.
const RUNS: [(u32, u32, &[[&str; 3]], f64); 4] =
    [(100, 2000, EQUAL, 0.25), (10_000, 100, EQUAL, 0.25), (100_000, 21, EQUAL, 0.25), (10_000, 11, DIFFERENT, 0.02)];

fn main() {
    let dir = tempfile::tempdir().expect("a directory");
    let peer = Peer::compile(dir.path());
    if peer.is_none() {
        println!("libpcp is not installed: no ratios");
    }
    for (instances, rounds, definitions, goal) in RUNS {
        println!("\n{instances} instances, ns of CPU per value{:>11} {:>9} {:>7} {goal:>7}", "libpcp", "Rust", "ratio");
        let before = peer.as_ref().map(|peer| peer.run(instances, rounds, definitions));
        let rust: Vec<f64> = definitions.iter().map(|definition| evaluate(instances, rounds, definition)).collect();
        let after = peer.as_ref().map(|peer| peer.run(instances, rounds, definitions));
        for ([name, operands, _], rust) in definitions.iter().zip(rust) {
            let values = f64::from(instances) * operands.split(',').count() as f64;
            // A function that the installed libpcp does not have has no time.
            let times = [&before, &after].map(|times| times.as_ref()?.get(*name).copied());
            let c = times[0].zip(times[1]).map(|(before, after)| (before + after) / 2.0);
            match c {
                Some(c) => {
                    let ratio = rust / c;
                    let verdict = if ratio <= goal { "" } else { "  MISSED" };
                    println!("{name:<44} {:>9.2} {:>9.2} {ratio:>7.3}{verdict}", c / values, rust / values);
                }
                None => println!("{name:<44} {:>9} {:>9.2}", "", rust / values),
            }
        }
    }
    many();
}

fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("the process's clock").into()
}

/// Returns the time of the median round in nanoseconds.
fn evaluate(instances: u32, rounds: u32, [name, _, expr]: &[&str; 3]) -> f64 {
    let mut agent = Agent::new(instances);
    let mut definitions = Definitions::new(Scope::Global);
    definitions.register(name, expr).expect("an expression");
    let mut evaluator = Evaluator::bind(&definitions, &mut agent, UnknownNames::Refused);
    let id = DefinitionId::new(0);
    evaluator.desc(id).expect("a metric");
    let plan = evaluator.plan([id]);
    // Reading the clock takes longer than evaluating a few instances.
    let together = 10_000_u32.div_ceil(instances);
    let mut stamp = 0;
    let mut times: Vec<Duration> = (0..rounds.div_ceil(together) + 2)
        .map(|_| {
            let start = cpu();
            for _ in 0..together {
                stamp += 1;
                evaluator.evaluate(&plan, Duration::from_secs(stamp), &mut agent);
                black_box(evaluator.values(id).expect("values").len());
            }
            (cpu() - start) / together
        })
        .skip(2)
        .collect();
    times.sort();
    times[times.len() / 2].as_nanos() as f64
}

/// Measures ten thousand definitions over a hundred operands.
fn many() {
    let mut agent = Agent::new(10);
    let mut definitions = Definitions::new(Scope::Global);
    let start = cpu();
    for number in 0..10_000 {
        let [a, b, c] = [number, number / 7, number / 77].map(|n| format!("many.m{}", n % 100));
        let expr = match number % 4 {
            0 => format!("{a} + {b} * {c}"),
            1 => format!("{a} > 5 ? {b} : {c}"),
            2 => format!("100 * ({a} - {b}) / ({a} + {c})"),
            _ => format!("rate({a}) * sum({b})"),
        };
        definitions.register(&format!("d{number}"), &expr).expect("an expression");
    }
    let parsed = cpu();
    let mut evaluator = Evaluator::bind(&definitions, &mut agent, UnknownNames::Refused);
    let bound = cpu();
    let plan = evaluator.plan(evaluator.ids());
    let mut times: Vec<Duration> = (0..23)
        .map(|round| {
            let start = cpu();
            evaluator.evaluate(&plan, Duration::from_secs(round), &mut agent);
            cpu() - start
        })
        .skip(2)
        .collect();
    times.sort();
    let good = evaluator.ids().filter(|id| evaluator.desc(*id).is_ok()).count();
    println!(
        "\n{good} definitions over 100 operands of 10 instances: parse {:?}, bind {:?} (goal 50 ms), a tick {:?} (goal 10 ms)",
        parsed - start,
        bound - parsed,
        times[times.len() / 2]
    );
}

/// Metrics of the C program's agent, with values in memory as in its results.
struct Agent {
    instances: u32,
    a: Vec<(Option<Inst>, u32)>,
    c: Vec<(Option<Inst>, u32)>,
    even: Vec<(Option<Inst>, u32)>,
    third: Vec<(Option<Inst>, u32)>,
    real: Vec<(Option<Inst>, f64)>,
    bytes: Vec<(Option<Inst>, u64)>,
    kbytes: Vec<(Option<Inst>, u64)>,
}

impl Agent {
    fn new(instances: u32) -> Agent {
        let all = || (0..instances).map(|id| (Some(Inst::new(id)), id));
        Agent {
            instances,
            a: all().map(|(inst, id)| (inst, id + 1)).collect(),
            c: all().map(|(inst, id)| (inst, id % 7)).collect(),
            even: all().step_by(2).collect(),
            third: all().step_by(3).collect(),
            real: all().map(|(inst, id)| (inst, f64::from(id) * 1.5)).collect(),
            bytes: all().map(|(inst, id)| (inst, u64::from(id) * 1000)).collect(),
            kbytes: all().map(|(inst, id)| (inst, id.into())).collect(),
        }
    }
}

impl Metadata for Agent {
    fn lookup(&mut self, name: &str) -> Result<Desc, Missing> {
        let (item, ty, units) = match name {
            "b.a" | "b.c" | "b.even" | "b.third" => (0, Type::U32, Units::NONE),
            "b.real" => (1, Type::Double, Units::NONE),
            "b.bytes" => (2, Type::U64, Units::BYTES),
            "b.kbytes" => (3, Type::U64, Units::KBYTES),
            _ => (4, Type::U32, Units::NONE),
        };
        let domain = Domain::new(250).ok_or(Missing::Name)?;
        let semantics = if ty == Type::U64 { Semantics::Counter } else { Semantics::Instant };
        let indom = Some(InDom::new(domain, Serial::new(0)));
        Ok(Desc { pmid: PmId::new(domain, Item::new(0, item)), ty, indom, semantics, units })
    }
}

impl Source for Agent {
    fn values(&mut self, operand: &Operand, load: &mut Load<'_>) -> Result<(), Error> {
        let integers = match &*operand.name {
            "b.real" => {
                load.extend(self.real.iter().map(|(inst, v)| (*inst, Atom::Double(*v))));
                return Ok(());
            }
            name @ ("b.bytes" | "b.kbytes") => {
                let values = if name == "b.bytes" { &self.bytes } else { &self.kbytes };
                load.extend(values.iter().map(|(inst, v)| (*inst, Atom::U64(*v))));
                return Ok(());
            }
            "b.c" => &self.c,
            "b.even" => &self.even,
            "b.third" => &self.third,
            _ => &self.a,
        };
        load.extend(integers.iter().map(|(inst, v)| (*inst, Atom::U32(*v))));
        Ok(())
    }

    fn instances(&mut self, _: InDom, list: &mut Vec<Inst>) -> Result<(), Error> {
        list.extend((0..self.instances).map(Inst::new));
        Ok(())
    }

    fn instance_name(&mut self, _: InDom, inst: Inst, name: &mut Vec<u8>) -> Result<(), Error> {
        write!(name, "i{inst}").map_err(|_| Error::GENERIC)
    }

    fn instance_id(&mut self, _: InDom, name: &str) -> Result<Inst, Error> {
        let number = name.strip_prefix('i').and_then(|number| number.parse().ok()).ok_or(Error::INST)?;
        Inst::from_word(number).ok_or(Error::INST)
    }
}

/// The compiled C program.
struct Peer {
    dir: PathBuf,
}

const NAMES: &str = "root {\n    b\n}\nb {\n    a 250:0:0\n    c 250:0:1\n    real 250:0:2\n    bytes 250:0:3\n    \
                     kbytes 250:0:4\n    even 250:0:5\n    third 250:0:6\n}\n";

impl Peer {
    fn compile(dir: &Path) -> Option<Peer> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/derive/peer.c");
        let gcc = |arguments: &[&str], output: &str, libraries: &[&str]| {
            let mut gcc = Command::new("gcc");
            gcc.args(arguments).arg("-O2").arg("-o").arg(dir.join(output)).arg(&source).args(libraries);
            gcc.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
        };
        let agent = gcc(&["-shared", "-fPIC", "-DAGENT"], "agent.so", &["-lpcp_pmda", "-lpcp"]);
        (agent && gcc(&[], "peer", &["-lpcp"])).then(|| {
            fs::write(dir.join("pmns"), NAMES).expect("a name space");
            Peer { dir: dir.to_owned() }
        })
    }

    fn run(&self, instances: u32, rounds: u32, definitions: &[[&str; 3]]) -> HashMap<String, f64> {
        let mut peer = Command::new(self.dir.join("peer"))
            .args([self.dir.join("agent.so"), self.dir.join("pmns")])
            .arg(rounds.to_string())
            .env("BENCH_INSTANCES", instances.to_string())
            .env("PCP_DERIVED_CONFIG", "")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the C side");
        let lines: String =
            definitions.iter().map(|[name, operands, expr]| format!("{name} {operands} {expr}\n")).collect();
        peer.stdin.take().expect("its input").write_all(lines.as_bytes()).expect("its input");
        let output = peer.wait_with_output().expect("its output");
        assert!(output.status.success(), "the C side failed");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(name, time)| Some((name.to_owned(), time.parse().ok()?)))
            .collect()
    }
}
