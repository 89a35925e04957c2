//! Time zones and the texts of times.

use std::cell::Cell;
use std::io::Write as _;

use pcp_archive::{Label, Version};
use pcp_context::{LocalTime, Zone};
use pcp_pdu::event::Stamp;

use crate::out::padded;

/// Returns the time zone that the text of a label describes (pmNewZone(3)). An invalid text gives UTC.
pub(crate) fn named(text: &str) -> Zone {
    Zone::named(text).or_else(|_| Zone::named("UTC")).unwrap_or_else(|_| Zone::system())
}

/// Appends the time of day.
fn clock(out: &mut Vec<u8>, local: LocalTime) {
    padded(out, local.hour, 2);
    out.push(b':');
    padded(out, local.minute, 2);
    out.push(b':');
    padded(out, local.second, 2);
}

/// Returns day of the week, month and day, as in ctime(3).
pub(crate) fn day_and_month(local: LocalTime) -> String {
    let mut text = local.to_string();
    text.truncate(10);
    text
}

/// Format of timestamps: their precision, and what the options `-x` add.
pub(crate) struct Stamps {
    pub(crate) zone: Zone,
    pub(crate) version: Version,
    pub(crate) start: Stamp,
    /// Number of options `-x`.
    pub(crate) extended: u8,
    /// Last second that was converted, and its local time: most times are in the order of the archive.
    last: Cell<(i64, LocalTime)>,
}

impl Stamps {
    /// Creates the format for an archive.
    pub(crate) fn new(zone: Zone, label: &Label, extended: u8) -> Stamps {
        let last = Cell::new((label.start.seconds, zone.local(label.start.seconds)));
        Stamps { zone, version: label.version, start: label.start, extended, last }
    }

    fn local(&self, seconds: i64) -> LocalTime {
        let (last, local) = self.last.get();
        if last == seconds {
            return local;
        }
        let local = self.zone.local(seconds);
        self.last.set((seconds, local));
        local
    }

    /// Appends the time of day, with as many digits as the version of the archive has.
    pub(crate) fn clock(&self, out: &mut Vec<u8>, time: Stamp) {
        clock(out, self.local(time.seconds));
        match (self.version, u32::try_from(time.nanoseconds as i32)) {
            (Version::V2, Ok(nanoseconds)) => {
                out.push(b'.');
                padded(out, nanoseconds / 1000, 6);
            }
            (_, Ok(nanoseconds)) => {
                out.push(b'.');
                padded(out, nanoseconds, 9);
            }
            // Writing to a vector does not fail.
            (Version::V2, Err(_)) => _ = write!(out, ".{:06}", time.nanoseconds as i32 / 1000),
            (_, Err(_)) => _ = write!(out, ".{:09}", time.nanoseconds as i32),
        }
    }

    /// Appends a timestamp with all additions of the options `-x`.
    pub(crate) fn full(&self, out: &mut Vec<u8>, time: Stamp) {
        self.dated(out, time, |out| self.clock(out, time));
        if self.extended >= 2 {
            let since = seconds_between(time, self.start);
            _ = match self.version {
                Version::V2 => write!(out, " ({since:.6})"),
                _ => write!(out, " ({since:.9})"),
            };
        }
        if self.extended >= 3 {
            _ = write!(out, " {}", time.seconds as u64);
        }
    }

    /// Appends the timestamp of an event record in microseconds.
    pub(crate) fn event(&self, out: &mut Vec<u8>, time: Stamp) {
        self.dated(out, time, |out| {
            clock(out, self.local(time.seconds));
            _ = write!(out, ".{:06}", time.nanoseconds / 1000);
        });
        if self.extended >= 2 {
            let start = Stamp { nanoseconds: self.start.nanoseconds / 1000 * 1000, ..self.start };
            _ = write!(out, " ({:.6})", seconds_between(time, start));
        }
    }

    /// Appends the timestamp of an event record in nanoseconds.
    pub(crate) fn high_res_event(&self, out: &mut Vec<u8>, time: Stamp) {
        clock(out, self.local(time.seconds));
        _ = write!(out, ".{:09}", time.nanoseconds);
    }

    fn dated(&self, out: &mut Vec<u8>, time: Stamp, clock: impl FnOnce(&mut Vec<u8>)) {
        if self.extended == 0 {
            return clock(out);
        }
        let local = self.local(time.seconds);
        _ = write!(out, "{} ", day_and_month(local));
        clock(out);
        _ = write!(out, " {:4.4}", local.year.to_string());
    }
}

/// Returns the difference in seconds, rounded once, as libpcp computes it in 80 bits.
fn seconds_between(time: Stamp, start: Stamp) -> f64 {
    const SECOND: i128 = 1_000_000_000;
    let total = |stamp: Stamp| i128::from(stamp.seconds) * SECOND + i128::from(stamp.nanoseconds as i32);
    let between = total(time) - total(start);
    let sign = if between < 0 { "-" } else { "" };
    let text = format!("{sign}{}.{:09}", between.abs() / SECOND, between.abs() % SECOND);
    text.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences() {
        let stamp = |seconds, nanoseconds| Stamp { seconds, nanoseconds };
        assert_eq!(seconds_between(stamp(10, 1), stamp(9, 999_999_999)), 2e-9);
        assert_eq!(seconds_between(stamp(9, 999_999_999), stamp(10, 1)), -2e-9);
    }
}
