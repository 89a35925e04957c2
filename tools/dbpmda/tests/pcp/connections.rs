//! Agents that listen on sockets.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use nix::unistd::{User, getuid};
use testkit::{Pcp, free_port, wait_for};

use crate::sessions::{OURS, Sessions, shows};

/// Agent that listens, for a single session.
struct Listening(Child);

impl Listening {
    fn start(option: &str, address: &str, log: &Path) -> Self {
        let agent = Pcp::required().c_agent("sample");
        let mut command = Command::new(agent.binary());
        // PCP's own user must not write to the directory of the test.
        let user = User::from_uid(getuid()).unwrap().unwrap().name;
        command.args(["-d", "29", "-U", &user, option, address, "-l"]).arg(log).env("PCP_PMDAS_DIR", agent.pmdas_dir());
        Listening(command.spawn().unwrap())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const SCRIPT: &str = "getdesc on\nstatus\ndesc sample.long.one\nfetch sample.bin\nprofile 29.2 none\n\
    profile 29.2 add 100\nfetch sample.bin\ntext sample.long.one\ndebug pdu\nfetch sample.long.one\ndebug none\nclose\nstatus\n";

/// Compares the output of both programs in a session with an agent that `listen` starts.
#[track_caller]
fn check(open: &str, listen: impl Fn(&Path) -> Listening) {
    let shown = [true, false].map(|is_ours| {
        let sessions = Sessions::c_agent("sample");
        let agent = listen(sessions.dir());
        let script = format!("{open}\n{SCRIPT}");
        let shown =
            if is_ours { sessions.ours(&["-i", "-e"], &script) } else { sessions.theirs(&["-i", "-e"], &script) };
        drop(agent);
        shown
    });
    assert_eq!(shown[0], shown[1]);
    assert!(shown[0].contains("    inst [100 or ???] value 100\n"), "{}", shown[0]);
}

/// Returns whether a process listens on a port, found without a connection to it.
fn listens(port: u16) -> bool {
    let pattern = format!(":{port:04X} ");
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines()).any(|line| {
        let mut words = line.split_whitespace();
        words.nth(1).is_some_and(|local| format!("{local} ").ends_with(&pattern)) && words.nth(1) == Some("0A")
    })
}

#[test]
#[ignore = "needs PCP"]
fn in_the_file_system() {
    for open in ["open socket DIR/agent", "open socket unix DIR/agent", "open socket unix agent"] {
        check(open, |dir| {
            let path: PathBuf = dir.join("agent");
            let agent = Listening::start("-u", path.to_str().unwrap(), &dir.join("log"));
            wait_for("the socket", || path.exists());
            agent
        });
    }
}

#[test]
#[ignore = "needs PCP"]
fn on_ports() {
    for (kind, option, address) in [("inet", "-i", "127.0.0.1"), ("ipv6", "-6", "::1")] {
        let port = free_port(address);
        check(&format!("open socket {kind} {port}"), |dir| {
            let agent = Listening::start(option, &port.to_string(), &dir.join("log"));
            wait_for("the port", || listens(port));
            agent
        });
    }
}

#[test]
#[ignore = "needs PCP"]
fn nobody_there() {
    let port = free_port("127.0.0.1");
    let long = "x".repeat(200);
    let shown = Sessions::new().file("file", "").same_alone(&format!(
        "open socket nosuch\nopen socket unix /no/such\nopen socket file\nopen socket unix DIR\nstatus\n\
         open socket inet {port}\nopen socket ipv6 {port}\nopen socket inet \"nosuch\"\nopen socket inet nosuch\n\
         open socket inet \"a name of a service that is much longer than the message that tells of it can be\"\n\
         open socket inet\nopen socket {long}\nopen socket inet 1 status\nopen socket inet 65537\n\
         open socket unix nosuch status\nstatus"
    ));
    shows(&shown, &["opensocket: ./nosuch: No such file or directory\n"]);
    shows(&shown, &["opensocket: connect: Connection refused\n"]);
    shows(&shown, &["Error: Failed to map (nosuch) to a port number\n"]);
}

/// PCP's dbpmda swaps the bytes of the number and never finds the service.
#[test]
fn a_service_by_its_name() {
    let mut command = Command::new(OURS);
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("root"), "root {\n}\n").unwrap();
    fs::write(dir.path().join("commands"), "open socket inet \"ssh\"\n").unwrap();
    let commands = fs::File::open(dir.path().join("commands")).unwrap();
    let output = command.args(["-n", "root"]).current_dir(dir.path()).stdin(commands).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.starts_with("Warning: Mapped ssh to port number 22\n"), "{text}");
}
