//! Requests to agent mmv beside hostile directories: `cargo bench -p pmda-mmv --bench hostile [KIND…]`, as root.
//!
//! For each kind of directory, of one hostile user and of four, and each kind of request, prints the longest request by
//! processor time and by the clock, and the longest one without the hostile files. The processor time is that of the thread
//! that answers; the time by the clock includes waiting for the thread that reads files. The memory is the agent's largest,
//! beyond that with the honest files only. Fails if a request takes more than 20 ms of processor time beyond the honest
//! ones, or the memory is more than 64 MiB for each hostile user. `ROUNDS` in the environment is the number of requests
//! of each kind, 100 by default.
#![allow(clippy::unwrap_used)]

#[path = "../../../mmv/reader/benches/hostile/mod.rs"]
mod hostile;

use std::cell::Cell;
use std::fmt::Debug;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread::sleep;
use std::time::{Duration, Instant};

use hostile::{Hostile, KINDS, application};
use nix::unistd::{Pid, geteuid};
use pcp_collector::{Collector, LabelTarget, Launch, Process};
use pcp_pdu::metadata::{Subject, TextKind};
use pmapi::{InDom, PmId};
use tempfile::TempDir;

/// Longest processor time of a request beyond the honest files'.
const MOST_TIME: Duration = Duration::from_millis(20);
/// Largest memory of a hostile user, in KiB.
const MOST_MEMORY: u64 = 64 << 10;
/// Number of honest applications, of metrics of each, and of instances of each metric.
const HONEST: (u16, usize, u32) = (100, 100, 10);
/// Metrics in a fetch.
const FETCHED: usize = 100;

/// Times of the requests of a kind.
struct Times {
    what: String,
    processor: Vec<Duration>,
    clock: Vec<Duration>,
}

fn main() -> ExitCode {
    if !geteuid().is_root() {
        eprintln!("not run without root");
        return ExitCode::SUCCESS;
    }
    let rounds = std::env::var("ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(100);
    let named: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is = |kind: &dyn Debug, name: &str| format!("{kind:?}").to_lowercase().starts_with(&name.to_lowercase());
    if let Some(name) = named.iter().find(|name| !KINDS.iter().any(|kind| is(kind, name))) {
        eprintln!("no kind {name:?}");
        return ExitCode::FAILURE;
    }
    let is_named = |kind: &dyn Debug| named.is_empty() || named.iter().any(|name| is(kind, name));
    let scene = Scene::new();
    let mut agent = scene.start();
    let (memory, honest) = (agent.memory(), agent.measure(rounds, || {}));
    let memory = memory.max(agent.memory());
    drop(agent);
    println!("honest files only: {} MiB", memory >> 10);
    let mut is_exceeded = false;
    let kinds = KINDS.into_iter().filter(|kind| is_named(kind));
    for (kind, users) in kinds.flat_map(|kind| [(kind, 1), (kind, 4)]) {
        let scene = Scene::new();
        let mut directory = Hostile::fill(kind, users, &scene.files());
        let mut agent = scene.start();
        // The files of a running agent arrive in many requests.
        agent.settle(&mut directory);
        let measured = agent.measure(rounds, || directory.change());
        let beyond = agent.memory().saturating_sub(memory);
        let is_large = beyond > MOST_MEMORY * u64::from(users);
        is_exceeded |= is_large;
        let names = agent.hostile.names.len();
        println!(
            "\n{kind:?}, {users} users, {names} names: {} MiB beyond the honest files'{}",
            beyond >> 10,
            mark(is_large)
        );
        for times in &measured {
            let honest = honest.iter().find(|other| other.what == times.what);
            let without = honest.map_or(Duration::ZERO, |times| times.longest().0);
            let (what, (processor, clock)) = (&times.what, times.longest());
            let is_long = processor.saturating_sub(without) > MOST_TIME;
            is_exceeded |= is_long;
            println!(
                "  {what:32} {processor:>10.1?} of processor, {clock:>10.1?} by the clock, {without:>10.1?} without{}",
                mark(is_long)
            );
        }
    }
    if is_exceeded { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn mark(is_exceeded: bool) -> &'static str {
    if is_exceeded { "  BEYOND" } else { "" }
}

impl Times {
    fn longest(&self) -> (Duration, Duration) {
        let longest = |times: &[Duration]| times.iter().max().copied().unwrap_or_default();
        (longest(&self.processor), longest(&self.clock))
    }
}

/// A directory with honest files.
struct Scene(TempDir);

impl Scene {
    fn new() -> Scene {
        let scene = Scene(tempfile::tempdir().unwrap());
        std::fs::create_dir(scene.files()).unwrap();
        let (applications, metrics, instances) = HONEST;
        for n in 0..applications {
            application(&scene.files(), &format!("honest{n}"), 2000 + n, metrics, instances);
        }
        scene
    }

    fn files(&self) -> std::path::PathBuf {
        self.0.path().join("mmv")
    }

    fn start(&self) -> Agent {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pmdammv"));
        command.args(["-U", "root", "-l"]).arg(self.0.path().join("log")).env("PCP_TMP_DIR", self.0.path());
        let collector = Launch::pipe(command).handshake_timeout(None).timeout(None).start().unwrap();
        Agent::new(collector)
    }
}

/// What requests are about.
#[derive(Default)]
struct Subjects {
    metrics: Vec<PmId>,
    indoms: Vec<InDom>,
    names: Vec<String>,
    random: Cell<u64>,
}

impl Subjects {
    fn new(collector: &mut Collector<Process>, names: Vec<String>) -> Subjects {
        let step = names.len().div_ceil(FETCHED).max(1);
        let metrics: Vec<PmId> = names.iter().step_by(step).filter_map(|name| collector.pmid(name).ok()).collect();
        let mut indoms: Vec<InDom> = metrics.iter().filter_map(|pmid| collector.desc(*pmid).ok()?.indom).collect();
        indoms.sort_unstable();
        indoms.dedup();
        Subjects { metrics, indoms, names, random: Cell::new(1) }
    }

    /// Returns a random element of a list.
    fn any<'a, T>(&self, list: &'a [T]) -> Option<&'a T> {
        self.random.set(self.random.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        list.get((self.random.get() >> 33) as usize % list.len().max(1))
    }

    fn metric(&self) -> Option<PmId> {
        self.any(&self.metrics).copied()
    }

    fn indom(&self) -> Option<InDom> {
        self.any(&self.indoms).copied()
    }

    /// Returns a node above a metric, below the agent's own.
    fn node(&self) -> Option<&str> {
        let name = self.any(&self.names)?;
        let dots: Vec<usize> = name.match_indices('.').map(|(dot, _)| dot).skip(1).collect();
        self.any(&dots).map(|dot| &name[..*dot])
    }
}

/// The agent, and the subjects of requests.
struct Agent {
    collector: Collector<Process>,
    pid: Pid,
    honest: Subjects,
    hostile: Subjects,
}

impl Agent {
    fn new(collector: Collector<Process>) -> Agent {
        let pid = Pid::from_raw(collector.pid().unwrap() as i32);
        let mut agent = Agent { collector, pid, honest: Subjects::default(), hostile: Subjects::default() };
        agent.find();
        agent
    }

    /// Finds the subjects of requests.
    fn find(&mut self) {
        let all = self.collector.traverse("mmv").unwrap().into_iter().filter(|name| !name.starts_with("mmv.control"));
        let (honest, hostile) = all.partition(|name| name.starts_with("mmv.honest"));
        self.honest = Subjects::new(&mut self.collector, honest);
        self.hostile = Subjects::new(&mut self.collector, hostile);
    }

    /// Sends requests until the agent has read all files, and finds the metrics that it then has.
    fn settle(&mut self, directory: &mut Hostile) {
        directory.change();
        for _ in 0..200 {
            _ = self.collector.fetch(&self.honest.metrics);
            sleep(Duration::from_millis(10));
        }
        self.find();
    }

    /// Returns the largest memory of the process so far, in KiB.
    fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(Path::new("/proc").join(self.pid.to_string()).join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Sends requests of each kind, after a change of the directory each.
    fn measure(&mut self, rounds: usize, mut change: impl FnMut()) -> Vec<Times> {
        let mut all = Vec::new();
        for (what, request) in REQUESTS {
            for whose in ["honest", "hostile"] {
                all.push((
                    request,
                    Times { what: format!("{what}, {whose}"), processor: Vec::new(), clock: Vec::new() },
                ));
            }
        }
        for _ in 0..rounds {
            for (request, times) in &mut all {
                change();
                let request = *request;
                let subjects = if times.what.ends_with("honest") { &self.honest } else { &self.hostile };
                let (processor, clock) = (processor_time(self.pid), Instant::now());
                // Without a subject, nothing is requested. Errors are normal, because files come and go.
                _ = request(&mut self.collector, subjects);
                times.clock.push(clock.elapsed());
                times.processor.push(processor_time(self.pid) - processor);
            }
        }
        all.into_iter().map(|(_, times)| times).collect()
    }
}

/// Returns the processor time of a process's first thread.
fn processor_time(pid: Pid) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat")).unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// Sends a request about one of the subjects.
type Request = fn(&mut Collector<Process>, &Subjects) -> Option<()>;

/// The kinds of requests.
const REQUESTS: [(&str, Request); 14] = [
    // pmcd never sends an empty fetch, after which the agent ends.
    ("100 metrics", |agent, of| agent.fetch(of.metrics.first().map(|_| &*of.metrics)?).map(drop).ok()),
    ("descriptor", |agent, of| agent.desc(of.metric()?).map(drop).ok()),
    ("instances", |agent, of| agent.instances(of.indom()?).map(drop).ok()),
    ("text", |agent, of| agent.text(Subject::Metric(of.metric()?), TextKind::OneLine).map(drop).ok()),
    ("labels of a metric", |agent, of| agent.labels(LabelTarget::Item(of.metric()?)).map(drop).ok()),
    ("labels of a cluster", |agent, of| agent.labels(LabelTarget::Cluster(of.metric()?)).map(drop).ok()),
    ("labels of a domain", |agent, of| agent.labels(LabelTarget::InDom(of.indom()?)).map(drop).ok()),
    ("labels of instances", |agent, of| agent.labels(LabelTarget::Instances(Some(of.indom()?))).map(drop).ok()),
    ("identifier", |agent, of| agent.pmid(of.any(&of.names)?).map(drop).ok()),
    ("name", |agent, of| agent.names(of.metric()?).map(drop).ok()),
    ("children", |agent, of| agent.children(of.node()?).map(drop).ok()),
    ("names below a node", |agent, of| agent.traverse(of.node()?).map(drop).ok()),
    ("children of the agent's node", |agent, _| agent.children("mmv").map(drop).ok()),
    ("all names", |agent, _| agent.traverse("mmv").map(drop).ok()),
];
