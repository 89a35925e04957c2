//! Third pass: descriptors, and the times of metadata.

use std::path::Path;

use pcp_pdu::desc::RawDesc;
use pcp_pdu::event::Stamp;
use pmapi::{PmId, Semantics, Type, Units};

use super::{Findings, Place};
use crate::archive::Archive;
use crate::decode::meta::{Meta, next};
use crate::error::Shown;
use crate::log::Log;

/// Domain of derived metrics, and the bit of the cluster of those that pmlogger(1) has recorded.
const DYNAMIC: u16 = 511;
const LOGGED: u16 = 2048;
/// Largest scales: exabytes and hours.
const EXABYTE: u8 = 6;
const HOUR: u8 = 5;

/// Checks the metadata of an archive.
pub(super) fn check(archive: &Archive, log: &Log, to: &mut Findings<'_>) {
    let meta = archive.metadata();
    let path = &log.files.meta;
    for (pmid, desc) in meta.descs() {
        let name = meta.names().names(pmid).next().map_or("without name".into(), String::from_utf8_lossy);
        check_desc(pmid, desc, |what| to.warn(path, Place::File, format!("metric {name} ({pmid}): {what}")));
    }
    check_times(path, meta.file(log.file), log, to);
}

fn check_desc(pmid: PmId, desc: &RawDesc, mut warn: impl FnMut(String)) {
    if desc.ty == Type::NoSupport.code() {
        return;
    }
    if Type::from_code(desc.ty).is_err() {
        warn(format!("type {} is unknown", desc.ty));
    }
    let is_derived = pmid.domain().get() == DYNAMIC && pmid.item().cluster() & LOGGED != 0;
    if let Some(indom) = desc.indom.filter(|indom| indom.domain() != pmid.domain() && !is_derived) {
        warn(format!("the instance domain is of domain {}", indom.domain().get()));
    }
    if Semantics::from_code(desc.semantics).is_err() {
        warn(format!("semantics {} are unknown", desc.semantics));
    }
    let units = Units::from_word(desc.units);
    for (what, dim, scale, most) in [
        ("space", units.dim_space(), i16::from(units.scale_space()), i16::from(EXABYTE)),
        ("time", units.dim_time(), i16::from(units.scale_time()), i16::from(HOUR)),
        ("count", units.dim_count(), i16::from(units.scale_count()), i16::MAX),
    ] {
        if !(-2..=2).contains(&dim) {
            warn(format!("dimension {dim} of {what} is unlikely"));
        }
        if dim == 0 && scale != 0 {
            warn(format!("scale {scale} of {what} without a dimension"));
        }
        if scale > most {
            warn(format!("scale {scale} of {what} is unknown"));
        }
    }
}

/// Checks that times do not go back, and are within the archive.
fn check_times(path: &Path, bytes: &[u8], log: &Log, to: &mut Findings<'_>) {
    let (start, end) = (log.label.start, log.end().ok());
    let mut last: Option<Stamp> = None;
    let (mut at, mut number) = (log.label.version.label_len(), 0);
    while let Ok(Some((record, after))) = next(bytes, at) {
        let found = match record {
            Meta::InDom { indom, list } => {
                let what = indom.map_or("no instance domain".to_owned(), |indom| format!("instance domain {indom}"));
                Some((what, list.time))
            }
            Meta::Labels { level, ident, time, .. } => Some((format!("labels of {ident} on level {level}"), time)),
            Meta::Desc { .. } | Meta::Text { .. } => None,
        };
        if let Some((what, time)) = found {
            let other = match (end, last) {
                _ if time < start => Some(("before the start of the archive", start)),
                (Some(end), _) if time > end => Some(("after the end of the archive", end)),
                (_, Some(last)) if time < last => Some(("before the metadata before it", last)),
                _ => None,
            };
            if let Some((is, other)) = other {
                to.warn(path, Place::Record(number), format!("{what}: time {} is {is}, {}", Shown(time), Shown(other)));
            }
            last = Some(time);
        }
        (at, number) = (after, number + 1);
    }
}
