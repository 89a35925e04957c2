//! Memory for the metrics, instances and samples of all sources together.
//!
//! A source that needs no more than its equal part always gets it. A source that has more may grow while it leaves as
//! much free as it uses. If memory is short, the largest source gives some back: it forgets instances at its next
//! reading, which the agent begins at once. So a source that explodes never takes memory from sources that need less.
//! For the short time until the largest source has given memory back, all together may need up to twice the limit.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::resource::{Resource, getrlimit};
use pmda::limits;

/// Number of bytes that a source reserves at a time.
const STEP: usize = 64 << 10;
/// A source with no more than this number of bytes never gives memory back.
const SMALL: usize = 256 << 10;
/// Largest default limit, in bytes.
const MOST: usize = 1 << 30;
/// Part of the memory that the process may use, or that the machine has, for the sources by default.
const PART: usize = 4;

/// Limit of the memory of all sources, and how much of it each of them uses.
#[derive(Debug)]
pub(crate) struct Budget {
    most: usize,
    state: Mutex<State>,
    left_out: Mutex<limits::Budget>,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    /// Number of the next source.
    next: u32,
    accounts: HashMap<u32, Account>,
    /// Sources that are to give memory back, and of which the agent does not know that yet.
    pending: Vec<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    used: usize,
    /// Number of bytes that the source is to keep at most.
    target: Option<usize>,
    /// Whether the source's file has been removed.
    removed: bool,
}

impl Account {
    /// Returns the number of bytes after the source has given memory back.
    fn later(&self) -> usize {
        self.target.map_or(self.used, |target| target.min(self.used))
    }
}

/// Part of the budget that one source uses.
#[derive(Debug, Default)]
pub(crate) struct Share {
    of: Option<(Arc<Budget>, u32)>,
    used: usize,
    reserved: usize,
}

impl Budget {
    pub(crate) fn new(most: usize) -> Arc<Budget> {
        let what = format!("metrics, instances and samples, at most {} MiB for all sources", most >> 20);
        Arc::new(Budget { most, state: Mutex::default(), left_out: Mutex::new(limits::Budget::new(what)) })
    }

    /// Returns the default limit: a quarter of the memory that the process may use, at most 1 GiB.
    pub(crate) fn usual() -> usize {
        let limit = |of| getrlimit(of).ok().and_then(|(soft, _)| usize::try_from(soft).ok());
        let machine = nix::sys::sysinfo::sysinfo().ok().and_then(|info| usize::try_from(info.ram_total()).ok());
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let group = of_cgroups(&groups, Path::new("/sys/fs/cgroup"));
        let all = [limit(Resource::RLIMIT_AS), limit(Resource::RLIMIT_DATA), machine, group];
        all.into_iter().flatten().map(|bytes| bytes / PART).chain([MOST]).min().unwrap_or(MOST)
    }

    /// Returns how many metrics, instances and samples were left out.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out.lock().unwrap_or_else(PoisonError::into_inner).left_out()
    }

    /// Counts what was left out of a document.
    fn leave_out(&self, source: &str, n: u64) {
        let mut left_out = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        left_out.leave_out(&format_args!("source {source}"), n);
    }

    /// Returns the sources that are to give memory back since the last call.
    pub(crate) fn take_pending(&self) -> Vec<u32> {
        std::mem::take(&mut self.lock().pending)
    }

    /// Sets whether the source's file is removed. Such a source is the first that gives memory back.
    pub(crate) fn set_removed(&self, id: Option<u32>, removed: bool) {
        let mut state = self.lock();
        if let Some(account) = id.and_then(|id| state.accounts.get_mut(&id)) {
            account.removed = removed;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves memory for a source, if it may have that.
    fn reserve(&self, id: u32, more: usize) -> bool {
        let mut state = self.lock();
        let own = state.accounts.get(&id).map_or(0, |account| account.used).saturating_add(more);
        let used = state.used.saturating_add(more);
        let equal = self.most / state.accounts.len().max(1);
        let may = own <= equal || (used <= self.most && own <= self.most - used);
        if may {
            state.used = used;
            state.accounts.entry(id).or_default().used = own;
        }
        if !may || used > self.most {
            state.cut(own, used.saturating_sub(self.most), equal);
        }
        may
    }

    /// Sets the number of bytes that a source uses, after it has given memory back.
    fn set(&self, id: u32, now: usize) {
        let mut state = self.lock();
        let Some(account) = state.accounts.get_mut(&id) else { return };
        account.target = None;
        let before = std::mem::replace(&mut account.used, now);
        state.used = state.used.saturating_sub(before).saturating_add(now);
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

impl State {
    /// Lets the largest source give memory back to one that is to use `own` bytes, if that is less.
    fn cut(&mut self, own: usize, over: usize, equal: usize) {
        let order = |account: &Account| (account.removed && account.later() > SMALL, account.later());
        let largest = self.accounts.iter_mut().max_by_key(|(_, account)| order(account));
        let Some((id, account)) = largest else { return };
        let most = account.later();
        // A part of the difference at a time, because each cut costs a reading of the largest source.
        let target = if account.removed {
            SMALL
        } else {
            most.saturating_sub(over.max(most.saturating_sub(own) / 4)).max(equal).max(SMALL)
        };
        if target < most && (account.removed || own < most) {
            account.target = Some(target);
            if !self.pending.contains(id) {
                self.pending.push(*id);
            }
        }
    }
}

impl Share {
    pub(crate) fn new(budget: &Arc<Budget>) -> Share {
        let mut state = budget.lock();
        let id = state.next;
        state.next = id.wrapping_add(1);
        state.accounts.insert(id, Account::default());
        drop(state);
        Share { of: Some((Arc::clone(budget), id)), used: 0, reserved: 0 }
    }

    /// Returns the number of the source in [`Budget::take_pending`].
    pub(crate) fn id(&self) -> Option<u32> {
        self.of.as_ref().map(|(_, id)| *id)
    }

    /// Returns the number of bytes in use.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Uses more memory. Returns false if the source may not have it.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let used = self.used.saturating_add(bytes);
        if let Some((budget, id)) = self.of.as_ref().filter(|_| used > self.reserved) {
            let more = (used - self.reserved).max(STEP);
            if !budget.reserve(*id, more) {
                return false;
            }
            self.reserved += more;
        }
        self.used = used;
        true
    }

    /// Sets the number of bytes in use, which is less than before.
    pub(crate) fn set(&mut self, bytes: usize) {
        self.used = bytes;
        if let Some((budget, id)) = &self.of {
            self.reserved = bytes;
            budget.set(*id, bytes);
        }
    }

    /// Uses less memory. It stays reserved for the source.
    pub(crate) fn give(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
    }

    /// Returns the number of bytes that the source is to keep at most, if it is to give memory back.
    pub(crate) fn target(&self) -> Option<usize> {
        let (budget, id) = self.of.as_ref()?;
        budget.lock().accounts.get(id)?.target
    }

    /// Returns whether the source could use this much more, and need not give it back soon. Otherwise lets a larger
    /// source give memory back.
    pub(crate) fn has_plenty(&self, more: usize) -> bool {
        let Some((budget, _)) = &self.of else { return true };
        let (mut state, own) = (budget.lock(), self.used.saturating_add(more));
        let (free, equal) = (budget.most.saturating_sub(state.used), budget.most / state.accounts.len().max(1));
        let has_plenty = own <= equal || own.saturating_add(more) <= free.saturating_sub(more);
        if !has_plenty {
            state.cut(own, 0, equal);
        }
        has_plenty
    }

    /// Counts and logs the metrics, instances and samples of a document that were left out because memory is short.
    pub(crate) fn leave_out(&self, source: &str, n: u64) {
        if let Some((budget, _)) = self.of.as_ref().filter(|_| n > 0) {
            budget.leave_out(source, n);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let Some((budget, id)) = &self.of else { return };
        let mut state = budget.lock();
        if let Some(account) = state.accounts.remove(id) {
            state.used = state.used.saturating_sub(account.used);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn take_all(share: &mut Share) -> usize {
        while share.take(STEP) {}
        share.used()
    }

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

    #[test]
    fn a_source_that_is_alone_may_use_all() {
        let budget = Budget::new(8 * MIB);
        let mut share = Share::new(&budget);
        assert_eq!(take_all(&mut share), 8 * MIB);
        drop(share);
        assert_eq!(budget.lock().used, 0);
    }

    /// Lets sources give back what they are to give back, until none is to. Returns the sources that gave something.
    fn settle(shares: &mut [Share]) -> Vec<usize> {
        let mut gave = Vec::new();
        while let Some((at, target)) = shares.iter().enumerate().find_map(|(at, share)| Some((at, share.target()?))) {
            assert!(target < shares[at].used());
            shares[at].set(target);
            gave.push(at);
        }
        gave
    }

    #[test]
    fn an_equal_part_is_always_there_and_the_largest_gives_it_back() {
        let budget = Budget::new(16 * MIB);
        let mut large: Vec<Share> = (0..3).map(|_| Share::new(&budget)).collect();
        let used: Vec<usize> = large.iter_mut().map(take_all).collect();
        assert!(used[0] == 8 * MIB && used[1..].iter().all(|used| *used >= 16 * MIB / 3 - STEP), "{used:?}");
        assert_eq!(budget.take_pending(), [large[0].id().unwrap_or_default()]);
        assert!(settle(&mut large).iter().all(|at| *at == 0));
        assert!(budget.lock().used <= budget.most);
        // A source that comes later gets its equal part at once. The largest give it back.
        let mut honest = Share::new(&budget);
        assert!((0..4 * MIB / STEP).all(|_| honest.take(STEP)));
        assert!(budget.lock().used <= 2 * budget.most);
        assert!(!settle(&mut large).is_empty() && !budget.take_pending().is_empty());
        assert!(budget.lock().used <= budget.most);
        // Nothing is taken from it, however often the others want more.
        for _ in 0..10 {
            large.iter_mut().for_each(|share| _ = take_all(share));
            settle(&mut large);
            assert_eq!((honest.target(), honest.used()), (None, 4 * MIB));
        }
    }

    #[test]
    fn removed_sources_give_back_first() {
        let budget = Budget::new(16 * MIB);
        let (mut large, mut removed, mut other) = (Share::new(&budget), Share::new(&budget), Share::new(&budget));
        assert!(large.take(7 * MIB) && removed.take(4 * MIB));
        budget.set_removed(removed.id(), true);
        assert!(!other.take(6 * MIB));
        assert_eq!((large.target(), removed.target()), (None, Some(SMALL)));
        removed.set(SMALL);
        budget.set_removed(removed.id(), false);
        assert!(!removed.take(7 * MIB));
        assert_eq!((removed.target(), removed.used()), (None, SMALL));
    }
}
