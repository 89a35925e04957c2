//! Processes, and the clock that those of a host have in common.

use std::fs;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// A process, which is another one when its number is given again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it started, in the system's ticks.
    pub start: u64,
}

impl Process {
    /// The process with this number, if there is one that has not ended.
    pub fn find(pid: u32) -> Option<Process> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may be anything.
        let after_name = stat.iter().rposition(|byte| *byte == b')')?;
        let fields = str::from_utf8(stat.get(after_name + 2..)?).ok()?;
        let mut fields = fields.split_ascii_whitespace();
        let ended = matches!(fields.next()?, "Z" | "X");
        let start = fields.nth(18)?.parse().ok()?;
        (!ended).then_some(Process { pid, start })
    }

    /// Whether the process, which is there, is one of a user: really, effectively, or by its saved or file system's user.
    pub(crate) fn is_of(&self, uid: u32) -> bool {
        let status = fs::read(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let mut lines = status.split(|byte| *byte == b'\n');
        let uids = lines.find_map(|line| str::from_utf8(line.strip_prefix(b"Uid:")?).ok());
        uids.is_some_and(|uids| uids.split_ascii_whitespace().any(|word| word.parse() == Ok(uid)))
    }

    /// Whether it runs.
    pub fn is_alive(&self) -> bool {
        Process::find(self.pid).as_ref() == Some(self)
    }
}

/// Nanoseconds of CLOCK_MONOTONIC.
#[inline]
pub fn now() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |time| (time.tv_sec() as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec() as u64))
}

/// The time since then.
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
