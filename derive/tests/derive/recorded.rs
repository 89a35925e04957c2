//! The 844 definitions of PCP's own tests, with the answers of libpcp 7.2.1.

use pcp_pdu::print::Print;
use std::collections::BTreeSet;

use pcp_derive::{BindError, Definition, Evaluator, RegisterError};
use pmapi::{Atom, Desc, PmId};

use crate::answers::{Answers, Fetched};
use crate::cases::{TWO_NOVALUES, comparable, expected, expressions};
use crate::live::data;

/// Returns every word in the expressions that could be the name of a metric.
pub(crate) fn names() -> BTreeSet<String> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.');
    let is_name = |name: &&str| name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.len() < 128;
    expressions().iter().flat_map(|(_, expr)| expr.split(word).filter(is_name).map(str::to_owned)).collect()
}

pub(crate) fn answers() -> Answers {
    Answers::parse(&std::fs::read_to_string(data("operands.tsv")).unwrap())
}

/// Returns what `oracle.py` prints about a definition: OK, descriptor and values; or ERR, kind and text.
fn ours(name: &str, expr: &str, answers: &Answers) -> [String; 3] {
    let line = |parts: [&str; 3]| parts.map(str::to_owned);
    let text = expr.trim_start();
    let definition = match Definition::new(name, text, PmId::from_word(0).unwrap()) {
        Ok(definition) => definition,
        Err(RegisterError::Syntax(error)) => {
            let column = error.caret(expr.trim_start()).find('^').unwrap() + (expr.len() - text.len());
            return line(["ERR", "syntax", format!("col {column}: {error}").trim_end_matches('\n')]);
        }
        Err(error) => panic!("{name}: {error}"),
    };
    let mut metadata = answers;
    let mut evaluator = Evaluator::bind([&definition], &mut metadata, false);
    match evaluator.desc(0) {
        Ok(desc) => {
            let plan = evaluator.plan([0]);
            let sample = &answers.samples[0];
            evaluator.evaluate(&plan, sample.stamp, &mut Fetched { answers, sample });
            line(["OK", &described(&desc), &shown(&evaluator, &desc, answers)])
        }
        Err(Some(BindError::Semantic { context, reason })) => {
            line(["ERR", "semantic", &format!("{context}: {reason}")])
        }
        Err(error) => panic!("{name}: {error:?}"),
    }
}

fn described(desc: &Desc) -> String {
    let ty = desc.ty.description();
    let indom = if desc.indom.is_some() { "SET" } else { "NULL" };
    let units = if desc.units.is_dimensionless() { "none".to_owned() } else { desc.units.to_string() };
    format!("type={ty} indom={indom} sem={} units={units}", desc.semantics)
}

fn shown(evaluator: &Evaluator, desc: &Desc, answers: &Answers) -> String {
    let values = match evaluator.values(0) {
        Ok(values) => values,
        Err(error) => return format!("E:Error: {error}"),
    };
    let names = desc.indom.and_then(|indom| answers.instances.get(&indom));
    let shown = values.iter().map(|(inst, atom)| {
        let name = names.and_then(|names| names.iter().find(|(other, _)| Some(*other) == inst));
        let name = name.map_or("", |(_, name)| name);
        let text = match atom {
            Atom::String(text) => format!("\"{}\"", String::from_utf8_lossy(text)),
            atom => Print::new(atom, 1).to_string(),
        };
        format!("\"{name}\"={text}")
    });
    format!("{{{}}}", shown.collect::<Vec<_>>().join(","))
}

#[test]
fn the_844_definitions_of_pcps_tests() {
    let answers = answers();
    let expected = expected();
    let expressions = expressions();
    assert_eq!((expressions.len(), expected.len()), (844, 844));
    let mut wrong = Vec::new();
    let mut compared_values = 0;
    for ((name, expr), line) in expressions.iter().zip(expected) {
        let Some((said, theirs)) = line.split_first() else { panic!("{name}") };
        assert_eq!(said, name);
        let ours = ours(name, expr, &answers);
        let [status, meta] = [0, 1].map(|at| ours[at] == theirs[at]);
        let last = theirs.get(2).copied().unwrap_or_default();
        let values = theirs[0] != "OK" || comparable(expr, last);
        compared_values += usize::from(values && theirs[0] == "OK");
        if name == TWO_NOVALUES {
            assert!(ours[2].ends_with("novalue() may appear at most once in a ternary expression"));
            continue;
        }
        if !status || !meta || (values && ours[2].trim_end() != last) {
            wrong.push(format!("{name} = {expr}\n  ours   {ours:?}\n  theirs {theirs:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of 844 differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared_values > 500, "{compared_values}");
}
