//! The environment of a process: a set-uid program gets it from its caller. Its stderr may be on a full disk. A process of
//! its own: it starts itself again with other variables, as another user.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use pcp_trace::{Options, State, Tag, Trace};
use pmapi::Config;

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

/// Environment variable of the processes with the variables of the test: whether they must use them.
const IS_TRUSTED: &str = "ENVIRONMENT_OF_TRACE_IS_TRUSTED";

#[test]
#[ignore = "needs root"]
fn a_set_uid_or_set_gid_program_ignores_the_environment() {
    if let Some(is_trusted) = std::env::var_os(IS_TRUSTED) {
        return check(is_trusted == "yes");
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    // A user other than root starts the program with each of these modes.
    for (mode, is_trusted) in [(0o755, "yes"), (0o4755, "no"), (0o2755, "no")] {
        let program = dir.path().join(format!("{mode:o}"));
        testkit::copy_executable(std::env::current_exe().unwrap(), &program, mode);
        let mut command = Command::new(program);
        command.args(["--include-ignored", "--exact", "a_set_uid_or_set_gid_program_ignores_the_environment"]);
        command.envs(VARIABLES).env(IS_TRUSTED, is_trusted).uid(65534).gid(65534);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{mode:o}: {}", String::from_utf8_lossy(&output.stdout));
    }
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
