//! Each rule is tested with an agent that breaks this rule and no other.

mod agent;

use std::collections::HashSet;
use std::time::Duration;

use pcp_collector::Collector;

use super::{Finding, Limits, Rule, check};
use agent::{Fake, Flaw, names};

fn found(flaw: Flaw, answer: Duration) -> Vec<Finding> {
    let limits = Limits { answer, timeout: Duration::from_secs(60), stores: true };
    check(Collector::new(Fake::new(flaw)), &names(), limits)
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
    assert_eq!(found(Flaw::Busy, Duration::from_secs(60)), []);
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
    let silent: Vec<_> = Rule::ALL.iter().filter(|rule| !fired.contains(rule)).collect();
    assert!(silent.is_empty(), "{silent:?}");
}

#[test]
fn what_is_said() {
    assert_eq!(only(Flaw::ShortDescriptor), "malformed: a.level: DESC PDU: instance domain: 4 bytes needed, 0 left");
    assert_eq!(only(Flaw::OtherDescriptor), "wrong-answer: a.name: DESC PDU does not answer the request");
    assert_eq!(only(Flaw::Ends), "ended: a.level: the agent has closed the connection");
    assert_eq!(only(Flaw::Silent), "slow: 400.1: no answer within 60s");
    assert_eq!(only(Flaw::NoDescriptor), "no-descriptor: a.name: 400.0.2: Unknown or illegal metric identifier");
    assert_eq!(only(Flaw::Unnamed), "no-name: 400.0.5: has a descriptor but no name");
    assert_eq!(only(Flaw::NegativeInstance), "negative-instance: 400.1: -7 \"seven\"");
    assert_eq!(only(Flaw::Falls), "counter-falls: a.count: 1000, then 999");
    assert_eq!(only(Flaw::ParameterType), "events: a.events: parameter 400.0.0 is U32, not U64");
    assert_eq!(only(Flaw::TakesText), "store: a.count: accepts a value of type STRING, not U64");
    assert_eq!(only(Flaw::TakesUnknown), "store: 400.4095.1023: accepts a value, but is not a metric");
    assert_eq!(only(Flaw::LabelOfOther), "labels: 400.1: labels for instance 99, not in the domain");
    assert_eq!(only(Flaw::NoProfile), "profile: a.level: returns 0, but the profile has only 1");
}
