//! Memory for the metrics, instances and samples of all sources together: a limit for each source, and one for all.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::resource::{Resource, getrlimit};
use pmda::limits;

/// Bytes that a source gets although others have used up the rest.
const FLOOR: usize = 256 << 10;
/// Part of the memory of all sources that one may use, and part that is kept free for the [`FLOOR`] of each source.
const PART: usize = 4;
/// Largest default limit, in bytes.
const MOST: usize = 1 << 30;
/// Part of the memory that the process may use, or that the machine has, for the sources by default.
const OF_MACHINE: usize = 4;

/// The memory of all sources.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Memory for the first [`FLOOR`] bytes of each source.
    floors: Pool,
    /// Memory for what sources use beyond that.
    rest: Pool,
    /// Largest number of bytes of a source.
    each: usize,
    left_out: Mutex<limits::Budget>,
}

/// A number of bytes, and how many of them are used.
#[derive(Debug)]
struct Pool {
    most: usize,
    used: AtomicUsize,
}

impl Pool {
    fn new(most: usize) -> Pool {
        Pool { most, used: AtomicUsize::new(0) }
    }

    fn take(&self, bytes: usize) -> bool {
        let more = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.most);
        bytes == 0 || self.used.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Relaxed);
    }
}

impl Budget {
    pub(crate) fn new(most: usize) -> Arc<Budget> {
        let what =
            format!("metrics, instances and samples, at most {} MiB for all sources, a quarter for each", most >> 20);
        let floors = most / PART;
        Arc::new(Budget {
            floors: Pool::new(floors),
            rest: Pool::new(most - floors),
            each: most / PART,
            left_out: Mutex::new(limits::Budget::new(what)),
        })
    }

    /// Returns the default limit: a quarter of the memory that the process may use, at most 1 GiB.
    pub(crate) fn usual() -> usize {
        let limit = |of| getrlimit(of).ok().and_then(|(soft, _)| usize::try_from(soft).ok());
        let machine = nix::sys::sysinfo::sysinfo().ok().and_then(|info| usize::try_from(info.ram_total()).ok());
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let group = of_cgroups(&groups, Path::new("/sys/fs/cgroup"));
        let all = [limit(Resource::RLIMIT_AS), limit(Resource::RLIMIT_DATA), machine, group];
        all.into_iter().flatten().map(|bytes| bytes / OF_MACHINE).chain([MOST]).min().unwrap_or(MOST)
    }

    /// Returns how many metrics, instances and samples were left out.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out.lock().unwrap_or_else(PoisonError::into_inner).left_out()
    }
}

/// Returns the smallest limit of the memory cgroups of a process, in bytes. `groups` is its file `/proc/PID/cgroup`.
fn of_cgroups(groups: &str, root: &Path) -> Option<usize> {
    let limits = groups.lines().filter_map(|line| {
        let (kinds, path) = line.split_once(':')?.1.split_once(':')?;
        let (dir, files): (_, &[&str]) = match kinds {
            "" => (root.to_owned(), &["memory.max", "memory.high"]),
            _ if kinds.split(',').any(|kind| kind == "memory") => (root.join("memory"), &["memory.limit_in_bytes"]),
            _ => return None,
        };
        // The limits of the groups above hold, too. In a container, the path may be that of the host.
        let group = dir.join(path.trim_start_matches('/'));
        let groups = group.ancestors().take_while(|above| above.starts_with(&dir));
        let texts = groups.flat_map(|group| files.iter().map(|file| fs::read_to_string(group.join(file))));
        texts.filter_map(|text| text.ok()?.trim().parse().ok()).min()
    });
    limits.min()
}

/// Memory that one source uses. Dropping it gives the memory back.
#[derive(Debug, Default)]
pub(crate) struct Share {
    /// `None` for a source without a limit.
    of: Option<Arc<Budget>>,
    used: usize,
}

impl Share {
    pub(crate) fn new(budget: &Arc<Budget>) -> Share {
        Share { of: Some(Arc::clone(budget)), used: 0 }
    }

    /// Returns the number of bytes in use.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Uses more memory. Returns false if the source may not have it.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let used = self.used.saturating_add(bytes);
        if let Some(budget) = &self.of {
            let floor = used.min(FLOOR) - self.used.min(FLOOR);
            if used > budget.each || !budget.floors.take(floor) {
                return false;
            }
            if !budget.rest.take(bytes - floor) {
                budget.floors.give(floor);
                return false;
            }
        }
        self.used = used;
        true
    }

    /// Uses less memory.
    pub(crate) fn give(&mut self, bytes: usize) {
        let used = self.used.saturating_sub(bytes);
        if let Some(budget) = &self.of {
            let floor = self.used.min(FLOOR) - used.min(FLOOR);
            budget.floors.give(floor);
            budget.rest.give(self.used - used - floor);
        }
        self.used = used;
    }

    /// Counts and logs the metrics, instances and samples of a document that were left out.
    pub(crate) fn leave_out(&self, source: &str, n: u64) {
        if let Some(budget) = self.of.as_ref().filter(|_| n > 0) {
            let mut left_out = budget.left_out.lock().unwrap_or_else(PoisonError::into_inner);
            left_out.leave_out(&format_args!("source {source}"), n);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give(self.used);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    #[test]
    fn limits_of_cgroups() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let limit = |groups: &str| of_cgroups(groups, dir.path());
        assert_eq!(limit("0::/a/b\n1:cpu:/\nnonsense\n"), None);
        write("a/b/memory.max", "max\n");
        assert_eq!(limit("0::/a/b\n"), None);
        write("a/memory.max", "3000\n");
        assert_eq!((limit("0::/a/b\n"), limit("0::/other\n"), limit("0::/\n")), (Some(3000), None, None));
        write("a/b/memory.high", "2000\n");
        assert_eq!(limit("0::/a/b\n"), Some(2000));
        // Inside a container, the group is at the root.
        write("memory/memory.limit_in_bytes", "1000\n");
        assert_eq!(limit("4:cpuset:/x\n3:cpu,memory:/docker/0123\n0::/a/b\n"), Some(1000));
    }

    fn take_all(share: &mut Share) -> usize {
        while share.take(KIB) {}
        share.used()
    }

    /// Sources that take all that they can leave a floor for each of many others.
    #[test]
    fn limits_of_each_source_and_of_all() {
        let budget = Budget::new(32 * FLOOR);
        let mut large: Vec<Share> = (0..3).map(|_| Share::new(&budget)).collect();
        assert!(large.iter_mut().all(|share| take_all(share) == 8 * FLOOR));
        let mut later: Vec<Share> = (0..2).map(|_| Share::new(&budget)).collect();
        // Of the memory that is not kept free, the first three have left three floors.
        assert_eq!(later.iter_mut().map(take_all).collect::<Vec<_>>(), [4 * FLOOR, FLOOR]);
        assert!(!large[0].take(1) && !later[1].take(1));
        let before = large[0].used();
        large[0].give(FLOOR / 2);
        assert!(later[1].take(FLOOR / 2) && !large[0].take(1) && large[0].used() == before - FLOOR / 2);
        drop((large, later));
        assert_eq!([&budget.floors, &budget.rest].map(|pool| pool.used.load(Relaxed)), [0, 0]);
    }
}
