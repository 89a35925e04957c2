//! Snapshots: the values and instances of one sample, which never change once they are published.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pcp_derived::Column;
use pmapi::{Error, InDom, Result};
use tracing::{debug, warn};

use crate::metrics::{Labels, List, Metrics};
use crate::operands::Source;

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
    pub(crate) fn assign(&mut self, taken: Option<Instant>, values: Result<&Column>) {
        self.taken = taken;
        match (&mut self.values, values) {
            (Ok(to), Ok(from)) => to.clone_from(from),
            (to, from) => *to = from.cloned(),
        }
    }

    pub(crate) fn copy_from(&mut self, other: &Slot) {
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
    pub(crate) fn carried_over(&self, metrics: &Arc<Metrics>) -> Snapshot {
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
pub(crate) fn find(lists: &[Known], indom: InDom) -> Result<usize, usize> {
    lists.binary_search_by_key(&indom.word(), |known| known.indom.word())
}

/// Instance lists. The source is asked for a list when clients have requested it, and when the instances in a sample differ
/// from those in the previous sample.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    /// Lists sorted by domain.
    known: Vec<Known>,
    /// Memory of all lists, in bytes.
    size: usize,
    /// Number of label changes so far.
    pub(crate) label_changes: u64,
    /// Number of lists that were left out because of the limit.
    pub(crate) too_large: u64,
    /// Domains to ask the source for. Kept for its memory.
    asked: Vec<InDom>,
    /// Domains whose labels clients have requested at some time.
    labelled: HashSet<InDom>,
}

/// Whether identifiers belong to the same instances as before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Identity {
    Same,
    Changed,
}

impl Lists {
    /// Returns the lists, sorted by domain.
    pub(crate) fn known(&self) -> &Vec<Known> {
        &self.known
    }

    /// Removes all lists.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
        self.size = 0;
    }

    /// Marks the list of a domain that clients have requested for [`Lists::ask`], with labels if `labels` is true.
    pub(crate) fn request(&mut self, indom: InDom, labels: bool) {
        self.asked.push(indom);
        if labels {
            self.labelled.insert(indom);
        }
    }

    /// Marks the lists whose labels clients have requested, because labels may have changed.
    pub(crate) fn request_labels(&mut self) {
        self.asked.extend(&self.labelled);
    }

    /// Returns whether lists are marked for [`Lists::ask`].
    pub(crate) fn are_requested(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Marks the list of a domain for [`Lists::ask`] if the instances in a sample may differ from it. `before` is the
    /// metric's value slot in the previous snapshot.
    pub(crate) fn check(&mut self, indom: InDom, values: &Column, before: Option<&Slot>, taken: Instant) {
        let known = find(&self.known, indom).ok().and_then(|at| self.known.get_mut(at));
        let valid = known.filter(|known| match before.filter(|slot| slot.taken.is_some()) {
            Some(slot) => slot.values.as_ref().is_ok_and(|before| before.same_instances(values)),
            None => known.taken.elapsed() <= LASTING && known.list.is_of(values),
        });
        match valid {
            Some(known) => known.taken = taken,
            None if self.asked.last() != Some(&indom) => self.asked.push(indom),
            None => {}
        }
    }

    /// Asks the source for the lists of marked domains.
    ///
    /// After [`Identity::Changed`] the history of differences must be discarded. If all lists together are larger than
    /// `limit` bytes, the new list becomes empty.
    pub(crate) fn ask(&mut self, source: &mut dyn Source, taken: Instant, limit: usize) -> Result<Identity> {
        let mut asked = std::mem::take(&mut self.asked);
        asked.sort_unstable_by_key(|indom| indom.word());
        asked.dedup();
        let mut identity = Identity::Same;
        for indom in asked.drain(..) {
            match source.list(indom, self.labelled.contains(&indom)) {
                Ok(list) => {
                    let list = self.limited(list, indom, source, limit);
                    if self.insert(Known { indom, list: Arc::new(list), taken }) == Identity::Changed {
                        identity = Identity::Changed;
                    }
                }
                Err(e) if source.is_connected() => debug!("no instance names of domain {indom}: {e}"),
                Err(e) => return Err(e),
            }
        }
        self.asked = asked;
        Ok(identity)
    }

    /// Returns the list, or an empty one. An empty list is kept too, so that the source is not asked in each sample.
    fn limited(&mut self, list: List, indom: InDom, source: &dyn Source, limit: usize) -> List {
        let old = find(&self.known, indom).ok().and_then(|at| self.known.get(at)).map_or(0, |old| old.list.size());
        let size = self.size - old + list.size();
        if size <= limit {
            return list;
        }
        warn!(source = %source, "domain {indom}: instances have no names, because {size} bytes are more than {limit}");
        self.too_large += 1;
        List::default().labelled(Labels::default())
    }

    fn insert(&mut self, known: Known) -> Identity {
        self.size += known.list.size();
        match find(&self.known, known.indom) {
            Ok(at) => {
                let old = std::mem::replace(&mut self.known[at], known);
                let new = &self.known[at];
                self.size -= old.list.size();
                self.label_changes += u64::from(new.list.labels() != old.list.labels());
                if new.list.renames(&old.list) { Identity::Changed } else { Identity::Same }
            }
            Err(at) => {
                self.known.insert(at, known);
                Identity::Same
            }
        }
    }
}
