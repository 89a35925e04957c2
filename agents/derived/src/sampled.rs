//! Groups over a pmcd, as the agent's own thread sees them. [`crate::sampler`] describes both threads.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use pcp_client::HostSpec;
use pcp_derive::Column;
use pmapi::{Domain, Error, InDom, Result};
use pmda::{Instances, PollSet};

use crate::config::GroupConfig;
use crate::metrics::{Labels, Metrics};
use crate::running::{Figures, Running};
use crate::sampler::Sampler;
use crate::sampler::exchange::{BINDING, Exchange, Published, SENDING, Shared};
use crate::sampler::snapshot::{Known, LASTING, Slot};

/// Values expire when they are older than the interval by more than this.
const LATE: Duration = Duration::from_secs(1);

/// Number of intervals for which a group is sampled after a fetch: at least [`LINGER`], and longer for clients that
/// fetch at long intervals.
const SAMPLES: u32 = 10;
const LINGER: Duration = Duration::from_secs(60);

/// Number of intervals for which a group is sampled after a client has looked up a metric or requested instances: at
/// least [`LOOK`].
const LOOKS: u32 = 2;
const LOOK: Duration = Duration::from_secs(5);

/// Longest time between two fetches that counts as a client's interval.
const RARELY: Duration = Duration::from_secs(2 * 3600);

/// Returns how long a group is sampled after a fetch. `between` is the time since the fetch before: a client that
/// fetches regularly, even at long intervals, must find the group sampled.
fn lasting(interval: Duration, between: Option<Duration>) -> Duration {
    let regular = between.filter(|between| *between <= RARELY).unwrap_or_default();
    (interval * SAMPLES).max(LINGER).max(regular * 2)
}

/// Group whose operands are metrics of a pmcd, sampled by a separate thread. Dropping it ends the thread without
/// joining it, because the thread may be waiting for pmcd.
#[derive(Debug)]
pub(crate) struct Sampled {
    shared: Arc<Shared>,
    /// Deadline for waiting for the last reload.
    bound_by: Instant,
    /// Reaches end of file when the agent no longer has to wait for the first snapshot.
    first: OwnedFd,
    interval: Duration,
    /// Time of the last fetch.
    fetched: Option<Instant>,
    /// Data that the sampler had published when the current request began or stopped waiting.
    now: Published,
    /// Deadline for waiting in the current request.
    until: Instant,
}

impl Sampled {
    pub(crate) fn start(group: GroupConfig, host: HostSpec, own: Domain, interval: Duration) -> io::Result<Sampled> {
        let (first, until) = pipe2(OFlag::O_CLOEXEC)?;
        let started = Instant::now();
        // Clients that have waited for the agent to be ready will look at all metrics.
        let shared = Arc::new(Shared::new(interval, started + (interval * LOOKS).max(LOOK)));
        Sampler::new(group, host, own, Arc::clone(&shared), until).spawn()?;
        let now = shared.lock().published.clone();
        Ok(Sampled { shared, bound_by: started, first, interval, fetched: None, now, until: started })
    }

    fn is_recent(&self, taken: Option<Instant>) -> bool {
        taken.is_some_and(|taken| taken.elapsed() <= self.interval + LATE)
    }

    fn slot(&self, place: usize) -> Option<&Slot> {
        let slot = self.now.snapshot.as_ref()?.slots.get(place);
        slot.filter(|slot| self.is_recent(slot.taken))
    }

    /// Returns the list of a domain. A busy pmcd may delay a new list for longer than values last. Until then the old one
    /// still names the instances of values that clients have received.
    fn known(&self, indom: InDom) -> Option<&Known> {
        let lasting = LASTING.max(self.interval + LATE);
        self.now.snapshot.as_ref()?.list(indom).filter(|known| known.taken.elapsed() <= lasting)
    }

    /// Requests samples for `time` from now on. Returns whether sampling had stopped.
    fn ask(&self, time: Duration) -> bool {
        let mut exchange = self.shared.lock();
        let now = Instant::now();
        let had_stopped = exchange.until < now;
        exchange.until = exchange.until.max(now + time);
        drop(exchange);
        if had_stopped {
            self.shared.notify();
        }
        had_stopped
    }

    /// Requests samples because a client may fetch next. Returns whether sampling had stopped.
    fn look_up(&self) -> bool {
        self.ask((self.interval * LOOKS).max(LOOK))
    }

    /// Returns the number of requests that the sampler has sent. `None` while it is taking a sample or has no connection.
    fn sent(&self) -> Option<u64> {
        let published = &self.shared.lock().published;
        (!published.is_sampling() && published.outcome.is_ok()).then_some(published.sent)
    }

    /// Waits until the sampler is about to send its next request after `sent`, so that pmcd handles that request before
    /// it sends the next one to this agent. Waits at most until `until`.
    fn wait_until_sent(&self, sent: Option<u64>, until: Instant) {
        if let Some(sent) = sent {
            let until = until.min(Instant::now() + SENDING);
            self.shared.wait_for(until, |exchange| exchange.published.sent != sent);
        }
    }

    /// Waits for a sample that has been requested or has begun, and adopts it if it is complete before the deadline.
    fn wait(&mut self) {
        let finished = self.now.finished;
        if self.now.outcome.is_ok() {
            self.shared.wait_for(self.until, |exchange| exchange.published.finished != finished);
        }
        let published = self.shared.lock().published.clone();
        let metrics =
            |published: &Published| published.snapshot.as_ref().map(|snapshot| Arc::as_ptr(&snapshot.metrics));
        // The request uses places in the metrics that it began with.
        if metrics(&published) == metrics(&self.now) {
            self.now = published;
        }
    }

    /// Changes what the sampler is to do.
    fn order(&self, order: impl FnOnce(&mut Exchange)) {
        order(&mut self.shared.lock());
        self.shared.notify();
    }
}

impl Drop for Sampled {
    fn drop(&mut self) {
        self.order(|exchange| exchange.is_closed = true);
    }
}

impl Running for Sampled {
    fn begin(&mut self, until: Instant) -> Option<&Arc<Metrics>> {
        self.now = self.shared.lock().published.clone();
        self.until = until;
        self.now.snapshot.as_ref().map(|snapshot| &snapshot.metrics)
    }

    fn wait_until_bound(&mut self, until: Instant) {
        self.shared.wait_for(until.min(self.bound_by), |exchange| !exchange.is_unbound);
    }

    fn prepare(&mut self, places: &mut dyn Iterator<Item = usize>) {
        if self.now.snapshot.is_none() {
            return;
        }
        let now = Instant::now();
        let between = self.fetched.replace(now).map(|before| now.duration_since(before));
        let had_stopped = self.ask(lasting(self.interval, between));
        let mut is_missing = false;
        for place in places {
            is_missing |= self.slot(place).is_none();
        }
        if is_missing && (had_stopped || self.now.is_sampling()) {
            self.wait();
        }
    }

    fn expect(&self, places: &[usize]) {
        let is_missing = places.iter().any(|place| self.slot(*place).is_none());
        if self.now.snapshot.is_none() || places.is_empty() {
            return;
        }
        let sent = self.sent();
        if self.look_up() && is_missing {
            self.wait_until_sent(sent, self.until);
        }
    }

    fn expect_instances(&mut self, indom: InDom, labels: bool) {
        if self.now.snapshot.is_none() {
            return;
        }
        let recent = self.known(indom).filter(|known| self.is_recent(Some(known.taken)));
        let is_missing = recent.is_none_or(|known| labels && known.list.labels().is_none());
        if is_missing {
            self.order(|exchange| *exchange.indoms.entry(indom).or_default() |= labels);
        }
        self.look_up();
        if is_missing {
            self.wait();
        }
    }

    fn values(&self, place: usize) -> Result<&Column> {
        // As long as an error lasts, it replaces older values.
        self.now.outcome?;
        self.slot(place).ok_or(Error::AGAIN)?.values.as_ref().map_err(|e| *e)
    }

    fn instances(&self, indom: InDom) -> Option<&dyn Instances> {
        self.known(indom).map(|known| &*known.list as &dyn Instances)
    }

    fn labels(&self, indom: InDom) -> Option<&Labels> {
        self.known(indom)?.list.labels()
    }

    fn label_changes(&self) -> u64 {
        self.now.snapshot.as_ref().map_or(0, |snapshot| snapshot.label_changes)
    }

    fn done(&mut self) {
        self.now.snapshot = None;
    }

    fn reload(&mut self, group: GroupConfig) {
        self.bound_by = Instant::now() + BINDING;
        let sent = self.sent();
        self.order(|exchange| (exchange.group, exchange.is_unbound) = (Some(Box::new(group)), true));
        self.wait_until_sent(sent, self.bound_by);
    }

    fn is_ready(&self) -> bool {
        self.shared.lock().published.ready
    }

    fn sources<'a>(&'a self, set: &mut PollSet<'a>) {
        if !self.is_ready() {
            set.readable(usize::MAX, &self.first);
        }
    }

    fn interval(&self) -> Duration {
        self.interval
    }

    fn set_interval(&mut self, interval: Duration) {
        if self.interval != interval {
            self.interval = interval;
            self.order(|exchange| exchange.interval = interval);
        }
    }

    fn figures(&self) -> Figures {
        self.now.figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_regular_clients_stay_sampled() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        assert_eq!(lasting(second, None), minute);
        assert_eq!(lasting(minute, None), 10 * minute);
        assert_eq!(lasting(second, Some(5 * minute)), 10 * minute);
        // A fetch after a long pause is not taken for an interval.
        assert_eq!(lasting(second, Some(121 * minute)), minute);
    }
}
