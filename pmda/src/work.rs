//! Processor time of work that a client can make arbitrarily long.

use std::time::{Duration, Instant};

use crate::limits::processor_time;

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
