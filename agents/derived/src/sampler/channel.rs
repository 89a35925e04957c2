//! State that the agent's thread and a sampler share: commands with their progress, orders, and published samples.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pmapi::{Error, Result};

use super::snapshot::Snapshot;
use crate::config::GroupConfig;
use crate::running::Figures;

/// Longest time from the beginning of a request until it no longer waits for samplers. A sample that has received all
/// answers of pmcd is complete by then. Any other sample cannot be complete before pmcd has received the reply to this
/// request.
pub(crate) const PATIENCE: Duration = Duration::from_millis(10);

/// Longest total time that requests wait for new definitions to be bound.
pub(crate) const BINDING: Duration = Duration::from_secs(1);

/// Longest time that a request waits for the sampler to send its own request.
pub(crate) const SENDING: Duration = Duration::from_millis(2);

/// Number of commands that may be queued: one of each kind ([`Progress::is_queued`]).
pub(crate) const QUEUE: usize = 2;

/// Command to the sampler. A command has no content, so one that is queued also serves later requests.
#[derive(Debug)]
pub(crate) enum Command {
    /// Sample metrics that clients want and that have no values.
    Sample(Ticket),
    /// Apply changed [`Orders`].
    Apply(Ticket),
}

/// Step in the execution of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// The sampler has read the command.
    Begun,
    /// The sampler is about to send a request to pmcd.
    Sent,
    /// The definitions are bound, and their metrics are published.
    Bound,
    /// The command is complete or has failed.
    Done,
}

/// The sampler's side of a command in execution. Dropping it is the step [`Step::Done`], so that the agent's thread
/// never waits for a command that the sampler has given up.
#[derive(Debug)]
pub(crate) struct Ticket(SyncSender<Step>);

/// The agent's side of a command in execution.
#[derive(Debug)]
pub(crate) struct Progress {
    steps: Receiver<Step>,
    reached: [bool; 4],
}

impl Ticket {
    /// Creates both sides of a command.
    pub(crate) fn new() -> (Ticket, Progress) {
        // Reports beyond the capacity are lost. The sampler reports `Begun` and `Bound` once, and `Sent` again for each
        // request.
        let (ticket, steps) = sync_channel(16);
        (Ticket(ticket), Progress { steps, reached: [false; 4] })
    }

    /// Reports a step to the agent's thread. Never waits.
    pub(super) fn report(&self, step: Step) {
        let _ = self.0.try_send(step);
    }
}

impl Progress {
    /// Returns whether the sampler has not read the command yet.
    pub(crate) fn is_queued(&mut self) -> bool {
        self.wait(Step::Begun, Instant::now());
        !self.has(Step::Begun)
    }

    fn has(&self, step: Step) -> bool {
        self.reached[step as usize] || self.reached[Step::Done as usize]
    }

    /// Waits until the command has reached a step, is complete or has failed, at most until `until`.
    pub(crate) fn wait(&mut self, step: Step, until: Instant) {
        while !self.has(step) {
            let reached = match self.steps.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(reached) => reached,
                Err(RecvTimeoutError::Disconnected) => Step::Done,
                Err(RecvTimeoutError::Timeout) => return,
            };
            self.reached[reached as usize] = true;
        }
    }
}

/// Returns the progress of a command that is complete.
impl Default for Progress {
    fn default() -> Progress {
        Ticket::new().1
    }
}

/// State that both threads read and write. The locks are held to exchange a few words, never while a thread works or
/// waits.
#[derive(Debug)]
pub(crate) struct Shared {
    published: Mutex<Published>,
    orders: Mutex<Orders>,
}

/// State that the sampler publishes.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) snapshot: Option<Arc<Snapshot>>,
    /// Outcome of the last sample. An error stands in place of all values.
    pub(crate) outcome: Result<()>,
    /// Whether the sampler is taking a sample.
    pub(crate) sampling: bool,
    /// Whether the agent no longer has to wait for the first snapshot.
    pub(crate) ready: bool,
    pub(crate) figures: Figures,
}

/// What the agent has ordered.
#[derive(Debug)]
pub(crate) struct Orders {
    pub(crate) interval: Duration,
    /// Configuration that the sampler has not adopted yet.
    pub(crate) group: Option<Box<GroupConfig>>,
}

impl Shared {
    pub(crate) fn new(interval: Duration) -> Shared {
        let published = Published {
            snapshot: None,
            outcome: Err(Error::AGAIN),
            sampling: false,
            ready: false,
            figures: Figures::default(),
        };
        Shared { published: Mutex::new(published), orders: Mutex::new(Orders { interval, group: None }) }
    }

    pub(crate) fn published(&self) -> MutexGuard<'_, Published> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than any stall of a busy machine.
    fn later() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn a_wait_ends_with_its_step() {
        let (ticket, mut progress) = Ticket::new();
        assert!(progress.is_queued());
        ticket.report(Step::Begun);
        assert!(!progress.is_queued());
        // Steps in any order, and as many reports as the sampler makes.
        ticket.report(Step::Bound);
        (0..100).for_each(|_| ticket.report(Step::Sent));
        progress.wait(Step::Bound, later());
        assert!(progress.has(Step::Bound) && !progress.has(Step::Sent));
        progress.wait(Step::Sent, later());
        progress.wait(Step::Done, Instant::now());
        assert!(progress.has(Step::Sent) && !progress.has(Step::Done));
    }

    #[test]
    fn a_wait_ends_with_its_ticket() {
        let (ticket, mut progress) = Ticket::new();
        drop(ticket);
        assert!(!progress.is_queued());
        progress.wait(Step::Bound, later());
        assert!(progress.has(Step::Bound) && progress.has(Step::Done));
        let mut none = Progress::default();
        none.wait(Step::Sent, later());
        assert!(!none.is_queued());
    }
}
