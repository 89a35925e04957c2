//! Libraries and agents beside PCP's: `cargo bench -p pmda-trace`. Needs PCP with libpcp-trace2-dev and gcc, and root.
//!
//! Each library traces points to each agent, in turns, so that a machine that becomes slower meanwhile is slower for
//! all. The time is that of the application, the CPU that of the agent's process. All run on one processor: waking
//! another one costs more than all the rest, and whether it happens is chance. The floor is a process that does nothing
//! but read what the library sends for a point and write what it waits for.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use pmapi::{Domain, Item, PmId};
use pmda::collector::{Collector, Launch, Process};
use trace::{Options, State, Tag, Trace, Transport};

const C_AGENT: &str = "/var/lib/pcp/pmdas/trace/pmdatrace";
const ROUNDS: usize = 15;

/// An agent over a pipe, with its port.
struct Agent {
    process: Collector<Process>,
    port: u16,
}

impl Agent {
    fn start(binary: &str, dir: &Path) -> Agent {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(binary);
        command.args(["-d", "10", "-M", "root", "-l", "trace.log", "-I", &port.to_string()]).current_dir(dir);
        let mut process = Launch::pipe(command).start().unwrap();
        let port_metric = PmId::new(Domain::new(10).unwrap(), Item::new(0, 14));
        let _ = process.value(port_metric).unwrap();
        Agent { process, port }
    }

    fn cpu(&self) -> u64 {
        cpu(self.process.pid().unwrap())
    }
}

/// Nanoseconds of CPU, when there is nothing left to do.
fn cpu(pid: u32) -> u64 {
    let path = format!("/proc/{pid}/schedstat");
    let now = || std::fs::read_to_string(&path).unwrap().split(' ').next().unwrap().parse::<u64>().unwrap();
    let mut before = now();
    loop {
        sleep(Duration::from_millis(30));
        let after = now();
        if after == before {
            return after;
        }
        before = after;
    }
}

/// A process that answers twenty bytes to whatever comes.
struct Floor {
    process: Child,
    stream: TcpStream,
}

const AS_FLOOR: &str = "--as-floor";
/// Bytes of a point with the tag of this bench, and of what is answered.
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
    C { _child: Child, input: ChildStdin, output: BufReader<ChildStdout> },
    Rust { trace: Trace, tag: Tag },
}

impl Library {
    fn c(program: &Path, protocol: &str, port: u16) -> Library {
        let mut command = Command::new(program);
        command.arg(protocol).env("PCP_TRACE_HOST", "127.0.0.1").env("PCP_TRACE_PORT", port.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Library::C { _child: child, input, output }
    }

    fn rust(protocol: &str, port: u16) -> Library {
        let state = if protocol == "async" { State::ASYNC } else { State::NONE };
        let transport = Transport::Tcp;
        let trace = Trace::new(Options { host: "127.0.0.1".into(), port, state, transport, ..Options::default() });
        Library::Rust { trace, tag: Tag::new("a point").unwrap() }
    }

    /// Traces points, and gives the time that the application spends.
    fn points(&mut self, count: u64) -> Duration {
        match self {
            Library::C { input, output, .. } => {
                writeln!(input, "{count}").unwrap();
                let mut line = String::new();
                output.read_line(&mut line).unwrap();
                Duration::from_nanos(line.split(' ').next().unwrap().parse().unwrap())
            }
            Library::Rust { trace, tag } => {
                let start = Instant::now();
                (0..count).for_each(|_| trace.point(tag));
                start.elapsed()
            }
        }
    }
}

fn main() {
    if let Some(address) = std::env::args().skip_while(|argument| argument != AS_FLOOR).nth(1) {
        return Floor::serve(&address);
    }
    if !std::env::args().any(|argument| argument == "--bench") {
        return println!("agent trace: measures with cargo bench only");
    }
    let mut processor = CpuSet::new();
    processor.set(0).unwrap();
    sched_setaffinity(Pid::from_raw(0), &processor).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("peer");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peer.c");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-o"]).arg(&program).arg(source).args(["-lpcp_trace", "-lpcp"]);
    if !Path::new(C_AGENT).exists() || !gcc.status().is_ok_and(|status| status.success()) {
        return println!("agent trace: PCP's agent or library is missing");
    }
    println!("library agent protocol   ns a point   agent's CPU ns a point (medians of {ROUNDS} rounds)");
    for (protocol, count) in [("sync", 2_000), ("async", 20_000)] {
        let agents = [C_AGENT, env!("CARGO_BIN_EXE_pmdatrace")].map(|binary| Agent::start(binary, dir.path()));
        let (mut floor, mut floors) = (Floor::start(), [Vec::new(), Vec::new()]);
        let mut contestants = Vec::new();
        for (at, agent) in ["C", "Rust"].into_iter().enumerate() {
            let port = agents[at].port;
            contestants.push(("C", agent, at, Library::c(&program, protocol, port), Vec::new(), Vec::new()));
            contestants.push(("Rust", agent, at, Library::rust(protocol, port), Vec::new(), Vec::new()));
        }
        for round in 0..=ROUNDS {
            if protocol == "sync" {
                let before = cpu(floor.process.id());
                floors[0].push(floor.points(count).as_nanos() as f64 / count as f64);
                floors[1].push((cpu(floor.process.id()) - before) as f64 / count as f64);
            }
            for (_, _, at, library, times, cpus) in &mut contestants {
                let before = agents[*at].cpu();
                let time = library.points(count).as_nanos() as f64 / count as f64;
                let cpu = (agents[*at].cpu() - before) as f64 / count as f64;
                // The first makes the connection.
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
                Library::C { .. } => String::new(),
            };
            println!("{library:7} {agent:5} {protocol:8} {:12.0} {:24.0}   {note}", median(times), median(cpus));
        }
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
