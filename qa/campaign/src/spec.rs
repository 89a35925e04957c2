//! The agents, and the identifiers and names that requests use.

use pmapi::{Domain, InDom, Item, PmId, Serial};

/// An agent of this repository. Requests choose clusters, items, serials and names at random from its ranges and
/// lists.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) domain: u16,
    /// Entry point of the shared object; empty for an agent without one.
    pub(crate) init: &'static str,
    pub(crate) clusters: &'static [u16],
    /// Number of items in each cluster, from item 0.
    pub(crate) items: u16,
    /// Number of instance domains, from serial 0.
    pub(crate) serials: u32,
    /// Names of metrics, inner nodes and instances.
    pub(crate) names: &'static [&'static str],
    /// Cluster and item of metrics into which the campaign never stores. A store would change what the checks expect,
    /// for example reset values or stop answers for some time.
    pub(crate) untouched: &'static [(u16, u16)],
    /// Limit of the agent's memory under attack, in KiB.
    pub(crate) memory: u64,
}

pub(crate) static SPECS: [Spec; 7] = [
    Spec {
        name: "trivial",
        domain: 250,
        init: "trivial_init",
        clusters: &[0],
        items: 2,
        serials: 1,
        names: &["trivial.time", "trivial"],
        untouched: &[],
        memory: 64 << 10,
    },
    Spec {
        name: "simple",
        domain: 253,
        init: "simple_init",
        clusters: &[0, 1, 2],
        items: 5,
        serials: 2,
        names: &["simple.color", "simple.now", "red", "green", "sec", "hour"],
        untouched: &[],
        memory: 64 << 10,
    },
    Spec {
        name: "showcase",
        domain: 402,
        init: "showcase_init",
        clusters: &[3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
        items: 16,
        serials: 5,
        names: &["showcase.dynamic", "showcase.dynamic.first", "first", "i-0", "tower-a", "showcase"],
        // A store into many.count creates up to 100,000 instances. A store into not_ready stops answers for some time.
        untouched: &[(7, 0), (14, 0)],
        memory: 96 << 10,
    },
    Spec {
        name: "mmv",
        domain: 70,
        init: "mmv_init",
        clusters: &[0, 1, 5],
        items: 10,
        serials: 3,
        names: &["mmv", "mmv.honest", "mmv.honest.count", "mmv.control", "mmv.control.files", "one", "two"],
        untouched: &[(0, 1)],
        memory: 96 << 10,
    },
    Spec {
        name: "trace",
        domain: 10,
        init: "trace_init",
        clusters: &[0, 1, 2, 3],
        items: 20,
        serials: 4,
        names: &["honest", "trace.point.count", "trace"],
        untouched: &[(0, 15), (0, 16)],
        memory: 96 << 10,
    },
    Spec {
        name: "derived",
        domain: 404,
        init: "derived_init",
        clusters: &[0, 1],
        items: 10,
        serials: 3,
        names: &["derived.twice", "derived", "derived.control", "derived.control.reload", "derived.colors"],
        untouched: &[(0, 4), (0, 8)],
        memory: 96 << 10,
    },
    Spec {
        name: "openmetrics",
        domain: 144,
        init: "",
        clusters: &[0, 1, 2],
        items: 8,
        serials: 6,
        names: &["openmetrics", "openmetrics.honest", "openmetrics.honest.count", "openmetrics.control.calls", "0 n:1"],
        untouched: &[(0, 4)],
        memory: 128 << 10,
    },
];

/// Agent replay, which takes part only in the stage `endurance`.
static REPLAY: Spec = Spec {
    name: "replay",
    domain: 405,
    init: "",
    clusters: &[0, 1],
    items: 6,
    serials: 1,
    names: &["replay", "replay.a.fixed", "row0"],
    untouched: &[],
    memory: 64 << 10,
};

impl Spec {
    pub(crate) fn of(name: &str) -> Option<&'static Spec> {
        Spec::enduring().find(|spec| spec.name == name)
    }

    /// Iterates over the agents of the endurance test.
    pub(crate) fn enduring() -> impl Iterator<Item = &'static Spec> {
        SPECS.iter().chain([&REPLAY])
    }

    /// Returns the domain. The fallback is never used, because all domains above are in range.
    pub(crate) fn domain(&self) -> Domain {
        Domain::new(self.domain).unwrap_or(Domain::DYNAMIC)
    }

    pub(crate) fn pmid(&self, cluster: u16, item: u16) -> PmId {
        PmId::new(self.domain(), Item::try_new(cluster, item).unwrap_or(Item::new(0, 0)))
    }

    pub(crate) fn indom(&self, serial: u32) -> InDom {
        // The instance domains of agent openmetrics begin after those of its control metrics.
        let serial = if self.name == "openmetrics" && serial > 0 { serial + 5119 } else { serial };
        InDom::new(self.domain(), Serial::try_new(serial).unwrap_or(Serial::new(0)))
    }
}
