//! A log on a full disk: the agent answers as with a log that works.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::File;
use std::process::Command;

use pcp_collector::Launch;
use pmapi::{Atom, Domain, Item, PmId};

/// Fetches from an agent whose stderr is on a full disk, with options for its log.
fn answers(log: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name;
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmdasimple"));
    command.args(log).args(["-U", &user]).stderr(File::create("/dev/full").unwrap());
    command.current_dir(dir.path()).env("PCP_VAR_DIR", dir.path()).env("PCP_CONF", "/nonexistent");
    let mut agent = Launch::pipe(command).start().unwrap_or_else(|e| panic!("{log:?}: {e}"));
    let fetches = PmId::new(Domain::new(253).unwrap(), Item::new(0, 0));
    // Each store is refused, which the debug options log.
    for round in 1..=100u32 {
        assert!(agent.store(fetches, None, Atom::String(b"no number")).is_err());
        assert_eq!(agent.value(fetches).unwrap(), Atom::U32(round), "{log:?}");
    }
}

#[test]
fn an_agent_answers_without_room_for_its_log() {
    answers(&["-l", "-", "-D", "all"]);
    answers(&["-l", "/dev/full", "-D", "all"]);
}
#[test]
fn an_agent_answers_without_any_log() {
    answers(&["-l", "/nonexistent/simple.log", "-D", "all"]);
}
