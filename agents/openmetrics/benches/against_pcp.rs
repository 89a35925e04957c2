//! Compares agent `openmetrics` with PCP's agent, which is written in Python, each under a pmcd of its own. Run it with
//! `cargo bench -p pmda-openmetrics [-- SCENE…]`, as root, where PCP and python3-requests are installed.
//!
//! | scene | what it measures |
//! |---|---|
//! | `fetch` | a fetch of 1,000 metrics of 10 instances: time, CPU time of the agent for each value, and its memory |
//! | `meta` | `pminfo -fdlmtT` of 27,000 lines: CPU time of the agent |
//! | `start` | 100 sources of 100 metrics: time until the agent answers, and its memory |
//! | `thousand` | 1,000 sources of 10 metrics: start and memory, fetches of one and of all, threads, and one that hangs |
//! | `hang`, `trickle`, `flood`, `script` | longest request of other clients while one source is bad, and a client fetches its metrics |

#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

#[path = "../tests/all/both.rs"]
mod both;
mod server;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use both::By;
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use pcp_client::{Context, Settings};
use server::Server;
use tempfile::TempDir;
use testkit::{Pcp, Pmcd};

const BOTH: [By; 2] = [By::Pcp, By::Us];

/// Configuration directory that both agents read.
struct Scene {
    pcp: Pcp,
    dir: TempDir,
    server: Server,
}

/// An agent under its own pmcd.
struct Running {
    pmcd: Pmcd,
    started: Duration,
}

impl Scene {
    fn new() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(dir.path().join("config.d")).unwrap();
        Scene { pcp: Pcp::required(), dir, server: Server::start() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn url(&self, name: &str, path: &str) {
        let url = format!("http://127.0.0.1:{}{path}\n", self.server.port);
        fs::write(self.path(&format!("config.d/{name}.url")), url).unwrap();
    }

    fn script(&self, name: &str, text: &str) {
        let path = self.path(&format!("config.d/{name}"));
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn start(&self, by: By) -> Running {
        let agent = both::agent(&self.pcp, self.dir.path(), by);
        let begin = Instant::now();
        let pmcd = self.pcp.pmcd().agent(agent).options(["-t", "60"]).start();
        let mut running = Running { pmcd, started: Duration::ZERO };
        let mut client = running.client();
        while client.lookup_name("openmetrics.control.debug").and_then(|pmid| value(&mut client, pmid)).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(120), "{by:?} does not start");
            thread::sleep(Duration::from_millis(5));
        }
        running.started = begin.elapsed();
        running
    }
}

fn value(client: &mut Context, pmid: pmapi::PmId) -> pmapi::Result<usize> {
    let sample = client.fetch(&[pmid])?;
    let set = sample.set(0).ok_or(pmapi::Error::VALUE)?;
    set.error.map_or(Ok(set.values().count()), Err)
}

impl Running {
    fn client(&self) -> Context {
        Context::new(self.pmcd.host().parse().unwrap(), Settings::default()).unwrap()
    }

    fn pid(&self) -> i32 {
        self.pmcd.agent_pid("openmetrics").expect("the agent runs")
    }

    /// CPU time of the agent.
    fn cpu(&self) -> Duration {
        clock_gettime(clock_getcpuclockid(Pid::from_raw(self.pid())).unwrap()).unwrap().into()
    }

    /// Resident memory of the agent, in MB.
    fn memory(&self) -> f64 {
        self.status("VmRSS") / 1024.0
    }

    /// Number in a line of the status of the agent's process.
    fn status(&self, name: &str) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }
}

/// The figures of both agents.
#[derive(Default)]
struct Figures(BTreeMap<(usize, &'static str), Vec<(By, f64)>>);

impl Figures {
    fn add(&mut self, order: usize, what: &'static str, by: By, figure: f64) {
        self.0.entry((order, what)).or_default().push((by, figure));
    }

    fn show(&self, scene: &str) {
        println!("{scene:<44} {:>10} {:>10} {:>8}", "PCP", "this agent", "ratio");
        for ((_, what), figures) in &self.0 {
            let of = |by| figures.iter().find(|(of, _)| *of == by).map(|(_, figure)| *figure);
            match (of(By::Pcp), of(By::Us)) {
                (Some(theirs), Some(ours)) => {
                    println!("    {what:<40} {theirs:>10.3} {ours:>10.3} {:>8.4}", ours / theirs);
                }
                (_, ours) => println!("    {what:<40} {:>10} {:>10.3}", "", ours.unwrap_or_default()),
            }
        }
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// A fetch of all metrics of one source.
fn fetch() {
    const ROUNDS: usize = 30;
    let scene = Scene::new();
    scene.url("src", "/m/1000/10");
    let agents = BOTH.map(|by| (by, scene.start(by)));
    let mut clients = agents.each_ref().map(|(by, agent)| {
        let mut client = agent.client();
        let names = client.traverse("openmetrics.src").unwrap();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let pmids: Vec<_> = client.lookup_names(&names).unwrap().into_iter().flatten().collect();
        assert_eq!(pmids.len(), 1000, "{by:?}");
        client.fetch(&pmids).unwrap();
        (client, pmids, Vec::new(), Duration::ZERO)
    });
    for _ in 0..ROUNDS {
        for ((_, agent), (client, pmids, times, cpu)) in agents.iter().zip(&mut clients) {
            let (before, begin) = (agent.cpu(), Instant::now());
            let sample = client.fetch(pmids).unwrap();
            times.push(begin.elapsed());
            *cpu += agent.cpu() - before;
            assert_eq!(sample.sets().map(|set| set.values().count()).sum::<usize>(), 10_000);
        }
    }
    let mut figures = Figures::default();
    for ((by, agent), (_, _, times, cpu)) in agents.iter().zip(&mut clients) {
        times.sort_unstable();
        figures.add(0, "fetch, median, ms", *by, milliseconds(times[times.len() / 2]));
        figures.add(1, "CPU for each value, µs", *by, cpu.as_secs_f64() * 1e6 / (ROUNDS * 10_000) as f64);
        figures.add(2, "memory, MB", *by, agent.memory());
    }
    figures.show("fetch: 1,000 metrics of 10 instances");
}

/// All that pminfo can show.
fn meta() {
    let scene = Scene::new();
    for source in 0..20 {
        scene.url(&format!("src{source}"), &format!("/m/50/5/{source}"));
    }
    let mut figures = Figures::default();
    for by in BOTH {
        let agent = scene.start(by);
        thread::sleep(Duration::from_secs(1));
        let before = agent.cpu();
        let output = agent.pmcd.run("pminfo", ["-fdlmtT", "openmetrics.src0", "openmetrics.src1"]).text;
        figures.add(0, "CPU, ms, 2 sources of 50 metrics", by, milliseconds(agent.cpu() - before));
        figures.add(1, "lines", by, output.lines().count() as f64);
        let before = agent.cpu();
        let names: Vec<String> = (0..20).map(|source| format!("openmetrics.src{source}")).collect();
        let output = agent.pmcd.run("pminfo", ["-fdlmtT"].into_iter().chain(names.iter().map(String::as_str))).text;
        figures.add(2, "CPU, ms, 20 sources of 50 metrics", by, milliseconds(agent.cpu() - before));
        figures.add(3, "lines of these", by, output.lines().count() as f64);
    }
    figures.show("meta: pminfo -fdlmtT");
}

/// The start with many sources.
fn start() {
    let scene = Scene::new();
    for source in 0..100 {
        scene.url(&format!("source{source}"), &format!("/m/100/0/{source}"));
    }
    let mut figures = Figures::default();
    for by in BOTH {
        let agent = scene.start(by);
        figures.add(0, "start, s", by, agent.started.as_secs_f64());
        figures.add(1, "memory, MB", by, agent.memory());
    }
    figures.show("start: 100 sources of 100 metrics");
}

/// Very many sources: their start, compared with PCP's agent, and then fetches from this agent.
fn thousand() {
    let scene = Scene::new();
    for source in 0..998 {
        scene.url(&format!("source{source}"), &format!("/m/10/0/{source}"));
    }
    scene.url("good", "/m/10/10");
    scene.url("bad", "/bad/hang");
    let mut figures = Figures::default();
    for by in BOTH {
        let agent = scene.start(by);
        figures.add(0, "start, s", by, agent.started.as_secs_f64());
        figures.add(1, "memory after the start, MB", by, agent.memory());
        if by == By::Us {
            fetches_of_a_thousand(&agent, &mut figures);
            with_one_bad(&scene, &agent, &mut figures);
        }
    }
    figures.show("thousand: 1,000 sources of 10 metrics");
}

fn fetches_of_a_thousand(agent: &Running, figures: &mut Figures) {
    let mut client = agent.client();
    let begin = Instant::now();
    let mut names = client.traverse("openmetrics").unwrap();
    while names.iter().filter(|name| name.contains(".source")).count() < 9980 {
        assert!(begin.elapsed() < Duration::from_secs(60), "{} metrics", names.len());
        names = client.traverse("openmetrics").unwrap();
    }
    figures.add(2, "until all have metrics, s more", By::Us, begin.elapsed().as_secs_f64());
    names.retain(|name| name.contains(".source"));
    for (order, what, prefix, rounds) in [
        (3, "a fetch of one source, median, ms", "openmetrics.source500.", 300),
        (6, "a fetch of all sources, median, ms", "openmetrics.", 20),
    ] {
        let names: Vec<&str> = names.iter().map(String::as_str).filter(|name| name.starts_with(prefix)).collect();
        let pmids: Vec<_> = client.lookup_names(&names).unwrap().into_iter().flatten().collect();
        client.fetch(&pmids).unwrap();
        let before = agent.cpu();
        let mut times: Vec<Duration> = Vec::new();
        for _ in 0..rounds {
            let begin = Instant::now();
            client.fetch(&pmids).unwrap();
            times.push(begin.elapsed());
        }
        let cpu = (agent.cpu() - before).as_secs_f64() * 1e6 / f64::from(rounds);
        times.sort_unstable();
        figures.add(order, what, By::Us, milliseconds(times[times.len() / 2]));
        let (cpu_of_fetch, cpu_of_value) = match order {
            3 => ("CPU of that fetch, µs", "CPU of that for each value, µs"),
            _ => ("CPU of all, µs", "CPU of all for each value, µs"),
        };
        figures.add(order + 1, cpu_of_fetch, By::Us, cpu);
        figures.add(order + 2, cpu_of_value, By::Us, cpu / pmids.len() as f64);
    }
    figures.add(9, "threads", By::Us, agent.status("Threads"));
    figures.add(10, "memory, MB", By::Us, agent.memory());
}

/// Measures what one source that hangs costs among very many others.
fn with_one_bad(scene: &Scene, agent: &Running, figures: &mut Figures) {
    const TIME: Duration = Duration::from_secs(10);
    for (order, is_bad) in [(11, false), (14, true)] {
        scene.server.is_bad.store(is_bad, Ordering::Relaxed);
        let before = agent.cpu();
        let times = others(agent, TIME);
        let cpu = agent.cpu() - before;
        let longest = times.iter().flatten().max().copied().unwrap_or_default();
        let whats = if is_bad {
            ["longest while one source hangs, ms", "their requests then", "CPU for each request then, µs"]
        } else {
            ["longest request of 3 clients, ms", "their requests", "CPU for each request, µs"]
        };
        let requests = times.iter().map(Vec::len).sum::<usize>() as f64;
        let all = [milliseconds(longest), requests, cpu.as_secs_f64() * 1e6 / requests];
        for ((order, what), figure) in (order..).zip(whats).zip(all) {
            figures.add(order, what, By::Us, figure);
        }
    }
    figures.add(17, "threads then", By::Us, agent.status("Threads"));
    figures.add(18, "memory then, MB", By::Us, agent.memory());
    scene.server.is_bad.store(false, Ordering::Relaxed);
}

/// Sends a request repeatedly, and returns the durations.
fn ask(mut client: Context, names: &[&str], pause: Duration, stop: &AtomicBool) -> Vec<Duration> {
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        let pmids: pmapi::Result<Vec<_>> = names.iter().map(|name| client.lookup_name(name)).collect();
        if pmids.and_then(|pmids| client.fetch(&pmids)).is_err() {
            // pmcd may have dropped the agent, or be busy.
            let _ = client.reconnect();
        }
        times.push(begin.elapsed());
        thread::sleep(pause);
    }
    times
}

/// Metrics whose clients must not notice the bad source: those of a good source, of the agent and of pmcd.
const OTHERS: [&str; 3] = ["openmetrics.good.bench_metric_0000", "openmetrics.control.calls", "pmcd.numclients"];

/// Durations of the requests of a client for each of [`OTHERS`]. Another client fetches from the bad source ten times a
/// second.
fn others(agent: &Running, time: Duration) -> [Vec<Duration>; 3] {
    const PAUSE: Duration = Duration::from_millis(2);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = &stop;
        let clients = OTHERS.map(|name| scope.spawn(move || ask(agent.client(), &[name], PAUSE, stop)));
        let other = scope.spawn(|| ask(agent.client(), &["openmetrics.bad.bad"], Duration::from_millis(100), stop));
        thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let _ = other.join();
        clients.map(|client| client.join().unwrap())
    })
}

/// Measures the longest requests of other clients, before one source becomes bad and while it is bad.
fn bad(kind: &str) {
    const TIME: Duration = Duration::from_secs(10);
    let mut figures = Figures::default();
    for by in BOTH {
        let scene = Scene::new();
        scene.url("good", "/m/10/10");
        scene.url("bad", &format!("/bad/{kind}"));
        let flag = scene.path("go");
        if kind == "script" {
            fs::remove_file(scene.path("config.d/bad.url")).unwrap();
            scene.script("bad", &format!("#!/bin/sh\n[ ! -e {} ] || exec sleep 30\necho bad 1\n", flag.display()));
        }
        let agent = scene.start(by);
        let pid = agent.pid();
        let mut client = agent.client();
        let begin = Instant::now();
        while client.lookup_name("openmetrics.bad.bad").is_err() {
            assert!(begin.elapsed() < Duration::from_secs(60), "the source has no metric");
        }
        let before = others(&agent, TIME);
        fs::write(&flag, "").unwrap();
        scene.server.is_bad.store(true, Ordering::Relaxed);
        let after = others(&agent, TIME);
        let limit = Duration::from_millis(10);
        let over = |all: &[Vec<Duration>; 3]| all.iter().flatten().filter(|time| **time > limit).count() as f64;
        let count = |all: &[Vec<Duration>; 3]| all.iter().map(Vec::len).sum::<usize>() as f64;
        let longest = |times: &[Duration]| milliseconds(times.iter().max().copied().unwrap_or_default());
        for (order, what, of) in [
            (0, "good source, longest request before, ms", longest(&before[0])),
            (1, "good source, longest request, ms", longest(&after[0])),
            (2, "control metric, longest request before, ms", longest(&before[1])),
            (3, "control metric, longest request, ms", longest(&after[1])),
            (4, "pmcd's own, longest request before, ms", longest(&before[2])),
            (5, "pmcd's own, longest request, ms", longest(&after[2])),
            (6, "requests over 10 ms before", over(&before)),
            (7, "requests over 10 ms", over(&after)),
            (8, "requests before", count(&before)),
            (9, "requests", count(&after)),
            (10, "agent is alive", f64::from(u8::from(Path::new(&format!("/proc/{pid}/exe")).exists()))),
        ] {
            figures.add(order, what, by, of);
        }
        // Threads of the server wait for this.
        scene.server.is_bad.store(false, Ordering::Relaxed);
    }
    figures.show(&format!("{kind}: one source is bad"));
}

const SCENES: [&str; 8] = ["fetch", "meta", "start", "thousand", "hang", "trickle", "flood", "script"];

fn main() {
    let scenes: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let unknown = scenes.iter().find(|scene| !SCENES.contains(&scene.as_str()));
    assert!(unknown.is_none(), "no scene {unknown:?}");
    let pcp = Pcp::locate();
    let imports = "import requests, pcp.pmda";
    let python = Command::new("/usr/bin/python3").args(["-c", imports]).status();
    if pcp.is_err() || !nix::unistd::geteuid().is_root() || !python.is_ok_and(|status| status.success()) {
        println!("agent openmetrics: not run, because it needs root, PCP, python3-pcp and python3-requests");
        return;
    }
    for scene in SCENES {
        if !scenes.is_empty() && !scenes.iter().any(|wanted| wanted == scene) {
            continue;
        }
        match scene {
            "fetch" => fetch(),
            "meta" => meta(),
            "start" => start(),
            "thousand" => thousand(),
            kind => bad(kind),
        }
    }
}
