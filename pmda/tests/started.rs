//! What an agent keeps of the process that has started it: no descriptors, and its life only while pmcd may still connect.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

fn agent() -> PathBuf {
    let agent = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples/zoo");
    assert!(agent.exists(), "{}: cargo build --examples makes it", agent.display());
    agent
}

/// Returns the files that a process has open.
fn open_files(pid: u32) -> Vec<PathBuf> {
    let all = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    all.filter_map(|entry| fs::read_link(entry.path()).ok()).collect()
}

#[test]
fn inherited_descriptors_are_closed() {
    let dir = tempfile::tempdir().unwrap();
    // Without O_CLOEXEC, as pmcd's sockets.
    let (inherited, _writer) = nix::unistd::pipe().unwrap();
    let target = fs::read_link(format!("/proc/self/fd/{}", inherited.as_raw_fd())).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "echo; exec sleep 1000"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut control = command.spawn().unwrap();
    control.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    assert!(open_files(control.id()).contains(&target), "the test itself passes none on");
    control.kill().unwrap();
    control.wait().unwrap();
    let mut agent = Command::new(agent());
    let mut agent = agent.current_dir(dir.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // The agent's first PDU.
    agent.stdout.as_mut().unwrap().read_exact(&mut [0; 20]).unwrap();
    assert!(!open_files(agent.id()).contains(&target));
    drop(agent.stdin.take());
    assert!(agent.wait().unwrap().success());
}

/// Starts the agent at a socket, by a program of this name. Returns the program, and the number of the agent's process.
fn started_by(name: &str, dir: &Path) -> (Child, u32) {
    let program = dir.join(name);
    let script = "#!/bin/sh\n\"$AGENT\" -u socket -l log >&2 &\necho $!\nread -r _\n";
    testkit::executable(&program, script, 0o755);
    let mut command = Command::new(program);
    command.env("AGENT", agent()).current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
    while !dir.join("socket").exists() {
        sleep(Duration::from_millis(5));
    }
    (program, line.trim().parse().unwrap())
}

fn exists(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
fn an_agent_that_pmcd_has_not_reached_ends_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let (mut pmcd, pid) = started_by("pmcd", dir.path());
    assert!(exists(pid));
    pmcd.kill().unwrap();
    pmcd.wait().unwrap();
    while exists(pid) {
        sleep(Duration::from_millis(5));
    }
    let log = fs::read_to_string(dir.path().join("log")).unwrap();
    assert!(log.contains("Critical: unix socket socket: pmcd, which has started this agent, has ended"), "{log}");
}

#[test]
fn an_agent_that_others_have_started_waits() {
    let dir = tempfile::tempdir().unwrap();
    let (mut shell, pid) = started_by("a-shell", dir.path());
    shell.kill().unwrap();
    shell.wait().unwrap();
    sleep(Duration::from_millis(500));
    let mut connection = UnixStream::connect(dir.path().join("socket")).unwrap();
    connection.read_exact(&mut [0; 20]).unwrap();
    drop(connection);
    while exists(pid) {
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_agent_that_pmcd_has_reached_ends_with_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let (mut pmcd, pid) = started_by("pmcd", dir.path());
    let mut connection = UnixStream::connect(dir.path().join("socket")).unwrap();
    connection.read_exact(&mut [0; 20]).unwrap();
    pmcd.kill().unwrap();
    pmcd.wait().unwrap();
    sleep(Duration::from_millis(500));
    assert!(exists(pid));
    drop(connection);
    while exists(pid) {
        sleep(Duration::from_millis(5));
    }
}
