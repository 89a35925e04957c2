//! C programs whose calls are interrupted by signals, by `pthread_cancel(3)`, or by a lack of memory: they go on, or end as
//! they want to.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// Runs a part of `hostile.c` with this library. Returns its directory of files.
#[track_caller]
fn run(part: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    symlink(common::own_path(), dir.path().join("libpcp_mmv.so.1")).unwrap();
    fs::create_dir(dir.path().join("mmv")).unwrap();
    let program = dir.path().join("hostile");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile.c");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-o"]).arg(&program).arg(source).args(["-lpcp_mmv", "-lpcp", "-lpthread"]);
    let output = cc.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut command = Command::new(program);
    command.arg(part).env("PCP_TMP_DIR", dir.path()).env("LD_LIBRARY_PATH", dir.path());
    let output = command.env("RUNNING", dir.path().join("mmv/running")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.is_empty(), "{part}: {:?}: {text}", output.status);
    dir
}

#[test]
#[ignore = "needs PCP"]
fn a_signal_handler_stops_an_export() {
    run("signal");
}

#[test]
#[ignore = "needs PCP"]
fn threads_are_cancelled() {
    let dir = run("cancel");
    assert!(!dir.path().join("mmv/running").exists());
}

#[test]
#[ignore = "needs PCP"]
fn a_lack_of_memory_is_an_error() {
    run("memory");
}
