//! Names of metrics, from the archive or from a file of option `-n`.

use pcp_archive::Metadata;
use pmapi::{Error, PmId};
use pmns::Tree;

/// Name space in use.
pub(crate) enum Names<'a> {
    Archive(&'a Metadata),
    File(&'a Tree),
}

impl Names<'_> {
    /// Returns the names of a metric joined by " or "; `None` without one.
    pub(crate) fn joined(&self, pmid: PmId) -> Option<Vec<u8>> {
        let names: Vec<Vec<u8>> = match self {
            Names::Archive(meta) => meta.names().names(pmid).map(<[u8]>::to_vec).collect(),
            Names::File(tree) => tree.names(pmid).map(|name| name.into_bytes()).collect(),
        };
        (!names.is_empty()).then(|| names.join(&b" or "[..]))
    }

    /// Returns the metric with a name.
    pub(crate) fn pmid(&self, name: &str) -> Result<PmId, Error> {
        match self {
            Names::Archive(meta) => meta.names().pmid(name.as_bytes()),
            Names::File(tree) => tree.lookup(name),
        }
    }

    /// Returns the metrics below a node.
    pub(crate) fn below(&self, name: &str) -> Result<Vec<PmId>, Error> {
        match self {
            Names::Archive(meta) => {
                Ok(meta.names().below(name.as_bytes())?.into_iter().map(|(_, pmid)| pmid).collect())
            }
            Names::File(tree) => {
                let node = tree.node(name).ok_or(Error::NAME)?;
                Ok(node.leaves().filter_map(|leaf| leaf.pmid()).collect())
            }
        }
    }
}
