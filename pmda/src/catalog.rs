//! Dynamic metrics that an agent keeps in tables of its own.

use pmapi::{Desc, PmId};

/// Dynamic metrics in tables of the agent, returned by [`Agent::catalog`]. It is for agents with so many metrics that
/// copies in a [`Dynamic`](crate::Dynamic) would cost too much time and memory.
///
/// Names are full names, below a name that [`Setup::dynamic`](crate::Setup::dynamic) declares. The catalog must not
/// have a metric or node that is also in the agent's `Dynamic`.
///
/// [`Agent::catalog`]: crate::Agent::catalog
pub trait Catalog {
    /// Returns a number that grows with each change of names. Clients are notified with the next values
    /// (`PMDA_EXT_NAMES_CHANGE`).
    fn version(&self) -> u64;

    /// Returns the descriptor of a metric (pmdaDesc(3)).
    fn desc(&self, pmid: PmId) -> Option<Desc>;

    /// Returns the metric of a name (pmdaTreePMID(3)).
    fn lookup(&self, name: &str) -> Option<PmId>;

    /// Returns the name of a metric (pmdaTreeName(3)).
    fn name(&self, pmid: PmId) -> Option<&str>;

    /// Passes the names directly below `name` to `give`, the newest first (pmdaTreeChildren(3)). Each is the last
    /// component, with true for a metric and false for a node. Returns `None` for an unknown name.
    fn children(&self, name: &str, give: &mut dyn FnMut(&str, bool)) -> Option<()>;

    /// Passes the full names of the metrics at or below `name` to `give`, the newest first at each node
    /// (pmdaTreeChildren(3)). Returns `None` for an unknown name.
    fn traverse(&self, name: &str, give: &mut dyn FnMut(&str)) -> Option<()>;
}

/// Counters of changes of names and labels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Version {
    pub(crate) names: u64,
    pub(crate) labels: u64,
}
