//! Value sets as they are in a record.

use pcp_pdu::result::{Format, ValueSet};
use pmapi::{Error, PmId, Type};

use super::state::{EINVAL, Refused, State};

/// Checks value sets, and moves their references to value blocks by a number of words.
pub(super) fn adapt(sets: &mut [u8], count: usize, distance: u32, state: &State) -> Result<(), Refused> {
    let mut at = 0;
    for _ in 0..count {
        let Some((set, after)) = ValueSet::at(sets, at) else {
            return Err((EINVAL, "the values end in the middle of a metric".to_owned()));
        };
        let (pmid, format, is_empty) = (set.pmid, set.format(), set.is_empty());
        match pmid {
            Some(pmid) => check(pmid, format, is_empty, state)?,
            None => return Err((Error::PMID, "values of a metric without identifier".to_owned())),
        }
        if format != Format::InSitu && distance != 0 {
            for pair in sets.get_mut(at + 12..after).unwrap_or_default().chunks_exact_mut(8) {
                if let Some(word) = pair.last_chunk_mut::<4>() {
                    *word = u32::from_be_bytes(*word).wrapping_add(distance).to_be_bytes();
                }
            }
        }
        at = after;
    }
    Ok(())
}

fn check(pmid: PmId, format: Format, is_empty: bool, state: &State) -> Result<(), Refused> {
    let Some(desc) = state.desc(pmid) else {
        return Err((Error::PMID_LOG, format!("metric {pmid} has values, but no descriptor")));
    };
    let is_small = [Type::I32, Type::U32, Type::Float].iter().any(|ty| ty.code() == desc.ty);
    let is_wrong = match format {
        Format::InSitu => !is_small,
        _ => is_small && desc.ty != Type::Float.code(),
    };
    if is_wrong && !is_empty {
        let ty = Type::name_of(desc.ty);
        return Err((EINVAL, format!("values of metric {pmid} are not encoded as its type {ty} requires")));
    }
    Ok(())
}
