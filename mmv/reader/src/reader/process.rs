//! Processes that files depend on.

use std::fs;
use std::str;

use crate::format::process_exists;

/// A process that existed when it was first seen.
#[derive(Debug)]
pub(crate) struct Process {
    id: i32,
    /// Start time in clock ticks since boot. `None` before it is first read, 0 if it cannot be read.
    start: Option<u64>,
    /// Number of checks so far.
    looks: u32,
}

/// Number of checks between two reads of the start time. It shows whether another process has the identifier, but
/// reading it takes long.
const LOOKS: u32 = 64;

impl Process {
    /// Returns the process with this identifier, if it exists.
    pub(crate) fn find(id: i32) -> Option<Process> {
        process_exists(id).then_some(Process { id, start: None, looks: id as u32 })
    }

    /// Returns whether the process still exists. Another process with the same identifier does not count.
    pub(crate) fn lives(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        process_exists(self.id) && (self.looks % LOOKS != 0 || self.is_same(start(self.id)))
    }

    fn is_same(&mut self, now: Option<u64>) -> bool {
        let before = *self.start.get_or_insert(now.unwrap_or_default());
        now.is_none_or(|now| now == before || before == 0)
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
        let own = std::process::id() as i32;
        let mut process = Process::find(own).unwrap();
        assert!((0..3 * LOOKS).all(|_| process.lives()));
        assert!(process.start.is_some_and(|start| start > 0));
        // As if an earlier process had had the identifier.
        process.start = process.start.map(|start| start - 1);
        assert!(!(0..LOOKS).all(|_| process.lives()));
        process.start = Some(0);
        assert!((0..LOOKS).all(|_| process.lives()), "where starts are not to be seen the identifier counts");
    }
}
