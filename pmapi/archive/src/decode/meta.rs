//! Records of the metadata file: descriptors, instance domains, labels, texts.

use std::ffi::CStr;

use pcp_pdu::desc::RawDesc;
use pcp_pdu::event::Stamp;
use pmapi::{Error, InDom, PmId, RawLabel};

use super::{Decoded, Fields, Version};
use crate::error::Bad;

/// Record of the metadata file. Offsets count from the start of the file.
#[derive(Debug)]
pub(crate) enum Meta<'a> {
    Desc { desc: RawDesc, names: Vec<&'a [u8]> },
    InDom { indom: Option<InDom>, list: InstList },
    Labels { level: u32, ident: u32, time: Stamp, sets: Vec<LabelSpan> },
    Text { kind: u32, ident: u32, text: &'a [u8] },
}

/// Instances of a record of an instance domain, in the order of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InstList {
    pub(crate) time: Stamp,
    pub(crate) is_delta: bool,
    /// Offset of the instances in the file; the offsets of their names follow, then the names.
    at: u64,
    count: u32,
}

impl InstList {
    pub(crate) fn len(&self) -> usize {
        self.count as usize
    }

    /// Iterates over the instances and the offsets of their names in the file. The offset is `None` for a deleted
    /// instance.
    pub(crate) fn iter(self, file: &[u8]) -> impl Iterator<Item = (u32, Option<u64>)> + '_ {
        let at = self.at as usize;
        let words = |at: usize| words(file.get(at..at + 4 * self.len()).unwrap_or_default());
        let names = self.at + 8 * u64::from(self.count);
        words(at)
            .zip(words(at + 4 * self.len()))
            .map(move |(inst, offset)| (inst, u64::try_from(offset as i32).ok().map(|offset| names + offset)))
    }
}

/// Iterates over big-endian words.
fn words(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks_exact(4).map(|word| word.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
}

/// Returns the text at an offset of the file, up to its NUL.
pub(crate) fn text_at(file: &[u8], at: u64) -> &[u8] {
    let rest = file.get(at as usize..).unwrap_or_default();
    CStr::from_bytes_until_nul(rest).map_or(rest, CStr::to_bytes)
}

/// Label set within the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LabelSpan {
    pub(crate) inst: u32,
    /// Number of labels, or an error code below 0.
    pub(crate) labels: i32,
    pub(crate) json_len: u32,
    /// Offset of the JSON text in the file; the number of labels and the labels follow it.
    pub(crate) json: u64,
}

const LABEL: usize = 8;

impl LabelSpan {
    /// Returns the JSON text.
    pub(crate) fn json(self, file: &[u8]) -> &[u8] {
        file.get(self.json as usize..).and_then(|rest| rest.get(..self.json_len as usize)).unwrap_or_default()
    }

    /// Returns the labels.
    pub(crate) fn spans(self, file: &[u8]) -> impl ExactSizeIterator<Item = RawLabel> + '_ {
        let at = self.json as usize + self.json_len as usize + 4;
        let len = usize::try_from(self.labels).unwrap_or(0) * LABEL;
        let bytes = file.get(at..).and_then(|rest| rest.get(..len)).unwrap_or_default();
        bytes.chunks_exact(LABEL).map(|record| {
            let word = |at: usize| u16::from_be_bytes([record[at], record[at + 1]]);
            RawLabel {
                name: word(0),
                name_len: record[2],
                flags: pmapi::LabelFlags::from_bits_retain(record[3]),
                value: word(4),
                value_len: word(6),
            }
        })
    }
}

/// Length of a record's head and of its trailing length, in bytes.
const AROUND: usize = 12;

/// Returns the length and the type of the record with these first bytes; `None` if they end before its body.
fn head(bytes: &[u8]) -> Decoded<Option<(usize, u32)>> {
    let mut head = Fields::new(bytes);
    let (Ok(len), Ok(kind)) = (head.u32("length"), head.u32("type")) else { return Ok(None) };
    if !matches!(kind, 1..=7) && len as i32 > 0 {
        let reason = format!("metadata record of unknown type {kind}");
        return Err(Bad { at: 4, code: Error::RECTYPE, reason: reason.into() });
    }
    if (len as usize) < AROUND {
        let reason = format!("metadata record of {len} bytes, shorter than its own lengths and type");
        return Err(Bad::record(0, reason));
    }
    Ok(Some((len as usize, kind)))
}

/// Returns the length of the record at an offset if the file's first bytes, which end within it, may be continued by a
/// valid rest.
pub(crate) fn cut(file: &[u8], at: usize) -> Option<usize> {
    let rest = file.get(at..).unwrap_or_default();
    match head(rest) {
        Ok(Some((len, _))) => Some(len).filter(|len| *len > rest.len()),
        Ok(None) => Some(AROUND),
        Err(_) => None,
    }
}

/// Decodes the record at an offset of the file, and also returns the offset after it. Returns `None` at the end of the
/// file.
pub(crate) fn next(file: &[u8], at: usize) -> Decoded<Option<(Meta<'_>, usize)>> {
    let rest = file.get(at..).unwrap_or_default();
    let Some((len, kind)) = head(rest)? else { return Ok(None) };
    let Some((body, tail)) = rest.get(8..len).and_then(|rest| rest.split_at_checked(len - AROUND)) else {
        let reason = format!("metadata record of {len} bytes, but {} are left in the file", rest.len());
        return Err(Bad::record(0, reason));
    };
    let start = at as u64 + 8;
    let version = if matches!(kind, 2 | 3) { Version::V2 } else { Version::V3 };
    let mut r = Fields::new(body);
    let decoded = match kind {
        1 => desc(&mut r),
        2 | 5 | 6 => indom(&mut r, version, kind == 6, start),
        3 | 7 => labels(&mut r, version, start),
        _ => text(&mut r),
    };
    let decoded = decoded.map_err(|e| Bad { at: e.at + 8, ..e })?;
    if tail != (len as u32).to_be_bytes() {
        return Err(Bad::record(len - 4, "metadata record ends without its length"));
    }
    Ok(Some((decoded, at + len)))
}

fn desc<'a>(r: &mut Fields<'a>) -> Decoded<Meta<'a>> {
    let desc = RawDesc {
        pmid: PmId::from_word(r.u32("PMID")?),
        ty: r.i32("type")?,
        indom: InDom::from_word(r.u32("instance domain")?),
        semantics: r.i32("semantics")?,
        units: r.u32("units")?,
    };
    // Old versions of pmlogger wrote no number if there were no names.
    let count = if r.left() == 0 { 0 } else { r.i32("number of names")? };
    let mut names = Vec::new();
    for _ in 0..count {
        let len = r.count("length of a name")?;
        // Some writers pad names with NULs.
        names.push(r.bytes(len, "name")?.split(|b| *b == 0).next().unwrap_or_default());
    }
    match r.left() {
        0 => Ok(Meta::Desc { desc, names }),
        extra => Err(Bad::record(r.pos(), format!("{extra} bytes after the names of the metric"))),
    }
}

fn indom<'a>(r: &mut Fields<'a>, version: Version, is_delta: bool, start: u64) -> Decoded<Meta<'a>> {
    let body_len = r.left();
    let time = r.stamp(version)?;
    let indom = InDom::from_word(r.u32("instance domain")?);
    let count = u32::try_from(r.i32("number of instances")?).unwrap_or(0);
    let at = start + r.pos() as u64;
    let first = r.pos();
    let insts = r.bytes((count as usize).saturating_mul(4), "instances")?;
    let offsets = r.bytes((count as usize).saturating_mul(4), "offsets of names")?;
    let names = r.bytes(r.left(), "names")?;
    // End of the last name that is terminated by a NUL. No offset may be beyond it.
    let end = names.iter().rposition(|b| *b == 0);
    // Names usually follow each other.
    let (mut is_apart, mut after) = (true, None);
    for (nth, (inst, offset)) in words(insts).zip(words(offsets)).enumerate() {
        let (inst, offset) = (inst as i32, offset as i32);
        if inst < 0 {
            return Err(Bad::record(first + 4 * nth, format!("instance {inst} is negative")));
        }
        let is_deleted = is_delta && offset == -1;
        if !is_deleted && !usize::try_from(offset).is_ok_and(|offset| end.is_some_and(|end| offset <= end)) {
            return Err(Bad::record(first + 4 * nth, format!("name of instance {inst} is outside of the record")));
        }
        if !is_deleted && is_apart {
            is_apart = after.is_none_or(|after| after < offset)
                && names.get(..offset as usize).and_then(<[u8]>::last).is_none_or(|b| *b == 0);
            after = Some(offset);
        }
    }
    let limit = OVERLAP * body_len;
    if !is_apart && is_longer(names, words(offsets), limit) {
        return Err(Bad::record(
            first,
            format!("names of instances overlap, and have more than {limit} bytes together"),
        ));
    }
    Ok(Meta::InDom { indom, list: InstList { time, is_delta, at, count } })
}

/// Bytes that the names of a record may have together, for each byte of the record. Instances may share a name. Without
/// a limit, a small record could have many instances with a long name.
const OVERLAP: usize = 16;

/// Returns whether the names at some offsets, without those below 0, have more than `limit` bytes together.
fn is_longer(names: &[u8], offsets: impl Iterator<Item = u32>, limit: usize) -> bool {
    let mut left = Some(limit);
    for offset in offsets.filter_map(|offset| usize::try_from(offset as i32).ok()) {
        let rest = names.get(offset..).unwrap_or_default();
        let most = left.unwrap_or(0).min(rest.len());
        let len = rest.iter().take(most).position(|b| *b == 0).unwrap_or(most);
        left = left.and_then(|left| left.checked_sub(len + 1));
        if left.is_none() {
            return true;
        }
    }
    false
}

fn labels<'a>(r: &mut Fields<'a>, version: Version, start: u64) -> Decoded<Meta<'a>> {
    let time = r.stamp(version)?;
    let level = r.u32("type of labels")?;
    let ident = r.u32("identifier")?;
    let count = r.count("number of label sets")?;
    let mut sets = Vec::new();
    for _ in 0..count {
        let inst = r.u32("instance")?;
        let at = r.pos();
        let json_len = r.u32("length of labels")?;
        if json_len > MAX_JSON {
            return Err(Bad::record(at, format!("labels of {json_len} bytes, more than {MAX_JSON}")));
        }
        let json = start + r.pos() as u64;
        r.bytes(json_len as usize, "labels")?;
        let at = r.pos();
        let labels = r.i32("number of labels")?;
        if labels > MAX_LABELS {
            return Err(Bad::record(at, format!("{labels} labels, more than {MAX_LABELS}")));
        }
        r.bytes(usize::try_from(labels).unwrap_or(0) * LABEL, "labels")?;
        sets.push(LabelSpan { inst, labels, json_len, json });
    }
    Ok(Meta::Labels { level: level & !FLAGS, ident, time, sets })
}

const MAX_JSON: u32 = 65535;
const MAX_LABELS: i32 = 255;
/// Bits of a level that are flags of the labels: compound and optional.
const FLAGS: u32 = 0xc0;

fn text<'a>(r: &mut Fields<'a>) -> Decoded<Meta<'a>> {
    let kind = r.u32("type of text")?;
    let ident = r.u32("identifier")?;
    let text = r.bytes(r.left(), "text")?;
    let text = text.split(|b| *b == 0).next().unwrap_or_default();
    Ok(Meta::Text { kind, ident, text })
}
