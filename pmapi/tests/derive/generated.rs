//! Ten thousand generated expressions, valid and invalid, against the installed libpcp on the same samples.
//!
//! Where ours differs on purpose, the list in the documentation of `pmapi::derive` says so; [`listed`] knows which
//! expressions these are.

use std::collections::HashMap;

use crate::answers::Answers;
use crate::compare::differences;
use crate::generator::{OPERANDS, expressions, listed};
use crate::live::Stage;

const COUNT: usize = 10_000;
const BATCH: usize = 100;

#[test]
#[ignore = "needs PCP"]
fn ten_thousand_expressions() {
    let stage = Stage::new();
    let expressions = expressions(COUNT);
    let request = |(name, expr): &(String, String)| format!("define\t{name}\t{expr}\n");
    let (alone, together): (Vec<_>, Vec<_>) =
        expressions.iter().partition(|(_, expr)| expr.contains("matchinst") || expr.contains(")["));
    let mut answers = Answers::default();
    let mut errors = String::new();
    let mut ask = |definitions: &[&(String, String)]| {
        let requests: String = definitions.iter().copied().map(request).collect();
        let used = OPERANDS.iter().filter(|name| requests.contains(**name));
        let operands: String = used.map(|name| format!("operand\t{name}\n")).collect();
        let samples = if requests.contains("delta(") || requests.contains("rate(") { 3 } else { 1 };
        let answer = stage.ask(&format!("{operands}{requests}"), samples, BATCH as u32);
        if let Some((text, messages)) = &answer {
            answers.add(text);
            errors += messages;
        }
        answer.is_some()
    };
    // Some expressions make libpcp crash, so then each is asked for alone.
    let mut deadly = Vec::new();
    for definitions in together.chunks(BATCH).chain(alone.chunks(1)) {
        if !ask(definitions) {
            deadly.extend(definitions.iter().filter(|definition| !ask(&[definition])).map(|(_, expr)| expr));
        }
    }
    println!("libpcp did not survive {} expressions: {deadly:#?}", deadly.len());
    let (valid, found) = differences(&expressions, &answers, &errors);
    let is_counter = |name: &str| {
        let desc = answers.operands.get(name).and_then(|desc| desc.ok());
        desc.is_some_and(|desc| desc.semantics == pmapi::Semantics::Counter)
    };
    let mut counts: HashMap<Option<&str>, usize> = HashMap::new();
    for difference in &found {
        let why = listed(&difference.expr, is_counter);
        *counts.entry(why).or_default() += 1;
        if why.is_none() || std::env::var_os("DERIVE_SHOW").is_some() {
            println!("{why:?} {difference}");
        }
    }
    println!("{COUNT} expressions, {valid} without syntax errors, differences: {counts:?}");
    assert_eq!(counts.get(&None), None);
}
