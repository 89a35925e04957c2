//! Converts answers to C's structures, in memory that pmcd frees.

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

use pcp_pdu::instance::InstancePdu;
use pcp_pdu::label::LabelPdu;
use pcp_pdu::names::{Names, Node};
use pmapi::{Error, InDom, Inst, Result};

use super::abi::{CInstances, CLabel, CLabelSet};
use super::memory::{Heap, string, strings};

const NULL: u32 = u32::MAX;
const COMPOUND: u8 = 1 << 6;

/// Creates `pmInResult`. As in C, a single instance has either a number or a name: the one that was not in the request.
pub(super) fn instances(indom: InDom, pdu: &InstancePdu<'_>) -> Result<*mut CInstances> {
    let count = pdu.len();
    let mut made = Heap::<CInstances>::zeroed(1)?;
    let mut ids = Heap::<c_int>::zeroed(count)?;
    let mut names = Heap::<*mut c_char>::zeroed(count)?;
    let (mut has_ids, mut has_names) = (count != 1, count != 1);
    for (((inst, name), id), copy) in pdu.iter().zip(ids.as_mut()).zip(names.as_mut()) {
        *id = inst.map_or(NULL, Inst::word) as i32;
        has_ids |= inst.is_some();
        has_names |= !name.is_empty();
        if has_names {
            *copy = string(name)?;
        }
    }
    if let [head] = made.as_mut() {
        head.indom = indom.word();
        head.count = count as c_int;
        head.insts = if has_ids { ids.release() } else { null_mut() };
        head.names = if has_names { names.release() } else { null_mut() };
    }
    Ok(made.release())
}

/// Creates an array of names in one allocation, with their statuses if `status` is given. Without names it is null,
/// because hosts would not free it.
pub(super) fn names(pdu: &Names<'_>, status: Option<&mut *mut c_int>) -> Result<*mut *mut c_char> {
    if pdu.is_empty() {
        return Ok(null_mut());
    }
    let mut list = Heap::<c_int>::zeroed(if status.is_some() { pdu.len() } else { 0 })?;
    let names = strings(&pdu.iter().map(|(_, name)| name).collect::<Vec<_>>())?;
    for ((node, _), status) in pdu.iter().zip(list.as_mut()) {
        *status = c_int::from(node == Some(Node::NonLeaf));
    }
    if let Some(status) = status {
        *status = list.release();
    }
    Ok(names)
}

/// Creates an array of label sets, each with its JSON text and its index. Without sets it is null.
pub(super) fn labels(pdu: &LabelPdu<'_>) -> Result<*mut CLabelSet> {
    if pdu.is_empty() {
        return Ok(null_mut());
    }
    let mut sets = Heap::<CLabelSet>::zeroed(pdu.len())?;
    for (set, made) in pdu.sets().zip(sets.as_mut()) {
        made.inst = set.inst.map_or(NULL, Inst::word);
        made.count = set.error.map_or(set.len() as c_int, Error::code);
        if set.error.is_some() || set.json.is_empty() {
            continue;
        }
        made.json = string(set.json)?;
        made.json_len = set.json.len() as u16;
        // Hosts do not free the index of an empty set.
        if set.is_empty() {
            continue;
        }
        let mut index = Heap::<CLabel>::zeroed(set.len())?;
        for (label, made) in set.spans().zip(index.as_mut()) {
            *made = CLabel {
                name: label.name,
                name_len: label.name_len,
                flags: label.flags.bits(),
                value: label.value,
                value_len: label.value_len,
            };
        }
        if index.as_mut().iter().any(|label| label.flags & COMPOUND != 0) {
            made.compound = 1 << 15;
        }
        made.labels = index.release();
    }
    Ok(sets.release())
}
