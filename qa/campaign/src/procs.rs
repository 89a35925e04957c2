//! Processes: their state in `/proc`, their limits and their ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, setrlimit};

use crate::Outcome;

/// Returns the largest resident set so far, in KiB; `None` once the process has ended.
pub(crate) fn most_memory(pid: u32) -> Option<u64> {
    memory(pid, "VmHWM:")
}

/// Returns the user and group identifiers of a process.
pub(crate) fn user(pid: u32) -> Option<(u32, u32)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok();
    Some((field("Uid:")?, field("Gid:")?))
}

/// Returns a memory field of `/proc/PID/status`, in KiB.
fn memory(pid: u32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the size of the address space, in KiB.
pub(crate) fn address_space(pid: u32) -> Option<u64> {
    memory(pid, "VmSize:")
}

/// Returns the current resident set, in KiB.
pub(crate) fn resident(pid: u32) -> Option<u64> {
    memory(pid, "VmRSS:")
}

/// Returns the running processes with a certain argument on their command line.
pub(crate) fn with_argument(argument: &str) -> Vec<u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let named = pids.filter(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes())
    });
    named.filter(|pid| runs(*pid)).collect()
}

/// Returns the number of open descriptors of a process.
pub(crate) fn descriptors(pid: u32) -> Option<usize> {
    fs::read_dir(format!("/proc/{pid}/fd")).ok().map(Iterator::count)
}

/// Returns the highest open descriptor of a process.
pub(crate) fn highest_descriptor(pid: u32) -> Option<usize> {
    let all = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).max()
}

/// Returns the state letter of a process, as shown by `ps`.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Returns whether a process exists and is not a zombie.
pub(crate) fn runs(pid: u32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Returns all running descendants of a process.
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

/// Returns the total length of the files of a directory whose names contain `part`, in bytes.
pub(crate) fn bytes_of(dir: &Path, part: &str) -> u64 {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    let files = files.filter(|file| file.file_name().to_string_lossy().contains(part));
    files.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// Returns the last lines of a file, for a failure message.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(bytes.get(bytes.len().saturating_sub(4000)..).unwrap_or_default()).into_owned();
    let all: Vec<&str> = text.lines().collect();
    all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join(" | ")
}

/// A child process that is killed and reaped on drop.
#[derive(Debug)]
pub(crate) struct Guarded(pub(crate) Child);

impl Guarded {
    pub(crate) fn spawn(command: &mut Command) -> Outcome<Guarded> {
        command.spawn().map(Guarded).map_err(|e| format!("{}: {e}", command.get_program().display()).into())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits up to `time` for the process to end.
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

/// A memory cgroup, which counts a process and its children with the kernel's memory for them: file tables, pipes, the
/// buffers of sockets, and pages of file systems in memory.
#[derive(Debug)]
pub(crate) struct Group(PathBuf);

impl Group {
    /// Creates a group below that of this process, with a limit in bytes. Returns `None` if the machine has no memory
    /// cgroups that this process may change.
    pub(crate) fn new(name: &str, limit: u64) -> Option<Group> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let [first, unified] = ["memory:", ":"].map(|controller| {
            own.lines()
                .find_map(|line| line.split_once(':')?.1.strip_prefix(controller))
                .map(|path| path.trim_matches('/'))
        });
        // Version 1 has a hierarchy for this controller, version 2 has one for all controllers.
        let places = [
            (first.map(|path| Path::new("/sys/fs/cgroup/memory").join(path)), "memory.limit_in_bytes"),
            (unified.map(|path| Path::new("/sys/fs/cgroup").join(path)), "memory.max"),
        ];
        places.into_iter().find_map(|(parent, file)| {
            let group = Group(parent?.join(format!("campaign-{}-{name}", std::process::id())));
            fs::create_dir(&group.0).ok()?;
            // Dropping the group removes it.
            fs::write(group.0.join(file), limit.to_string()).ok().map(|()| group)
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A killed process leaves its group only after some time.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                break;
            }
            sleep(Duration::from_millis(10));
        }
    }
}

/// Moves this process into a [`Group`].
pub(crate) fn join_group(path: &Path) -> Outcome {
    Ok(fs::write(path.join("cgroup.procs"), std::process::id().to_string())?)
}

/// Limits address space, in bytes, and descriptors of this process and of its future children.
pub(crate) fn limit_self(address_space: u64, descriptors: u64) -> Outcome {
    setrlimit(Resource::RLIMIT_AS, address_space, address_space)?;
    setrlimit(Resource::RLIMIT_NOFILE, descriptors, descriptors)?;
    setrlimit(Resource::RLIMIT_FSIZE, 2 << 30, 2 << 30)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    Ok(())
}
