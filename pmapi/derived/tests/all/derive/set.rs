//! The definitions with recorded answers: definitions written by hand, and combinations of all operators, functions,
//! types, semantics and units.

use crate::derive::cases;
use crate::derive::edges::{CONSTANTS, FUNCTIONS, OPERATORS, chains};
use crate::derive::generator::Random;
use crate::derive::local::{REST, SEMANTICS, TYPES, UNITS, plain};

/// Returns names and expressions, the same in each run.
pub(crate) fn definitions() -> Vec<(String, String)> {
    let mut generated = Vec::new();
    types(&mut generated);
    semantics(&mut generated);
    units(&mut generated);
    functions(&mut generated);
    constants(&mut generated);
    choices(&mut generated);
    chains(250, &mut generated);
    spoiled(500, &mut generated);
    let name = |(at, expr)| (format!("g.e{at:04}"), expr);
    cases::expressions().into_iter().chain(generated.into_iter().enumerate().map(name)).collect()
}

/// Every operator between every two types, singular or with instances in turn.
fn types(out: &mut Vec<String>) {
    for (at, op) in OPERATORS.iter().enumerate() {
        for (l, left) in TYPES.iter().enumerate() {
            for (r, right) in TYPES.iter().enumerate() {
                let many = [(at + l) % 2 == 0, (at + r) % 3 != 0];
                out.push(format!("{} {op} {}", plain(left, "instant", many[0]), plain(right, "instant", many[1])));
            }
        }
    }
}

/// Every operator between every two semantics.
fn semantics(out: &mut Vec<String>) {
    for (at, op) in OPERATORS.iter().enumerate() {
        for left in SEMANTICS {
            for right in SEMANTICS {
                let [l, r] = [at, at + 1].map(|at| TYPES[at % TYPES.len()]);
                out.push(format!("{} {op} {}", plain(l, left, true), plain(r, right, true)));
            }
        }
    }
}

/// Arithmetic and a comparison between every two units; every operator between units and their neighbours.
fn units(out: &mut Vec<String>) {
    for (l, left) in UNITS.iter().enumerate() {
        for (r, right) in UNITS.iter().enumerate() {
            out.extend(["+", "*", "/", "<"].map(|op| format!("e.{left}_double_instant {op} e.{right}_double_instant")));
            let op = OPERATORS[(l + r) % OPERATORS.len()];
            out.push(format!("e.{left}_u32_counter {op} e.{right}_i64_counter"));
            out.push(format!("e.{left}_i64_counter {op} e.{right}_u32_instant"));
            out.push(format!("e.{left}_u32_instant {op} e.{right}_i64_counter"));
        }
        let next = UNITS[(l + 1) % UNITS.len()];
        out.extend(OPERATORS.map(|op| format!("e.{left}_i64_instant {op} e.{next}_i64_instant")));
        for scale in ["byte", "Gbyte", "sec", "hour", "count x 10^3", "Mbyte/hour", "hour^2", "1000/sec", "none"] {
            out.push(format!("rescale(e.{left}_double_instant, \"{scale}\")"));
        }
    }
}

/// Every function, on operands of every type, semantics and unit, and on operands that are not numbers.
fn functions(out: &mut Vec<String>) {
    for function in FUNCTIONS {
        for (at, ty) in TYPES.iter().enumerate() {
            for semantics in SEMANTICS {
                out.push(format!("{function}{})", plain(ty, semantics, at % 3 != 0)));
            }
        }
        out.extend(UNITS.map(|unit| format!("{function}e.{unit}_u32_counter)")));
        out.extend(REST.map(|name| format!("{function}e.{name})")));
    }
}

/// Every operator, with every constant on both sides.
fn constants(out: &mut Vec<String>) {
    let operands = ["e.i32_instant_one", "e.double_instant_many", "e.byte_u32_instant", "e.hour_double_counter"];
    for (o, op) in OPERATORS.iter().enumerate() {
        for (c, constant) in CONSTANTS.iter().enumerate() {
            let operand = operands[(o + c) % operands.len()];
            out.push(format!("{constant} {op} {operand}"));
            out.push(format!("{operand} {op} {constant}"));
        }
    }
}

/// Choices between every two types and semantics.
fn choices(out: &mut Vec<String>) {
    for left in TYPES {
        for right in TYPES {
            out.push(format!("e.guard ? {} : {}", plain(left, "instant", true), plain(right, "instant", true)));
        }
        for semantics in SEMANTICS {
            let [one, many] = [false, true].map(|many| plain(left, semantics, many));
            out.push(format!("e.u32_instant_one ? {one} : {one}"));
            out.push(format!("e.guard > 0 ? {many} : {one}"));
            out.push(format!("{many} ? e.guard : e.moving"));
        }
    }
}

/// Definitions written by hand that are cut off, or have a token left out, added or exchanged.
fn spoiled(count: usize, out: &mut Vec<String>) {
    let mut random = Random(0x6a09_e667_f3bc_c909);
    let written = cases::expressions();
    let end = out.len() + count;
    while out.len() < end {
        let at = random.next(written.len());
        let expr = random.spoil(written[at].1.trim());
        if !expr.is_empty() {
            out.push(expr);
        }
    }
}
