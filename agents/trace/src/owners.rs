//! Users with files of processes, and their shares of files, memory and time.

use std::collections::HashMap;
use std::time::Instant;

use pmda::limits::Accounts;

use crate::fair::LeftOut;
use crate::limits::{Account, Limits};
use crate::rounds::Rounds;

/// Users that have files. A subordinate user counts as its owner.
#[derive(Debug)]
pub(crate) struct Owners {
    limits: Limits,
    accounts: Accounts,
    owners: HashMap<Account, Owner>,
    /// Use by all users together.
    used: Used,
    pub(crate) left_out: Files,
}

/// Numbers of files, and of contents of files, that were left out.
#[derive(Debug)]
pub(crate) struct Files {
    /// Files beyond the limits.
    pub(crate) files: LeftOut,
    /// Files that are not valid, or name a process of another user.
    pub(crate) bad: u64,
    /// Tags, and sums of tags, beyond the limits of memory.
    pub(crate) memory: LeftOut,
}

#[derive(Clone, Copy, Debug, Default)]
struct Used {
    files: usize,
    memory: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Owner {
    used: Used,
    /// Files beyond the limits in the current listing of the directory, and in the previous one.
    refused: u64,
    refused_before: u64,
    pub(crate) sums: Rounds,
    pub(crate) records: Rounds,
}

impl Owners {
    pub(crate) fn new(limits: &Limits) -> Owners {
        let left_out = Files {
            files: LeftOut::new(format_args!("files of processes, at most {} of a user", limits.files_each)),
            bad: 0,
            memory: LeftOut::new(format_args!("memory for files, at most {} bytes of a user", limits.memory_each)),
        };
        let (accounts, owners) = (Accounts::new(), HashMap::new());
        Owners { limits: limits.clone(), accounts, owners, used: Used::default(), left_out }
    }

    pub(crate) fn account(&mut self, uid: u32) -> Account {
        Account::User(self.accounts.charged(uid))
    }

    /// Begins a pass over the files of all users.
    pub(crate) fn begin(&mut self, now: Instant) {
        for owner in self.owners.values_mut() {
            owner.sums.begin(now);
            owner.records.begin(now);
        }
    }

    pub(crate) fn owner(&mut self, account: Account) -> &mut Owner {
        self.owners.entry(account).or_default()
    }

    /// Counts another file of a user, if there is room. Each user may have at most as many files as are still free.
    pub(crate) fn add_file(&mut self, account: Account, is_listed: bool) -> bool {
        let Owners { limits, owners, used, .. } = self;
        let owner = owners.entry(account).or_default();
        let most = limits.files_each.min(limits.files.saturating_sub(used.files));
        if owner.used.files < most {
            owner.used.files += 1;
            used.files += 1;
            return true;
        }
        owner.refused += u64::from(is_listed);
        false
    }

    pub(crate) fn remove_file(&mut self, account: Account) {
        self.used.files -= 1;
        self.owner(account).used.files -= 1;
    }

    /// Ends a listing: reports files that were refused beyond those of the previous listing, and forgets users without
    /// files.
    pub(crate) fn end_listing(&mut self) {
        let refused = &mut self.left_out.files;
        self.owners.retain(|account, owner| {
            let more = owner.refused.saturating_sub(owner.refused_before);
            if more > 0 {
                refused.add(*account, more);
            }
            owner.refused_before = std::mem::take(&mut owner.refused);
            owner.used.files > 0 || owner.refused_before > 0
        });
        refused.flush();
    }

    /// Returns the number of bytes that a file may use, including the `used` ones.
    pub(crate) fn memory(&self, account: Account, used: usize) -> usize {
        let own = self.owners.get(&account).map_or(0, |owner| owner.used.memory);
        let all = self.limits.memory.saturating_sub(self.used.memory);
        let most = self.limits.memory_each.min(all).saturating_sub(own).saturating_add(used);
        most.min(self.limits.file_memory)
    }

    /// Charges an account for a file that uses `now` bytes instead of `before`.
    pub(crate) fn charge(&mut self, account: Account, before: usize, now: usize) {
        self.used.memory = (self.used.memory + now).saturating_sub(before);
        let own = &mut self.owner(account).used.memory;
        *own = (*own + now).saturating_sub(before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Account = Account::User(1_000_001);
    const TWO: Account = Account::User(1_000_002);

    #[test]
    fn a_user_with_many_files_leaves_room_for_others() {
        let limits = Limits { files: 100, files_each: 80, ..Limits::default() };
        let mut owners = Owners::new(&limits);
        for (account, room) in [(ONE, 50), (TWO, 25)] {
            for n in 0..1000 {
                assert_eq!(owners.add_file(account, true), n < room, "{n}");
            }
        }
        owners.end_listing();
        assert_eq!(owners.left_out.files.count(), 950 + 975);
        // Files that are refused again are not counted again.
        (0..950).for_each(|_| assert!(!owners.add_file(ONE, true)));
        owners.end_listing();
        assert_eq!(owners.left_out.files.count(), 950 + 975);
        (0..50).for_each(|_| owners.remove_file(ONE));
        owners.end_listing();
        owners.end_listing();
        assert_eq!((owners.owners.len(), owners.used.files), (1, 25));
    }

    #[test]
    fn subordinate_users_have_the_share_of_their_owner() {
        let dir = tempfile::tempdir().unwrap();
        let [subuid, passwd] = ["subuid", "passwd"].map(|name| dir.path().join(name));
        std::fs::write(&subuid, "user:100000:65536\n").unwrap();
        std::fs::write(&passwd, "user:x:1000:1000::/:/bin/sh\n").unwrap();
        let limits = Limits { files: 100, files_each: 10, ..Limits::default() };
        let mut owners = Owners { accounts: Accounts::of_files(subuid, passwd), ..Owners::new(&limits) };
        let mut added = |uid| {
            let account = owners.account(uid);
            owners.add_file(account, true)
        };
        for n in 0..1000 {
            assert_eq!(added(100_000 + n), n < 10, "{n}");
        }
        assert!(!added(1000) && added(1001));
    }

    #[test]
    fn memory_is_shared_and_given_back() {
        let limits = Limits { memory: 1000, memory_each: 600, file_memory: 400, ..Limits::default() };
        let mut owners = Owners::new(&limits);
        assert_eq!(owners.memory(ONE, 0), 400);
        owners.charge(ONE, 0, 400);
        assert_eq!((owners.memory(ONE, 400), owners.memory(ONE, 0), owners.memory(TWO, 0)), (400, 200, 400));
        owners.charge(ONE, 0, 200);
        assert_eq!((owners.memory(ONE, 0), owners.memory(TWO, 0)), (0, 400));
        owners.charge(ONE, 400, 0);
        assert_eq!((owners.memory(ONE, 0), owners.used.memory), (400, 200));
    }
}
