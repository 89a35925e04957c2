//! The environment of a process: a set-uid program gets it from its caller. Its stderr may be on a full disk.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::unistd::{Gid, Uid, setresgid, setresuid};
use pcp_trace::{Options, State, Tag, Trace};
use pmapi::Config;
use testkit::Child;

const VARIABLES: [(&str, &str); 9] = [
    ("PCP_TRACE_HOST", "stranger"),
    ("PCP_TRACE_PORT", "9999"),
    ("PCP_TRACE_TIMEOUT", "77"),
    ("PCP_TRACE_REQTIMEOUT", "77"),
    ("PCP_TRACE_RECONNECT", "77"),
    ("PCP_TRACE_NOAGENT", ""),
    ("PCP_TMP_DIR", "/strange/tmp"),
    ("PCP_RUN_DIR", "/strange/run"),
    ("PCP_CONF", "/strange/pcp.conf"),
];

fn check(is_trusted: bool) {
    let options = Options::from_env().unwrap();
    assert_eq!(options == Options::default(), !is_trusted);
    assert_eq!((options.host == "stranger", options.port == 9999), (is_trusted, is_trusted));
    assert_eq!(options.connect_timeout == Duration::from_secs(77), is_trusted);
    let config = Config::load();
    for name in ["PCP_TMP_DIR", "PCP_RUN_DIR"] {
        assert_eq!(config.var(name).is_some_and(|path| path.to_string_lossy().starts_with("/strange")), is_trusted);
    }
    assert_eq!(Config::path().starts_with("/strange"), is_trusted);
}

/// Environment variable that marks the process with the variables of the test.
const HAS_VARIABLES: &str = "HAS_VARIABLES_OF_TRACE";

#[test]
#[ignore = "needs root"]
fn a_set_uid_or_set_gid_program_ignores_the_environment() {
    // The test runs in a process that has the variables from its start, because another thread could hold the lock of
    // the environment at a fork.
    if std::env::var_os(HAS_VARIABLES).is_none() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--include-ignored", "--exact", "a_set_uid_or_set_gid_program_ignores_the_environment"]);
        assert!(command.envs(VARIABLES).env(HAS_VARIABLES, "1").status().unwrap().success());
        return;
    }
    let (root, other) = (Uid::from_raw(0), Uid::from_raw(65534));
    let (own, group) = (Gid::current(), Gid::from_raw(65534));
    Child::new(|| check(true)).ends();
    Child::new(|| {
        setresuid(other, root, root).unwrap();
        check(false);
    })
    .ends();
    Child::new(|| {
        setresgid(group, own, own).unwrap();
        check(false);
    })
    .ends();
    // A program that has permanently given up the privileges of its file still has the environment of its caller. So
    // has a process of root that has become another user. In both cases, user and effective user are equal.
    Child::new(|| {
        setresuid(other, other, other).unwrap();
        check(true);
    })
    .ends();
}

/// Environment variable of the process that traces with its stderr on a full disk.
const TRACES: &str = "TRACES_ON_A_FULL_DISK";

#[test]
fn diagnostics_on_a_full_disk_are_lost_and_nothing_else() {
    if std::env::var_os(TRACES).is_some() {
        let options = Options::default().port(1).state(State::API | State::COMMS | State::PDU);
        let (trace, tag) = (Trace::new(options), Tag::new("point").unwrap());
        (0..100).for_each(|_| trace.point(&tag));
        assert_eq!(trace.status().missed, 100);
        return;
    }
    // The test harness would capture the output of this process.
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--nocapture", "--exact", "diagnostics_on_a_full_disk_are_lost_and_nothing_else"]);
    let full = File::create("/dev/full").unwrap();
    assert!(command.env(TRACES, "1").stdout(Stdio::null()).stderr(full).status().unwrap().success());
}
