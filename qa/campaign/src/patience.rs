//! Time limits of the campaign. `--patience` multiplies them, for machines that are slow or have other work.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

static FACTOR: AtomicU32 = AtomicU32::new(1);

/// Sets the factor of this process.
pub(crate) fn set(factor: u32) {
    FACTOR.store(factor, Ordering::Relaxed);
}

pub(crate) fn factor() -> u32 {
    FACTOR.load(Ordering::Relaxed)
}

/// Returns a time limit multiplied by the factor.
pub(crate) fn scaled(limit: Duration) -> Duration {
    limit * factor()
}
