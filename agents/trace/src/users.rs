//! Budgets of names that several accounts use: tags, and metrics of fields.
//!
//! A name is charged to one of its users, at first to the account that introduced it. The other users are remembered.
//! When the charged account must give the name back, or has not used it for long, another user is charged instead. The
//! name is removed only if no user has room for it. So an account that introduces names first cannot make others lose
//! them, and accounts that share names cannot use up the shares of others.

use crate::fair::{Fair, Room};
use crate::limits::Account;

/// Largest number of uses recorded for accounts that are not charged, for all names together.
const MOST_USES: usize = 1 << 17;

/// Largest number of rounds in which names are given back for one new name. The first round may only move charges to
/// other accounts, which then give back in the next one.
pub(crate) const ROUNDS: usize = 4;

/// Use of a name by an account.
#[derive(Clone, Copy, Debug)]
struct Use {
    account: Account,
    /// Time of the last use, in seconds since the agent's start.
    last: u32,
}

/// The accounts that use a name.
#[derive(Debug)]
pub(crate) struct Users {
    charged: Use,
    /// Users that are not charged, sorted by account.
    others: Vec<Use>,
}

impl Users {
    /// Creates the users of a new name: only the account that introduces and is charged for it.
    pub(crate) fn new(account: Account, now: u32) -> Users {
        Users { charged: Use { account, last: now }, others: Vec::new() }
    }

    /// Returns the account that is charged.
    pub(crate) fn charged(&self) -> Account {
        self.charged.account
    }

    /// Returns when the charged account last used the name, in seconds since the agent's start.
    pub(crate) fn last_use(&self) -> u32 {
        self.charged.last
    }

    /// Records a use by a known account. Returns false for an unknown account.
    #[inline]
    pub(crate) fn renew(&mut self, account: Account, now: u32) -> bool {
        if self.charged.account == account {
            self.charged.last = now;
            return true;
        }
        let Ok(at) = self.find(account) else { return false };
        self.others.get_mut(at).is_some_and(|other| {
            other.last = now;
            true
        })
    }

    fn find(&self, account: Account) -> Result<usize, usize> {
        self.others.binary_search_by_key(&account, |other| other.account)
    }
}

/// Budget of names, in any unit.
#[derive(Debug)]
pub(crate) struct NameBudget {
    charges: Fair,
    /// Number of remembered uses of accounts that are not charged.
    uses: Fair,
}

impl NameBudget {
    /// Creates a budget with limits for all accounts together and for each.
    pub(crate) fn new(limit: usize, each: usize) -> NameBudget {
        NameBudget { charges: Fair::new(limit, each), uses: Fair::new(MOST_USES, MOST_USES) }
    }

    /// Returns the charges of an account.
    pub(crate) fn of(&self, account: Account) -> usize {
        self.charges.of(account)
    }

    /// Returns the number of accounts that use a name or are charged for one.
    #[cfg(test)]
    pub(crate) fn accounts(&self) -> usize {
        self.charges.accounts() + self.uses.accounts()
    }

    /// Returns whether an account may introduce a name with this cost.
    pub(crate) fn room(&self, account: Account, cost: usize) -> Room {
        self.charges.room(account, cost)
    }

    pub(crate) fn add(&mut self, account: Account, cost: usize) {
        self.charges.add(account, cost);
    }

    pub(crate) fn remove(&mut self, users: &Users, cost: usize) {
        self.charges.remove(users.charged.account, cost);
        users.others.iter().for_each(|other| self.uses.remove(other.account, 1));
    }

    /// Returns whether another use by an account can be remembered.
    pub(crate) fn room_for_use(&self, account: Account) -> Room {
        self.uses.room(account, 1)
    }

    /// Records the first use of a name by an account that is not charged, if there is room.
    pub(crate) fn add_use(&mut self, users: &mut Users, account: Account, last: u32) {
        if let Err(at) = users.find(account) {
            if self.uses.room(account, 1) == Room::Free {
                users.others.insert(at, Use { account, last });
                self.uses.add(account, 1);
            }
        }
    }

    /// Forgets the `count` oldest uses of an account that is not charged for them.
    pub(crate) fn forget_uses<'a>(
        &mut self,
        account: Account,
        count: usize,
        names: impl Iterator<Item = &'a mut Users>,
    ) {
        let mut used: Vec<&mut Users> = names.filter(|users| users.find(account).is_ok()).collect();
        used.sort_by_key(|users| users.find(account).ok().and_then(|at| Some(users.others.get(at)?.last)));
        for users in used.into_iter().take(count) {
            if let Ok(at) = users.find(account) {
                users.others.remove(at);
                self.uses.remove(account, 1);
            }
        }
    }

    /// Forgets uses before the time `since`. If the charged account has not used the name since then, another user is
    /// charged. Returns false if there is no other user with room; then the name must be removed.
    pub(crate) fn forget_before(&mut self, since: u32, users: &mut Users, cost: usize) -> bool {
        self.forget_others(since, users);
        if users.charged.last >= since {
            return true;
        }
        let stays = self.charge_another(users, cost, usize::MAX);
        // Another user is charged for the name now.
        self.forget_others(since, users);
        stays
    }

    fn forget_others(&mut self, since: u32, users: &mut Users) {
        users.others.retain(|other| {
            let stays = other.last >= since;
            if !stays {
                self.uses.remove(other.account, 1);
            }
            stays
        });
    }

    /// Frees `wanted` of the budget of an account, first with names that have no other users, then with the oldest
    /// names. Charges another user of each name where possible. Returns the remaining names, which must be removed.
    pub(crate) fn give_back<'a, Id>(
        &mut self,
        account: Account,
        wanted: usize,
        names: impl Iterator<Item = (Id, usize, &'a mut Users)>,
    ) -> Vec<Id> {
        // If an account were charged with more, it would be the next to give back.
        let most = self.charges.of(account).saturating_sub(wanted);
        let mut names: Vec<_> = names.filter(|(_, _, users)| users.charged() == account).collect();
        names.sort_by_key(|(_, _, users)| (!users.others.is_empty(), users.charged.last));
        let (mut free, mut gone) = (0_usize, Vec::new());
        for (id, cost, users) in names {
            if free >= wanted {
                break;
            }
            if !self.charge_another(users, cost, most) {
                free += cost;
                gone.push(id);
            }
        }
        gone
    }

    /// Charges the cost to the other user with the lowest charges instead. Returns false, and changes nothing, if there
    /// is no other user, or if its charges would then exceed `most`.
    fn charge_another(&mut self, users: &mut Users, cost: usize, most: usize) -> bool {
        let Use { account: before, last } = users.charged;
        let charges = |other: &Use| self.charges.of(other.account);
        let Some(least) = users.others.iter().copied().min_by_key(charges) else { return false };
        if charges(&least).saturating_add(cost) > most || !self.charges.has_own_room(least.account, cost) {
            return false;
        }
        users.charged = least;
        users.others.retain(|other| other.account != least.account);
        self.uses.remove(least.account, 1);
        self.charges.remove(before, cost);
        self.charges.add(least.account, cost);
        self.add_use(users, before, last);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Account = Account::User(1);
    const TWO: Account = Account::User(2);

    #[test]
    fn the_oldest_uses_are_forgotten() {
        let mut budget = NameBudget { charges: Fair::new(10, 10), uses: Fair::new(3, 3) };
        let mut names: Vec<Users> = (0..4).map(|now| Users::new(ONE, now)).collect();
        names.iter_mut().zip([7, 5, 6, 8]).for_each(|(users, last)| budget.add_use(users, TWO, last));
        // The fourth use had no room.
        let used = |names: &mut [Users]| names.iter_mut().map(|users| users.find(TWO).is_ok()).collect::<Vec<_>>();
        assert_eq!(used(&mut names), [true, true, true, false]);
        let Room::From(TWO, 1) = budget.room_for_use(Account::User(3)) else { panic!() };
        budget.forget_uses(TWO, 1, names.iter_mut());
        assert_eq!(used(&mut names), [true, false, true, false]);
        assert_eq!(budget.room_for_use(Account::User(3)), Room::Free);
    }
}
