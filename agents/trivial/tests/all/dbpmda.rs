//! PCP's dbpmda prints the same in a session with the C agent and with this agent, apart from times.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::ffi::OsStr;
use std::path::Path;

use testkit::Pcp;

const SESSION: &str = "getdesc on\ndesc trivial.time\ndesc 250.0.1\nfetch trivial.time\nfetch 250.0.1 250.0.0\n\
    instance 250.0\ninstance 250.0 1\ninstance 250.0 \"x\"\nstore trivial.time \"1\"\nstore 250.0.1 \"1\"\n\
    text trivial.time\ntext 250.0.1\ntext indom 250.0\nlabel context\nlabel domain\nlabel cluster 250.0\n\
    label item trivial.time\nlabel indom 250.0\nlabel instances 250.0\npmid trivial.time\nname 250.0.0\nchildren trivial\n\
    traverse trivial\nattr 5 \"root\"\nprofile all none\nfetch trivial.time\nstatus";

/// Removes the command line and the time of day.
fn masked(text: &str) -> String {
    let lines = text.lines().filter(|line| !["open pipe", "Start ", "PMDA:"].iter().any(|s| line.starts_with(s)));
    let mask = |line: &str| match (line.split_once(" value "), line.split_once(": ")) {
        (Some((before, value)), _) if value.starts_with(|c: char| c.is_ascii_digit()) => format!("{before} value N"),
        (_, Some((before, value))) if value.contains(" -> ") => format!("{before}: N -> 1"),
        _ => line.to_owned(),
    };
    lines.map(|line| mask(line) + "\n").collect()
}

#[test]
#[ignore = "needs PCP"]
fn every_request_is_answered_as_by_the_c_agent() {
    let pcp = Pcp::required();
    let c = pcp.c_agent("trivial");
    let help = c.help();
    let run = |binary: &Path, extra: &[&OsStr]| {
        let words: Vec<&OsStr> =
            [binary.as_os_str()].into_iter().chain(["-d", "250", "-l", "log"].map(OsStr::new)).collect();
        masked(&pcp.dbpmda(&c.root(), c.pmdas_dir(), &[&words, extra].concat(), SESSION).normalised())
    };
    let by_c = run(&c.binary(), &[]);
    // PCP's agent has an interface before 7, where agents do not have their name as a label.
    let unnamed = |text: String| {
        text.replace("Labels:\n    agent=\"trivial\"\n", "Info: __pmDecodeLabel() returns 0 label sets\n")
    };
    let ours = run(env!("CARGO_BIN_EXE_pmdatrivial").as_ref(), &["-h".as_ref(), help.as_os_str()]);
    assert!(ours.contains("agent=\"trivial\""), "{ours}");
    let ours = unnamed(ours);
    assert!(by_c == ours, "--- C\n{by_c}\n--- ours\n{ours}");
    assert!(by_c.contains("Unknown or illegal metric identifier") && by_c.lines().count() > 60, "{by_c}");
}
