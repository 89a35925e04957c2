//! Library and agent compared with PCP's: `cargo bench -p pmda-trace`. Needs PCP with libpcp-trace2-dev, gcc, and root.
//!
//! Each library traces points to each agent. They alternate, so that a change of the machine's speed affects all. The
//! time is the application's, the CPU time is that of the agent's process. All run on one processor, because waking
//! another one costs more than the rest, and happens at random. The floor is a process that only reads what the library
//! sends for a point, and writes the reply.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use trace::{Options, State, Tag, Trace, Transport};

use common::{Agent, C_AGENT, Marker, ROUNDS, cpu, is_bench, median, peer, told_to};

/// Returns the CPU time of a process in nanoseconds, once it is idle.
fn cpu_at_rest(pid: u32) -> u64 {
    let mut before = cpu(pid);
    loop {
        sleep(Duration::from_millis(30));
        let after = cpu(pid);
        if after == before {
            return after;
        }
        before = after;
    }
}

/// A process that answers each read with twenty bytes.
struct Floor {
    process: Child,
    stream: TcpStream,
}

const AS_FLOOR: &str = "--as-floor";
/// Bytes of a point with the tag of this bench, and bytes of the answer.
const POINT: usize = 48;
const ANSWER: usize = 20;

impl Floor {
    fn start() -> Floor {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        let process = command.args([AS_FLOOR, &listener.local_addr().unwrap().to_string()]).spawn().unwrap();
        let stream = listener.accept().unwrap().0;
        stream.set_nodelay(true).unwrap();
        Floor { process, stream }
    }

    fn points(&mut self, count: u64) -> Duration {
        let start = Instant::now();
        for _ in 0..count {
            self.stream.write_all(&[1; POINT]).unwrap();
            self.stream.read_exact(&mut [0; ANSWER]).unwrap();
        }
        start.elapsed()
    }

    fn serve(address: &str) {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        while stream.read(&mut [0; 16 << 10]).unwrap() > 0 {
            stream.write_all(&[1; ANSWER]).unwrap();
        }
    }
}

enum Library {
    C(Marker),
    Rust { trace: Trace, tag: Tag },
}

impl Library {
    fn rust(protocol: &str, port: u16) -> Library {
        let state = if protocol == "async" { State::ASYNC } else { State::empty() };
        let transport = Transport::Tcp;
        let trace = Trace::new(Options::default().host("127.0.0.1").port(port).state(state).transport(transport));
        Library::Rust { trace, tag: Tag::new("a point").unwrap() }
    }

    /// Traces points. Returns the application's time in nanoseconds.
    fn points(&mut self, count: u64) -> f64 {
        match self {
            Library::C(marker) => {
                marker.begin(count);
                marker.nanoseconds()
            }
            Library::Rust { trace, tag } => {
                let start = Instant::now();
                (0..count).for_each(|_| trace.point(tag));
                start.elapsed().as_nanos() as f64
            }
        }
    }
}

fn main() {
    if let Some(address) = told_to(AS_FLOOR) {
        return Floor::serve(&address);
    }
    if !is_bench() {
        return;
    }
    let mut processor = CpuSet::new();
    processor.set(0).unwrap();
    sched_setaffinity(Pid::from_raw(0), &processor).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = peer(dir.path()) else { return };
    println!("library agent protocol   ns a point   agent's CPU ns a point (medians of {ROUNDS} rounds)");
    for (protocol, count) in [("sync", 2_000), ("async", 20_000)] {
        let agents = [C_AGENT, env!("CARGO_BIN_EXE_pmdatrace")].map(|binary| Agent::start(binary, dir.path()));
        let (mut floor, mut floors) = (Floor::start(), [Vec::new(), Vec::new()]);
        let mut contestants = Vec::new();
        for (at, agent) in ["C", "Rust"].into_iter().enumerate() {
            let port = agents[at].port;
            contestants.push(("C", agent, at, Library::C(Marker::c(&program, protocol, port)), Vec::new(), Vec::new()));
            contestants.push(("Rust", agent, at, Library::rust(protocol, port), Vec::new(), Vec::new()));
        }
        for round in 0..=ROUNDS {
            if protocol == "sync" {
                let before = cpu_at_rest(floor.process.id());
                floors[0].push(floor.points(count).as_nanos() as f64 / count as f64);
                floors[1].push((cpu_at_rest(floor.process.id()) - before) as f64 / count as f64);
            }
            for (_, _, at, library, times, cpus) in &mut contestants {
                let pid = agents[*at].pid();
                let before = cpu_at_rest(pid);
                let time = library.points(count) / count as f64;
                let cpu = (cpu_at_rest(pid) - before) as f64 / count as f64;
                // The first round includes connecting.
                if round > 0 {
                    times.push(time);
                    cpus.push(cpu);
                }
            }
        }
        if let [[_, ..], [_, ..]] = floors.each_ref().map(Vec::as_slice) {
            let [time, cpu] = floors.each_mut().map(|values| median(values));
            println!("floor         {protocol:8} {time:12.0} {cpu:24.0}");
        }
        drop(floor.stream);
        floor.process.wait().unwrap();
        for (library, agent, _, handle, times, cpus) in &mut contestants {
            let note = match handle {
                Library::Rust { trace, .. } => format!("missed {}", trace.status().missed),
                Library::C(_) => String::new(),
            };
            println!("{library:7} {agent:5} {protocol:8} {:12.0} {:24.0}   {note}", median(times), median(cpus));
        }
    }
}
