//! `-U`: the agent changes to the user, with the groups of that user and without those of the process that started it.

#![allow(clippy::unwrap_used, clippy::panic)]

mod stage;

use std::process::Command;

use pcp_collector::Launch;

/// Returns user, group and supplementary groups of an agent, effective and saved.
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

/// Returns the numbers that id(1) prints.
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
        // Only root can change to another user. Changing to the own user works.
        assert_eq!(identity(Command::new(program), &me)[..2], is(&me)[..2]);
        return;
    }
    for user in ["nobody", "root"] {
        let mut command = Command::new("setpriv");
        command.args(["--groups=1,2,3", "--regid=4"]).arg(&program);
        assert_eq!(identity(command, user), is(user));
    }
}

/// Root cannot change to PCP's user in this test, although it has already changed to that user's group.
#[test]
fn an_agent_that_cannot_become_pcps_user_ends() {
    let has_pcp = nix::unistd::User::from_name("pcp").unwrap().is_some() && pmapi::Config::path().exists();
    if !nix::unistd::geteuid().is_root() || !has_pcp {
        return;
    }
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-setuid", "--inh-caps=-setuid"]).arg(stage::example("stage")).args(["-l", "-"]);
    // pmcd would keep the other end of the input open.
    let (input, _pmcd) = nix::unistd::pipe().unwrap();
    let output = command.stdin(input).output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{log}");
    assert!(log.contains("Critical: setuid for user \"pcp\": EPERM"), "{log}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

/// Only root, PCP's user and the agent's user may connect. The agent still serves pmcd after refusing others.
#[test]
fn strangers_who_connect_before_pmcd_are_refused() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let port = testkit::free_port("127.0.0.1");
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("stage.log");
    let mut agent = Command::new(stage::example("stage"));
    agent.args(["-U", "root", "-i", &port.to_string(), "-l"]).arg(&log);
    let mut agent = agent.spawn().unwrap();
    let listens =
        || std::fs::read_to_string("/proc/net/tcp").unwrap().contains(&format!(":{port:04X} 00000000:0000 0A"));
    while !listens() {
        std::thread::yield_now();
    }
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && head -c 1 <&3 | wc -c");
    for _ in 0..3 {
        let mut stranger = Command::new("setpriv");
        let output = stranger.args(["--reuid=54321", "--clear-groups", "bash", "-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0", "{output:?}");
    }
    let pmcd = Launch::socket(pcp_collector::Address::Inet(port)).start().unwrap();
    drop(pmcd);
    assert!(agent.wait().unwrap().success());
    let log = std::fs::read_to_string(log).unwrap();
    assert_eq!(log.matches("refused the connection of user 54321, which is not pmcd").count(), 3, "{log}");
}
