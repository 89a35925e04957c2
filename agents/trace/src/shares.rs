//! Shares of accounts in connections, and in the agent's time.
//!
//! Clients are served in rounds. When an account has used up its time in a round, its other clients rest until the next
//! round, if there are other accounts. So no account delays others, however many clients it has, and however much they
//! send.

use std::collections::VecDeque;
use std::time::Duration;

use hashbrown::HashMap;

use crate::fair::{Fair, Room};
use crate::limits::{Account, Limits};

/// Time of an account in a round.
const TIME: Duration = Duration::from_millis(1);
/// Largest number of clients of an account whose rest ends at the same time.
const WAKES: usize = 64;

#[derive(Debug)]
pub(crate) struct Shares {
    connections: Fair,
    shares: HashMap<Account, Share>,
    /// Number of resting clients.
    resting: usize,
    /// Number of the round.
    round: u64,
}

#[derive(Debug, Default)]
struct Share {
    /// Time used in the round `round`, the last one in which the account was served.
    spent: Duration,
    round: u64,
    /// Indexes of resting clients. Some may have disconnected.
    resting: VecDeque<usize>,
}

impl Shares {
    pub(crate) fn new(limits: &Limits) -> Shares {
        let connections = Fair::new(limits.connections, limits.connections_each);
        Shares { connections, shares: HashMap::new(), resting: 0, round: 0 }
    }

    /// Returns whether an account may have another connection.
    pub(crate) fn room(&self, account: Account) -> Room {
        self.connections.room(account, 1)
    }

    pub(crate) fn connect(&mut self, account: Account) {
        self.connections.add(account, 1);
        self.shares.entry(account).or_default();
    }

    pub(crate) fn disconnect(&mut self, account: Account) {
        self.connections.remove(account, 1);
        if self.connections.of(account) == 0 {
            if let Some(share) = self.shares.remove(&account) {
                self.resting -= share.resting.len();
            }
        }
    }

    /// Returns whether an account has used up its time in this round, while there are other accounts.
    pub(crate) fn has_had_its_time(&self, account: Account) -> bool {
        self.shares.len() > 1
            && self.shares.get(&account).is_some_and(|share| share.round == self.round && share.spent > TIME)
    }

    pub(crate) fn spend(&mut self, account: Account, time: Duration) {
        if let Some(share) = self.shares.get_mut(&account) {
            let before = if share.round == self.round { share.spent } else { Duration::ZERO };
            (share.round, share.spent) = (self.round, before + time);
        }
    }

    /// Adds a client to those that rest until a later round.
    pub(crate) fn rest(&mut self, account: Account, place: usize) {
        if let Some(share) = self.shares.get_mut(&account) {
            share.resting.push_back(place);
            self.resting += 1;
        }
    }

    pub(crate) fn is_resting(&self) -> bool {
        self.resting > 0
    }

    /// Begins a round, and appends the clients whose rest ends to `wakes`.
    pub(crate) fn next_round(&mut self, wakes: &mut Vec<(Account, usize)>) {
        self.round += 1;
        if self.resting == 0 {
            return;
        }
        for (account, share) in &mut self.shares {
            let count = share.resting.len().min(WAKES);
            wakes.extend(share.resting.drain(..count).map(|place| (*account, place)));
            self.resting -= count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Account = Account::User(1);
    const TWO: Account = Account::User(2);

    #[test]
    fn who_has_had_its_time_rests_if_there_are_others() {
        let mut shares = Shares::new(&Limits::default());
        shares.connect(ONE);
        shares.spend(ONE, 2 * TIME);
        assert!(!shares.has_had_its_time(ONE));
        shares.connect(TWO);
        assert!(shares.has_had_its_time(ONE) && !shares.has_had_its_time(TWO));
        (0..WAKES + 1).for_each(|place| shares.rest(ONE, place));
        let mut wakes = Vec::new();
        shares.next_round(&mut wakes);
        assert_eq!((wakes.len(), wakes[0], shares.resting), (WAKES, (ONE, 0), 1));
        assert!(!shares.has_had_its_time(ONE));
        shares.disconnect(ONE);
        assert!(!shares.is_resting());
    }
}
