//! Every operator on operands of every type, semantics and unit, with values at the edges of the types, against libpcp.
//!
//! The operands are those of `data/derive/agent.c` in libpcp's local context.

use std::collections::HashMap;

use testkit::Pcp;

use crate::answers::Answers;
use crate::compare::{Difference, differences};
use crate::generator::Random;
use crate::live::{ask, compile, data};

const BATCH: usize = 200;
const SAMPLES: u32 = 4;

const TYPES: [&str; 6] = ["i32", "u32", "i64", "u64", "float", "double"];
const SEMANTICS: [&str; 3] = ["counter", "instant", "discrete"];
const UNITS: [&str; 10] =
    ["byte", "mbyte", "msec", "hour", "count", "kcount", "byte_sec", "kbyte_hour", "per_msec", "sec2"];
const REST: [&str; 9] =
    ["text", "aggregate", "fails", "sometimes", "never", "moving", "small_counter", "other", "guard"];
const OPERATORS: [&str; 12] = ["+", "-", "*", "/", "<", "<=", "==", ">=", ">", "!=", "&&", "||"];
const FUNCTIONS: [&str; 10] =
    ["avg(", "count(", "max(", "min(", "sum(", "defined(", "delta(", "rate(", "instant(", "scalar("];
const CONSTANTS: [&str; 10] = [
    "0",
    "1",
    "4294967295",
    "0.5",
    "mkconst(300, type=32)",
    "mkconst(4294967295, type=u64)",
    "mkconst(7, type=64, semantics=counter)",
    "mkconst(2.5, type=float, semantics=instant)",
    "mkconst(3, units=\"Kbyte\")",
    "mkconst(1, type=double, units=\"hour\", semantics=instant)",
];

fn plain(ty: &str, semantics: &str, many: bool) -> String {
    format!("e.{ty}_{semantics}_{}", if many { "many" } else { "one" })
}

/// Returns the operands with semantics `instant`, singular and with instances.
fn instants() -> Vec<String> {
    TYPES.iter().flat_map(|ty| [false, true].map(|many| plain(ty, "instant", many))).collect()
}

fn with_units() -> Vec<String> {
    let names = |unit: &&str| {
        let kinds = ["u32", "i64", "double"].iter().flat_map(|ty| ["counter", "instant"].map(|sem| (*ty, sem)));
        kinds.map(|(ty, sem)| format!("e.{unit}_{ty}_{sem}")).collect::<Vec<_>>()
    };
    UNITS.iter().flat_map(names).collect()
}

fn all() -> Vec<String> {
    let plain = TYPES
        .iter()
        .flat_map(|ty| SEMANTICS.iter().flat_map(|semantics| [false, true].map(|many| plain(ty, semantics, many))));
    plain.chain(with_units()).chain(REST.iter().map(|name| format!("e.{name}"))).collect()
}

/// Adds each operator between all pairs of two lists.
fn pairs(left: &[String], right: &[String], out: &mut Vec<String>) {
    for (l, r) in left.iter().flat_map(|l| right.iter().map(move |r| (l, r))) {
        out.extend(OPERATORS.iter().map(|op| format!("{l} {op} {r}")));
    }
}

fn expressions(newer: bool) -> Vec<String> {
    let mut out = Vec::new();
    pairs(&instants(), &instants(), &mut out);
    let semantics: Vec<String> =
        SEMANTICS.iter().flat_map(|sem| ["i32", "u64"].map(|ty| plain(ty, sem, true))).collect();
    pairs(&semantics, &semantics, &mut out);
    let one_kind = |kind: &str| with_units().into_iter().filter(|name| name.ends_with(kind)).collect::<Vec<_>>();
    for kind in ["double_instant", "u32_counter", "i64_instant"] {
        pairs(&one_kind(kind), &one_kind(kind), &mut out);
    }
    pairs(&one_kind("u32_instant"), &one_kind("i64_counter"), &mut out);
    let rest: Vec<String> = REST.iter().map(|name| format!("e.{name}")).collect();
    pairs(&rest, &rest, &mut out);
    let constants = CONSTANTS.map(str::to_owned);
    for names in [instants(), one_kind("u32_instant"), one_kind("double_counter"), rest.clone()] {
        pairs(&constants, &names, &mut out);
        pairs(&names, &constants, &mut out);
    }
    pairs(&constants, &constants, &mut out);
    for name in all() {
        out.extend(FUNCTIONS.iter().map(|function| format!("{function}{name})")));
        out.extend([format!("-{name}"), format!("{name}[i3]"), format!("{name}[none such]"), name.clone()]);
        for units in ["byte", "Gbyte", "sec", "hour", "count x 10^3", "Mbyte/hour", "hour^2", "1000/sec", "none"] {
            out.push(format!("rescale({name}, \"{units}\")"));
        }
        let unknown = ["e.guard", "e.guard > 5", "e.i32_instant_one", "e.text", "e.small_counter > 1100"];
        // Guards that are known at binding; libpcp 6.0.3 always checks both arms.
        let known: &[&str] = if newer { &["1", "0 && e.guard", "defined(e.none)"] } else { &[] };
        for guard in unknown.iter().chain(known) {
            out.push(format!("{guard} ? {name} : {name}"));
            out.push(format!("{guard} ? {name} : 7"));
            out.push(format!("{guard} ? mkconst(7, semantics=instant) : {name}"));
            if newer {
                out.push(format!("{guard} ? {name} : novalue()"));
                out.push(format!("{guard} ? novalue(type=double, semantics=counter) : {name}"));
            }
        }
    }
    for left in instants() {
        out.extend(instants().iter().map(|right| format!("e.guard ? {left} : {right}")));
    }
    chains(&mut out);
    out
}

/// Adds operators in a row with few parentheses, to test precedence.
fn chains(out: &mut Vec<String>) {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let operands =
        ["e.i32_instant_one", "e.u32_instant_one", "e.double_instant_many", "e.u64_instant_many", "3", "0.25"];
    for _ in 0..4000 {
        let mut expr = String::new();
        for at in 0..2 + random.next(5) {
            if at > 0 {
                expr += &match random.next(9) {
                    0 => format!(" ? {} : ", random.of(&operands)),
                    _ => format!(" {} ", random.of(&OPERATORS)),
                };
            }
            let prefix = random.of(&["", "", "", "", "-", "- -", "("]);
            expr = format!("{expr}{prefix}{}", random.of(&operands));
            if expr.matches('(').count() > expr.matches(')').count() && random.next(2) == 0 {
                expr.push(')');
            }
        }
        let open = expr.matches('(').count() - expr.matches(')').count();
        out.push(expr + &")".repeat(open));
    }
}

/// Returns the documented reason of a difference; `None` if it is not documented.
fn listed(difference: &Difference, newer: bool) -> Option<&'static str> {
    let Difference { expr, ours, theirs } = difference;
    let without = |text: &str| {
        let words = text.split("semantics: ").map(|part| part.split_once(',').map_or(part, |(_, rest)| rest));
        words.collect::<Vec<_>>().concat()
    };
    let bound = ours.starts_with("Bound") && theirs.starts_with("Bound");
    let has = |words: &[&str]| words.iter().any(|word| expr.contains(word));
    let times = has(&["msec_", "hour_", "sec2_", "\"hour\""]) && has(&["per_msec_", "byte_sec_", "kbyte_hour_"]);
    match () {
        // libpcp 6.0.3 differs from 7.2.1 here.
        _ if !newer && expr.starts_with("rate(") => Some("rate of what falls"),
        _ if !newer && expr.contains('?') && has(&["3", "0.25"]) => Some("a known guard"),
        _ if bound && expr.starts_with("mkconst(") && expr.contains("units=") => Some("scale of a constant"),
        _ if bound && without(ours) == without(theirs) && expr.contains("counter") => Some("semantics with a counter"),
        _ if bound => None,
        _ if times && has(&[" * ", " / "]) => Some("direction of a conversion"),
        _ if expr.starts_with("rate(") && !has(&["counter"]) => Some("rate of what is no counter"),
        _ if ["max(e.sometimes)", "max(e.never)", "min(e.sometimes)", "min(e.never)"].contains(&expr.as_str()) => {
            Some("largest of nothing")
        }
        // For example the difference of -1 and the largest number.
        _ if expr.starts_with("rate(") && has(&["i64"]) => Some("a difference that wraps around"),
        _ if has(&["novalue("]) && !ours.contains("Bound") => Some("novalue() as an instance's value"),
        _ if expr == "delta(e.fails)" => Some("after an error"),
        _ => None,
    }
}

#[test]
#[ignore = "needs PCP"]
fn every_operator_on_every_operand() {
    Pcp::required();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    compile(&data("oracle.c"), &path("oracle"), &[]);
    compile(&data("agent.c"), &path("agent.so"), &["-shared", "-fPIC"]);
    compile(&data("agent.c"), &path("names"), &[]);
    let names = std::process::Command::new(path("names")).output().unwrap().stdout;
    std::fs::write(path("pmns"), names).unwrap();
    let place = format!("{},edges_init,{}", path("agent.so").display(), path("pmns").display());

    // Finds out whether the installed libpcp is newer than 6.0.3.
    let (text, _) = ask(dir.path(), &place, "define\tx\t1 ? 2 : novalue()\n", 1, 1).unwrap();
    let newer = !text.starts_with('E');
    let expressions: Vec<(String, String)> =
        expressions(newer).into_iter().enumerate().map(|(at, expr)| (format!("x{at}"), expr)).collect();
    let (mut answers, mut errors) = (Answers::default(), String::new());
    let all = all();
    let mut ask = |definitions: &[(String, String)]| {
        let operands = all.iter().filter(|name| definitions.iter().any(|(_, expr)| expr.contains(&***name)));
        let operands = operands.map(|name| format!("operand\t{name}\n"));
        let defines = definitions.iter().map(|(name, expr)| format!("define\t{name}\t{expr}\n"));
        let requests: String = operands.chain(defines).collect();
        let answer = ask(dir.path(), &place, &requests, SAMPLES, BATCH as u32);
        if let Some((text, messages)) = &answer {
            answers.add(text);
            errors += messages;
        }
        answer.is_some()
    };
    let mut deadly = 0;
    for definitions in expressions.chunks(BATCH) {
        if !ask(definitions) {
            deadly += definitions.chunks(1).filter(|definition| !ask(definition)).count();
        }
    }
    let (valid, found) = differences(&expressions, &answers, &errors);
    let mut counts: HashMap<Option<&str>, usize> = HashMap::new();
    for difference in &found {
        let why = listed(difference, newer);
        *counts.entry(why).or_default() += 1;
        if why.is_none() || std::env::var_os("DERIVE_SHOW").is_some() {
            println!("{why:?} {difference}");
        }
    }
    println!(
        "{} expressions, {valid} valid, {deadly} that libpcp does not survive, differences: {counts:?}",
        expressions.len()
    );
    assert_eq!(counts.get(&None), None);
}
