//! Answers to `PMNS_NAMES`, `PMNS_IDS`, `PMNS_CHILD` and `PMNS_TRAVERSE`.

use pcp_pdu::names::{NamesWriter, Node, encode_ids};
use pcp_pdu::{FROM_AGENT, Pdu};
use pmapi::{Error, Item, Result};

use crate::catalog::Catalog;
use crate::dynamic::Dynamic;

/// The dynamic names of an agent, if it has any.
#[derive(Clone, Copy)]
pub(super) struct Names<'a> {
    pub(super) dynamic: Option<&'a Dynamic>,
    pub(super) catalog: Option<&'a dyn Catalog>,
}

impl Names<'_> {
    /// Appends the answer.
    pub(super) fn answer(self, request: Pdu<'_>, out: &mut Vec<u8>) -> Result {
        match request {
            Pdu::Names(names) => {
                let name = names.iter().next().map(|(_, name)| name).and_then(text).ok_or(Error::NAME)?;
                let pmid = self.dynamic.and_then(|dynamic| dynamic.lookup(name));
                let pmid = pmid.or_else(|| self.catalog?.lookup(name)).ok_or(Error::NAME)?;
                encode_ids(out, FROM_AGENT, 0, &[Some(pmid)])
            }
            Pdu::Ids(ids) => {
                let pmid = ids.pmids().next().flatten().ok_or(Error::PMID)?;
                let mut names = NamesWriter::new(out, FROM_AGENT, false);
                let mut give = |name: &str| names.push(Node::Leaf, name.as_bytes());
                let dynamic =
                    self.dynamic.and_then(|dynamic| dynamic.names_of(pmid)).map(|all| all.for_each(&mut give));
                let found = dynamic.or_else(|| self.catalog?.name(pmid).map(give));
                names.finish()?;
                found.ok_or(Error::PMID)
            }
            Pdu::Child(child) => {
                let mut names = NamesWriter::new(out, FROM_AGENT, child.with_status);
                let mut give = |name: &str, is_leaf| {
                    names.push(if is_leaf { Node::Leaf } else { Node::NonLeaf }, name.as_bytes());
                };
                let found = text(child.name).and_then(|name| {
                    let catalog = self.catalog.and_then(|catalog| catalog.children(name, &mut give));
                    let dynamic = self.dynamic.and_then(|dynamic| dynamic.children(name));
                    dynamic.map(|all| all.for_each(|n| give(n.name(), n.pmid().is_some()))).or(catalog)
                });
                names.finish()?;
                found.ok_or(Error::NAME)
            }
            Pdu::Traverse(traverse) => {
                let mut names = NamesWriter::new(out, FROM_AGENT, false);
                let mut give = |name: &str| names.push(Node::Leaf, name.as_bytes());
                let found = text(traverse.name).and_then(|name| {
                    let catalog = self.catalog.and_then(|catalog| catalog.traverse(name, &mut give));
                    self.dynamic.and_then(|dynamic| dynamic.traverse(name, &mut give)).or(catalog)
                });
                names.finish()?;
                found.ok_or(Error::NAME)
            }
            _ => Err(Error::NAME),
        }
    }

    /// Reports the metrics that a request looks up by name.
    pub(super) fn named(self, request: &Pdu<'_>, tell: impl FnOnce(&mut dyn Iterator<Item = Item>)) {
        let items = |name| self.dynamic?.items_below(text(name)?);
        let named = match request {
            Pdu::Names(names) => names.iter().next().and_then(|(_, name)| items(name)),
            Pdu::Traverse(traverse) => items(traverse.name),
            _ => None,
        };
        if let Some(mut items) = named {
            tell(&mut items);
        }
    }
}

fn text(name: &[u8]) -> Option<&str> {
    std::str::from_utf8(name).ok()
}
