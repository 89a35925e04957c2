//! Each rule is tested with an agent that breaks this rule and no other.

mod agent;

use std::collections::HashSet;
use std::time::Duration;

use pcp_collector::{Collector, Local};
use pmapi::{Config, Domain, PmId};
use pmda::host::Engine;
use pmda::prelude::*;

use super::{Finding, Limits, Report, Rule, check};
use agent::{Fake, Flaw, names};

fn report(flaw: Flaw, answer: Duration) -> Report {
    // One that never lists its names is waited for.
    let timeout = if flaw == Flaw::NeverLists { Duration::from_millis(50) } else { Duration::from_secs(60) };
    let limits = Limits { answer, timeout, stores: true };
    check(Collector::new(Fake::new(flaw)), &names(), limits)
}

fn found(flaw: Flaw, answer: Duration) -> Vec<Finding> {
    report(flaw, answer).findings
}

/// Returns the only finding.
#[track_caller]
fn only(flaw: Flaw) -> String {
    let findings = found(flaw, Duration::from_secs(60));
    assert_eq!(findings.len(), 1, "{flaw:?}: {findings:#?}");
    findings[0].to_string()
}

#[test]
fn an_agent_without_flaws() {
    assert_eq!(found(Flaw::None, Duration::from_secs(60)), []);
    // Nothing is left out of an agent that is not ready at first.
    let [ready, busy] = [Flaw::None, Flaw::Busy].map(|flaw| report(flaw, Duration::from_secs(60)));
    assert_eq!(ready, busy);
}

#[test]
fn every_rule_fires() {
    let mut fired = HashSet::new();
    for (flaw, rule) in Flaw::ALL {
        let limit = if *rule == Rule::Slow { Duration::ZERO } else { Duration::from_secs(60) };
        let findings = found(*flaw, limit);
        assert!(!findings.is_empty(), "{flaw:?}");
        assert!(findings.iter().all(|finding| finding.rule == *rule), "{flaw:?}: {findings:#?}");
        fired.insert(*rule);
    }
    // A panic of another thread is found in the log.
    fired.insert(Rule::Panic);
    let silent: Vec<_> = Rule::ALL.iter().filter(|rule| !fired.contains(rule)).collect();
    assert!(silent.is_empty(), "{silent:?}");
}

#[test]
fn what_is_said() {
    assert_eq!(only(Flaw::ShortDescriptor), "malformed: a.level: DESC PDU: instance domain: 4 bytes needed, 0 left");
    assert_eq!(only(Flaw::OtherDescriptor), "wrong-answer: a.name: DESC PDU does not answer the request");
    assert_eq!(only(Flaw::Ends), "ended: a.level: the agent has closed the connection");
    let slow = only(Flaw::Silent);
    assert!(slow.starts_with("slow: 400.1: no answer within 60s; ") && slow.contains("a Background reads"), "{slow}");
    assert_eq!(
        only(Flaw::NoDescriptor),
        "no-descriptor: a.name: the name space has it as 400.0.2, of which the agent knows no descriptor: Unknown or illegal \
         metric identifier"
    );
    assert_eq!(
        only(Flaw::TextCounter),
        "counter-type: a.name: is a counter of type STRING, whose rate clients cannot compute: declare it with semantics \
         instant or discrete"
    );
    let no_help = found(Flaw::NoInDomHelp, Duration::from_secs(60));
    let [no_help] = &no_help[..] else { panic!("{no_help:?}") };
    assert_eq!(
        no_help.to_string(),
        "no-help: 400.1: has no help text: pminfo -t should say what it is, so add a line of help to its declaration or to \
         the help file"
    );
    assert_eq!(only(Flaw::Unnamed), "no-name: 400.0.5: has a descriptor but no name");
    assert_eq!(only(Flaw::NegativeInstance), "negative-instance: 400.1: -7 \"seven\"");
    assert_eq!(only(Flaw::Falls), "counter-falls: a.count: 1000, then 999");
    assert_eq!(
        only(Flaw::ParameterType),
        "events: a.events: parameter 400.0.0 has a value of type U32, but is of type U64"
    );
    assert_eq!(only(Flaw::TakesText), "store: a.count: accepts a value of type STRING, not U64");
    assert_eq!(only(Flaw::TakesUnknown), "store: 400.4095.1023: accepts a value, but is not a metric");
    assert_eq!(only(Flaw::LabelOfOther), "labels: 400.1: labels for instance 99, not in the domain");
    assert_eq!(only(Flaw::NulInValue), "nul-byte: a.name: \"a\\0name\\0\" is read up to its NUL byte");
    assert_eq!(only(Flaw::NulInName), "nul-byte: 400.1: \"six\\0ty\" is read up to its NUL byte");
    assert_eq!(only(Flaw::NulInParameter), "events: a.events: \"a\\0text\" is read up to its NUL byte");
    assert_eq!(only(Flaw::NoProfile), "profile: a.level: returns 0, but the profile has only 1");
}

/// A real agent with common mistakes.
struct Bad;

const BAD: [(&str, Type); 7] = [
    ("bad.good", Type::U32),
    ("bad.text", Type::U32),
    ("bad.wide", Type::U32),
    ("bad.negative", Type::U32),
    ("bad.panics", Type::U32),
    ("bad.absent", Type::U32),
    ("bad.cut", Type::String),
];

impl Agent for Bad {
    const NAME: &'static str = "bad";
    const DOMAIN: u16 = 400;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        for (i, (name, ty)) in (0..).zip(BAD) {
            setup.metric(name, Item::new(0, i), ty).help("One line", "A text.");
        }
        Ok(Bad)
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        match item.item() {
            1 => out.put("text"),
            2 => out.put(5_000_000_000_u64),
            3 => out.put(-1),
            4 => std::panic::panic_any("as the test wants it"),
            5 => Err(Error::VALUE),
            6 => out.put("a\0b"),
            _ => out.put(7),
        }
    }
}

fn bad(names: &[&str]) -> Report {
    let domain = Domain::new(400).unwrap();
    let agent =
        Collector::new(Local::<Bad>::start(Engine::builder().domain(domain).config(Config::new(b"", []))).unwrap());
    let all = (0..).zip(BAD).map(|(i, (name, _))| (name.to_owned(), PmId::new(domain, Item::new(0, i))));
    let names: Vec<_> = all.filter(|(name, _)| names.contains(&name.as_str())).collect();
    check(agent, &names, Limits { answer: Duration::from_secs(60), timeout: Duration::from_secs(60), stores: false })
}

#[test]
fn values_that_fail_are_named_with_the_reason() {
    let report = bad(&BAD.map(|(name, _)| name));
    let lines: Vec<_> = report.findings.iter().map(Finding::to_string).collect();
    assert_eq!(
        lines,
        [
            "failed-value: bad.text: the agent makes a value that is not of the metric's type: change the value or the \
             declaration (the answer is \"Unknown or illegal metric type\")",
            "failed-value: bad.wide: the agent makes a value that is too large for the metric's type: declare a wider type \
             (the answer is \"Truncation in value conversion\")",
            "failed-value: bad.negative: the agent makes a negative value, and the metric's type is unsigned: declare a \
             signed type (the answer is \"Negative value in conversion to unsigned\")",
            "failed-value: bad.panics: the agent fails to make the value, by a panic if it is written with crate pmda: its \
             log has the reason and the line",
            "failed-value: bad.cut: the agent makes a text with a NUL byte, or a value that is not of the metric's type: \
             change the value or the declaration (the answer is \"Impossible value or scale conversion\")",
        ]
    );
    assert_eq!(
        report.to_string(),
        "7 metrics, 1 value, 1 without a value (bad.absent: Missing metric value(s)), 5 breaches"
    );
}

#[test]
fn a_check_says_what_it_has_checked() {
    let with = |findings, metrics, values, without: &[&str]| {
        let without = without.iter().map(|metric| (*metric).to_owned()).collect();
        Report { findings, metrics, values, without }.to_string()
    };
    let report = |findings, metrics, values| with(findings, metrics, values, &[]);
    assert_eq!(report(Vec::new(), 5, 9), "5 metrics, 9 values, no rule broken");
    assert_eq!(report(Vec::new(), 1, 0), "1 metric, 0 values, no rule broken");
    let finding = Finding { rule: Rule::NoHelp, subject: String::new(), detail: String::new() };
    assert_eq!(report(vec![finding], 0, 1), "0 metrics, 1 value, 1 breach");
    let none = with(Vec::new(), 2, 1, &["a.b: no instances"]);
    assert_eq!(none, "2 metrics, 1 value, 1 without a value (a.b: no instances), no rule broken");
    let none = with(Vec::new(), 2, 0, &["a.b: no instances", "a.c: No such file or directory"]);
    assert_eq!(
        none,
        "2 metrics, 0 values, 2 without a value (a.b: no instances; a.c: No such file or directory), no rule broken"
    );
    let none = with(Vec::new(), 3, 0, &["a.b: no instances", "a.c: No such file or directory", "a.d: no instances"]);
    assert_eq!(
        none,
        "3 metrics, 0 values, 3 without a value (a.b and 1 more: no instances; a.c: No such file or directory), no rule broken"
    );
}
