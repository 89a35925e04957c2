//! Ten thousand generated expressions, valid and invalid, compared with the installed libpcp on the same samples.
//!
//! The documentation of `pcp_derived` lists the intended differences; [`listed`] knows which expressions they
//! concern.

use std::collections::HashMap;

use crate::derive::compare::differences;
use crate::derive::generator::{OPERANDS, expressions, listed};
use crate::derive::live::{Asked, Stage};

const COUNT: usize = 10_000;

#[test]
#[ignore = "needs PCP"]
// Slow: that many expressions are evaluated by libpcp and by this crate.
fn ten_thousand_expressions() {
    let stage = Stage::new();
    let expressions = expressions(COUNT);
    let samples = |requests: &str| if requests.contains("delta(") || requests.contains("rate(") { 3 } else { 1 };
    let Asked { answers, deadly } = stage.oracle.ask_about(&expressions, OPERANDS, samples);
    println!("libpcp did not survive {} expressions: {deadly:#?}", deadly.len());
    let (valid, found) = differences(&expressions, &answers);
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
    assert!(deadly.len() < COUNT / 10, "libpcp has hardly answered");
}
