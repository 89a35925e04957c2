//! Refusals: what a limit has left out, counted, and logged once for each account.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::time::{Duration, Instant};

use tracing::warn;

/// Counter of what a limit has left out, in total and for each account.
///
/// A line is logged when an account exceeds the limit for the first time. Later lines come at most every ten minutes,
/// with the number left out in between. Accounts beyond 64 at a time share one line. When the counter is dropped, it logs
/// what it has not logged yet.
///
/// ```
/// use pmda::limits::Refusals;
///
/// let mut names = Refusals::new("names of transactions, at most 100 of a user");
/// for uid in [1000, 1000, 1001] {
///     names.add(&uid, 1); // a line for each of the two users
/// }
/// assert_eq!(names.count(), 3); // what a control metric exports
/// ```
#[derive(Debug)]
pub struct Refusals<K: fmt::Display> {
    what: Cow<'static, str>,
    count: u64,
    accounts: HashMap<K, Logged>,
    /// The common record of accounts without their own.
    others: Logged,
}

/// What the log says about an account.
#[derive(Debug, Default)]
struct Logged {
    /// Number left out since the last line.
    pending: u64,
    /// Time of the last line.
    at: Option<Instant>,
}

/// Largest number of accounts with lines of their own.
const ACCOUNTS: usize = 64;
/// Shortest time between two lines about an account.
const PERIOD: Duration = Duration::from_secs(600);
/// Name of the accounts that share a line.
const OTHERS: &str = "another account";

impl<K: Eq + Hash + Clone + fmt::Display> Refusals<K> {
    /// Creates a counter. Its log lines begin with `what`, which names the resource and its limits.
    pub fn new(what: impl Into<Cow<'static, str>>) -> Self {
        Refusals { what: what.into(), count: 0, accounts: HashMap::new(), others: Logged::default() }
    }

    /// Counts `n` things that an account was refused.
    pub fn add(&mut self, account: &K, n: u64) {
        self.add_at(Instant::now(), account, n);
    }

    /// Returns how many things were refused since the start.
    pub fn count(&self) -> u64 {
        self.count
    }

    fn add_at(&mut self, now: Instant, account: &K, n: u64) {
        self.count = self.count.saturating_add(n);
        if let Some(logged) = self.accounts.get_mut(account) {
            return logged.add(&self.what, account, now, n);
        }
        if self.accounts.len() == ACCOUNTS {
            self.forget(now);
        }
        if self.accounts.len() < ACCOUNTS {
            self.accounts.entry(account.clone()).or_default().add(&self.what, account, now, n);
        } else {
            self.others.add(&self.what, &OTHERS, now, n);
        }
    }

    /// Forgets accounts without a line for a period.
    fn forget(&mut self, now: Instant) {
        let what = &self.what;
        self.accounts.retain(|account, logged| {
            let is_due = logged.is_due(now);
            if is_due {
                logged.close(what, account);
            }
            !is_due
        });
    }
}

impl<K: fmt::Display> Drop for Refusals<K> {
    fn drop(&mut self) {
        self.accounts.iter().for_each(|(account, logged)| logged.close(&self.what, account));
        self.others.close(&self.what, &OTHERS);
    }
}

impl Logged {
    fn is_due(&self, now: Instant) -> bool {
        self.at.is_none_or(|at| now.duration_since(at) >= PERIOD)
    }

    fn add(&mut self, what: &str, who: &dyn fmt::Display, now: Instant, n: u64) {
        self.pending = self.pending.saturating_add(n);
        if self.is_due(now) {
            let more = if self.at.is_some() { " more" } else { "" };
            warn!(source = %who, "{what}: {who} is over its limit, {}{more} left out", self.pending);
            (self.pending, self.at) = (0, Some(now));
        }
    }

    /// Logs what was left out since the last line.
    fn close(&self, what: &str, who: &dyn fmt::Display) {
        if self.pending > 0 {
            warn!(source = %who, "{what}: {who} was over its limit, {} more left out", self.pending);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::testing::lines;

    #[test]
    fn an_account_over_its_limit_is_one_line_in_a_period() {
        let start = Instant::now();
        let mut text = lines(|| {
            let mut refusals = Refusals::new("tags, 2 of each user");
            for second in 0..100 {
                refusals.add_at(start + Duration::from_secs(second), &"uid 7", 2);
                refusals.add_at(start + Duration::from_secs(second), &"uid 8", 1);
            }
            refusals.add_at(start + PERIOD, &"uid 7", 1);
            assert_eq!(refusals.count(), 301);
        });
        text.sort();
        assert_eq!(
            text,
            [
                "tags, 2 of each user: uid 7 is over its limit, 199 more left out",
                "tags, 2 of each user: uid 7 is over its limit, 2 left out",
                "tags, 2 of each user: uid 8 is over its limit, 1 left out",
                "tags, 2 of each user: uid 8 was over its limit, 99 more left out",
            ]
        );
    }

    #[test]
    fn accounts_without_number_are_a_bounded_number_of_lines() {
        let start = Instant::now();
        let text = lines(|| {
            let mut refusals = Refusals::new("files");
            (0..1000).for_each(|n| refusals.add_at(start, &n, 1));
            assert_eq!((refusals.count(), refusals.accounts.len()), (1000, ACCOUNTS));
            // Accounts without a line for a period are forgotten.
            refusals.add_at(start + PERIOD, &1000, 1);
            assert!(refusals.accounts.len() == 1 && refusals.accounts.contains_key(&1000));
        });
        assert_eq!(text.len(), ACCOUNTS + 3, "{text:?}");
        assert_eq!(text[ACCOUNTS], "files: another account is over its limit, 1 left out");
        assert_eq!(text[ACCOUNTS + 1], "files: 1000 is over its limit, 1 left out");
        assert_eq!(text[ACCOUNTS + 2], "files: another account was over its limit, 935 more left out");
    }
}
