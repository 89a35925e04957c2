//! What the agent's thread and a group's sampler have in common. Locks are held for as long as it takes to exchange
//! pointers: neither ever waits for the other's work.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pcp_derive::Values;
use pmapi::{Error, InDom, Result};

use crate::config::Group;
use crate::demand::Demand;
use crate::metrics::{List, Metric, Metrics};

/// One sample.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// What the definitions are bound to; another one when something about it is other.
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) demand: Arc<Demand>,
    /// One for each metric.
    pub(crate) slots: Vec<Slot>,
    /// Sorted by domain: those that somebody has asked about.
    pub(crate) lists: Vec<Known>,
    /// How often labels have changed.
    pub(crate) labels: u64,
}

/// The values of a metric.
#[derive(Debug)]
pub(crate) struct Slot {
    /// When they were sampled, if anybody had asked for them.
    pub(crate) taken: Option<Instant>,
    /// The error that stands in their place.
    pub(crate) outcome: Result<()>,
    pub(crate) values: Values,
}

impl Default for Slot {
    fn default() -> Slot {
        Slot { taken: None, outcome: Err(Error::AGAIN), values: Values::default() }
    }
}

impl Slot {
    /// There are no values any more.
    pub(crate) fn clear(&mut self) {
        if self.taken.is_some() {
            *self = Slot::default();
        }
    }

    pub(crate) fn copy_from(&mut self, other: &Slot) {
        (self.taken, self.outcome) = (other.taken, other.outcome);
        self.values.clone_from(&other.values);
    }

    pub(crate) fn assign(&mut self, values: Result<&Values>, taken: Instant) {
        (self.taken, self.outcome) = (Some(taken), values.map(|_| ()));
        match values {
            Ok(values) => self.values.clone_from(values),
            Err(_) => self.values = Values::default(),
        }
    }
}

/// The instances of a domain, and when they were known to be these.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) indom: InDom,
    pub(crate) list: Arc<List>,
    pub(crate) taken: Instant,
}

impl Snapshot {
    /// The same for other metrics: of those that have kept their name and look as before the values stay.
    pub(crate) fn carried_over(&self, metrics: &Arc<Metrics>, demand: &Arc<Demand>) -> Snapshot {
        let old = self.metrics.good.iter().zip(&self.slots);
        let old: HashMap<&str, _> = old.map(|(metric, slot)| (metric.name.as_str(), (metric, slot))).collect();
        let slot = |metric: &Metric| {
            let mut slot = Slot::default();
            if let Some((_, same)) = old.get(&*metric.name).filter(|(old, _)| old.looks_like(metric)) {
                slot.copy_from(same);
            }
            slot
        };
        let slots = metrics.good.iter().map(slot).collect();
        let (metrics, demand) = (Arc::clone(metrics), Arc::clone(demand));
        Snapshot { metrics, demand, slots, lists: self.lists.clone(), labels: self.labels }
    }

    /// The instances of a domain.
    pub(crate) fn list(&self, indom: InDom) -> Option<&Known> {
        self.lists
            .binary_search_by_key(&indom.word(), |known| known.indom.word())
            .ok()
            .and_then(|at| self.lists.get(at))
    }
}

/// Counted by the sampler.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) samples: AtomicU64,
    pub(crate) errors: AtomicU64,
    /// Nanoseconds that the evaluation of the last sample took.
    pub(crate) evaluation: AtomicU64,
}

impl Counters {
    pub(crate) fn evaluated(&self, time: Duration) {
        self.evaluation.store(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }
}

/// How long new definitions are waited for, all in all.
const BINDING: Duration = Duration::from_secs(1);

/// How long the sampler may take to send a request.
const SENDING: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(crate) struct Link {
    state: Mutex<State>,
    /// Orders for the sampler.
    orders: Condvar,
    /// A snapshot for the agent.
    news: Condvar,
    pub(crate) counters: Counters,
}

#[derive(Debug)]
struct State {
    latest: Option<Arc<Snapshot>>,
    /// How the last sample ended.
    outcome: Result<()>,
    taken: Option<Instant>,
    /// Nobody has to wait for the first snapshot any more.
    ready: bool,
    /// The sampler has something to do before the next snapshot, and nothing hinders it.
    busy: bool,
    asked: bool,
    /// Other definitions are being bound; until when it is worth to wait for them.
    reloading: Option<Instant>,
    /// It waits for orders.
    waits: bool,
    /// It has sent the request for the sample that is under way.
    sent: bool,
    interval: Duration,
    group: Option<Group>,
    ended: bool,
}

/// What the sampler wakes up for.
#[derive(Debug)]
pub(crate) enum Order {
    /// The next sample is due, with this time between samples.
    Due(Duration),
    /// Somebody asks for what there is no sample of.
    Asked,
    /// Other definitions.
    Reload(Box<Group>),
    /// Nobody is there any more.
    End,
}

impl State {
    /// A sample has ended: one with other definitions, unless the sampler still has to hear of them.
    fn settled(&mut self) {
        if self.group.is_none() {
            self.reloading = None;
        }
    }
}

impl Link {
    pub(crate) fn new(interval: Duration) -> Link {
        let state = State {
            latest: None,
            outcome: Err(Error::AGAIN),
            taken: None,
            ready: false,
            busy: false,
            asked: false,
            reloading: None,
            waits: false,
            sent: false,
            interval,
            group: None,
            ended: false,
        };
        Link { state: Mutex::new(state), orders: Condvar::new(), news: Condvar::new(), counters: Counters::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The agent's side.
impl Link {
    /// The latest snapshot, how the last sample ended, and the time between samples.
    pub(crate) fn latest(&self) -> (Option<Arc<Snapshot>>, Result<()>, Duration) {
        let state = self.lock();
        (state.latest.clone(), state.outcome, state.interval)
    }

    /// Time since the last sample.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.lock().taken.map(|taken| taken.elapsed())
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.lock().ready
    }

    pub(crate) fn interval(&self) -> Duration {
        self.lock().interval
    }

    pub(crate) fn set_interval(&self, interval: Duration) {
        self.lock().interval = interval;
        self.orders.notify_one();
    }

    /// Has a sample taken of what there is none of, and waits until the sampler has sent its request, unless it is in
    /// the middle of another one. So pmcd answers it before it asks this agent for something else.
    pub(crate) fn ask(&self) {
        let mut state = self.lock();
        state.asked = true;
        self.order_now(state);
    }

    /// Exchanges the definitions, and waits in the same way.
    pub(crate) fn reload(&self, group: Group) {
        let mut state = self.lock();
        state.group = Some(group);
        state.reloading = Some(Instant::now() + BINDING);
        self.order_now(state);
    }

    /// Waits for what other definitions are bound to.
    pub(crate) fn settle(&self, until: Instant) {
        let state = self.lock();
        let left = until.min(state.reloading.unwrap_or(until)).saturating_duration_since(Instant::now());
        drop(self.news.wait_timeout_while(state, left, |state| state.reloading.is_some()));
    }

    fn order_now(&self, mut state: MutexGuard<'_, State>) {
        state.sent = false;
        // Without a connection there is nothing to wait for.
        state.busy |= state.outcome.is_ok();
        self.orders.notify_one();
        if state.waits && state.busy {
            drop(self.news.wait_timeout_while(state, SENDING, |state| !state.sent));
        }
    }

    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.orders.notify_one();
    }

    /// Waits for a snapshot that is under way.
    pub(crate) fn wait(&self, until: Instant) {
        let state = self.lock();
        let left = until.saturating_duration_since(Instant::now());
        drop(self.news.wait_timeout_while(state, left, |state| state.busy));
    }
}

/// The sampler's side.
impl Link {
    /// Waits for orders. `due` gives the time of the next sample from the time between samples.
    pub(crate) fn order(&self, due: impl Fn(Duration) -> Instant) -> Order {
        let mut state = self.lock();
        let order = loop {
            if state.ended {
                break Order::End;
            }
            if let Some(group) = state.group.take() {
                break Order::Reload(Box::new(group));
            }
            state.waits = true;
            let left = due(state.interval).saturating_duration_since(Instant::now());
            if left.is_zero() {
                // What has been asked for is part of the sample that is due.
                state.asked = false;
                break Order::Due(state.interval);
            }
            if std::mem::take(&mut state.asked) {
                break Order::Asked;
            }
            state = self.orders.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        state.waits = false;
        order
    }

    /// The request for a sample goes out now.
    pub(crate) fn sending(&self) {
        self.lock().sent = true;
        self.news.notify_one();
    }

    /// Shows other metrics before the first sample of them.
    pub(crate) fn announce(&self, snapshot: Arc<Snapshot>) -> Option<Arc<Snapshot>> {
        let mut state = self.lock();
        state.settled();
        self.news.notify_one();
        state.latest.replace(snapshot)
    }

    /// Shows a snapshot, and gives back the one that was shown before.
    pub(crate) fn publish(&self, snapshot: Arc<Snapshot>, taken: Option<Instant>) -> Option<Arc<Snapshot>> {
        let mut state = self.lock();
        state.outcome = Ok(());
        state.taken = taken.or(state.taken);
        state.ready = true;
        state.settled();
        state.busy = state.asked || state.group.is_some();
        self.news.notify_one();
        state.latest.replace(snapshot)
    }

    /// An error stands in place of values. `ready`: there is no use in waiting for a snapshot.
    pub(crate) fn fail(&self, error: Error, ready: bool) {
        let mut state = self.lock();
        state.outcome = Err(error);
        state.ready |= ready;
        state.settled();
        (state.busy, state.sent) = (false, true);
        self.news.notify_one();
    }
}
