//! Changed definitions: every syntax error and its position, compared with the installed libpcp.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use pcp_derived::{Definition, RegisterError};
use pmapi::{PmId, Semantics};

use crate::derive::cases;
use crate::derive::compare::differences;
use crate::derive::generator::{is_newer, is_newer_reason, listed};
use crate::derive::live::{Asked, data};
use crate::derive::reasons::reason;
use crate::derive::{local, tokens};

/// Returns whether an expression belongs to the tested sample. Testing all of them would take too long.
fn chosen(number: &mut usize, one_of: usize) -> bool {
    *number += 1;
    *number % one_of == 0
}

/// Returns changed expressions: every prefix; expressions without a token, with a token doubled, and with two tokens
/// exchanged. Some have another token before a token or in its place.
fn mutations(one_of: usize) -> BTreeSet<String> {
    let others = tokens::all();
    let mut all = BTreeSet::new();
    let mut number = 0;
    for (_, expr) in cases::expressions() {
        let expr = expr.trim();
        all.extend(expr.char_indices().map(|(at, _)| expr[..at].to_owned()));
        let tokens = tokens::split(expr);
        for at in 0..tokens.len() {
            let (before, after) = (tokens[..at].concat(), tokens[at + 1..].concat());
            all.insert(format!("{before}{after}"));
            all.insert(format!("{before}{0} {0}{after}", tokens[at]));
            if let Some(next) = tokens.get(at + 1) {
                all.insert(format!("{before}{next}{}{}", tokens[at], tokens[at + 2..].concat()));
            }
            for other in &others {
                if chosen(&mut number, one_of) {
                    all.insert(format!("{before}{other}{after}"));
                    all.insert(format!("{before} {other} {}{after}", tokens[at]));
                }
            }
        }
    }
    all.into_iter().map(|expr| expr.trim_start().to_owned()).filter(|expr| !expr.is_empty()).collect()
}

/// Returns libpcp's answer to each expression.
fn theirs(expressions: &BTreeSet<String>) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let mut peer = Command::new(testkit::compile(data("syntax.c"), &dir, &["-lpcp"]));
    let lines: String = expressions.iter().map(|expr| format!("{expr}\n")).collect();
    let answers = testkit::answers(peer.env("PCP_DERIVED_CONFIG", "").stderr(Stdio::null()), &lines);
    answers.lines().map(str::to_owned).collect()
}

fn ours(expr: &str) -> String {
    match Definition::new("x", expr, PmId::from_word(0).unwrap()) {
        Ok(_) => "OK".to_owned(),
        Err(RegisterError::Syntax(error)) => format!("{}\t{error}", error.offset),
        Err(error) => panic!("{error}"),
    }
}

#[test]
#[ignore = "needs PCP"]
// Slow: libpcp parses each mutation, too.
fn errors_and_their_places() {
    testkit::Pcp::required();
    let newer = theirs(&BTreeSet::from(["1 ? 2 : novalue(indom=60.1)".to_owned()])) == ["OK"];
    let one_of = std::env::var("DERIVE_ONE_OF").map_or(100, |number| number.parse().unwrap());
    let mut expressions = mutations(one_of);
    expressions.retain(|expr| newer || !is_newer(expr));
    let theirs = theirs(&expressions);
    assert_eq!(theirs.len(), expressions.len());
    let (mut wrong, mut died) = (Vec::new(), 0);
    for (expr, theirs) in expressions.iter().zip(&theirs) {
        let ours = ours(expr);
        died += usize::from(theirs == "DIED");
        let is_newer = !newer && (is_newer_reason(&ours) || ours.contains("invalid floating point literal"));
        // Documented differences: two `novalue()`, and numbers that wrap around.
        let listed = expr.matches("novalue").count() > 1 || ours.contains("\tIllegal indom: ");
        if ours != *theirs && theirs != "DIED" && !is_newer && !listed {
            wrong.push(format!("{expr}\n  ours   {ours}\n  theirs {theirs}\n"));
        }
    }
    println!("{} expressions, {died} that libpcp does not survive, {} differences", expressions.len(), wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.concat());
    assert!(expressions.len() > 20_000);
}

/// Changed expressions that are still valid have the same descriptors, values and semantic errors as in libpcp.
#[test]
#[ignore = "needs PCP"]
// Slow: libpcp evaluates each mutation, too.
fn meanings() {
    let oracle = local::oracle();
    let newer = oracle.is_newer();
    let mut expressions = mutations(30);
    expressions.retain(|expr| Definition::new("x", expr, PmId::from_word(0).unwrap()).is_ok());
    expressions.retain(|expr| newer || !is_newer(expr));
    // libpcp uses the expression before.
    expressions.retain(|expr| expr.matches("novalue").count() < 2);
    let mut number = 0;
    expressions.retain(|_| chosen(&mut number, 2));
    let expressions: Vec<(String, String)> =
        expressions.into_iter().enumerate().map(|(at, expr)| (format!("m.m{at}"), expr)).collect();
    let Asked { answers, deadly } = oracle.ask_about(&expressions, &local::operands(), |_| local::SAMPLES);
    let (valid, found) = differences(&expressions, &answers);
    let is_counter = |name: &str| {
        let desc = answers.operands.get(name).and_then(|desc| desc.ok());
        desc.is_some_and(|desc| desc.semantics == Semantics::Counter)
    };
    let unlisted: Vec<_> =
        found.iter().filter(|found| listed(&found.expr, is_counter).or(reason(found, newer)).is_none()).collect();
    println!(
        "{valid} expressions, {} that libpcp does not survive, {} differences, {} of them unlisted",
        deadly.len(),
        found.len(),
        unlisted.len()
    );
    unlisted.iter().for_each(|difference| println!("None {difference}"));
    assert!(unlisted.is_empty() && valid > 2000);
}
