//! What the system says about processes.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, setrlimit};

use crate::Outcome;

/// The most memory that was ever resident, in KiB; `None` once the process has ended.
pub(crate) fn most_memory(pid: u32) -> Option<u64> {
    memory(pid, "VmHWM:")
}

/// User and group that a process runs as.
pub(crate) fn user(pid: u32) -> Option<(u32, u32)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok();
    Some((field("Uid:")?, field("Gid:")?))
}

/// A line about memory in the status of a process, in KiB.
fn memory(pid: u32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The size of the address space, in KiB.
pub(crate) fn address_space(pid: u32) -> Option<u64> {
    memory(pid, "VmSize:")
}

/// Memory that is resident now, in KiB.
pub(crate) fn resident(pid: u32) -> Option<u64> {
    memory(pid, "VmRSS:")
}

/// All processes that have this among their arguments.
pub(crate) fn with_argument(argument: &str) -> Vec<u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes())
    };
    pids.filter(|pid| has(pid) && runs(*pid)).collect()
}

/// How many descriptors a process has open.
pub(crate) fn descriptors(pid: u32) -> Option<usize> {
    fs::read_dir(format!("/proc/{pid}/fd")).ok().map(Iterator::count)
}

/// The largest number of a descriptor.
pub(crate) fn highest_descriptor(pid: u32) -> Option<usize> {
    let all = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).max()
}

/// The state letter of a process, as in `ps`.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether a process exists and is no zombie.
pub(crate) fn runs(pid: u32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// All processes below another one, which have not ended.
pub(crate) fn descendants(pid: u32) -> Vec<u32> {
    let mut all = Vec::new();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for task in tasks {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|word| word.parse().ok()) {
            if runs(child) {
                all.push(child);
            }
            all.extend(descendants(child));
        }
    }
    all
}

/// Bytes of all files of a directory whose names contain `part`.
pub(crate) fn bytes_of(dir: &Path, part: &str) -> u64 {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    let files = files.filter(|file| file.file_name().to_string_lossy().contains(part));
    files.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// The end of a file, to show beside a failure.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(bytes.get(bytes.len().saturating_sub(4000)..).unwrap_or_default()).into_owned();
    let all: Vec<&str> = text.lines().collect();
    all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join(" | ")
}

/// A child that is killed, and waited for, when this is dropped.
#[derive(Debug)]
pub(crate) struct Guarded(pub(crate) Child);

impl Guarded {
    pub(crate) fn spawn(command: &mut Command) -> Outcome<Guarded> {
        command.spawn().map(Guarded).map_err(|e| format!("{}: {e}", command.get_program().display()).into())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits for the end, for some time.
    pub(crate) fn ends_within(&mut self, time: Duration) -> Option<ExitStatus> {
        let start = Instant::now();
        loop {
            match self.0.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if start.elapsed() < time => sleep(Duration::from_micros(500)),
                _ => return None,
            }
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Limits this process and all that it starts from now on.
pub(crate) fn limit_self(address_space: u64, descriptors: u64) -> Outcome {
    setrlimit(Resource::RLIMIT_AS, address_space, address_space)?;
    setrlimit(Resource::RLIMIT_NOFILE, descriptors, descriptors)?;
    setrlimit(Resource::RLIMIT_FSIZE, 2 << 30, 2 << 30)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    Ok(())
}
