//! Instance lists of the operands' domains.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use pcp_derived::Column;
use pmapi::{InDom, Result};
use tracing::{debug, warn};

use super::snapshot::{Known, LASTING, Slot, find};
use crate::metrics::{Labels, List};
use crate::operands::Source;

/// Instance lists. The source is asked for a list when clients have requested it, and when the instances in a sample differ
/// from those in the previous sample.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// Lists sorted by domain.
    known: Vec<Known>,
    /// Memory of all lists, in bytes.
    size: usize,
    /// Number of label changes so far.
    pub(super) label_changes: u64,
    /// Number of lists that were left out because of the limit.
    pub(super) too_large: u64,
    /// Domains to ask the source for. Kept for its memory.
    asked: Vec<InDom>,
    /// Domains whose labels clients have requested at some time.
    labelled: HashSet<InDom>,
}

/// Whether identifiers belong to the same instances as before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Identity {
    Same,
    Changed,
}

impl Lists {
    /// Returns the lists, sorted by domain.
    pub(super) fn known(&self) -> &Vec<Known> {
        &self.known
    }

    /// Removes all lists.
    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.size = 0;
    }

    /// Marks the list of a domain that clients have requested for [`Lists::ask`], with labels if `labels` is true.
    pub(super) fn request(&mut self, indom: InDom, labels: bool) {
        self.asked.push(indom);
        if labels {
            self.labelled.insert(indom);
        }
    }

    /// Marks the lists whose labels clients have requested, because labels may have changed.
    pub(super) fn request_labels(&mut self) {
        self.asked.extend(&self.labelled);
    }

    /// Returns whether lists are marked for [`Lists::ask`].
    pub(super) fn are_requested(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Marks the list of a domain for [`Lists::ask`] if the instances in a sample may differ from it. `before` is the
    /// metric's value slot in the previous snapshot.
    pub(super) fn check(&mut self, indom: InDom, values: &Column, before: Option<&Slot>, taken: Instant) {
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
    pub(super) fn ask(&mut self, source: &mut dyn Source, taken: Instant, limit: usize) -> Result<Identity> {
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
