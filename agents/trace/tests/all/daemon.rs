//! The command line and the log, as PCP's tests 602 and 445 check them.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};

use pcp_collector::{Collector, End, Launch, Process};
use pmapi::{Atom, Domain, Item, PmId};
use testkit::free_port;

fn agent(dir: &Path) -> Command {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name;
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmdatrace"));
    command
        .current_dir(dir)
        .args(["-M", &user])
        .env("PCP_PMDAS_DIR", dir)
        .env("PCP_RUN_DIR", dir)
        .env("PCP_TRACE_DIR", dir)
        .env_remove("PCP_TRACE_PORT");
    command
}

fn run(args: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    agent(dir.path()).args(args).stdin(testkit::ended_input()).output().unwrap()
}

fn control(trace: &mut Collector<Process>, item: u16) -> u32 {
    match trace.value(PmId::new(Domain::new(10).unwrap(), Item::new(0, item))).unwrap() {
        Atom::U32(value) => value,
        other => panic!("{other:?}"),
    }
}

#[test]
fn mistakes_are_followed_by_the_usage() {
    let usage = String::from_utf8(run(&["-?"]).stdout).unwrap();
    assert!(usage.starts_with("Usage: pmdatrace [options]\n\nOptions:\n  -D debug "), "{usage}");
    for (args, reason) in [
        (["-U", "1,1,1"], "token parse error in string \"1,1,1\""),
        (["-V", "1,3,foo,3,4,1"], "integer parse error for substring \"foo\""),
        (["-N", "0"], "-N requires a positive number."),
        (["-A", "bozo"], "access spec is invalid (bozo)"),
    ] {
        let output = run(&args);
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]));
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("pmdatrace: {reason}\n{usage}"));
    }
    let output = run(&["-Z"]);
    assert!(String::from_utf8_lossy(&output.stderr).ends_with(&usage) && output.status.code() == Some(1));
}

#[test]
fn a_port_that_is_taken_is_an_error_in_the_log() {
    let taken = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let dir = tempfile::tempdir().unwrap();
    let output = agent(dir.path()).args(["-I", &port.to_string()]).stdin(testkit::ended_input()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let log = fs::read_to_string(dir.path().join("trace.log")).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    let [head, "", error, "", end] = lines[..] else { panic!("{log}") };
    assert!(head.starts_with("Log for pmdatrace on ") && end.starts_with("Log finished "), "{log}");
    assert!(error.ends_with(&format!(") Error: bind({port}): Address already in use")), "{log}");
}

#[test]
fn options_show_in_the_control_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port("127.0.0.1").to_string();
    let mut command = agent(dir.path());
    command.args(["-T", "2min", "-N", "7", "-l", "-"]).env("PCP_TRACE_PORT", &port);
    let mut trace = Launch::pipe(command).start().unwrap();
    assert_eq!([11, 12, 13, 15].map(|item| control(&mut trace, item)), [120, 17, 7, 1]);
    assert_eq!(control(&mut trace, 14).to_string(), port);
    let _client = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    assert!(matches!(trace.close_within(std::time::Duration::from_secs(60)), End::Exited(status) if status.success()));
}

/// The lines of PCP's Install have these options, in which `-U` is no user.
#[test]
fn units_are_no_user() {
    for args in ["-d 10 -U 0,1,0,0,3,0", "-U 0,1,0,0,3,0 -d 10", "-l - -d 10 -U 0,1,0,0,3,0", "-d10 -U0,1,0,0,3,0"] {
        let dir = tempfile::tempdir().unwrap();
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name;
        let mut command = Command::new(env!("CARGO_BIN_EXE_pmdatrace"));
        command.args(args.split(' ')).current_dir(dir.path()).env("PCP_USER", user);
        command.env("PCP_TRACE_PORT", free_port("127.0.0.1").to_string()).env("PCP_TRACE_DIR", dir.path());
        let mut trace = Launch::pipe(command).start().unwrap();
        let desc = trace.desc(PmId::new(Domain::new(10).unwrap(), Item::new(0, 10))).unwrap();
        assert_eq!(desc.units.to_string(), "sec", "{args}");
    }
}

#[test]
fn files_are_written_without_the_port() {
    let taken = TcpListener::bind("0.0.0.0:0").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("out");
    let port = taken.local_addr().unwrap().port().to_string();
    let output = agent(dir.path()).args(["-I", &port, "--write-pmda"]).arg(&target).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let pmns = fs::read_to_string(target.join("pmns")).unwrap();
    assert!(["total_time", "reset", "log_lines"].iter().all(|name| pmns.contains(name)), "{pmns}");
}
