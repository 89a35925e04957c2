//! The command line that cargo gets, and its exit code.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

const START: &str = env!("CARGO_BIN_EXE_start");

#[test]
fn cargo_runs_the_view_with_the_same_arguments() {
    let output = Command::new(START).args(["simple", "-s", "1"]).env("CARGO", "echo").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../agents/Cargo.toml");
    let target = Path::new(START).ancestors().nth(2).unwrap().to_str().unwrap();
    let options = ["run", "--profile", "quick", "--manifest-path", manifest, "--target-dir", target, "--"];
    let expected: Vec<&str> = options.into_iter().chain(["simple", "-s", "1"]).collect();
    assert_eq!(text.trim_end(), expected.join(" "));
}

#[test]
fn the_exit_code_is_that_of_cargo() {
    let status = Command::new(START).env("CARGO", "false").status().unwrap();
    assert_eq!(status.code(), Some(1));
    let output = Command::new(START).env("CARGO", "/nowhere/cargo").output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().starts_with("start: cannot run \"/nowhere/cargo\": "));
    assert_eq!(output.status.code(), Some(1));
}
