//! Operands from agents that the agent starts itself, and that fail in many ways. No PCP is needed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};
use pcp_collector::{Collector, End, Launch, Process};
use pcp_pdu::handshake::{Features, encode_creds};
use pmapi::{Atom, Error};
use tempfile::TempDir;

/// Script that is started in place of an agent. It runs a good agent. While the file `bad` exists, it fails instead, in
/// the way that `$1` selects. Each start appends the process identifier to a file.
const SCRIPT: &str = "\
echo $$ >> pids.$2
good() { exec \"PMDADERIVED\" -d 405 -c /dev/null -l good.log --username USER; }
if test -e bad; then
    case $1 in
    good) good;;
    mute) exec sleep 1000;;
    silent) cat creds; exec sleep 1000;;
    deaf) cat creds; exec sleep 1000 <&-;;
    garbage) cat creds; dd bs=1 count=20 2>/dev/null; echo This is no answer, however long it is.; exec sleep 1000;;
    endless) cat creds; dd bs=1 count=20 2>/dev/null; printf '\\177\\0\\0\\0\\0\\0\\160\\001'; exec cat /dev/zero;;
    large) cat creds; dd bs=1 count=20 2>/dev/null; printf '\\020\\0\\0\\0\\0\\0\\160\\001'; exec cat /dev/zero;;
    cut) \"PMDADERIVED\" -d 405 -c /dev/null -l good.log --username USER | dd bs=1 count=50 2>/dev/null;;
    ends) exit 3;;
    parent) sleep 1000 & echo $! >> pids.$2; sleep 1000; exit;;
    loud) yes 'a line that nobody wants to read' >&2;;
    esac
fi
good
";

struct Derived {
    dir: TempDir,
    agent: Collector<Process>,
}

/// Returns the configuration of a group with its own agent. The agent fails in the given way while the file `bad`
/// exists.
fn group(name: &str, way: &str) -> String {
    format!(
        "[group.{name}]
         agent = {{ domain = 405, command = [\"sh\", \"agent.sh\", \"{way}\", \"{name}\"] }}
         metric.{name} = \"derived.control.reload + 5\"
        "
    )
}

impl Derived {
    fn start(config: &str) -> Derived {
        let dir = tempfile::tempdir().unwrap();
        let user = User::from_uid(geteuid()).unwrap().unwrap().name;
        let binary = env!("CARGO_BIN_EXE_pmdaderived");
        fs::write(dir.path().join("agent.sh"), SCRIPT.replace("PMDADERIVED", binary).replace("USER", &user)).unwrap();
        let mut creds = Vec::new();
        encode_creds(&mut creds, 1, Features::default()).unwrap();
        fs::write(dir.path().join("creds"), creds).unwrap();
        fs::write(dir.path().join("conf.toml"), config).unwrap();
        fs::create_dir_all(dir.path().join("config/pmda")).unwrap();
        let mut command = Command::new(binary);
        command.args(["-c", "conf.toml", "-l", "log", "--agent-timeout", "3sec", "--username", &user]);
        command.current_dir(dir.path()).env("PCP_CONF", "/nonexistent/pcp.conf").env("PCP_VAR_DIR", dir.path());
        // Longer than any stall of a busy machine.
        let launch = Launch::pipe(command).timeout(Some(Duration::from_secs(30)));
        Derived { agent: launch.start().unwrap(), dir }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Returns the value of a singular metric.
    fn value(&mut self, name: &str) -> Result<String, Error> {
        let pmid = self.agent.pmid(name).map_err(|e| e.code())?;
        match self.agent.value(pmid) {
            Ok(Atom::U32(value)) => Ok(value.to_string()),
            Ok(other) => panic!("{other:?}"),
            Err(e) => Err(e.code()),
        }
    }

    /// Returns the messages about problems.
    fn messages(&mut self) -> Vec<String> {
        let pmid = self.agent.pmid("derived.control.message").unwrap();
        let text = |atom: Atom<'_>| match atom {
            Atom::String(text) => String::from_utf8(text.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        };
        self.agent.values(pmid).unwrap().iter().map(|(_, atom)| text(atom)).collect()
    }

    /// Calls `each` until it returns a value.
    #[track_caller]
    fn until<T>(&mut self, what: &str, mut each: impl FnMut(&mut Derived) -> Option<T>) -> T {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(found) = each(self) {
                return found;
            }
            assert!(Instant::now() < end, "{what}\n{}", self.log());
            sleep(Duration::from_millis(20));
        }
    }

    /// Returns the processes that were started for a group.
    fn pids(&self, group: &str) -> Vec<u32> {
        let text = fs::read_to_string(self.path(&format!("pids.{group}"))).unwrap();
        text.lines().map(|pid| pid.parse().unwrap()).collect()
    }

    fn signal(&self, group: &str, signal: Signal) {
        kill(Pid::from_raw(*self.pids(group).last().unwrap() as i32), signal).unwrap();
    }

    /// Makes the agent of group `one` fail twice, and then run again. In between, the group's values must be errors,
    /// and group `other` must not be affected.
    fn survives(mut self) {
        assert_eq!(self.value("derived.one").as_deref(), Ok("5"), "{}", self.log());
        assert_eq!(self.value("derived.other").as_deref(), Ok("5"), "{}", self.log());
        fs::write(self.path("bad"), "").unwrap();
        self.signal("one", Signal::SIGKILL);
        self.until("it starts twice", |derived| {
            let one = derived.value("derived.one");
            // The process that was killed may not have ended yet.
            assert!(one == Err(Error::AGAIN) || derived.pids("one").len() == 1, "{one:?}\n{}", derived.log());
            assert_eq!(derived.value("derived.other").as_deref(), Ok("5"));
            (derived.pids("one").len() >= 3).then_some(())
        });
        let pids = self.pids("one");
        assert!(pids[..pids.len() - 1].iter().all(|pid| !exists(*pid)), "{pids:?}");
        assert_eq!(self.pids("other").len(), 1);
        fs::remove_file(self.path("bad")).unwrap();
        self.until("it is good again", |derived| derived.value("derived.one").is_ok().then_some(()));
        assert_eq!(self.value("derived.one").as_deref(), Ok("5"));
        let last = [self.pids("one"), self.pids("other")].map(|pids| *pids.last().unwrap());
        assert!(matches!(self.agent.close_within(Duration::from_secs(60)), End::Exited(status) if status.success()));
        assert_eq!(last.map(exists), [false, false]);
    }
}

/// Returns whether a process exists, perhaps as a zombie.
fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn survives(way: &str) {
    Derived::start(&format!("{}{}", group("one", way), group("other", "good"))).survives();
}

#[test]
fn one_that_never_says_anything() {
    survives("mute");
}

#[test]
fn one_that_does_not_answer() {
    survives("silent");
}

#[test]
fn one_that_does_not_listen() {
    survives("deaf");
}

#[test]
fn one_that_answers_with_garbage() {
    survives("garbage");
}

#[test]
fn one_that_never_stops_answering() {
    survives("endless");
}

#[test]
fn one_that_answers_too_much() {
    survives("large");
}

#[test]
fn one_that_dies_in_the_middle_of_an_answer() {
    survives("cut");
}

#[test]
fn one_that_ends_at_once() {
    survives("ends");
}

#[test]
fn one_that_is_stopped() {
    let mut derived = Derived::start(&group("one", "good"));
    assert_eq!(derived.value("derived.one").as_deref(), Ok("5"));
    assert_eq!(derived.messages(), [""; 0]);
    derived.signal("one", Signal::SIGSTOP);
    derived.until("it does not answer", |derived| (derived.value("derived.one") == Err(Error::AGAIN)).then_some(()));
    derived.until("a message", |derived| (derived.messages().len() == 1).then_some(()));
    assert!(derived.messages()[0].starts_with("no answer within "), "{:?}", derived.messages());
    derived.until("another one", |derived| derived.value("derived.one").is_ok().then_some(()));
    assert_eq!(derived.messages(), [""; 0]);
    let pids = derived.pids("one");
    assert_eq!(pids.len(), 2);
    assert!(!exists(pids[0]));
}

#[test]
fn one_that_two_groups_have_in_common() {
    let config = group("one", "good");
    let second = config.replace("group.one", "group.two").replace("metric.one", "metric.two");
    let mut derived = Derived::start(&format!("{config}{second}"));
    for name in ["derived.one", "derived.two"] {
        assert_eq!(derived.value(name).as_deref(), Ok("5"));
    }
    assert_eq!(derived.pids("one").len(), 1);
    derived.signal("one", Signal::SIGKILL);
    derived.until("it has gone", |derived| derived.value("derived.two").is_err().then_some(()));
    for name in ["derived.one", "derived.two"] {
        derived.until("it is there again", |derived| derived.value(name).is_ok().then_some(()));
    }
    assert_eq!(derived.pids("one").len(), 2);
}

/// The metrics of an agent appear when the agent can be started.
#[test]
fn one_that_comes_late() {
    let mut derived = Derived::start(
        "[group.one]
         agent = { domain = 405, command = \"./late.sh\" }
         metric.one = \"derived.control.reload + 5\"
        ",
    );
    assert_eq!(derived.value("derived.one"), Err(Error::NAME));
    let good = "#!/bin/sh\nexec sh agent.sh good one\n";
    // The file must be complete and executable when it appears, because it may be started at any time.
    testkit::executable(derived.path("new"), good, 0o755);
    fs::rename(derived.path("new"), derived.path("late.sh")).unwrap();
    derived.until("it has come", |derived| derived.value("derived.one").is_ok().then_some(()));
    assert!(derived.log().contains("late.sh"), "{}", derived.log());
}

/// The agent of the operands is `pmdaderived` too. It waits for a pmcd: a socket that no process accepts connections
/// on.
#[test]
fn one_that_is_not_ready() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let waits = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    fs::write(dir.path().join("waits"), "waits = no.such.metric + 1\n").unwrap();
    let command = format!("./inner -d 405 --host unix://{0}/socket -c {0}/waits -l inner.log", dir.path().display());
    let mut derived = Derived::start(&format!(
        "[group.one]
         agent = {{ domain = 405, command = \"{command}\" }}
         metric.one = \"derived.control.reload + 5\"
        "
    ));
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_pmdaderived"), derived.path("inner")).unwrap();
    derived.until("it is started", |derived| derived.log().contains("has started").then_some(()));
    for _ in 0..5 {
        assert_eq!(derived.value("derived.one"), Err(Error::NAME));
    }
    drop(waits);
    fs::remove_file(socket).unwrap();
    derived.until("it is ready", |derived| derived.value("derived.one").is_ok().then_some(()));
    assert_eq!(derived.value("derived.one").as_deref(), Ok("5"));
}

/// The started agent does not read its input, so it cannot notice that this agent has ended.
#[test]
fn they_end_when_the_agent_is_killed() {
    let mut derived = Derived::start(&group("one", "mute"));
    assert_eq!(derived.value("derived.one").as_deref(), Ok("5"));
    fs::write(derived.path("bad"), "").unwrap();
    derived.signal("one", Signal::SIGKILL);
    derived.until("it has ended", |derived| (derived.value("derived.one") == Err(Error::AGAIN)).then_some(()));
    let pids = derived.until("a mute one", |derived| Some(derived.pids("one")).filter(|pids| pids.len() == 2));
    let pid = derived.agent.pid().unwrap() as i32;
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    drop(derived.agent);
    while running(pids[1]) {
        std::thread::yield_now();
    }
}

/// The children of an agent end with it, whether it fails or this agent is killed.
#[test]
fn their_children_end_with_them() {
    let mut derived = Derived::start(&group("one", "parent"));
    assert_eq!(derived.value("derived.one").as_deref(), Ok("5"));
    fs::write(derived.path("bad"), "").unwrap();
    derived.signal("one", Signal::SIGKILL);
    derived.until("it has ended", |derived| (derived.value("derived.one") == Err(Error::AGAIN)).then_some(()));
    let of_one = |derived: &mut Derived, n| {
        derived.until("a parent", |derived| Some(derived.pids("one")).filter(|pids| pids.len() >= n))
    };
    let pids = of_one(&mut derived, 3);
    assert!(running(pids[2]));
    // The agent fails before it has sent its version.
    kill(Pid::from_raw(pids[1] as i32), Signal::SIGKILL).unwrap();
    derived.until("the end of its child", |derived| {
        let _ = derived.value("derived.one");
        (!running(pids[2])).then_some(())
    });
    let pids = of_one(&mut derived, 5);
    kill(Pid::from_raw(derived.agent.pid().unwrap() as i32), Signal::SIGKILL).unwrap();
    drop(derived.agent);
    let end = Instant::now() + Duration::from_secs(60);
    while pids.iter().any(|pid| running(*pid)) {
        assert!(Instant::now() < end, "{pids:?}");
        sleep(Duration::from_millis(5));
    }
}

/// The standard error of an agent is copied to this agent's log, at a limited rate.
#[test]
fn one_that_writes_all_the_time() {
    let mut derived = Derived::start(&format!("{}{}", group("one", "loud"), group("other", "good")));
    assert_eq!(derived.value("derived.one").as_deref(), Ok("5"));
    fs::write(derived.path("bad"), "").unwrap();
    derived.signal("one", Signal::SIGKILL);
    derived.until("it complains", |derived| {
        assert_eq!(derived.value("derived.other").as_deref(), Ok("5"));
        let _ = derived.value("derived.one");
        derived.log().contains("agent sh: a line that nobody wants to read").then_some(())
    });
    sleep(Duration::from_millis(200));
    assert!(derived.log().len() < 20_000, "{}", derived.log().len());
    assert_eq!(derived.value("derived.other").as_deref(), Ok("5"));
}

/// Returns whether a process is running. A process that has ended may remain as a zombie for a moment.
fn running(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn one_that_would_start_others() {
    let mut derived = Derived::start(&format!(
        "[group.one]
         agent = {{ domain = 405, command = [\"{}\", \"-d\", \"405\", \"-c\", \"conf.toml\", \"-l\", \"inner.log\"] }}
         metric.one = \"derived.control.reload + 5\"
        ",
        env!("CARGO_BIN_EXE_pmdaderived")
    ));
    assert_eq!(derived.value("derived.one").as_deref(), Ok("5"), "{}", derived.log());
    let log = fs::read_to_string(derived.path("inner.log")).unwrap();
    assert!(log.contains("an agent that was itself started for its metrics cannot start agents"), "{log}");
}
