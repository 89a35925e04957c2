//! Sampler: the thread of a group that fetches operands from a pmcd and evaluates them. The agent's own thread must
//! never wait for pmcd, because pmcd waits for the agent.
//!
//! # States of the thread
//!
//! ```text
//!               start, Apply with definitions
//!                              |
//!                              v                               interval is over: regular sample,
//!   pause is over       +-------------+   bound    +-----------+   Sample: extra sample
//!  ,------------------->|   Unbound   |----------->|   Bound   |---.
//!  |                    +-------------+            +-----------+   |
//!  |                       |       ^                 |    |   ^    |
//!  |                 error |       '-----------------'    |   '----'
//!  |                       v      other operands, agents  |
//!  |  +-----------------------+   restarted: bound again  | error, panic,
//!  '--| Failed, 250 ms to 8 s |   in the same sample      | lost connection
//!     +-----------------------+<--------------------------'
//! ```
//!
//! * `Unbound`: the next sample connects if there is no connection, looks up the operands, and binds the definitions.
//! * `Bound`: samples are taken. A sample takes the binding out of the state, and only a complete one puts it back. So
//!   no binding is left after an error or a panic.
//! * `Failed`: `Unbound` after a pause, which doubles with each failure. Until then values are errors, and commands
//!   fail at once.
//!
//! A *regular* sample has all metrics that clients want ([`Demand`]). `delta` and `rate` are over two regular samples.
//! If clients want no metrics, a regular sample without them is taken each [`IDLE`], to notice changes. An *extra*
//! sample has only the metrics that clients have begun to want since the last regular sample. The other metrics keep
//! their values and their history.
//!
//! # Messages
//!
//! ```text
//!  agent's thread (Sampled)                       sampler                    pmcd
//!
//!  Demand: atomic times       ----------------->  which metrics to sample
//!  Orders, under a mutex      ----------------->  definitions, interval
//!  Sample, Apply: a channel,  ----------------->  wakes up
//!    at most one of each kind
//!                             <-----------------  Ticket: Begun, Sent, Bound, Done
//!                                                 lookup, fetch -------------->
//!                                                               <--------------
//!                             <-----------------  Published, under a mutex:
//!                                                   Arc<Snapshot>, outcome
//! ```
//!
//! | who waits | for what | at most |
//! |---|---|---|
//! | fetch or instances | `Done`, if values or lists are missing | 10 ms after the request began ([`PATIENCE`]) |
//! | lookup of names | `Bound`, after a reload | the same; in total, 1 s after the reload ([`BINDING`]) |
//! | lookup of names | `Sent`, if values are missing | 2 ms ([`SENDING`]), and 10 ms after the request began |
//! | reload | `Sent` | 2 ms for each group |
//! | sampler | connection | 5 s, or `$PMCD_CONNECT_TIMEOUT` |
//! | sampler | answer of pmcd | 10 s for each request, or `$PMCD_REQUEST_TIMEOUT` |
//! | sampler | command | until the next sample is due |
//!
//! The agent does not wait while values are errors because of a failure, nor for a [`Ticket`] that the sampler has
//! dropped. A mutex is held to exchange a few words.
//!
//! `Sent` puts the sampler's request before the client's next one in pmcd's queue. So a client that looks up a metric
//! and then fetches it finds values: pmcd answers the sampler in between, and the rest of the sample takes less than
//! 10 ms.
//!
//! [`PATIENCE`]: channel::PATIENCE
//! [`BINDING`]: channel::BINDING
//! [`SENDING`]: channel::SENDING

mod binding;
pub(crate) mod channel;
pub(crate) mod demand;
mod lists;
mod sample;
pub(crate) mod snapshot;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;
use pcp_client::HostSpec;
use pcp_derive::Descs;
use pmapi::backoff::{Backoff, doubling};
use pmapi::{Domain, Error};
use tracing::{info, warn};

use crate::config::GroupConfig;
use crate::limits::Limits;
use crate::operands::pmcd::Pmcd;
use binding::{Binding, Kind};
use channel::{Command, Shared, Step, Ticket};
#[cfg(doc)]
use demand::Demand;
use lists::Lists;
use snapshot::Snapshot;

/// Time between samples while clients want no metric. These samples notice names and agents that have been added.
const IDLE: Duration = Duration::from_secs(5);

/// Pauses after failed samples.
const PAUSES: [Duration; 6] = doubling(Duration::from_millis(250));

/// Number of failures after which the agent no longer waits for the first snapshot.
const FAILURES: u32 = 3;

#[derive(Debug)]
enum State {
    /// The next sample connects if necessary, and binds the definitions.
    Unbound,
    Bound(Box<Binding>),
    /// As in `Unbound`, but a pause has to end first.
    Failed,
}

#[derive(Debug)]
pub(crate) struct Sampler {
    state: State,
    group: GroupConfig,
    interval: Duration,
    pmcd: Pmcd,
    shared: Arc<Shared>,
    /// Commands in execution.
    sample: Option<Ticket>,
    apply: Option<Ticket>,
    /// Descriptors of the operands.
    names: Descs,
    looked_up: Instant,
    /// Whether descriptors may have changed since they were looked up.
    stale: bool,
    lists: Lists,
    pub(crate) limits: Limits,
    /// Whether a sample has left out metrics because of their size, and no regular sample has had all of them since.
    is_limited: bool,
    /// Snapshot that is published. Its metrics are those of the binding.
    latest: Option<Arc<Snapshot>>,
    /// Previous snapshot, whose memory the next one uses.
    spare: Option<Arc<Snapshot>>,
    /// Origin of the times of samples.
    started: Instant,
    /// Time of the last regular sample.
    last: Instant,
    /// Failures since the last complete sample.
    backoff: Backoff,
    /// Closed when the agent no longer has to wait for the first snapshot.
    first: Option<OwnedFd>,
}

/// The thread and its states.
impl Sampler {
    pub(crate) fn new(group: GroupConfig, host: HostSpec, own: Domain, shared: Arc<Shared>, first: OwnedFd) -> Sampler {
        let (interval, now) = (shared.orders().interval, Instant::now());
        Sampler {
            state: State::Unbound,
            group,
            interval,
            pmcd: Pmcd::new(host, own),
            shared,
            sample: None,
            apply: None,
            names: Descs::default(),
            looked_up: now,
            stale: false,
            lists: Lists::default(),
            limits: Limits::default(),
            is_limited: false,
            latest: None,
            spare: None,
            started: now,
            last: now,
            backoff: Backoff::default(),
            first: Some(first),
        }
    }

    /// Starts the thread. It ends when the sender of the commands is dropped.
    pub(crate) fn spawn(mut self, commands: Receiver<Command>) -> io::Result<()> {
        let name = self.group.name.chars().filter(|c| *c != '\0').take(15).collect();
        thread::Builder::new().name(name).spawn(move || {
            // In a shared object, signals are for pmcd's own thread.
            if let Err(e) = SigSet::all().thread_block() {
                warn!("cannot block signals in a sampler thread: {e}");
            }
            self.run(&commands);
        })?;
        Ok(())
    }

    fn run(&mut self, commands: &Receiver<Command>) {
        loop {
            let left = self.due().saturating_duration_since(Instant::now());
            match commands.recv_timeout(left) {
                Ok(command) => self.begin(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            for command in commands.try_iter() {
                self.begin(command);
            }
            if let Some(kind) = self.next() {
                self.attempt(kind);
            }
            (self.sample, self.apply) = (None, None);
        }
    }

    fn begin(&mut self, command: Command) {
        match command {
            Command::Sample(ticket) => {
                ticket.report(Step::Begun);
                self.sample = Some(ticket);
            }
            Command::Apply(ticket) => {
                // Orders that change from now on come with another command.
                ticket.report(Step::Begun);
                self.apply = Some(ticket);
                self.apply_orders();
            }
        }
    }

    fn apply_orders(&mut self) {
        let (interval, group) = {
            let mut orders = self.shared.orders();
            (orders.interval, orders.group.take())
        };
        if let (State::Bound(binding), true) = (&mut self.state, self.interval != interval) {
            // Differences must not be over two samples with another interval between them.
            binding.forget();
        }
        self.interval = interval;
        if let Some(group) = group {
            self.group = *group;
            self.state = State::Unbound;
        }
    }

    /// Returns the time of the next sample, if no command comes before.
    fn due(&self) -> Instant {
        match &self.state {
            // At once.
            State::Unbound => self.started,
            State::Bound(binding) if binding.is_idle() => self.last + IDLE,
            State::Bound(_) => self.last + self.interval,
            State::Failed => Instant::now() + self.backoff.wait(),
        }
    }

    /// Returns the kind of the sample to take now. Regular samples begin at the planned time, or now if the plan is
    /// late by the interval or more.
    fn next(&mut self) -> Option<Kind> {
        let (due, now) = (self.due(), Instant::now());
        match &self.state {
            State::Bound(binding) if !binding.is_idle() => {
                if due <= now {
                    self.last = if now - due < self.interval { due } else { now };
                    return Some(Kind::Regular);
                }
                self.sample.is_some().then_some(Kind::Extra)
            }
            // No metric has history that an early regular sample would disturb.
            State::Bound(_) if due <= now || self.sample.is_some() => {
                self.last = now;
                Some(Kind::Regular)
            }
            State::Bound(_) => None,
            State::Unbound | State::Failed => (due <= now).then_some(Kind::Regular),
        }
    }

    /// Takes a sample. Errors are published as `PM_ERR_AGAIN`, because pmcd would take the original codes for failures
    /// of this agent.
    fn attempt(&mut self, kind: Kind) {
        {
            let mut published = self.shared.published();
            published.sampling = true;
            published.figures.samples += 1;
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| self.sample(kind))).unwrap_or(Err(Error::GENERIC));
        match outcome {
            Ok(()) => self.backoff.succeeded(),
            Err(e) => self.fail(e),
        }
        let mut published = self.shared.published();
        published.sampling = false;
        published.figures.errors += u64::from(outcome.is_err());
        if published.ready {
            self.first = None;
        }
    }

    fn fail(&mut self, error: Error) {
        if self.backoff.failures() == 0 {
            let group = &self.group.name;
            info!(source = group, "group {group}: sampling failed and will be tried again: {error}");
        }
        if error == Error::GENERIC {
            // A panic may have left the connection in the middle of a message.
            self.pmcd.disconnect();
        }
        self.names = Descs::default();
        self.backoff.failed(&PAUSES);
        self.state = State::Failed;
        let mut published = self.shared.published();
        published.outcome = Err(Error::AGAIN);
        published.ready |= self.backoff.failures() >= FAILURES;
    }

    fn report(&self, step: Step) {
        for ticket in [&self.sample, &self.apply].into_iter().flatten() {
            ticket.report(step);
        }
    }
}
