//! Time zones, and local times in them.

mod posix;

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

use crate::Error;
use pcp_base::file;

/// Time zone of times that are shown or parsed.
///
/// libpcp has one current zone for each process (pmUseZone(3)). Here a zone is a value.
#[derive(Clone, Debug)]
pub struct Zone {
    text: String,
    zone: TimeZone,
}

/// Local time (`struct tm`, pmLocaltime(3)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct LocalTime {
    /// Year of the common era.
    pub year: i32,
    /// Month, 1 to 12.
    pub month: u32,
    /// Day of the month, 1 to 31.
    pub day: u32,
    /// Hour, 0 to 23.
    pub hour: u32,
    /// Minute, 0 to 59.
    pub minute: u32,
    /// Second, 0 to 59.
    pub second: u32,
    /// Day of the week, 0 to 6 from Sunday on.
    pub weekday: u32,
    /// Day of the year, 1 to 366.
    pub yearday: u32,
    /// Seconds east of UTC.
    pub offset: i32,
}

const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Writes as asctime(3) does, without a newline: `Thu Jan  1 00:00:00 1970`.
impl std::fmt::Display for LocalTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let day = DAYS.get(self.weekday as usize).copied().unwrap_or_default();
        let month = (self.month as usize).checked_sub(1).and_then(|at| MONTHS.get(at)).copied().unwrap_or_default();
        let LocalTime { day: date, hour, minute, second, year, .. } = self;
        write!(f, "{day} {month} {date:2} {hour:02}:{minute:02}:{second:02} {year}")
    }
}

impl LocalTime {
    /// Returns the current time in the zone of the process, whose file is read at each call: memory checkers would report
    /// a zone that stays in memory as possibly lost, as it is reached by marked pointers.
    pub fn now() -> LocalTime {
        Zone::system().now()
    }

    /// Returns the time of the day: `15:04:05`.
    pub fn clock(&self) -> String {
        format!("{:02}:{:02}:{:02}", self.hour, self.minute, self.second)
    }

    /// Returns the time without the year, as in the lines of a log: `Thu Jan  1 00:00:00` (pmNotifyErr(3)).
    pub fn of_log(&self) -> String {
        let text = self.to_string();
        text.rsplit_once(' ').map(|(time, _)| time.to_owned()).unwrap_or_default()
    }
}

impl Zone {
    /// Returns the zone of the process: `$TZ`, or that of the system. Like the C library, takes UTC where neither names a
    /// zone.
    pub fn system() -> Zone {
        let text = match std::env::var_os("TZ") {
            // Without a variable, the C library has the zone of this file.
            None => {
                let zone = from_file(Path::new("/etc/localtime")).unwrap_or(TimeZone::UTC);
                return Zone { text: String::new(), zone };
            }
            Some(text) => text.into_string().unwrap_or_default(),
        };
        let zone = from_text(text.strip_prefix(':').unwrap_or(&text));
        Zone { text, zone }
    }

    /// Returns the zone with a text as in `$TZ`: the name of a file of the time zone database, or the form of POSIX
    /// (pmNewZone(3)). As in libpcp, any three letters mean UTC. As in the C library, any other text means UTC too.
    ///
    /// # Errors
    /// `-EINVAL` for a text that is empty or might leave the database: one that starts with a slash, or has two dots or
    /// characters other than letters, digits and `/_+-.:,"'<>`.
    pub fn named(text: &str) -> Result<Zone, Error> {
        const INVALID: i32 = 22;
        if text.is_empty()
            || text.starts_with('/')
            || text.contains("..")
            || !text.chars().all(|c| c.is_ascii_alphanumeric() || "/_+-.:,\"'<>".contains(c))
        {
            return Err(Error::from_errno(INVALID));
        }
        let name = text.strip_prefix(':').unwrap_or(text);
        let zone = if text.len() == 3 { TimeZone::UTC } else { from_text(name) };
        Ok(Zone { text: text.to_owned(), zone })
    }

    /// Returns the text from which the zone was created (pmWhichZone(3)). It is empty for the system's zone.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Converts seconds since the epoch to local time (pmLocaltime(3)). Times beyond the year 9999 become the epoch.
    pub fn local(&self, seconds: i64) -> LocalTime {
        let time = Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH);
        let offset = self.zone.to_offset(time);
        let local = offset.to_datetime(time);
        LocalTime {
            year: local.year().into(),
            month: local.month().unsigned_abs().into(),
            day: local.day().unsigned_abs().into(),
            hour: local.hour().unsigned_abs().into(),
            minute: local.minute().unsigned_abs().into(),
            second: local.second().unsigned_abs().into(),
            weekday: local.weekday().to_sunday_zero_offset().unsigned_abs().into(),
            yearday: local.day_of_year().unsigned_abs().into(),
            offset: offset.seconds(),
        }
    }

    /// Returns the current local time.
    pub fn now(&self) -> LocalTime {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.local(since.as_secs().try_into().unwrap_or(i64::MAX))
    }

    /// Returns the text of a time in seconds since the epoch, without the newline of pmCtime(3).
    pub fn ctime(&self, seconds: i64) -> String {
        self.local(seconds).to_string()
    }

    /// Returns the abbreviation of the zone's name at a time, as in `CEST` (strftime(3), `%Z`).
    pub fn abbreviation(&self, seconds: i64) -> String {
        let time = Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH);
        self.zone.to_offset_info(time).abbreviation().to_owned()
    }

    /// Returns the seconds since the epoch of a local time (mktime(3)), whose fields may be outside of their ranges:
    /// day 0 is the last day of the previous month. Returns `None` for a time beyond the calendar.
    pub fn seconds(&self, local: &Fields) -> Option<i64> {
        let months = i64::from(local.month) - 1;
        let year = i16::try_from(i64::from(local.year) + months.div_euclid(12)).ok()?;
        let month = i8::try_from(months.rem_euclid(12) + 1).ok()?;
        let first = Date::new(year, month, 1).ok()?.to_datetime(jiff::civil::Time::midnight());
        let days = Span::new().try_days(local.day - 1).ok()?;
        let seconds = (local.hour * 60 + local.minute) * 60 + local.second;
        let time: DateTime = first.checked_add(days).ok()?.checked_add(Span::new().try_seconds(seconds).ok()?).ok()?;
        Some(self.zone.to_timestamp(time).ok()?.as_second())
    }

    /// Returns whether daylight saving time is in use.
    pub fn is_summer(&self, seconds: i64) -> bool {
        Timestamp::from_second(seconds).is_ok_and(|time| self.zone.to_offset_info(time).dst().is_dst())
    }

    /// Returns the time of a date in the form of ISO 8601, in seconds and nanoseconds since the epoch.
    pub fn iso(&self, text: &str) -> Option<(i64, u32)> {
        if let Ok(time) = text.parse::<Timestamp>() {
            return Some((time.as_second(), time.subsec_nanosecond().unsigned_abs()));
        }
        let time: DateTime = text.parse().ok()?;
        Some((self.zone.to_timestamp(time).ok()?.as_second(), time.subsec_nanosecond().unsigned_abs()))
    }
}

/// Folder of the time zone database, unless `$TZDIR` names another.
const DATABASE: &str = "/usr/share/zoneinfo";
/// Largest file of a zone that is read, in bytes. Those of the database have up to 4 KiB.
const LARGEST: u64 = 1 << 20;

/// Returns the zone of a file of the time zone database, or of a text in the form of POSIX; otherwise UTC.
fn from_text(name: &str) -> TimeZone {
    if name.is_empty() {
        return TimeZone::UTC;
    }
    let folder = std::env::var_os("TZDIR").unwrap_or_else(|| DATABASE.into());
    let known = from_file(&Path::new(&folder).join(name)).or_else(|| posix::zone(name));
    known.unwrap_or(TimeZone::UTC)
}

/// Reads the file of a zone. Directories, devices and damaged files give `None`.
fn from_file(path: &Path) -> Option<TimeZone> {
    TimeZone::tzif("file", &file::read(path, LARGEST).ok()?).ok()
}

/// Returns the seconds since the epoch of the start of a day, in UTC. `None` for a day that the calendar does not have.
pub fn utc(year: i64, month: i64, day: i64) -> Option<i64> {
    let field = |number: i64| i8::try_from(number).ok();
    let day = Date::new(i16::try_from(year).ok()?, field(month)?, field(day)?).ok()?;
    Some(TimeZone::UTC.to_timestamp(day.to_datetime(jiff::civil::Time::midnight())).ok()?.as_second())
}

/// Fields of a local time that may be outside of their ranges.
#[derive(Clone, Copy, Debug)]
pub struct Fields {
    /// Year of the common era.
    pub year: i32,
    /// Month: 1 is January.
    pub month: i32,
    /// Day of the month.
    pub day: i64,
    /// Hour.
    pub hour: i64,
    /// Minute.
    pub minute: i64,
    /// Second.
    pub second: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_as_in_libpcp() {
        let shown = |zone: &str, seconds| Zone::named(zone).unwrap().ctime(seconds);
        assert_eq!(shown("UTC", 0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(shown("EST", 0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(shown("EST-11", 0), "Thu Jan  1 11:00:00 1970");
        assert_eq!(shown("EST-11EST-10,89/2:00,299/2:00", 1_523_836_800), "Mon Apr 16 10:00:00 2018");
        assert_eq!(shown("EST-11EST-10,89/2:00,299/2:00", 1_516_060_800), "Tue Jan 16 11:00:00 2018");
        assert_eq!(shown("CET-1CEST", 1_531_699_200), "Mon Jul 16 02:00:00 2018");
        assert_eq!(shown("<-03>3", 0), "Wed Dec 31 21:00:00 1969");
        assert_eq!(shown("<+0330>-3:30<+0430>,J80/0,J264/0", 1_531_699_200), "Mon Jul 16 04:30:00 2018");
        assert_eq!(shown("nonsense", 0), "Thu Jan  1 00:00:00 1970");
        for text in ["", "/etc/passwd", "a/../b", "a b", "a;b"] {
            assert!(Zone::named(text).is_err(), "{text}");
        }
    }

    #[test]
    fn local_times_come_back() {
        let zone = Zone::named("EST-11EST-10,89/2:00,299/2:00").unwrap();
        for seconds in [0, 86_399, 1_523_836_801, 4_000_000_000] {
            let LocalTime { year, month, day, hour, minute, second, .. } = zone.local(seconds);
            let (month, day) = (month as i32, day.into());
            let fields = Fields { year, month, day, hour: hour.into(), minute: minute.into(), second: second.into() };
            assert_eq!(zone.seconds(&fields), Some(seconds));
            let far = Fields {
                year: year - 1,
                month: month + 12,
                second: i64::from(second) + 60,
                minute: i64::from(minute) - 1,
                ..fields
            };
            assert_eq!(zone.seconds(&far), Some(seconds));
        }
        let last = Fields { year: 2024, month: 3, day: 0, hour: 0, minute: 0, second: 0 };
        assert_eq!(zone.seconds(&last).map(|seconds| zone.local(seconds).day), Some(29));
    }
}
