//! The process that a file depends on.

use std::fs;

use super::process_exists;

/// A process that lived when it was looked at first.
#[derive(Debug)]
pub(crate) struct Process {
    id: i32,
    /// When it was started, in clock ticks since the host was: nothing before the first closer look, and 0 where that is
    /// not to be seen.
    start: Option<u64>,
    /// How often it was looked at.
    looks: u32,
}

/// Every so many looks it is made sure that the identifier is still that of the same process, which takes longer.
const LOOKS: u32 = 64;

impl Process {
    /// The process with this identifier.
    pub(crate) fn find(id: i32) -> Option<Process> {
        process_exists(id).then(|| Process { id, start: None, looks: id.cast_unsigned() })
    }

    /// Whether it still lives: a process that has got the identifier since does not count.
    pub(crate) fn lives(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        process_exists(self.id) && (!self.looks.is_multiple_of(LOOKS) || self.is_same(start(self.id)))
    }

    fn is_same(&mut self, now: Option<u64>) -> bool {
        let before = *self.start.get_or_insert(now.unwrap_or_default());
        now.is_none_or(|now| now == before || before == 0)
    }
}

/// The start of a process, in clock ticks since that of the host.
fn start(id: i32) -> Option<u64> {
    let stat = fs::read(format!("/proc/{id}/stat")).ok()?;
    // The name of the program may hold anything.
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
        // As if the identifier had been that of a process that was started before.
        process.start = process.start.map(|start| start - 1);
        assert!(!(0..LOOKS).all(|_| process.lives()));
        process.start = Some(0);
        assert!((0..LOOKS).all(|_| process.lives()), "where starts are not to be seen the identifier counts");
    }
}
