//! Every operator on operands of every type, semantics and unit, with values at the edges of the types, against libpcp.
//!
//! The operands are those of `data/derive/agent.c` in libpcp's local context.

use std::collections::HashMap;

use crate::derive::compare::differences;
use crate::derive::generator::Random;
use crate::derive::live::Asked;
use crate::derive::local::{self, REST, SAMPLES, SEMANTICS, TYPES, plain, with_units};
use crate::derive::reasons::reason;

pub(crate) const OPERATORS: [&str; 12] = ["+", "-", "*", "/", "<", "<=", "==", ">=", ">", "!=", "&&", "||"];
pub(crate) const FUNCTIONS: [&str; 10] =
    ["avg(", "count(", "max(", "min(", "sum(", "defined(", "delta(", "rate(", "instant(", "scalar("];
pub(crate) const CONSTANTS: [&str; 10] = [
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

/// Returns the operands with semantics `instant`, singular and with instances.
fn instants() -> Vec<String> {
    TYPES.iter().flat_map(|ty| [false, true].map(|many| plain(ty, "instant", many))).collect()
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
    for name in local::operands() {
        out.extend(FUNCTIONS.iter().map(|function| format!("{function}{name})")));
        out.extend([format!("-{name}"), format!("{name}[i3]"), format!("{name}[none such]"), name.clone()]);
        for units in ["byte", "Gbyte", "sec", "hour", "count x 10^3", "Mbyte/hour", "hour^2", "1000/sec", "none"] {
            out.push(format!("rescale({name}, \"{units}\")"));
        }
        let unknown = ["e.guard", "e.guard > 5", "e.i32_instant_one", "e.text", "e.small_counter > 1100"];
        // Guards whose value is known at binding. libpcp 6.0.3 always checks both arms.
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
    chains(4000, &mut out);
    out
}

/// Adds operators in a row with few parentheses, to test precedence.
pub(crate) fn chains(count: usize, out: &mut Vec<String>) {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let operands =
        ["e.i32_instant_one", "e.u32_instant_one", "e.double_instant_many", "e.u64_instant_many", "3", "0.25"];
    for _ in 0..count {
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

#[test]
#[ignore = "needs PCP"]
// Slow: all pairs of operands of all operators.
fn every_operator_on_every_operand() {
    let oracle = local::oracle();
    let newer = oracle.is_newer();
    let expressions: Vec<(String, String)> =
        expressions(newer).into_iter().enumerate().map(|(at, expr)| (format!("x{at}"), expr)).collect();
    let Asked { answers, deadly } = oracle.ask_about(&expressions, &local::operands(), |_| SAMPLES);
    let (valid, found) = differences(&expressions, &answers);
    let mut counts: HashMap<Option<&str>, usize> = HashMap::new();
    for difference in &found {
        let why = reason(difference, newer);
        *counts.entry(why).or_default() += 1;
        if why.is_none() || std::env::var_os("DERIVE_SHOW").is_some() {
            println!("{why:?} {difference}");
        }
    }
    println!(
        "{} expressions, {valid} valid, {} that libpcp does not survive, differences: {counts:?}",
        expressions.len(),
        deadly.len()
    );
    assert_eq!(counts.get(&None), None);
}
