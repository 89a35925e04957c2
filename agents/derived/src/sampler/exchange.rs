//! What the agent's thread and a sampler exchange: requests one way, samples the other, under one mutex.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pmapi::{Error, InDom, Result};

use super::snapshot::Snapshot;
use crate::config::GroupConfig;

/// Longest time from the beginning of a request until it no longer waits for samplers. A sample that has received all
/// answers of pmcd is complete by then. Any other sample cannot be complete before pmcd has received the reply to this
/// request.
pub(crate) const PATIENCE: Duration = Duration::from_millis(10);

/// Longest total time that requests wait for new definitions to be bound.
pub(crate) const BINDING: Duration = Duration::from_secs(1);

/// Longest time that a request waits for the sampler to send its own request.
pub(crate) const SENDING: Duration = Duration::from_millis(2);

/// Mutex and condition of both threads. The mutex is held to exchange a few words, never while a thread works or waits
/// for pmcd.
#[derive(Debug)]
pub(crate) struct Shared {
    exchange: Mutex<Exchange>,
    changed: Condvar,
}

/// State that both threads read and write.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// Time until which the group is sampled, unless clients ask again.
    pub(crate) until: Instant,
    pub(crate) interval: Duration,
    /// Configuration that the sampler has not adopted yet.
    pub(crate) group: Option<Box<GroupConfig>>,
    /// Whether the definitions of a new configuration have neither been bound nor failed.
    pub(crate) is_unbound: bool,
    /// Domains whose instances clients have requested since the last sample, with labels if the value is true.
    pub(crate) indoms: HashMap<InDom, bool>,
    /// Whether the group ends.
    pub(crate) is_closed: bool,
    pub(crate) published: Published,
}

/// Statistics of a group, for `derived.control`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// Samples that were attempted.
    pub(crate) samples: u64,
    /// Samples that failed, or that lack the values of an agent.
    pub(crate) errors: u64,
    /// Samples that were not evaluated because of [`Limits::values`](crate::limits::Limits::values).
    pub(crate) large_samples: u64,
    /// Instance lists that were left out because of [`Limits::lists`](crate::limits::Limits::lists).
    pub(crate) large_lists: u64,
    /// Duration of the last evaluation.
    pub(crate) evaluation: Duration,
    /// Time of the last sample.
    pub(crate) sampled: Option<Instant>,
}

/// State that the sampler publishes.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) snapshot: Option<Arc<Snapshot>>,
    /// Outcome of the last sample. An error stands in place of all values.
    pub(crate) outcome: Result<()>,
    /// Number of requests that the sampler has begun to send to pmcd.
    pub(crate) sent: u64,
    /// Number of samples that are complete or have failed. It is less than [`Figures::samples`] during a sample.
    pub(crate) finished: u64,
    /// Whether the agent no longer has to wait for the first snapshot.
    pub(crate) ready: bool,
    pub(crate) figures: Figures,
    /// Problems of the source of operands: pairs of a subject and a message.
    pub(crate) problems: Arc<Vec<(String, String)>>,
    /// Version of the problems.
    pub(crate) problems_version: u64,
}

impl Published {
    /// Returns whether the sampler is taking a sample.
    pub(crate) fn is_sampling(&self) -> bool {
        self.figures.samples > self.finished
    }
}

impl Shared {
    /// Creates the state of a group that is sampled until `until`.
    pub(crate) fn new(interval: Duration, until: Instant) -> Shared {
        let published = Published {
            snapshot: None,
            outcome: Err(Error::AGAIN),
            sent: 0,
            finished: 0,
            ready: false,
            figures: Figures::default(),
            problems: Arc::default(),
            // Unlike that of any source.
            problems_version: u64::MAX,
        };
        let exchange = Exchange {
            until,
            interval,
            group: None,
            is_unbound: false,
            indoms: HashMap::new(),
            is_closed: false,
            published,
        };
        Shared { exchange: Mutex::new(exchange), changed: Condvar::new() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Exchange> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes up the other thread, if it waits.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
    }

    /// Waits for [`Shared::notify`], at most until `until`.
    pub(super) fn wait<'a>(&'a self, exchange: MutexGuard<'a, Exchange>, until: Instant) -> MutexGuard<'a, Exchange> {
        let left = until.saturating_duration_since(Instant::now());
        self.changed.wait_timeout(exchange, left).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits until `is_done`, at most until `until`.
    pub(crate) fn wait_for(&self, until: Instant, is_done: impl Fn(&Exchange) -> bool) {
        let mut exchange = self.lock();
        while !is_done(&exchange) && Instant::now() < until {
            exchange = self.wait(exchange, until);
        }
    }
}
