//! Patterns compared with glibc in the locale `C.UTF-8`.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use regex::Regex;

fn program(dir: &Path) -> PathBuf {
    testkit::compile(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/glibc.c"), dir, &[])
}

/// Another version of glibc may know more characters: only those that are printable here are compared.
#[test]
#[ignore = "needs a C compiler and the locale C.UTF-8"]
// Slow: all characters, in glibc and in this crate.
fn classes_of_characters() {
    let dir = tempfile::tempdir().unwrap();
    let answers = testkit::answers(Command::new(program(dir.path())).arg("classes"), "");
    let all: String = ('\u{1}'..=char::MAX).collect();
    let of = |class: &str| -> BTreeSet<char> {
        let pattern = Regex::new(&pcp_ere::translate(&format!("[[:{class}:]]")).unwrap()).unwrap();
        pattern.find_iter(&all).flat_map(|found| found.as_str().chars()).collect()
    };
    let known: BTreeSet<char> = of("print").union(&of("cntrl")).copied().collect();
    let mut compared = 0;
    for line in answers.lines() {
        let mut words = line.split(' ');
        let class = words.next().unwrap();
        let theirs = words.map(|word| char::from_u32(u32::from_str_radix(word, 16).unwrap()).unwrap());
        let theirs: BTreeSet<char> = theirs.filter(|c| known.contains(c) || c.is_ascii()).collect();
        let ours = of(class);
        let differ: Vec<_> = ours.symmetric_difference(&theirs).take(20).collect();
        assert!(differ.is_empty(), "{class}: {differ:?}");
        compared += ours.len();
    }
    assert!(compared > 800_000, "{compared}");
}

/// Parts of patterns.
const PARTS: [&str; 65] = [
    "a",
    "é",
    "ß",
    "Σ",
    "ſ",
    "ﬁ",
    "日",
    "٣",
    "½",
    "_",
    "-",
    " ",
    "\u{a0}",
    "\u{2003}",
    "\u{301}",
    "🦀",
    ".",
    "^",
    "$",
    "|",
    "(",
    ")",
    "*",
    "+",
    "?",
    "{1,2}",
    "{2}",
    "{,1}",
    "[[:alnum:]]",
    "[[:alpha:]]",
    "[[:blank:]]",
    "[[:cntrl:]]",
    "[[:digit:]]",
    "[[:graph:]]",
    "[[:lower:]]",
    "[[:print:]]",
    "[[:punct:]]",
    "[[:space:]]",
    "[[:upper:]]",
    "[[:xdigit:]]",
    "[^[:alpha:]]",
    "[^[:lower:]é]",
    "[é[:upper:]]",
    "[[:digit:][:lower:]_]",
    "[^[:space:][:punct:]]",
    "[]é]",
    "[^]é]",
    "[é-]",
    "[a-z]",
    "[A-Z]",
    "[Z-a]",
    "[[=a=]]",
    "[[.a.]]",
    "[[.-.]]",
    "[[.a.]-c]",
    "[[:foo:]]",
    "[[:alpha:]-z]",
    "[[=ab=]]",
    "\\w",
    "\\W",
    "\\s",
    "\\S",
    "\\`",
    "\\'",
    "\\é",
];
/// Parts of texts. Those with bounds of words have neither marks nor punctuation beyond ASCII.
const TEXT: [&str; 22] = [
    "a", "b", "z", "A", "Z", "é", "É", "ß", "Σ", "ſ", "ﬁ", "日", "٣", "5", "_", "-", " ", "\u{a0}", "\u{2003}", "½",
    "\u{301}", "🦀",
];
const BOUNDS: [&str; 4] = ["\\b", "\\B", "\\<", "\\>"];

#[test]
#[ignore = "needs a C compiler and the locale C.UTF-8"]
// Slow: many random patterns, in glibc and in this crate.
fn matches_and_errors() {
    let mut runner = TestRunner::new(Config { rng_seed: RngSeed::Fixed(35), ..Config::default() });
    let joined = |parts: &[&'static str], most| {
        prop::collection::vec(prop::sample::select(parts.to_vec()), 0..most).prop_map(|parts| parts.concat())
    };
    let bounded = [&PARTS[..14], &BOUNDS].concat();
    let mut cases = Vec::new();
    for (parts, texts, count) in [(&PARTS[..], &TEXT[..], 4_000), (&bounded, &TEXT[..18], 1_000)] {
        let strategy = (joined(parts, 5), joined(texts, 5));
        cases.extend((0..count).map(|_| strategy.new_tree(&mut runner).unwrap().current()));
    }
    let input: String = cases.iter().map(|(pattern, text)| format!("{pattern}\t{text}\n")).collect();
    let dir = tempfile::tempdir().unwrap();
    let answers = testkit::answers(&mut Command::new(program(dir.path())), &input);
    assert_eq!(answers.lines().count(), cases.len());
    let mut matched = 0;
    for ((pattern, text), theirs) in cases.iter().zip(answers.lines()) {
        let ours = match pcp_ere::translate(pattern) {
            Ok(translated) => u8::from(Regex::new(&translated).unwrap().is_match(text)).to_string(),
            Err(e) => e.to_string(),
        };
        assert_eq!(ours, theirs, "{pattern} {text}");
        matched += usize::from(ours == "1");
    }
    assert!(matched > 1_000, "{matched}");
}
