//! Limits on the resources that other users can make an agent consume: counters of what a limit has left out, and the
//! users that are charged.
//!
//! The agent defines its limits. A [`Quota`] is a cap on what each account, such as a user, and all accounts together may
//! use of a resource; it refuses what is over. [`Refusals`] counts what a limit of another kind has left out, and logs it
//! once for each account. [`Accounts`] finds the user that is charged for a process or a file. [`Setting`] is the value of
//! option `--limit`, and [`LimitMetrics`] are the control metrics. The limits of the framework itself, with their
//! counters, are in [`FixedLimit`].
//!
//! ```
//! use pmda::limits::Budget;
//!
//! let mut names = Budget::new("names of transactions, 100 for each user");
//! for uid in [1000, 1000, 1001] {
//!     names.leave_out(&format_args!("uid {uid}"), 1); // a line for each of the two users
//! }
//! assert_eq!(names.left_out(), 3); // what a control metric exports
//! ```

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::time::{Duration, Instant};

use tracing::warn;

use crate::log::Cut;

mod accounts;
mod metrics;
mod quota;
mod refusals;
mod setting;

pub use crate::fixed_limit::FixedLimit;
pub use crate::work::processor_time;
pub use accounts::Accounts;
pub use metrics::{LimitMetric, LimitMetrics};
pub use quota::{Caps, Quota, Refused};
pub use refusals::Refusals;
pub use setting::{Settable, Setter, Setting};

/// Counter of what a limit has left out, in total and for each source.
///
/// A line is logged when a source exceeds the limit for the first time. Later lines come at most every ten minutes,
/// with the number left out in between. Sources beyond 64 at a time share one line. A budget that is dropped logs its
/// remaining counts.
#[derive(Debug)]
pub struct Budget {
    what: Cow<'static, str>,
    left_out: u64,
    sources: Vec<Source>,
    /// The common count of sources without an entry.
    others: Source,
    /// Text of the source that is looked up; its memory is reused.
    who: String,
}

/// The count of one source.
#[derive(Debug, Default)]
struct Source {
    who: String,
    /// Number left out since the last line about this source.
    pending: u64,
    /// Time of the last line.
    logged: Option<Instant>,
}

/// Largest number of sources with a separate count.
const SOURCES: usize = 64;
/// Shortest time between two lines about a source.
const PERIOD: Duration = Duration::from_secs(600);
/// Longest text of a source, in bytes.
const WHO: usize = 256;

impl Budget {
    /// Creates a budget. Its log lines begin with `what`, such as "connections of one host, 256 at most".
    pub fn new(what: impl Into<Cow<'static, str>>) -> Self {
        Budget {
            what: what.into(),
            left_out: 0,
            sources: Vec::new(),
            others: Source { who: "another source".to_owned(), ..Source::default() },
            who: String::new(),
        }
    }

    /// Counts `n` more items that the limit refuses to the source `who`. Sources that agree in their first 256 bytes
    /// count as one.
    pub fn leave_out(&mut self, who: &dyn fmt::Display, n: u64) {
        self.leave_out_at(Instant::now(), who, n);
    }

    /// Returns the total number left out since the start.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    fn leave_out_at(&mut self, now: Instant, who: &dyn fmt::Display, n: u64) {
        self.left_out = self.left_out.saturating_add(n);
        self.who.clear();
        // Writing a longer text ends with an error, which truncates it.
        let _ = write!(Cut(&mut self.who, WHO), "{who}");
        let source = match self.sources.iter().position(|source| source.who == self.who) {
            Some(known) => &mut self.sources[known],
            None => match self.vacant(now) {
                Some(place) => {
                    self.sources[place].who.clone_from(&self.who);
                    &mut self.sources[place]
                }
                None => &mut self.others,
            },
        };
        source.leave_out(&self.what, now, n);
    }

    /// Returns an entry for a new source: a new entry, or that of a source without a line for a period.
    fn vacant(&mut self, now: Instant) -> Option<usize> {
        if self.sources.len() < SOURCES {
            self.sources.push(Source::default());
            return Some(self.sources.len() - 1);
        }
        let place = self.sources.iter().position(|source| source.rests(now))?;
        self.sources[place].close(&self.what);
        self.sources[place] = Source::default();
        Some(place)
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        let what = &self.what;
        self.sources.iter_mut().chain([&mut self.others]).for_each(|source| source.close(what));
    }
}

impl Source {
    fn rests(&self, now: Instant) -> bool {
        self.logged.is_none_or(|logged| now.duration_since(logged) >= PERIOD)
    }

    fn leave_out(&mut self, what: &str, now: Instant, n: u64) {
        self.pending = self.pending.saturating_add(n);
        if self.rests(now) {
            let since = if self.logged.is_some() { " more" } else { "" };
            warn!(source = %self.who, "{what}: {} is over its limit, {}{since} left out", self.who, self.pending);
            self.pending = 0;
            self.logged = Some(now);
        }
    }

    /// Logs what was left out since the last line.
    fn close(&mut self, what: &str) {
        if self.pending > 0 {
            warn!(source = %self.who, "{what}: {} was over its limit, {} more left out", self.who, self.pending);
            self.pending = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::testing::lines;

    #[test]
    fn a_source_over_its_limit_is_one_line_in_a_period() {
        let start = Instant::now();
        let text = lines(|| {
            let mut budget = Budget::new("tags, 2 for each user");
            for second in 0..100 {
                budget.leave_out_at(start + Duration::from_secs(second), &"uid 7", 2);
                budget.leave_out_at(start + Duration::from_secs(second), &"uid 8", 1);
            }
            budget.leave_out_at(start + PERIOD, &"uid 7", 1);
            assert_eq!(budget.left_out(), 301);
        });
        assert_eq!(
            text,
            [
                "tags, 2 for each user: uid 7 is over its limit, 2 left out",
                "tags, 2 for each user: uid 8 is over its limit, 1 left out",
                "tags, 2 for each user: uid 7 is over its limit, 199 more left out",
                "tags, 2 for each user: uid 8 was over its limit, 99 more left out",
            ]
        );
    }

    #[test]
    fn sources_without_number_are_a_bounded_number_of_lines() {
        let start = Instant::now();
        let text = lines(|| {
            let mut budget = Budget::new("files");
            (0..10_000).for_each(|n| budget.leave_out_at(start, &n, 1));
            assert_eq!((budget.left_out(), budget.sources.len()), (10_000, SOURCES));
            // Sources without a line for a period are replaced.
            budget.leave_out_at(start + PERIOD, &"late", 1);
            assert_eq!(budget.sources.len(), SOURCES);
            assert!(budget.sources.iter().any(|source| source.who == "late"));
        });
        assert_eq!(text.len(), SOURCES + 3, "{text:?}");
        assert_eq!(text[SOURCES], "files: another source is over its limit, 1 left out");
        assert_eq!(text[SOURCES + 1], "files: late is over its limit, 1 left out");
        assert_eq!(text[SOURCES + 2], "files: another source was over its limit, 9935 more left out");
    }

    #[test]
    fn a_source_with_a_long_text_costs_a_part_of_it() {
        let mut budget = Budget::new("files");
        budget.leave_out(&"é".repeat(10_000), u64::MAX);
        budget.leave_out(&"é".repeat(20_000), 5);
        assert_eq!((budget.left_out(), budget.sources.len()), (u64::MAX, 1));
        assert_eq!(budget.sources[0].who, "é".repeat(WHO / 2));
    }
}
