//! An agent that misbehaves in any way: the host goes on, answers in time, and leaves no process.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::scene;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pcp_collector::{Collector, End, Error, LabelTarget, Launch, Process};
use pcp_pdu::metadata::{Subject, TextKind};
use pmapi::Atom;
use scene::*;

/// Item of the storable metric that selects the way, and of the metric whose fetch misbehaves.
const WAY: u16 = 1;
const MISBEHAVE: u16 = 2;
const TEXTS: u16 = 3;

/// Ways that last until the process is killed.
const HANGS: [u32; 3] = [10, 11, 14];
/// Way whose process becomes root's, so that the host may not kill it.
const ROOT: u32 = 15;

/// Longest time for an answer.
const LIMIT: Duration = Duration::from_secs(30);

/// Returns the processes that have a shared object or program mapped.
fn processes(object: &Path) -> Vec<String> {
    let object = object.to_str().unwrap();
    let all = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    all.filter(|process| std::fs::read_to_string(process.join("maps")).is_ok_and(|maps| maps.contains(object)))
        .map(|process| process.display().to_string())
        .collect()
}

/// Kills the processes of a program.
fn end_all(program: &Path) {
    for process in processes(program) {
        let id = process.trim_start_matches("/proc/").parse().unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), nix::sys::signal::Signal::SIGKILL).unwrap();
    }
}

struct Rough {
    dir: tempfile::TempDir,
    way: u32,
}

impl Rough {
    fn new(compiled: &Path, way: u32) -> Rough {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        std::fs::copy(compiled, dir.path().join("pmda_rough.so")).unwrap();
        let root = dir.path().join("root");
        testkit::copy_executable(compiled.with_file_name("root"), &root, 0o4755);
        Rough { dir, way }
    }

    fn object(&self) -> PathBuf {
        self.dir.path().join("pmda_rough.so")
    }

    /// A program that becomes root.
    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    fn log(&self) -> String {
        let log = std::fs::read(self.dir.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).chars().take(3000).collect()
    }

    fn start(&self) -> Collector<Process> {
        let mut command = host();
        command.arg("--so").arg(self.object()).args(["-d", "400", "--patience", "0.5", "-l"]);
        command.arg(self.dir.path().join("log")).env("ROUGH_ROOT", self.root());
        Launch::pipe(command).timeout(Some(LIMIT)).handshake_timeout(None).start().unwrap()
    }

    /// Waits until the agent answers again.
    fn recovers(&self, agent: &mut Collector<Process>) {
        let until = Instant::now() + Duration::from_secs(50);
        loop {
            match agent.fetch(&[pmid(0)]).map(drop) {
                Ok(()) => return,
                Err(Error::NotReady) => {
                    _ = agent.wait_ready(Some(Duration::from_secs(40)));
                }
                Err(Error::Agent(pmapi::Error::AGAIN)) => std::thread::sleep(Duration::from_millis(50)),
                Err(e) => panic!("way {}: {e}: {}", self.way, self.log()),
            }
            assert!(Instant::now() < until, "way {}: {}", self.way, self.log());
        }
    }

    /// Makes a request, whatever its answer.
    fn ask<R>(&self, agent: &mut Collector<Process>, request: impl FnOnce(&mut Collector<Process>) -> R) {
        _ = request(agent);
        self.recovers(agent);
    }

    fn run(&self) {
        let mut agent = self.start();
        agent.store(pmid(WAY), None, Atom::U32(self.way)).unwrap();
        if HANGS.contains(&self.way) {
            let refused = agent.fetch(&[pmid(MISBEHAVE)]).map(drop);
            assert!(matches!(refused, Err(Error::NotReady)), "way {}: {refused:?}", self.way);
        } else if self.way < 200 {
            self.ask(&mut agent, |agent| agent.fetch(&[pmid(MISBEHAVE)]).is_ok());
            // Some ways have an effect after the answer.
            std::thread::sleep(Duration::from_millis(400));
            self.ask(&mut agent, |agent| agent.fetch(&[pmid(TEXTS)]).is_ok());
        } else {
            let again = |agent: &mut Collector<Process>| agent.store(pmid(WAY), None, Atom::U32(self.way)).unwrap();
            self.ask(&mut agent, |agent| agent.instances(indom()));
            again(&mut agent);
            self.ask(&mut agent, |agent| agent.instance_of(indom(), "one"));
            again(&mut agent);
            self.ask(&mut agent, |agent| agent.text(Subject::Metric(pmid(0)), TextKind::Help));
            again(&mut agent);
            self.ask(&mut agent, |agent| agent.desc(pmid(0)));
            again(&mut agent);
            self.ask(&mut agent, |agent| agent.labels(LabelTarget::Domain(domain())));
        }
        if self.way >= 100 {
            assert!(!self.log().contains("has not returned for"), "way {}: {}", self.way, self.log());
        }
        if self.way == ROOT {
            assert!(self.log().contains("cannot be killed, and go on"), "{}", self.log());
        }
        let end = agent.close_within(Duration::from_secs(20));
        assert!(matches!(end, End::Exited(status) if status.success()), "way {}: {end:?}: {}", self.way, self.log());
        end_all(&self.root());
        let left = processes(&self.object());
        assert!(left.is_empty(), "way {}: {left:?}: {}", self.way, self.log());
    }
}

#[test]
#[ignore = "needs PCP"]
// Slow: an agent starts for each way.
fn agents_that_misbehave_in_all_ways() {
    let scene = tempfile::tempdir().unwrap();
    let object = scene.path().join("pmda_rough.so");
    compile("tests/rough.c", &object);
    let root = scene.path().join("root");
    let mut cc = std::process::Command::new("gcc");
    cc.args(["-x", "c", "-DROOT", "tests/rough.c", "-lpcp_pmda", "-lpcp", "-o"]).arg(&root);
    assert!(cc.status().unwrap().success());
    let mut ways: Vec<u32> = (1..=8).chain(10..=15).chain(20..=36).chain(100..=123).chain(200..=206).collect();
    // Only root can make the program.
    ways.retain(|way| *way != ROOT || nix::unistd::geteuid().is_root());
    let mut failed = Vec::new();
    for chunk in ways.chunks(8) {
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                chunk.iter().map(|way| (way, scope.spawn(|| Rough::new(&object, *way).run()))).collect();
            for (way, thread) in threads {
                if thread.join().is_err() {
                    failed.push(*way);
                }
            }
        });
    }
    assert!(failed.is_empty(), "{failed:?}");
}
