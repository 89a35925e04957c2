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
    /// Appends the names of a metric, joined by " or ". Returns whether it has one.
    pub(crate) fn append_joined(&self, pmid: PmId, out: &mut Vec<u8>) -> bool {
        let mut count = 0;
        let mut append = |name: &[u8]| {
            if count > 0 {
                out.extend_from_slice(b" or ");
            }
            out.extend_from_slice(name);
            count += 1;
        };
        match self {
            Names::Archive(meta) => meta.names().names(pmid).for_each(append),
            Names::File(tree) => tree.names(pmid).for_each(|name| append(name.as_bytes())),
        }
        count > 0
    }

    /// Returns whether a metric has a name.
    pub(crate) fn has(&self, pmid: PmId) -> bool {
        match self {
            Names::Archive(meta) => meta.names().names(pmid).len() > 0,
            Names::File(tree) => tree.names(pmid).next().is_some(),
        }
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
