//! Label and temporal index.

use pcp_archive::{IndexEntry, Part};
use pcp_pdu::event::Stamp;

use crate::out::put;
use crate::zone::{Stamps, day_and_month};

/// How much of the label is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    Brief,
    Verbose,
}

/// Appends the label, with the time of the end.
pub(crate) fn label(out: &mut Vec<u8>, part: Part<'_>, stamps: &Stamps, end: Option<Stamp>, detail: Detail) {
    let label = part.label();
    put!(*out, "Log Label (Log Format Version {})\nPerformance metrics from host ", label.version.number());
    out.extend_from_slice(&label.host);
    put!(*out, "\n    commencing ");
    day(out, stamps, label.start);
    put!(*out, "    ending     ");
    match end {
        Some(end) => day(out, stamps, end),
        None => put!(*out, "UNKNOWN\n"),
    }
    if detail == Detail::Brief {
        return;
    }
    for (what, zone) in [("timezone", &label.timezone), ("zoneinfo", &label.zoneinfo)] {
        if !zone.is_empty() {
            put!(*out, "Archive {what}: ");
            out.extend_from_slice(zone);
            out.push(b'\n');
        }
    }
    if label.features != 0 {
        put!(*out, "Archive features: {:#x}", label.features);
        let unknown = unknown(label.features);
        if unknown != 0 {
            put!(*out, " [unknown: {}]", features(unknown));
        }
        out.push(b'\n');
    }
    put!(*out, "PID for pmlogger: {}\n", label.pid);
}

/// Bit of the features that libpcp knows: one for its tests (`PM_LOG_FEATURE_QA`).
const QA: u32 = 1 << 31;

/// Returns the features that libpcp does not know.
pub(crate) const fn unknown(features: u32) -> u32 {
    features & !QA
}

/// Returns the names of the bits, in PCP's words.
fn features(bits: u32) -> String {
    let names = (0..32).rev().filter(|bit| bits >> bit & 1 == 1).map(|bit| format!("bit_{bit:02}"));
    names.collect::<Vec<_>>().join(" ")
}

fn day(out: &mut Vec<u8>, stamps: &Stamps, time: Stamp) {
    let local = stamps.zone.local(time.seconds);
    put!(*out, "{} ", day_and_month(local));
    stamps.clock(out, time);
    put!(*out, " {:4.4}", local.year.to_string());
    if stamps.extended >= 3 {
        put!(*out, " {}", time.seconds as u64);
    }
    out.push(b'\n');
}

/// Appends the temporal index and its problems.
pub(crate) fn index(out: &mut Vec<u8>, part: Part<'_>, stamps: &Stamps) {
    put!(*out, "Temporal Index\n");
    let tabs = match stamps.extended {
        0 => 0,
        1 => 2,
        _ => 4,
    };
    let tabs = tabs + usize::from(stamps.version.number() == 3);
    put!(*out, "{}\t\tLog Vol    end(meta)     end(log)\n", "\t".repeat(tabs));
    let meta_len = part.meta_len().ok();
    let (mut volume_len, mut last): (_, Option<&IndexEntry>) = (None, None);
    for entry in part.index() {
        stamps.full(out, entry.time);
        put!(*out, "\t  {:5}  {:11}  {:11}\n", entry.volume, entry.meta, entry.data);
        if last.is_none_or(|last| last.volume != entry.volume) {
            volume_len = u32::try_from(entry.volume).ok().and_then(|volume| part.volume_len(volume).ok());
            if volume_len.is_none() {
                put!(*out, "\t\tWarning: file missing for log volume {}\n", entry.volume);
            }
        }
        check(out, entry, meta_len, volume_len);
        if let Some(last) = last {
            compare(out, stamps, last, entry);
        }
        last = Some(entry);
    }
}

fn check(out: &mut Vec<u8>, entry: &IndexEntry, meta_len: Option<u64>, volume_len: Option<u64>) {
    let (seconds, nanoseconds) = (entry.time.seconds, entry.time.nanoseconds as i32);
    if seconds < 0 || !(0..=999_999_999).contains(&nanoseconds) {
        put!(*out, "\t\tError: illegal timestamp value ({seconds} sec, {nanoseconds} nsec)\n");
    }
    for (file, offset, len) in [("meta", entry.meta, meta_len), ("log", entry.data, volume_len)] {
        if let Some(len) = len.filter(|len| i128::from(offset) > i128::from(*len)) {
            put!(*out, "\t\tError: offset to {file} file past end of file ({len})\n");
        }
    }
}

fn compare(out: &mut Vec<u8>, stamps: &Stamps, last: &IndexEntry, entry: &IndexEntry) {
    if entry.time < last.time {
        put!(*out, "\t\tError: timestamp went backwards in time ");
        stamps.clock(out, last.time);
        out.extend_from_slice(b" -> ");
        stamps.clock(out, entry.time);
        out.push(b'\n');
    }
    if entry.volume < last.volume {
        put!(*out, "\t\tError: volume number decreased\n");
    }
    if entry.volume == last.volume && entry.meta < last.meta {
        put!(*out, "\t\tError: offset to meta file decreased\n");
    }
    if entry.volume == last.volume && entry.data < last.data {
        put!(*out, "\t\tError: offset to log file decreased\n");
    }
}
