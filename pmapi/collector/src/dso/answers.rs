//! Results of an agent's functions, read from its memory.

use std::ffi::{CStr, c_char, c_int};
use std::slice;

use pcp_pdu::FROM_AGENT;
use pcp_pdu::label::LabelSetRef;
use pcp_pdu::names::{Node, Statuses, encode_names};
use pmapi::{Error, Inst, LabelFlags, RawLabel, Result};
use pmda::dso::abi::CLabelSet;
use pmda::dso::memory::free;

/// Returns the text at a pointer to a C string, or an empty text for a null pointer.
pub(super) unsafe fn text<'a>(at: *const c_char) -> &'a [u8] {
    // SAFETY: by the caller's promise, it is a string or null.
    if at.is_null() { b"" } else { unsafe { CStr::from_ptr(at) }.to_bytes() }
}

/// Returns the JSON of a label set, whose length field must be right.
unsafe fn json(set: &CLabelSet) -> &[u8] {
    // SAFETY: by the caller's promise, the text has this length.
    if set.json.is_null() { b"" } else { unsafe { slice::from_raw_parts(set.json.cast(), set.json_len.into()) } }
}

/// Returns a label set with its labels, or its error. The set must be complete.
pub(super) unsafe fn set_of<'a>(set: &'a CLabelSet, index: &'a [RawLabel]) -> LabelSetRef<'a> {
    let labels = Error::from_code(set.count).map_or(Ok(index), Err);
    // SAFETY: by the caller's promise.
    LabelSetRef { inst: Inst::from_word(set.inst), labels, json: unsafe { json(set) } }
}

/// Returns the labels of a set. The set must contain the number of labels that it claims.
pub(super) unsafe fn index(set: &CLabelSet) -> Vec<RawLabel> {
    let count = if set.labels.is_null() { 0 } else { usize::try_from(set.count).unwrap_or(0) };
    // SAFETY: by the caller's promise, there are this many labels.
    let labels = if count == 0 { &[] } else { unsafe { slice::from_raw_parts(set.labels, count) } };
    labels
        .iter()
        .map(|label| RawLabel {
            name: label.name,
            name_len: label.name_len,
            flags: LabelFlags::from_bits_retain(label.flags),
            value: label.value,
            value_len: label.value_len,
        })
        .collect()
}

/// Encodes names, and frees them. There must be `count` names, and `count` statuses unless their pointer is null.
pub(super) unsafe fn pieces(
    out: &mut Vec<u8>,
    kinds: Statuses,
    names: *mut *mut c_char,
    statuses: *mut c_int,
    count: c_int,
) -> Result {
    // SAFETY: by the caller's promise, there are this many names and statuses.
    unsafe {
        let count = if names.is_null() { 0 } else { count as usize };
        let list = (0..count).map(|i| {
            let is_inner = !statuses.is_null() && statuses.add(i).read() != 0;
            (if is_inner { Node::NonLeaf } else { Node::Leaf }, text(names.add(i).read()))
        });
        let list: Vec<(Node, &[u8])> = list.collect();
        let encoded = encode_names(out, FROM_AGENT, kinds, list.iter().copied());
        free(names);
        free(statuses);
        encoded
    }
}
