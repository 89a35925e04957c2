//! Check of event values.

use std::collections::HashMap;

use pcp_pdu::event::{Layout, records};
use pmapi::{Atom, PmId, Type};

/// Returns the mistakes in an event value; none for other types.
pub(super) fn mistakes(value: Atom<'_>, types: &HashMap<PmId, Type>) -> Vec<String> {
    let (payload, layout) = match value {
        Atom::Event(payload) => (payload, Layout::Micro),
        Atom::HighResEvent(payload) => (payload, Layout::Nano),
        _ => return Vec::new(),
    };
    let Ok(records) = records(payload, layout) else {
        return vec![format!("a value of {} bytes is not a list of records", payload.len())];
    };
    let params = records.flat_map(|record| record.params().collect::<Vec<_>>());
    let wrong = |(pmid, value): (Option<PmId>, Atom<'_>)| match value {
        Atom::String(text) if cut(text).is_some() => cut(text),
        _ => parameter(pmid, value.ty(), types),
    };
    params.filter_map(wrong).collect()
}

fn parameter(pmid: Option<PmId>, ty: Type, types: &HashMap<PmId, Type>) -> Option<String> {
    let Some(pmid) = pmid else { return Some("a parameter without a PMID".to_owned()) };
    match types.get(&pmid) {
        None => Some(format!("parameter {pmid} has no descriptor")),
        Some(announced) if is_same(*announced, ty) => None,
        Some(announced) => {
            Some(format!("parameter {pmid} has a value of type {}, but is of type {}", ty.word(), announced.word()))
        }
    }
}

fn is_same(announced: Type, ty: Type) -> bool {
    announced == ty || matches!((announced, ty), (Type::AggregateStatic, Type::Aggregate))
}

/// Returns how a text is cut at a NUL byte, for one that goes on after it. Agents in C may send more bytes than the text.
pub(super) fn cut(text: &[u8]) -> Option<String> {
    let end = text.iter().position(|byte| *byte == 0)?;
    let is_cut = text[end..].iter().any(|byte| *byte != 0);
    is_cut.then(|| format!("{:.40?} is read up to its NUL byte", String::from_utf8_lossy(text)))
}
