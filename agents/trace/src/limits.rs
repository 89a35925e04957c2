//! The agent's limits: quotas for each user or host, and for all together.
//!
//! `README.md` has a table of the limits, [`Limits`] has their defaults. The framework has its own limits:
//! [`FixedLimit`](pmda::limits::FixedLimit).

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use pmda::limits::{Caps, LimitMetric, LimitMetrics, Quota, Settable, Setter};
use pmda::prelude::*;

/// Account of a user or host, charged for the resources of its files or clients.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Account {
    /// A user of this host, who has files or is a client of pmcd.
    User(u32),
    /// A host with TCP clients. All clients on this host have the account of `127.0.0.1`.
    Host(Ipv4Addr),
}

impl Account {
    /// Returns the account of a TCP client. A client on this host may have any of the host's addresses.
    pub(crate) fn of_client(client: Ipv4Addr, server: Ipv4Addr) -> Account {
        Account::Host(if client.is_loopback() || client == server { Ipv4Addr::LOCALHOST } else { client })
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Account::User(uid) => write!(f, "uid {uid}"),
            Account::Host(host) => write!(f, "host {host}"),
        }
    }
}

/// The limits. `--limit NAME=NUMBER` changes one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    /// TCP connections of all clients.
    pub(crate) connections: u64,
    /// TCP connections of one host.
    pub(crate) connections_each: u64,
    /// Time in which a client must send its first PDU, complete a PDU, or read its acknowledgements.
    pub(crate) pdu_time: Duration,
    /// Time without a PDU after which a connection is closed.
    pub(crate) idle_time: Duration,
    /// Names of tags of all kinds, of up to 56 bytes each. A longer name counts as more than one.
    pub(crate) names: u64,
    /// Names of tags that one user or host has introduced.
    pub(crate) names_each: u64,
    /// Time without use after which a tag, or the metric of a field, is removed.
    pub(crate) forget_time: Duration,
    /// Files of processes on this host.
    pub(crate) files: u64,
    /// Files of one user and its subordinate users.
    pub(crate) files_each: u64,
    /// Number of files that stay open. Other files are opened each time they are read.
    pub(crate) open_files: u64,
    /// Memory for the contents of files in bytes: of all files, of one user's files, and of one file.
    pub(crate) memory: u64,
    pub(crate) memory_each: u64,
    pub(crate) file_memory: u64,
    /// Metrics of fields of event records.
    pub(crate) fields: u64,
    /// Filters of event records.
    pub(crate) filters: u64,
}

/// Creates the quota of a limit. The floor is a part of the total such that 64 accounts have it.
pub(crate) fn quota(what: &str, each: u64, all: u64) -> Quota<Account> {
    let caps = Caps { each, all, floor: (all / 128).max(1).min(each) };
    Quota::new(format!("{what}, at most {} of a user or host and {all} in all", each.min(all)), caps)
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
            ((descriptors / 2).clamp(8, 4096), (descriptors / 4).clamp(8, 4096))
        } else {
            (64, 64)
        };
        Limits {
            connections,
            connections_each: connections / 2,
            pdu_time: Duration::from_secs(60),
            idle_time: Duration::from_secs(24 * 3600),
            names: 65_536,
            names_each: 32_768,
            forget_time: Duration::from_secs(48 * 3600),
            files: 4096,
            files_each: 2048,
            open_files,
            memory: 64 << 20,
            memory_each: 32 << 20,
            file_memory: 8 << 20,
            fields: 1000,
            filters: 64,
        }
    }
}

/// Times are in seconds.
impl Settable for Limits {
    const NAMES: &'static [(&'static str, Setter<Limits>)] = &[
        ("connections", |limits, n| limits.connections = n),
        ("connections-each", |limits, n| limits.connections_each = n),
        ("pdu-time", |limits, n| limits.pdu_time = Duration::from_secs(n)),
        ("idle-time", |limits, n| limits.idle_time = Duration::from_secs(n)),
        ("names", |limits, n| limits.names = n),
        ("names-each", |limits, n| limits.names_each = n),
        ("forget-time", |limits, n| limits.forget_time = Duration::from_secs(n)),
        ("files", |limits, n| limits.files = n),
        ("files-each", |limits, n| limits.files_each = n),
        ("open-files", |limits, n| limits.open_files = n),
        ("memory", |limits, n| limits.memory = n),
        ("memory-each", |limits, n| limits.memory_each = n),
        ("file-memory", |limits, n| limits.file_memory = n),
        ("fields", |limits, n| limits.fields = n),
        ("filters", |limits, n| limits.filters = n),
    ];
}

/// Values of the agent's own metrics, in the order of [`METRICS`].
pub(crate) type Counts = [u64; OWN.len()];

const CLUSTER: u16 = 4;
/// Cluster of the metrics about files of processes, which began before the others.
const OF_FILES: u16 = 3;

/// The metrics below `control.limits`.
pub(crate) const METRICS: LimitMetrics = LimitMetrics::new(&OWN, Item::new(CLUSTER, 16));

pub(crate) fn is_own(item: Item) -> bool {
    item.cluster() == CLUSTER || (item.cluster() == OF_FILES && item.item() >= 3)
}

const OWN: [LimitMetric; 9] = [
    LimitMetric {
        item: Item::new(CLUSTER, 0),
        name: "connections",
        oneline: "Connections that were refused",
        help: "A host had as many connections as it may have, or all hosts together had.",
    },
    LimitMetric {
        item: Item::new(CLUSTER, 1),
        name: "silent",
        oneline: "Connections that were closed after a time limit",
        help: "Connections of hosts that have vanished, of clients that sent an incomplete PDU, and of idle clients.",
    },
    LimitMetric {
        item: Item::new(CLUSTER, 2),
        name: "names",
        oneline: "Trace events that were not counted because their tags were new",
        help: "A user or host had introduced as many tags as it may, or all together had.",
    },
    LimitMetric {
        item: Item::new(CLUSTER, 3),
        name: "values",
        oneline: "Trace events that were not counted because their values were invalid",
        help: "Values that are not finite, transactions longer than 366 days, and impossible numbers in files of processes.",
    },
    LimitMetric {
        item: Item::new(CLUSTER, 4),
        name: "filters",
        oneline: "Filters of event records that were refused",
        help: "A user had set as many filters as it may, or all together had.",
    },
    LimitMetric {
        item: Item::new(CLUSTER, 5),
        name: "fields",
        oneline: "Fields of event records without a metric of their own",
        help: "A user or host had introduced as many fields as it may, or all together had. Their values are in\n\
               trace.event.param.field.",
    },
    LimitMetric {
        item: Item::new(OF_FILES, 3),
        name: "files",
        oneline: "Files of processes that are not read",
        help: "A user has more files than the limits files and files-each allow. The log has the user.",
    },
    LimitMetric {
        item: Item::new(OF_FILES, 4),
        name: "bad_files",
        oneline: "Files that are ignored",
        help: "They are not trace files, are damaged, or name a process of another user. The log has their names.",
    },
    LimitMetric {
        item: Item::new(OF_FILES, 5),
        name: "memory",
        oneline: "Tags, and sums of tags, for which there was no memory",
        help: "A file has more of them than the limits memory, memory-each and file-memory allow. They are counted once\n\
               there is room. The log has the user.",
    },
];

#[cfg(test)]
mod tests {
    use pmda::limits::Setting;

    use super::*;

    #[test]
    fn in_pmcds_process_descriptors_are_pmcds() {
        assert_eq!(Limits::default().connections, 64);
    }

    #[test]
    fn settings_change_the_defaults() {
        let settings = ["names=7", "idle-time=60"].map(|text| text.parse().unwrap());
        let expected = Limits { names: 7, idle_time: Duration::from_secs(60), ..Limits::default() };
        assert_eq!(Setting::change(&settings, Limits::default()), expected);
        assert!("fish=1".parse::<Setting<Limits>>().unwrap_err().contains("connections, connections-each, pdu-time"));
    }

    #[test]
    fn sixty_four_accounts_have_a_floor_whatever_others_use() {
        let Limits { names, files, memory, .. } = Limits::default();
        assert_eq!([names, files, memory].map(|all| quota("", all, all).caps().floors()), [64; 3]);
    }

    #[test]
    fn clients_of_this_host_have_one_account() {
        let [own, other] = ["192.0.2.1", "192.0.2.7"].map(|host: &str| host.parse().unwrap());
        let local = Account::Host(Ipv4Addr::LOCALHOST);
        assert_eq!([[127, 1, 2, 3].into(), own].map(|client| Account::of_client(client, own)), [local; 2]);
        assert_eq!(Account::of_client(other, own), Account::Host(other));
    }
}
