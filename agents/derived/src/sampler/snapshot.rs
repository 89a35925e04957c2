//! Snapshots: the values and instances of one sample, which never change once they are published.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pcp_derived::Column;
use pmapi::{Error, InDom, Result};

use crate::metrics::{List, Metrics};

/// How long cached instance names stay valid while no metric of their domain is sampled.
pub(crate) const LASTING: Duration = Duration::from_secs(60);

/// Values of one sample.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// Metrics that the definitions are bound to. Replaced when anything about them changes.
    pub(crate) metrics: Arc<Metrics>,
    /// Values of each metric, by place.
    pub(crate) slots: Vec<Slot>,
    /// Instance lists, sorted by domain.
    pub(crate) lists: Vec<Known>,
    /// Number of label changes so far.
    pub(crate) label_changes: u64,
}

/// Values of a metric.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Time of the sample. `None` if the metric has not been sampled.
    pub(crate) taken: Option<Instant>,
    /// The values, or the error in their place.
    pub(crate) values: Result<Column>,
}

impl Default for Slot {
    fn default() -> Slot {
        Slot { taken: None, values: Err(Error::AGAIN) }
    }
}

impl Slot {
    /// Replaces the values, in the memory of the old ones.
    pub(super) fn assign(&mut self, taken: Option<Instant>, values: Result<&Column>) {
        self.taken = taken;
        match (&mut self.values, values) {
            (Ok(to), Ok(from)) => to.clone_from(from),
            (to, from) => *to = from.cloned(),
        }
    }

    pub(super) fn copy_from(&mut self, other: &Slot) {
        self.assign(other.taken, other.values.as_ref().map_err(|e| *e));
    }
}

/// Instances of a domain, and the time at which the list was valid last.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) indom: InDom,
    pub(crate) list: Arc<List>,
    pub(crate) taken: Instant,
}

impl Snapshot {
    /// Returns a snapshot of other metrics. A metric that keeps its name and looks the same to clients keeps its
    /// values.
    pub(super) fn carried_over(&self, metrics: &Arc<Metrics>) -> Snapshot {
        let old = self.metrics.good.iter().zip(&self.slots);
        let old: HashMap<&str, _> = old.map(|(metric, slot)| (metric.name.as_str(), (metric, slot))).collect();
        let mut slots = Vec::with_capacity(metrics.good.len());
        for metric in &metrics.good {
            let mut slot = Slot::default();
            if let Some((_, same)) = old.get(&*metric.name).filter(|(old, _)| old.looks_like(metric)) {
                slot.copy_from(same);
            }
            slots.push(slot);
        }
        let (metrics, lists) = (Arc::clone(metrics), self.lists.clone());
        Snapshot { metrics, slots, lists, label_changes: self.label_changes }
    }

    /// Returns the instances of a domain.
    pub(crate) fn list(&self, indom: InDom) -> Option<&Known> {
        self.lists.get(find(&self.lists, indom).ok()?)
    }
}

/// Searches sorted lists for a domain. The error is the index at which the domain's list belongs.
pub(super) fn find(lists: &[Known], indom: InDom) -> Result<usize, usize> {
    lists.binary_search_by_key(&indom.word(), |known| known.indom.word())
}
