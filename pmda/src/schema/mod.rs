//! The declarations of an agent: metrics, instance domains, help and labels.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use clap::ArgMatches;
use pcp_pdu::handshake::Flags;
use pmapi::config::Config;
use pmapi::label::LabelSet;
use pmapi::{Domain, InDom, Item, PmId, Serial, Type};
use serde::Serialize;

use crate::agent::{Agent, Start};
use crate::client::{Clients, Ends};
use crate::dynamic::{Dynamic, Scope};
use crate::event::{EventQueue, Types};
use crate::indom::Instances;
use crate::options;

mod check;
mod declare;
mod served;

pub(crate) use check::check_help;
pub use check::{Mistake, Mistakes};
pub use declare::{Indom, Metric};
pub(crate) use served::{ByPmid, Served};

/// Name and domain of an agent in PCP. They are those that it declares, unless it is installed under others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// First component of the metrics' names, and name of the agent's directory and log.
    pub name: String,
    /// Domain of the metrics.
    pub domain: Domain,
}

impl Identity {
    /// Returns the name and domain that an agent declares.
    ///
    /// # Errors
    /// An [`Agent::DOMAIN`] outside of 1 to 510.
    pub fn of<A: Agent>() -> Start<Identity> {
        let domain =
            Domain::new(A::DOMAIN).ok_or_else(|| format!("{}: domain {} is not in 1 to 510", A::NAME, A::DOMAIN))?;
        Ok(Identity { name: A::NAME.to_owned(), domain })
    }
}

/// The interface for declarations in [`Agent::new`].
///
/// Mistakes, such as a name that is declared twice, are reported together when the agent starts.
#[derive(Debug)]
pub struct Setup {
    own_name: &'static str,
    wants: Flags,
    name: String,
    domain: Domain,
    config: Config,
    options: ArgMatches,
    metrics: Vec<Metric>,
    indoms: Vec<Indom>,
    /// Names below which metrics are dynamic.
    dynamic: Vec<String>,
    /// Items and names of the declared metrics, for [`Dynamic`]; set by `finish`.
    declared: Arc<OnceLock<Vec<(Item, String)>>>,
    labels: declare::Labels,
    cluster_labels: BTreeMap<u16, declare::Labels>,
    files: Vec<(PathBuf, String)>,
    not_ready: bool,
    pub(crate) ends: Ends,
    /// Types of the declared metrics, for event queues; set by `finish`.
    types: Types,
}

impl Setup {
    pub(crate) fn new<A: Agent>(identity: Identity, config: Config, options: ArgMatches) -> Setup {
        Setup {
            own_name: A::NAME,
            wants: A::WANTS,
            name: identity.name,
            domain: identity.domain,
            config,
            options,
            metrics: Vec::new(),
            indoms: Vec::new(),
            dynamic: Vec::new(),
            declared: Arc::default(),
            labels: Ok(LabelSet::new()),
            cluster_labels: BTreeMap::new(),
            files: Vec::new(),
            not_ready: false,
            ends: Ends::default(),
            types: Types::default(),
        }
    }

    /// Declares a metric by its full name, for instance `simple.color`.
    pub fn metric(&mut self, name: impl Into<String>, item: Item, ty: Type) -> &mut Metric {
        self.metrics.push(Metric::new(name, item, ty));
        let last = self.metrics.len() - 1;
        &mut self.metrics[last]
    }

    /// Declares an instance domain.
    pub fn indom(&mut self, serial: Serial) -> &mut Indom {
        self.indoms.push(Indom::new(serial));
        let last = self.indoms.len() - 1;
        &mut self.indoms[last]
    }

    /// Declares names below which the agent adds and removes metrics while it runs, and returns the holder of these
    /// metrics. In the name space each is `NAME DOMAIN:*:*` (PMNS(5)).
    pub fn dynamic(&mut self, names: impl IntoIterator<Item: Into<String>>) -> Dynamic {
        let roots: Vec<String> = names.into_iter().map(Into::into).collect();
        self.dynamic.extend_from_slice(&roots);
        Dynamic::new(Scope {
            own_name: self.own_name,
            wants: self.wants,
            name: self.name.clone(),
            domain: self.domain,
            roots,
            declared: self.declared.clone(),
        })
    }

    /// Adds labels of the agent; see [`Metric::labels`]. Without any, the agent has its name as a label:
    /// `{"agent":"simple"}`.
    pub fn labels(&mut self, labels: impl Serialize) {
        declare::add(&mut self.labels, |set| set.add(labels));
    }

    /// Adds labels that do not identify the agent; see [`Metric::notes`].
    pub fn notes(&mut self, notes: impl Serialize) {
        declare::add(&mut self.labels, |set| set.add_notes(notes));
    }

    /// Adds labels of the metrics of a cluster; see [`Metric::labels`].
    pub fn cluster_labels(&mut self, cluster: u16, labels: impl Serialize) {
        declare::add(self.cluster(cluster), |set| set.add(labels));
    }

    /// Adds labels that do not identify the metrics of a cluster; see [`Metric::notes`].
    pub fn cluster_notes(&mut self, cluster: u16, notes: impl Serialize) {
        declare::add(self.cluster(cluster), |set| set.add_notes(notes));
    }

    fn cluster(&mut self, cluster: u16) -> &mut declare::Labels {
        self.cluster_labels.entry(cluster).or_insert_with(|| Ok(LabelSet::new()))
    }

    /// Adds a file to the agent's directory, beside the files that are generated from the declarations. `path` is
    /// relative to the directory.
    pub fn file(&mut self, path: impl Into<PathBuf>, content: impl Into<String>) {
        self.files.push((path.into(), content.into()));
    }

    /// Adds a configuration file. Install copies it to `$PCP_SYSCONF_DIR/pmdaNAME`, unless a file of this name exists
    /// there. Remove deletes it if it is unchanged.
    pub fn configuration(&mut self, name: &str, content: impl Into<String>) {
        self.file(Path::new("etc").join(name), content);
    }

    /// Declares that the agent is not ready when it starts ([`Agent::is_ready`]). Install then adds `notready` to its
    /// line in `pmcd.conf`.
    pub fn not_ready(&mut self) {
        self.not_ready = true;
    }

    /// Creates state that the agent keeps for each client. The state of a client is dropped when the client
    /// disconnects.
    pub fn clients<T: 'static>(&mut self) -> Clients<T> {
        Clients::new(&mut self.ends)
    }

    /// Returns the domain that the agent runs under.
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// Returns the agent's name in PCP, which may differ from [`Agent::NAME`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Creates an event queue that holds up to `bytes` of unread events.
    pub fn event_queue(&mut self, bytes: usize) -> EventQueue {
        EventQueue::new(self.domain, bytes, Types::clone(&self.types), &mut self.ends)
    }

    /// Returns the values of the agent's own options ([`Agent::options`]).
    pub fn options(&self) -> &ArgMatches {
        &self.options
    }

    /// Returns PCP's configuration: `pcp.conf` and the environment.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the agent's directory, `$PCP_PMDAS_DIR/NAME`.
    pub fn dir(&self) -> PathBuf {
        self.config.pmdas_dir().join(&self.name)
    }

    /// Returns the full identifier of an instance domain.
    pub fn indom_id(&self, serial: Serial) -> InDom {
        InDom::new(self.domain, serial)
    }
}

/// The checked declarations of an agent.
#[derive(Debug)]
pub struct Schema {
    own_name: &'static str,
    name: String,
    domain: Domain,
    metrics: Vec<Metric>,
    indoms: Vec<Indom>,
    dynamic: Vec<String>,
    files: Vec<(PathBuf, String)>,
    not_ready: bool,
    served: ByPmid,
    storable: bool,
    pub(crate) labels: Labels,
    pub(crate) ends: Ends,
}

/// Declared labels, by level.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    pub(crate) domain: LabelSet,
    pub(crate) clusters: BTreeMap<u16, LabelSet>,
    pub(crate) items: HashMap<Item, LabelSet>,
    pub(crate) indoms: HashMap<Serial, LabelSet>,
}

impl Schema {
    /// Returns the declarations of an agent, without running it.
    ///
    /// # Errors
    /// The errors of [`Schema::with`].
    pub fn of<A: Agent>() -> Start<Schema> {
        Self::with::<A>(Config::load())
    }

    /// Returns the declarations of an agent for another configuration, which locates the files that the agent reads.
    ///
    /// # Errors
    /// An [`Agent::DOMAIN`] outside of 1 to 510, the error of [`Agent::new`], or [`Mistakes`] in the declarations.
    pub fn with<A: Agent>(config: Config) -> Start<Schema> {
        let (schema, _) = Self::start::<A>(Identity::of::<A>()?, config, options::none::<A>()?)?;
        Ok(schema)
    }

    /// Creates an agent and checks its declarations.
    pub(crate) fn start<A: Agent>(identity: Identity, config: Config, options: ArgMatches) -> Start<(Schema, A)> {
        let mut setup = Setup::new::<A>(identity, config, options);
        let agent = A::new(&mut setup)?;
        let schema = setup.finish()?;
        schema.check_dynamic(agent.dynamic())?;
        Ok((schema, agent))
    }

    /// Returns the agent's name in PCP.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name that the agent declares.
    pub(crate) fn own_name(&self) -> &str {
        self.own_name
    }

    /// Returns whether the agent has another name than it declares.
    pub(crate) fn is_renamed(&self) -> bool {
        self.name != self.own_name
    }

    /// Returns the domain that the agent runs under.
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// Returns the declared metrics.
    pub fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    /// Returns the declared instance domains.
    pub fn indoms(&self) -> &[Indom] {
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

    /// Finds a declared metric.
    pub(crate) fn find(&self, pmid: PmId) -> Option<&Served> {
        self.served.find(pmid)
    }

    /// Returns whether any metric is storable.
    pub(crate) fn is_storable(&self) -> bool {
        self.storable
    }

    /// Returns the declared instances of a domain.
    pub(crate) fn instances(&self, serial: Serial) -> Option<&dyn Instances> {
        self.indoms.iter().find(|indom| indom.serial == serial).map(|indom| &indom.instances as &dyn Instances)
    }
}

impl Setup {
    /// Replaces the agent's own name by its name in PCP, in the names of the metrics.
    fn rename(&mut self) {
        for name in self.metrics.iter_mut().map(|m| &mut m.name).chain(&mut self.dynamic) {
            if let Some(rest) = name.strip_prefix(self.own_name)
                && (rest.is_empty() || rest.starts_with('.'))
            {
                *name = format!("{}{rest}", self.name);
            }
        }
    }

    fn finish(mut self) -> Result<Schema, Mistakes> {
        self.rename();
        let mut mistakes = Vec::new();
        self.check_metrics(&mut mistakes);
        self.check_indoms(&mut mistakes);
        let mut labels = Labels::default();
        let mut checked = |of: String, set: Result<LabelSet, String>| {
            let set = set.map_err(|e| mistakes.push(Mistake::Labels(of, e))).ok();
            set.filter(|set| !set.is_empty())
        };
        // An agent is labelled with its name, unless it has labels of its own.
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
        let _ = self.declared.set(declared);
        let mut types: Vec<_> = self.metrics.iter().map(|m| (m.item, m.ty)).collect();
        types.sort_by_key(|(item, _)| *item);
        let _ = self.types.set(types);
        Ok(Schema {
            own_name: self.own_name,
            name: self.name,
            domain: self.domain,
            storable: self.metrics.iter().any(|m| m.storable),
            served: ByPmid::new(self.metrics.iter().map(|m| m.served(self.domain))),
            metrics: self.metrics,
            indoms: self.indoms,
            dynamic: self.dynamic,
            files: self.files,
            not_ready: self.not_ready,
            ends: self.ends,
            labels,
        })
    }
}

impl Schema {
    /// Checks the metrics that the agent added before its declarations were complete.
    fn check_dynamic(&self, dynamic: Option<&Dynamic>) -> Result<(), Mistakes> {
        let clash = |m: &Metric| {
            let other = dynamic?.names(m.item()).next()?;
            Some(Mistake::SameItem(m.name.clone(), other.to_owned(), m.item()))
        };
        let mistakes: Vec<Mistake> = self.metrics.iter().filter_map(clash).collect();
        if mistakes.is_empty() { Ok(()) } else { Err(Mistakes(mistakes)) }
    }
}
