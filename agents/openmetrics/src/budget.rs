//! Memory for the metrics, instances and samples of all sources together: a cap for each source, and one for all.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::resource::{Resource, getrlimit};
use pmda::limits::{Caps, Quota};

/// Bytes that a source gets although others have used up the rest.
const FLOOR: u64 = 256 << 10;
/// Part of the memory of all sources that one may use.
const PART: usize = 4;
/// Largest default limit, in bytes.
const MOST: usize = 1 << 30;
/// Part of the memory that the process may use, or that the machine has, for the sources by default.
const OF_MACHINE: usize = 4;

/// The memory of all sources, by their names.
#[derive(Debug)]
pub(crate) struct Budget(Mutex<Quota<Arc<str>>>);

impl Budget {
    pub(crate) fn new(most: usize) -> Arc<Budget> {
        let each = most / PART;
        let amounts = format!("at most {} MiB of a source and {} MiB in all", each >> 20, most >> 20);
        let caps = Caps { each: each as u64, all: most as u64, floor: FLOOR };
        Arc::new(Budget(Mutex::new(Quota::new(format!("metrics, instances and samples, {amounts}"), caps))))
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
        self.lock().refused()
    }

    fn lock(&self) -> MutexGuard<'_, Quota<Arc<str>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// The budget, and the source's name in it. `None` for a source without a limit.
    of: Option<(Arc<Budget>, Arc<str>)>,
    used: usize,
}

impl Share {
    pub(crate) fn new(budget: &Arc<Budget>, source: &str) -> Share {
        Share { of: Some((Arc::clone(budget), format!("source {source}").into())), used: 0 }
    }

    /// Returns the number of bytes in use.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Uses more memory. Returns false if the source may not have it.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        if let Some((budget, source)) = &self.of {
            let mut quota = budget.lock();
            // What is left out is counted for each document.
            if quota.check(source, bytes as u64).is_err() || quota.try_add(source, bytes as u64).is_err() {
                return false;
            }
        }
        self.used += bytes;
        true
    }

    /// Uses less memory.
    pub(crate) fn give(&mut self, bytes: usize) {
        let bytes = bytes.min(self.used);
        self.used -= bytes;
        if let Some((budget, source)) = &self.of {
            budget.lock().remove(source, bytes as u64);
        }
    }

    /// Counts and logs the metrics, instances and samples of a document that were left out.
    pub(crate) fn leave_out(&self, n: u64) {
        if let Some((budget, source)) = self.of.as_ref().filter(|_| n > 0) {
            budget.lock().refuse(source, n);
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

    const FLOOR: usize = super::FLOOR as usize;

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
        while share.take(1 << 10) {}
        share.used()
    }

    /// Sources that take all that they can leave a floor for each of many others.
    #[test]
    fn limits_of_each_source_and_of_all() {
        let budget = Budget::new(32 * FLOOR);
        let mut large: Vec<Share> = ["a", "b"].map(|name| Share::new(&budget, name)).into();
        assert!(large.iter_mut().all(|share| take_all(share) == 8 * FLOOR));
        let mut later: Vec<Share> = ["c", "d"].map(|name| Share::new(&budget, name)).into();
        // Of the half that is not kept free, the first two have left two floors.
        assert_eq!(later.iter_mut().map(take_all).collect::<Vec<_>>(), [3 * FLOOR, FLOOR]);
        assert!(!large[0].take(1) && !later[1].take(1));
        large[0].give(FLOOR / 2);
        assert!(later[1].take(FLOOR / 2) && !large[0].take(1));
        assert_eq!((large[0].used(), budget.left_out()), (8 * FLOOR - FLOOR / 2, 0));
        later[0].leave_out(3);
        assert_eq!(budget.left_out(), 3);
        drop((large, later));
        assert_eq!(budget.lock().used(), 0);
    }
}
