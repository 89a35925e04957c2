//! Answers PMNS_NAMES, PMNS_IDS, PMNS_CHILD and PMNS_TRAVERSE.

use pmapi::pdu::names::{NamesWriter, Node, encode_ids, encode_names};
use pmapi::pdu::{FROM_AGENT, Pdu};
use pmapi::{Error, Item, PmId, Result};

use crate::dynamic::Dynamic;

/// Appends the answer: from the dynamic names, which an agent may have none of.
pub(crate) fn answer(dynamic: Option<&Dynamic>, request: Pdu<'_>, out: &mut Vec<u8>) -> Result {
    match request {
        Pdu::Names(names) => {
            let name = names.iter().next().map(|(_, name)| name).and_then(text).ok_or(Error::NAME)?;
            let pmid = dynamic.and_then(|dynamic| dynamic.lookup(name)).ok_or(Error::NAME)?;
            encode_ids(out, FROM_AGENT, 0, &[Some(pmid)])
        }
        Pdu::Ids(ids) => {
            let names = |pmid: PmId| dynamic?.names_of(pmid);
            let names = ids.pmids().next().flatten().and_then(names).ok_or(Error::PMID)?;
            encode_names(out, FROM_AGENT, false, names.map(leaf))
        }
        Pdu::Child(child) => {
            let children = text(child.name).and_then(|name| dynamic?.children(name)).ok_or(Error::NAME)?;
            let node = |pmid: Option<PmId>| if pmid.is_some() { Node::Leaf } else { Node::NonLeaf };
            encode_names(out, FROM_AGENT, child.with_status, children.map(|n| (node(n.pmid()), n.name().as_bytes())))
        }
        Pdu::Traverse(traverse) => {
            let mut names = NamesWriter::new(out, FROM_AGENT, false);
            let found = text(traverse.name)
                .and_then(|name| dynamic?.traverse(name, &mut |name| names.push(Node::Leaf, name.as_bytes())));
            names.finish()?;
            found.ok_or(Error::NAME)
        }
        _ => Err(Error::NAME),
    }
}

/// The metrics that a request looks up by name.
pub(crate) fn named(dynamic: &Dynamic, request: &Pdu<'_>, tell: impl FnOnce(&mut dyn Iterator<Item = Item>)) {
    let items = |name| dynamic.items_below(text(name)?);
    let named = match request {
        Pdu::Names(names) => names.iter().next().and_then(|(_, name)| items(name)),
        Pdu::Traverse(traverse) => items(traverse.name),
        _ => None,
    };
    if let Some(mut items) = named {
        tell(&mut items);
    }
}

fn leaf(name: &str) -> (Node, &[u8]) {
    (Node::Leaf, name.as_bytes())
}

fn text(name: &[u8]) -> Option<&str> {
    std::str::from_utf8(name).ok()
}
