//! Warnings of the library about exports that do not work.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pcp_base::escape::Escaped;

/// Logs a hint to the program's author, or writes it to standard error in a program without a subscriber of `tracing`.
#[cfg(feature = "metrics")]
pub(crate) fn hint(text: fmt::Arguments<'_>) {
    if tracing::dispatcher::has_been_set() {
        tracing::warn!(target: "mmv", "{}", Escaped(text));
    } else {
        pcp_base::stderr::tell(&Escaped(text).to_string());
    }
}

/// Logs a warning about the export of a registry. In a program without a subscriber of `tracing`, the first warning of
/// the process goes to standard error, because it would not be visible otherwise.
pub(crate) fn warn(text: fmt::Arguments<'_>) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if tracing::dispatcher::has_been_set() {
        tracing::warn!(target: "mmv", "{}", Escaped(text));
    } else if !TOLD.swap(true, Relaxed) {
        pcp_base::stderr::tell(&Escaped(text).to_string());
    }
}
