//! Budgets that accounts share fairly.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;

use pmda::limits::Budget;

use crate::limits::Account;

/// Budget that accounts share fairly.
///
/// Each account may use all that is free. When nothing is free, an account gets a part from the account that uses most,
/// if it uses less itself. So an account cannot use up the share of others.
#[derive(Debug)]
pub(crate) struct Fair {
    limit: usize,
    each: usize,
    used: usize,
    accounts: HashMap<Account, usize>,
    /// The account that uses most, and how much. `None` while unknown.
    largest: Cell<Option<(Account, usize)>>,
}

/// Whether an account can use more of a budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// The amount is free.
    Free,
    /// The amount becomes free when this account gives back this much.
    From(Account, usize),
    /// The account has used up its share.
    None,
}

impl Fair {
    /// Creates a budget with limits for all accounts together and for each.
    pub(crate) fn new(limit: usize, each: usize) -> Fair {
        Fair { limit, each, used: 0, accounts: HashMap::new(), largest: Cell::new(None) }
    }

    pub(crate) fn of(&self, account: Account) -> usize {
        self.accounts.get(&account).copied().unwrap_or(0)
    }

    /// The number of accounts that use something.
    #[cfg(test)]
    pub(crate) fn accounts(&self) -> usize {
        self.accounts.len()
    }

    /// Returns whether the limit of each account allows `account` to use `more`.
    pub(crate) fn has_own_room(&self, account: Account, more: usize) -> bool {
        self.of(account).saturating_add(more) <= self.each
    }

    /// Returns whether an account can use `more` of the budget.
    pub(crate) fn room(&self, account: Account, more: usize) -> Room {
        let own = self.of(account).saturating_add(more);
        if own > self.each || more > self.limit {
            return Room::None;
        }
        if self.used.saturating_add(more) <= self.limit {
            return Room::Free;
        }
        match self.largest() {
            // Takes at least a quarter of the difference at a time, because finding the account that uses most is
            // costly.
            Some((largest, most)) if most > own => Room::From(largest, more.max((most - own) / 4)),
            _ => Room::None,
        }
    }

    /// Returns whether an account can use `more` of the budget, and would then use at most as much as is left.
    pub(crate) fn leaves_room(&self, account: Account, more: usize) -> bool {
        let (own, used) = (self.of(account).saturating_add(more), self.used.saturating_add(more));
        own <= self.each && used <= self.limit && own <= (self.limit - used).max(1)
    }

    fn largest(&self) -> Option<(Account, usize)> {
        if self.largest.get().is_none() {
            let largest = self.accounts.iter().max_by_key(|(_, own)| **own);
            self.largest.set(largest.map(|(account, own)| (*account, *own)));
        }
        self.largest.get()
    }

    pub(crate) fn add(&mut self, account: Account, more: usize) {
        let own = self.accounts.entry(account).or_default();
        *own += more;
        self.used += more;
        // If the largest is unknown, it stays unknown: other accounts may use more than this one.
        if self.largest.get().is_some_and(|(largest, most)| *own > most || largest == account) {
            self.largest.set(Some((account, *own)));
        }
    }

    pub(crate) fn remove(&mut self, account: Account, less: usize) {
        let Some(own) = self.accounts.get_mut(&account) else { return };
        let less = less.min(*own);
        *own -= less;
        self.used -= less;
        if *own == 0 {
            self.accounts.remove(&account);
        }
        if self.largest.get().is_some_and(|(largest, _)| largest == account) {
            self.largest.set(None);
        }
    }
}

/// Counts and logs what does not fit into a budget. Consecutive reports about one account are merged.
#[derive(Debug)]
pub(crate) struct LeftOut {
    budget: Budget,
    pending: Option<(Account, u64)>,
}

impl LeftOut {
    /// Creates a counter. Its log lines begin with `what`.
    pub(crate) fn new(what: impl fmt::Display) -> LeftOut {
        LeftOut { budget: Budget::new(what.to_string()), pending: None }
    }

    #[cold]
    pub(crate) fn add(&mut self, account: Account, more: u64) {
        match &mut self.pending {
            Some((last, count)) if *last == account => *count += more,
            _ => {
                self.flush();
                self.pending = Some((account, more));
            }
        }
    }

    /// Writes pending reports to the log.
    pub(crate) fn flush(&mut self) {
        if let Some((account, count)) = self.pending.take() {
            self.budget.leave_out(&account, count);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.budget.left_out() + self.pending.map_or(0, |(_, count)| count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses as much as an account can get. Other accounts give back the amounts that it needs.
    fn take_all(fair: &mut Fair, account: Account) -> usize {
        loop {
            match fair.room(account, 1) {
                Room::Free => fair.add(account, 1),
                Room::From(largest, count) => fair.remove(largest, count),
                Room::None => break fair.of(account),
            }
        }
    }

    #[test]
    fn those_who_come_later_have_as_much() {
        let mut fair = Fair::new(1200, 1000);
        let accounts = [1, 2, 3, 4].map(Account::User);
        assert_eq!(accounts.map(|account| take_all(&mut fair, account))[0], 1000);
        // Accounts that had to give back may use free amounts. In the end all use about the same.
        for account in accounts {
            take_all(&mut fair, account);
        }
        let own = accounts.map(|account| fair.of(account));
        assert!(own.iter().all(|own| (299..=301).contains(own)), "{own:?}");
        assert_eq!((fair.used, fair.accounts()), (own.iter().sum(), 4));
        fair.remove(accounts[0], 1000);
        assert_eq!((fair.of(accounts[0]), fair.accounts()), (0, 3));
    }

    #[test]
    fn an_account_leaves_room_where_nothing_is_given_back() {
        let mut fair = Fair::new(64, 64);
        let most = |fair: &mut Fair, account| {
            while fair.leaves_room(account, 1) {
                fair.add(account, 1);
            }
            fair.of(account)
        };
        let shares: Vec<usize> = (0..8).map(|user| most(&mut fair, Account::User(user))).collect();
        assert_eq!(shares, [32, 16, 8, 4, 2, 1, 1, 0]);
        // In a budget of one, an account can have one.
        assert!(Fair::new(1, 1).leaves_room(Account::User(1), 1) && !Fair::new(0, 0).leaves_room(Account::User(1), 1));
    }

    #[test]
    fn what_is_larger_than_the_budget_has_no_room() {
        let mut fair = Fair::new(10, 100);
        fair.add(Account::User(1), 10);
        assert_eq!(fair.room(Account::User(2), 11), Room::None);
        assert_eq!(fair.room(Account::User(2), 9), Room::From(Account::User(1), 9));
        assert_eq!(fair.room(Account::User(1), 1), Room::None);
    }
}
