//! `dbpmda check` on agents of PCP and of this framework.

use std::process::Command;

use testkit::Pcp;

use crate::sessions::{OURS, our_simple};

/// Returns the breaches that an agent shows, without help texts, and the exit code.
fn check(command: &str, name: &str) -> (Vec<String>, Option<i32>) {
    let (mut lines, code) = report(command, name);
    lines.pop();
    (lines, code)
}

/// Returns the lines of a report, without breaches about help texts, and the exit code.
fn report(command: &str, name: &str) -> (Vec<String>, Option<i32>) {
    let agent = Pcp::required().c_agent(name);
    let binary = agent.binary();
    let dir = tempfile::tempdir().unwrap();
    let command = command.replace("BINARY", &binary.display().to_string());
    let output = Command::new(OURS)
        .args(["check", "-l", "60", "-t", "60", "-d", &agent.domain().to_string(), "-n"])
        .arg(agent.root())
        .args(command.split(' '))
        .args(["-d", &agent.domain().to_string(), "-l"])
        .arg(dir.path().join("log"))
        .env("PCP_PMDAS_DIR", agent.pmdas_dir())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let summary = text.lines().last().unwrap_or_default();
    assert_eq!(output.status.success(), text.lines().count() == 1 && summary.ends_with(", no rule broken"), "{text}");
    (text.lines().filter(|line| !line.starts_with("no-help: ")).map(str::to_owned).collect(), output.status.code())
}

/// The sample agent has metrics that are wrong on purpose.
#[test]
#[ignore = "needs PCP"]
fn the_sample_agent() {
    let (found, code) = check("BINARY", "sample");
    let starts = [
        "no-descriptor: sample.bad.unknown: ",
        "no-descriptor: sample.secret.foo.bar.max.redirect: ",
        "value-instance: sample.bogus_bin: ",
        "events: sample.event.records: parameter 29.0.127 has a value of type U32, but is of type I32",
        "events: sample.event.highres_records: parameter 29.0.127 has a value of type U32, but is of type I32",
    ];
    for start in starts {
        assert!(found.iter().any(|line| line.starts_with(start)), "{start}: {found:#?}");
    }
    let others: Vec<_> = found.iter().filter(|line| !starts.iter().any(|start| line.starts_with(start))).collect();
    assert!(others.iter().all(|line| line.starts_with("profile: sample.scramble.")), "{others:#?}");
    assert_eq!(code, Some(1));
}

#[test]
#[ignore = "needs PCP"]
fn the_agent_simple() {
    for command in ["BINARY".to_owned(), our_simple().display().to_string()] {
        let (found, _) = check(&command, "simple");
        assert_eq!(found, [""; 0], "{command}");
    }
}

#[test]
#[ignore = "needs PCP"]
fn an_agent_without_breaches_has_a_summary() {
    for name in ["simple", "trivial"] {
        let (lines, code) = report("BINARY", name);
        let values: Vec<usize> = lines[0].split(' ').filter_map(|word| word.parse().ok()).collect();
        let expected = if name == "simple" { 1..100 } else { 1..2 };
        assert!(values.len() == 2 && values.iter().all(|n| expected.contains(n)), "{lines:?}");
        assert_eq!((lines.len(), code), (1, Some(0)), "{lines:?}");
    }
}

/// `dbpmda --help` leads to the check.
#[test]
fn help_names_the_check() {
    let help = Command::new(OURS).arg("--help").output().unwrap();
    assert!(String::from_utf8_lossy(&help.stderr).contains("dbpmda check"), "{help:?}");
    let usage = Command::new(OURS).args(["check", "--no-such-option"]).output().unwrap();
    assert!(String::from_utf8_lossy(&usage.stderr).contains("Usage: dbpmda check"), "{usage:?}");
    assert_eq!(usage.status.code(), Some(2));
}

/// Neither an agent beside the address of another, nor a misspelt command, is ignored.
#[test]
fn no_word_is_ignored() {
    for (options, code, reason) in [
        (&["check", "--unix", "/nosuch", "/bin/true"][..], 2, "cannot be used with"),
        (&["check", "--inet", "4321", "/bin/true", "-d", "1"], 2, "cannot be used with"),
        (&["check", "--dso", "a.so", "a_init", "/bin/true"], 2, "cannot be used with"),
        (&["chek", "/bin/true"], 1, "dbpmda: \"chek\" is not an option, and not the command \"check\"\nUsage: "),
    ] {
        let output = Command::new(OURS).args(options).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(reason), "{options:?}: {output:?}");
    }
}

/// The C agent accepts a value for any instance. For a string, it stores the address of the text, unless that is
/// negative.
#[test]
#[ignore = "needs PCP"]
fn stores() {
    let (found, _) = check("--store BINARY", "simple");
    assert!(found.len() == 1 && found[0].starts_with("store: simple.numfetch: accepts a value "), "{found:#?}");
    let (found, code) = check(&format!("--store {}", our_simple().display()), "simple");
    assert_eq!((found, code), (vec![], Some(0)));
}
