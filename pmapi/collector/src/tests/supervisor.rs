//! Agents that are kept running.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use pmapi::{Domain, Error, Item, PmId};

use crate::{Launch, Supervisor};

/// An agent that sends its version and never answers. Each start appends its number to the file `starts`.
const SILENT: &str = r"echo $$ >>starts; printf '\000\000\000\024\000\000\160\014\000\000\000\001\000\000\000\001\001\002\000\000'; exec sleep 1000";

fn supervisor(dir: &std::path::Path, script: &'static str) -> Supervisor {
    let dir = dir.to_owned();
    Supervisor::new("silent", move || {
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(&dir);
        Launch::pipe(command).isolated().logged("silent")
    })
}

fn until(supervisor: &mut Supervisor, is_it: impl Fn(&Supervisor) -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_it(supervisor) {
        assert!(Instant::now() < end, "{supervisor:?} {:?}", supervisor.problem());
        supervisor.tend();
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn one_that_does_not_answer_is_ended_and_started_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut supervisor = supervisor(dir.path(), SILENT);
    assert_eq!(supervisor.problem(), Some(("silent", "no answer yet")));
    until(&mut supervisor, Supervisor::is_ready);
    assert_eq!((supervisor.problem(), supervisor.readied(), supervisor.due(Instant::now())), (None, 1, None));
    let desc = |supervisor: &mut Supervisor, until| {
        supervisor.ask(until, |agent| agent.desc(PmId::new(Domain::new(60).unwrap(), Item::new(0, 0))))
    };
    // No agent could answer any more, so this one is not at fault.
    assert_eq!(desc(&mut supervisor, Instant::now()), Err(Error::AGAIN));
    assert!(supervisor.is_ready());
    let version = supervisor.problem_version();
    assert_eq!(desc(&mut supervisor, Instant::now() + Duration::from_millis(50)), Err(Error::AGAIN));
    assert!(supervisor.problem().unwrap().1.starts_with("no answer within"), "{:?}", supervisor.problem());
    assert!(!supervisor.is_ready() && supervisor.problem_version() > version);
    assert!(supervisor.due(Instant::now()).is_some());
    // It is not asked while it is away.
    assert_eq!(desc(&mut supervisor, Instant::now() + Duration::from_secs(60)), Err(Error::AGAIN));
    until(&mut supervisor, Supervisor::is_ready);
    assert_eq!(supervisor.readied(), 2);
    let starts = fs::read_to_string(dir.path().join("starts")).unwrap();
    let numbers: Vec<&str> = starts.lines().collect();
    assert_eq!(numbers.len(), 2);
    assert!(!fs::exists(format!("/proc/{}", numbers[0])).unwrap());
}

#[test]
fn one_that_cannot_be_started_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut supervisor = supervisor(dir.path(), "echo >>starts; exit 3");
    let starts = || fs::read_to_string(dir.path().join("starts")).unwrap_or_default().lines().count();
    until(&mut supervisor, |_| starts() == 2);
    until(&mut supervisor, |supervisor| !supervisor.is_starting());
    assert!(supervisor.problem().unwrap().1.contains("exit status: 3"), "{:?}", supervisor.problem());
}
