//! Control characters in help texts do not reach a terminal.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::{Command, Stdio};

/// The author of an agent chooses its help texts, and chkhelp prints them.
#[test]
fn help_texts_steer_no_terminal() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("root"), "root { x 250:0:0 }\n").unwrap();
    let help = "@ x one \x1b[2Jline\u{9b}\nAll\tof\x07 it.\n";
    fs::write(dir.path().join("help"), help).unwrap();
    let command = |program: &str| {
        let mut command = Command::new(program);
        command.current_dir(dir.path()).env("CHKHELP", env!("CARGO_BIN_EXE_chkhelp")).stdin(Stdio::null());
        command
    };
    let status = command(env!("CARGO_BIN_EXE_newhelp")).args(["-n", "root", "-o", "out", "help"]).status().unwrap();
    assert!(status.success());
    let chkhelp = "\"$CHKHELP\" -OH -n root out x";
    // script(1) gives the command a terminal.
    let terminal = command("script").args(["-qec", chkhelp, "/dev/null"]).output().unwrap();
    let text = String::from_utf8(terminal.stdout).unwrap();
    assert!(text.contains(r"one \u{1b}[2Jline\u{9b}") && text.contains("All\tof\\u{7} it."), "{text}");
    let pipe = command("sh").args(["-c", chkhelp]).output().unwrap();
    assert!(String::from_utf8(pipe.stdout).unwrap().contains("one \x1b[2Jline\u{9b}"));
}

/// The author of a specification chooses its text, and that of its comments.
#[test]
fn maps_steer_no_terminal() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("map"), "# one \x1b[2Jline\nfoo {\n\ta.b\tB\x1b\n}\n").unwrap();
    let pmgenmap = |program: &str, arguments: [&str; 3]| {
        let mut command = Command::new(program);
        command.current_dir(dir.path()).env("PMGENMAP", env!("CARGO_BIN_EXE_pmgenmap")).stdin(Stdio::null());
        String::from_utf8(command.args(arguments).output().unwrap().stdout).unwrap()
    };
    let terminal = pmgenmap("script", ["-qec", "\"$PMGENMAP\" map", "/dev/null"]);
    assert!(terminal.contains(r"one \u{1b}[2Jline") && !terminal.contains('\x1b'), "{terminal}");
    assert!(pmgenmap("sh", ["-c", "\"$PMGENMAP\" map", "sh"]).contains("one \x1b[2Jline"));
}
