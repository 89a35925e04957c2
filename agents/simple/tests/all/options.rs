//! The same command lines for the C agent and for this agent: both start, or both refuse.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

use testkit::{Pcp, Version, ended_input};

/// Returns whether the agent sends its version, its exit code at the end of its input, and whether it opened a log.
fn starts(binary: &Path, line: &str) -> (bool, Option<i32>, bool) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("config/pmda")).unwrap();
    let mut command = Command::new(binary);
    command.args(["-l", "simple.log"]).args(line.split_whitespace()).current_dir(dir.path()).stdin(ended_input());
    command.env("PCP_VAR_DIR", dir.path()).env("PCP_PMDAS_DIR", Pcp::required().c_agent("simple").pmdas_dir());
    let output = command.output().unwrap();
    (output.stdout.starts_with(&[0, 0, 0, 20]), output.status.code(), dir.path().join("simple.log").exists())
}

#[test]
#[ignore = "needs PCP"]
fn the_c_agent_starts_with_the_same_command_lines() {
    let c = Pcp::required().c_agent("simple").binary();
    let ours = env!("CARGO_BIN_EXE_pmdasimple").as_ref();
    let (mut started, mut refused) = (0, 0);
    for line in [
        "",
        "-p",
        "-d 253 -D 1 -p",
        "-D -1",
        "-D 5,appl0",
        "-D ALL",
        "-D pdu -D fetch",
        "-d 1 -d 2",
        "--domain=5 --log=simple.log",
        "--dom 5 --deb pdu",
        "-l simple.log -d12",
        "operand",
        "one -d 300 two",
        "-- -Z",
        "-U root",
        "-Uroot -p",
        "-D 0x1",
        "-D nonsense",
        "-D",
        "-d 5x",
        "-d",
        "-Z",
        "--nonsense",
        "-i",
        "-i 1 -p",
        "-6 1 -u x",
        "-u x -i 1",
        "-U",
        "operand -Z",
    ] {
        // PCP 7 refuses numbers as debug options.
        let has_number = ["-D 1", "-D -1", "-D 5", "-D 0x1"].iter().any(|option| line.contains(option));
        if has_number && Pcp::required().version() >= Version(7, 0, 0) {
            started += usize::from(starts(ours, line).0);
            continue;
        }
        let [theirs, ours] = [starts(&c, line), starts(ours, line)];
        assert_eq!(theirs, ours, "{line}: greeting, exit code, log of C and ours");
        *if ours.0 { &mut started } else { &mut refused } += 1;
    }
    assert!(started > 14 && refused > 11, "{started} {refused}");
}
