//! Metrics that an agent finds in tables of its own.

use pmapi::{Desc, PmId};

/// Metrics that come and go, in tables that the agent has anyway: for so many that each of them in a
/// [`Dynamic`](crate::Dynamic), too, would take more time and memory than everything else. [`Agent::catalog`] has it.
///
/// Names are full ones, below a name that [`Setup::dynamic`](crate::Setup::dynamic) declares. A metric or a node that a
/// `Dynamic` of the agent has as well is not given here.
///
/// [`Agent::catalog`]: crate::Agent::catalog
pub trait Catalog {
    /// A number that grows when names have changed. Clients are told with the next values (`PMDA_EXT_NAMES_CHANGE`).
    fn version(&self) -> u64;

    /// The descriptor of a metric (pmdaDesc(3)).
    fn desc(&self, pmid: PmId) -> Option<Desc>;

    /// The metric of a name (pmdaTreePMID(3)).
    fn lookup(&self, name: &str) -> Option<PmId>;

    /// The name of a metric (pmdaTreeName(3)).
    fn name(&self, pmid: PmId) -> Option<&str>;

    /// Gives the last components of the names right below a name, the newest first, and whether they are metrics; nothing
    /// when there is no such name (pmdaTreeChildren(3)).
    fn children(&self, name: &str, give: &mut dyn FnMut(&str, bool)) -> Option<()>;

    /// Gives the names of the metrics at or below a name, the newest first at each node; nothing when there is no such
    /// name (pmdaTreeChildren(3)).
    fn traverse(&self, name: &str, give: &mut dyn FnMut(&str)) -> Option<()>;
}
