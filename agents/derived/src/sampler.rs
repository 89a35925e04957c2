//! The thread that asks a pmcd and evaluates: the agent's own thread never does, because pmcd waits for it.

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

/// How often pmcd is looked at while nobody asks for anything: names and agents may have come.
const IDLE: Duration = Duration::from_secs(5);

/// After a sample that has failed; each further pause is twice as long, up to the last.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(8)];

/// After so many failures nobody has to wait for the first snapshot any more.
const PATIENCE: u32 = 3;

/// A metric of pmcd itself: values come with news, and this one costs no other agent anything.
const NEWS: PmId = match Domain::new(2) {
    Some(pmcd) => PmId::new(pmcd, Item::new(0, 0)),
    None => unreachable!(),
};

/// News that agents have come or gone.
const AGENTS: Changes = Changes(Changes::AGENT_ADDED.0 | Changes::AGENT_RESTARTED.0 | Changes::AGENT_DROPPED.0);

/// What a sample is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Everything that is asked for, on the clock of `delta` and `rate`.
    Regular,
    /// What has been asked for since. Nothing else notices.
    Extra,
}

#[derive(Debug)]
pub(crate) struct Sampler {
    group: Group,
    pmcd: Pmcd,
    link: Arc<Link>,
    bound: Option<Bound>,
    /// Operands of the definitions before a reload.
    known: Names,
    /// They have to be looked up again.
    stale: bool,
    /// The snapshot that is shown, and the one before, whose memory is used again.
    latest: Option<Arc<Snapshot>>,
    spare: Option<Arc<Snapshot>>,
    /// Times of samples are from here on.
    started: Instant,
    /// The last regular sample.
    last: Option<Instant>,
    interval: Duration,
    failures: u32,
    /// Closed when nobody has to wait for the first snapshot any more.
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
            // In pmcd, which loads the shared object, signals are for its own thread.
            if let Err(e) = SigSet::all().thread_block() {
                warn!("signals: {e}");
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
                        // A difference is one over the time between samples.
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

    /// A regular sample begins, at the time that was planned for it unless that is long ago.
    fn tick(&mut self, last: Option<Instant>) {
        let now = Instant::now();
        let planned = last.map(|last| last + self.interval);
        self.last = planned.filter(|planned| now.saturating_duration_since(*planned) < self.interval).or(Some(now));
    }

    /// Takes a sample. Errors of the connection are not for pmcd, which would take them for its own with this agent.
    fn attempt(&mut self, kind: Kind) {
        self.link.counters.samples.fetch_add(1, Relaxed);
        // What a panic leaves behind is dropped.
        let outcome = catch_unwind(AssertUnwindSafe(|| self.sample(kind))).unwrap_or(Err(Error::GENERIC));
        match outcome {
            Ok(()) => self.failures = 0,
            Err(e) => {
                if self.failures == 0 {
                    info!("group {}: {e}", self.group.name);
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

    /// The time between an attempt that has failed and the next.
    fn pause(&self) -> Duration {
        (PAUSES[0] * (1 << (self.failures - 1).min(5))).min(PAUSES[1])
    }

    fn sample(&mut self, mut kind: Kind) -> Result<()> {
        if self.pmcd.connect()? == Connected::Anew {
            // There is no difference between samples of two pmcds.
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
        // Only now, because somebody may wait for values.
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

    /// Takes a sample, of the same metrics or, if they have changed, of what they have become.
    fn sample_of(&mut self, mut bound: Bound, mut kind: Kind) -> Result<Bound> {
        let taken = loop {
            bound.choose(kind);
            let (taken, changes) = self.take(&bound)?;
            // Counters may have begun anew: there is no difference between this sample and the one before.
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

    /// Fetches operands, and says when their values are from.
    fn take(&mut self, bound: &Bound) -> Result<(Instant, Changes)> {
        self.link.sending();
        let live = self.pmcd.live()?;
        let before = Instant::now();
        if bound.operands().next().is_none() {
            return Ok((before, live.context().fetch(&[NEWS])?.changes()));
        }
        let changes = live.take(bound.operands())?;
        let after = Instant::now();
        // pmcd may have had other things to do before. Its clock may be another one.
        let stamp = live.last().time();
        let stamp = Duration::new(u64::try_from(stamp.seconds).unwrap_or_default(), stamp.nanoseconds);
        let age =
            (SystemTime::UNIX_EPOCH.checked_add(stamp)).and_then(|stamp| stamp.elapsed().ok()).unwrap_or_default();
        Ok((after.checked_sub(age).unwrap_or(before).clamp(before, after), changes))
    }

    /// Whether the operands of a sample are what they were when they were bound; of those that are away, the values are
    /// errors.
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
                info!("group {}: {good} definitions are metrics, {bad} are not", self.group.name);
                metrics.bad.iter().for_each(|bad| crate::complain(&bad.name, &bad.message));
                let demand = match old {
                    Some(old) => old.demand.carried_over(&old.metrics, &metrics),
                    None => {
                        // Who has waited for the agent to be ready looks at all of it next.
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
