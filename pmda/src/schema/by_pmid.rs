//! Metrics by PMID.

use hashbrown::HashTable;
use pmapi::PmId;

use crate::catalog::MetricInfo;

/// Metrics by their PMIDs.
#[derive(Debug, Default)]
pub(crate) struct ByPmid(HashTable<MetricInfo>);

impl ByPmid {
    /// Collects metrics that have different PMIDs.
    pub(super) fn new(metrics: impl ExactSizeIterator<Item = MetricInfo>) -> Self {
        let mut all = ByPmid(HashTable::with_capacity(metrics.len()));
        metrics.for_each(|metric| all.insert(metric));
        all
    }

    pub(crate) fn find(&self, pmid: PmId) -> Option<&MetricInfo> {
        self.0.find(hash(pmid), |metric| metric.desc.pmid == pmid)
    }

    /// Adds a metric. No other metric may have its PMID.
    pub(crate) fn insert(&mut self, metric: MetricInfo) {
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

/// Returns the hash of a PMID. Clients cannot cause collisions, because the agent chooses the PMIDs.
fn hash(pmid: PmId) -> u64 {
    let product = u64::from(pmid.word()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // The table uses the lower bits for a slot and the upper bits for a tag.
    product ^ product >> 32
}
