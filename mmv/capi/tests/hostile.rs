//! C programs whose calls are interrupted by signals, by `pthread_cancel(3)`, by forks, or by a lack of memory. They go
//! on, or end as they want to.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// Runs a program with this library and an argument. Returns its directory of files.
#[track_caller]
fn run(name: &str, argument: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    symlink(common::own_path(), dir.path().join("libpcp_mmv.so.1")).unwrap();
    fs::create_dir(dir.path().join("mmv")).unwrap();
    let program = dir.path().join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{name}.c"));
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-rdynamic", "-o"]).arg(&program).arg(source).args(["-lpcp_mmv", "-lpcp", "-lpthread"]);
    let output = cc.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut command = Command::new(program);
    command.arg(argument).env("PCP_TMP_DIR", dir.path()).env("LD_LIBRARY_PATH", dir.path());
    let output = command.env("RUNNING", dir.path().join("mmv/running")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.is_empty(), "{name} {argument}: {:?}: {text}", output.status);
    dir
}

#[test]
#[ignore = "needs PCP"]
fn a_signal_handler_stops_an_export() {
    run("hostile", "signal");
}

#[test]
#[ignore = "needs PCP"]
fn threads_are_cancelled() {
    let dir = run("hostile", "cancel");
    assert!(!dir.path().join("mmv/running").exists());
}

#[test]
#[ignore = "needs PCP"]
// Slow: a program in C runs with each of many limits.
fn a_lack_of_memory_is_an_error() {
    run("hostile", "memory");
}

/// The first export of a process registers the fork handlers.
#[test]
#[ignore = "needs PCP"]
// Slow: many processes are forked.
fn processes_fork_during_their_first_exports() {
    run("forks", "first");
}

#[test]
#[ignore = "needs PCP"]
fn a_process_forks_while_another_thread_waits_for_the_disk() {
    run("forks", "slow");
}
