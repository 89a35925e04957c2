//! Plans of recent fetches: if a list of metrics is fetched again, the metrics are not looked up again.

use pcp_pdu::metadata::Fetch;
use pcp_pdu::result_writer::Offsets;
use pmapi::{Desc, Error, PmId};

use crate::catalog::MetricInfo;

/// The metrics of the last few distinct lists of PMIDs.
///
/// Their memory is bounded by `PLANS` and `LONGEST`. A new list replaces the one whose last use is the longest ago.
#[derive(Debug, Default)]
pub(super) struct Plans {
    /// Version of the names of the catalogs.
    names: u64,
    plans: Vec<Plan>,
    /// Number of uses of all plans.
    uses: u64,
    /// Index of the plan for the first list of the fetch.
    first: Option<usize>,
}

/// The part of a metric's description that a fetch needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    /// `None` for `PM_ID_NULL`.
    pub(super) pmid: Option<PmId>,
    /// The descriptor, or the outcome of a fetch that does not call the agent.
    pub(super) desc: Result<Desc, pmapi::Result>,
    /// Number of the metric's getter.
    pub(super) getter: Option<u32>,
}

#[derive(Debug)]
struct Plan {
    /// PMIDs in network byte order.
    list: Vec<u8>,
    metrics: Vec<Planned>,
    /// Number of uses of all plans when this one was last used.
    used: u64,
    /// Offsets of the last answer to a fetch that began with this list.
    offsets: Offsets,
}

/// Largest number of plans.
const PLANS: usize = 16;

/// Largest number of metrics in a plan. A longer list needs several plans.
pub(super) const LONGEST: usize = 1024;

impl Plans {
    /// Begins a fetch. A new version of the names makes all plans invalid.
    pub(super) fn begin(&mut self, names: u64) {
        self.first = None;
        if self.names != names {
            self.names = names;
            self.plans.clear();
        }
    }

    /// Returns the metrics of a list of at most `LONGEST` PMIDs: those of a plan, or those that `find` returns. For the
    /// first list of a fetch, also returns the offsets of the last answer to a fetch that began with this list.
    pub(super) fn metrics(
        &mut self,
        list: Fetch<'_>,
        find: impl Fn(PmId) -> Option<MetricInfo>,
    ) -> (&[Planned], Option<Offsets>) {
        self.uses += 1;
        let known = self.plans.iter().position(|plan| plan.list == list.bytes());
        let at = known.unwrap_or_else(|| {
            let at = self.place();
            let plan = &mut self.plans[at];
            plan.list.clear();
            plan.list.extend_from_slice(list.bytes());
            plan.metrics.clear();
            plan.metrics.extend(list.pmids().map(|pmid| {
                let metric = pmid.and_then(&find);
                let desc = metric.map_or(Err(Err(Error::PMID)), MetricInfo::fetched);
                Planned { pmid, desc, getter: metric.and_then(|metric| metric.getter) }
            }));
            at
        });
        let is_first = self.first.is_none();
        self.first.get_or_insert(at);
        let plan = &mut self.plans[at];
        plan.used = self.uses;
        (&plan.metrics, is_first.then_some(plan.offsets))
    }

    /// Keeps the offsets of the answer to the fetch.
    pub(super) fn set_offsets(&mut self, offsets: Offsets) {
        if let Some(plan) = self.first.and_then(|at| self.plans.get_mut(at)) {
            plan.offsets = offsets;
        }
    }

    /// Returns the index of the plan to replace: a new one, or the one whose last use is the longest ago.
    fn place(&mut self) -> usize {
        if self.plans.len() < PLANS {
            self.plans.push(Plan { list: Vec::new(), metrics: Vec::new(), used: 0, offsets: Offsets::default() });
            return self.plans.len() - 1;
        }
        let plans = self.plans.iter().enumerate();
        plans.min_by_key(|(_, plan)| plan.used).map_or(0, |(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use pcp_pdu::Pdu;
    use pcp_pdu::metadata::encode_fetch;
    use pmapi::{Domain, Item, Semantics, Type, Units};

    use super::*;

    /// Plans, and the number of look-ups that they needed.
    #[derive(Default)]
    struct Scene {
        plans: Plans,
        found: Cell<usize>,
    }

    fn pmid(item: u16) -> PmId {
        PmId::new(Domain::new(400).unwrap(), Item::new(0, item))
    }

    impl Scene {
        /// Returns how many metrics a list of items makes the plans look up. Items below 100 exist.
        fn fetch(&mut self, items: &[u16]) -> usize {
            let mut bytes = Vec::new();
            encode_fetch(&mut bytes, 0, 0, items.iter().map(|item| Some(pmid(*item)))).unwrap();
            let header = pcp_pdu::Header::parse(&bytes).unwrap().unwrap();
            let Ok(Pdu::Fetch(list)) = Pdu::decode(header, &bytes) else { panic!("no fetch") };
            self.found.set(0);
            let (metrics, _) = self.plans.metrics(list, |pmid| {
                self.found.set(self.found.get() + 1);
                let desc = Desc { pmid, ty: Type::U32, indom: None, semantics: Semantics::Instant, units: Units::NONE };
                (pmid.item().item() < 100).then(|| desc.into())
            });
            let found: Vec<_> = metrics.iter().map(|metric| metric.desc.ok().map(|desc| desc.pmid)).collect();
            let expected: Vec<_> = items.iter().map(|item| Some(pmid(*item)).filter(|_| *item < 100)).collect();
            assert_eq!(found, expected);
            self.found.get()
        }
    }

    #[test]
    fn a_list_is_looked_up_once_until_names_change() {
        let mut scene = Scene::default();
        for names in 0..3 {
            scene.plans.begin(names);
            for looked_up in [3, 0, 0] {
                assert_eq!(scene.fetch(&[7, 200, 7]), looked_up);
                // Other lists are other plans: a part, and another order.
                assert_eq!(scene.fetch(&[7, 200]), looked_up.min(2));
                assert_eq!(scene.fetch(&[200, 7, 7]), looked_up);
            }
        }
    }

    #[test]
    fn a_new_list_replaces_the_one_that_was_used_longest_ago() {
        let mut scene = Scene::default();
        for item in 0..100 {
            assert_eq!(scene.fetch(&[item, 1, 2]), 3);
            assert_eq!(scene.fetch(&[0, 1, 2]), 0);
        }
        assert_eq!(scene.plans.plans.len(), PLANS);
        assert_eq!((scene.fetch(&[99, 1, 2]), scene.fetch(&[50, 1, 2])), (0, 3));
    }
}
