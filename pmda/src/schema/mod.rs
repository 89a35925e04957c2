//! What an agent declares: its metrics, instance domains, help and labels.

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

/// Who an agent is in PCP: what its declaration says, unless it is installed as another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The first component of the metrics' names, and the name of the directory and the log.
    pub name: String,
    /// The domain of the metrics.
    pub domain: Domain,
}

impl Identity {
    /// What an agent declares.
    pub fn of<A: Agent>() -> Start<Identity> {
        let domain =
            Domain::new(A::DOMAIN).ok_or_else(|| format!("{}: domain {} is not in 1 to 510", A::NAME, A::DOMAIN))?;
        Ok(Identity { name: A::NAME.to_owned(), domain })
    }
}

/// Where [`Agent::new`] declares what the agent has.
///
/// Mistakes, such as a name given twice, are reported together when the agent starts.
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
    /// What dynamic metrics must keep clear of, once it is known.
    declared: Arc<OnceLock<Vec<(Item, String)>>>,
    labels: declare::Labels,
    cluster_labels: BTreeMap<u16, declare::Labels>,
    files: Vec<(PathBuf, String)>,
    not_ready: bool,
    pub(crate) ends: Ends,
    /// For event queues, once they are known.
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

    /// Declares names below which the agent adds and removes metrics while it runs; the metrics are in
    /// what comes back. In the name space they are `NAME DOMAIN:*:*` (PMNS(5)).
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

    /// Labels of everything that the agent has, as [`Metric::labels`]. Without any it has its name,
    /// `{"agent":"simple"}`.
    pub fn labels(&mut self, labels: impl Serialize) {
        declare::add(&mut self.labels, |set| set.add(labels));
    }

    /// Labels that do not identify the agent, as [`Metric::notes`].
    pub fn notes(&mut self, notes: impl Serialize) {
        declare::add(&mut self.labels, |set| set.add_notes(notes));
    }

    /// Labels of the metrics of a cluster, as [`Metric::labels`].
    pub fn cluster_labels(&mut self, cluster: u16, labels: impl Serialize) {
        declare::add(self.cluster(cluster), |set| set.add(labels));
    }

    /// Labels that do not identify the metrics of a cluster, as [`Metric::notes`].
    pub fn cluster_notes(&mut self, cluster: u16, notes: impl Serialize) {
        declare::add(self.cluster(cluster), |set| set.add_notes(notes));
    }

    fn cluster(&mut self, cluster: u16) -> &mut declare::Labels {
        self.cluster_labels.entry(cluster).or_insert_with(|| Ok(LabelSet::new()))
    }

    /// A file that belongs into the agent's directory beside those that are written from the
    /// declarations, for instance a first configuration.
    pub fn file(&mut self, path: impl Into<PathBuf>, content: impl Into<String>) {
        self.files.push((path.into(), content.into()));
    }

    /// A configuration that Install puts into `$PCP_SYSCONF_DIR/pmdaNAME`, unless there is one of this name. What nobody
    /// has changed until then Remove takes away.
    pub fn configuration(&mut self, name: &str, content: impl Into<String>) {
        self.file(Path::new("etc").join(name), content);
    }

    /// The agent is not ready from the start ([`Agent::is_ready`]): Install has pmcd wait for it (`notready` in pmcd.conf).
    pub fn not_ready(&mut self) {
        self.not_ready = true;
    }

    /// What the agent keeps for each client; dropped when the client has gone.
    pub fn clients<T: 'static>(&mut self) -> Clients<T> {
        Clients::new(&mut self.ends)
    }

    /// The domain that the agent runs under.
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// The agent's name in PCP, which may be another than it declares.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A queue that takes up to `bytes` of events that are yet to be read.
    pub fn event_queue(&mut self, bytes: usize) -> EventQueue {
        EventQueue::new(self.domain, bytes, Types::clone(&self.types), &mut self.ends)
    }

    /// What the agent's own options were given ([`Agent::options`]).
    pub fn options(&self) -> &ArgMatches {
        &self.options
    }

    /// PCP's configuration: pcp.conf and the environment.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The agent's directory, `$PCP_PMDAS_DIR/NAME`.
    pub fn dir(&self) -> PathBuf {
        self.config.pmdas_dir().join(&self.name)
    }

    /// The full identifier of an instance domain.
    pub fn indom_id(&self, serial: Serial) -> InDom {
        InDom::new(self.domain, serial)
    }
}

/// What an agent has declared, checked.
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
    /// What an agent declares, without running it.
    pub fn of<A: Agent>() -> Start<Schema> {
        Self::with::<A>(Config::load())
    }

    /// The same with another configuration, which says where the files are that an agent looks at.
    pub fn with<A: Agent>(config: Config) -> Start<Schema> {
        let (schema, _) = Self::start::<A>(Identity::of::<A>()?, config, options::none::<A>()?)?;
        Ok(schema)
    }

    /// Creates an agent and checks what it declares.
    pub(crate) fn start<A: Agent>(identity: Identity, config: Config, options: ArgMatches) -> Start<(Schema, A)> {
        let mut setup = Setup::new::<A>(identity, config, options);
        let agent = A::new(&mut setup)?;
        let schema = setup.finish()?;
        schema.check_dynamic(agent.dynamic())?;
        Ok((schema, agent))
    }

    /// The agent's name in PCP.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name that the agent declares.
    pub(crate) fn own_name(&self) -> &str {
        self.own_name
    }

    /// Whether the agent has another name than it declares.
    pub(crate) fn is_renamed(&self) -> bool {
        self.name != self.own_name
    }

    /// The domain that the agent runs under.
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// The metrics, as declared.
    pub fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    /// The instance domains, as declared.
    pub fn indoms(&self) -> &[Indom] {
        &self.indoms
    }

    /// The names below which metrics are dynamic.
    pub fn dynamic(&self) -> &[String] {
        &self.dynamic
    }

    /// Further files of the agent's directory.
    pub fn files(&self) -> &[(PathBuf, String)] {
        &self.files
    }

    /// Whether Install has pmcd wait until the agent tells that it is ready.
    pub(crate) fn is_not_ready(&self) -> bool {
        self.not_ready
    }

    /// The metric of a PMID.
    pub(crate) fn find(&self, pmid: PmId) -> Option<&Served> {
        self.served.find(pmid)
    }

    /// Whether any metric may be stored.
    pub(crate) fn is_storable(&self) -> bool {
        self.storable
    }

    /// The instances of a domain that were declared.
    pub(crate) fn instances(&self, serial: Serial) -> Option<&dyn Instances> {
        self.indoms.iter().find(|indom| indom.serial == serial).map(|indom| &indom.instances as &dyn Instances)
    }
}

impl Setup {
    /// Puts the agent's name in PCP in the place of its own in the names of the metrics.
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
        // Nobody else sets it.
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
    /// Metrics that the agent has added before its declarations were complete.
    fn check_dynamic(&self, dynamic: Option<&Dynamic>) -> Result<(), Mistakes> {
        let clash = |m: &Metric| {
            let other = dynamic?.names(m.item()).next()?;
            Some(Mistake::SameItem(m.name.clone(), other.to_owned(), m.item()))
        };
        let mistakes: Vec<Mistake> = self.metrics.iter().filter_map(clash).collect();
        if mistakes.is_empty() { Ok(()) } else { Err(Mistakes(mistakes)) }
    }
}
