//! Catalogs: sources of metrics, and of their names, instances, texts and labels.

use pcp_pdu::metadata::{Subject, TextKind};

use pmapi::{Desc, Item, LabelSet, PmId, Serial};

use crate::indom::Instances;

/// A source of metrics and of their metadata.
///
/// The declarations of an agent are a catalog, and so is each [`Dynamic`](crate::Dynamic). An agent with so many
/// metrics that copies in a `Dynamic` would cost too much time and memory implements this trait for its own tables.
///
/// The engine asks the agent's own methods first ([`Agent::instances`], [`Agent::text`], [`Agent::labels`]), then the
/// declarations, then [`Agent::catalogs`] in their order. The first one that knows the answer gives it. The answer to a
/// request for the names below a node combines those of all catalogs. Each metric must be in only one catalog.
///
/// Names are full names, below a name that [`Setup::dynamic`](crate::Setup::dynamic) declares. pmcd never asks for the
/// names of declared metrics.
///
/// [`Agent::catalogs`]: crate::Agent::catalogs
/// [`Agent::instances`]: crate::Agent::instances
/// [`Agent::text`]: crate::Agent::text
/// [`Agent::labels`]: crate::Agent::labels
pub trait Catalog {
    /// Returns the version of names and labels. The default is that of a catalog that never changes.
    fn version(&self) -> Version {
        Version::default()
    }

    /// Returns the description of a metric, or `None` for a PMID that is not in the catalog (pmdaDesc(3)).
    fn metric(&self, pmid: PmId) -> Option<MetricInfo>;

    /// Returns the metric of a name (pmdaTreePMID(3)).
    fn lookup(&self, name: &str) -> Option<PmId> {
        let _ = name;
        None
    }

    /// Passes the names of a metric to `give`, the newest first (pmdaTreeName(3)). Returns `None` for an unknown
    /// metric.
    fn names(&self, pmid: PmId, give: &mut dyn FnMut(&str)) -> Option<()> {
        let _ = (pmid, give);
        None
    }

    /// Passes the names directly below `name` to `give`, the newest first (pmdaTreeChildren(3)). Each is the last
    /// component, with true for a metric and false for a node. Returns `None` for an unknown name.
    fn children(&self, name: &str, give: &mut dyn FnMut(&str, bool)) -> Option<()> {
        let _ = (name, give);
        None
    }

    /// Passes the full names of the metrics at or below `name` to `give`, the newest first at each node
    /// (pmdaTreeChildren(3)). Returns `None` for an unknown name.
    fn traverse(&self, name: &str, give: &mut dyn FnMut(&str)) -> Option<()> {
        let _ = (name, give);
        None
    }

    /// Returns the instances of a domain (pmdaInstance(3)).
    fn instances(&self, indom: Serial) -> Option<&dyn Instances> {
        let _ = indom;
        None
    }

    /// Returns the help of a metric or instance domain (pmdaText(3)).
    fn text(&self, of: Subject, kind: TextKind) -> Option<&[u8]> {
        let _ = (of, kind);
        None
    }

    /// Returns labels (pmdaLabel(3)).
    fn labels(&self, of: LabelSubject) -> Option<&LabelSet> {
        let _ = of;
        None
    }
}

/// Counters of the changes of a catalog. Clients are notified with the next values (`PMDA_EXT_NAMES_CHANGE`,
/// `PMDA_EXT_LABEL_CHANGE`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Version {
    /// Number that grows with each change of names, and whenever a metric is added, removed or gets another descriptor.
    pub names: u64,
    /// Number that grows with each change of labels.
    pub labels: u64,
}

/// A metric in a catalog: its descriptor, and whether clients may fetch and store values.
#[derive(Clone, Copy, Debug)]
pub struct MetricInfo {
    pub(crate) desc: Desc,
    pub(crate) storable: bool,
    pub(crate) restricted: bool,
    pub(crate) parameter: bool,
    /// Number of the metric's getter among those of the agent.
    pub(crate) getter: Option<u32>,
}

/// A metric whose values clients may fetch but not store.
impl From<Desc> for MetricInfo {
    fn from(desc: Desc) -> Self {
        MetricInfo { desc, storable: false, restricted: false, parameter: false, getter: None }
    }
}

impl MetricInfo {
    /// Returns the descriptor for a fetch, or the outcome of a fetch that does not call the agent.
    pub(crate) fn fetched(self) -> Result<Desc, pmapi::Result> {
        match self.desc.ty {
            _ if self.parameter => Err(Ok(())),
            pmapi::Type::NoSupport => Err(Err(pmapi::Error::APPVERSION)),
            _ => Ok(self.desc),
        }
    }
}

/// The object that labels belong to. There is a separate request for labels of instances.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LabelSubject {
    /// Everything on the host. pmcd does not request these labels from agents.
    Context,
    /// The agent with all its metrics.
    Agent,
    /// An instance domain.
    InDom(Serial),
    /// The metrics of a cluster.
    Cluster(u16),
    /// A metric.
    Item(Item),
}
