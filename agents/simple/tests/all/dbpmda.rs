//! PCP's dbpmda prints the same in a session with the C agent and with this agent, apart from times.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::ffi::OsStr;
use std::path::Path;

use testkit::Pcp;

const SESSION: &str = include_str!("../session.dbpmda");

/// Returns what dbpmda prints in a session with an agent.
fn session(binary: &Path, extra: &[&OsStr], script: &str) -> String {
    let pcp = Pcp::required();
    let c = pcp.c_agent("simple");
    // Both agents run as root, because the directory does not belong to the PCP user.
    let words = ["-d", "253", "-U", "root", "-l", "simple.log"].map(OsStr::new);
    let output = pcp.dbpmda(&c.root(), c.pmdas_dir(), &[&[binary.as_os_str()], &words[..], extra].concat(), script);
    masked(&output.normalised())
}

/// Removes the command line, and the values of the clock and of CPU time.
fn masked(text: &str) -> String {
    let mut changing = false;
    let mut out = String::new();
    for line in
        text.lines().filter(|line| !["open pipe", "Start ", "PMDA:"].iter().any(|start| line.starts_with(start)))
    {
        let of_time = ["253.1.2", "253.1.3", "253.2.4"].iter().any(|pmid| line.contains(pmid));
        if line.contains("numval") || of_time {
            changing = of_time;
        }
        let line =
            match line.split_once(" value ").or_else(|| line.split_once(": ").filter(|(_, v)| v.contains(" -> "))) {
                Some((before, value)) if changing => match value.split_once(" -> ") {
                    Some((_, new)) => format!("{before} N -> {new}"),
                    None => format!("{before} value N"),
                },
                _ => line.to_owned(),
            };
        out.push_str(&line);
        out.push('\n');
    }
    out
}

fn compare(extra_of_ours: &[&OsStr], script: &str) -> String {
    let c = session(&Pcp::required().c_agent("simple").binary(), &[], script);
    let ours = session(env!("CARGO_BIN_EXE_pmdasimple").as_ref(), extra_of_ours, script);
    assert!(c == ours, "{}", diff(&c, &ours));
    c
}

/// Returns the lines that differ, and both texts.
fn diff(c: &str, ours: &str) -> String {
    let lines = c.lines().zip(ours.lines()).filter(|(a, b)| a != b).map(|(a, b)| format!("C:    {a}\nours: {b}\n"));
    format!("{}\n--- C\n{c}\n--- ours\n{ours}", lines.collect::<String>())
}

#[test]
#[ignore = "needs PCP"]
fn every_request_is_answered_as_by_the_c_agent() {
    let pcp = Pcp::required();
    let help = pcp.c_agent("simple").help();
    let said = compare(&["-h".as_ref(), help.as_os_str()], SESSION);
    // The session must have taken place with both agents.
    for part in ["[  1] inst: 1 name: \"green\"", "Bad input to pmstore", "unitsystem=\"SI\"", "units=\"hour\""] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
}

#[test]
#[ignore = "needs PCP"]
fn help_that_the_agent_compiles_is_read_by_the_c_agent_and_by_newhelps_reader() {
    // This agent answers from its declarations, the C agent from the files that this agent has written.
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("simple/help");
    std::fs::create_dir_all(base.parent().unwrap()).unwrap();
    let written = std::process::Command::new(env!("CARGO_BIN_EXE_pmdasimple")).arg("--write-help").arg(&base).status();
    assert!(written.unwrap().success());
    let pcp = Pcp::required();
    let c = pcp.c_agent("simple");
    let script = "text simple.numfetch\ntext simple.color\ntext simple.time.user\ntext simple.time.sys\n\
                  text simple.now\ntext indom 253.0\ntext indom 253.1\ntext indom 253.2\ntext 253.3.3";
    let run = |binary: &Path| {
        let words: Vec<&OsStr> =
            [binary.as_os_str()].into_iter().chain(["-d", "253", "-l", "log"].map(OsStr::new)).collect();
        masked(&pcp.dbpmda(&c.root(), dir.path(), &words, script).normalised())
    };
    let (by_c, by_ours) = (run(&c.binary()), run(env!("CARGO_BIN_EXE_pmdasimple").as_ref()));
    assert!(by_c == by_ours, "{}", diff(&by_c, &by_ours));
    assert!(by_c.contains("The first line of simple.conf in the agent's directory selects the instances"), "{by_c}");
}
