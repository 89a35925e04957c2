//! Interface of a running group.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pcp_derive::Column;
use pmapi::{InDom, Result};
use pmda::{Instances, PollSet};

use crate::config::GroupConfig;
use crate::metrics::{Labels, Metrics};

/// Running group. Operands of a pmcd are sampled by a thread of the group (`Sampled`). Operands of agents that are
/// started for the group are fetched when a client asks (`Direct`). No method waits for pmcd, because pmcd waits for
/// the agent.
///
/// Methods identify a metric by its place: the index in [`Metrics::good`] of the metrics that [`Running::begin`]
/// returned last.
pub(crate) trait Running: Debug {
    /// Begins a request and returns the metrics: the same ones until something about them changes, `None` before the
    /// definitions are first bound. Values and instances stay the same until [`Running::done`]. The request may wait
    /// for a sampler until `until`.
    fn begin(&mut self, until: Instant) -> Option<&Arc<Metrics>>;

    /// Waits until definitions that [`Running::reload`] has replaced are bound, at most until `until`. Called before
    /// [`Running::begin`] in requests about names.
    fn wait_until_bound(&mut self, until: Instant) {
        let _ = until;
    }

    /// Prepares the values of `places`, which the current request fetches.
    fn prepare(&mut self, places: &mut dyn Iterator<Item = usize>);

    /// Notes that a client has looked up metrics and may fetch them next.
    fn expect(&self, places: &[usize]);

    /// Prepares the instances of a domain for the current request, with labels if `labels` is true.
    fn expect_instances(&mut self, indom: InDom, labels: bool);

    /// Returns the values of a metric, or the error that stands in their place.
    fn values(&self, place: usize) -> Result<&Column>;

    /// Returns the instances of an operand's domain, if they are known.
    fn instances(&self, indom: InDom) -> Option<&dyn Instances>;

    /// Returns the labels of an operand's domain, if they are known.
    fn labels(&self, indom: InDom) -> Option<&Labels> {
        let _ = indom;
        None
    }

    /// Returns how often labels have changed.
    fn label_changes(&self) -> u64 {
        0
    }

    /// Begins to end agents, without waiting for them. Called when this agent ends.
    fn close(&mut self) {}

    /// Ends a request. Called when the reply has been sent.
    fn done(&mut self) {}

    /// Replaces the definitions. The operands come from the same source as before.
    fn reload(&mut self, group: GroupConfig);

    /// Returns whether this group lets the agent report that it is ready.
    fn is_ready(&self) -> bool;

    /// Adds the file descriptors and times that [`Running::wake`] has to be called for.
    fn sources<'a>(&'a self, set: &mut PollSet<'a>) {
        let _ = set;
    }

    /// Handles events of [`Running::sources`].
    fn wake(&mut self) {}

    /// Returns the time between samples.
    fn interval(&self) -> Duration;

    /// Changes the time between samples.
    fn set_interval(&mut self, interval: Duration);

    /// Returns problems of the operands' source as a whole: pairs of a subject and a message.
    fn problems(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Returns the version of the list of problems, which grows with each change.
    fn problems_version(&self) -> u64 {
        0
    }

    /// Returns the group's statistics.
    fn figures(&self) -> Figures;
}

/// Statistics of a group, for `derived.control`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// Samples that were attempted.
    pub(crate) samples: u64,
    /// Samples that failed.
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
