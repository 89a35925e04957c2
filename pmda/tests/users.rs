//! `-U`: the agent becomes the user, with its groups and without those of whoever has started it.

#![allow(clippy::unwrap_used, clippy::panic)]

mod stage;

use std::process::Command;

use pmda::collector::Launch;

/// User, group and supplementary groups of an agent, effective and saved.
fn identity(mut command: Command, user: &str) -> [Vec<u32>; 3] {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("stage.log");
    command.args(["-U", user, "-l"]).arg(&log);
    let agent = match Launch::pipe(command).start() {
        Ok(agent) => agent,
        Err(e) => panic!("{e}: {}", std::fs::read_to_string(log).unwrap()),
    };
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid().unwrap())).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        let mut numbers: Vec<u32> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    };
    ["Uid:", "Gid:", "Groups:"].map(field)
}

/// What id(1) says.
fn id(option: &str, user: &str) -> Vec<u32> {
    let out = Command::new("id").args([option, user]).output().unwrap();
    let mut numbers: Vec<u32> =
        String::from_utf8(out.stdout).unwrap().split_whitespace().map(|word| word.parse().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn an_agent_becomes_another_user() {
    let me = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name;
    let program = stage::example("stage");
    let is = |user: &str| [id("-u", user), id("-g", user), id("-G", user)];
    if me != "root" {
        // Nobody else can become another user; who asks to stay can.
        assert_eq!(identity(Command::new(program), &me)[..2], is(&me)[..2]);
        return;
    }
    for user in ["nobody", "root"] {
        let mut command = Command::new("setpriv");
        command.args(["--groups=1,2,3", "--regid=4"]).arg(&program);
        assert_eq!(identity(command, user), is(user));
    }
}
