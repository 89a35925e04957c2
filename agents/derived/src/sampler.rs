//! Sampler: the thread of a group that fetches operands from a pmcd, or from agents that it starts, and evaluates them.
//! The agent's own thread must never wait for pmcd, because pmcd waits for the agent.
//!
//! # One clock
//!
//! Each `interval` the thread fetches the operands of all definitions in one request, evaluates all definitions,
//! publishes one [`Snapshot`] and sleeps. It stops when no client has asked for some time ([`Orders::until`]), and the
//! first request after that waits for a sample. While it has stopped, a *check* each [`IDLE`] fetches no operands, and
//! notices changes of names and agents. A check also serves requests for instances between two samples, and follows a
//! change of the started agents.
//!
//! ```text
//!               start, new definitions
//!                        |
//!                        v
//!   pause is over    +---------+     bound      +-------+
//!  ,---------------->| Unbound |--------------->| Bound |---.
//!  |                 +---------+                +-------+   | interval is over: sample
//!  |              error |   ^  other operands,   |   |  ^   |
//!  |                    |   '--------------------'   |  '---'
//!  |                    v      agents restarted      |
//!  |  +-----------------------+                      |
//!  '--| Failed, 250 ms to 8 s |<---------------------'
//!     +-----------------------+  error, panic, lost connection
//! ```
//!
//! A sample takes the binding out of the state, and only a complete one puts it back. So no binding is left after an
//! error or a panic.
//!
//! # Who waits
//!
//! | who waits | for what | at most |
//! |---|---|---|
//! | fetch or instances | a sample, if values or lists are missing | 10 ms after the request began ([`PATIENCE`]) |
//! | lookup of names | new definitions, after a reload | the same; in total, 1 s after the reload ([`BINDING`]) |
//! | lookup of names | the sampler's request to pmcd, if sampling had stopped | 2 ms ([`SENDING`]), and 10 ms after the request began |
//! | reload | the same | 2 ms for each group |
//! | start of the agent | the first sample of each group with agents of its own | `--agent-timeout`, in total |
//! | sampler | started agents, and other groups that share them | `--agent-timeout` for each sample |
//! | sampler | connection | 5 s, or `$PMCD_CONNECT_TIMEOUT` |
//! | sampler | answer of pmcd | 10 s for each request, or `$PMCD_REQUEST_TIMEOUT` |
//! | sampler | requests of clients | until the next sample is due |
//!
//! The agent does not wait while values are errors because of a failure. A lookup puts the sampler's request before the
//! client's next one in pmcd's queue. So a client that looks up a metric and then fetches it finds values: pmcd answers
//! the sampler in between, and the rest of the sample takes less than 10 ms.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use nix::sys::signal::SigSet;
use pcp_base::backoff::{Backoff, doubling};
use pcp_derived::{Column, Descs, Evaluator, Plan};
use pcp_pdu::result::Changes;
use pmapi::{Desc, Error, InDom, Result};
use pmda::Publisher;
use tracing::{info, warn};

use crate::config::{self, GroupConfig};
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::operands::{Connected, Operands, Sizes, Source, Taken, fitting};
use crate::snapshot::{Identity, Lists, Snapshot};

/// Longest time from the beginning of a request until it no longer waits for samplers. A sample that has received all
/// answers of pmcd is complete by then. Any other sample cannot be complete before pmcd has received the reply to this
/// request.
pub(crate) const PATIENCE: Duration = Duration::from_millis(10);

/// Longest total time that requests wait for new definitions to be bound.
pub(crate) const BINDING: Duration = Duration::from_secs(1);

/// Longest time that a request waits for the sampler to send its own request.
pub(crate) const SENDING: Duration = Duration::from_millis(2);

/// Number of times that the definitions are bound in one sample. If the operands change more often, the sample fails.
const BINDINGS: u32 = 5;

/// Time between lookups of the operands of invalid definitions, while pmcd reports no changes.
const AGAIN: Duration = Duration::from_secs(10);

/// Notifications that agents have been added, restarted or dropped.
const AGENTS: Changes = Changes::AGENT_ADDED.union(Changes::AGENT_RESTARTED).union(Changes::AGENT_DROPPED);

/// Time between checks while no client asks. They notice names and agents that have been added.
const IDLE: Duration = Duration::from_secs(5);

/// Pauses after failed samples.
const PAUSES: [Duration; 6] = doubling(Duration::from_millis(250));

/// Number of failures after which the agent no longer waits for the first snapshot.
const FAILURES: u32 = 3;

/// Kind of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Sample of all metrics.
    Full,
    /// Look at what has changed, and at requested instances, without values.
    Check,
}

#[derive(Debug)]
enum State {
    /// The next sample connects if necessary, and binds the definitions.
    Unbound,
    Bound(Box<Binding>),
    /// After a failure: the definitions are bound again when the pause is over.
    Failed,
}

#[derive(Debug)]
pub(crate) struct Sampler {
    state: State,
    group: GroupConfig,
    /// Number of the last reload that has been adopted.
    reload: u64,
    interval: Duration,
    source: Box<dyn Source>,
    orders: Arc<Mutex<Orders>>,
    publisher: Publisher<Published>,
    /// What is published, once it is ready.
    now: Published,
    /// Whether the agent no longer has to wait for the first snapshot.
    is_ready: bool,
    /// Descriptors of the operands.
    names: Descs,
    /// Last descriptor of each operand, by name.
    known: HashMap<String, Desc>,
    looked_up: Instant,
    /// Whether descriptors may have changed since they were looked up.
    stale: bool,
    lists: Lists,
    pub(crate) limits: Limits,
    /// Whether the last sample has left out metrics because of their size.
    is_limited: bool,
    /// Whether sampling has stopped because no client asked.
    is_idle: bool,
    /// Previous snapshot, whose memory the next one uses.
    spare: Option<Arc<Snapshot>>,
    /// Origin of the times of samples.
    started: Instant,
    /// Time of the last sample.
    last: Instant,
    /// Time of the last check.
    checked: Instant,
    /// Time at which the source was tended last.
    tended: Instant,
    /// Whether tending the source has shown changes that no sample has followed yet.
    has_changed: bool,
    /// Failures since the last complete sample.
    backoff: Backoff,
}

/// The thread and its states.
impl Sampler {
    pub(crate) fn new(
        group: GroupConfig,
        source: Box<dyn Source>,
        orders: Arc<Mutex<Orders>>,
        publisher: Publisher<Published>,
    ) -> Sampler {
        let (interval, now) = (lock(&orders).interval, Instant::now());
        Sampler {
            state: State::Unbound,
            group,
            reload: 0,
            interval,
            source,
            orders,
            publisher,
            now: Published::default(),
            is_ready: false,
            names: Descs::default(),
            known: HashMap::new(),
            looked_up: now,
            stale: false,
            lists: Lists::default(),
            limits: Limits::default(),
            is_limited: false,
            is_idle: false,
            spare: None,
            started: now,
            last: now,
            checked: now,
            tended: now,
            has_changed: false,
            backoff: Backoff::default(),
        }
    }

    /// Starts the thread. It ends when the agent drops the other end of the publisher.
    pub(crate) fn spawn(mut self) -> io::Result<()> {
        let name = self.group.name.chars().filter(|c| *c != '\0').take(15).collect();
        thread::Builder::new().name(name).spawn(move || {
            // In a shared object, signals are for pmcd's own thread.
            if let Err(e) = SigSet::all().thread_block() {
                warn!("cannot block signals in a sampler thread: {e}");
            }
            while let Some(kind) = self.wait() {
                self.attempt(kind);
            }
        })?;
        Ok(())
    }

    /// Waits until a sample is due. Returns its kind, or `None` if the group ends.
    fn wait(&mut self) -> Option<Kind> {
        while !self.publisher.is_closed() {
            let until = self.adopt();
            let now = Instant::now();
            let (due, kind) = self.due(now, until >= now);
            if due <= now {
                self.tended = now;
                match kind {
                    // At the planned time, or now if the plan is late by the interval or more.
                    Kind::Full => self.last = if now - due < self.interval { due } else { now },
                    Kind::Check => self.checked = now,
                }
                return Some(kind);
            }
            let tend = self.source.due(self.tended);
            if tend.is_some_and(|tend| tend <= now) {
                self.tend(now);
                continue;
            }
            self.publisher.wait(tend.map_or(due, |tend| tend.min(due)));
        }
        None
    }

    /// Starts agents of the source that are due, and publishes their problems.
    fn tend(&mut self, now: Instant) {
        self.tended = now;
        if self.source.tend() {
            self.has_changed = true;
            self.list_problems();
            self.publish();
        }
    }

    /// Lists the problems of the source again, if they have changed.
    fn list_problems(&mut self) {
        let version = self.source.problems_version();
        if self.now.problems_version != Some(version) {
            (self.now.problems, self.now.problems_version) = (Arc::new(self.source.problems()), Some(version));
        }
    }

    /// Adopts what the agent has ordered. Returns the time until which samples are wanted.
    fn adopt(&mut self) -> Instant {
        let mut orders = lock(&self.orders);
        if let (State::Bound(binding), true) = (&mut self.state, self.interval != orders.interval) {
            // Differences must not be over two samples with another interval between them.
            binding.forget();
        }
        self.interval = orders.interval;
        if let Some(group) = orders.group.take() {
            (self.group, self.reload) = (*group, orders.reload);
            self.state = State::Unbound;
        }
        for (indom, labels) in orders.indoms.drain() {
            self.lists.request(indom, labels);
        }
        orders.until
    }

    /// Returns the time and the kind of the next sample. `is_wanted` is whether clients have asked lately.
    fn due(&mut self, now: Instant, is_wanted: bool) -> (Instant, Kind) {
        match &self.state {
            State::Unbound => (now, Kind::Full),
            State::Failed => (now + self.backoff.wait(), Kind::Full),
            State::Bound(_) if is_wanted && self.is_idle => (now, Kind::Full),
            State::Bound(_) if is_wanted && self.last + self.interval <= now => (self.last + self.interval, Kind::Full),
            State::Bound(_) if self.lists.are_requested() || self.has_changed => (now, Kind::Check),
            State::Bound(_) if is_wanted => (self.last + self.interval, Kind::Full),
            State::Bound(_) => {
                // The last sample keeps its values for an interval. After that, differences begin again.
                self.is_idle |= self.last + self.interval <= now;
                (self.last.max(self.checked) + IDLE, Kind::Check)
            }
        }
    }

    /// Takes a sample. Errors are published as `PM_ERR_AGAIN`, because pmcd would take the original codes for failures
    /// of this agent.
    fn attempt(&mut self, kind: Kind) {
        self.now.figures.samples += 1;
        self.has_changed = false;
        let outcome = catch_unwind(AssertUnwindSafe(|| self.sample(kind))).unwrap_or(Err(Error::GENERIC));
        match outcome {
            Ok(()) => self.backoff.succeeded(),
            Err(e) => self.fail(e),
        }
        self.list_problems();
        self.now.bound = self.reload;
        self.now.finished += 1;
        self.now.figures.errors += u64::from(outcome.is_err());
        self.publish();
    }

    fn fail(&mut self, error: Error) {
        if self.backoff.failures() == 0 {
            let group = &self.group.name;
            info!(source = group, "group {group}: sampling failed and will be tried again: {error}");
        }
        if error == Error::GENERIC {
            // A panic may have left the connection in the middle of a message.
            self.source.disconnect();
        }
        self.names = Descs::default();
        self.backoff.failed(&PAUSES);
        self.state = State::Failed;
        self.now.outcome = Err(Error::AGAIN);
        self.is_ready |= self.backoff.failures() >= FAILURES;
    }

    /// Publishes the present state.
    fn publish(&self) {
        if self.is_ready {
            self.publisher.publish(self.now.clone());
        }
    }

    /// Tells a request that waits for it that the sampler is about to send a request to pmcd.
    fn announce_request(&mut self) {
        self.now.sent += 1;
        self.publish();
    }
}

/// Fetching and publishing of samples.
impl Sampler {
    /// Takes a sample and publishes it. Binds the definitions if they are not bound, or if their operands have changed.
    fn sample(&mut self, mut kind: Kind) -> Result<()> {
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
            let before = self.now.snapshot.as_ref().filter(|_| !is_first).and_then(|latest| latest.slots.get(place));
            if let (Some(indom), Ok(values)) = (indom, values) {
                self.lists.check(indom, values, before, taken);
            }
        }
        if self.ask_lists(taken)? == Identity::Changed {
            return Ok(false);
        }
        self.stale |= binding.has_other_types();
        self.write(binding, taken);
        self.now.figures.evaluation = evaluation;
        self.now.figures.errors += u64::from(!is_complete);
        (self.now.outcome, self.is_ready) = (Ok(()), true);
        self.publish();
        Ok(true)
    }

    /// Asks the source for instances that have been requested, and publishes them with the values of the last sample.
    fn finish_check(&mut self, taken: Instant) -> Result<bool> {
        let is_asked = self.lists.are_requested();
        if self.ask_lists(taken)? == Identity::Changed {
            return Ok(false);
        }
        if let Some(latest) = self.now.snapshot.as_ref().filter(|_| is_asked) {
            let mut next = latest.carried_over(&latest.metrics);
            next.lists.clone_from(self.lists.known());
            next.label_changes = self.lists.label_changes;
            self.now.snapshot = Some(Arc::new(next));
        }
        (self.now.outcome, self.is_ready) = (Ok(()), true);
        self.publish();
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
        self.now.figures.large_samples += 1;
        Ok(())
    }

    /// Writes a sample into a snapshot, in the memory of an old one that the agent's thread no longer uses.
    fn write(&mut self, binding: &Binding, taken: Instant) {
        let mut snapshot = self.spare.take().unwrap_or_default();
        if Arc::get_mut(&mut snapshot).is_none() {
            snapshot = Arc::default();
        }
        if let Some(to) = Arc::get_mut(&mut snapshot) {
            binding.write(to, taken);
            to.lists.clone_from(self.lists.known());
            to.label_changes = self.lists.label_changes;
        }
        self.spare = self.now.snapshot.replace(snapshot);
        (self.now.figures.sampled, self.now.figures.large_lists) = (Some(taken), self.lists.too_large);
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
        let metrics = match &self.now.snapshot {
            Some(same) if *same.metrics == metrics => Arc::clone(&same.metrics),
            _ => {
                let metrics = Arc::new(metrics);
                self.announce(&metrics);
                metrics
            }
        };
        self.now.bound = self.reload;
        self.publish();
        Ok(Binding::new(evaluator, metrics))
    }

    /// Logs new metrics, and prepares to publish them with the values of metrics that stay. The first metrics are published
    /// with the first sample instead.
    fn announce(&mut self, metrics: &Arc<Metrics>) {
        let (group, good, bad) = (&self.group.name, metrics.good.len(), metrics.bad.len());
        info!(source = group, "group {group}: {good} definitions are metrics, {bad} are not");
        for bad in &metrics.bad {
            config::warn_lines(&bad.name, &bad.message);
        }
        if let Some(old) = &self.now.snapshot {
            self.now.snapshot = Some(Arc::new(old.carried_over(metrics)));
        }
    }
}

/// Statistics of a group, for `derived.control`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// Samples that were attempted.
    pub(crate) samples: u64,
    /// Samples that failed, or that lack the values of an agent.
    pub(crate) errors: u64,
    /// Samples that were not evaluated because of [`Limits::values`](crate::limits::Limits::values).
    pub(crate) large_samples: u64,
    /// Instance lists that were left out because of [`Limits::lists`](crate::limits::Limits::lists).
    pub(crate) large_lists: u64,
    /// Duration of the last evaluation.
    pub(crate) evaluation: Duration,
    /// Time of the last sample.
    pub(crate) sampled: Option<Instant>,
}

/// State that the sampler publishes.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) snapshot: Option<Arc<Snapshot>>,
    /// Outcome of the last sample. An error stands in place of all values.
    pub(crate) outcome: Result<()>,
    /// Number of requests that the sampler has begun to send to pmcd.
    pub(crate) sent: u64,
    /// Number of samples that are complete or have failed. It is less than [`Figures::samples`] during a sample.
    pub(crate) finished: u64,
    /// Number of the last reload whose definitions have been bound or have failed.
    pub(crate) bound: u64,
    pub(crate) figures: Figures,
    /// Problems of the source of operands: pairs of a subject and a message.
    pub(crate) problems: Arc<Vec<(String, String)>>,
    /// Version of the problems.
    pub(crate) problems_version: Option<u64>,
}

impl Default for Published {
    fn default() -> Published {
        Published {
            snapshot: None,
            outcome: Err(Error::AGAIN),
            sent: 0,
            finished: 0,
            bound: 0,
            figures: Figures::default(),
            problems: Arc::default(),
            problems_version: None,
        }
    }
}

impl Published {
    /// Returns whether the sampler is taking a sample.
    pub(crate) fn is_sampling(&self) -> bool {
        self.figures.samples > self.finished
    }
}

/// What the agent wants of a sampler.
#[derive(Debug)]
pub(crate) struct Orders {
    /// Time until which the group is sampled, unless clients ask again.
    pub(crate) until: Instant,
    pub(crate) interval: Duration,
    /// Configuration that the sampler has not adopted yet.
    pub(crate) group: Option<Box<GroupConfig>>,
    /// Number of reloads so far.
    pub(crate) reload: u64,
    /// Domains whose instances clients have requested since the last sample, with labels if the value is true.
    pub(crate) indoms: HashMap<InDom, bool>,
}

impl Orders {
    /// Orders to sample a group until a time.
    pub(crate) fn new(interval: Duration, until: Instant) -> Orders {
        Orders { until, interval, group: None, reload: 0, indoms: HashMap::new() }
    }
}

/// Locks the orders. The lock is held while a few words are exchanged.
pub(crate) fn lock(orders: &Mutex<Orders>) -> MutexGuard<'_, Orders> {
    orders.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Definitions bound to the metrics of a pmcd.
#[derive(Debug)]
struct Binding {
    evaluator: Evaluator,
    metrics: Arc<Metrics>,
    /// Plan of all metrics.
    all: Plan,
    /// Places of metrics that the current sample leaves out, because the values would need too much memory. Sorted.
    left_out: Vec<usize>,
    /// Plan of the other metrics, if the current sample leaves out any.
    rest: Plan,
    /// Sizes of the operands. Kept to reuse the memory.
    sizes: Sizes,
}

impl Binding {
    fn new(evaluator: Evaluator, metrics: Arc<Metrics>) -> Binding {
        let all = evaluator.plan(metrics.good.iter().map(|metric| metric.id));
        let (left_out, rest, sizes) = (Vec::new(), Plan::default(), Sizes::default());
        Binding { evaluator, metrics, all, left_out, rest, sizes }
    }

    /// Discards the history of `delta` and `rate`.
    fn forget(&mut self) {
        self.evaluator.forget(&self.all);
    }

    /// Fetches the operands of all metrics.
    fn take(&self, source: &mut dyn Source) -> Result<Taken> {
        source.take(&self.evaluator, &self.all)
    }

    /// Leaves the largest metrics out of the sample if the values might need more than `limit` bytes together. Then it
    /// returns the bytes that they might need.
    fn limit(&mut self, source: &dyn Source, limit: usize) -> Option<usize> {
        self.left_out.clear();
        let mut sizes = std::mem::take(&mut self.sizes);
        sizes.clear();
        source.sizes(&self.evaluator, &self.all, &mut sizes);
        let by_size = self.metrics.good.iter().enumerate().map(|(place, metric)| (sizes.of(&metric.desc), place));
        let size = by_size.clone().map(|(size, _)| size).sum();
        let by_size = (size > limit).then(|| by_size.collect::<Vec<_>>());
        self.sizes = sizes;
        let mut by_size = by_size?;
        let count = fitting(&mut by_size, limit);
        let (fit, left_out) = by_size.split_at(count);
        let id = |(_, place): &(usize, usize)| self.metrics.good.get(*place).map(|metric| metric.id);
        self.rest = self.evaluator.plan(fit.iter().filter_map(id));
        // A difference must not be over a sample that had no values.
        let missed = self.evaluator.plan_beyond(&self.rest, left_out.iter().filter_map(id));
        self.evaluator.forget(&missed);
        self.left_out.extend(left_out.iter().map(|(_, place)| *place));
        self.left_out.sort_unstable();
        Some(size)
    }

    /// Evaluates the sample. `stamp` is the time of the operands' values since the sampler's start.
    fn evaluate(&mut self, stamp: Duration, values: &mut dyn pcp_derived::Source) {
        let plan = if self.left_out.is_empty() { &self.all } else { &self.rest };
        self.evaluator.evaluate(plan, stamp, values);
    }

    fn is_left_out(&self, place: usize) -> bool {
        self.left_out.binary_search(&place).is_ok()
    }

    /// Returns the metrics that have been computed: place, instance domain and values.
    fn computed(&self) -> impl Iterator<Item = (usize, Option<InDom>, Result<&Column>)> {
        let metrics = self.metrics.good.iter().enumerate();
        metrics
            .filter(|(place, _)| !self.is_left_out(*place))
            .map(|(place, metric)| (place, metric.desc.indom, self.evaluator.values(metric.id)))
    }

    /// Returns whether operands have other types than when the definitions were bound.
    fn has_other_types(&self) -> bool {
        self.computed().any(|(_, _, values)| values.err() == Some(Error::CONV))
    }

    /// Writes the sample into a snapshot.
    fn write(&self, to: &mut Snapshot, taken: Instant) {
        if !Arc::ptr_eq(&to.metrics, &self.metrics) {
            to.metrics = Arc::clone(&self.metrics);
            to.slots.clear();
            to.slots.resize_with(self.metrics.good.len(), Default::default);
        }
        for (place, (slot, metric)) in to.slots.iter_mut().zip(&self.metrics.good).enumerate() {
            let values = if self.is_left_out(place) { Err(Error::TOOBIG) } else { self.evaluator.values(metric.id) };
            slot.assign(Some(taken), values);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
