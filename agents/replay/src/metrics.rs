//! Metrics of the archive, and the numbers that they have in this agent.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use pcp_archive::Metadata;
use pcp_pdu::metadata::TextKind;
use pmapi::{Desc, Domain, InDom, PmId, Semantics, Type};
use pmda::Setup;
use pmda::prelude::{InDomDef, Item, MetricDef, Serial};
use pmda::tracing::warn;

/// Metric that is served.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) desc: Desc,
    pub(crate) name: String,
    pub(crate) item: Item,
}

/// Metrics by their number in this agent and in the archive, and their instance domains.
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
    /// Selects the metrics of one domain, with their own numbers. The control metrics are below `control`.
    pub(crate) fn original(meta: &Metadata, domain: Domain, control: &str) -> Metrics {
        let mut metrics = Metrics::default();
        let mut used = BTreeSet::new();
        let named = named(meta).filter(|(_, desc)| desc.pmid.domain() == domain).collect();
        for (name, desc) in without_conflicts(named, control) {
            // An instance domain of another agent, which derived metrics may have, is not available in this one.
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

    /// Selects the metrics of all domains, below a prefix. Numbers are assigned in their order. The control metrics are
    /// below `control`.
    pub(crate) fn all(meta: &Metadata, prefix: &str, control: &str) -> Metrics {
        let mut metrics = Metrics::default();
        let mut serials: BTreeMap<InDom, Serial> = BTreeMap::new();
        let named = named(meta).map(|(name, desc)| (format!("{prefix}.{name}"), desc)).collect();
        for (at, (name, desc)) in (0..).zip(without_conflicts(named, control)) {
            let cluster = u16::try_from(at / ITEMS + 1).ok().filter(|cluster| *cluster < CLUSTERS);
            let Some(cluster) = cluster else { break };
            if let Some(indom) = desc.indom {
                let next = Serial::new(serials.len() as u32);
                metrics.indoms.insert(*serials.entry(indom).or_insert(next), indom);
            }
            metrics.add(name, desc, Item::new(cluster, (at % ITEMS) as u16));
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
            let text = |kind| meta.indom_text(*indom, kind).map(utf8).unwrap_or_default();
            let declared: &mut InDomDef = setup.indom(*serial);
            declared.help(one_line(text(TextKind::OneLine)), text(TextKind::Help));
        }
        let mut served: Vec<&Served> = self.by_pmid.values().collect();
        served.sort_by_key(|metric| metric.item);
        for metric in served {
            let text = |kind| meta.text(metric.desc.pmid, kind).map(utf8).unwrap_or_default();
            let declared: &mut MetricDef = setup.metric(&metric.name, metric.item, metric.desc.ty);
            declared.units(metric.desc.units).help(one_line(text(TextKind::OneLine)), text(TextKind::Help));
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

    /// Returns the instance domain in the archive, if it is served.
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
        // A metric of an agent has one name. If the archive has several, this is the shortest.
        let names = meta.names().names(pmid).filter_map(|name| String::from_utf8(name.to_vec()).ok());
        let name = names.filter(|name| pmns::is_name(name)).min_by_key(String::len)?;
        Some((name, desc))
    })
}

/// Leaves out metrics whose names an agent cannot have: a name space has no metrics below a metric, and those below
/// `control` are the agent's own. An archive may have any names.
fn without_conflicts(named: Vec<(String, Desc)>, control: &str) -> Vec<(String, Desc)> {
    let own = format!("{control}.");
    let inner: HashSet<&str> = named.iter().flat_map(|(name, _)| parents(name)).chain(parents(&own)).collect();
    let fitting = named.iter().map(|(name, _)| !name.starts_with(&own) && !inner.contains(&**name));
    let mut fitting = fitting.collect::<Vec<_>>().into_iter();
    let (kept, left): (Vec<_>, Vec<_>) = named.into_iter().partition(|_| fitting.next().unwrap_or(false));
    if let Some((name, _)) = left.first() {
        warn!(
            "{} of the recorded metrics are not served, of which the first is {name}: other metrics are below them, or \
             they have names of this agent's control metrics",
            left.len()
        );
    }
    kept
}

/// Iterates over the inner nodes of the name space above a name.
fn parents(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('.').filter_map(|(at, _)| name.get(..at))
}

fn utf8(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

fn one_line(text: String) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmapi::Units;

    #[test]
    fn names_that_an_agent_cannot_have() {
        let names = ["a", "a.b", "a.b.c", "a.bc", "control.speed", "control", "controls.x", "control.x.y"];
        let desc = |item: u32| {
            let pmid = PmId::from_word(60 << 22 | item).unwrap();
            Desc { pmid, ty: Type::U32, indom: None, semantics: Semantics::Instant, units: Units::NONE }
        };
        let named = (0..).zip(names).map(|(item, name)| (name.to_owned(), desc(item))).collect();
        let kept = without_conflicts(named, "control");
        let kept: Vec<&str> = kept.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(kept, ["a.b.c", "a.bc", "controls.x"]);
    }
}
