//! A group at work, as the agent sees it.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pcp_derive::Values;
use pmapi::{InDom, Result};
use pmda::prelude::{Instances, PollSet};

use crate::config::Group;
use crate::metrics::{Labels, Metrics};

/// A group at work: operands of a pmcd are sampled by a thread of its own ([`Host`](crate::host::Host)), those of
/// agents that are started for it when a client asks. Nothing here waits for pmcd, which waits for the agent.
///
/// Metrics are known by their places in [`Metrics::good`]; what is asked about a place is about the metrics that
/// [`Running::refresh`] has given last.
pub(crate) trait Running: Debug {
    /// Called at the beginning of each request, with what the definitions are bound to: the same as long as nothing
    /// about it changes. None before they are bound for the first time. Values and instances stay the same until
    /// [`Running::done`].
    fn refresh(&mut self) -> Option<&Arc<Metrics>>;

    /// Called before, if somebody asks for names: waits until then for definitions that [`Running::reload`] has brought,
    /// if they need nothing of pmcd any more.
    fn settle(&self, until: Instant) {
        let _ = until;
    }

    /// The values of some metrics will be asked for in this request.
    fn prepare(&mut self, places: &mut dyn Iterator<Item = usize>);

    /// Somebody has looked at metrics, and may ask for their values next.
    fn expect(&self, places: &[usize]);

    /// Somebody asks for the instances of a domain in this request, perhaps for labels.
    fn expect_instances(&mut self, indom: InDom, labels: bool);

    /// The values of a metric.
    fn values(&self, place: usize) -> Result<&Values>;

    /// The instances of an operand's domain, if they are known.
    fn instances(&self, indom: InDom) -> Option<&dyn Instances>;

    /// The labels of an operand's domain, if they are known.
    fn labels(&self, indom: InDom) -> Option<&Labels> {
        let _ = indom;
        None
    }

    /// How often labels have changed.
    fn label_changes(&self) -> u64 {
        0
    }

    /// The agent ends: whatever will take its time to end begins with it.
    fn close(&mut self) {}

    /// The answer has gone out.
    fn done(&mut self) {}

    /// Exchanges definitions; the operands are where they were.
    fn reload(&mut self, group: Group);

    /// Whether there is anything to say.
    fn is_ready(&self) -> bool;

    /// What the agent has to wait for so that it sees when that changes, and what else needs its attention.
    fn sources<'a>(&'a self, set: &mut PollSet<'a>) {
        let _ = set;
    }

    /// Something that [`Running::sources`] has named has come.
    fn wake(&mut self) {}

    /// The time between samples.
    fn interval(&self) -> Duration;

    /// Another time between samples.
    fn set_interval(&mut self, interval: Duration);

    /// What is wrong with the operands as a whole: of whom, and what.
    fn problems(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// How often that has become something else.
    fn turns(&self) -> u64 {
        0
    }

    /// What the group says about itself.
    fn figures(&self) -> Figures;
}

/// What a group says about itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// Samples that were tried.
    pub(crate) samples: u64,
    /// Those of them that failed.
    pub(crate) errors: u64,
    /// How long the last evaluation took.
    pub(crate) evaluation: Duration,
    /// Time since the last sample.
    pub(crate) age: Option<Duration>,
}
