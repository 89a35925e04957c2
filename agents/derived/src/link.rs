//! State that the agent's thread and a group's sampler share. Locks are only held to exchange pointers: neither thread
//! waits for the other's work.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pcp_derive::Values;
use pmapi::{Error, InDom, Result};

use crate::config::Group;
use crate::demand::Demand;
use crate::metrics::{List, Metric, Metrics};

/// Values of one sample.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// Metrics that the definitions are bound to. Replaced when anything about them changes.
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) demand: Arc<Demand>,
    /// Values of each metric, by place.
    pub(crate) slots: Vec<Slot>,
    /// Instance lists, sorted by domain.
    pub(crate) lists: Vec<Known>,
    /// Number of label changes so far.
    pub(crate) labels: u64,
}

/// Values of a metric.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Time of the sample. `None` if the metric has not been sampled.
    pub(crate) taken: Option<Instant>,
    /// Error that stands in place of values.
    pub(crate) outcome: Result<()>,
    pub(crate) values: Values,
}

impl Default for Slot {
    fn default() -> Slot {
        Slot { taken: None, outcome: Err(Error::AGAIN), values: Values::default() }
    }
}

impl Slot {
    /// Removes the values.
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

/// Instances of a domain, and the time at which the list was valid last.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) indom: InDom,
    pub(crate) list: Arc<List>,
    pub(crate) taken: Instant,
}

impl Snapshot {
    /// Returns a snapshot of other metrics. A metric that keeps its name and looks the same to clients keeps its
    /// values.
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

    /// Returns the instances of a domain.
    pub(crate) fn list(&self, indom: InDom) -> Option<&Known> {
        self.lists
            .binary_search_by_key(&indom.word(), |known| known.indom.word())
            .ok()
            .and_then(|at| self.lists.get(at))
    }
}

/// Statistics of the sampler.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) samples: AtomicU64,
    pub(crate) errors: AtomicU64,
    /// Duration of the last evaluation, in nanoseconds.
    pub(crate) evaluation: AtomicU64,
}

impl Counters {
    pub(crate) fn evaluated(&self, time: Duration) {
        self.evaluation.store(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }
}

/// Longest total time that requests wait for new definitions to be bound.
const BINDING: Duration = Duration::from_secs(1);

/// Longest time that a request waits for the sampler to send its own request.
const SENDING: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(crate) struct Link {
    state: Mutex<State>,
    /// Notified when there are orders for the sampler.
    orders: Condvar,
    /// Notified when the sampler has sent a request, or has a result for the agent.
    news: Condvar,
    pub(crate) counters: Counters,
}

#[derive(Debug)]
struct State {
    latest: Option<Arc<Snapshot>>,
    /// Outcome of the last sample.
    outcome: Result<()>,
    taken: Option<Instant>,
    /// Whether the agent no longer has to wait for the first snapshot.
    ready: bool,
    /// Whether the sampler has to publish another snapshot, and is able to.
    busy: bool,
    asked: bool,
    /// Set while new definitions are being bound: the end of waiting for them.
    reloading: Option<Instant>,
    /// Whether the sampler waits for orders.
    waits: bool,
    /// Whether the sampler has sent the request for the current sample.
    sent: bool,
    interval: Duration,
    group: Option<Group>,
    ended: bool,
}

/// Order for the sampler.
#[derive(Debug)]
pub(crate) enum Order {
    /// Take the sample that is due. The time is that between samples.
    Due(Duration),
    /// Take a sample of metrics that clients have requested.
    Asked,
    /// Bind other definitions.
    Reload(Box<Group>),
    /// End the thread.
    End,
}

impl State {
    /// Ends waiting for new definitions, unless the sampler has not received them yet. Called when a sample has ended.
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

/// Methods for the agent's thread.
impl Link {
    /// Returns the latest snapshot, the outcome of the last sample, and the time between samples.
    pub(crate) fn latest(&self) -> (Option<Arc<Snapshot>>, Result<()>, Duration) {
        let state = self.lock();
        (state.latest.clone(), state.outcome, state.interval)
    }

    /// Returns the time since the last sample.
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

    /// Requests a sample of metrics that have none, and waits until the sampler has sent its request to pmcd. Does not
    /// wait while the sampler is taking another sample. Because of the wait, pmcd handles the sampler's request before
    /// it sends the next one to this agent.
    pub(crate) fn ask(&self) {
        let mut state = self.lock();
        state.asked = true;
        self.order_now(state);
    }

    /// Replaces the definitions, and waits as in [`Link::ask`].
    pub(crate) fn reload(&self, group: Group) {
        let mut state = self.lock();
        state.group = Some(group);
        state.reloading = Some(Instant::now() + BINDING);
        self.order_now(state);
    }

    /// Waits until new definitions are bound, at most until `until`.
    pub(crate) fn settle(&self, until: Instant) {
        let state = self.lock();
        let left = until.min(state.reloading.unwrap_or(until)).saturating_duration_since(Instant::now());
        drop(self.news.wait_timeout_while(state, left, |state| state.reloading.is_some()));
    }

    fn order_now(&self, mut state: MutexGuard<'_, State>) {
        state.sent = false;
        // Without a connection the sampler has no request to send.
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

    /// Waits for the snapshot that the sampler is working on, at most until `until`.
    pub(crate) fn wait(&self, until: Instant) {
        let state = self.lock();
        let left = until.saturating_duration_since(Instant::now());
        drop(self.news.wait_timeout_while(state, left, |state| state.busy));
    }
}

/// Methods for the sampler.
impl Link {
    /// Waits for an order. `due` computes the time of the next sample from the time between samples.
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
                // The sample that is due contains the requested metrics too.
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

    /// Reports that the request for a sample is about to be sent.
    pub(crate) fn sending(&self) {
        self.lock().sent = true;
        self.news.notify_one();
    }

    /// Publishes new metrics before their first sample. Returns the previous snapshot.
    pub(crate) fn announce(&self, snapshot: Arc<Snapshot>) -> Option<Arc<Snapshot>> {
        let mut state = self.lock();
        state.settled();
        self.news.notify_one();
        state.latest.replace(snapshot)
    }

    /// Publishes a snapshot. Returns the previous one.
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

    /// Publishes an error in place of values. If `ready` is true, the agent no longer waits for the first snapshot.
    pub(crate) fn fail(&self, error: Error, ready: bool) {
        let mut state = self.lock();
        state.outcome = Err(error);
        state.ready |= ready;
        state.settled();
        (state.busy, state.sent) = (false, true);
        self.news.notify_one();
    }
}
