//! Comparison of `pcp_derived` with libpcp on the same definitions and samples.

use std::collections::{HashMap, HashSet};

use pcp_derived::{BindError, Definition, Evaluator, RegisterError, UnknownNames};
use pmapi::{Desc, PmId};

use crate::derive::answers::{Answers, Column, Fetched, Outcome, Sample, printed};
use crate::derive::generator::is_newer_reason;

/// Difference for one expression.
pub(crate) struct Difference {
    pub(crate) expr: String,
    pub(crate) ours: String,
    pub(crate) theirs: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\n    ours   {}\n    theirs {}", self.expr, self.ours, self.theirs)
    }
}

/// Returns the number of definitions without a syntax error, and all differences from libpcp's answers. `expressions`
/// has names and expressions.
pub(crate) fn differences(expressions: &[(String, String)], answers: &Answers) -> (usize, Vec<Difference>) {
    let mut differences = Differences { expressions, answers, found: Vec::new() };
    let definitions = differences.syntax();
    differences.semantics(&definitions);
    differences.values(&definitions);
    (definitions.len(), differences.found)
}

struct Differences<'a> {
    expressions: &'a [(String, String)],
    answers: &'a Answers,
    found: Vec<Difference>,
}

impl Differences<'_> {
    fn differ(&mut self, expr: &str, ours: &str, theirs: &str) {
        self.found.push(Difference { expr: expr.to_owned(), ours: ours.to_owned(), theirs: theirs.to_owned() });
    }

    /// Compares syntax errors and returns the definitions without one.
    fn syntax(&mut self) -> Vec<(String, Definition)> {
        let mut definitions = Vec::new();
        for (name, expr) in self.expressions {
            // An expression that crashes libpcp has no answer.
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

    fn semantics(&mut self, definitions: &[(String, Definition)]) {
        let mut metadata = self.answers;
        let evaluator =
            Evaluator::bind(definitions.iter().map(|(_, definition)| definition), &mut metadata, UnknownNames::Refused);
        for (id, (expr, definition)) in evaluator.ids().zip(definitions) {
            let ours = match evaluator.desc(id) {
                Ok(Desc { ty, indom, semantics, units, .. }) => {
                    format!("{:?}", Outcome::Bound { ty, indom, semantics, units })
                }
                Err(Some(error @ BindError::Semantic { .. })) => error.to_string(),
                Err(error) => panic!("{error:?}"),
            };
            let theirs = match self.answers.definitions.get(definition.name()) {
                Some(Outcome::Unbound) => match self.answers.errors.get(definition.name()) {
                    Some(error) => error.clone(),
                    // libpcp 6.0.3 does not always print a reason.
                    None if evaluator.desc(id).is_err() => continue,
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
        let mut evaluator = Evaluator::bind(batch.iter().map(|pair| &pair.1), &mut metadata, UnknownNames::Refused);
        let plan = evaluator.plan(evaluator.ids());
        let mut different = HashSet::new();
        for (at, sample) in samples.iter().enumerate() {
            evaluator.evaluate(&plan, sample.stamp, &mut Fetched { answers: self.answers, sample });
            for (id, (expr, definition)) in evaluator.ids().zip(batch) {
                if different.contains(&id) || evaluator.desc(id).is_err() {
                    continue;
                }
                let Some(theirs) = sample.results.get(definition.name()) else { continue };
                let ours = evaluator.values(id).map(|values| {
                    let word = |inst: Option<pmapi::Inst>| inst.map_or(u32::MAX, pmapi::Inst::word);
                    values.iter().map(|(inst, atom)| (word(inst), printed(atom))).collect()
                });
                if !same(&ours, theirs) {
                    different.insert(id);
                    self.differ(expr, &format!("sample {at}: {ours:?}"), &format!("{theirs:?}"));
                }
            }
        }
    }
}

/// Returns whether values are equal. All NaNs count as equal.
fn same(ours: &Column, theirs: &Column) -> bool {
    let is_nan = |text: &str| match (text.len(), u64::from_str_radix(text, 16)) {
        (8, Ok(bits)) => f32::from_bits(bits as u32).is_nan(),
        (16, Ok(bits)) => f64::from_bits(bits).is_nan(),
        _ => false,
    };
    let same = |ours: &(u32, String), theirs: &(u32, String)| {
        ours == theirs || (ours.0 == theirs.0 && is_nan(&ours.1) && is_nan(&theirs.1))
    };
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(o, t)| same(o, t)),
        (ours, theirs) => ours == theirs,
    }
}
