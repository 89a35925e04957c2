//! The shared-memory transport compared with a synchronous point of PCP's library, and the largest rate of two
//! processes: `cargo bench -p pmda-trace --bench shared_memory`. The first part needs PCP with libpcp-trace2-dev, gcc,
//! and root.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pcp_pdu::event::{EventFlags, Layout, records};
use pmapi::{Atom, Inst};
use trace::{Options, Tag, Trace, Transport};

use common::{Agent, C_AGENT, Marker, ROUNDS, cpu, is_bench, median, peer, pmid, told_to};

const AS_MARKER: &str = "--as-marker";
/// Number of points: in a round of C's library, in a round of our library, and of each of two processes.
const POINTS: [u64; 3] = [2_000, 200_000, 50_000_000];

impl Agent {
    fn points(&mut self) -> u64 {
        match self.process.values(pmid(0, 6)).unwrap().get(Inst::new(1)) {
            Some(Atom::U64(points)) => points,
            _ => 0,
        }
    }

    /// Returns the number of records that a client has not read yet, and of records that it has missed.
    fn records(&mut self) -> (u64, u64) {
        let values = self.process.values(pmid(1, 0)).unwrap();
        let Some((_, Atom::Event(payload))) = values.iter().next() else { return (0, 0) };
        records(payload, Layout::Micro).unwrap().fold((0, 0), |(seen, missed), record| {
            if record.flags.contains(EventFlags::MISSED) {
                (seen, missed + u64::from(record.missed))
            } else {
                (seen + 1, missed)
            }
        })
    }
}

/// Starts a process that traces with our library.
fn shared_memory(directory: &Path) -> Marker {
    Marker::start(Command::new(std::env::current_exe().unwrap()).arg(AS_MARKER).arg(directory))
}

fn mark(directory: PathBuf) {
    let trace = Trace::new(Options::default().directory(directory).transport(Transport::SharedMemory));
    let tag = Tag::new("a point").unwrap();
    for line in std::io::stdin().lines() {
        let points: u64 = line.unwrap().parse().unwrap();
        let start = Instant::now();
        (0..points).for_each(|_| trace.point(&tag));
        println!("{} {}", start.elapsed().as_nanos(), trace.status().missed);
    }
}

fn main() {
    if let Some(directory) = told_to(AS_MARKER) {
        return mark(directory.into());
    }
    if !is_bench() {
        return;
    }
    // Files are in `/dev/shm`, as in production.
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let dir = tempfile::tempdir_in(parent).unwrap();
    beside_c(dir.path());
    two_processes(dir.path());
}

fn beside_c(dir: &Path) {
    let Some(program) = peer(dir) else { return };
    let agents = [C_AGENT, env!("CARGO_BIN_EXE_pmdatrace")].map(|binary| Agent::start(binary, dir));
    let mut markers =
        [Marker::c(&program, "sync", agents[0].port), shared_memory(&dir.join(format!("trace/{}", agents[1].port)))];
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        for ((marker, times), points) in markers.iter_mut().zip(&mut times).zip(POINTS) {
            marker.begin(points);
            let time = marker.nanoseconds() / points as f64;
            // The first round includes making the connection or the file.
            if round > 0 {
                times.push(time);
            }
        }
    }
    let [c, shared_memory] = times.map(|mut times| median(&mut times));
    println!(
        "C's synchronous point: {c:.0} ns, shared memory: {shared_memory:.1} ns, {:.4} of it (medians of {ROUNDS} rounds)",
        shared_memory / c
    );
}

fn two_processes(dir: &Path) {
    let [_, _, points] = POINTS;
    let mut agent = Agent::start(env!("CARGO_BIN_EXE_pmdatrace"), dir);
    let mut markers = [0; 2].map(|_| shared_memory(&dir.join(format!("trace/{}", agent.port))));
    let _ = agent.records();
    let (mut seen, mut missed) = (0, 0);
    let mut take = |agent: &mut Agent| {
        let (more, lost) = agent.records();
        (seen, missed) = (seen + more, missed + lost);
    };
    let (start, before) = (Instant::now(), cpu(agent.pid()));
    markers.iter_mut().for_each(|marker| marker.begin(points));
    while agent.points() < 2 * points {
        take(&mut agent);
        std::thread::sleep(Duration::from_millis(20));
    }
    let (took, used) = (start.elapsed().as_secs_f64(), (cpu(agent.pid()) - before) as f64 / 1e9);
    take(&mut agent);
    let rates = markers.each_mut().map(|marker| points as f64 / marker.nanoseconds() * 1e3);
    println!(
        "two processes: {:.1} + {:.1} million points a second, until all were counted: {took:.2} s",
        rates[0], rates[1]
    );
    println!("marked {}, counted {}, of these records {seen}, missed records {missed}", 2 * points, agent.points());
    println!("the agent's CPU: {:.1} % of one", 100.0 * used / took);
    assert_eq!((agent.points(), seen + missed), (2 * points, 2 * points));
}
