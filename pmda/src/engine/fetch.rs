//! Answers to fetches. A metric that fails, or whose code panics, does not affect the other metrics.

use pcp_pdu::FROM_AGENT;
use pcp_pdu::metadata::Fetch;
use pcp_pdu::profile::Selection;
use pcp_pdu::result::Changes;
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Desc, Error, PmId, Result};
use tracing::{debug, error};

use super::Engine;
use super::metadata::{Catalogs, version};
use crate::agent::Agent;
use crate::catalog::MetricInfo;
use crate::client::Client;
use crate::fixed_limit::FixedLimit;
use crate::log::catch;
use crate::values::Values;

impl<A: Agent> Engine<A> {
    /// Writes the answer to a fetch.
    pub(super) fn fetch(&mut self, client: Client, fetch: Fetch<'_>, out: &mut ResultWriter) -> Result {
        let version = version(&self.agent);
        self.unserved.begin(version);
        self.plans.begin(version.names);
        out.begin();
        for list in fetch.parts(LONGEST) {
            let Engine { agent, schema, getters, plans, .. } = self;
            let plan = plans.take(list, |pmid| Catalogs { agent, schema, getters }.metric(pmid));
            let done = plan.metrics.iter().try_for_each(|metric| self.metric(client, metric, out));
            self.plans.put(plan);
            done?;
        }
        let changes = self.news_for_clients();
        out.seal(FROM_AGENT, changes).map(drop).inspect_err(|e| {
            // Clients have not been notified of the changes.
            self.changes = changes;
            error!(source = %client.source(), "the answer to a fetch: {e}");
            FixedLimit::Pdus.count();
        })
    }

    /// Adds the value set of a metric. Fails when the answer is too large, which ends the fetch.
    fn metric(&mut self, client: Client, metric: &Planned, out: &mut ResultWriter) -> Result {
        // A request may name a large metric any number of times.
        if out.len() > self.max_reply {
            error!(source = %client.source(), "the answer to a fetch is over {} bytes", self.max_reply);
            FixedLimit::Pdus.count();
            return Err(Error::TOOBIG);
        }
        out.begin_set(metric.pmid);
        let outcome = match &metric.desc {
            // The writer and the log survive a panic at any point. The agent is responsible for its own state.
            Ok(desc) => catch(|| self.values(client, desc, metric.getter, out)).unwrap_or_else(|panic| {
                self.unserved.forget();
                let metric = self.catalogs().named(desc.pmid);
                error!(
                    source = %metric,
                    "{metric}: the fetch panicked{panic}; this metric has no value; other metrics are not affected"
                );
                Err(Error::GENERIC)
            }),
            Err(outcome) => {
                if *outcome == Err(Error::PMID) {
                    let null = || "PM_ID_NULL".to_owned();
                    debug!(target: "libpmda", "metric {} is not defined", metric.pmid.map_or_else(null, |pmid| pmid.to_string()));
                }
                *outcome
            }
        };
        match outcome {
            Ok(()) => out.end_set(Ok(())),
            Err(e) => out.fail_set(e),
        }
        Ok(())
    }

    /// Adds the values of a metric to the open value set.
    #[inline]
    fn values(&mut self, client: Client, desc: &Desc, getter: Option<u32>, out: &mut ResultWriter) -> Result {
        let selection = desc.indom.map_or(Selection::ALL, |indom| self.profile.selection(indom));
        let mut values = Values::new(out, &mut self.unserved, desc, selection, &client);
        let done = match getter.and_then(|number| self.getters.value(number)) {
            Some(getter) => getter(&self.agent, &mut values),
            None => self.agent.fetch(desc.pmid.item(), &mut values),
        };
        let missing = values.finish(done);
        if self.unserved.is_pending() {
            self.log_unserved(client, desc.pmid);
        }
        done?;
        if out.count() == 0 { missing } else { self.check_repeated(client, desc.pmid, out) }
    }

    /// Refuses values of the same instance.
    #[inline]
    fn check_repeated(&self, client: Client, pmid: PmId, out: &mut ResultWriter) -> Result {
        let Some(inst) = out.repeated() else { return Ok(()) };
        let what = inst.map_or("the value".to_owned(), |inst| format!("instance {inst}"));
        let metric = self.catalogs().named(pmid);
        error!(source = %client.source(), "{metric}: {what} was put twice; the metric has no values");
        Err(Error::INST)
    }

    /// Logs why the metric, or some of its instances, have no values.
    #[cold]
    fn log_unserved(&mut self, client: Client, pmid: PmId) {
        let Engine { agent, schema, getters, unserved, .. } = self;
        let is_declared = schema.name_of(pmid).is_some();
        unserved.log(client, pmid, is_declared, || Catalogs { agent, schema, getters }.named(pmid));
    }

    /// Returns the changes that clients have not been notified of.
    fn news_for_clients(&mut self) -> Changes {
        let mut changes = std::mem::take(&mut self.changes) | self.agent.changes();
        let now = version(&self.agent);
        if now.names != self.told.names {
            changes |= Changes::NAMES;
        }
        if now.labels != self.told.labels {
            changes |= Changes::LABELS;
        }
        self.told = now;
        changes
    }
}

/// Plans of recent fetches, the last used one at the end: if a list of metrics is fetched again, the metrics are not
/// looked up again. A new list replaces the one whose last use is the longest ago.
#[derive(Debug, Default)]
pub(super) struct Plans {
    /// Version of the names of the catalogs.
    names: u64,
    plans: Vec<Plan>,
}

/// The metrics of a list of PMIDs.
#[derive(Debug, Default)]
struct Plan {
    /// PMIDs in network byte order.
    list: Vec<u8>,
    metrics: Vec<Planned>,
}

/// The part of a metric's description that a fetch needs.
#[derive(Clone, Copy, Debug)]
struct Planned {
    /// `None` for `PM_ID_NULL`.
    pmid: Option<PmId>,
    /// The descriptor. `Err` if the agent is not called: with `Ok` the metric has no values, otherwise it has this error.
    desc: Result<Desc, Result>,
    /// Number of the metric's getter.
    getter: Option<u32>,
}

/// Largest number of plans.
const PLANS: usize = 16;

/// Largest number of metrics in a plan. A longer list needs several plans.
const LONGEST: usize = 1024;

impl Plans {
    /// Begins a fetch. A new version of the names makes all plans invalid.
    fn begin(&mut self, names: u64) {
        if self.names != names {
            self.names = names;
            self.plans.clear();
        }
    }

    /// Removes the plan of a list of at most `LONGEST` PMIDs, or makes one of the metrics that `find` returns.
    fn take(&mut self, list: Fetch<'_>, find: impl Fn(PmId) -> Option<MetricInfo>) -> Plan {
        if let Some(at) = self.plans.iter().position(|plan| plan.list == list.bytes()) {
            return self.plans.remove(at);
        }
        let mut plan = if self.plans.len() < PLANS { Plan::default() } else { self.plans.remove(0) };
        plan.list.clear();
        plan.list.extend_from_slice(list.bytes());
        plan.metrics.clear();
        plan.metrics.extend(list.pmids().map(|pmid| {
            let metric = pmid.and_then(&find);
            let desc = metric.map_or(Err(Err(Error::PMID)), MetricInfo::fetched);
            Planned { pmid, desc, getter: metric.and_then(|metric| metric.getter) }
        }));
        plan
    }

    /// Keeps a plan for the next fetch.
    fn put(&mut self, plan: Plan) {
        self.plans.push(plan);
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
            let plan = self.plans.take(list, |pmid| {
                self.found.set(self.found.get() + 1);
                let desc = Desc { pmid, ty: Type::U32, indom: None, semantics: Semantics::Instant, units: Units::NONE };
                (pmid.item().item() < 100).then(|| desc.into())
            });
            let found: Vec<_> = plan.metrics.iter().map(|metric| metric.desc.ok().map(|desc| desc.pmid)).collect();
            let expected: Vec<_> = items.iter().map(|item| Some(pmid(*item)).filter(|_| *item < 100)).collect();
            assert_eq!(found, expected);
            self.plans.put(plan);
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
