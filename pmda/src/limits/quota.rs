//! Quotas: how much of a resource each account, and all accounts together, may use.

use std::borrow::{Borrow, Cow};
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

use super::Refusals;

/// Amounts of a [`Quota`], in any unit, such as bytes, values or files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Caps {
    /// Most that one account may use.
    pub each: u64,
    /// Most that all accounts together may use.
    pub all: u64,
    /// Amount that an account gets also when other accounts have used up the rest.
    pub floor: u64,
}

impl Caps {
    /// Returns how many accounts get their floor whatever other accounts use: as many floors as fit into half of `all`.
    pub const fn floors(self) -> u64 {
        match (self.all / 2).checked_div(self.floor) {
            Some(floors) => floors,
            None => 0,
        }
    }

    /// Returns how much all accounts together may use beyond their floors.
    const fn shared(self) -> u64 {
        self.all - self.floors() * self.floor
    }
}

/// Cap on what each account, such as a user or a host, and all accounts together may use of a resource.
///
/// An account within its [floor](Caps::floor) is served also when other accounts have used up the rest: half of the total
/// is kept for floors, so [`Caps::floors`] accounts always get theirs. Beyond their floors, accounts get what is left,
/// first come, first served, up to [`Caps::each`]. What is over is refused, the newest first; nothing that was admitted
/// is taken back.
///
/// Refusals are counted for a control metric (see [`LimitMetrics`](super::LimitMetrics)), and an account that is refused
/// is named in the log, once in ten minutes (see [`Refusals`]).
///
/// A quota needs memory for each account that uses something.
///
/// ```
/// use pmda::limits::{Caps, Quota};
///
/// let caps = Caps { each: 50, all: 100, floor: 5 };
/// let mut files = Quota::new("files, at most 50 of a user and 100 in all", caps);
/// for uid in [1001, 1002] {
///     while files.try_add(&uid, 1).is_ok() {}
/// }
/// assert!(files.try_add(&1003, 6).is_err()); // logged; the two users have used up what is shared
/// assert!(files.try_add(&1003, 5).is_ok()); // its floor, like that of 9 other users
/// files.remove(&1001, 50);
/// assert!(files.try_add(&1003, 45).is_ok());
/// assert_eq!((files.used(), files.refused()), (60, 3)); // `refused` is what a control metric exports
/// ```
#[derive(Debug)]
pub struct Quota<K: fmt::Display> {
    caps: Caps,
    used: u64,
    /// Part of `used` that is beyond the floors of accounts.
    beyond: u64,
    /// Accounts that use something.
    accounts: HashMap<K, u64>,
    refusals: Refusals<K>,
}

/// A [`Quota`] refuses an account what it asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The account would use more than this number, [`Caps::each`].
    #[error("one account may use {0} at most")]
    Each(u64),
    /// The account would use more than its floor of what all accounts may use, [`Caps::all`], and too little is left.
    #[error("all accounts may use {0} at most")]
    All(u64),
}

impl<K: Eq + Hash + Clone + fmt::Display> Quota<K> {
    /// Creates a quota of which nothing is used. Its log lines begin with `what`, which names the resource and its
    /// amounts, as in "connections, at most 64 of a host and 256 in all".
    pub fn new(what: impl Into<Cow<'static, str>>, caps: Caps) -> Self {
        Quota { caps, used: 0, beyond: 0, accounts: HashMap::new(), refusals: Refusals::new(what) }
    }

    /// Returns the amounts.
    pub fn caps(&self) -> Caps {
        self.caps
    }

    /// Returns how much all accounts use.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Returns how much an account uses.
    pub fn of<Q: Eq + Hash + ?Sized>(&self, account: &Q) -> u64
    where
        K: Borrow<Q>,
    {
        self.accounts.get(account).copied().unwrap_or(0)
    }

    /// Returns the accounts that use something, and how much, in no particular order.
    pub fn accounts(&self) -> impl Iterator<Item = (&K, u64)> {
        self.accounts.iter().map(|(account, used)| (account, *used))
    }

    /// Returns how often something was refused since the start.
    pub fn refused(&self) -> u64 {
        self.refusals.count()
    }

    /// Checks whether an account may use `cost` more, without counting a refusal.
    ///
    /// # Errors
    /// Which of the caps would be exceeded.
    pub fn check(&self, account: &K, cost: u64) -> Result<(), Refused> {
        self.check_exchange(account, 0, cost)
    }

    /// Returns how much more an account may use.
    pub fn room(&self, account: &K) -> u64 {
        let own = self.of(account);
        let floor = self.caps.floor.saturating_sub(own);
        let shared = self.caps.shared().saturating_sub(self.beyond);
        let each = self.caps.each.saturating_sub(own);
        each.min(self.caps.all.saturating_sub(self.used)).min(floor.saturating_add(shared))
    }

    /// Records that an account uses `cost` more, if it may. Otherwise counts the refusal.
    ///
    /// # Errors
    /// Which of the caps would be exceeded. Nothing is recorded then.
    pub fn try_add(&mut self, account: &K, cost: u64) -> Result<(), Refused> {
        self.try_exchange(account, 0, cost)
    }

    /// Records that an account uses `new` instead of `old`, if it may; it may always use less. Otherwise counts the
    /// refusal.
    ///
    /// # Errors
    /// Which of the caps would be exceeded. Nothing is recorded then, and the account still uses `old`.
    pub fn try_exchange(&mut self, account: &K, old: u64, new: u64) -> Result<(), Refused> {
        self.check_exchange(account, old, new).inspect_err(|_| self.refuse(account, 1))?;
        let own = self.of(account);
        self.set(account, own.saturating_sub(old).saturating_add(new));
        Ok(())
    }

    /// Records that an account uses more of several quotas, if all of them allow it: all or nothing. Otherwise counts the
    /// refusal in the first quota that refuses.
    ///
    /// ```
    /// # use pmda::limits::{Caps, Quota};
    /// let mut files = Quota::new("files", Caps { each: 10, all: 20, floor: 1 });
    /// let mut bytes = Quota::new("bytes of files", Caps { each: 1000, all: 2000, floor: 100 });
    /// assert!(Quota::try_add_all(&1001, &mut [(&mut files, 1), (&mut bytes, 1001)]).is_err());
    /// assert_eq!((files.used(), bytes.used(), bytes.refused()), (0, 0, 1));
    /// ```
    ///
    /// # Errors
    /// The index of the quota that refuses, and which of its caps would be exceeded. Nothing is recorded then.
    pub fn try_add_all(account: &K, quotas: &mut [(&mut Self, u64)]) -> Result<(), (usize, Refused)> {
        for (index, (quota, cost)) in quotas.iter_mut().enumerate() {
            if let Err(refused) = quota.check(account, *cost) {
                quota.refuse(account, 1);
                return Err((index, refused));
            }
        }
        for (quota, cost) in quotas {
            let own = quota.of(account);
            quota.set(account, own.saturating_add(*cost));
        }
        Ok(())
    }

    /// Counts `n` things that an account was refused after a [`check`](Self::check).
    pub fn refuse(&mut self, account: &K, n: u64) {
        self.refusals.add(account, n);
    }

    /// Records that an account uses `cost` less. An account cannot use less than nothing.
    pub fn remove(&mut self, account: &K, cost: u64) {
        let own = self.of(account);
        self.set(account, own.saturating_sub(cost));
    }

    /// Records that no account uses anything. Counts of refusals stay.
    pub fn clear(&mut self) {
        self.accounts.clear();
        (self.used, self.beyond) = (0, 0);
    }

    fn check_exchange(&self, account: &K, old: u64, new: u64) -> Result<(), Refused> {
        let own = self.of(account);
        let rest = own.saturating_sub(old);
        let wanted = rest.saturating_add(new);
        if wanted <= own {
            return Ok(());
        }
        if wanted > self.caps.each {
            return Err(Refused::Each(self.caps.each));
        }
        let used = (self.used - own).saturating_add(wanted);
        let beyond = (self.beyond - self.beyond_floor(own)).saturating_add(self.beyond_floor(wanted));
        let grows_beyond = self.beyond_floor(wanted) > self.beyond_floor(own);
        if used > self.caps.all || (grows_beyond && beyond > self.caps.shared()) {
            return Err(Refused::All(self.caps.all));
        }
        Ok(())
    }

    /// Returns the part of an account's use that is beyond its floor.
    fn beyond_floor(&self, used: u64) -> u64 {
        used.saturating_sub(self.caps.floor)
    }

    fn set(&mut self, account: &K, wanted: u64) {
        let own = self.of(account);
        self.used = self.used - own + wanted;
        self.beyond = self.beyond - self.beyond_floor(own) + self.beyond_floor(wanted);
        if wanted == 0 {
            self.accounts.remove(account);
        } else if let Some(own) = self.accounts.get_mut(account) {
            *own = wanted;
        } else {
            self.accounts.insert(account.clone(), wanted);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Uses up what an account may use, in steps of 1.
    fn take_all(quota: &mut Quota<u32>, account: u32) -> u64 {
        while quota.try_add(&account, 1).is_ok() {}
        quota.of(&account)
    }

    #[test]
    fn accounts_within_their_floor_are_served_beside_greedy_ones() {
        let caps = Caps { each: 400, all: 1000, floor: 50 };
        let mut quota = Quota::new("values", caps);
        // Beyond the floors, first come, first served; the accounts after the second have their floors alone.
        let greedy: Vec<u64> = (0..caps.floors() as u32).map(|account| take_all(&mut quota, account)).collect();
        assert_eq!(greedy, [400, 200, 50, 50, 50, 50, 50, 50, 50, 50]);
        assert_eq!((quota.used(), quota.check(&10, 1)), (1000, Err(Refused::All(1000))));
        assert_eq!((quota.check(&0, 1), quota.refused()), (Err(Refused::Each(400)), 10));
        quota.remove(&0, 400);
        assert_eq!(take_all(&mut quota, 1), 400);
    }

    #[test]
    fn amounts_at_the_edges() {
        let quota = |each, all, floor| Quota::<u32>::new("values", Caps { each, all, floor });
        // Without floor: first come, first served.
        let mut all = quota(10, 15, 0);
        assert_eq!((all.caps().floors(), take_all(&mut all, 1), take_all(&mut all, 2)), (0, 10, 5));
        // A total that holds no floor twice.
        let mut one = quota(10, 1, 1);
        assert_eq!((one.caps().floors(), take_all(&mut one, 1), take_all(&mut one, 2)), (0, 1, 0));
        let mut none = quota(0, 0, 0);
        assert_eq!((none.try_add(&1, 0), none.try_add(&1, 1)), (Ok(()), Err(Refused::Each(0))));
        let mut most = quota(u64::MAX, u64::MAX, u64::MAX / 4);
        assert_eq!(most.try_add(&1, u64::MAX), Err(Refused::All(u64::MAX)));
        assert_eq!(most.try_add(&1, u64::MAX / 4), Ok(()));
        assert_eq!(most.try_add(&1, u64::MAX), Err(Refused::All(u64::MAX)));
        most.remove(&1, u64::MAX);
        assert_eq!((most.used(), most.accounts().count()), (0, 0));
    }

    #[test]
    fn an_exchange_that_is_refused_changes_nothing() {
        let mut quota = Quota::new("bytes", Caps { each: 10, all: 100, floor: 2 });
        assert_eq!(quota.try_exchange(&1, 0, 8), Ok(()));
        assert_eq!(quota.try_exchange(&1, 4, 7), Err(Refused::Each(10)));
        assert_eq!((quota.of(&1), quota.try_exchange(&1, 4, 6), quota.of(&1)), (8, Ok(()), 10));
        assert_eq!((quota.try_exchange(&1, 10, 1), quota.used()), (Ok(()), 1));
    }

    #[test]
    fn several_quotas_admit_all_or_nothing() {
        let mut files = Quota::new("files", Caps { each: 2, all: 4, floor: 1 });
        let mut bytes = Quota::new("bytes", Caps { each: 100, all: 200, floor: 10 });
        let mut add = |cost| Quota::try_add_all(&7, &mut [(&mut files, 1), (&mut bytes, cost)]);
        assert_eq!([add(60), add(60), add(40)], [Ok(()), Err((1, Refused::Each(100))), Ok(())]);
        assert_eq!(add(0), Err((0, Refused::Each(2))));
        assert_eq!([(files.used(), files.refused()), (bytes.used(), bytes.refused())], [(2, 1), (100, 1)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// After any operations: no cap is exceeded, the sums are right, and each of the protected accounts has its floor.
        #[test]
        fn floors_hold_after_any_operations(
            each in 0_u64..60, all in 0_u64..100, floor in 0_u64..20,
            operations in prop::collection::vec((0_u32..12, 0_u64..30, 0_u64..30, 0_u8..4), 0..80),
        ) {
            let caps = Caps { each, all, floor };
            let mut quota = Quota::new("values", caps);
            for (account, old, new, kind) in operations {
                let (own, before) = (quota.of(&account), quota.used());
                let outcome = match kind {
                    0 | 1 => quota.try_add(&account, new),
                    2 => quota.try_exchange(&account, old, new),
                    _ => { quota.remove(&account, new); Ok(()) }
                };
                if outcome.is_err() {
                    prop_assert_eq!((quota.of(&account), quota.used()), (own, before));
                }
                let sum: u64 = quota.accounts().map(|(_, used)| used).sum();
                prop_assert!(quota.used() == sum && sum <= all && quota.accounts().all(|(_, used)| 0 < used && used <= each));
                // Accounts that use something are protected, and as many new ones as there are floors left.
                let known = quota.accounts().count() as u64;
                for account in 0..12 {
                    let wanted = floor.min(each);
                    let own = quota.of(&account);
                    let is_protected = known + u64::from(own == 0) <= caps.floors();
                    if is_protected && own < wanted {
                        prop_assert_eq!(quota.check(&account, wanted - own), Ok(()));
                    }
                    let room = quota.room(&account);
                    prop_assert!(quota.check(&account, room).is_ok() && quota.check(&account, room + 1).is_err());
                }
            }
        }
    }
}
