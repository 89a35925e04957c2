//! An agent that a user starts in a terminal, or without input, explains what it is, and writes no PDU.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn agent() -> PathBuf {
    let agent = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples/zoo");
    assert!(agent.exists(), "{}: cargo build --examples makes it", agent.display());
    agent
}

#[test]
fn an_agent_without_input_says_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty");
    let (closed, writer) = nix::unistd::pipe().unwrap();
    drop(writer);
    let inputs = [Stdio::null(), File::create_new(&empty).unwrap().into(), closed.into()];
    for input in inputs {
        let output = Command::new(agent()).current_dir(dir.path()).stdin(input).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.starts_with("zoo: this is an agent of Performance Co-Pilot, which pmcd(1) starts"), "{text:?}");
        assert_eq!((text.lines().count(), output.stdout.len(), output.status.code()), (1, 0, Some(1)), "{text:?}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn an_agent_between_pipes_or_sockets_talks() {
    let dir = tempfile::tempdir().unwrap();
    let start = |input: Stdio, output: Stdio| {
        let mut command = Command::new(agent());
        command.current_dir(dir.path()).stdin(input).stdout(output).spawn().unwrap()
    };
    // The first PDU is that of the agent: 20 bytes with its version.
    let mut piped = start(Stdio::piped(), Stdio::piped());
    piped.stdout.as_mut().unwrap().read_exact(&mut [0; 20]).unwrap();
    drop(piped.stdin.take());
    assert!(piped.wait().unwrap().success());
    let (mut pmcd, socket) = UnixStream::pair().unwrap();
    let [input, output] = [socket.try_clone().unwrap(), socket].map(|end| Stdio::from(OwnedFd::from(end)));
    let mut connected = start(input, output);
    pmcd.read_exact(&mut [0; 20]).unwrap();
    drop(pmcd);
    assert!(connected.wait().unwrap().success());
}

#[test]
fn an_agent_on_a_terminal_says_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let agent = agent();
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
