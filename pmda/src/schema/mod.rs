//! What an agent declares: its metrics, instance domains, help and labels.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use pmapi::config::Config;
use pmapi::label::LabelSet;
use pmapi::{Desc, Domain, InDom, Item, PmId, Serial, Type};

use crate::agent::{Agent, Start};
use crate::indom::{Fixed, Instances};

mod check;
mod declare;

pub use check::{Mistake, Mistakes};
pub use declare::{Indom, Metric};

use check::label_set;

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
    name: String,
    domain: Domain,
    config: Config,
    metrics: Vec<Metric>,
    indoms: Vec<Indom>,
    labels: Option<LabelSet>,
    cluster_labels: BTreeMap<u16, LabelSet>,
    files: Vec<(PathBuf, String)>,
    mistakes: Vec<Mistake>,
}

impl Setup {
    pub(crate) fn new<A: Agent>(identity: Identity, config: Config) -> Setup {
        Setup {
            own_name: A::NAME,
            name: identity.name,
            domain: identity.domain,
            config,
            metrics: Vec::new(),
            indoms: Vec::new(),
            labels: None,
            cluster_labels: BTreeMap::new(),
            files: Vec::new(),
            mistakes: Vec::new(),
        }
    }

    /// Declares a metric by its full name, for instance `simple.color`.
    pub fn metric(&mut self, name: impl Into<String>, item: Item, ty: Type) -> &mut Metric {
        self.metrics.push(Metric::new(name.into(), item, ty));
        let last = self.metrics.len() - 1;
        &mut self.metrics[last]
    }

    /// Declares an instance domain.
    pub fn indom(&mut self, serial: Serial) -> &mut Indom {
        self.indoms.push(Indom::new(serial));
        let last = self.indoms.len() - 1;
        &mut self.indoms[last]
    }

    /// Labels of everything that the agent has: an object of names and values.
    pub fn labels(&mut self, labels: serde_json::Value) {
        self.labels = label_set(&mut self.mistakes, || "labels".into(), Some(&labels));
    }

    /// Labels of the metrics of a cluster: an object of names and values.
    pub fn cluster_labels(&mut self, cluster: u16, labels: serde_json::Value) {
        let set = label_set(&mut self.mistakes, || format!("labels of cluster {cluster}"), Some(&labels));
        self.cluster_labels.extend(set.map(|set| (cluster, set)));
    }

    /// A file that belongs into the agent's directory beside those that are written from the
    /// declarations, for instance a first configuration.
    pub fn file(&mut self, path: impl Into<PathBuf>, content: impl Into<String>) {
        self.files.push((path.into(), content.into()));
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

/// A metric as the engine needs it.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) desc: Desc,
    pub(crate) item: Item,
    pub(crate) storable: bool,
}

/// What an agent has declared, checked.
#[derive(Debug)]
pub struct Schema {
    own_name: &'static str,
    name: String,
    domain: Domain,
    metrics: Vec<Metric>,
    indoms: Vec<Indom>,
    files: Vec<(PathBuf, String)>,
    /// Sorted by item.
    served: Vec<Served>,
    fixed: HashMap<Serial, Fixed>,
    storable: bool,
    pub(crate) labels: Labels,
}

/// Declared labels, by level.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    pub(crate) domain: Option<LabelSet>,
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
        let (schema, _) = Self::start::<A>(Identity::of::<A>()?, config)?;
        Ok(schema)
    }

    /// Creates an agent and checks what it declares.
    pub(crate) fn start<A: Agent>(identity: Identity, config: Config) -> Start<(Schema, A)> {
        let mut setup = Setup::new::<A>(identity, config);
        let agent = A::new(&mut setup)?;
        Ok((setup.finish()?, agent))
    }

    /// The agent's name in PCP.
    pub fn name(&self) -> &str {
        &self.name
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

    /// Further files of the agent's directory.
    pub fn files(&self) -> &[(PathBuf, String)] {
        &self.files
    }

    /// The metric of a PMID.
    pub(crate) fn find(&self, pmid: PmId) -> Option<&Served> {
        let at = self.served.binary_search_by_key(&pmid, |m| m.desc.pmid).ok()?;
        self.served.get(at)
    }

    /// Whether any metric may be stored.
    pub(crate) fn is_storable(&self) -> bool {
        self.storable
    }

    /// The instances of a domain that were declared.
    pub(crate) fn instances(&self, serial: Serial) -> Option<&dyn Instances> {
        self.fixed.get(&serial).map(|fixed| fixed as &dyn Instances)
    }
}

impl Setup {
    /// Puts the agent's name in PCP in the place of its own in the names of the metrics.
    fn rename(&mut self) {
        for m in &mut self.metrics {
            if let Some(rest) = m.name.strip_prefix(self.own_name)
                && (rest.is_empty() || rest.starts_with('.'))
            {
                m.name = format!("{}{rest}", self.name);
            }
        }
    }

    fn finish(mut self) -> Result<Schema, Mistakes> {
        self.rename();
        let mut mistakes = std::mem::take(&mut self.mistakes);
        self.check_metrics(&mut mistakes);
        self.check_indoms(&mut mistakes);
        let mut labels = Labels { domain: self.labels, clusters: self.cluster_labels, ..Labels::default() };
        for m in &self.metrics {
            let set = label_set(&mut mistakes, || format!("labels of metric {}", m.name), m.labels.as_ref());
            labels.items.extend(set.map(|set| (m.item, set)));
        }
        for i in &self.indoms {
            let set = label_set(&mut mistakes, || format!("labels of domain {}", i.serial), i.labels.as_ref());
            labels.indoms.extend(set.map(|set| (i.serial, set)));
        }
        if !mistakes.is_empty() {
            return Err(Mistakes(mistakes));
        }
        let served = |m: &Metric| Served { desc: m.desc(self.domain), item: m.item, storable: m.storable };
        let mut served: Vec<Served> = self.metrics.iter().map(served).collect();
        served.sort_by_key(|m| m.desc.pmid);
        Ok(Schema {
            own_name: self.own_name,
            name: self.name,
            domain: self.domain,
            storable: self.metrics.iter().any(|m| m.storable),
            fixed: self.indoms.iter().map(|i| (i.serial, Fixed::new(i.instances.clone()))).collect(),
            metrics: self.metrics,
            indoms: self.indoms,
            files: self.files,
            served,
            labels,
        })
    }
}
