//! Processes of this host, and their common clock.

use std::fs;
use std::str;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Process, identified by its number and start time: the system may give the number to another process later.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Process {
    /// Process identifier.
    pub pid: u32,
    /// Start time, in clock ticks since boot: field 22 of `/proc/PID/stat`.
    pub start: u64,
}

impl Process {
    /// Returns the process with this number, or `None` if there is none, or it has ended (a zombie).
    pub fn find(pid: u32) -> Option<Process> {
        // Reads the main thread's file: reading that of the process takes time in proportion to its threads.
        Process::parse(&fs::read(format!("/proc/{pid}/task/{pid}/stat")).ok()?)
    }

    /// Returns this process, as other processes with the same `/proc` find it. In a PID namespace below that of
    /// `/proc`, the number differs from [`std::process::id`].
    pub(super) fn own() -> Option<Process> {
        Process::parse(&fs::read("/proc/self/stat").ok()?)
    }

    /// Parses `/proc/PID/stat`.
    fn parse(stat: &[u8]) -> Option<Process> {
        // The name is in parentheses, and may contain any characters, such as spaces and parentheses.
        let after_name = stat.iter().rposition(|byte| *byte == b')')?;
        let fields = str::from_utf8(stat.get(after_name + 2..)?).ok()?;
        let pid = str::from_utf8(stat.split(|byte| *byte == b' ').next()?).ok()?.parse().ok()?;
        let mut fields = fields.split_ascii_whitespace();
        let ended = matches!(fields.next()?, "Z" | "X");
        let start = fields.nth(18)?.parse().ok()?;
        (!ended).then_some(Process { pid, start })
    }

    /// Returns whether `uid` is the real, effective, saved or file-system user of the running process.
    pub(crate) fn is_of(&self, uid: u32) -> bool {
        let status = fs::read(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let mut lines = status.split(|byte| *byte == b'\n');
        let uids = lines.find_map(|line| str::from_utf8(line.strip_prefix(b"Uid:")?).ok());
        uids.is_some_and(|uids| uids.split_ascii_whitespace().any(|word| word.parse() == Ok(uid)))
    }

    /// Returns whether the process still runs.
    pub fn is_alive(&self) -> bool {
        Process::find(self.pid).as_ref() == Some(self)
    }
}

/// Returns the time of `CLOCK_MONOTONIC`, in nanoseconds.
#[inline]
pub fn now() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |time| (time.tv_sec() as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec() as u64))
}

/// Returns the time since `start`, in nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn since(start: u64) -> Duration {
    Duration::from_nanos(now().saturating_sub(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive() {
        let this = Process::find(std::process::id()).unwrap();
        assert!(this.is_alive() && this.start > 0);
        assert!(!Process { start: this.start + 1, ..this }.is_alive());
        assert_eq!(Process::find(0), None);
        assert!(this.is_of(nix::unistd::geteuid().as_raw()) && !this.is_of(4_000_000_000));
        let before = now();
        assert!(before > 0 && since(before) < Duration::from_secs(60));
    }
}
