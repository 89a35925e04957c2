//! Identity of processes: an application can run in several processes, each with a copy of the registry.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::str::FromStr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::fork;
use crate::format::process_exists;

/// A process that uses a registry. Its number alone does not distinguish it from its ancestors: they can be in other
/// PID namespaces, or have ended before this process got the same number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Process {
    number: u32,
    /// Inode of the PID namespace, or 0 if it is unknown.
    space: u64,
    /// Number of forks between the first process and this one.
    forks: u32,
}

impl Process {
    /// Returns this process.
    pub(super) fn own() -> Process {
        // Threads may race: all store the same values, and store the number of forks last.
        static SPACE: AtomicU64 = AtomicU64::new(0);
        static KNOWN: AtomicU32 = AtomicU32::new(u32::MAX);
        let forks = fork::count();
        if KNOWN.load(Acquire) != forks {
            // A child that cannot see its namespace, for example after chroot(2), counts as being in its parent's.
            if let Ok(space) = fs::metadata("/proc/self/ns/pid") {
                SPACE.store(space.ino(), Relaxed);
            }
            KNOWN.store(forks, Release);
        }
        Process { number: std::process::id(), space: SPACE.load(Relaxed), forks }
    }

    /// Returns the process identifier, as files contain it.
    pub(super) fn number(self) -> i32 {
        self.number as i32
    }

    /// Returns whether both processes have their numbers from the same PID namespace.
    pub(super) fn is_beside(self, other: Process) -> bool {
        self.space == other.space
    }

    /// Returns whether the process may still run, as far as `self` can see.
    pub(super) fn sees(self, other: Process) -> bool {
        !self.is_beside(other) || process_exists(other.number())
    }

    /// Returns the suffix for the name of a child's file. `first` is the process that created the registry.
    pub(super) fn ending(self, first: Process) -> String {
        if self.is_beside(first) { format!(".p{}", self.number) } else { format!(".p{}n{}", self.number, self.space) }
    }

    /// Returns whether the process in a name has certainly ended. The name has the format of [`fmt::Display`].
    pub(super) fn knows_gone(self, name: &str) -> bool {
        let Some((number, space)) = name.split_once('.') else { return false };
        digits(space) == Some(self.space) && digits::<u32>(number).is_some_and(|number| !process_exists(number as i32))
    }
}

/// Writes `number.space`, the format of temporary names.
impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.number, self.space)
    }
}

/// Parses a number of ASCII digits only.
pub(super) fn digits<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}
