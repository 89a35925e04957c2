//! Sampler: how a sample is taken, and how definitions are bound.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pcp_derived::{Descs, Evaluator};
use pcp_pdu::result::Changes;
use pmapi::{Error, Result};
use tracing::{info, warn};

use super::binding::Binding;
use super::lists::Identity;
use super::{Kind, Sampler, State};
use crate::config;
use crate::metrics::Metrics;
use crate::operands::{Connected, Operands, Taken};

/// Number of times that the definitions are bound in one sample. If the operands change more often, the sample fails.
pub(super) const BINDINGS: u32 = 5;

/// Time between lookups of the operands of invalid definitions, while pmcd reports no changes.
const AGAIN: Duration = Duration::from_secs(10);

/// Notifications that agents have been added, restarted or dropped.
const AGENTS: Changes = Changes::AGENT_ADDED.union(Changes::AGENT_RESTARTED).union(Changes::AGENT_DROPPED);

/// Fetching and publishing of samples.
impl Sampler {
    /// Takes a sample and publishes it. Binds the definitions if they are not bound, or if their operands have changed.
    pub(super) fn sample(&mut self, mut kind: Kind) -> Result<()> {
        let mut bound = match std::mem::replace(&mut self.state, State::Unbound) {
            State::Bound(binding) => Some(binding),
            State::Unbound | State::Failed => None,
        };
        if self.source.connect()? == Connected::Anew {
            // Differences between the samples of two pmcds have no meaning.
            (bound, self.names) = (None, Descs::default());
        }
        for _ in 0..BINDINGS {
            let mut binding = match bound.take() {
                Some(binding) => binding,
                None => {
                    kind = Kind::Full;
                    Box::new(self.bind()?)
                }
            };
            if !self.try_sample(&mut binding, kind)? {
                continue;
            }
            // Not before the sample is published: a client may be waiting for the values.
            let is_due = self.stale || !binding.metrics.bad.is_empty() && self.looked_up.elapsed() >= AGAIN;
            if is_due && !self.look_up_again()? {
                continue;
            }
            self.state = State::Bound(binding);
            return Ok(());
        }
        Err(Error::AGAIN)
    }

    /// Fetches operands, and evaluates and publishes the sample. Returns false, and publishes nothing, if the
    /// definitions have to be bound again.
    fn try_sample(&mut self, binding: &mut Binding, kind: Kind) -> Result<bool> {
        let Taken { at: taken, changes, is_complete } = self.fetch(binding, kind)?;
        if changes.intersects(AGENTS) {
            // Agents that have been restarted may have other metrics, and have reset their counters.
            self.names = Descs::default();
            return Ok(false);
        }
        if changes.contains(Changes::NAMES) && !self.look_up_again()? {
            return Ok(false);
        }
        if changes.contains(Changes::LABELS) {
            self.lists.request_labels();
        }
        if kind == Kind::Check {
            return self.finish_check(taken);
        }
        let is_first = std::mem::take(&mut self.is_idle);
        if is_first {
            // Differences must not be over a time in which no samples were taken.
            binding.forget();
        }
        self.limit(binding)?;
        let start = Instant::now();
        binding.evaluate(taken - self.started, self.source.values()?);
        let evaluation = start.elapsed();
        for (place, indom, values) in binding.computed() {
            let before = self.latest.as_ref().filter(|_| !is_first).and_then(|latest| latest.slots.get(place));
            if let (Some(indom), Ok(values)) = (indom, values) {
                self.lists.check(indom, values, before, taken);
            }
        }
        if self.ask_lists(taken)? == Identity::Changed {
            return Ok(false);
        }
        self.stale |= binding.has_other_types();
        self.publish(binding, taken, evaluation);
        self.shared.lock().published.figures.errors += u64::from(!is_complete);
        Ok(true)
    }

    /// Asks the source for instances that have been requested, and publishes them with the values of the last sample.
    fn finish_check(&mut self, taken: Instant) -> Result<bool> {
        let is_asked = self.lists.are_requested();
        if self.ask_lists(taken)? == Identity::Changed {
            return Ok(false);
        }
        let latest = self.latest.as_ref().filter(|_| is_asked).map(|latest| {
            let mut next = latest.carried_over(&latest.metrics);
            next.lists.clone_from(self.lists.known());
            next.label_changes = self.lists.label_changes;
            Arc::new(next)
        });
        let mut exchange = self.shared.lock();
        (exchange.published.outcome, exchange.published.ready) = (Ok(()), true);
        if let Some(latest) = latest {
            self.latest = Some(Arc::clone(&latest));
            exchange.published.snapshot = Some(latest);
        }
        Ok(true)
    }

    fn ask_lists(&mut self, taken: Instant) -> Result<Identity> {
        let identity = self.lists.ask(&mut *self.source, taken, self.limits.lists)?;
        if identity == Identity::Changed {
            self.source.forget_instances();
        }
        Ok(identity)
    }

    /// Leaves the largest metrics out of a sample whose values would need too much memory.
    fn limit(&mut self, binding: &mut Binding) -> Result<()> {
        let limit = self.limits.values;
        let Some(size) = binding.limit(&*self.source, limit) else {
            self.is_limited = false;
            return Ok(());
        };
        if !std::mem::replace(&mut self.is_limited, true) {
            let (group, host) = (&self.group.name, &self.source);
            warn!(
                source = %host,
                "group {group}: values from {host} would need {size} bytes, the limit is {limit}: the largest metrics have none"
            );
        }
        self.shared.lock().published.figures.large_samples += 1;
        Ok(())
    }

    /// Publishes a sample, in the memory of an old snapshot that the agent's thread no longer uses.
    fn publish(&mut self, binding: &Binding, taken: Instant, evaluation: Duration) {
        let mut snapshot = self.spare.take().unwrap_or_default();
        if Arc::get_mut(&mut snapshot).is_none() {
            snapshot = Arc::default();
        }
        if let Some(to) = Arc::get_mut(&mut snapshot) {
            binding.write(to, taken);
            to.lists.clone_from(self.lists.known());
            to.label_changes = self.lists.label_changes;
        }
        self.latest = Some(Arc::clone(&snapshot));
        let mut exchange = self.shared.lock();
        let published = &mut exchange.published;
        (published.outcome, published.ready) = (Ok(()), true);
        published.figures.evaluation = evaluation;
        published.figures.large_lists = self.lists.too_large;
        published.figures.sampled = Some(taken);
        self.spare = published.snapshot.replace(snapshot);
    }

    /// Fetches the operands, or nothing for a check.
    fn fetch(&mut self, binding: &Binding, kind: Kind) -> Result<Taken> {
        self.announce_request();
        if kind == Kind::Check { self.source.check() } else { binding.take(&mut *self.source) }
    }
}

/// Binding of the definitions.
impl Sampler {
    /// Looks up all operands again. Returns whether their descriptors are the same as before.
    fn look_up_again(&mut self) -> Result<bool> {
        let known = std::mem::take(&mut self.names);
        self.look_up()?;
        self.stale = false;
        Ok(self.names == known)
    }

    /// Looks up the operands whose descriptors are not known.
    fn look_up(&mut self) -> Result<()> {
        self.announce_request();
        self.looked_up = Instant::now();
        self.names = self.source.names(std::mem::take(&mut self.names), &self.group.definitions)?;
        Ok(())
    }

    /// Binds the definitions, and publishes their metrics before the first sample.
    fn bind(&mut self) -> Result<Binding> {
        self.look_up()?;
        self.lists.clear();
        self.last = Instant::now();
        let operands = &mut Operands { names: &mut self.names, known: &mut self.known, own: self.source.own() };
        let evaluator = Evaluator::bind(&self.group.definitions, operands, self.group.unknown_names());
        let metrics = Metrics::new(&self.group, &evaluator);
        let metrics = match &self.latest {
            Some(same) if *same.metrics == metrics => Arc::clone(&same.metrics),
            _ => {
                let metrics = Arc::new(metrics);
                self.announce(&metrics);
                metrics
            }
        };
        self.bound();
        Ok(Binding::new(evaluator, metrics))
    }

    /// Publishes new metrics, with the values of metrics that stay. The first metrics are published with the first
    /// sample instead.
    fn announce(&mut self, metrics: &Arc<Metrics>) {
        let (group, good, bad) = (&self.group.name, metrics.good.len(), metrics.bad.len());
        info!(source = group, "group {group}: {good} definitions are metrics, {bad} are not");
        for bad in &metrics.bad {
            config::warn_lines(&bad.name, &bad.message);
        }
        if let Some(old) = &self.latest {
            let snapshot = Arc::new(old.carried_over(metrics));
            self.latest = Some(Arc::clone(&snapshot));
            self.shared.lock().published.snapshot = Some(snapshot);
        }
    }
}
