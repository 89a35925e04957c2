//! Limits on what the files of a directory may cost, in total and for each user.
//!
//! Any user who may write to the directory can make the agent work. A file is charged to its owner. What is over a limit
//! is left out, the newest first.

use std::fmt;

use pmda::limits::{Caps, Quota, Settable, Setter};

/// Limits on what the files of a directory may cost. The default is enough for a user with 1000 files of 100 metrics.
///
/// Half of each total is kept for users with few files: 62 users get 32 files, 1 MiB and 2000 values each, whatever other
/// users have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Files of one user, including skipped ones.
    pub user_files: u64,
    /// Memory for the files of one user, in bytes.
    pub user_memory: u64,
    /// Values in the files of one user. A text counts as 20 values, a label as 40, an instance as 1.
    pub user_values: u64,
    /// Total number of files, at most 4095: the number of clusters.
    pub files: u64,
    /// Total memory, in bytes.
    pub memory: u64,
    /// Total number of values, counted as for `user_values`.
    pub values: u64,
    /// Data of a file, without holes, in bytes.
    pub file_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            user_files: 1250,
            user_memory: 48 << 20,
            user_values: 120_000,
            files: 4000,
            memory: 144 << 20,
            values: 300_000,
            file_bytes: 8 << 20,
        }
    }
}

/// The limits by their names, as option `--limit` sets them. Memory is in MiB.
impl Settable for Limits {
    const NAMES: &'static [(&'static str, Setter<Limits>)] = &[
        ("user-files", |limits, n| limits.user_files = n),
        ("files", |limits, n| limits.files = n),
        ("user-memory", |limits, n| limits.user_memory = n << 20),
        ("memory", |limits, n| limits.memory = n << 20),
        ("file-memory", |limits, n| limits.file_bytes = n << 20),
        ("user-values", |limits, n| limits.user_values = n),
        ("values", |limits, n| limits.values = n),
    ];
}

/// Kind of limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Limit {
    /// [`Limits::user_files`] and [`Limits::files`].
    Files,
    /// [`Limits::user_memory`], [`Limits::memory`] and [`Limits::file_bytes`].
    Memory,
    /// [`Limits::user_values`] and [`Limits::values`].
    Values,
}

impl Limit {
    /// All limits.
    pub const ALL: [Limit; 3] = [Limit::Files, Limit::Memory, Limit::Values];
}

/// Names the limited resource, as in "too many files".
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Files => "files",
            Limit::Memory => "bytes",
            Limit::Values => "values",
        })
    }
}

/// User who is charged for files.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Uid(pub u32);

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "uid {}", self.0)
    }
}

/// Cost of a file: memory in bytes, and weighted values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cost {
    pub memory: u64,
    pub values: u64,
}

/// Number of files that a user may always have, however much other users have.
const FLOOR_FILES: u64 = 32;
const FLOOR_MEMORY: u64 = 1 << 20;
const FLOOR_VALUES: u64 = 2000;

/// Use of each limit, by user and in all.
#[derive(Debug)]
pub(super) struct Quotas {
    pub files: Quota<Uid>,
    pub memory: Quota<Uid>,
    pub values: Quota<Uid>,
    /// Files that stay open.
    pub open: Quota<Uid>,
}

impl Quotas {
    /// Creates the quotas for at most `open` files that stay open. Log lines begin with `prefix`.
    pub(super) fn new(prefix: &str, limits: &Limits, open: u64) -> Quotas {
        let caps = |each: u64, all: u64, floor: u64| Caps { each: each.min(all), all, floor: floor.min(each).min(all) };
        let Limits { user_files, user_memory, user_values, memory, values, .. } = *limits;
        let files = limits.files.min(pmapi::Item::MAX_CLUSTER.into());
        let mib = |bytes: u64| bytes >> 20;
        let (each, all) = (mib(user_memory), mib(memory));
        Quotas {
            files: Quota::new(
                format!("{prefix}: files, at most {user_files} per user and {files} in all"),
                caps(user_files, files, FLOOR_FILES),
            ),
            memory: Quota::new(
                format!("{prefix}: memory of files, at most {each} MiB per user and {all} MiB in all"),
                caps(user_memory, memory, FLOOR_MEMORY),
            ),
            values: Quota::new(
                format!("{prefix}: values of files, at most {user_values} per user and {values} in all"),
                caps(user_values, values, FLOOR_VALUES),
            ),
            open: Quota::new(format!("{prefix}: open files"), caps(open, open, open / 16)),
        }
    }

    /// Replaces the cost of a file.
    ///
    /// # Errors
    /// The first limit that would be exceeded. Nothing is changed then.
    pub(super) fn exchange(&mut self, uid: Uid, old: Cost, new: Cost) -> Result<(), Limit> {
        self.release(uid, old);
        let checked = self.check(uid, new);
        let cost = if checked.is_ok() { new } else { old };
        // Both are within the caps: `new` was checked, and `old` was there.
        let quotas = &mut [(&mut self.memory, cost.memory), (&mut self.values, cost.values)];
        Quota::try_add_all(&uid, quotas).map_err(|_| Limit::Memory)?;
        checked
    }

    /// Checks whether a user may have a file of this cost.
    ///
    /// # Errors
    /// The first limit that would be exceeded.
    pub(super) fn check(&self, uid: Uid, cost: Cost) -> Result<(), Limit> {
        self.memory.check(&uid, cost.memory).map_err(|_| Limit::Memory)?;
        self.values.check(&uid, cost.values).map_err(|_| Limit::Values)
    }

    pub(super) fn release(&mut self, uid: Uid, cost: Cost) {
        self.memory.remove(&uid, cost.memory);
        self.values.remove(&uid, cost.values);
    }

    /// Counts files that a limit has left out.
    pub(super) fn refuse(&mut self, uid: Uid, limit: Limit, files: u64) {
        if files > 0 {
            match limit {
                Limit::Files => self.files.refuse(&uid, files),
                Limit::Memory => self.memory.refuse(&uid, files),
                Limit::Values => self.values.refuse(&uid, files),
            }
        }
    }

    /// Returns the numbers of files that each limit has left out, in the order of [`Limit::ALL`].
    pub(super) fn refused(&self) -> [u64; 3] {
        [&self.files, &self.memory, &self.values].map(Quota::refused)
    }
}
