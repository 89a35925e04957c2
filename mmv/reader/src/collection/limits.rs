//! Limits on what the files of a directory may cost, in all and for each user.
//!
//! Any user who may write the directory makes the agent work. The cost of a file is charged to its owner, so files of
//! one user take nothing from others. Once a user has used up a quota, further files of this user are left out. When
//! all users together have used up a limit, a user who has less gets room from the user who has most.

use std::fmt;

use hashbrown::HashMap;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

/// Limits on what the files of a directory may cost. The default is enough for a user with 1000 files of 100 metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Files of one user, including skipped ones.
    pub user_files: u64,
    /// Memory for the files of one user, in bytes.
    pub user_memory: u64,
    /// Values in the files of one user. A text counts as 8 values, a label as 40, an instance as 1, and a first
    /// component of names as 4.
    pub user_values: u64,
    /// Nanoseconds of processor time per request for changes of one user's files. Changes that take longer delay
    /// further changes of this user until later requests.
    pub user_work: u64,
    /// Files in all, at most 4095: the number of clusters.
    pub files: u64,
    /// Memory in all, in bytes.
    pub memory: u64,
    /// Values in all, counted as for `user_values`.
    pub values: u64,
    /// Data of a file, without holes, in bytes.
    pub file_bytes: u64,
    /// Names in the directory that one request reads. Further names are left to the next requests.
    pub names: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            user_files: 1250,
            user_memory: 44 << 20,
            user_values: 120_000,
            user_work: 4_500_000,
            files: 4000,
            memory: 176 << 20,
            values: 480_000,
            file_bytes: 8 << 20,
            names: 6144,
        }
    }
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
    /// [`Limits::user_work`].
    Work,
}

impl Limit {
    /// All limits.
    pub const ALL: [Limit; 4] = [Limit::Files, Limit::Memory, Limit::Values, Limit::Work];
}

/// Names the limited resource, as in "too many files".
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Files => "files",
            Limit::Memory => "memory of files",
            Limit::Values => "values",
            Limit::Work => "changes of files",
        })
    }
}

/// Number of files that a limit has left out or, for [`Limit::Work`], delayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LeftOut {
    /// The user to whom the files are charged.
    pub uid: u32,
    /// The limit.
    pub limit: Limit,
    /// Number of files.
    pub count: u64,
}

/// Cost of a file: memory in bytes, and weighted values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cost {
    pub memory: u64,
    pub values: u64,
}

/// Resources in use.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    files: u64,
    cost: Cost,
}

impl Usage {
    fn with(self, files: u64, cost: Cost) -> Usage {
        let cost = Cost { memory: self.cost.memory + cost.memory, values: self.cost.values + cost.values };
        Usage { files: self.files + files, cost }
    }

    fn without(self, files: u64, cost: Cost) -> Usage {
        let Usage { files: own, cost: Cost { memory, values } } = self;
        let cost = Cost { memory: memory.saturating_sub(cost.memory), values: values.saturating_sub(cost.values) };
        Usage { files: own.saturating_sub(files), cost }
    }

    /// Returns the first of the limits that the usage exceeds.
    fn beyond(self, files: u64, memory: u64, values: u64) -> Option<Limit> {
        [
            (Limit::Files, self.files, files),
            (Limit::Memory, self.cost.memory, memory),
            (Limit::Values, self.cost.values, values),
        ]
        .into_iter()
        .find_map(|(limit, used, most)| (used > most).then_some(limit))
    }
}

/// Whether users are charged for the work of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tariff {
    /// At the start, and after an explicit reload, all files are read.
    Free,
    /// Work beyond a user's limit is delayed.
    Charged,
}

/// Accounts of all users.
pub(super) struct Accounts {
    pub limits: Limits,
    users: HashMap<u32, Usage>,
    all: Usage,
    /// Nanoseconds of work, by user, that exceed the time that requests have granted.
    work: HashMap<u32, i64>,
    /// Returns the user to charge for a user's files.
    payer: Box<dyn FnMut(u32) -> u32 + Send + Sync>,
    left_out: HashMap<(u32, Limit), u64>,
}

impl fmt::Debug for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accounts").field("users", &self.users).finish_non_exhaustive()
    }
}

impl Default for Accounts {
    fn default() -> Accounts {
        Accounts {
            limits: Limits::default(),
            users: HashMap::new(),
            all: Usage::default(),
            work: HashMap::new(),
            payer: Box::new(|uid| uid),
            left_out: HashMap::new(),
        }
    }
}

impl Accounts {
    /// Sets the function that returns the user to charge for a user's files.
    pub(super) fn charge(&mut self, payer: impl FnMut(u32) -> u32 + Send + Sync + 'static) {
        self.payer = Box::new(payer);
    }

    pub(super) fn payer(&mut self, uid: u32) -> u32 {
        (self.payer)(uid)
    }

    /// Resets all usage.
    pub(super) fn clear(&mut self) {
        self.users.clear();
        self.all = Usage::default();
    }

    /// Adds existing usage, without checking the limits.
    pub(super) fn add(&mut self, uid: u32, files: u64, cost: Cost) {
        let usage = self.users.entry(uid).or_default();
        *usage = usage.with(files, cost);
        self.all = self.all.with(files, cost);
    }

    /// Removes usage of a user.
    pub(super) fn remove(&mut self, uid: u32, files: u64, cost: Cost) {
        let usage = self.users.entry(uid).or_default();
        *usage = usage.without(files, cost);
        self.all = self.all.without(files, cost);
    }

    /// Returns the part of the limits for all users, in millionths: the largest of the parts of files, memory and values.
    fn share_of(&self, usage: Usage) -> u64 {
        let Limits { files, memory, values, .. } = self.limits;
        let part = |used: u64, limit: u64| used.saturating_mul(1_000_000) / limit.max(1);
        part(usage.files, files).max(part(usage.cost.memory, memory)).max(part(usage.cost.values, values))
    }

    /// Returns the user with the largest share, if that is larger than the share that another user would have with
    /// additional usage, and that user may have it.
    pub(super) fn larger(&self, uid: u32, files: u64, cost: Cost) -> Option<u32> {
        let wanted = self.users.get(&uid).copied().unwrap_or_default().with(files, cost);
        let Limits { user_files, user_memory, user_values, .. } = self.limits;
        if wanted.beyond(user_files, user_memory, user_values).is_some() {
            return None;
        }
        let largest = self.users.iter().map(|(uid, usage)| (self.share_of(*usage), *uid)).max()?;
        (largest.0 > self.share_of(wanted)).then_some(largest.1)
    }

    /// Returns whether a skipped file of a user could be shown now.
    pub(super) fn has_room_for(&self, uid: u32, cost: Cost) -> bool {
        self.check(uid, 0, cost).is_ok()
    }

    /// Checks whether a user may have further files.
    ///
    /// # Errors
    /// The limit that would be exceeded.
    pub(super) fn check(&self, uid: u32, files: u64, cost: Cost) -> Result<(), Limit> {
        let Limits { user_files, user_memory, user_values, files: most, memory, values, .. } = self.limits;
        let used = self.users.get(&uid).copied().unwrap_or_default().with(files, cost);
        let beyond = used.beyond(user_files, user_memory, user_values);
        let beyond = beyond.or_else(|| self.all.with(files, cost).beyond(most.min(CLUSTERS), memory, values));
        beyond.map_or(Ok(()), Err)
    }

    /// Returns whether a user may have `more` files, as far as other users leave room.
    pub(super) fn has_room(&self, uid: u32, more: u64) -> bool {
        let used = self.users.get(&uid).map_or(0, |usage| usage.files);
        used + more <= self.limits.user_files
    }

    /// Grants each user the time of one request.
    pub(super) fn begin(&mut self) {
        if !self.work.is_empty() {
            let given = i64::try_from(self.limits.user_work).unwrap_or(i64::MAX);
            self.work.values_mut().for_each(|work| *work = work.saturating_sub(given));
            self.work.retain(|_, work| *work > 0);
        }
    }

    /// Returns whether a user has time left in this request.
    pub(super) fn has_time(&self, uid: u32) -> bool {
        self.work.get(&uid).is_none_or(|work| *work < i64::try_from(self.limits.user_work).unwrap_or(i64::MAX))
    }

    /// Charges a user for nanoseconds of work.
    pub(super) fn work(&mut self, uid: u32, nanoseconds: u64) {
        let work = self.work.entry(uid).or_default();
        *work = work.saturating_add_unsigned(nanoseconds);
    }

    /// Counts files that were left out.
    pub(super) fn leave_out(&mut self, uid: u32, limit: Limit, count: u64) {
        if count > 0 {
            *self.left_out.entry((uid, limit)).or_default() += count;
        }
    }

    pub(super) fn take_left_out(&mut self) -> Vec<LeftOut> {
        let mut all: Vec<LeftOut> =
            self.left_out.drain().map(|((uid, limit), count)| LeftOut { uid, limit, count }).collect();
        all.sort_unstable_by_key(|left_out| (left_out.uid, left_out.limit));
        all
    }

    /// Returns how many files of each user may stay open if `all` may in total. Users get equal shares; what one does
    /// not need goes to others.
    pub(super) fn handles(&self, mut all: u64) -> HashMap<u32, u64> {
        let mut users: Vec<(u64, u32)> = self.users.iter().map(|(uid, usage)| (usage.files, *uid)).collect();
        users.sort_unstable();
        let mut left = users.len() as u64;
        users
            .into_iter()
            .map(|(files, uid)| {
                let share = files.min(all / left);
                all -= share;
                left -= 1;
                (uid, share)
            })
            .collect()
    }
}

/// Returns the processor time of this thread, in nanoseconds. Other processes do not affect it.
pub(super) fn thread_time() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap_or(TimeSpec::new(0, 0));
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec()), u64::try_from(time.tv_nsec()));
    seconds.unwrap_or_default() * 1_000_000_000 + nanoseconds.unwrap_or_default()
}

/// Number of clusters.
const CLUSTERS: u64 = pmapi::Item::MAX_CLUSTER as u64;

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Limits = Limits {
        user_files: 10,
        user_memory: 1000,
        user_values: 100,
        user_work: 50,
        files: 20,
        memory: 2000,
        values: 200,
        file_bytes: 1 << 20,
        names: 100,
    };

    fn accounts() -> Accounts {
        Accounts { limits: SMALL, ..Accounts::default() }
    }

    /// Adds files as long as the limits or a larger user leave room, and returns how many the user has.
    fn take_all(accounts: &mut Accounts, uid: u32, cost: Cost) -> u64 {
        loop {
            match (accounts.check(uid, 1, cost), accounts.larger(uid, 1, cost)) {
                (Ok(()), _) => accounts.add(uid, 1, cost),
                (Err(_), Some(largest)) => accounts.remove(largest, 1, cost),
                (Err(_), None) => return accounts.users[&uid].files,
            }
        }
    }

    #[test]
    fn a_user_who_has_used_up_a_quota_takes_nothing_from_another() {
        let mut accounts = accounts();
        let cost = Cost { memory: 10, values: 1 };
        // Whoever comes later gets as much as the others.
        assert_eq!([1, 2].map(|uid| take_all(&mut accounts, uid, cost)), [10, 10]);
        assert_eq!(take_all(&mut accounts, 3, cost), 6);
        assert_eq!([1, 2].map(|uid| accounts.users[&uid].files), [7, 7]);
        assert_eq!([1, 2, 3, 4].map(|uid| take_all(&mut accounts, uid, cost)), [7, 7, 6, 5]);
        assert_eq!(accounts.larger(4, 1, cost), None, "another file would make it the largest user");
        assert_eq!(accounts.check(1, 5, cost), Err(Limit::Files));
        assert_eq!(accounts.check(9, 0, Cost { memory: 1001, values: 0 }), Err(Limit::Memory));
        assert_eq!(accounts.check(9, 0, Cost { memory: 0, values: 101 }), Err(Limit::Values));
        assert_eq!(accounts.larger(9, 0, Cost { memory: 0, values: 101 }), None);
        assert_eq!(accounts.check(9, 0, Cost { memory: 0, values: 20 }), Ok(()));
    }

    #[test]
    fn the_largest_part_of_any_limit_counts() {
        let share = |accounts: &Accounts, uid| accounts.share_of(accounts.users[&uid]);
        let mut accounts = accounts();
        accounts.add(1, 1, Cost { memory: 900, values: 1 });
        accounts.add(2, 9, Cost { memory: 100, values: 90 });
        assert_eq!([share(&accounts, 1), share(&accounts, 2)], [450_000, 450_000]);
        accounts.remove(2, 1, Cost { memory: 0, values: 2 });
        accounts.add(3, 10, Cost { memory: 0, values: 0 });
        assert_eq!([share(&accounts, 2), share(&accounts, 3)], [440_000, 500_000]);
        assert_eq!(accounts.larger(4, 1, Cost::default()), Some(3));
    }

    #[test]
    fn work_is_paid_for_by_later_requests() {
        let mut accounts = accounts();
        accounts.work(1, 120);
        assert_eq!((accounts.has_time(1), accounts.has_time(2)), (false, true));
        let requests = (1..).find(|_| {
            accounts.begin();
            accounts.has_time(1)
        });
        assert_eq!(requests, Some(2));
        accounts.begin();
        assert!(accounts.work.is_empty(), "nobody is remembered for nothing");
    }

    #[test]
    fn open_files_are_shared() {
        let mut accounts = accounts();
        for (uid, files) in [(1, 100), (2, 3), (3, 50)] {
            accounts.add(uid, files, Cost::default());
        }
        let handles = accounts.handles(63);
        assert_eq!([1, 2, 3].map(|uid| handles[&uid]), [30, 3, 30]);
        assert_eq!(accounts.handles(1000)[&1], 100);
    }
}
