//! The clock that the two processes share.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Returns the time of the monotonic clock, which is the same in all processes, in milliseconds.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
