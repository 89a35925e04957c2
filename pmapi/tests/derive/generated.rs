//! Ten thousand generated expressions, valid and invalid, against the installed libpcp on the same samples.
//!
//! Where ours differs on purpose, the list in the documentation of `pmapi::derive` says so; [`listed`] knows which
//! expressions these are.

use std::collections::HashMap;

use pmapi::Error;
use pmapi::derive::{BindError, Definition, Evaluator, RegisterError};
use pmapi::{Desc, PmId};

use crate::answers::{Answers, Fetched, Outcome, Sample, printed};
use crate::generator::{OPERANDS, expressions, is_newer_reason, listed};
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
    let errors: HashMap<&str, &str> = errors
        .lines()
        .filter_map(|line| line.strip_prefix("Semantic error: derived metric ")?.split_once(": "))
        .collect();

    let mut differences = Differences { expressions: &expressions, answers: &answers, found: Vec::new() };
    let definitions = differences.syntax();
    differences.semantics(&definitions, &errors);
    differences.values(&definitions);
    differences.report(definitions.len());
}

struct Differences<'a> {
    expressions: &'a [(String, String)],
    answers: &'a Answers,
    found: Vec<(Option<&'static str>, String)>,
}

impl Differences<'_> {
    fn differ(&mut self, expr: &str, ours: &str, theirs: &str) {
        let text = format!("{expr}\n    ours   {ours}\n    theirs {theirs}");
        let is_counter = |name: &str| {
            let desc = self.answers.operands.get(name).and_then(|desc| desc.ok());
            desc.is_some_and(|desc| desc.semantics == pmapi::Semantics::Counter)
        };
        self.found.push((listed(expr, is_counter), text));
    }

    /// Compares syntax errors; the definitions that have none.
    fn syntax(&mut self) -> Vec<(String, Definition)> {
        let mut definitions = Vec::new();
        for (name, expr) in self.expressions {
            // None for what libpcp did not survive.
            let Some(theirs) = self.answers.definitions.get(name) else { continue };
            let ours = match Definition::new(name, expr, PmId::from_word(0).unwrap()) {
                Ok(definition) => {
                    definitions.push((expr.clone(), definition));
                    None
                }
                Err(RegisterError::Syntax(error)) => Some((error.offset, error.to_string())),
                Err(error) => panic!("{error}"),
            };
            let theirs = match theirs {
                Outcome::Syntax { offset, reason } => Some((*offset, reason.clone())),
                _ => None,
            };
            let newer = ours.as_ref().is_some_and(|(_, reason)| is_newer_reason(reason));
            if ours != theirs && !newer {
                self.differ(expr, &format!("{ours:?}"), &format!("{theirs:?}"));
            }
        }
        definitions
    }

    fn semantics(&mut self, definitions: &[(String, Definition)], errors: &HashMap<&str, &str>) {
        let mut metadata = self.answers;
        let evaluator = Evaluator::bind(definitions.iter().map(|(_, definition)| definition), &mut metadata, false);
        for (number, (expr, definition)) in definitions.iter().enumerate() {
            let ours = match evaluator.desc(number) {
                Ok(Desc { ty, indom, semantics, units, .. }) => {
                    format!("{:?}", Outcome::Bound { ty, indom, semantics, units })
                }
                Err(Some(error @ BindError::Semantic { .. })) => error.to_string(),
                Err(error) => panic!("{error:?}"),
            };
            let theirs = match self.answers.definitions.get(definition.name()) {
                Some(Outcome::Unbound) => match errors.get(definition.name()) {
                    Some(error) => (*error).to_owned(),
                    // 6.0.3 does not always tell why.
                    None if evaluator.desc(number).is_err() => continue,
                    None => String::new(),
                },
                Some(outcome @ Outcome::Bound { .. }) => format!("{outcome:?}"),
                _ => continue,
            };
            if ours != theirs {
                self.differ(expr, &ours, &theirs);
            }
        }
    }

    /// Compares the values of each batch of definitions in its samples.
    fn values(&mut self, definitions: &[(String, Definition)]) {
        let mut seen = HashMap::new();
        for sample in &self.answers.samples {
            let key: Vec<&String> = sample.results.keys().min().into_iter().collect();
            seen.entry(key).or_insert_with(Vec::new).push(sample);
        }
        let by_name: HashMap<&str, &(String, Definition)> =
            definitions.iter().map(|pair| (pair.1.name(), pair)).collect();
        for samples in seen.values() {
            let batch: Vec<&(String, Definition)> =
                samples[0].results.keys().filter_map(|name| by_name.get(&**name).copied()).collect();
            self.batch(&batch, samples);
        }
    }

    fn batch(&mut self, batch: &[&(String, Definition)], samples: &[&Sample]) {
        let mut metadata = self.answers;
        let mut evaluator = Evaluator::bind(batch.iter().map(|pair| &pair.1), &mut metadata, false);
        let plan = evaluator.plan(0..batch.len());
        for (at, sample) in samples.iter().enumerate() {
            evaluator.evaluate(&plan, sample.stamp, &mut Fetched { answers: self.answers, sample });
            for (number, (expr, definition)) in batch.iter().enumerate() {
                let Ok(theirs) = sample.results.get(definition.name()).unwrap() else { continue };
                let ours = match evaluator.values(number) {
                    Ok(values) => {
                        let pair = |(inst, atom): (Option<pmapi::Inst>, _)| {
                            (inst.map_or(u32::MAX, pmapi::Inst::word), printed(atom))
                        };
                        Ok(values.iter().map(pair).collect())
                    }
                    Err(error) => Err::<Vec<_>, Error>(error),
                };
                if ours.as_ref() != Ok(theirs) && evaluator.desc(number).is_ok() {
                    self.differ(expr, &format!("sample {at}: {ours:?}"), &format!("{theirs:?}"));
                    break;
                }
            }
        }
    }

    fn report(self, valid: usize) {
        let mut counts: HashMap<Option<&str>, usize> = HashMap::new();
        for (why, text) in &self.found {
            *counts.entry(*why).or_default() += 1;
            if why.is_none() || std::env::var_os("DERIVE_SHOW").is_some() {
                println!("{why:?} {text}");
            }
        }
        println!("{COUNT} expressions, {valid} without syntax errors, differences: {counts:?}");
        assert_eq!(counts.get(&None), None);
    }
}
