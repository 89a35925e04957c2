//! Our definitions, with the answers that versions of libpcp have given.
//!
//! `data/derive/answers-VERSION.gz` has output of `oracle.c`: the operands in a few samples, then each definition's
//! error, or its descriptor and values in the same samples. Its own lines are Q name expression            a definition
//! C name text                  a semantic error K name                       a definition that libpcp did not survive
//! W name                       a definition whose values are those of memory that libpcp did not initialize

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use crate::derive::answers::{Answers, Outcome};
use crate::derive::compare::differences;
use crate::derive::edges::{FUNCTIONS, OPERATORS};
use crate::derive::generator::{batches, is_newer};
use crate::derive::live::{Oracle, data};
use crate::derive::local::{self, SAMPLES, UNITS};
use crate::derive::reasons::reason;
use crate::derive::set;

/// Returns the recorded answers of a version of libpcp.
fn recording(version: &str) -> String {
    let mut text = String::new();
    let file = File::open(data(&format!("answers-{version}.gz"))).unwrap();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    text
}

/// Returns the texts of the errors that 7.2.1 gave.
pub(crate) fn errors() -> BTreeSet<String> {
    error_texts(&Answers::parse(&recording("7.2.1")))
}

/// Returns the texts of syntax and semantic errors, without quoted text and operands.
pub(crate) fn error_texts(answers: &Answers) -> BTreeSet<String> {
    let reasons = answers.definitions.values().filter_map(|outcome| match outcome {
        Outcome::Syntax { reason, .. } => Some(reason.split('\'').next().unwrap().to_owned()),
        _ => None,
    });
    let semantic = answers.errors.values().map(|text| text.rsplit(": ").next().unwrap().to_owned());
    reasons.chain(semantic).collect()
}

/// Asks libpcp about the operands and all definitions.
fn record(oracle: &Oracle, definitions: &[(String, String)]) -> String {
    let operands: String = local::operands().iter().map(|name| format!("operand\t{name}\n")).collect();
    let (mut text, _) = oracle.ask(&operands, SAMPLES, 1).unwrap();
    for (name, expr) in definitions {
        text += &format!("Q\t{name}\t{expr}\n");
    }
    for batch in batches(definitions) {
        if let Some(lines) = answer(oracle, &batch) {
            text += &lines;
            continue;
        }
        for definition in batch {
            text += &answer(oracle, &[definition]).unwrap_or_else(|| format!("K\t{}\n", definition.0));
        }
    }
    text
}

/// Asks about definitions at once. An operand makes libpcp fetch from the agent in each sample.
fn answer(oracle: &Oracle, definitions: &[&(String, String)]) -> Option<String> {
    let defines = definitions.iter().map(|(name, expr)| format!("define\t{name}\t{expr}\n"));
    let requests: String = std::iter::once("operand\te.guard\n".to_owned()).chain(defines).collect();
    let (text, messages) = oracle.ask(&requests, SAMPLES, definitions.len())?;
    let mut lines: Vec<String> = text
        .lines()
        .filter(|line| line.starts_with(['E', 'B', 'M', 'S', 'R']))
        .map(|line| format!("{line}\n"))
        .collect();
    let mut errors = Answers::default();
    errors.add_messages(&messages);
    for (name, _) in definitions {
        lines.extend(errors.errors.get(name).map(|error| format!("C\t{name}\t{error}\n")));
    }
    Some(lines.concat())
}

/// Compares our answers with recorded ones, and returns the number of definitions for each documented difference.
fn compare(version: &str) -> HashMap<Option<&'static str>, usize> {
    let answers = Answers::parse(&recording(version));
    let definitions = set::definitions();
    assert_eq!(answers.asked, definitions, "the definitions have changed: record the answers anew (DERIVE_RECORD)");
    let newer = version == "7.2.1";
    let known: Vec<_> = definitions.into_iter().filter(|(_, expr)| newer || !is_newer(expr)).collect();
    let (_, found) = differences(&known, &answers);
    let mut counts = HashMap::new();
    for difference in &found {
        let why = reason(difference, newer);
        *counts.entry(why).or_default() += 1;
        if why.is_none() || std::env::var_os("DERIVE_SHOW").is_some() {
            println!("{why:?} {difference}");
        }
    }
    println!("libpcp {version}: {} definitions, differences: {counts:?}", known.len());
    counts
}

/// Returns the definitions with values that differ between two recordings.
fn varying(one: &str, other: &str) -> BTreeSet<String> {
    let lines = one.lines().zip(other.lines()).filter(|(one, other)| one != other);
    lines.map(|(line, _)| line.split('\t').nth(1).unwrap().to_owned()).collect()
}

/// Returns the recording without the values of some definitions.
fn without(text: &str, names: &BTreeSet<String>) -> String {
    let is_kept = |line: &&str| match line.split_once('\t') {
        Some(("R", rest)) => !names.contains(rest.split('\t').next().unwrap()),
        _ => !line.starts_with('W'),
    };
    text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect()
}

/// The definitions have the texts of all errors, each syntax error at several places, and every operator, function and
/// unit in answers with values.
#[test]
fn definitions_cover_the_language() {
    let answers = Answers::parse(&recording("7.2.1"));
    let texts = error_texts(&answers);
    assert!(texts.len() >= 76, "{}: {texts:#?}", texts.len());
    let mut places: BTreeSet<(usize, &str)> = BTreeSet::new();
    let (mut bound, mut unbound) = (0, 0);
    for outcome in answers.definitions.values() {
        match outcome {
            Outcome::Syntax { offset, reason } => drop(places.insert((*offset, reason))),
            Outcome::Unbound => unbound += 1,
            Outcome::Bound { .. } => bound += 1,
        }
    }
    assert!(places.len() > 350 && unbound > 400 && bound > 2000, "{} {unbound} {bound}", places.len());
    let with_values: Vec<&str> = answers
        .asked
        .iter()
        .filter_map(|(name, expr)| {
            let values = answers.samples.iter().filter_map(|sample| sample.results.get(name)?.as_ref().ok());
            values.flatten().next().map(|_| expr.as_str())
        })
        .collect();
    for word in OPERATORS.iter().chain(FUNCTIONS.iter()).chain(UNITS.iter()).chain(&[
        "!",
        "matchinst(!",
        "rescale(",
        "mkconst(",
        "novalue(",
    ]) {
        assert!(with_values.iter().any(|expr| expr.contains(word)), "{word}");
    }
}

#[test]
fn answers_are_those_of_7_2_1() {
    assert_eq!(compare("7.2.1").get(&None), None);
}

#[test]
fn answers_are_those_of_6_3_8() {
    assert_eq!(compare("6.3.8").get(&None), None);
}

#[test]
fn answers_are_those_of_6_0_3() {
    assert_eq!(compare("6.0.3").get(&None), None);
}

/// With `$DERIVE_RECORD` set, the test rewrites the file of the installed version.
#[test]
#[ignore = "needs PCP"]
// Slow: libpcp evaluates all recorded expressions.
fn the_installed_libpcp_answers_as_recorded() {
    let oracle = local::oracle();
    let version = oracle.version();
    let text = record(&oracle, &set::definitions());
    if std::env::var_os("DERIVE_RECORD").is_some() {
        let varying = varying(&text, &record(&oracle, &set::definitions()));
        let marks: String = varying.iter().map(|name| format!("W\t{name}\n")).collect();
        let file = File::create(data(&format!("answers-{version}.gz"))).unwrap();
        let text = without(&text, &varying) + &marks;
        GzEncoder::new(file, Compression::best()).write_all(text.as_bytes()).unwrap();
    }
    let recording = recording(version);
    let varying = Answers::parse(&recording).varying;
    let (theirs, recording) = (without(&text, &varying), without(&recording, &varying));
    let changed: Vec<_> = theirs.lines().zip(recording.lines()).filter(|(a, b)| a != b).collect();
    assert!(theirs == recording, "{changed:#?}");
}
