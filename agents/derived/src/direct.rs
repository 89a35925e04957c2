//! Groups over agents that this one starts, evaluated when a client asks.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pcp_derive::{Column, DefinitionId, Evaluator, Plan};
use pmapi::{Error, InDom, Result};
use pmda::{Instances, PollSet};
use tracing::warn;

use crate::config::{GroupConfig, Operands};
use crate::limits::Limits;
use crate::metrics::{Labels, List, Metrics};
use crate::operands::agents::{Agents, ChangeCounts, Pool};
use crate::operands::sizes::{Sizes, fitting};
use crate::running::{Figures, Running};

/// Group whose operands are metrics of agents that this one has started.
///
/// A fetch takes one sample of the operands that its metrics need, and evaluates these metrics from it.
///
/// Metrics with `delta` or `rate` are evaluated less often. Those that clients have requested lately are evaluated
/// together, when at least nine tenths of the interval have passed since the last time. In between they keep their
/// values. So a rate is over the time since the agent's previous sample, as in libpcp, but never over a time so short
/// that the rate is noise. All clients get the same rates, however often each of them fetches.
#[derive(Debug)]
pub(crate) struct Direct {
    group: GroupConfig,
    agents: Rc<RefCell<Agents>>,
    interval: Duration,
    /// Longest time that a request may wait for the agents.
    patience: Duration,
    started: Instant,
    bound: Option<Binding>,
    lists: HashMap<InDom, List>,
    /// Sizes of the operands of the last sample.
    sizes: Sizes,
    limits: Limits,
    figures: Figures,
}

/// Definitions bound to the metrics of the agents.
#[derive(Debug)]
struct Binding {
    evaluator: Evaluator,
    metrics: Arc<Metrics>,
    /// Counts of the agents' changes at the time of binding.
    changes: ChangeCounts,
    /// Earliest time of the next binding.
    again: Instant,
    /// Times of the last requests of definitions with history, `None` before the first one. The entry itself is `None`
    /// for a definition without history.
    asked: Vec<Option<Option<Instant>>>,
    /// Time of the last evaluation of definitions with history.
    ticked: Option<Instant>,
    /// Definitions that `plan` evaluates.
    wanted: Vec<DefinitionId>,
    plan: Plan,
    /// Definitions to evaluate now.
    next: Vec<DefinitionId>,
    /// Definitions that were left out when they were to be evaluated last, because the values would have needed too much
    /// memory.
    left_out: BTreeSet<DefinitionId>,
}

impl Direct {
    /// Time without a request after which a definition with history is no longer evaluated; at least ten intervals.
    const IDLE: Duration = Duration::from_secs(60);

    /// Starts the agents that are not in the pool, and waits for them for at most `patience`. Each request also waits
    /// for at most `patience`, which has to be less than pmcd's timeout for this agent.
    pub(crate) fn new(group: GroupConfig, interval: Duration, patience: Duration, pool: &mut Pool) -> Direct {
        let started = Instant::now();
        let agents = match &group.operands {
            Operands::Agents(specs) => pool.agents(specs),
            Operands::Host(_) => pool.agents(&[]),
        };
        agents.borrow_mut().wait_for_start(started + patience);
        Direct {
            interval: group.interval.unwrap_or(interval),
            group,
            agents,
            patience,
            started,
            bound: None,
            lists: HashMap::new(),
            sizes: Sizes::default(),
            limits: Limits::default(),
            figures: Figures::default(),
        }
    }

    /// Binds the definitions again. They keep their history if all metrics and operands are the same as before, and no
    /// agent has been restarted.
    fn bind(&mut self) {
        let start = Instant::now();
        let mut agents = self.agents.borrow_mut();
        let changes = agents.changes();
        let evaluator = Evaluator::bind(self.group.definitions.iter(), &mut *agents, self.group.unknown_names());
        let metrics = Metrics::new(&self.group, &evaluator);
        // Rebinding may take at most 1/20 of the time, however often the agents report changes.
        let again = Instant::now() + self.interval.max(20 * start.elapsed());
        let metrics = match self.bound.take() {
            Some(old) if *old.metrics != metrics => Arc::new(metrics),
            Some(old) if old.changes.starts == changes.starts && old.evaluator.operands() == evaluator.operands() => {
                self.bound = Some(Binding { changes, again, ..old });
                return;
            }
            Some(old) => old.metrics,
            None => Arc::new(metrics),
        };
        let asked = evaluator.have_history().into_iter().map(|has| has.then_some(None)).collect();
        let (plan, wanted, next, left_out, ticked) =
            (evaluator.plan([]), Vec::new(), Vec::new(), BTreeSet::new(), None);
        self.bound = Some(Binding { evaluator, metrics, changes, again, asked, ticked, wanted, plan, next, left_out });
    }

    /// Returns whether the definitions must be bound again.
    fn is_stale(&self) -> bool {
        let Some(bound) = &self.bound else { return true };
        let changes = self.agents.borrow().changes();
        changes.starts != bound.changes.starts || changes.names != bound.changes.names && Instant::now() >= bound.again
    }
}

impl Binding {
    /// Decides which definitions to evaluate in a fetch of `places`. Returns whether there are any.
    fn choose(&mut self, places: &mut dyn Iterator<Item = usize>, now: Instant, interval: Duration) -> bool {
        self.next.clear();
        let mut history = false;
        for place in places {
            let Some(id) = self.metrics.good.get(place).map(|metric| metric.id) else { continue };
            match self.asked.get_mut(id.index()) {
                Some(Some(asked)) => (*asked, history) = (Some(now), true),
                _ => self.next.push(id),
            }
        }
        if history && self.ticked.is_none_or(|ticked| now.duration_since(ticked) >= interval.mul_f64(0.9)) {
            self.ticked = Some(now);
            let idle = Direct::IDLE.max(10 * interval);
            for (id, asked) in self.evaluator.ids().zip(&self.asked) {
                if asked.flatten().is_some_and(|asked| now.duration_since(asked) <= idle) {
                    self.next.push(id);
                }
            }
        }
        if !self.next.is_empty() && self.next != self.wanted {
            self.plan = self.evaluator.plan(self.next.iter().copied());
            self.wanted.clone_from(&self.next);
        }
        !self.next.is_empty()
    }

    /// Leaves the largest of the definitions to evaluate out if the values might need more than `limit` bytes together.
    /// Then it returns the bytes that they might need.
    fn limit(&mut self, sizes: &Sizes, limit: usize) -> Option<usize> {
        if !self.left_out.is_empty() {
            self.next.iter().for_each(|id| _ = self.left_out.remove(id));
        }
        let size_of = |id| self.evaluator.desc(id).map_or(0, |desc| sizes.of(&desc));
        let size = self.next.iter().map(|id| size_of(*id)).sum();
        if size <= limit {
            return None;
        }
        let mut by_size: Vec<_> = self.next.iter().map(|id| (size_of(*id), *id)).collect();
        let count = fitting(&mut by_size, limit);
        let (fit, left_out) = by_size.split_at(count);
        self.plan = self.evaluator.plan(fit.iter().map(|(_, id)| *id));
        self.left_out.extend(left_out.iter().map(|(_, id)| *id));
        // A difference must not be over a sample that had no values.
        let missed = self.evaluator.plan_beyond(&self.plan, left_out.iter().map(|(_, id)| *id));
        self.evaluator.forget(&missed);
        // The plan is not that of `wanted` any more.
        self.wanted.clear();
        Some(size)
    }
}

impl Running for Direct {
    fn begin(&mut self, _: Instant) -> Option<&Arc<Metrics>> {
        self.agents.borrow_mut().begin(Instant::now() + self.patience);
        if self.is_stale() {
            self.bind();
        }
        self.bound.as_ref().map(|bound| &bound.metrics)
    }

    fn prepare(&mut self, places: &mut dyn Iterator<Item = usize>) {
        let Some(bound) = &mut self.bound else { return };
        let now = Instant::now();
        if !bound.choose(places, now, self.interval) {
            return;
        }
        let mut agents = self.agents.borrow_mut();
        let complete = agents.take(bound.evaluator.operands_of(&bound.plan));
        let sizes = &mut self.sizes;
        sizes.clear();
        agents.sizes(bound.evaluator.operands_of(&bound.plan), sizes);
        let limit = self.limits.values;
        if let Some(size) = bound.limit(sizes, limit) {
            let group = &self.group.name;
            warn!(
                source = group,
                "group {group}: values would need {size} bytes, the limit is {limit}: the largest metrics have none"
            );
            self.figures.large_samples += 1;
        }
        let stamp = Instant::now();
        bound.evaluator.evaluate(&bound.plan, stamp.duration_since(self.started), &mut *agents);
        self.figures.evaluation = stamp.elapsed();
        self.figures.samples += 1;
        self.figures.errors += u64::from(!complete);
        self.figures.sampled = Some(stamp);
    }

    fn expect(&self, _: &[usize]) {}

    fn expect_instances(&mut self, indom: InDom, labels: bool) {
        // The previous list stays in use while the agent is away.
        let Ok(list) = self.agents.borrow_mut().list(indom, labels) else { return };
        self.lists.remove(&indom);
        if self.lists.values().map(List::size).sum::<usize>() + list.size() > self.limits.lists {
            let group = &self.group.name;
            warn!(source = group, "group {group}: instances of domain {indom} have no names: there are too many");
            self.figures.large_lists += 1;
            return;
        }
        self.lists.insert(indom, list);
    }

    fn values(&self, place: usize) -> Result<&Column> {
        let bound = self.bound.as_ref().ok_or(Error::AGAIN)?;
        let id = bound.metrics.good.get(place).ok_or(Error::PMID)?.id;
        if bound.left_out.contains(&id) {
            return Err(Error::TOOBIG);
        }
        bound.evaluator.values(id)
    }

    fn instances(&self, indom: InDom) -> Option<&dyn Instances> {
        self.lists.get(&indom).map(|list| list as &dyn Instances)
    }

    fn labels(&self, indom: InDom) -> Option<&Labels> {
        self.lists.get(&indom)?.labels()
    }

    fn label_changes(&self) -> u64 {
        self.agents.borrow().changes().labels
    }

    fn close(&mut self) {
        self.agents.borrow_mut().close();
    }

    fn reload(&mut self, group: GroupConfig) {
        self.group = group;
        self.bound = None;
    }

    /// Returns true from the start: while one agent is away, the metrics of others have values.
    fn is_ready(&self) -> bool {
        true
    }

    fn sources<'a>(&'a self, set: &mut PollSet<'a>) {
        if let Some(due) = self.agents.borrow().due() {
            set.at(due);
        }
    }

    fn wake(&mut self) {
        self.agents.borrow_mut().tend();
    }

    fn problems(&self) -> Vec<(String, String)> {
        self.agents.borrow().problems().map(|(name, why)| (format!("agent {name}"), why.to_owned())).collect()
    }

    fn problems_version(&self) -> u64 {
        self.agents.borrow().problems_version()
    }

    fn interval(&self) -> Duration {
        self.interval
    }

    fn set_interval(&mut self, interval: Duration) {
        self.interval = interval;
    }

    fn figures(&self) -> Figures {
        self.figures
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fmt::Write as _;

    use pmapi::Domain;
    use testkit::Pcp;

    use super::*;
    use crate::config::{Config, NameSpace};

    /// Starts PCP's agent `sample` for a group with these definitions, in the order of their names.
    fn group(definitions: &[(&str, &str)]) -> (Direct, tempfile::TempDir) {
        let sample = Pcp::required().c_agent("sample");
        let dir = tempfile::tempdir().unwrap();
        let mut text = format!(
            "[group.g]\nagent = {{ domain = 29, command = ['{}', '-d', '29', '-l', '{}'], pmns = '{}' }}\n",
            sample.binary().display(),
            dir.path().join("sample.log").display(),
            sample.root().display()
        );
        for (name, expr) in definitions {
            writeln!(text, "metric.{name} = '{expr}'").unwrap();
        }
        std::fs::write(dir.path().join("conf.toml"), text).unwrap();
        let (path, own) = (dir.path().join("conf.toml"), Domain::new(404).unwrap());
        let host = "local:".parse().unwrap();
        let config = Config::load(path.to_str().unwrap(), &host, &NameSpace::new(pmns::Tree::new(), own));
        assert_eq!(config.problems, []);
        let group = config.groups.into_iter().find(|group| group.name == "g").unwrap();
        (Direct::new(group, Duration::from_secs(3600), Duration::from_secs(30), &mut Pool::default()), dir)
    }

    /// Fetches `names`. Returns the number of values of each, or its error.
    fn fetch(direct: &mut Direct, names: &[&str]) -> Vec<Result<usize>> {
        let metrics = Arc::clone(direct.begin(Instant::now()).unwrap());
        let place = |name: &&str| metrics.good.iter().position(|metric| metric.name.ends_with(*name)).unwrap();
        let places: Vec<usize> = names.iter().map(place).collect();
        direct.prepare(&mut places.iter().copied());
        let counts = places.iter().map(|place| direct.values(*place).map(Column::len)).collect();
        direct.done();
        counts
    }

    /// Nine values need 144 bytes, one value 16.
    #[test]
    #[ignore = "needs PCP"]
    fn large_metrics_leave_room_for_others() {
        let (mut direct, _dir) =
            group(&[("many", "sample.bin * 2"), ("one", "sample.long.one"), ("speed", "rate(sample.milliseconds)")]);
        assert_eq!(fetch(&mut direct, &["many", "one"]), [Ok(9), Ok(1)]);
        direct.limits.values = 40;
        assert_eq!(fetch(&mut direct, &["many", "one", "speed"]), [Err(Error::TOOBIG), Ok(1), Ok(0)]);
        assert_eq!(direct.figures.large_samples, 1);
        // The error is that of the metric alone, also for a client that has not requested the others.
        assert_eq!(fetch(&mut direct, &["speed"]), [Ok(0)]);
        assert_eq!(fetch(&mut direct, &["many"]), [Err(Error::TOOBIG)]);
        assert_eq!(fetch(&mut direct, &["one"]), [Ok(1)]);
        direct.limits.values = 200;
        assert_eq!(fetch(&mut direct, &["many", "one"]), [Ok(9), Ok(1)]);
    }

    /// A rate whose definition was left out in between begins again.
    #[test]
    #[ignore = "needs PCP"]
    fn rates_do_not_bridge_samples_that_left_them_out() {
        let (mut direct, _dir) = group(&[("one", "sample.long.one"), ("speed", "rate(sample.milliseconds)")]);
        direct.interval = Duration::ZERO;
        assert_eq!(fetch(&mut direct, &["one", "speed"]), [Ok(1), Ok(0)]);
        assert_eq!(fetch(&mut direct, &["one", "speed"]), [Ok(1), Ok(1)]);
        // Of metrics of the same size, the first ones fit.
        direct.limits.values = 20;
        assert_eq!(fetch(&mut direct, &["one", "speed"]), [Ok(1), Err(Error::TOOBIG)]);
        direct.limits.values = 200;
        assert_eq!(fetch(&mut direct, &["one", "speed"]), [Ok(1), Ok(0)]);
        assert_eq!(fetch(&mut direct, &["one", "speed"]), [Ok(1), Ok(1)]);
    }
}
