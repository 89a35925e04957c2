//! Limits on the resources that other users can make an agent consume: counters of what a limit has left out, and the
//! users that are charged.
//!
//! The agent defines its limits. A [`Quota`] is a cap on what each account, such as a user, and all accounts together may
//! use of a resource; it refuses what is over. [`Refusals`] counts what a limit of another kind has left out, and logs it
//! once for each account. [`Accounts`] finds the user that is charged for a process or a file. [`Setting`] is the value of
//! option `--limit`, and [`LimitMetrics`] are the control metrics. The limits of the framework itself, with their
//! counters, are in [`FixedLimit`].

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
