//! Metrics of the archive, and the numbers that they have in this agent.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use pcp_archive::{Metadata, TextLevel};
use pmapi::{Desc, Domain, InDom, PmId, Semantics, Type};
use pmda::Setup;
use pmda::prelude::{InDomDef, Item, MetricDef, Serial};

/// Metric that is served.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) desc: Desc,
    pub(crate) name: String,
    pub(crate) item: Item,
}

/// Metrics by their number in this agent and in the archive, and instance domains.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) by_item: HashMap<Item, PmId>,
    pub(crate) by_pmid: HashMap<PmId, Served>,
    pub(crate) indoms: BTreeMap<Serial, InDom>,
    /// Cluster of the control metrics, which no metric of the archive has.
    pub(crate) control: u16,
}

/// Items of a cluster.
const ITEMS: u32 = 1024;
const CLUSTERS: u16 = 4096;

impl Metrics {
    /// Takes the metrics of one domain with their numbers.
    pub(crate) fn original(meta: &Metadata, domain: Domain) -> Metrics {
        let mut metrics = Metrics::default();
        let mut used = BTreeSet::new();
        for (name, desc) in named(meta).filter(|(_, desc)| desc.pmid.domain() == domain) {
            // A domain of another agent, as derived metrics have it, is not to be had here.
            if desc.indom.is_some_and(|indom| indom.domain() != domain) {
                continue;
            }
            used.insert(desc.pmid.item().cluster());
            metrics.indoms.extend(desc.indom.map(|indom| (indom.serial(), indom)));
            metrics.add(name, desc, desc.pmid.item());
        }
        metrics.control = (0..CLUSTERS).rev().find(|cluster| !used.contains(cluster)).unwrap_or(CLUSTERS - 1);
        metrics
    }

    /// Takes the metrics of all domains below a prefix, with numbers in their order.
    pub(crate) fn all(meta: &Metadata, prefix: &str) -> Metrics {
        let mut metrics = Metrics::default();
        let mut serials: BTreeMap<InDom, Serial> = BTreeMap::new();
        for (at, (name, desc)) in (0..).zip(named(meta)) {
            let cluster = u16::try_from(at / ITEMS + 1).ok().filter(|cluster| *cluster < CLUSTERS);
            let Some(cluster) = cluster else { break };
            if let Some(indom) = desc.indom {
                let next = Serial::new(serials.len() as u32);
                metrics.indoms.insert(*serials.entry(indom).or_insert(next), indom);
            }
            metrics.add(format!("{prefix}.{name}"), desc, Item::new(cluster, (at % ITEMS) as u16));
        }
        metrics
    }

    fn add(&mut self, name: String, desc: Desc, item: Item) {
        self.by_item.insert(item, desc.pmid);
        self.by_pmid.insert(desc.pmid, Served { desc, name, item });
    }

    /// Declares the metrics and their instance domains with the texts of the archive.
    pub(crate) fn declare(&self, meta: &Metadata, setup: &mut Setup) {
        let serials: HashMap<InDom, Serial> = self.indoms.iter().map(|(serial, indom)| (*indom, *serial)).collect();
        for (serial, indom) in &self.indoms {
            let text = |level| meta.indom_text(*indom, level).map(utf8).unwrap_or_default();
            let declared: &mut InDomDef = setup.indom(*serial);
            declared.help(one_line(text(TextLevel::OneLine)), text(TextLevel::Help));
        }
        let mut served: Vec<&Served> = self.by_pmid.values().collect();
        served.sort_by_key(|metric| metric.item);
        for metric in served {
            let text = |level| meta.text(metric.desc.pmid, level).map(utf8).unwrap_or_default();
            let declared: &mut MetricDef = setup.metric(&metric.name, metric.item, metric.desc.ty);
            declared.units(metric.desc.units).help(one_line(text(TextLevel::OneLine)), text(TextLevel::Help));
            match metric.desc.semantics {
                Semantics::Counter => _ = declared.counter(),
                Semantics::Discrete => _ = declared.discrete(),
                Semantics::Instant => (),
            }
            if let Some(serial) = metric.desc.indom.and_then(|indom| serials.get(&indom)) {
                declared.indom(*serial);
            }
        }
    }

    /// Returns the instance domain of the archive, if it is served.
    pub(crate) fn indom(&self, serial: Serial) -> Option<InDom> {
        self.indoms.get(&serial).copied()
    }

    /// Returns the cluster in the archive that a cluster of this agent stands for.
    pub(crate) fn cluster(&self, cluster: u16, domain: Domain) -> Option<u32> {
        let found = self.by_item.values().find(|pmid| pmid.domain() == domain && pmid.item().cluster() == cluster)?;
        Some(found.word() & !(ITEMS - 1))
    }
}

/// Iterates over the metrics that an agent can have, each with one name.
fn named(meta: &Metadata) -> impl Iterator<Item = (String, Desc)> + '_ {
    meta.descs().filter_map(|(pmid, _)| {
        let desc = meta.desc(pmid).ok().filter(|desc| desc.ty != Type::NoSupport)?;
        // An agent's metric has one name: of several, the shortest.
        let names = meta.names().names(pmid).filter_map(|name| String::from_utf8(name.to_vec()).ok());
        let name = names.filter(|name| is_name(name)).min_by_key(String::len)?;
        Some((name, desc))
    })
}

/// Returns whether a name space can have a name. An archive may have any.
fn is_name(name: &str) -> bool {
    name.split('.').all(|part| {
        part.starts_with(|c: char| c.is_ascii_alphabetic())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

fn utf8(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

fn one_line(text: String) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
