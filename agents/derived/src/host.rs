//! Groups over a pmcd, as the agent's own thread sees them.

use std::io::{self, PipeReader};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use pcp_client::HostSpec;
use pcp_derive::Values;
use pmapi::{Domain, Error, InDom, Result};
use pmda::prelude::{Instances, PollSet};

use crate::config::Group;
use crate::link::{Known, Link, Snapshot};
use crate::metrics::{Labels, Metrics};
use crate::running::{Figures, Running};
use crate::sampler::Sampler;

/// Longest time that one request may wait for a sample that the sampler is taking. A sample that needs pmcd no more is
/// complete by then. Any other sample cannot be complete before pmcd has received the reply to this request.
pub(crate) const PATIENCE: Duration = Duration::from_millis(10);

/// Values expire when they are older than the interval by more than this.
const LATE: Duration = Duration::from_secs(1);

/// Number of intervals for which a metric is sampled after a fetch: at least [`LINGER`], and longer for clients that
/// fetch at long intervals ([`Demand::fetch`](crate::demand::Demand::fetch)).
const SAMPLES: u32 = 10;
const LINGER: Duration = Duration::from_secs(60);

/// Returns how long a metric is sampled after a client has looked it up. The client may fetch it next.
pub(crate) fn soon(interval: Duration) -> Duration {
    (interval * 2).max(Duration::from_secs(5))
}

/// Group whose operands are metrics of a pmcd.
#[derive(Debug)]
pub(crate) struct Host {
    link: Arc<Link>,
    /// Reaches end of file when the agent no longer has to wait for the first snapshot.
    first: PipeReader,
    /// Snapshot that answers the current request.
    snapshot: Option<Arc<Snapshot>>,
    outcome: Result<()>,
    interval: Duration,
    /// Deadline for waiting in the current request.
    until: Instant,
}

impl Host {
    pub(crate) fn start(group: Group, host: HostSpec, own: Domain, interval: Duration) -> io::Result<Host> {
        let (first, until) = io::pipe()?;
        let link = Arc::new(Link::new(interval));
        Sampler::new(group, host, own, Arc::clone(&link), until).spawn()?;
        let (snapshot, outcome) = (None, Err(Error::AGAIN));
        Ok(Host { link, first, snapshot, outcome, interval, until: Instant::now() })
    }

    fn is_recent(&self, taken: Option<Instant>) -> bool {
        taken.is_some_and(|taken| taken.elapsed() <= self.interval + LATE)
    }

    fn is_sampled(&self, place: usize) -> bool {
        let slot = self.snapshot.as_ref().and_then(|snapshot| snapshot.slots.get(place));
        slot.is_some_and(|slot| self.is_recent(slot.taken))
    }

    fn known(&self, indom: InDom) -> Option<&Known> {
        self.snapshot.as_ref()?.list(indom).filter(|known| self.is_recent(Some(known.taken)))
    }

    /// Requests a sample of metrics that have none, and adopts it if it is complete before the deadline.
    fn wait(&mut self) {
        self.link.ask();
        self.link.wait(self.until);
        let (snapshot, outcome, _) = self.link.latest();
        let metrics =
            |snapshot: &Option<Arc<Snapshot>>| snapshot.as_ref().map(|snapshot| Arc::as_ptr(&snapshot.metrics));
        // The request uses places in the metrics that it began with.
        if metrics(&snapshot) == metrics(&self.snapshot) {
            (self.snapshot, self.outcome) = (snapshot, outcome);
        }
    }
}

impl Running for Host {
    fn refresh(&mut self) -> Option<&Arc<Metrics>> {
        (self.snapshot, self.outcome, self.interval) = self.link.latest();
        self.until = Instant::now() + PATIENCE;
        self.snapshot.as_ref().map(|snapshot| &snapshot.metrics)
    }

    fn settle(&self, until: Instant) {
        self.link.settle(until);
    }

    fn prepare(&mut self, places: &mut dyn Iterator<Item = usize>) {
        let Some(snapshot) = &self.snapshot else { return };
        let mut missing = false;
        for place in places {
            snapshot.demand.fetch(place, (self.interval * SAMPLES).max(LINGER));
            missing |= !self.is_sampled(place);
        }
        if missing {
            self.wait();
        }
    }

    fn expect(&self, places: &[usize]) {
        let Some(snapshot) = &self.snapshot else { return };
        places.iter().for_each(|place| snapshot.demand.ask(*place, soon(self.interval)));
        if !places.iter().all(|place| self.is_sampled(*place)) {
            self.link.ask();
        }
    }

    fn expect_instances(&mut self, indom: InDom, labels: bool) {
        let Some(snapshot) = &self.snapshot else { return };
        snapshot.demand.ask_instances(indom, labels);
        if self.known(indom).is_none_or(|known| labels && known.list.labels().is_none()) {
            self.wait();
        }
    }

    fn values(&self, place: usize) -> Result<&Values> {
        // As long as an error lasts, it replaces older values.
        self.outcome?;
        let slot = self.snapshot.as_ref().and_then(|snapshot| snapshot.slots.get(place)).ok_or(Error::AGAIN)?;
        if !self.is_recent(slot.taken) {
            return Err(Error::AGAIN);
        }
        slot.outcome.map(|()| &slot.values)
    }

    fn instances(&self, indom: InDom) -> Option<&dyn Instances> {
        self.known(indom).map(|known| &*known.list as &dyn Instances)
    }

    fn labels(&self, indom: InDom) -> Option<&Labels> {
        self.known(indom)?.list.labels()
    }

    fn label_changes(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.labels)
    }

    fn done(&mut self) {
        self.snapshot = None;
    }

    fn reload(&mut self, group: Group) {
        self.link.reload(group);
    }

    fn is_ready(&self) -> bool {
        self.link.is_ready()
    }

    fn sources<'a>(&'a self, set: &mut PollSet<'a>) {
        if !self.is_ready() {
            set.readable(usize::MAX, &self.first);
        }
    }

    fn interval(&self) -> Duration {
        self.link.interval()
    }

    fn set_interval(&mut self, interval: Duration) {
        self.link.set_interval(interval);
    }

    fn figures(&self) -> Figures {
        let counters = &self.link.counters;
        Figures {
            samples: counters.samples.load(Relaxed),
            errors: counters.errors.load(Relaxed),
            evaluation: Duration::from_nanos(counters.evaluation.load(Relaxed)),
            age: self.link.age(),
        }
    }
}

/// Ends the sampler without joining its thread, which may still be waiting for pmcd.
impl Drop for Host {
    fn drop(&mut self) {
        self.link.end();
    }
}
