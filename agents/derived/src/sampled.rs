//! Groups over a pmcd, as the agent's own thread sees them. [`crate::sampler`] describes both threads.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
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
use crate::sampler::channel::{BINDING, Command, Progress, Published, QUEUE, SENDING, Shared, Step, Ticket};
use crate::sampler::snapshot::{Known, LASTING, Slot};

/// Values expire when they are older than the interval by more than this.
const LATE: Duration = Duration::from_secs(1);

/// Group whose operands are metrics of a pmcd, sampled by a separate thread. Dropping it ends the thread without
/// joining it, because the thread may be waiting for pmcd.
#[derive(Debug)]
pub(crate) struct Sampled {
    shared: Arc<Shared>,
    commands: SyncSender<Command>,
    /// Progress of the last command of each kind.
    sample: RefCell<Progress>,
    apply: Progress,
    /// Deadline for waiting for the last reload.
    bound_by: Instant,
    /// Reaches end of file when the agent no longer has to wait for the first snapshot.
    first: OwnedFd,
    interval: Duration,
    /// Data that the sampler had published when the current request began or stopped waiting.
    now: Published,
    /// Deadline for waiting in the current request.
    until: Instant,
}

impl Sampled {
    pub(crate) fn start(group: GroupConfig, host: HostSpec, own: Domain, interval: Duration) -> io::Result<Sampled> {
        let (first, until) = pipe2(OFlag::O_CLOEXEC)?;
        let (commands, receiver) = sync_channel(QUEUE);
        let shared = Arc::new(Shared::new(interval));
        Sampler::new(group, host, own, Arc::clone(&shared), until).spawn(receiver)?;
        let now = shared.published().clone();
        let started = Instant::now();
        let (sample, apply) = (RefCell::default(), Progress::default());
        Ok(Sampled { shared, commands, sample, apply, bound_by: started, first, interval, now, until: started })
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

    /// Sends a command, unless the previous one of its kind is still queued. Then waits until the sampler is about to
    /// send its request to pmcd, so that pmcd handles that request before it sends the next one to this agent. Waits at
    /// most until `until`, and not at all while the sampler is taking another sample or has no connection.
    fn send(&self, progress: &mut Progress, command: impl FnOnce(Ticket) -> Command, until: Instant) {
        if progress.is_queued() {
            return;
        }
        let (ticket, new) = Ticket::new();
        *progress = new;
        // Without a receiver the thread has ended, and the values expire.
        let _ = self.commands.try_send(command(ticket));
        let waits = {
            let published = self.shared.published();
            !published.sampling && published.outcome.is_ok()
        };
        if waits {
            progress.wait(Step::Sent, until.min(Instant::now() + SENDING));
        }
    }

    fn ask(&self) {
        self.send(&mut self.sample.borrow_mut(), Command::Sample, self.until);
    }

    fn apply(&mut self) {
        let mut progress = std::mem::take(&mut self.apply);
        self.send(&mut progress, Command::Apply, Instant::now() + SENDING);
        self.apply = progress;
    }

    /// Requests a sample of metrics that have no values, and adopts the sample if it is complete before the deadline.
    fn wait(&mut self) {
        self.ask();
        if self.now.outcome.is_ok() {
            self.sample.get_mut().wait(Step::Done, self.until);
        }
        let published = self.shared.published().clone();
        let metrics =
            |published: &Published| published.snapshot.as_ref().map(|snapshot| Arc::as_ptr(&snapshot.metrics));
        // The request uses places in the metrics that it began with.
        if metrics(&published) == metrics(&self.now) {
            self.now = published;
        }
    }
}

impl Running for Sampled {
    fn begin(&mut self, until: Instant) -> Option<&Arc<Metrics>> {
        self.now = self.shared.published().clone();
        self.until = until;
        self.now.snapshot.as_ref().map(|snapshot| &snapshot.metrics)
    }

    fn wait_until_bound(&mut self, until: Instant) {
        self.apply.wait(Step::Bound, until.min(self.bound_by));
    }

    fn prepare(&mut self, places: &mut dyn Iterator<Item = usize>) {
        let Some(snapshot) = &self.now.snapshot else { return };
        let mut missing = false;
        for place in places {
            snapshot.demand.fetch(place, self.interval);
            missing |= self.slot(place).is_none();
        }
        if missing {
            self.wait();
        }
    }

    fn expect(&self, places: &[usize]) {
        let Some(snapshot) = &self.now.snapshot else { return };
        for place in places {
            snapshot.demand.look_up(*place, self.interval);
        }
        if places.iter().any(|place| self.slot(*place).is_none()) {
            self.ask();
        }
    }

    fn expect_instances(&mut self, indom: InDom, labels: bool) {
        let Some(snapshot) = &self.now.snapshot else { return };
        snapshot.demand.ask_instances(indom, labels);
        let recent = self.known(indom).filter(|known| self.is_recent(Some(known.taken)));
        if recent.is_none_or(|known| labels && known.list.labels().is_none()) {
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
        self.shared.orders().group = Some(Box::new(group));
        self.bound_by = Instant::now() + BINDING;
        self.apply();
    }

    fn is_ready(&self) -> bool {
        self.shared.published().ready
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
            self.shared.orders().interval = interval;
            self.apply();
        }
    }

    fn figures(&self) -> Figures {
        self.now.figures
    }
}
