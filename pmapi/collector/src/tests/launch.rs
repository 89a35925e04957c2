use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use pcp_pdu::FrameError;
use pcp_pdu::handshake::Features;

use crate::guard::Entry;
use crate::{Address, AgentState, End, Error, Launch, isolate};

/// An agent's CREDS PDU with the flags `AUTHORIZE` and `CONTAINER`, for printf(1).
const CREDS: &str = r"\000\000\000\024\000\000\160\014\000\000\000\001\000\000\000\001\001\002\000\104";

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

fn process_exists(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn pipe_and_a_clean_end() {
    let mut agent = Launch::pipe(shell(&format!("printf '{CREDS}'; exec cat >/dev/null"))).start().unwrap();
    assert_eq!(agent.features(), Features::AUTHORIZE | Features::CONTAINER);
    assert_eq!(agent.exit_status(), None);
    let pid = agent.pid().unwrap();
    assert!(matches!(agent.close_within(Duration::from_secs(60)), End::Exited(status) if status.success()));
    assert!(!process_exists(pid));
}

#[test]
fn a_script_without_an_interpreter_is_for_the_shell() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("agent");
    testkit::executable(&script, format!("printf '{CREDS}'\nexec cat >/dev/null\n"), 0o755);
    for launch in [Launch::pipe(Command::new(&script)), Launch::pipe(Command::new(&script)).isolated()] {
        let agent = launch.start().unwrap();
        assert!(matches!(agent.close_within(Duration::from_secs(60)), End::Exited(status) if status.success()));
    }
}

#[test]
fn an_agent_that_ignores_the_end_is_killed() {
    let agent = Launch::pipe(shell(&format!("printf '{CREDS}'; exec sleep 1000"))).start().unwrap();
    let pid = agent.pid().unwrap();
    assert_eq!(agent.close(), End::Killed);
    assert!(!process_exists(pid));

    let agent = Launch::pipe(shell(&format!("printf '{CREDS}'; exec sleep 1000"))).start().unwrap();
    let pid = agent.pid().unwrap();
    drop(agent);
    assert!(!process_exists(pid));
}

#[test]
fn an_agent_that_is_let_go_continues() {
    let process = Launch::pipe(shell(&format!("printf '{CREDS}'; exec sleep 1000"))).open().unwrap();
    let (stream, child) = process.into_parts();
    assert!(stream.descriptor().is_some());
    drop(stream);
    let mut child = child.unwrap();
    assert_eq!(child.try_wait().unwrap(), None);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The pipe is not close-on-exec, like descriptors of a host of shared objects such as pmcd.
#[test]
fn an_isolated_agent_inherits_three_descriptors_and_goes_with_its_children() {
    let (_from, to) = nix::unistd::pipe().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("list");
    let script =
        format!("ls -l /proc/$$/fd >{0}.new; sleep 1000 & echo $! >>{0}.new; mv {0}.new {0}; wait", list.display());
    let target = std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&to))).unwrap();
    let process = Launch::pipe(shell(&script)).isolated().open().unwrap();
    let text = loop {
        if let Ok(text) = std::fs::read_to_string(&list) {
            break text;
        }
        std::thread::yield_now();
    };
    assert!(!text.contains(target.to_str().unwrap()), "{text}");
    let child: u32 = text.lines().last().unwrap().parse().unwrap();
    assert!(process_exists(child));
    drop(process);
    while runs(child) {
        std::thread::yield_now();
    }
}

/// Returns whether a process exists and is not a zombie, which stays if no process waits for it.
fn runs(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// The test starts itself once more, and that process is killed.
#[test]
fn a_group_ends_with_a_process_that_is_killed_just_after_the_start() {
    const DIRECTORY: &str = "COLLECTOR_TEST_DIRECTORY";
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        start_and_die(Path::new(&directory));
    }
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("a_group_ends_with_a_process_that_is_killed_just_after_the_start").env(DIRECTORY, dir.path());
    let status = command.stdout(Stdio::null()).status().unwrap();
    assert_eq!(status.signal(), Some(Signal::SIGKILL as i32));
    let pids = std::fs::read_to_string(dir.path().join("pids")).unwrap();
    let pids: Vec<u32> = pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 2);
    let end = Instant::now() + Duration::from_secs(60);
    while pids.iter().any(|pid| runs(*pid)) {
        assert!(Instant::now() < end, "{pids:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Starts processes, and is killed before it could register their group.
#[expect(clippy::zombie_processes, reason = "this process does not live to wait")]
fn start_and_die(directory: &Path) -> ! {
    let pids = directory.join("pids");
    let mut command = shell(&format!("sleep 1000 & echo $$ $! >{0}.new; mv {0}.new {0}; wait", pids.display()));
    isolate::isolate(&mut command);
    let _entry = Entry::of(&mut command);
    let _child = command.spawn().unwrap();
    while !pids.exists() {
        std::thread::yield_now();
    }
    kill(Pid::this(), Signal::SIGKILL).unwrap();
    unreachable!()
}

#[test]
fn an_agent_that_somebody_else_has_waited_for() {
    let agent = Launch::pipe(shell(&format!("printf '{CREDS}'; exec sleep 1000"))).start().unwrap();
    let pid = Pid::from_raw(agent.pid().unwrap() as i32);
    kill(pid, Signal::SIGKILL).unwrap();
    waitpid(pid, None).unwrap();
    assert_eq!(agent.close(), End::Unknown);
}

#[test]
fn the_end_of_a_process_has_its_status() {
    for (ends, expected) in [("exit 7", "exit status: 7"), ("kill -9 $$", "signal: 9 (SIGKILL)")] {
        let mut agent = Launch::pipe(shell(&format!("printf '{CREDS}'; read -r _; {ends}"))).start().unwrap();
        agent.send_bytes(b"\n").unwrap();
        let error = agent.receive_bytes().unwrap_err();
        assert_eq!(error.to_string(), format!("the agent has closed the connection ({expected})"));
        assert_eq!((error.code(), agent.exit_status().is_some()), (pmapi::Error::IPC, true));
    }
    // The process goes on.
    let mut agent = Launch::pipe(shell(&format!("printf '{CREDS}'; exec >&-; exec sleep 1000"))).start().unwrap();
    assert!(matches!(agent.receive_bytes(), Err(Error::Closed)));
}

#[test]
fn programs_that_are_no_agents() {
    let ended = Launch::pipe(shell("exit 3")).start().unwrap_err();
    assert!(matches!(ended, Error::Exited(status) if status.code() == Some(3)), "{ended}");
    let rubbish = Launch::pipe(shell("echo Hello, I am no agent")).start().unwrap_err();
    assert!(matches!(rubbish, Error::CutShort(21)), "{rubbish}");
    let silent = Launch::pipe(shell("exec sleep 1000")).handshake_timeout(Some(Duration::from_millis(20)));
    assert!(matches!(silent.start(), Err(Error::TimedOut(_))));
    let missing = Launch::pipe(Command::new("/nonexistent/agent")).start().unwrap_err();
    assert_eq!(missing.to_string(), "\"/nonexistent/agent\": No such file or directory (os error 2)");
    assert_eq!(missing.code(), pmapi::Error::NOAGENT);
}

#[test]
fn an_agent_that_dies_is_noticed() {
    let mut agent = Launch::pipe(shell(&format!("printf '{CREDS}'; read x"))).start().unwrap();
    agent.send_bytes(b"\n").unwrap();
    assert!(matches!(agent.receive_bytes(), Err(Error::Ended(_))));
    assert!(matches!(agent.close_within(Duration::from_secs(60)), End::Exited(_)));
}

#[test]
fn an_agent_that_takes_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let flag = dir.path().join("flag");
    let script =
        format!("while ! test -e {}; do sleep 0.01; done; printf '{CREDS}'; exec cat >/dev/null", flag.display());
    let mut starting = Launch::pipe(shell(&script)).not_ready().begin().unwrap();
    assert!(matches!(starting.wait(Some(Duration::ZERO)), Err(Error::TimedOut(_))));
    std::fs::write(flag, "").unwrap();
    let agent = starting.wait(None).unwrap();
    assert_eq!(agent.state(), AgentState::NotReady);
    assert!(matches!(starting.wait(None), Err(Error::Dropped)));
}

/// An agent that sends the beginning of a PDU, followed by an endless stream of bytes.
fn endless(head: &str) -> Command {
    shell(&format!("printf '{CREDS}'; printf '{head}'; exec cat /dev/zero"))
}

#[test]
// Slow: a shell prints without end until the limit is reached.
fn an_agent_that_never_stops_sending() {
    let mut agent = Launch::pipe(endless(r"\177\000\000\000\000\000\160\001")).start().unwrap();
    agent.set_timeout(Some(Duration::from_millis(20)));
    assert!(matches!(agent.receive_bytes(), Err(Error::TimedOut(_))));
    // An incomplete PDU is not an answer, however long it is.
    assert!(matches!(agent.settle(), Ok(())));

    // A PDU of 2 GiB does not use up the memory.
    let mut agent = Launch::pipe(endless(r"\177\000\000\000\000\000\160\001")).timeout(None).start().unwrap();
    let error = agent.receive_bytes().unwrap_err();
    assert!(matches!(error, Error::Frame(FrameError::TooLong(0x7f00_0000))), "{error}");

    let mut agent = Launch::pipe(endless(r"\000\020\000\001\000\000\160\001")).limit(1 << 20).start().unwrap();
    let error = agent.receive_bytes().unwrap_err();
    assert!(matches!(error, Error::Frame(FrameError::TooLong(0x10_0001))), "{error}");
}

#[test]
fn sockets_without_an_agent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.socket");
    let nobody = Launch::socket(Address::Unix(path.clone())).start().unwrap_err();
    assert_eq!(nobody.to_string(), format!("unix socket {}: No such file or directory (os error 2)", path.display()));
    let ended = Launch::socket(Address::Unix(path.clone())).command(shell("exit 1")).start().unwrap_err();
    assert!(matches!(ended, Error::Exited(_)), "{ended}");

    // No process accepts on this listener: the connection succeeds, but not the version exchange.
    let _listener = UnixListener::bind(&path).unwrap();
    let silent = Launch::socket(Address::Unix(path)).handshake_timeout(Some(Duration::from_millis(20)));
    assert!(matches!(silent.start(), Err(Error::TimedOut(_))));
}
