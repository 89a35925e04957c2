//! Processor time of work that a client can make arbitrarily long.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// Returns the processor time of this thread; zero if the system does not know it. Other processes have no effect on it,
/// so a limit on it does not strike because the machine is busy.
pub fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Work that may take a limited processor time. Time in which the thread waits for a processor does not count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    limit: Duration,
    begun: Instant,
    /// Processor time of the thread at the beginning.
    before: Duration,
}

impl Work {
    /// Begins work of this thread that may take `limit`.
    pub(crate) fn up_to(limit: Duration) -> Work {
        Work { limit, begun: Instant::now(), before: processor_time() }
    }

    /// Returns whether the work has taken more time than it may.
    pub(crate) fn is_over(&self) -> bool {
        // The processor time needs a system call, and cannot exceed the elapsed time.
        self.begun.elapsed() > self.limit && processor_time().saturating_sub(self.before) > self.limit
    }
}
