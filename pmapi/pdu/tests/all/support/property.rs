//! Properties of every PDU that decodes. The fuzz target `pdu` and the tests of the codec share them.

use std::collections::HashSet;

use pcp_pdu::event::{self, Layout};
use pcp_pdu::instance::InstanceWriter;
use pcp_pdu::label::{LabelReq, LabelSetRef, encode_label};
use pcp_pdu::names::{self, Node};
use pcp_pdu::profile::{Profile, ProfilePdu};
use pcp_pdu::result::{Changes, Format, RawValue, ResultPdu};
use pcp_pdu::result_writer::ResultWriter;
use pcp_pdu::{Pdu, handshake, metadata};
use pmapi::{Atom, Error, InDom, Inst, Type};

/// Reads all parts of a decoded PDU.
pub(crate) fn walk(pdu: &Pdu<'_>) {
    match pdu {
        Pdu::Error(e) => drop(e.status()),
        Pdu::Result(r) => {
            assert_eq!(r.sets().count(), r.len());
            for set in r.sets() {
                assert_eq!(set.values().count(), set.len());
                for (_, value) in set.values() {
                    walk_value(value);
                }
            }
        }
        Pdu::Profile(p) => walk_profile(p),
        Pdu::Fetch(f) => assert_eq!(f.pmids().count(), f.pmids().len()),
        Pdu::TextReq(t) => drop(t.parse()),
        Pdu::Creds(c) => drop(c.version()),
        Pdu::Instance(i) => assert_eq!(i.iter().count(), i.len()),
        Pdu::Names(n) => assert_eq!(n.iter().count(), n.len()),
        Pdu::Ids(i) => _ = i.pmids().count(),
        Pdu::Label(l) => {
            assert_eq!(l.sets().count(), l.len());
            for set in l.sets() {
                assert_eq!(set.spans().count(), set.len());
                assert!(set.spans().all(|s| s.name_in(set.json).is_some() && s.value_in(set.json).is_some()));
            }
        }
        _ => {}
    }
}

fn walk_value(value: RawValue<'_>) {
    for ty in (-1..=10).map(|code| Type::from_code(code).unwrap()) {
        let (payload, layout) = match value.atom(ty) {
            Ok(Atom::Event(payload)) => (payload, Layout::Micro),
            Ok(Atom::HighResEvent(payload)) => (payload, Layout::Nano),
            Ok(atom) => {
                assert_eq!(atom.ty(), if ty == Type::AggregateStatic { Type::Aggregate } else { ty });
                continue;
            }
            Err(e) => {
                assert_eq!(e, Error::CONV);
                continue;
            }
        };
        for record in event::records(payload, layout).into_iter().flatten() {
            let _ = record.params().count();
        }
    }
}

fn walk_profile(pdu: &ProfilePdu<'_>) {
    let mut profile = Profile::default();
    profile.assign(pdu);
    let mut seen = HashSet::new();
    for (word, _, insts) in pdu.entries() {
        let Some(indom) = InDom::from_word(word) else { continue };
        if !seen.insert(word) {
            continue;
        }
        let selection = profile.selection(indom);
        let listed = insts.filter_map(Inst::from_word);
        match selection.named() {
            Some(_) => assert!({ listed }.all(|inst| selection.includes(inst))),
            None => assert!(!{ listed }.any(|inst| selection.includes(inst))),
        }
    }
}

/// Encodes a decoded PDU. Returns `None` for a PDU that the library never sends.
pub(crate) fn encode(pdu: &Pdu<'_>, from: i32) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let o = &mut out;
    match pdu {
        Pdu::Error(e) => handshake::encode_error(o, from, e.status()),
        Pdu::Creds(c) => handshake::encode_creds(o, from, c.version()?.1),
        Pdu::Attr(a) => a.encode(o, from),
        Pdu::Profile(p) => {
            let mut profile = Profile::default();
            profile.assign(p);
            profile.encode(o, from, p.context)
        }
        Pdu::Fetch(f) => metadata::encode_fetch(o, from, f.context, f.pmids()),
        Pdu::DescReq(d) => d.encode(o, from),
        Pdu::Desc(d) => d.encode(o, from),
        Pdu::TextReq(t) => t.encode(o, from),
        Pdu::Text(t) => t.encode(o, from),
        Pdu::InstanceReq(i) => i.encode(o, from),
        Pdu::Instance(i) => {
            let mut w = InstanceWriter::new(o, from, i.indom?);
            for (inst, name) in i.iter() {
                w.push(inst, name);
            }
            w.finish()
        }
        Pdu::Ids(i) => names::encode_ids(o, from, i.status, &i.pmids().collect::<Vec<_>>()),
        Pdu::Names(n) => {
            let has_kinds = n.iter().any(|(node, _)| node.is_some());
            let statuses = if has_kinds { names::Statuses::Included } else { names::Statuses::Omitted };
            let list: Vec<_> = n.iter().map(|(node, name)| (node.unwrap_or(Node::Leaf), name)).collect();
            names::encode_names(o, from, statuses, list)
        }
        Pdu::Child(c) => c.encode(o, from),
        Pdu::Traverse(t) => t.encode(o, from),
        Pdu::LabelReq(l) => l.encode(o, from),
        Pdu::Label(l) => {
            let spans: Vec<Vec<_>> = l.sets().map(|set| set.spans().collect()).collect();
            let sets = l.sets().zip(&spans).map(|(set, spans)| LabelSetRef {
                inst: set.inst,
                labels: set.error.map_or(Ok(&spans[..]), Err),
                json: set.json,
            });
            encode_label(o, from, LabelReq { ident: l.ident, bits: l.bits }, &sets.collect::<Vec<_>>())
        }
        Pdu::Result(r) => {
            *o = result(r, from)?;
            Ok(())
        }
        _ => return None,
    }
    .unwrap();
    Some(out)
}

/// Encodes a result whose sets have values of one type each, and 32-bit values in situ. Returns `None` for other
/// results.
fn result(pdu: &ResultPdu<'_>, from: i32) -> Option<Vec<u8>> {
    let mut w = ResultWriter::new();
    w.begin();
    for set in pdu.sets() {
        w.begin_set(set.pmid);
        let mut of_set = None;
        for (inst, value) in set.values() {
            let ty = match value {
                RawValue::InSitu(_) => Type::U32,
                RawValue::Block(0 | 1, _) => return None,
                RawValue::Block(7, _) if set.format() == Format::Static => Type::AggregateStatic,
                RawValue::Block(code, _) => Type::from_code(code.into()).ok()?,
            };
            if *of_set.get_or_insert(ty) != ty {
                return None;
            }
            w.push(inst, ty, value.atom(ty).ok()?).ok()?;
        }
        w.end_set(set.error.map_or(Ok(()), Err));
    }
    let (head, blocks) = w.seal(from, Changes::from_bits_retain(pdu.seconds as u8)).unwrap();
    Some([head, blocks].concat())
}
