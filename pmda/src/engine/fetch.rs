//! Answers to fetches. A metric that fails, or whose code panics, does not affect the other metrics.

use pcp_pdu::FROM_AGENT;
use pcp_pdu::metadata::Fetch;
use pcp_pdu::profile::{Profile, Selection};
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Desc, Error, PmId, Result};
use tracing::{debug, error};

use super::catalogs::{Catalogs, version};
use super::plans::{self, Planned};
use super::{Answer, Engine};
use crate::agent::Agent;
use crate::client::Client;
use crate::fixed_limit::FixedLimit;
use crate::getter::Getters;
use crate::log::{Panic, catch};
use crate::schema::Schema;
use crate::unserved::Unserved;
use crate::values::Values;

impl<A: Agent> Engine<A> {
    pub(super) fn fetch(&mut self, client: Client, fetch: Fetch<'_>) -> Result<Answer> {
        let version = version(&self.agent);
        self.unserved.begin(version);
        self.plans.begin(version.names);
        self.result.begin();
        for list in fetch.parts(plans::LONGEST) {
            self.fetch_list(client, list)?;
        }
        let changes = self.news_for_clients();
        match self.result.seal(FROM_AGENT, changes) {
            Ok(_) => {
                self.plans.set_offsets(self.result.offsets());
                Ok(Answer::Values)
            }
            Err(e) => {
                // Clients have not been notified of the changes.
                self.changes = changes;
                error!(source = %client.source(), "the answer to a fetch: {e}");
                FixedLimit::Pdus.count();
                Err(e)
            }
        }
    }

    /// Adds the values of some metrics of a fetch to the answer.
    fn fetch_list(&mut self, client: Client, list: Fetch<'_>) -> Result {
        let Engine { agent, schema, getters, plans, profile, result, unserved, max_reply, .. } = self;
        let (metrics, offsets) = plans.metrics(list, |pmid| Catalogs { agent, schema, getters }.metric(pmid));
        if let Some(offsets) = offsets {
            result.begin_like(offsets);
        }
        let mut rest = metrics.iter();
        let mut fetching =
            Fetching { agent, schema, getters, profile, out: result, unserved, client, max_reply: *max_reply };
        loop {
            // One catch for all metrics, because a catch around each would take time. After a panic, the remaining
            // metrics get another catch. The writer and the log survive a panic at any point. The agent is responsible
            // for its own state.
            match catch(|| rest.try_for_each(|metric| fetching.metric(metric))) {
                Ok(done) => return done,
                Err(panic) => {
                    let at = (metrics.len() - rest.len()).checked_sub(1);
                    fetching.panicked(at.and_then(|at| metrics.get(at)?.pmid), &panic);
                }
            }
        }
    }
}

/// The parts of the engine that the values of metrics need.
struct Fetching<'a, A> {
    agent: &'a mut A,
    schema: &'a Schema,
    getters: &'a Getters<A>,
    profile: &'a Profile,
    out: &'a mut ResultWriter,
    unserved: &'a mut Unserved,
    client: Client,
    max_reply: usize,
}

impl<A: Agent> Fetching<'_, A> {
    /// Adds the value set of a metric. Fails when the answer is too large, which ends the fetch.
    #[inline]
    fn metric(&mut self, metric: &Planned) -> Result {
        // A request may name a large metric any number of times.
        if self.out.len() > self.max_reply {
            error!(source = %self.client.source(), "the answer to a fetch is over {} bytes", self.max_reply);
            FixedLimit::Pdus.count();
            return Err(Error::TOOBIG);
        }
        self.out.begin_set(metric.pmid);
        let outcome = match &metric.desc {
            Ok(desc) => self.values(desc, metric.getter),
            Err(outcome) => {
                if *outcome == Err(Error::PMID) {
                    debug!(target: "libpmda", "metric {} is not defined", Ident(metric.pmid));
                }
                *outcome
            }
        };
        match outcome {
            Ok(()) => self.out.end_set(Ok(())),
            Err(e) => self.out.fail_set(e),
        }
        Ok(())
    }

    /// Adds the values of a metric to the open value set.
    #[inline]
    fn values(&mut self, desc: &Desc, getter: Option<u32>) -> Result {
        let selection = desc.indom.map_or(Selection::ALL, |indom| self.profile.selection(indom));
        let mut values = Values::new(self.out, self.unserved, desc, selection, &self.client);
        let done = match getter.and_then(|number| self.getters.value(number)) {
            Some(getter) => getter(self.agent, &mut values),
            None => self.agent.fetch(desc.pmid.item(), &mut values),
        };
        let missing = values.missing();
        if missing.is_err() {
            self.log_unserved(desc.pmid);
        }
        if let Err(e) = done {
            match self.unserved.take_misfit(desc.pmid) {
                Some(misfit) if matches!(e, Error::TYPE | Error::SIGN | Error::TRUNC | Error::CONV) => {
                    let metric =
                        Catalogs { agent: self.agent, schema: self.schema, getters: self.getters }.named(desc.pmid);
                    error!(source = %self.client.source(), "{metric}: {misfit}: {e}");
                }
                _ => {
                    self.unserved.add(desc.pmid, None, e);
                    self.log_unserved(desc.pmid);
                }
            }
            return Err(e);
        }
        match self.out.count() {
            0 => return missing,
            1 => return Ok(()),
            _ => {}
        }
        let Some(inst) = self.out.repeated() else { return Ok(()) };
        let what = inst.map_or("the value".to_owned(), |inst| format!("instance {inst}"));
        let metric = Catalogs { agent: self.agent, schema: self.schema, getters: self.getters }.named(desc.pmid);
        error!(source = %self.client.source(), "{metric}: {what} was put twice; the metric has no values");
        Err(Error::INST)
    }

    /// Logs why the metric, or some of its instances, have no values.
    #[cold]
    fn log_unserved(&mut self, pmid: PmId) {
        let catalogs = Catalogs { agent: self.agent, schema: self.schema, getters: self.getters };
        let is_declared = self.schema.name_of(pmid).is_some();
        self.unserved.log(self.client, pmid, is_declared, || catalogs.named(pmid));
    }

    /// Ends the value set of a metric whose code has panicked. Its error is `PM_ERR_GENERIC`.
    #[cold]
    fn panicked(&mut self, pmid: Option<PmId>, panic: &Panic) {
        self.out.fail_set(Error::GENERIC);
        self.unserved.forget();
        match pmid.map(|pmid| Catalogs { agent: self.agent, schema: self.schema, getters: self.getters }.named(pmid)) {
            Some(metric) => error!(
                source = %metric,
                "{metric}: the fetch panicked{panic}; this metric has no value; other metrics are not affected"
            ),
            None => error!(source = "panics", "a fetch panicked{panic}"),
        }
    }
}

/// A PMID for the log.
struct Ident(Option<PmId>);

impl std::fmt::Display for Ident {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(pmid) => pmid.fmt(f),
            None => f.write_str("PM_ID_NULL"),
        }
    }
}
