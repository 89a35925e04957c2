//! Sampler: the thread of a group that fetches operands from a pmcd, or from agents that it starts, and evaluates them.
//! The agent's own thread must never wait for pmcd, because pmcd waits for the agent.
//!
//! # One clock
//!
//! Each `interval` the thread fetches the operands of all definitions in one request, evaluates all definitions,
//! publishes one [`Snapshot`] and sleeps. It stops when no client has asked for some time (`Exchange::until`), and the
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
//!
//! [`PATIENCE`]: exchange::PATIENCE
//! [`BINDING`]: exchange::BINDING
//! [`SENDING`]: exchange::SENDING

mod binding;
pub(crate) mod exchange;
mod lists;
mod sample;
pub(crate) mod snapshot;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;
use pcp_base::backoff::{Backoff, doubling};
use pcp_derived::Descs;
use pmapi::{Desc, Error};
use tracing::{info, warn};

use crate::config::GroupConfig;
use crate::limits::Limits;
use crate::operands::Source;
use binding::Binding;
use exchange::{Exchange, Shared};
use lists::Lists;
use snapshot::Snapshot;

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
    interval: Duration,
    source: Box<dyn Source>,
    shared: Arc<Shared>,
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
    /// Snapshot that is published. Its metrics are those of the binding.
    latest: Option<Arc<Snapshot>>,
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
    /// Closed when the agent no longer has to wait for the first snapshot.
    first: Option<OwnedFd>,
}

/// The thread and its states.
impl Sampler {
    pub(crate) fn new(group: GroupConfig, source: Box<dyn Source>, shared: Arc<Shared>, first: OwnedFd) -> Sampler {
        let (interval, now) = (shared.lock().interval, Instant::now());
        Sampler {
            state: State::Unbound,
            group,
            interval,
            source,
            shared,
            names: Descs::default(),
            known: HashMap::new(),
            looked_up: now,
            stale: false,
            lists: Lists::default(),
            limits: Limits::default(),
            is_limited: false,
            is_idle: false,
            latest: None,
            spare: None,
            started: now,
            last: now,
            checked: now,
            tended: now,
            has_changed: false,
            backoff: Backoff::default(),
            first: Some(first),
        }
    }

    /// Starts the thread. It ends when the exchange is closed.
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
        let shared = Arc::clone(&self.shared);
        let mut exchange = shared.lock();
        while !exchange.is_closed {
            self.adopt(&mut exchange);
            let now = Instant::now();
            let (due, kind) = self.due(now, exchange.until >= now);
            let tend = self.source.due(self.tended).filter(|tend| *tend <= now);
            if tend.is_some() && due > now {
                drop(exchange);
                self.tend(now);
                exchange = shared.lock();
                continue;
            }
            if due <= now {
                self.tended = now;
                match kind {
                    // At the planned time, or now if the plan is late by the interval or more.
                    Kind::Full => self.last = if now - due < self.interval { due } else { now },
                    Kind::Check => self.checked = now,
                }
                return Some(kind);
            }
            let due = self.source.due(self.tended).map_or(due, |tend| tend.min(due));
            exchange = shared.wait(exchange, due);
        }
        None
    }

    /// Starts agents of the source that are due, and publishes their problems.
    fn tend(&mut self, now: Instant) {
        self.tended = now;
        if self.source.tend() {
            self.has_changed = true;
            self.publish_problems();
        }
    }

    /// Publishes the problems of the source, if they have changed.
    fn publish_problems(&self) {
        let version = self.source.problems_version();
        if self.shared.lock().published.problems_version != version {
            let problems = Arc::new(self.source.problems());
            let published = &mut self.shared.lock().published;
            (published.problems, published.problems_version) = (problems, version);
        }
    }

    /// Adopts what the agent has ordered.
    fn adopt(&mut self, exchange: &mut Exchange) {
        if let (State::Bound(binding), true) = (&mut self.state, self.interval != exchange.interval) {
            // Differences must not be over two samples with another interval between them.
            binding.forget();
        }
        self.interval = exchange.interval;
        if let Some(group) = exchange.group.take() {
            self.group = *group;
            self.state = State::Unbound;
        }
        for (indom, labels) in exchange.indoms.drain() {
            self.lists.request(indom, labels);
        }
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
        self.shared.lock().published.figures.samples += 1;
        self.has_changed = false;
        let outcome = catch_unwind(AssertUnwindSafe(|| self.sample(kind))).unwrap_or(Err(Error::GENERIC));
        match outcome {
            Ok(()) => self.backoff.succeeded(),
            Err(e) => self.fail(e),
        }
        self.publish_problems();
        let mut exchange = self.shared.lock();
        exchange.is_unbound &= exchange.group.is_some();
        let published = &mut exchange.published;
        published.finished += 1;
        published.figures.errors += u64::from(outcome.is_err());
        if published.ready {
            self.first = None;
        }
        drop(exchange);
        self.shared.notify();
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
        let published = &mut self.shared.lock().published;
        published.outcome = Err(Error::AGAIN);
        published.ready |= self.backoff.failures() >= FAILURES;
    }

    /// Tells a request that waits for it that the sampler is about to send a request to pmcd.
    fn announce_request(&self) {
        self.shared.lock().published.sent += 1;
        self.shared.notify();
    }

    /// Tells requests that the definitions are bound, unless there are newer ones.
    fn bound(&self) {
        let mut exchange = self.shared.lock();
        exchange.is_unbound &= exchange.group.is_some();
        drop(exchange);
        self.shared.notify();
    }
}
