//! Answers to `PMNS_NAMES`, `PMNS_IDS`, `PMNS_CHILD` and `PMNS_TRAVERSE`.

use pcp_pdu::names::{NamesWriter, Node, Statuses, encode_ids};
use pcp_pdu::{FROM_AGENT, Pdu};
use pmapi::{Error, Result};

use crate::catalog::Catalog;

/// Appends the answer of catalogs.
pub(super) fn answer<'a>(
    mut catalogs: impl Iterator<Item = &'a dyn Catalog>,
    request: Pdu<'_>,
    out: &mut Vec<u8>,
) -> Result {
    match request {
        Pdu::Names(names) => {
            let name = names.iter().next().and_then(|(_, name)| text(name)).ok_or(Error::NAME)?;
            let pmid = catalogs.find_map(|catalog| catalog.lookup(name)).ok_or(Error::NAME)?;
            encode_ids(out, FROM_AGENT, 0, &[Some(pmid)])
        }
        Pdu::Ids(ids) => {
            let pmid = ids.pmids().next().flatten().ok_or(Error::PMID)?;
            let mut names = NamesWriter::new(out, FROM_AGENT, Statuses::Omitted);
            catalogs
                .find_map(|catalog| catalog.names(pmid, &mut |name| names.push(Node::Leaf, name.as_bytes())))
                .ok_or(Error::PMID)?;
            names.finish()
        }
        Pdu::Child(child) => {
            let name = text(child.name).ok_or(Error::NAME)?;
            let mut names = NamesWriter::new(out, FROM_AGENT, child.statuses);
            catalogs
                .fold(None, |found, catalog| {
                    catalog
                        .children(name, &mut |name, is_leaf| {
                            names.push(if is_leaf { Node::Leaf } else { Node::NonLeaf }, name.as_bytes());
                        })
                        .or(found)
                })
                .ok_or(Error::NAME)?;
            names.finish()
        }
        Pdu::Traverse(traverse) => {
            let name = text(traverse.name).ok_or(Error::NAME)?;
            let mut names = NamesWriter::new(out, FROM_AGENT, Statuses::Omitted);
            catalogs
                .fold(None, |found, catalog| {
                    catalog.traverse(name, &mut |name| names.push(Node::Leaf, name.as_bytes())).or(found)
                })
                .ok_or(Error::NAME)?;
            names.finish()
        }
        _ => Err(Error::NAME),
    }
}

pub(super) fn text(name: &[u8]) -> Option<&str> {
    std::str::from_utf8(name).ok()
}
