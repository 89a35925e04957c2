//! The definitions in PCP's own tests, which are read from an installed pcp-testsuite and never copied.

use std::collections::BTreeSet;
use std::fs;

use testkit::Pcp;

use crate::derive::compare::differences;
use crate::derive::generator::{is_newer, listed};
use crate::derive::live::{Asked, Stage};
use crate::derive::recorded;

/// Reads the lines that look like definitions from the scripts about derived metrics, except those that the shell would
/// expand.
fn definitions(pcp: &Pcp) -> Vec<(String, String)> {
    let mut expressions = BTreeSet::new();
    for entry in fs::read_dir(pcp.testsuite()).unwrap() {
        let path = entry.unwrap().path();
        let is_script = path.file_name().unwrap().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit());
        let text = if is_script { fs::read(&path).unwrap_or_default() } else { Vec::new() };
        let text = String::from_utf8_lossy(&text);
        if ["PCP_DERIVED_CONFIG", "pmLoadDerived", "pmRegisterDerived"].iter().any(|word| text.contains(word)) {
            expressions.extend(text.lines().filter_map(definition));
        }
    }
    expressions.into_iter().enumerate().map(|(at, expr)| (format!("p.e{at}"), expr)).collect()
}

fn definition(line: &str) -> Option<String> {
    let (name, expr) = line.split_once('=')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let valid = !name.trim().is_empty() && name.trim().chars().all(is_name);
    let plain = !expr.contains(['$', '`', '\\']) && !expr.trim().is_empty() && !expr.contains("[]");
    (valid && plain).then(|| expr.trim().to_owned())
}

/// Returns every word in the expressions that could be the name of a metric.
fn names(definitions: &[(String, String)]) -> Vec<String> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.');
    let is_name = |name: &&str| name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.len() < 128;
    let all: BTreeSet<&str> = definitions.iter().flat_map(|(_, expr)| expr.split(word).filter(is_name)).collect();
    all.into_iter().map(str::to_owned).collect()
}

#[test]
#[ignore = "needs PCP"]
// Slow: libpcp evaluates the definitions of its test suite.
fn testsuite_definitions() {
    let mut definitions = definitions(&Pcp::required());
    assert!(definitions.len() > 400, "{}", definitions.len());
    let stage = Stage::new();
    definitions.retain(|(_, expr)| stage.oracle.is_newer() || !is_newer(expr));
    let names = names(&definitions);
    let samples = |requests: &str| if requests.contains("delta(") || requests.contains("rate(") { 3 } else { 1 };
    let Asked { answers, deadly } = stage.oracle.ask_about(&definitions, &names, samples);
    let (valid, found) = differences(&definitions, &answers);
    let is_counter = |name: &str| {
        let desc = answers.operands.get(name).and_then(|desc| desc.ok());
        desc.is_some_and(|desc| desc.semantics == pmapi::Semantics::Counter)
    };
    let unlisted: Vec<String> =
        found.iter().filter(|one| listed(&one.expr, is_counter).is_none()).map(ToString::to_string).collect();
    println!("{} definitions, {valid} without syntax errors, libpcp crashes: {deadly:#?}", definitions.len());
    assert!(unlisted.is_empty(), "{}", unlisted.join("\n"));

    // Our own definitions produce every error that those of PCP produce.
    let ours = recorded::errors();
    let theirs = recorded::error_texts(&answers);
    assert!(theirs.len() > 20, "{theirs:#?}");
    assert_eq!(theirs.difference(&ours).collect::<Vec<_>>(), Vec::<&String>::new());
}
