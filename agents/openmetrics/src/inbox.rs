//! Where workers leave their reports.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::reader::Report;

/// Reports of workers. The agent waits for a report, or the descriptor wakes it.
#[derive(Debug)]
pub(crate) struct Inbox {
    shared: Arc<Shared>,
    /// Readable when there are reports.
    woken: UnixStream,
}

/// The workers' side.
#[derive(Clone, Debug)]
pub(crate) struct Sender(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    arrived: Condvar,
    wake: UnixStream,
}

#[derive(Debug, Default)]
struct State {
    reports: Vec<Report>,
    /// Whether the agent waits for the condition.
    waiting: bool,
    /// Whether the descriptor is readable.
    signalled: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inbox {
    pub(crate) fn new() -> io::Result<Inbox> {
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let shared = Shared { state: Mutex::default(), arrived: Condvar::new(), wake };
        Ok(Inbox { shared: Arc::new(shared), woken })
    }

    pub(crate) fn sender(&self) -> Sender {
        Sender(Arc::clone(&self.shared))
    }

    /// Returns the reports that have arrived, without waiting.
    pub(crate) fn take(&self) -> Vec<Report> {
        self.taken(self.shared.lock())
    }

    /// Returns the number of reports that have arrived.
    pub(crate) fn len(&self) -> usize {
        self.shared.lock().reports.len()
    }

    /// Waits for reports and returns them. Returns an empty list if no report arrives until `until`.
    pub(crate) fn wait(&self, until: Instant) -> Vec<Report> {
        let mut state = self.shared.lock();
        state.waiting = true;
        while state.reports.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.shared.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.waiting = false;
        self.taken(state)
    }

    fn taken(&self, mut state: MutexGuard<'_, State>) -> Vec<Report> {
        if std::mem::take(&mut state.signalled) {
            let mut bytes = [0; 16];
            let _ = (&self.woken).read(&mut bytes);
        }
        std::mem::take(&mut state.reports)
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }
}

impl Sender {
    pub(crate) fn send(&self, report: Report) {
        let mut state = self.0.lock();
        state.reports.push(report);
        if state.waiting {
            self.0.arrived.notify_one();
        } else if !state.signalled {
            state.signalled = (&self.0.wake).write(&[1]).is_ok();
        }
    }
}
