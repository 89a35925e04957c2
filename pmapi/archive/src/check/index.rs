//! Second pass: the temporal index.

use std::path::Path;

use super::{Findings, Place, Weight};
use crate::decode::index::IndexEntry;
use crate::error::Shown;
use crate::log::Log;

/// Checks each entry, and each pair of adjacent entries.
pub(super) fn check(log: &Log, to: &mut Findings<'_>) {
    let Some(path) = log.files.index.as_deref() else {
        to.warn(&log.files.base, Place::File, "the temporal index is missing");
        return;
    };
    let meta = log.len_of(None).ok();
    let mut last: Option<(&IndexEntry, Option<u64>)> = None;
    for (entry, number) in log.index.iter().zip(1..) {
        let place = Place::Entry(number);
        let data = match last {
            Some((before, data)) if before.volume == entry.volume => data,
            _ => volume(log, path, place, entry, to),
        };
        check_one(log, (path, place), entry, (meta, data), to);
        if let Some((before, _)) = last {
            check_pair((path, place), before, entry, to);
        }
        last = Some((entry, data));
    }
}

/// Returns the length of the volume of an entry.
fn volume(log: &Log, path: &Path, place: Place, entry: &IndexEntry, to: &mut Findings<'_>) -> Option<u64> {
    let Ok(number) = u32::try_from(entry.volume) else {
        to.warn(path, place, format!("volume number {} is negative", entry.volume));
        return None;
    };
    let len = log.len_of(Some(number)).ok();
    if len.is_none() {
        to.warn(path, place, format!("volume {number} is missing"));
    }
    len
}

fn check_one(
    log: &Log,
    (path, place): (&Path, Place),
    entry: &IndexEntry,
    (meta, data): (Option<u64>, Option<u64>),
    to: &mut Findings<'_>,
) {
    let first = log.label.version.label_len() as i64;
    let time = entry.time;
    if time.seconds < 0 || time.nanoseconds > 999_999_999 {
        to.warn(
            path,
            place,
            format!("{} seconds and {} nanoseconds are not a valid time", time.seconds, time.nanoseconds),
        );
    }
    for (what, offset, len) in [("metadata", entry.meta, meta), ("volume", entry.data, data)] {
        if offset < first {
            to.warn(path, place, format!("offset {offset} in the {what} is in the label"));
        }
        if len.is_some_and(|len| u64::try_from(offset).is_ok_and(|offset| offset > len)) {
            to.warn(path, place, format!("offset {offset} is after the end of the {what}"));
        }
    }
    if time < log.label.start {
        let reason = format!("time {} is before {} of the label", Shown(time), Shown(log.label.start));
        to.add(path, place, Weight::Warning, reason);
    }
}

fn check_pair((path, place): (&Path, Place), before: &IndexEntry, entry: &IndexEntry, to: &mut Findings<'_>) {
    if entry.time < before.time {
        let reason = format!("time {} is before {} of the entry before", Shown(entry.time), Shown(before.time));
        to.warn(path, place, reason);
    }
    if entry.volume < before.volume {
        to.warn(path, place, format!("volume {} follows volume {}", entry.volume, before.volume));
    }
    if entry.volume != before.volume {
        return;
    }
    for (what, offset, old) in [("metadata", entry.meta, before.meta), ("volume", entry.data, before.data)] {
        if offset < old {
            to.warn(path, place, format!("offset {offset} in the {what} is less than {old} of the entry before"));
        }
    }
}
