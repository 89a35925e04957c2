//! The daemon as root in a directory of another user, which replaces files by symbolic links.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::Attacker;

/// Starts the agent with an input that ends at once.
fn run(home: &Path, options: &[&str]) -> std::process::Output {
    let mut command = Command::new("timeout");
    let command = command
        .args(["-s", "KILL", "10", env!("CARGO_BIN_EXE_pmdasimple")])
        .args(options)
        .current_dir(home)
        .env("PCP_PMDAS_DIR", home)
        .env("PCP_VAR_DIR", home);
    command.env_remove("PCP_CONF").env("PCP_USER", "nobody").stdin(testkit::ended_input()).output().unwrap()
}

/// Options with which the agent stays root, and with which it becomes the owner of the directory.
const USERS: [&[&str]; 2] = [&["-U", "root"], &[]];

#[test]
#[ignore = "needs root"]
// Slow: the agent starts hundreds of times beside an attacker.
fn its_log() {
    let home = tempfile::tempdir().unwrap();
    for options in USERS {
        let attacker = Attacker::swaps(["x.log", "x.log.prev"]);
        let log = attacker.dir().join("x.log");
        for _ in 0..100 {
            run(home.path(), &[options, &["-l", log.to_str().unwrap()]].concat());
        }
        attacker.has_failed();
    }
}

#[test]
#[ignore = "needs root"]
// Slow: the agent starts hundreds of times beside an attacker.
fn its_socket() {
    let home = tempfile::tempdir().unwrap();
    for options in USERS {
        let attacker = Attacker::swaps(["socket"]);
        let socket = attacker.dir().join("socket");
        for _ in 0..100 {
            // No process connects to the socket, so the agent has to be killed.
            let mut command = Command::new("timeout");
            command.args(["-s", "KILL", "0.02", env!("CARGO_BIN_EXE_pmdasimple"), "-l", "/dev/null", "-u"]);
            command.arg(&socket).args(options).env("PCP_VAR_DIR", home.path()).env("PCP_USER", "nobody");
            command.current_dir(home.path()).stderr(Stdio::null()).status().unwrap();
        }
        attacker.has_failed();
    }
}

#[test]
#[ignore = "needs root"]
// Slow: the agent starts 60 times beside an attacker.
fn its_pcp_directory() {
    let home = tempfile::tempdir().unwrap();
    let attacker = Attacker::swaps(["Install", "pmns", "help", ".help.new", "pmdasimple.new", "pmdasimple"]);
    for _ in 0..30 {
        run(home.path(), &["--write-pmda", attacker.dir().to_str().unwrap()]);
        run(home.path(), &["--write-help", attacker.dir().join("help").to_str().unwrap()]);
    }
    attacker.has_failed();
}

#[test]
#[ignore = "needs root"]
fn what_it_makes_belongs_to_the_user_that_it_becomes() {
    let home = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).unwrap();
    let [log, fifo] = ["x.log", "fifo.log"].map(|name| dir.path().join(name));
    run(home.path(), &["-l", log.to_str().unwrap()]);
    assert_eq!(fs::metadata(&log).unwrap().uid(), 65534);
    // In a directory that only root may write to, the log belongs to root, even if there was a previous log.
    for mode in [0o700, 0o755, 0o755] {
        fs::set_permissions(home.path(), fs::Permissions::from_mode(mode)).unwrap();
        let out = run(home.path(), &["-l", "own.log"]);
        assert!(!String::from_utf8_lossy(&out.stderr).contains("cannot open log"), "{out:?}");
        let [log, previous] = ["own.log", "own.log.prev"].map(|name| home.path().join(name));
        assert_eq!(fs::metadata(&log).unwrap().uid(), 0);
        assert!(mode == 0o700 || previous.exists());
    }
    // No process reads from this FIFO. Root must not wait for a reader.
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::os::unix::fs::chown(&fifo, Some(65534), Some(65534)).unwrap();
    run(home.path(), &["-U", "root", "-l", fifo.to_str().unwrap()]);
    assert!(fs::read_to_string(&fifo).unwrap().starts_with("Log for pmdasimple"));
}

#[test]
fn a_file_that_is_no_socket_stays() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    fs::write(&file, "precious").unwrap();
    let out = run(home.path(), &["-l", "-", "-u", file.to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("not a socket") && !out.status.success(), "{out:?}");
    assert_eq!(fs::read(&file).unwrap(), b"precious");
}
