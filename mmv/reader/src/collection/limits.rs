//! Limits on what the files of a directory may cost, in total and for each user.
//!
//! Any user who may write to the directory can make the agent work. The cost of a file is charged to its owner, so
//! files of one user take nothing from others. Once a user has used up a quota, further files of this user are left
//! out. When all users together have used up a limit, a user with a smaller share gets room from the user with the
//! largest one.

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
    /// Values in the files of one user. A text counts as 20 values, a label as 40, an instance as 1, the first component
    /// of a file's names as 4, and each further component as 16. Each 32 bytes of a name of a metric or instance,
    /// beyond the first 32, count as a value.
    pub user_values: u64,
    /// Nanoseconds of processor time per request for changes of one user's files. Changes that take longer delay
    /// further changes of this user until later requests.
    pub user_work: u64,
    /// Nanoseconds of processor time per request for changes of all files. Each request reads at least one changed
    /// file, and leaves files for which it has no time to the next requests. Users take turns. A request may spend the
    /// same time on names of the directory, and half of it on checks of known files. Some requests have
    /// [less](super::Collection::refresh_for_names).
    pub work: u64,
    /// Total number of files, at most 4095: the number of clusters.
    pub files: u64,
    /// Total memory, in bytes.
    pub memory: u64,
    /// Total number of values, counted as for `user_values`.
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
            user_memory: 48 << 20,
            user_values: 120_000,
            user_work: 4_500_000,
            work: 4_000_000,
            files: 4000,
            memory: 144 << 20,
            values: 300_000,
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
    /// [`Limits::user_work`] and [`Limits::work`].
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
    /// Limit that was exceeded.
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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

    /// Returns the part of a limit that is used.
    fn of(self, limit: Limit) -> u64 {
        match limit {
            Limit::Files => self.files,
            Limit::Memory => self.cost.memory,
            Limit::Values => self.cost.values,
            Limit::Work => 0,
        }
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

/// Cost of exported contents that stay in memory until the tables of the contents that replace them are complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Leaving {
    uid: u32,
    usage: Usage,
    /// Memory of the largest file among them.
    largest: u64,
}

/// Whether users are charged for the work of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tariff {
    /// No time limit: at the start, and after an explicit reload, all files are read.
    Free,
    /// Work beyond a user's limit is delayed.
    Charged,
}

/// Accounts of all users.
pub(super) struct Accounts {
    pub limits: Limits,
    users: HashMap<u32, Usage>,
    all: Usage,
    leaving: Leaving,
    /// Nanoseconds of work, by user, beyond the time that requests have granted.
    work: HashMap<u32, i64>,
    /// Number of the last request that has read a file of a user.
    served: HashMap<u32, u64>,
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
            leaving: Leaving::default(),
            work: HashMap::new(),
            served: HashMap::new(),
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
        self.leaving = Leaving::default();
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

    /// Returns the user who is to leave room for files of user `uid`, and the limit for all users that they would exceed.
    /// It is the user with the largest part of that limit; parts of other limits do not matter.
    ///
    /// Returns `None` if user `uid` would have the largest part itself, if its own limits do not allow the files, or if
    /// there would be no room after all users had left what they have beyond user `uid`. Then no user loses files in vain.
    pub(super) fn larger(&self, uid: u32, files: u64, cost: Cost) -> Option<(u32, Limit)> {
        let leaving = self.leaving_of(uid, u64::MAX);
        let future = |used: Usage| used.with(files, cost).without(leaving.files, leaving.cost);
        let wanted = future(self.users.get(&uid).copied().unwrap_or_default());
        let Limits { user_files, user_memory, user_values, memory, values, .. } = self.limits;
        if wanted.beyond(user_files, user_memory, user_values).is_some() {
            return None;
        }
        let all = future(self.all);
        let mut found = None;
        for (limit, most) in [(Limit::Files, self.most_files()), (Limit::Memory, memory), (Limit::Values, values)] {
            let excess = all.of(limit).saturating_sub(most);
            let others = self.users.iter().filter(|(other, _)| **other != uid);
            let parts = others.map(|(other, usage)| (usage.of(limit).saturating_sub(wanted.of(limit)), *other));
            if excess > 0 {
                if parts.clone().map(|(part, _)| part).sum::<u64>() < excess {
                    return None;
                }
                found = found.or_else(|| Some((parts.max()?.1, limit)));
            }
        }
        found
    }

    /// Returns whether a skipped file of a user could be shown now.
    pub(super) fn has_room_for(&self, uid: u32, cost: Cost) -> bool {
        self.check(uid, 0, cost).is_ok()
    }

    /// Records that a file's contents will be dropped once the user's new tables are complete. Returns the previous
    /// record, for [`Accounts::restore`].
    pub(super) fn leave(&mut self, uid: u32, files: u64, cost: Cost) -> Leaving {
        let before = self.leaving;
        let Leaving { usage, largest, .. } = Some(before).filter(|leaving| leaving.uid == uid).unwrap_or_default();
        self.leaving = Leaving { uid, usage: usage.with(files, cost), largest: largest.max(cost.memory) };
        before
    }

    /// Reverses [`Accounts::leave`].
    pub(super) fn restore(&mut self, before: Leaving) {
        self.leaving = before;
    }

    /// Checks whether a user may have further files.
    ///
    /// Old contents that new ones will replace are still in memory meanwhile. A user may have more than the limit by a
    /// quarter, or by one file.
    ///
    /// # Errors
    /// The limit that would be exceeded.
    pub(super) fn check(&self, uid: u32, files: u64, cost: Cost) -> Result<(), Limit> {
        self.check_with(uid, files, cost, self.leaving.largest.max(self.limits.user_memory / 4))
    }

    /// Returns whether a user may have further files once the contents that will be dropped no longer need memory.
    pub(super) fn will_have_room(&self, uid: u32, files: u64, cost: Cost) -> bool {
        self.check_with(uid, files, cost, u64::MAX).is_ok()
    }

    fn check_with(&self, uid: u32, files: u64, cost: Cost, most_leaving: u64) -> Result<(), Limit> {
        let Limits { user_files, user_memory, user_values, memory, values, .. } = self.limits;
        let leaving = self.leaving_of(uid, most_leaving);
        let future = |used: Usage| used.with(files, cost).without(leaving.files, leaving.cost);
        let used = future(self.users.get(&uid).copied().unwrap_or_default());
        let beyond = used.beyond(user_files, user_memory, user_values);
        let beyond = beyond.or_else(|| future(self.all).beyond(self.most_files(), memory, values));
        beyond.map_or(Ok(()), Err)
    }

    /// Returns what a user's contents that will be dropped cost, with at most `most` bytes of memory.
    fn leaving_of(&self, uid: u32, most: u64) -> Usage {
        let Leaving { usage: Usage { files, cost }, .. } =
            Some(self.leaving).filter(|leaving| leaving.uid == uid).unwrap_or_default();
        Usage { files, cost: Cost { memory: cost.memory.min(most), ..cost } }
    }

    /// Returns the largest total number of files.
    pub(super) fn most_files(&self) -> u64 {
        self.limits.files.min(CLUSTERS)
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

    /// Records that a request reads a file of a user.
    pub(super) fn serve(&mut self, uid: u32, request: u64) {
        self.served.insert(uid, request);
    }

    /// Returns the number of the last request that has read a file of a user, or 0.
    pub(super) fn served(&self, uid: u32) -> u64 {
        self.served.get(&uid).copied().unwrap_or_default()
    }

    /// Removes the records of users who have no files.
    pub(super) fn forget(&mut self) {
        let users = &self.users;
        self.served.retain(|uid, _| users.get(uid).is_some_and(|usage| usage.files > 0));
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

    /// Returns how many files of each user may stay open if `all` may in total. Users get equal shares; a share that a
    /// user does not need goes to others.
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

/// Returns the processor time of this thread, in nanoseconds. Other processes have no effect on it.
pub(super) fn thread_time() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap_or(TimeSpec::new(0, 0));
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec()), u64::try_from(time.tv_nsec()));
    seconds.unwrap_or_default() * 1_000_000_000 + nanoseconds.unwrap_or_default()
}

/// Number of clusters.
const CLUSTERS: u64 = pmapi::Item::MAX_CLUSTER as u64;

#[cfg(test)]
mod tests;
