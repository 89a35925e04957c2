//! Processes that files depend on.

use std::fs;
use std::str;

use crate::format::process_exists;

/// A process that existed when it was first seen.
#[derive(Debug)]
pub(crate) struct Process {
    id: i32,
    /// Start time in clock ticks since boot. `None` if it cannot be read.
    start: Option<u64>,
}

impl Process {
    /// Returns the process with this identifier, if it exists.
    pub(crate) fn find(id: i32) -> Option<Process> {
        process_exists(id).then(|| Process { id, start: start(id) })
    }

    /// Returns whether a process with this identifier exists.
    pub(crate) fn exists(&self) -> bool {
        process_exists(self.id)
    }

    /// Returns whether the process still exists. Another process with the same identifier does not count.
    pub(crate) fn lives(&self) -> bool {
        let is_same = |before: u64| start(self.id).is_none_or(|now| now == before);
        self.exists() && self.start.is_none_or(is_same)
    }
}

/// Returns the start time of a process, in clock ticks since boot. In a PID namespace below that of `/proc`, the
/// numbers in `/proc` belong to other processes.
fn start(id: i32) -> Option<u64> {
    let own = fs::read_link("/proc/self").ok()?;
    if own.to_str()?.parse() != Ok(std::process::id()) {
        return None;
    }
    // Reads the main thread's file: reading that of the process takes time in proportion to its threads.
    let stat = fs::read(format!("/proc/{id}/task/{id}/stat")).ok()?;
    // The name of the program may contain any character.
    let behind = stat.iter().rposition(|byte| *byte == b')')?;
    str::from_utf8(stat.get(behind + 1..)?).ok()?.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_with_the_same_identifier_is_not_the_same() {
        let mut process = Process::find(std::process::id() as i32).unwrap();
        assert!(process.lives() && process.start.is_some_and(|start| start > 0));
        // As if an earlier process had had the identifier.
        process.start = process.start.map(|start| start - 1);
        assert!(process.exists() && !process.lives());
        process.start = None;
        assert!(process.lives(), "where starts are not to be seen the identifier counts");
    }
}
