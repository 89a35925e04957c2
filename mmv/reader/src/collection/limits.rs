//! Limits on what the files of a directory may cost, in all and for each user.
//!
//! Any user who may write the directory makes the agent work. The cost of a file is charged to its owner, so files of
//! one user take nothing from others. Once a user has used up a quota, further files of this user are left out. The
//! last quarter of each quota for all users is reserved for users who have less than an eighth of it.

use std::fmt;

use hashbrown::HashMap;

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
    /// Nanoseconds per request for changes of one user's files. Changes that take longer delay further changes of this
    /// user until later requests.
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
            user_values: 160_000,
            user_work: 6_000_000,
            files: 4000,
            memory: 176 << 20,
            values: 640_000,
            file_bytes: 8 << 20,
            names: 6144,
        }
    }
}

/// Kind of limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
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

    /// Adds usage of a user, if the limits allow it.
    ///
    /// # Errors
    /// The limit that would be exceeded; nothing is added then.
    pub(super) fn admit(&mut self, uid: u32, files: u64, cost: Cost) -> Result<(), Limit> {
        self.check(uid, files, cost)?;
        self.add(uid, files, cost);
        Ok(())
    }

    /// Returns whether a skipped file of a user could be shown now.
    pub(super) fn has_room_for(&self, uid: u32, cost: Cost) -> bool {
        self.check(uid, 0, cost).is_ok()
    }

    fn check(&self, uid: u32, files: u64, cost: Cost) -> Result<(), Limit> {
        let limits = &self.limits;
        let used = self.users.get(&uid).copied().unwrap_or_default().with(files, cost);
        if let Some(limit) = used.beyond(limits.user_files, limits.user_memory, limits.user_values) {
            return Err(limit);
        }
        let is_large = used.beyond(limits.files / 8, limits.memory / 8, limits.values / 8).is_some();
        let part = |most: u64| if is_large { most - most / 4 } else { most };
        let files_in_all = part(limits.files.min(CLUSTERS));
        if let Some(limit) = self.all.with(files, cost).beyond(files_in_all, part(limits.memory), part(limits.values)) {
            return Err(limit);
        }
        Ok(())
    }

    /// Returns whether a user may have `more` files.
    pub(super) fn has_room(&self, uid: u32, more: u64) -> bool {
        let used = self.users.get(&uid).map_or(0, |usage| usage.files);
        used + more <= self.limits.user_files && self.all.files + more <= self.limits.files
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

    /// Cancels all charges for work, at the start or after an explicit reload.
    pub(super) fn forgive(&mut self) {
        self.work.clear();
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

    #[test]
    fn a_user_who_has_used_up_a_quota_takes_nothing_from_another() {
        let mut accounts = accounts();
        let cost = Cost { memory: 10, values: 1 };
        let mut admitted = |uid| (0..100).filter(|_| accounts.admit(uid, 1, cost).is_ok()).count();
        // Users who have much leave a quarter of the total to others.
        assert_eq!([1, 2, 3, 4].map(&mut admitted), [10, 5, 2, 2]);
        assert_eq!(accounts.admit(1, 1, cost), Err(Limit::Files));
        assert_eq!(accounts.admit(9, 0, Cost { memory: 1001, values: 0 }), Err(Limit::Memory));
        assert_eq!(accounts.admit(9, 0, Cost { memory: 0, values: 101 }), Err(Limit::Values));
        assert_eq!(accounts.admit(9, 0, Cost { memory: 0, values: 20 }), Ok(()));
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
