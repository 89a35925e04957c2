//! The declarations of an agent: metrics, instance domains, help and labels.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use pcp_help::{Compiled, Target};
use pcp_pdu::handshake::Features;
use pcp_pdu::metadata::{Subject, TextKind};
use pmapi::names::strip_node;
use pmapi::{Domain, Item, LabelSet, PmId, Serial};

use crate::catalog::{Catalog, LabelSubject, MetricInfo};
use crate::client::Ends;
use crate::event::Types;
use crate::indom::Instances;
use crate::values::{Erased, Getters, WrongAgent};

mod check;
mod declare;
mod install;
mod mistake;

pub(crate) use declare::add;
pub use declare::{InDomDef, MetricDef};
pub use install::ArgumentDef;
pub(crate) use install::Running;
pub(crate) use mistake::check_help;
pub use mistake::{Mistake, Mistakes};

/// Name and domain of an agent in PCP. These are the declared ones, unless the agent is installed under others.
#[derive(Debug)]
pub(crate) struct Identity {
    /// First component of the metrics' names, and name of the agent's directory and log.
    pub(crate) name: String,
    /// Domain of the metrics.
    pub(crate) domain: Domain,
}

/// The declarations of an agent while it makes them, with [`Setup`](crate::Setup).
#[derive(Debug)]
pub(crate) struct Declarations {
    pub(crate) own_name: &'static str,
    pub(crate) wants: Features,
    pub(crate) name: String,
    pub(crate) domain: Domain,
    pub(crate) metrics: Vec<MetricDef>,
    pub(crate) indoms: Vec<InDomDef>,
    /// Functions that find the instances of tables.
    pub(crate) tables: Vec<(Serial, Erased)>,
    /// Names below which metrics are dynamic.
    pub(crate) dynamic: Vec<String>,
    /// Items and names of the declared metrics, for dynamic metrics; set by [`Declarations::finish`].
    pub(crate) items: Arc<OnceLock<Vec<(Item, String)>>>,
    pub(crate) labels: declare::LabelResult,
    pub(crate) cluster_labels: BTreeMap<u16, declare::LabelResult>,
    pub(crate) files: Vec<(PathBuf, String)>,
    pub(crate) not_ready: bool,
    /// Install enters the domain into the host's list of domains.
    pub(crate) reserves_domain: bool,
    pub(crate) arguments: Vec<ArgumentDef>,
    pub(crate) running: Running,
    pub(crate) ends: Ends,
    /// Types of the declared metrics, for event queues; set by [`Declarations::finish`].
    pub(crate) types: Types,
}

/// The checked declarations of an agent.
#[derive(Debug)]
pub struct Schema {
    own_name: &'static str,
    name: String,
    domain: Domain,
    metrics: Vec<MetricDef>,
    indoms: Vec<InDomDef>,
    tables: Vec<(Serial, Erased)>,
    dynamic: Vec<String>,
    files: Vec<(PathBuf, String)>,
    not_ready: bool,
    reserves_domain: bool,
    arguments: Vec<ArgumentDef>,
    running: Running,
    by_pmid: HashMap<PmId, MetricInfo>,
    storable: bool,
    labels: Labels,
    /// Help for requests; set by an engine.
    pub(crate) compiled_help: Option<Compiled>,
    pub(crate) ends: Ends,
}

/// Declared labels, by level.
#[derive(Debug, Default)]
struct Labels {
    domain: LabelSet,
    clusters: BTreeMap<u16, LabelSet>,
    items: HashMap<Item, LabelSet>,
    indoms: HashMap<Serial, LabelSet>,
}

impl Schema {
    /// Returns the agent's name in PCP.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name that the agent declares.
    pub(crate) fn own_name(&self) -> &str {
        self.own_name
    }

    /// Returns whether the agent's name differs from the declared one.
    pub(crate) fn is_renamed(&self) -> bool {
        self.name != self.own_name
    }

    /// Returns the domain that the agent runs under.
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// Returns the declared metrics.
    pub fn metrics(&self) -> &[MetricDef] {
        &self.metrics
    }

    /// Returns the name of a declared metric.
    pub(crate) fn name_of(&self, pmid: PmId) -> Option<&str> {
        self.metrics.iter().find(|m| PmId::new(self.domain, m.item) == pmid).map(|m| m.name.as_str())
    }

    /// Returns the declared instance domains.
    pub fn indoms(&self) -> &[InDomDef] {
        &self.indoms
    }

    /// Returns the names below which metrics are dynamic.
    pub fn dynamic(&self) -> &[String] {
        &self.dynamic
    }

    /// Returns the paths and contents of additional files in the agent's directory.
    pub fn files(&self) -> &[(PathBuf, String)] {
        &self.files
    }

    /// Returns whether pmcd has to wait until the agent reports that it is ready.
    pub(crate) fn is_not_ready(&self) -> bool {
        self.not_ready
    }

    /// Returns whether Install enters the domain into the host's list of domains.
    pub(crate) fn reserves_domain(&self) -> bool {
        self.reserves_domain
    }

    /// Returns the options that Install asks for.
    pub(crate) fn arguments(&self) -> &[ArgumentDef] {
        &self.arguments
    }

    /// Returns how pmcd runs the agent.
    pub(crate) fn running(&self) -> &Running {
        &self.running
    }

    /// Returns the getters of the agent. Those of metrics have the numbers that [`MetricInfo::getter`] has.
    pub(crate) fn getters<A: 'static>(&self) -> Result<Getters<A>, Mistakes> {
        let mut getters = Getters::new();
        let mut mistakes = Vec::new();
        let mut add = |of: &dyn Fn() -> String, added: Result<(), WrongAgent>| {
            let mistake = |WrongAgent { getter, agent }| Mistake::Getter { of: of(), getter, agent };
            mistakes.extend(added.map_err(mistake).err());
        };
        for m in &self.metrics {
            if let Some(getter) = &m.getter {
                add(&|| format!("metric {}", m.name), getters.add(getter));
            }
        }
        for (serial, find) in &self.tables {
            add(&|| format!("instance domain {serial}"), getters.add_instances(*serial, find));
        }
        if mistakes.is_empty() { Ok(getters) } else { Err(Mistakes(mistakes)) }
    }

    /// Returns whether any metric is storable.
    pub(crate) fn is_storable(&self) -> bool {
        self.storable
    }
}

/// Describes metrics, with the numbers of their getters.
fn infos(metrics: &[MetricDef], domain: Domain) -> HashMap<PmId, MetricInfo> {
    let mut getters = 0..;
    let infos = metrics.iter().map(|m| {
        let getter = m.getter.as_ref().and_then(|_| getters.next());
        MetricInfo { getter, ..m.info(domain) }
    });
    infos.map(|info| (info.desc.pmid, info)).collect()
}

impl Catalog for Schema {
    fn metric(&self, pmid: PmId) -> Option<MetricInfo> {
        self.by_pmid.get(&pmid).copied()
    }

    fn instances(&self, serial: Serial) -> Option<&dyn Instances> {
        self.indoms.iter().find(|indom| indom.serial == serial).map(|indom| &indom.instances as &dyn Instances)
    }

    fn text(&self, of: Subject, kind: TextKind) -> Option<&[u8]> {
        let target = match of {
            Subject::Metric(pmid) => Target::Metric(pmid),
            Subject::InDom(indom) => Target::InDom(indom),
        };
        match kind {
            TextKind::OneLine => self.compiled_help.as_ref()?.oneline(target),
            TextKind::Help => self.compiled_help.as_ref()?.text(target),
        }
    }

    fn labels(&self, of: LabelSubject) -> Option<&LabelSet> {
        match of {
            LabelSubject::Context => None,
            LabelSubject::Agent => Some(&self.labels.domain),
            LabelSubject::InDom(serial) => self.labels.indoms.get(&serial),
            LabelSubject::Cluster(cluster) => self.labels.clusters.get(&cluster),
            LabelSubject::Item(item) => self.labels.items.get(&item),
        }
    }
}

impl Declarations {
    pub(crate) fn new(own_name: &'static str, wants: Features, identity: Identity) -> Declarations {
        Declarations {
            own_name,
            wants,
            name: identity.name,
            domain: identity.domain,
            metrics: Vec::new(),
            indoms: Vec::new(),
            tables: Vec::new(),
            dynamic: Vec::new(),
            items: Arc::default(),
            labels: Ok(LabelSet::new()),
            cluster_labels: BTreeMap::new(),
            files: Vec::new(),
            not_ready: false,
            reserves_domain: false,
            arguments: Vec::new(),
            running: Running::default(),
            ends: Ends::default(),
            types: Types::default(),
        }
    }

    /// Adds a metric.
    pub(crate) fn add(&mut self, metric: MetricDef) -> &mut MetricDef {
        self.metrics.push(metric);
        let last = self.metrics.len() - 1;
        &mut self.metrics[last]
    }

    /// Adds an instance domain.
    pub(crate) fn add_indom(&mut self, serial: Serial) -> &mut InDomDef {
        self.indoms.push(InDomDef::new(serial));
        let last = self.indoms.len() - 1;
        &mut self.indoms[last]
    }

    /// Replaces the agent's own name by its name in PCP, in the names of the metrics.
    fn rename(&mut self) {
        for name in self.metrics.iter_mut().map(|m| &mut m.name).chain(&mut self.dynamic) {
            if let Some(rest) = strip_node(name, self.own_name) {
                *name = format!("{}{rest}", self.name);
            }
        }
    }

    /// Checks the declarations.
    pub(crate) fn finish(mut self) -> Result<Schema, Mistakes> {
        self.rename();
        let mut mistakes = Vec::new();
        self.check_metrics(&mut mistakes);
        self.check_indoms(&mut mistakes);
        self.check_install(&mut mistakes);
        let mut labels = Labels::default();
        let mut checked = |of: String, set: Result<LabelSet, String>| {
            let set = set.map_err(|e| mistakes.push(Mistake::Labels { of, reason: e })).ok();
            set.filter(|set| !set.is_empty())
        };
        // An agent is labelled with its name, unless it has its own labels.
        let own_name = || LabelSet::domain(&self.name).unwrap_or_default();
        labels.domain = checked("labels".into(), self.labels).unwrap_or_else(own_name);
        for (cluster, set) in self.cluster_labels {
            labels.clusters.extend(checked(format!("labels of cluster {cluster}"), set).map(|set| (cluster, set)));
        }
        for m in &self.metrics {
            labels
                .items
                .extend(checked(format!("labels of metric {}", m.name), m.label_set()).map(|set| (m.item, set)));
        }
        for i in &self.indoms {
            let of = format!("labels of instance domain {}", i.serial);
            labels.indoms.extend(checked(of, i.label_set()).map(|set| (i.serial, set)));
        }
        if !mistakes.is_empty() {
            return Err(Mistakes(mistakes));
        }
        let mut declared: Vec<_> = self.metrics.iter().map(|m| (m.item, m.name.clone())).collect();
        declared.sort_by_key(|(item, _)| *item);
        // Only this function sets it.
        let _ = self.items.set(declared);
        let mut types: Vec<_> = self.metrics.iter().map(|m| (m.item, m.ty)).collect();
        types.sort_by_key(|(item, _)| *item);
        let _ = self.types.set(types);
        Ok(Schema {
            own_name: self.own_name,
            name: self.name,
            domain: self.domain,
            storable: self.metrics.iter().any(|m| m.storable),
            by_pmid: infos(&self.metrics, self.domain),
            metrics: self.metrics,
            indoms: self.indoms,
            tables: self.tables,
            dynamic: self.dynamic,
            files: self.files,
            not_ready: self.not_ready,
            reserves_domain: self.reserves_domain,
            arguments: self.arguments,
            running: self.running,
            ends: self.ends,
            labels,
            compiled_help: None,
        })
    }
}
