//! Agents over pipes, and processes that trace to them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use pcp_collector::{Collector, Launch, Process};
use pmapi::{Domain, Item, PmId};

pub(crate) const C_AGENT: &str = "/var/lib/pcp/pmdas/trace/pmdatrace";
pub(crate) const ROUNDS: usize = 15;

/// Returns whether cargo runs this program with `--bench`. Otherwise it must not measure.
pub(crate) fn is_bench() -> bool {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    if !is_bench {
        println!("agent trace: measures with cargo bench only");
    }
    is_bench
}

/// Returns the value of an option that starts this program in a role other than that of the bench.
pub(crate) fn told_to(option: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != option).nth(1)
}

/// Compiles the program that traces points with PCP's library. `None` if that or PCP's agent is missing.
pub(crate) fn peer(dir: &Path) -> Option<PathBuf> {
    let program = dir.join("peer");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peer.c");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-o"]).arg(&program).arg(source).args(["-lpcp_trace", "-lpcp"]);
    let built = Path::new(C_AGENT).exists() && gcc.status().is_ok_and(|status| status.success());
    if !built {
        println!("agent trace: PCP's agent or library is missing");
    }
    built.then_some(program)
}

pub(crate) fn pmid(cluster: u16, item: u16) -> PmId {
    PmId::new(Domain::new(10).unwrap(), Item::new(cluster, item))
}

/// An agent over a pipe, with its TCP port.
pub(crate) struct Agent {
    pub(crate) process: Collector<Process>,
    pub(crate) port: u16,
}

impl Agent {
    /// Starts PCP's agent or ours. `dir` has its log, and the files of the shared-memory transport.
    pub(crate) fn start(binary: &str, dir: &Path) -> Agent {
        let port = testkit::free_port("127.0.0.1");
        let mut command = Command::new(binary);
        command.args(["-d", "10", "-M", "root", "-l", "trace.log", "-I", &port.to_string()]).current_dir(dir);
        command.env("PCP_RUN_DIR", dir).env("PCP_TRACE_DIR", dir);
        let mut process = Launch::pipe(command).start().unwrap();
        let _ = process.value(pmid(0, 14)).unwrap();
        Agent { process, port }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid().unwrap()
    }
}

/// Returns the CPU time of a process, in nanoseconds.
pub(crate) fn cpu(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// A process that traces as many points as requested, and reports the time.
pub(crate) struct Marker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Marker {
    pub(crate) fn start(command: &mut Command) -> Marker {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Marker { child, input, output }
    }

    /// Starts [`peer`]'s program, which traces to an agent on this host.
    pub(crate) fn c(program: &Path, protocol: &str, port: u16) -> Marker {
        let mut command = Command::new(program);
        Marker::start(command.arg(protocol).env("PCP_TRACE_HOST", "127.0.0.1").env("PCP_TRACE_PORT", port.to_string()))
    }

    pub(crate) fn begin(&mut self, points: u64) {
        writeln!(self.input, "{points}").unwrap();
    }

    /// Waits for the points, and returns their time in nanoseconds.
    pub(crate) fn nanoseconds(&mut self) -> f64 {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let (nanoseconds, missed) = line.trim().split_once(' ').unwrap();
        assert_eq!(missed, "0");
        nanoseconds.parse().unwrap()
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
