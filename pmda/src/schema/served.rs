//! The declared metrics as requests need them.

use hashbrown::HashTable;
use pmapi::{Desc, Item, PmId, Type};

/// A metric as the engine needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) desc: Desc,
    pub(crate) item: Item,
    pub(crate) storable: bool,
    pub(crate) parameter: bool,
}

impl Served {
    /// The outcome of fetches that are not the agent's business.
    pub(crate) fn without_values(&self) -> Option<pmapi::Result> {
        match self.desc.ty {
            _ if self.parameter => Some(Ok(())),
            Type::NoSupport => Some(Err(pmapi::Error::APPVERSION)),
            _ => None,
        }
    }
}

/// Metrics by their PMIDs.
#[derive(Debug)]
pub(super) struct ByPmid(HashTable<Served>);

impl ByPmid {
    /// Of metrics that have a PMID each.
    pub(super) fn new(metrics: impl ExactSizeIterator<Item = Served>) -> Self {
        let mut table = HashTable::with_capacity(metrics.len());
        for metric in metrics {
            table.insert_unique(hash(metric.desc.pmid), metric, |metric| hash(metric.desc.pmid));
        }
        ByPmid(table)
    }

    pub(super) fn find(&self, pmid: PmId) -> Option<&Served> {
        self.0.find(hash(pmid), |metric| metric.desc.pmid == pmid)
    }
}

/// The agent chooses the PMIDs: nobody can make them collide.
fn hash(pmid: PmId) -> u64 {
    let product = u64::from(pmid.word()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // The table takes a slot from the lower bits and a tag from the upper ones.
    product ^ product >> 32
}
