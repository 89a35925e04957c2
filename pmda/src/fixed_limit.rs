//! The limits of the framework itself, which are constants, and the counters of what they have left out.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A limit of the framework, with a counter that an agent can export as a metric
/// ([`MetricDef::of_limit`](crate::MetricDef::of_limit)).
///
/// | limit | amount | beyond it | metric |
/// |---|---|---|---|
/// | [`LogLines`](Self::LogLines) | see [`log`](crate::log) | log lines are dropped | `log_lines` |
/// | | 4096 metrics and instances without value | why a further one has no value is not logged | `log_lines` |
/// | [`LogDebug`](Self::LogDebug) | see [`log`](crate::log) | debug output is dropped | `log_debug` |
/// | [`LogCut`](Self::LogCut) | 1 KiB for a line, 16 KiB for a critical line | a log line is cut | `log_cut` |
/// | [`Clients`](Self::Clients) | 65,536 clients | attributes of a client are ignored, or a state is dropped | `clients` |
/// | [`Pdus`](Self::Pdus) | 64 MiB for a PDU | an answer becomes `PM_ERR_TOOBIG`; a request ends the connection | `pdus` |
///
/// The counters belong to the process, or to the shared object in it: agents that share it share them. Limits on files
/// of the administrator (a configuration, an instance cache, `/etc/subuid`) are errors with a log line, and have no
/// counter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum FixedLimit {
    /// Number of log lines.
    LogLines,
    /// Amount of debug output.
    LogDebug,
    /// Length of a log line.
    LogCut,
    /// Clients for which attributes or [states](crate::Clients) are kept.
    Clients,
    /// Length of a PDU.
    Pdus,
}

static EXCEEDED: [AtomicU64; FixedLimit::ALL.len()] = [const { AtomicU64::new(0) }; FixedLimit::ALL.len()];

impl FixedLimit {
    /// All limits, in the order of their declaration.
    pub const ALL: &'static [FixedLimit] = &[Self::LogLines, Self::LogDebug, Self::LogCut, Self::Clients, Self::Pdus];

    /// Returns how often the limit was exceeded since the process started.
    pub fn exceeded(self) -> u64 {
        EXCEEDED[self as usize].load(Relaxed)
    }

    /// Returns the last component of the metric's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::LogLines => "log_lines",
            Self::LogDebug => "log_debug",
            Self::LogCut => "log_cut",
            Self::Clients => "clients",
            Self::Pdus => "pdus",
        }
    }

    /// Returns the help text of the metric.
    pub fn help(self) -> &'static str {
        match self {
            Self::LogLines => "Log lines that were dropped because there were too many.",
            Self::LogDebug => "Pieces of debug output that were dropped because there was too much.",
            Self::LogCut => "Log lines that were cut because they were too long.",
            Self::Clients => "Attributes and states of clients that were dropped because there were too many clients.",
            Self::Pdus => "Requests and answers that were refused for their length.",
        }
    }

    pub(crate) fn count(self) {
        EXCEEDED[self as usize].fetch_add(1, Relaxed);
    }
}
