//! Thread that fetches operands from a pmcd and evaluates them. The agent's own thread must not wait for pmcd, because
//! pmcd waits for the agent.

use std::io::{self, PipeWriter};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::SigSet;
use pcp_client::HostSpec;
use pcp_derive::Names;
use pcp_derive::{Evaluator, Metadata as _, Missing};
use pcp_pdu::result::Changes;
use pmapi::{Domain, Error, Item, PmId, Result};
use tracing::{info, warn};

use crate::bound::Bound;
use crate::config::Group;
use crate::demand::Demand;
use crate::host;
use crate::link::{Link, Order, Snapshot};
use crate::metrics::Metrics;
use crate::operands::pmcd::{Connected, Pmcd};

/// Time between checks of pmcd while clients want no metric: names and agents may have been added.
const IDLE: Duration = Duration::from_secs(5);

/// Shortest and longest pause after a failed sample. Each further failure doubles the pause.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(8)];

/// Number of failures after which the agent no longer waits for the first snapshot.
const PATIENCE: u32 = 3;

/// Metric to fetch if no operands are needed. Change notifications come with a fetch, and a metric of pmcd itself costs
/// no other agent anything.
const NEWS: PmId = match Domain::new(2) {
    Some(pmcd) => PmId::new(pmcd, Item::new(0, 0)),
    None => unreachable!(),
};

/// Notifications that agents have been added, restarted or dropped.
const AGENTS: Changes = Changes(Changes::AGENT_ADDED.0 | Changes::AGENT_RESTARTED.0 | Changes::AGENT_DROPPED.0);

/// Kind of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Sample of all metrics that clients want, at the intervals of `delta` and `rate`.
    Regular,
    /// Sample of metrics that clients want since the last regular sample. It does not affect other metrics.
    Extra,
}

#[derive(Debug)]
pub(crate) struct Sampler {
    group: Group,
    pmcd: Pmcd,
    link: Arc<Link>,
    bound: Option<Bound>,
    /// Descriptors of the operands before a reload.
    known: Names,
    /// Whether the operands have to be looked up again after a reload.
    stale: bool,
    /// Snapshot that is published.
    latest: Option<Arc<Snapshot>>,
    /// Previous snapshot, whose memory the next one uses.
    spare: Option<Arc<Snapshot>>,
    /// Origin of the times of samples.
    started: Instant,
    /// Time of the last regular sample.
    last: Option<Instant>,
    interval: Duration,
    failures: u32,
    /// Closed when the agent no longer has to wait for the first snapshot.
    first: Option<PipeWriter>,
}

impl Sampler {
    pub(crate) fn new(group: Group, host: HostSpec, own: Domain, link: Arc<Link>, first: PipeWriter) -> Sampler {
        let interval = link.interval();
        Sampler {
            group,
            pmcd: Pmcd::new(host, own),
            link,
            bound: None,
            known: Names::default(),
            stale: false,
            latest: None,
            spare: None,
            started: Instant::now(),
            last: None,
            interval,
            failures: 0,
            first: Some(first),
        }
    }

    pub(crate) fn spawn(mut self) -> io::Result<()> {
        let name = self.group.name.chars().filter(|c| *c != '\0').take(15).collect();
        thread::Builder::new().name(name).spawn(move || {
            // In a shared object, signals are for pmcd's own thread.
            if let Err(e) = SigSet::all().thread_block() {
                warn!("cannot block signals in a sampler thread: {e}");
            }
            self.run();
        })?;
        Ok(())
    }

    fn run(&mut self) {
        loop {
            let (link, last) = (Arc::clone(&self.link), self.last);
            let idle = self.bound.as_ref().is_some_and(Bound::is_idle);
            let retry = last.filter(|_| self.failures > 0).map(|last| last + self.pause());
            let order = link.order(|interval| match (retry, last) {
                (Some(retry), _) => retry,
                (None, Some(last)) if idle => last + IDLE,
                (None, Some(last)) => last + interval,
                (None, None) => Instant::now(),
            });
            let kind = match order {
                Order::End => return,
                Order::Reload(group) => {
                    if let Some(bound) = self.bound.take() {
                        self.stale = bound.is_stale();
                        self.known = bound.into_names();
                    }
                    self.group = *group;
                    self.tick(None);
                    Kind::Regular
                }
                Order::Due(interval) => {
                    if self.interval != interval
                        && let Some(bound) = &mut self.bound
                    {
                        // Differences must not be over two samples with another interval between them.
                        bound.forget();
                    }
                    self.interval = interval;
                    self.tick(last.filter(|_| !idle && retry.is_none()));
                    Kind::Regular
                }
                Order::Asked if retry.is_some() => continue,
                Order::Asked if !idle && self.bound.is_some() => Kind::Extra,
                Order::Asked => {
                    self.tick(None);
                    Kind::Regular
                }
            };
            self.attempt(kind);
        }
    }

    /// Begins a regular sample: at the planned time, or now if the plan is late by the interval or more.
    fn tick(&mut self, last: Option<Instant>) {
        let now = Instant::now();
        let planned = last.map(|last| last + self.interval);
        self.last = planned.filter(|planned| now.saturating_duration_since(*planned) < self.interval).or(Some(now));
    }

    /// Takes a sample. Errors are published as `PM_ERR_AGAIN`, because pmcd would take the original codes for failures
    /// of this agent.
    fn attempt(&mut self, kind: Kind) {
        self.link.counters.samples.fetch_add(1, Relaxed);
        // The state that a panic leaves is not used: the definitions and the connection are dropped.
        let outcome = catch_unwind(AssertUnwindSafe(|| self.sample(kind))).unwrap_or(Err(Error::GENERIC));
        match outcome {
            Ok(()) => self.failures = 0,
            Err(e) => {
                if self.failures == 0 {
                    info!(
                        source = self.group.name,
                        "group {}: sampling failed and will be tried again: {e}", self.group.name
                    );
                }
                self.link.counters.errors.fetch_add(1, Relaxed);
                self.bound = None;
                if e == Error::GENERIC {
                    self.pmcd.disconnect();
                }
                self.failures += 1;
                self.last = Some(Instant::now());
                self.link.fail(Error::AGAIN, self.failures >= PATIENCE);
            }
        }
        if self.link.is_ready() {
            self.first = None;
        }
    }

    /// Returns the pause between a failed sample and the next one.
    fn pause(&self) -> Duration {
        (PAUSES[0] * (1 << (self.failures - 1).min(5))).min(PAUSES[1])
    }

    fn sample(&mut self, mut kind: Kind) -> Result<()> {
        if self.pmcd.connect()? == Connected::Anew {
            // Differences between the samples of two pmcds have no meaning.
            (self.bound, self.known) = (None, Names::default());
        }
        let mut bound = match self.bound.take() {
            Some(bound) => bound,
            None => {
                let (names, stale) = (self.names()?, std::mem::take(&mut self.stale));
                kind = Kind::Regular;
                self.tick(None);
                let mut bound = self.bind(names);
                if stale {
                    bound.set_stale();
                }
                bound
            }
        };
        bound = self.sample_of(bound, kind)?;
        // Not before the sample is published, because a client may wait for its values.
        if bound.is_stale() {
            let names = self.names()?;
            if !bound.is_same(&names) {
                self.tick(None);
                bound = self.bind(names);
                bound = self.sample_of(bound, Kind::Regular)?;
            }
        }
        self.bound = Some(bound);
        Ok(())
    }

    /// Takes a sample. If the operands have changed, binds the definitions anew and takes another sample.
    fn sample_of(&mut self, mut bound: Bound, mut kind: Kind) -> Result<Bound> {
        let taken = loop {
            bound.choose(kind);
            let (taken, changes) = self.take(&bound)?;
            // Agents that have been restarted may have reset their counters.
            let anew = changes.0 & AGENTS.0 != 0 || changes.contains(Changes::NAMES) && !self.is_as_bound(&bound)?;
            if !anew {
                let start = Instant::now();
                bound.evaluate(taken - self.started, self.pmcd.live()?);
                self.link.counters.evaluated(start.elapsed());
                if changes != Changes::default() {
                    bound.set_stale();
                }
                if bound.ask_instances(&mut self.pmcd, self.latest.as_deref(), taken)? {
                    break taken;
                }
                self.pmcd.live()?.forget_instances();
            }
            let names = self.names()?;
            bound = self.bind(names);
            kind = Kind::Regular;
            self.tick(None);
        };
        let snapshot = bound.snapshot(self.spare.take(), self.latest.as_deref(), taken);
        self.latest = Some(Arc::clone(&snapshot));
        self.spare = self.link.publish(snapshot, (!bound.is_idle()).then_some(taken));
        Ok(bound)
    }

    /// Fetches the operands. Returns the time of their values, and pmcd's change notifications.
    fn take(&mut self, bound: &Bound) -> Result<(Instant, Changes)> {
        self.link.sending();
        let live = self.pmcd.live()?;
        let before = Instant::now();
        if bound.operands().next().is_none() {
            return Ok((before, live.context().fetch(&[NEWS])?.changes()));
        }
        let changes = live.take(bound.operands())?;
        let after = Instant::now();
        // pmcd may have been busy before it fetched the values. Its clock may differ from this host's.
        let stamp = live.last().time();
        let stamp = Duration::new(u64::try_from(stamp.seconds).unwrap_or_default(), stamp.nanoseconds);
        let age =
            (SystemTime::UNIX_EPOCH.checked_add(stamp)).and_then(|stamp| stamp.elapsed().ok()).unwrap_or_default();
        Ok((after.checked_sub(age).unwrap_or(before).clamp(before, after), changes))
    }

    /// Returns whether the descriptors of a sample's operands are the same as when they were bound. Operands of an
    /// agent that is away count as unchanged: their values are errors.
    fn is_as_bound(&mut self, bound: &Bound) -> Result<bool> {
        self.link.sending();
        let mut names = Names::lookup(self.pmcd.live()?.context(), bound.operands().map(|operand| &*operand.name))?;
        Ok(bound.operands().all(|operand| match names.lookup(&operand.name) {
            Ok(desc) => desc == operand.desc,
            Err(missing) => missing == Missing::Desc,
        }))
    }

    fn names(&mut self) -> Result<Names> {
        self.link.sending();
        self.pmcd.names(std::mem::take(&mut self.known), &self.group.definitions)
    }

    fn bind(&mut self, mut names: Names) -> Bound {
        let operands = &mut self.pmcd.operands(&mut names);
        let evaluator = Evaluator::bind(&self.group.definitions, operands, self.group.novalue);
        let metrics = Metrics::new(&self.group, &evaluator);
        let (metrics, demand) = match &self.latest {
            Some(same) if *same.metrics == metrics => (Arc::clone(&same.metrics), Arc::clone(&same.demand)),
            old => {
                let (good, bad) = (metrics.good.len(), metrics.bad.len());
                info!(
                    source = self.group.name,
                    "group {}: {good} definitions are metrics, {bad} are not", self.group.name
                );
                metrics.bad.iter().for_each(|bad| crate::complain(&bad.name, &bad.message));
                let demand = match old {
                    Some(old) => old.demand.carried_over(&old.metrics, &metrics),
                    None => {
                        // Clients that have waited for the agent to be ready will look at all metrics.
                        let demand = Demand::default().carried_over(&Metrics::default(), &metrics);
                        (0..good).for_each(|place| demand.ask(place, host::soon(self.interval)));
                        demand
                    }
                };
                (Arc::new(metrics), Arc::new(demand))
            }
        };
        if let Some(old) = self.latest.take() {
            let new = !Arc::ptr_eq(&old.metrics, &metrics);
            let snapshot = if new { Arc::new(old.carried_over(&metrics, &demand)) } else { old };
            self.spare = self.link.announce(Arc::clone(&snapshot));
            self.latest = Some(snapshot);
        }
        Bound::new(names, evaluator, metrics, demand)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use allocation_counter::measure;
    use testkit::Pcp;

    use super::*;
    use crate::config::{Config, NameSpace};

    const CONFIG: &str = "\
plus = sample.long.one + sample.long.hundred
bins = sample.bin * 2 - sample.long.ten
some = matchinst(/bin-[12]00/, sample.bin)
one = sample.bin[bin-500]
utilised = rate(sample.milliseconds)
step = delta(sample.milliseconds)
speed = rate(sample.bin * instant(sample.milliseconds))
words = sample.string.hullo
highest = max(sample.bin) > 800 ? bins : novalue()
";

    #[test]
    #[ignore = "needs PCP"]
    fn a_steady_tick_allocates_nothing() {
        let pcp = Pcp::required();
        let sample = pcp.c_agent("sample");
        let pmcd = pcp.pmcd().pmdas_dir(sample.pmdas_dir()).agent(sample.agent()).start();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("conf"), CONFIG).unwrap();
        let (host, own) = (pmcd.host().parse().unwrap(), Domain::new(404).unwrap());
        let mut config = Config::load(dir.path().to_str().unwrap(), &host, &NameSpace::installed(own));
        assert_eq!(config.problems, []);
        let link = Arc::new(Link::new(Duration::from_secs(1)));
        let (_first, until) = io::pipe().unwrap();
        let mut sampler = Sampler::new(config.groups.remove(0), host, own, Arc::clone(&link), until);
        sampler.attempt(Kind::Regular);
        let snapshot = link.latest().0.unwrap();
        assert_eq!(snapshot.metrics.bad, []);
        let count = snapshot.slots.len();
        assert_eq!(count, CONFIG.lines().count());
        (0..count).for_each(|place| snapshot.demand.ask(place, Duration::from_secs(3600)));
        drop(snapshot);
        (0..5).for_each(|_| sampler.attempt(Kind::Regular));
        let allocated = measure(|| (0..10).for_each(|_| sampler.attempt(Kind::Regular)));
        assert_eq!((allocated.count_total, allocated.bytes_total), (0, 0));
        let snapshot = link.latest().0.unwrap();
        for (slot, metric) in snapshot.slots.iter().zip(&snapshot.metrics.good) {
            assert!(slot.outcome.is_ok() && !slot.values.is_empty(), "{}: {slot:?}", metric.name);
        }
        assert_eq!(link.counters.samples.load(Relaxed), 16);
        assert_eq!(link.counters.errors.load(Relaxed), 0);
    }
}
