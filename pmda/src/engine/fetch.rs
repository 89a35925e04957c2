//! Answers to fetches. A metric that fails, or whose code panics, does not affect the other metrics.

use std::time::Duration;

use pcp_pdu::FROM_AGENT;
use pcp_pdu::metadata::Fetch;
use pcp_pdu::profile::{Profile, Selection};
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Desc, Error, PmId, Result};
use tracing::{debug, error};

use super::catalogs::{Catalogs, version};
use super::plans::{self, Planned};
use super::repeats::Repeats;
use super::{Answer, Engine, MAX_REPLY};
use crate::agent::Agent;
use crate::client::Client;
use crate::limits::FixedLimit;
use crate::limits::processor_time;
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
        let mut repeats = Repeats::new(fetch.pmids().len() > plans::LONGEST);
        for (number, list) in fetch.parts(plans::LONGEST).enumerate() {
            repeats.begin_part(fetch.parts(plans::LONGEST).take(number));
            self.fetch_list(client, list, &mut repeats)?;
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
    fn fetch_list(&mut self, client: Client, list: Fetch<'_>, repeats: &mut Repeats) -> Result {
        let Engine { agent, schema, plans, profile, result, unserved, .. } = self;
        let (metrics, offsets) = plans.metrics(client, list, |pmid| Catalogs { agent, schema }.metric(pmid));
        if let Some(offsets) = offsets {
            result.begin_like(offsets);
        }
        let mut rest = metrics.iter();
        let mut fetching = Fetching { agent, schema, profile, out: result, unserved, client, repeats };
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
    profile: &'a Profile,
    out: &'a mut ResultWriter,
    unserved: &'a mut Unserved,
    client: Client,
    repeats: &'a mut Repeats,
}

impl<A: Agent> Fetching<'_, A> {
    /// Adds the value set of a metric. Fails when the answer is too large, which ends the fetch.
    #[inline]
    fn metric(&mut self, metric: &Planned) -> Result {
        // A request may name a large metric any number of times.
        if self.out.len() > MAX_REPLY {
            error!(source = %self.client.source(), "the answer to a fetch is over {MAX_REPLY} bytes");
            FixedLimit::Pdus.count();
            return Err(Error::TOOBIG);
        }
        self.out.begin_set(metric.pmid);
        let outcome = match &metric.desc {
            // One call, so that the compiler makes `values` a part of this function.
            Ok(desc) => {
                let is_repeated = metric.is_repeated || self.repeats.has(desc.pmid);
                let begin = if is_repeated { self.begin_repetition() } else { Ok(None) };
                begin.and_then(|begin| {
                    let done = self.values(desc);
                    if let Some(begin) = begin {
                        self.repeats.spend(processor_time().saturating_sub(begin));
                    }
                    done
                })
            }
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

    /// Begins to compute the values of a metric that the request names a second time or later. Returns the processor time
    /// used so far. Fails if the request has used up the time for repetitions.
    #[cold]
    fn begin_repetition(&mut self) -> Result<Option<Duration>> {
        if self.repeats.has_time() {
            return Ok(Some(processor_time()));
        }
        if self.repeats.is_first() {
            error!(source = %self.client.source(), "a fetch names metrics repeatedly, which takes too long: they have no more values");
        }
        FixedLimit::Pdus.count();
        Err(Error::TOOBIG)
    }

    /// Adds the values of a metric to the open value set.
    #[inline]
    fn values(&mut self, desc: &Desc) -> Result {
        let selection = desc.indom.map_or(Selection::ALL, |indom| self.profile.selection(indom));
        let mut values = Values::new(self.out, self.unserved, desc, selection, &self.client);
        let done = self.agent.fetch(desc.pmid.item(), &mut values);
        let missing = values.missing();
        if missing.is_err() {
            self.log_unserved(desc.pmid);
        }
        if let Err(e) = done {
            match self.unserved.take_misfit(desc.pmid) {
                Some(misfit) if matches!(e, Error::TYPE | Error::SIGN | Error::TRUNC | Error::CONV) => {
                    let metric = Catalogs { agent: self.agent, schema: self.schema }.named(desc.pmid);
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
        let of = inst.map(|inst| format!(" instance {inst} has")).unwrap_or_default();
        let metric = Catalogs { agent: self.agent, schema: self.schema }.named(desc.pmid);
        error!(source = %self.client.source(), "{metric}:{of} several values");
        Err(Error::INST)
    }

    /// Logs why the metric, or some of its instances, have no values.
    #[cold]
    fn log_unserved(&mut self, pmid: PmId) {
        let catalogs = Catalogs { agent: self.agent, schema: self.schema };
        let is_declared = self.schema.name_of(pmid).is_some();
        self.unserved.log(self.client, pmid, is_declared, || catalogs.named(pmid));
    }

    /// Ends the value set of a metric whose code has panicked. Its error is `PM_ERR_GENERIC`.
    #[cold]
    fn panicked(&mut self, pmid: Option<PmId>, panic: &Panic) {
        self.out.fail_set(Error::GENERIC);
        self.unserved.forget();
        match pmid.map(|pmid| Catalogs { agent: self.agent, schema: self.schema }.named(pmid)) {
            // Each metric has its own limit, whichever client requests it.
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
