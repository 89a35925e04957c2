//! An agent that a user starts in a terminal explains what it is, and writes no PDU.

#![allow(clippy::unwrap_used)]

use std::process::{Command, Stdio};

#[test]
fn an_agent_on_a_terminal_says_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let agent = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples/zoo");
    assert!(agent.exists(), "{}: cargo build --examples makes it", agent.display());
    // script(1) gives the command a terminal. If either input or output is a terminal, that is enough.
    for line in ["exec \"$AGENT\"", "exec \"$AGENT\" </dev/null", "\"$AGENT\" | cat", "exec \"$AGENT\" -d 7 -p"] {
        let mut script = Command::new("script");
        script.args(["-qec", line, "/dev/null"]).env("AGENT", &agent).current_dir(dir.path()).stdin(Stdio::null());
        let output = script.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.starts_with("zoo: this is an agent of Performance Co-Pilot, which pmcd(1) starts"),
            "{line}: {text:?}"
        );
        assert_eq!(text.lines().count(), 1, "{line}: {text:?}");
        assert!(output.status.code() == Some(1) || line.contains('|'), "{line}: {:?}", output.status);
    }
    // The log of an earlier run stays.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
