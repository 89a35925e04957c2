//! The light transport beside a synchronous point of PCP's library, and as much as two processes can mark:
//! `cargo bench -p pmda-trace --bench light`. Needs PCP with libpcp-trace2-dev and gcc, and root, for the first part.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use pmapi::pdu::event::{EventFlags, Layout, records};
use pmapi::{Atom, Domain, Inst, Item, PmId};
use pmda::collector::{Collector, Launch, Process};
use trace::{Options, Tag, Trace};

const C_AGENT: &str = "/var/lib/pcp/pmdas/trace/pmdatrace";
const AS_MARKER: &str = "--as-marker";
const ROUNDS: usize = 15;
/// Points of C's library in a round, of ours, and of each of two processes.
const POINTS: [u64; 3] = [2_000, 200_000, 50_000_000];

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
        command.env("PCP_RUN_DIR", dir);
        let mut process = Launch::pipe(command).start().unwrap();
        let _ = process.value(pmid(0, 14)).unwrap();
        Agent { process, port }
    }

    /// Seconds of CPU.
    fn cpu(&self) -> f64 {
        let path = format!("/proc/{}/schedstat", self.process.pid().unwrap());
        let text = std::fs::read_to_string(path).unwrap();
        text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
    }

    fn points(&mut self) -> u64 {
        match self.process.values(pmid(0, 6)).unwrap().get(Inst::new(1)) {
            Some(Atom::U64(points)) => points,
            _ => 0,
        }
    }

    /// How many records a client has not read, and how many it is told to have missed.
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

fn pmid(cluster: u16, item: u16) -> PmId {
    PmId::new(Domain::new(10).unwrap(), Item::new(cluster, item))
}

/// A process that marks as many points as it is told, and says how long that took.
struct Marker(Child, ChildStdin, BufReader<ChildStdout>);

impl Marker {
    fn start(mut command: Command) -> Marker {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Marker(child, input, output)
    }

    fn light(directory: &Path) -> Marker {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(AS_MARKER).arg(directory);
        Marker::start(command)
    }

    fn begin(&mut self, points: u64) {
        writeln!(self.1, "{points}").unwrap();
    }

    fn nanoseconds(&mut self) -> f64 {
        let mut line = String::new();
        self.2.read_line(&mut line).unwrap();
        let (nanoseconds, missed) = line.trim().split_once(' ').unwrap();
        assert_eq!(missed, "0");
        nanoseconds.parse().unwrap()
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn mark(directory: PathBuf) {
    let trace = Trace::new(Options { directory: Some(directory), ..Options::default() }.light());
    let tag = Tag::new("a point").unwrap();
    for line in std::io::stdin().lines() {
        let points: u64 = line.unwrap().parse().unwrap();
        let start = Instant::now();
        (0..points).for_each(|_| trace.point(&tag));
        println!("{} {}", start.elapsed().as_nanos(), trace.status().missed);
    }
}

fn main() {
    if let Some(directory) = std::env::args_os().skip_while(|argument| argument != AS_MARKER).nth(1) {
        return mark(directory.into());
    }
    if !std::env::args().any(|argument| argument == "--bench") {
        return println!("agent trace: measures with cargo bench only");
    }
    // In memory, as $PCP_RUN_DIR is on most systems.
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let dir = tempfile::tempdir_in(parent).unwrap();
    beside_c(dir.path());
    two_processes(dir.path());
}

fn beside_c(dir: &Path) {
    let program = dir.join("peer");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peer.c");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-o"]).arg(&program).arg(source).args(["-lpcp_trace", "-lpcp"]);
    if !Path::new(C_AGENT).exists() || !gcc.status().is_ok_and(|status| status.success()) {
        return println!("PCP's agent or library is missing");
    }
    let agents = [C_AGENT, env!("CARGO_BIN_EXE_pmdatrace")].map(|binary| Agent::start(binary, dir));
    let mut c = Command::new(program);
    c.env("PCP_TRACE_HOST", "127.0.0.1").env("PCP_TRACE_PORT", agents[0].port.to_string());
    let mut markers = [Marker::start(c), Marker::light(&dir.join(format!("trace/{}", agents[1].port)))];
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        for ((marker, times), points) in markers.iter_mut().zip(&mut times).zip(POINTS) {
            marker.begin(points);
            let time = marker.nanoseconds() / points as f64;
            // The first makes the connection or the file.
            if round > 0 {
                times.push(time);
            }
        }
    }
    let [c, light] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    println!(
        "C's synchronous point: {c:.0} ns, light: {light:.1} ns, {:.4} of it (medians of {ROUNDS} rounds)",
        light / c
    );
}

fn two_processes(dir: &Path) {
    let [_, _, points] = POINTS;
    let mut agent = Agent::start(env!("CARGO_BIN_EXE_pmdatrace"), dir);
    let mut markers = [0; 2].map(|_| Marker::light(&dir.join(format!("trace/{}", agent.port))));
    let _ = agent.records();
    let (mut seen, mut missed) = (0, 0);
    let mut take = |agent: &mut Agent| {
        let (more, lost) = agent.records();
        (seen, missed) = (seen + more, missed + lost);
    };
    let (start, cpu) = (Instant::now(), agent.cpu());
    markers.iter_mut().for_each(|marker| marker.begin(points));
    while agent.points() < 2 * points {
        take(&mut agent);
        std::thread::sleep(Duration::from_millis(20));
    }
    let (took, cpu) = (start.elapsed().as_secs_f64(), agent.cpu() - cpu);
    take(&mut agent);
    let rates = markers.each_mut().map(|marker| points as f64 / marker.nanoseconds() * 1e3);
    println!(
        "two processes: {:.1} + {:.1} million points a second, until all were counted: {took:.2} s",
        rates[0], rates[1]
    );
    println!("marked {}, counted {}, of these records {seen}, missed records {missed}", 2 * points, agent.points());
    println!("the agent's CPU: {:.1} % of one", 100.0 * cpu / took);
    assert_eq!((agent.points(), seen + missed), (2 * points, 2 * points));
}
