//! Time that one request may take for changed files of all users together.
//!
//! Each user has a limit of time ([`Limits::user_work`](super::Limits::user_work)), but there may be many users. Files
//! for which a request has no time left keep their last state, and the next requests continue with them. Users take
//! turns, so that a user with few changes does not wait for a user with many.

use hashbrown::{HashMap, HashSet};

use super::group::Group;
use super::limits::{Accounts, Tariff, thread_time};
use super::source::{GroupSize, Source, building_time};

/// Expected number of bytes of a file that are read and parsed in a nanosecond.
const BYTES: u64 = 2;

/// The time of one request.
#[derive(Debug)]
pub(super) struct Turn {
    tariff: Tariff,
    /// Processor time when the work began.
    start: u64,
    /// Longest time, in nanoseconds.
    limit: u64,
    large: u64,
    /// Expected time for building tables once all files have been read, in nanoseconds.
    promised: u64,
    /// Expected time for the tables of the files that this request has read, in nanoseconds.
    read: u64,
    /// Versions of the groups to whose tables [`Turn::promised`] applies.
    groups: HashSet<u64>,
    /// The largest group of each user, because a new file may become a part of this group.
    largest: HashMap<u32, GroupSize>,
    /// The user who leaves room for others in this request.
    pub yields: Option<u32>,
    has_begun: bool,
    is_over: bool,
}

impl Default for Turn {
    fn default() -> Turn {
        Turn {
            tariff: Tariff::Free,
            start: 0,
            limit: 0,
            large: u64::MAX,
            promised: 0,
            read: 0,
            groups: HashSet::new(),
            largest: HashMap::new(),
            yields: None,
            has_begun: false,
            is_over: false,
        }
    }
}

impl Turn {
    /// Begins the work of a request that may take `limit` nanoseconds. The tables of groups with more than `large` records
    /// are built in parts.
    pub(super) fn begin(tariff: Tariff, limit: u64, large: u64, groups: &[Group]) -> Turn {
        let mut turn = Turn { tariff, limit, large, ..Turn::default() };
        if tariff == Tariff::Charged {
            turn.start = thread_time();
            for source in groups.iter().filter_map(|group| group.sources.first()) {
                let largest = turn.largest.entry(source.uid).or_default();
                *largest = source.group.max(*largest);
            }
        }
        turn
    }

    /// Returns the largest group of a user.
    pub(super) fn largest_of(&self, uid: u32) -> GroupSize {
        self.largest.get(&uid).copied().unwrap_or_default()
    }

    /// Returns whether the tables of a user's files are built in parts.
    pub(super) fn is_large(&self, uid: u32) -> bool {
        self.tariff == Tariff::Charged && self.largest_of(uid).records > self.large
    }

    /// Records that a file, which makes room for another one, leaves its group.
    pub(super) fn changes(&mut self, source: &Source) {
        self.promise(source.rest());
    }

    /// Records that a file has been read, whose tables this request builds.
    pub(super) fn has_read(&mut self, source: &Source) {
        self.read += building_time(source.records);
    }

    /// Returns whether a file of `len` bytes may be read or dropped now, after which the tables of its group are built
    /// again. The first file is always allowed, so that each request makes progress.
    pub(super) fn allows(&mut self, accounts: &Accounts, uid: u32, group: GroupSize, len: u64) -> bool {
        let reading = len.min(accounts.limits.file_bytes) / BYTES;
        if self.tariff == Tariff::Free {
            return true;
        }
        if self.is_over || !accounts.has_time(uid) {
            return false;
        }
        let elapsed = thread_time().saturating_sub(self.start);
        self.is_over = self.has_begun && elapsed > self.limit;
        // Tables that have to be built anyway are built once for all changed files of their group.
        let is_joined = self.groups.contains(&group.version);
        let building = if is_joined || group.records > self.large { 0 } else { building_time(group.records) };
        let (before, limit) = if is_joined { (0, self.limit / 2) } else { (self.promised, self.limit) };
        let before = before + self.read;
        if self.has_begun && elapsed + before + building + reading > limit {
            return false;
        }
        self.has_begun |= building + reading > 0;
        self.promise(group);
        true
    }

    fn promise(&mut self, group: GroupSize) {
        if self.tariff == Tariff::Charged
            && (1..=self.large).contains(&group.records)
            && self.groups.insert(group.version)
        {
            self.promised += building_time(group.records);
        }
    }
}
