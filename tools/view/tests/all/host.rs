//! The program `pcp-view` with a pmcd, and with mistakes on its command line.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::process::{Command, Output};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pcp_archive::{Archive, Check};
use pcp_pdu::metadata::TextKind;
use pcp_view::{Plan, ViewOptions, show};
use testkit::{Pcp, wait_for};

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
        (&["--replay", "/no-such-archive"], "/no-such-archive: no file of such an archive exists"),
    ] {
        let output = view(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.starts_with("pcp-view: ") && said.contains(expected) && said.lines().count() == 1, "{said:?}");
        assert!(output.stdout.is_empty());
    }
    for arguments in [
        &["--interval", "soon"][..],
        &["--samples", "-1"],
        &["--json", "--plain"],
        &["--nonsense"],
        &["--record", "/nonexistent/a", "--replay", "/nonexistent/a"],
        &["--replay", "/nonexistent/a", "--host", "local:"],
        &["--replay", "/nonexistent/a", "disk"],
    ] {
        assert_eq!(view(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn arguments_steer_no_terminal() {
    for arguments in [["--replay=a", "\x1b[2Jb"], ["--samples", "\x1b[2Jb"], ["x", "--\x1b[2Jb"]] {
        let said = testkit::on_terminal(env!("CARGO_BIN_EXE_pcp-view"), arguments);
        assert!(!said.contains('\x1b'), "{said:?}");
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

    // Shows all metrics, with the same values as pminfo.
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

#[test]
#[ignore = "needs PCP"]
fn a_pmcd_is_recorded_and_replayed() {
    let pmcd = Pcp::required().pmcd().start();
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("a");
    let archive = base.to_str().unwrap();
    let metrics = ["pmcd.agent.status", "pmcd.pid", "pmcd.hostname"];
    let host = pmcd.host();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pcp-view"));
    command.args(["--host", &host, "-t", "0.1", "-s", "3", "--record", archive]);
    // The zone of this process, not that of the host.
    let output = command.env("TZ", "ELSEWHERE-7").output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");

    assert_eq!(Check::new().run(&base, |finding| println!("{finding}")), None);
    assert_eq!(Pcp::required().run("pmlogcheck", [archive]).ok(), "");
    let read = Archive::open(&base).unwrap();
    let pid = read.metadata().names().pmid(b"pmcd.pid").unwrap();
    assert!(!read.metadata().text(pid, TextKind::Help).unwrap().is_empty());
    for metric in metrics {
        let live = pmcd.run("pminfo", ["-f", "-t", "-d", metric]).ok();
        assert_eq!(Pcp::required().run("pminfo", ["-a", archive, "-f", "-t", "-d", metric]).ok(), live);
    }
    let hostname = String::from_utf8(read.label().host.clone()).unwrap();
    assert!(pmcd.run("pmprobe", ["-v", "pmcd.hostname"]).ok().contains(&format!("\"{hostname}\"")), "{hostname}");
    let zone = String::from_utf8(read.label().timezone.clone()).unwrap();
    assert!(pmcd.run("pmprobe", ["-v", "pmcd.timezone"]).ok().contains(&format!("\"{zone}\"")), "{zone}");

    let replayed = view(&["-t", "0.05", "-s", "0", "--json", "--replay", archive]);
    let replayed = text(&replayed.stdout);
    for metric in metrics {
        assert!(replayed.contains(&format!("\"agent\":\"pmcd\",\"metric\":\"{metric}\"")), "{replayed}");
    }
    assert!(replayed.contains("\"sample\":2,") && replayed.contains("\"instance\":\"pmcd\""), "{replayed}");
}

#[test]
#[ignore = "needs PCP"]
fn an_archive_has_one_host() {
    let pmcd = Pcp::required().pmcd().start();
    let dir = tempfile::tempdir().unwrap();
    let mut options = ViewOptions::default();
    options.record = Some(dir.path().join("a"));
    let host = || Plan::host(&pmcd.host(), &[]);
    let refused = show(&options, |_| Ok(vec![host()?, host()?])).unwrap_err().to_string();
    assert!(refused.ends_with("/a: an archive cannot record a host together with other hosts or agents"), "{refused}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
#[ignore = "needs PCP"]
fn a_restart_of_pmcd_is_a_mark_in_the_record() {
    let mut pmcd = Pcp::required().pmcd().start();
    let dir = tempfile::tempdir().unwrap();
    let (base, out) = (dir.path().join("a"), dir.path().join("out"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_pcp-view"));
    command.args(["--host", &pmcd.host(), "-t", "0.1", "-s", "0", "--json", "pmcd.pid", "--record"]).arg(&base);
    let mut recording = command.stdout(File::create(&out).unwrap()).spawn().unwrap();
    let has_value_of = |pid: Pid| fs::read_to_string(&out).unwrap().contains(&format!("\"value\":{pid}"));
    wait_for("a sample", || has_value_of(pmcd.pid()));
    pmcd.restart();
    wait_for("a sample of the new pmcd", || has_value_of(pmcd.pid()));
    kill(Pid::from_raw(recording.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    assert_eq!(recording.wait().unwrap().code(), Some(128 + 15));

    assert_eq!(Check::new().run(&base, |finding| println!("{finding}")), None);
    let archive = Archive::open(&base).unwrap();
    let mut cursor = archive.cursor();
    let mut marks = Vec::new();
    while let Some(record) = cursor.forward().unwrap() {
        marks.push(record.is_mark());
    }
    assert_eq!(marks.iter().filter(|is_mark| **is_mark).count(), 1, "{marks:?}");
    assert!(!marks[0] && !marks[marks.len() - 1], "{marks:?}");
}
