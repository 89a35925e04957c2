//! Budgets of the agent: limits for each client, user or host, and for all together.
//!
//! `README.md` has a table of the budgets, [`Limits`] has their defaults. Accounts share them fairly:
//! [`Fair`](crate::fair::Fair). The framework has its own limits: [`FixedLimit`].

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use pmda::limits::FixedLimit;
use pmda::prelude::*;

/// Account of a user or host, charged for the resources of its clients or files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Account {
    /// A user of this host.
    User(u32),
    /// Another host, or this host for clients whose user is unknown.
    Host(Ipv4Addr),
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Account::User(uid) => write!(f, "uid {uid}"),
            Account::Host(host) => write!(f, "host {host}"),
        }
    }
}

/// The limits of all budgets. `--limit NAME=NUMBER` changes one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    /// TCP connections of all clients.
    pub(crate) connections: usize,
    /// TCP connections of one user or host.
    pub(crate) connections_each: usize,
    /// Time in which a client must send its first PDU, complete a PDU, or read its acknowledgements.
    pub(crate) pdu_time: Duration,
    /// Time without a PDU after which a connection is closed.
    pub(crate) idle_time: Duration,
    /// Names of tags of all kinds, of up to 56 bytes each. A longer name counts as more than one.
    pub(crate) names: usize,
    /// Names of tags that one user or host has introduced.
    pub(crate) names_each: usize,
    /// Time without use after which a tag, or the metric of a field, is removed.
    pub(crate) forget_time: Duration,
    /// Files of processes on this host.
    pub(crate) files: usize,
    /// Files of one user and its subordinate users.
    pub(crate) files_each: usize,
    /// Number of files that stay open. Other files are opened each time they are read.
    pub(crate) open_files: usize,
    /// Memory for the contents of files in bytes: of all files, of one user's files, and of one file.
    pub(crate) memory: usize,
    pub(crate) memory_each: usize,
    pub(crate) file_memory: usize,
    /// Metrics of fields of event records.
    pub(crate) fields: usize,
    /// Filters of event records.
    pub(crate) filters: usize,
}

/// Whether this process runs only the agent.
static ALONE: AtomicBool = AtomicBool::new(false);

/// Sets the defaults for a process that runs only the agent. It may use more descriptors than a shared object in pmcd.
pub(crate) fn set_alone() {
    ALONE.store(true, Relaxed);
}

impl Default for Limits {
    fn default() -> Limits {
        let (connections, open_files) = if ALONE.load(Relaxed) {
            let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
            let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
            ((descriptors / 2).clamp(8, 16_384), (descriptors / 4).clamp(8, 4096))
        } else {
            (64, 64)
        };
        Limits {
            connections,
            connections_each: connections,
            pdu_time: Duration::from_secs(60),
            idle_time: Duration::from_secs(24 * 3600),
            names: 131_072,
            names_each: 131_072,
            forget_time: Duration::from_secs(48 * 3600),
            files: 4096,
            files_each: 2048,
            open_files,
            memory: 256 << 20,
            memory_each: 64 << 20,
            file_memory: 16 << 20,
            fields: 1000,
            filters: 64,
        }
    }
}

/// `NAME=NUMBER`: a limit that differs from its default. Times are in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    set: Set,
    value: u64,
}

type Set = fn(&mut Limits, u64);

/// The names that `--limit` accepts.
const NAMES: [(&str, Set); 15] = [
    ("connections", |limits, n| limits.connections = count(n)),
    ("connections-each", |limits, n| limits.connections_each = count(n)),
    ("pdu-time", |limits, n| limits.pdu_time = Duration::from_secs(n)),
    ("idle-time", |limits, n| limits.idle_time = Duration::from_secs(n)),
    ("names", |limits, n| limits.names = count(n)),
    ("names-each", |limits, n| limits.names_each = count(n)),
    ("forget-time", |limits, n| limits.forget_time = Duration::from_secs(n)),
    ("files", |limits, n| limits.files = count(n)),
    ("files-each", |limits, n| limits.files_each = count(n)),
    ("open-files", |limits, n| limits.open_files = count(n)),
    ("memory", |limits, n| limits.memory = count(n)),
    ("memory-each", |limits, n| limits.memory_each = count(n)),
    ("file-memory", |limits, n| limits.file_memory = count(n)),
    ("fields", |limits, n| limits.fields = count(n)),
    ("filters", |limits, n| limits.filters = count(n)),
];

fn count(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Setting, String> {
        let (name, value) = text.split_once('=').ok_or_else(|| format!("--limit {text}: NAME=NUMBER is expected"))?;
        let known = NAMES.into_iter().find(|known| known.0 == name);
        let (_, set) = known.ok_or_else(|| format!("--limit {text}: unknown limit"))?;
        let value = value.parse::<u32>().map_err(|_| format!("--limit {text}: a number is expected"))?;
        Ok(Setting { set, value: value.into() })
    }
}

impl Limits {
    /// Returns the default limits, with these changes.
    pub(crate) fn new(settings: &[Setting]) -> Limits {
        let mut limits = Limits::default();
        settings.iter().for_each(|setting| (setting.set)(&mut limits, setting.value));
        limits
    }
}

/// Values of the metrics, in the order of [`METRICS`].
pub(crate) type Counts = [u64; METRICS.len()];

const CLUSTER: u16 = 4;

/// Item of the first metric of the framework's limits.
const FIXED: u16 = 16;

/// The metrics below `control.limits`: name, one-line help, and help text.
const METRICS: [(&str, &str, &str); 6] = [
    (
        "connections",
        "Connections that were refused, or closed for another account",
        "A user or host had as many connections as it may have. Or there were as many as the agent may have, and the\n\
         account with most connections lost one to an account with fewer.",
    ),
    (
        "silent",
        "Connections that were closed after a time limit",
        "Connections of hosts that have vanished, of clients that sent an incomplete PDU, and of idle clients.",
    ),
    (
        "names",
        "Trace events that were not counted because their tags were new, and removed tags",
        "A user or host had introduced as many tags as it may, or lost tags to an account with fewer.",
    ),
    (
        "values",
        "Trace events that were not counted because their values were invalid",
        "Values that are not finite, transactions longer than 366 days, and impossible numbers in files of processes.",
    ),
    ("filters", "Filters of event records that were refused", "A user had set as many filters as it may."),
    (
        "fields",
        "Fields of event records without a metric of their own",
        "A user or host had introduced as many fields as it may. Their values are in trace.event.param.field.",
    ),
];

pub(crate) fn declare(setup: &mut Setup) {
    let prefix = format!("{}.control.limits", setup.name());
    let mut limit = |item, name: &str, oneline, text| {
        let metric = setup.metric(format!("{prefix}.{name}"), Item::new(CLUSTER, item), Type::U64);
        metric.counter().units(Units::COUNT).help(oneline, text);
    };
    for (item, (name, oneline, text)) in (0..).zip(METRICS) {
        limit(item, name, oneline, text);
    }
    for (item, fixed) in (FIXED..).zip(FixedLimit::ALL) {
        limit(item, fixed.name(), "What a limit of the framework has left out", fixed.help());
    }
}

pub(crate) fn is_own(item: Item) -> bool {
    item.cluster() == CLUSTER
}

pub(crate) fn fetch(item: Item, counts: Counts, out: &mut Values<'_>) -> Result {
    let fixed = item.item().checked_sub(FIXED).and_then(|at| FixedLimit::ALL.get(usize::from(at)));
    match fixed {
        Some(fixed) => out.put(fixed.exceeded()),
        None => out.put(*counts.get(usize::from(item.item())).ok_or(Error::PMID)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_pmcds_process_descriptors_are_pmcds() {
        assert_eq!(Limits::default().connections, 64);
    }

    #[test]
    fn settings_change_the_defaults() {
        let settings = ["names=7", "idle-time=60"].map(|text| text.parse().unwrap());
        let expected = Limits { names: 7, idle_time: Duration::from_secs(60), ..Limits::default() };
        assert_eq!(Limits::new(&settings), expected);
        for bad in ["names", "names=", "names=-1", "names=many", "fish=1"] {
            assert!(bad.parse::<Setting>().unwrap_err().starts_with("--limit "), "{bad}");
        }
    }
}
