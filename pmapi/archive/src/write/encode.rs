//! Encoding of records, without input or output.

use pcp_pdu::desc::RawDesc;
use pcp_pdu::event::Stamp;
use pcp_pdu::label::LabelSetRef;
use pmapi::{Error, InDom, OptionWord as _};

use crate::decode::Version;
use crate::decode::index::IndexEntry;
use crate::decode::label::{Label, MAGIC};

/// Longest texts of a label that a version holds, in bytes without the NUL: host, time zone, name of the time zone.
pub(super) const fn label_texts(version: Version) -> [usize; 3] {
    match version {
        Version::V2 => [63, 39, 0],
        Version::V3 => [255, 255, 255],
    }
}

fn word(out: &mut Vec<u8>, word: u32) {
    out.extend_from_slice(&word.to_be_bytes());
}

/// Appends a timestamp. Version 2 has microseconds, and seconds of 32 bits: larger ones are truncated.
pub(super) fn stamp(out: &mut Vec<u8>, version: Version, time: Stamp) {
    match version {
        Version::V2 => {
            word(out, time.seconds as u32);
            word(out, time.nanoseconds / 1000);
        }
        Version::V3 => {
            // The low word of the seconds comes first.
            word(out, time.seconds as u32);
            word(out, (time.seconds >> 32) as u32);
            word(out, time.nanoseconds);
        }
    }
}

/// Appends a record: its length, the output of `body`, and its length again.
fn framed(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    word(out, 0);
    body(out);
    record_end(out, start);
}

/// Returns the label record of a file.
pub(super) fn label(label: &Label, volume: i32) -> Vec<u8> {
    let mut out = Vec::with_capacity(label.version.label_len());
    framed(&mut out, |out| {
        word(out, MAGIC | label.version.number());
        word(out, label.pid as u32);
        stamp(out, label.version, label.start);
        word(out, volume as u32);
        if label.version == Version::V3 {
            word(out, label.features);
            word(out, 0);
        }
        let texts = [&label.host, &label.timezone, &label.zoneinfo];
        for (text, len) in texts.into_iter().zip(label_texts(label.version)).filter(|(_, len)| *len > 0) {
            let text = text.get(..len).unwrap_or(text);
            out.extend_from_slice(text);
            out.resize(out.len() + len + 1 - text.len(), 0);
        }
    });
    out
}

/// Appends the descriptor of a metric.
pub(super) fn desc(out: &mut Vec<u8>, desc: &RawDesc, names: &[&[u8]]) {
    framed(out, |out| {
        let words = [1, desc.pmid.word(), desc.ty as u32, desc.indom.word(), desc.semantics as u32, desc.units];
        words.into_iter().for_each(|value| word(out, value));
        word(out, names.len() as u32);
        for name in names {
            word(out, name.len() as u32);
            out.extend_from_slice(name);
        }
    });
}

/// Kind of a record of an instance domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Extent {
    Full,
    /// Only the changes. Not in version 2.
    Delta,
}

/// Appends an instance domain. Instances are in ascending order. The name of a deleted instance is `None`.
pub(super) fn indom(
    out: &mut Vec<u8>,
    (version, extent): (Version, Extent),
    time: Stamp,
    indom: InDom,
    list: &[(u32, Option<&[u8]>)],
) {
    framed(out, |out| {
        let kind = match (version, extent) {
            (Version::V2, _) => 2,
            (Version::V3, Extent::Full) => 5,
            (Version::V3, Extent::Delta) => 6,
        };
        word(out, kind);
        stamp(out, version, time);
        word(out, indom.word());
        word(out, list.len() as u32);
        list.iter().for_each(|(inst, _)| word(out, *inst));
        let mut at = 0;
        for (_, name) in list {
            word(out, name.map_or(u32::MAX, |_| at));
            at += name.map_or(0, |name| name.len() as u32 + 1);
        }
        for name in list.iter().filter_map(|(_, name)| *name) {
            out.extend_from_slice(name);
            out.push(0);
        }
    });
}

/// Appends the label sets of a subject. The caller has checked that all lengths fit into their fields.
pub(super) fn labels(
    out: &mut Vec<u8>,
    (version, time): (Version, Stamp),
    (level, ident): (u32, u32),
    sets: &[LabelSetRef<'_>],
) {
    framed(out, |out| {
        word(out, if version == Version::V2 { 3 } else { 7 });
        stamp(out, version, time);
        word(out, level);
        word(out, ident);
        word(out, sets.len() as u32);
        for set in sets {
            word(out, set.inst.word());
            word(out, set.json.len() as u32);
            out.extend_from_slice(set.json);
            word(out, set.labels.as_ref().map_or_else(|e: &Error| e.code() as u32, |labels| labels.len() as u32));
            for label in set.labels.iter().copied().flatten() {
                out.extend_from_slice(&label.name.to_be_bytes());
                out.extend_from_slice(&[label.name_len, label.flags.bits()]);
                out.extend_from_slice(&label.value.to_be_bytes());
                out.extend_from_slice(&label.value_len.to_be_bytes());
            }
        }
    });
}

/// Appends a help text. `bits` contain its subject and its kind.
pub(super) fn text(out: &mut Vec<u8>, bits: u32, ident: u32, text: &[u8]) {
    framed(out, |out| {
        [4, bits, ident].into_iter().for_each(|value| word(out, value));
        out.extend_from_slice(text);
        out.push(0);
    });
}

/// Appends an entry of the temporal index.
pub(super) fn index(out: &mut Vec<u8>, version: Version, entry: &IndexEntry) {
    stamp(out, version, entry.time);
    word(out, entry.volume as u32);
    match version {
        Version::V2 => [entry.meta, entry.data].into_iter().for_each(|at| word(out, at as u32)),
        Version::V3 => {
            [entry.meta, entry.data].into_iter().for_each(|at| out.extend_from_slice(&at.to_be_bytes()));
        }
    }
}

/// Appends the head of a record of values: a placeholder for its length, the time and the number of metrics.
pub(super) fn record_head(out: &mut Vec<u8>, version: Version, time: Stamp, count: usize) {
    word(out, 0);
    stamp(out, version, time);
    word(out, count as u32);
}

/// Completes a record of values that begins at `start`: writes its length at both ends.
pub(super) fn record_end(out: &mut Vec<u8>, start: usize) {
    let len = ((out.len() - start + 4) as u32).to_be_bytes();
    out.extend_from_slice(&len);
    if let Some(head) = out.get_mut(start..start + 4) {
        head.copy_from_slice(&len);
    }
}
