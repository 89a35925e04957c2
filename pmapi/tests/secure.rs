//! A program with more rights than its caller does not use the caller's environment.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, exit};

use pmapi::{Config, is_set_id};

const TEST: &str = "a_program_with_file_capabilities_ignores_the_environment";
const VARIABLE: &str = "PCP_TMP_DIR";
/// Exit codes of the program: USES if it uses the environment, IGNORES if not.
const USES: i32 = 40;
const IGNORES: i32 = 41;

/// Runs a copy of this program as an unprivileged user, and returns its exit code.
fn run(program: &Path) -> Option<i32> {
    let mut command = Command::new(program);
    command.args(["--exact", "--include-ignored", TEST]).env(VARIABLE, "/strange").uid(65534).gid(65534);
    command.output().unwrap().status.code()
}

/// Root has started the daemon, and chosen its environment.
#[test]
#[ignore = "needs root"]
fn a_daemon_that_has_changed_its_user_uses_the_environment() {
    const DAEMON: &str = "a_daemon_that_has_changed_its_user_uses_the_environment";
    if std::env::var_os(VARIABLE).as_deref() == Some(OsStr::new("/chosen")) {
        nix::unistd::seteuid(65534.into()).unwrap();
        let uses = !is_set_id() && Config::load().var(VARIABLE) == Some(OsStr::new("/chosen"));
        exit(if uses { USES } else { IGNORES });
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--include-ignored", DAEMON]).env(VARIABLE, "/chosen");
    assert_eq!(command.output().unwrap().status.code(), Some(USES));
}

#[test]
#[ignore = "needs root"]
fn a_program_with_file_capabilities_ignores_the_environment() {
    if std::env::var_os(VARIABLE).as_deref() == Some(OsStr::new("/strange")) {
        let is_ignored = Config::load().var(VARIABLE) != Some(OsStr::new("/strange"));
        assert_eq!(is_ignored, is_set_id());
        exit(if is_ignored { IGNORES } else { USES });
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("program");
    testkit::copy_executable(std::env::current_exe().unwrap(), &program, 0o755);
    assert_eq!(run(&program), Some(USES));
    let granted = Command::new("setcap").arg("cap_net_bind_service=ep").arg(&program).status().unwrap();
    assert!(granted.success());
    assert_eq!(run(&program), Some(IGNORES));
}
