//! Which process this is: an application can run in several, of which each has a copy of the registry.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::str::FromStr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::fork;
use crate::format::process_exists;

/// A process that uses a registry. Its number alone does not tell it from its ancestors: they can be in other PID
/// namespaces, or have ended before this process got their number.
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
        // Threads may race: they store the same values, and the number of forks last.
        static SPACE: AtomicU64 = AtomicU64::new(0);
        static KNOWN: AtomicU32 = AtomicU32::new(u32::MAX);
        let forks = fork::count();
        if KNOWN.load(Acquire) != forks {
            // A child that cannot see its namespace, for example after chroot(2), is taken to be in its parent's.
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

    /// Returns the ending of the file of a child, in a registry of the process `first`.
    pub(super) fn ending(self, first: Process) -> String {
        if self.is_beside(first) { format!(".p{}", self.number) } else { format!(".p{}n{}", self.number, self.space) }
    }

    /// Returns whether the process with a [written](fmt::Display) name has certainly ended.
    pub(super) fn knows_gone(self, name: &str) -> bool {
        let parse = || {
            let (number, space) = name.split_once('.')?;
            Some((digits::<u32>(number)?, digits::<u64>(space)?))
        };
        parse().is_some_and(|(number, space)| space == self.space && !process_exists(number as i32))
    }
}

/// Writes `number.space`, as temporary names contain it.
impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.number, self.space)
    }
}

/// Parses a number of ASCII digits only.
pub(super) fn digits<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}
