//! Metrics as the engine needs them, found by PMID.

use hashbrown::HashTable;
use pmapi::{Desc, Item, PmId, Type};

/// The part of a metric that requests need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) desc: Desc,
    pub(crate) item: Item,
    pub(crate) storable: bool,
    pub(crate) restricted: bool,
    pub(crate) parameter: bool,
}

impl From<Desc> for Served {
    fn from(desc: Desc) -> Self {
        Served { desc, item: desc.pmid.item(), storable: false, restricted: false, parameter: false }
    }
}

impl Served {
    /// Returns the outcome of a fetch that does not call the agent.
    pub(crate) fn without_values(&self) -> Option<pmapi::Result> {
        match self.desc.ty {
            _ if self.parameter => Some(Ok(())),
            Type::NoSupport => Some(Err(pmapi::Error::APPVERSION)),
            _ => None,
        }
    }
}

/// Metrics by their PMIDs.
#[derive(Debug, Default)]
pub(crate) struct ByPmid(HashTable<Served>);

impl ByPmid {
    /// Collects metrics that have different PMIDs.
    pub(super) fn new(metrics: impl ExactSizeIterator<Item = Served>) -> Self {
        let mut all = ByPmid(HashTable::with_capacity(metrics.len()));
        metrics.for_each(|metric| all.insert(metric));
        all
    }

    pub(crate) fn find(&self, pmid: PmId) -> Option<&Served> {
        self.0.find(hash(pmid), |metric| metric.desc.pmid == pmid)
    }

    /// Adds a metric. No other metric may have its PMID.
    pub(crate) fn insert(&mut self, metric: Served) {
        self.0.insert_unique(hash(metric.desc.pmid), metric, |metric| hash(metric.desc.pmid));
    }

    pub(crate) fn remove(&mut self, pmid: PmId) {
        if let Ok(entry) = self.0.find_entry(hash(pmid), |metric| metric.desc.pmid == pmid) {
            entry.remove();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The agent chooses the PMIDs, so that no client can make them collide.
fn hash(pmid: PmId) -> u64 {
    let product = u64::from(pmid.word()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // The table uses the lower bits for a slot and the upper bits for a tag.
    product ^ product >> 32
}
