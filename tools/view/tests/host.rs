//! The program `pcp-view` with a pmcd, and with mistakes on its command line.

#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

use testkit::Pcp;

fn view(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pcp-view")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn mistakes_are_one_sentence() {
    for (arguments, expected) in [
        (&["--host", "a:b"][..], "host \"a:b\": non-numeric port"),
        (&["--host", "[::1"], "host \"[::1\": missing closing ']' for host spec"),
        (&["--host", "unix://nonexistent/x"], "host \"unix://nonexistent/x\": no connection to pmcd: "),
        (&["--host", ""], "host \"\": no connection to pmcd: "),
        (&["--host", "x\u{1b}[2J:y"], "host \"x\\u{1b}[2J:y\": non-numeric port"),
        (&["--host", "pcps://localhost"], "host \"pcps://localhost\": no connection to pmcd: Operation not supported"),
    ] {
        let output = view(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.starts_with("pcp-view: ") && said.contains(expected) && said.lines().count() == 1, "{said:?}");
        assert!(output.stdout.is_empty());
    }
    for arguments in [&["--interval", "soon"][..], &["--samples", "-1"], &["--json", "--plain"], &["--nonsense"]] {
        assert_eq!(view(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
#[ignore = "needs PCP"]
fn the_metrics_of_a_pmcd() {
    let pmcd = Pcp::required().pmcd().start();
    let host = pmcd.host();
    let seen = |arguments: &[&str]| view(&[&["--host", &host, "-t", "0.1"], arguments].concat());

    let output = seen(&["-s", "2", "pmcd.agent.status", "pmcd.pid"]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(shown.contains("# sample 2 of 2") && shown.contains("or \"pmcd\"] value 0"), "{shown}");
    assert!(shown.contains("\npmcd.pid [") && shown.contains("Semantics: discrete"), "{shown}");
    assert!(!shown.contains("pmcd.version"), "{shown}");

    // All metrics, with the values that pminfo has.
    let output = seen(&["-s", "1", "--json"]);
    let lines = text(&output.stdout);
    let version = pmcd.run("pmprobe", ["-v", "pmcd.version"]).ok();
    let version = version.split('"').nth(1).unwrap();
    let line = lines.lines().find(|line| line.contains("\"metric\":\"pmcd.version\"")).unwrap();
    assert!(line.contains(&format!("\"value\":\"{version}\"")), "{line}");

    let output = seen(&["-s", "1", "pmcd.pid", "no.such\u{7}metric"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("metric \"no.such\\u{7}metric\": Unknown metric name"), "{said}");
}
