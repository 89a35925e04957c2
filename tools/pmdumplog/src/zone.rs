//! Time zones and the texts of times.

use std::io::Write as _;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use pcp_archive::Version;
use pcp_pdu::event::Stamp;

/// Time zone of all times shown.
pub(crate) struct Zone(TimeZone);

/// Local time of a second.
#[derive(Clone, Copy)]
pub(crate) struct Local(DateTime);

const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

impl Zone {
    /// Returns the zone of the process: `$TZ`, or that of the system.
    pub(crate) fn of_process() -> Zone {
        Zone(TimeZone::system())
    }

    /// Returns the zone with a text, as glibc reads `$TZ`: the name of a file, or the form of POSIX; UTC for any other.
    pub(crate) fn named(text: &str) -> Zone {
        let name = text.strip_prefix(':').unwrap_or(text);
        let file = || TimeZone::get(name).ok().filter(|_| !name.is_empty());
        Zone(file().or_else(|| TimeZone::posix(name).ok()).unwrap_or(TimeZone::UTC))
    }

    /// Converts seconds since the epoch. A time that no calendar has becomes the epoch.
    pub(crate) fn local(&self, seconds: i64) -> Local {
        let time = Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH);
        Local(self.0.to_datetime(time))
    }

    /// Converts a local time to seconds since the epoch.
    pub(crate) fn seconds(&self, local: DateTime) -> Option<i64> {
        Some(self.0.to_timestamp(local).ok()?.as_second())
    }
}

impl Local {
    pub(crate) fn date(self) -> DateTime {
        self.0
    }

    fn day(self) -> &'static str {
        DAYS.get(self.0.weekday().to_sunday_zero_offset() as usize).copied().unwrap_or_default()
    }

    fn month(self) -> &'static str {
        MONTHS.get(self.0.month() as usize - 1).copied().unwrap_or_default()
    }

    /// Returns day of the week, month and day, as in ctime(3).
    pub(crate) fn day_and_month(self) -> String {
        format!("{} {} {:2}", self.day(), self.month(), self.0.day())
    }

    /// Returns the first 24 characters of ctime(3).
    pub(crate) fn ctime(self) -> String {
        format!("{} {} {}", self.day_and_month(), self.clock(), self.0.year())
    }

    fn clock(self) -> String {
        format!("{:02}:{:02}:{:02}", self.0.hour(), self.0.minute(), self.0.second())
    }
}

/// Form of timestamps: what the options `-x` add, and how exact they are.
pub(crate) struct Stamps {
    pub(crate) zone: Zone,
    pub(crate) version: Version,
    pub(crate) start: Stamp,
    /// Number of options `-x`.
    pub(crate) extended: u8,
}

impl Stamps {
    /// Appends the time of day, with the digits that the version of the archive has.
    pub(crate) fn clock(&self, out: &mut Vec<u8>, time: Stamp) {
        let clock = self.zone.local(time.seconds).clock();
        let nanoseconds = time.nanoseconds as i32;
        // Writing to a vector does not fail.
        _ = match self.version {
            Version::V2 => write!(out, "{clock}.{:06}", nanoseconds / 1000),
            _ => write!(out, "{clock}.{nanoseconds:09}"),
        };
    }

    /// Appends a timestamp with all that the options `-x` add.
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
        let (clock, microseconds) = (self.zone.local(time.seconds).clock(), time.nanoseconds / 1000);
        self.dated(out, time, |out| _ = write!(out, "{clock}.{microseconds:06}"));
        if self.extended >= 2 {
            let start = Stamp { nanoseconds: self.start.nanoseconds / 1000 * 1000, ..self.start };
            _ = write!(out, " ({:.6})", seconds_between(time, start));
        }
    }

    /// Appends the timestamp of an event record in nanoseconds.
    pub(crate) fn high_res_event(&self, out: &mut Vec<u8>, time: Stamp) {
        _ = write!(out, "{}.{:09}", self.zone.local(time.seconds).clock(), time.nanoseconds);
    }

    fn dated(&self, out: &mut Vec<u8>, time: Stamp, clock: impl FnOnce(&mut Vec<u8>)) {
        if self.extended == 0 {
            return clock(out);
        }
        let local = self.zone.local(time.seconds);
        _ = write!(out, "{} ", local.day_and_month());
        clock(out);
        _ = write!(out, " {:4.4}", local.date().year().to_string());
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
    fn zones_as_in_glibc() {
        let shown = |zone: &str, seconds| Zone::named(zone).local(seconds).ctime();
        assert_eq!(shown("UTC", 0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(shown("EST-11", 0), "Thu Jan  1 11:00:00 1970");
        assert_eq!(shown("EST-11EST-10,89/2:00,299/2:00", 1_523_836_800), "Mon Apr 16 10:00:00 2018");
        assert_eq!(shown("EST-11EST-10,89/2:00,299/2:00", 1_516_060_800), "Tue Jan 16 11:00:00 2018");
        assert_eq!(shown("IST-5:30", 0), "Thu Jan  1 05:30:00 1970");
        assert_eq!(shown("nonsense!", 0), "Thu Jan  1 00:00:00 1970");
    }

    #[test]
    fn differences() {
        let stamp = |seconds, nanoseconds| Stamp { seconds, nanoseconds };
        assert_eq!(seconds_between(stamp(10, 1), stamp(9, 999_999_999)), 2e-9);
        assert_eq!(seconds_between(stamp(9, 999_999_999), stamp(10, 1)), -2e-9);
    }
}
