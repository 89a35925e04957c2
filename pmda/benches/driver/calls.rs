//! System calls of each request, counted by strace.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use super::process::{Agent, Program};

/// System calls of one request.
pub(super) struct Calls {
    /// System calls on the pipes.
    framing: f64,
    by_name: BTreeMap<String, f64>,
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9.2} {:>9.2}  ", self.framing, self.by_name.values().sum::<f64>())?;
        self.by_name.iter().filter(|(_, n)| **n > 0.004).try_for_each(|(name, n)| write!(f, " {name} {n:.2}"))
    }
}

/// Runs the agent with few requests and with many. The difference is the cost of the requests.
pub(super) fn count(
    program: &Program,
    profile: Option<&[u8]>,
    requests: &[Vec<u8>],
    record: &Path,
) -> Result<Calls, String> {
    const FEW: usize = 20;
    const MANY: usize = 220;
    let few = trace(program, profile, requests, FEW, record)?;
    let many = trace(program, profile, requests, MANY, record)?;
    let each = |many: usize, few: usize| (many as f64 - few as f64) / (MANY - FEW) as f64;
    let by_name = many.by_name.iter().map(|(name, &n)| {
        let before = few.by_name.get(name).copied().unwrap_or_default();
        (name.clone(), each(n, before))
    });
    Ok(Calls { framing: each(many.framing, few.framing), by_name: by_name.collect() })
}

#[derive(Default)]
struct Counts {
    framing: usize,
    by_name: BTreeMap<String, usize>,
}

fn trace(
    program: &Program,
    profile: Option<&[u8]>,
    requests: &[Vec<u8>],
    rounds: usize,
    record: &Path,
) -> Result<Counts, String> {
    let options = ["-f", "-qq", "-y", "-s", "0", "-o"].map(Into::into).into_iter().chain([record.into()]);
    let command = program.under(Path::new("strace"), &options.collect::<Vec<std::ffi::OsString>>());
    let mut agent = Agent::start(command).map_err(|e| format!("strace: {e}"))?;
    if let Some(profile) = profile {
        agent.tell(profile).map_err(|e| e.to_string())?;
    }
    for request in requests.iter().cycle().take(rounds) {
        agent.ask(request);
    }
    agent.stop();
    let text = fs::read(record).map_err(|e| format!("{}: {e}", record.display()))?;
    let mut counts = Counts::default();
    for (name, arguments) in String::from_utf8_lossy(&text).lines().filter_map(call) {
        *counts.by_name.entry(name.to_owned()).or_default() += 1;
        counts.framing += usize::from(arguments.split(',').next().is_some_and(|fd| fd.contains("<pipe:")));
    }
    Ok(counts)
}

/// Parses a line `PID name(arguments) = result`. Other lines report signals and ends of processes.
fn call(line: &str) -> Option<(&str, &str)> {
    let (_, call) = line.split_once(' ')?;
    let (name, arguments) = call.trim_start().split_once('(')?;
    name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_').then_some((name, arguments))
}
