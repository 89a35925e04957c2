//! Dynamic metrics, as clients of the real pmcd see them.

use std::process::Command;

use testkit::{Pcp, Pmcd};

use super::{compile, zoo};

fn grow(pmcd: &Pmcd, n: &str) {
    pmcd.run("pmstore", ["zoo.herd", n]).ok();
}

fn lines(pmcd: &Pmcd, arguments: &[&str]) -> Vec<String> {
    pmcd.run("pminfo", arguments).ok().lines().map(str::to_owned).collect()
}

#[test]
#[ignore = "needs PCP"]
fn names_in_both_directions() {
    let pmcd = zoo();
    assert_eq!(lines(&pmcd, &["zoo.dyn"]), ["zoo.dyn.house.guests", "zoo.dyn.guest"]);
    assert_eq!(
        lines(&pmcd, &["-m", "zoo.dyn.guest", "zoo.more"]),
        ["zoo.dyn.guest PMID: 400.5.0", "zoo.more.guests PMID: 400.5.1"]
    );
    grow(&pmcd, "12");
    assert_eq!(lines(&pmcd, &["zoo.dyn.herd.a1"]), ["zoo.dyn.herd.a1.n11", "zoo.dyn.herd.a1.n1"]);
    assert_eq!(lines(&pmcd, &["zoo"]).len(), 41);
    // pmval prints the name that it finds for the PMID.
    let text = pmcd.run("pmval", ["-s", "2", "-t", "0.01", "zoo.dyn.herd.a1.n11"]).ok();
    assert!(text.contains("metric:    zoo.dyn.herd.a1.n11\n"), "{text}");
    grow(&pmcd, "11");
    let text = pmcd.run("pmval", ["-s", "2", "-t", "0.01", "zoo.dyn.herd.a1.n11"]).failed();
    assert!(text.contains("Unknown metric name"), "{text}");
    assert_eq!(lines(&pmcd, &["zoo.dyn.herd.a1"]), ["zoo.dyn.herd.a1.n1"]);
    let text = pmcd.run("pminfo", ["zoo.dyn.house.nobody"]).failed();
    assert!(text.contains("Unknown metric name"), "{text}");
}

#[test]
#[ignore = "needs PCP"]
fn values_descriptors_texts_and_labels() {
    let pmcd = zoo();
    let text = pmcd.run("pminfo", ["-dfT", "zoo.dyn.guest"]).ok();
    for part in [
        "Data Type: 32-bit unsigned int  InDom: PM_INDOM_NULL 0xffffffff",
        "Semantics: counter  Units: byte",
        "Help:\nFor a while.",
        "value 5",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let text = pmcd.run("pminfo", ["-f", "zoo.more.guests"]).ok();
    assert!(text.contains("inst [1 or \"first of all\"] value 1099511627776"), "{text}");
    let text = pmcd.run("pminfo", ["-t", "400.70"]).ok();
    assert!(text.contains("Visitors"), "{text}");
    let text = pmcd.run("pminfo", ["-l", "zoo.dyn.guest"]).ok();
    assert!(text.contains(r#""by":"chance","#) && text.contains(r#","guest.since":1,"#), "{text}");
    pmcd.run("pmstore", ["zoo.dyn.guest", "7"]).ok();
    pmcd.run("pmstore", ["zoo.dyn.house.guests", "7"]).failed();
}

#[test]
#[ignore = "needs PCP"]
fn clients_are_told_of_changes() {
    let pmcd = zoo();
    let dir = tempfile::tempdir().unwrap();
    let mut client = Command::new(compile("changes.c", include_str!("changes.c"), dir.path()));
    client.arg(pmcd.host());
    let text = Pcp::required().run_command(client, "").ok();
    let expected = "start:\nfive more: names\nagain:\nlabels: labels\nnone: names\n\
        zoo.dyn.herd.a4.n4: Unknown metric name\nend:\n";
    assert_eq!(text, expected);
}

#[test]
#[ignore = "needs PCP"]
// Slow: that many metrics are declared.
fn a_hundred_thousand_metrics() {
    let pmcd = zoo();
    grow(&pmcd, "100000");
    assert_eq!(lines(&pmcd, &["zoo.dyn.herd"]).len(), 100_000);
    let text = pmcd.run("pminfo", ["-f", "zoo.dyn.herd.a9.n99999"]).ok();
    assert!(text.contains("value 99999"), "{text}");
    grow(&pmcd, "0");
    assert_eq!(pmcd.agent_status("zoo"), 0);
}
