//! Times of the options `-S` and `-T`.

use jiff::civil::DateTime;
use pcp_pdu::event::Stamp;

use crate::zone::Zone;

/// Parses a time: an offset from `start`, one from `end` after `-`, or a time of the calendar after `@`.
///
/// # Errors
/// The message of libpcp for a text in none of these forms.
pub(crate) fn parse(text: &str, start: Stamp, end: Stamp, zone: &Zone) -> Result<Stamp, String> {
    if let Some(calendar) = text.strip_prefix('@') {
        let unexpected = || format!("{text}\n ^ -- unexpected value\n");
        return calendar_time(calendar.trim(), start, zone).ok_or_else(unexpected);
    }
    let (base, interval) = match text.strip_prefix('-') {
        Some(interval) => (end, interval),
        None => (start, text.strip_prefix('+').unwrap_or(text)),
    };
    let interval = pmapi::interval::parse(interval).map_err(|e| e.to_string())?;
    let nanoseconds = i128::from(base.seconds) * SECOND + i128::from(base.nanoseconds);
    let interval = i128::try_from(interval.as_nanos()).unwrap_or(i128::MAX / 2);
    let sum = if text.starts_with('-') { nanoseconds - interval } else { nanoseconds + interval };
    let seconds = i64::try_from(sum.div_euclid(SECOND)).unwrap_or(i64::MAX);
    Ok(Stamp { seconds, nanoseconds: sum.rem_euclid(SECOND) as u32 })
}

const SECOND: i128 = 1_000_000_000;
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Parses `2026-01-31 10:20:30`, or the words of ctime(3), in which what is missing on the left is that of `start`.
fn calendar_time(text: &str, start: Stamp, zone: &Zone) -> Option<Stamp> {
    if let Ok(time) = text.parse::<DateTime>() {
        let nanoseconds = time.subsec_nanosecond().unsigned_abs();
        return Some(Stamp { seconds: zone.seconds(time)?, nanoseconds });
    }
    let first = zone.local(start.seconds).date();
    let (mut year, mut month, mut day) = (None, None, None);
    let (mut clock, mut nanoseconds) = (None, 0);
    for word in text.split_whitespace() {
        let lower = word.to_ascii_lowercase();
        let key = lower.get(..3).unwrap_or_default();
        if word.contains(':') {
            let mut parts = word.split(':');
            let (hour, minute) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            let seconds: f64 = parts.next().unwrap_or("0").parse().ok()?;
            clock = Some((hour, minute, seconds as i8));
            nanoseconds = ((seconds - seconds.trunc()) * 1e9) as u32;
        } else if let Some(at) = MONTHS.iter().position(|name| *name == key) {
            month = Some(at as i8 + 1);
        } else if word.len() == 4 && word.bytes().all(|b| b.is_ascii_digit()) {
            year = Some(word.parse().ok()?);
        } else if !DAYS.contains(&key) {
            day = Some(word.parse().ok()?);
        }
    }
    let (hour, minute, second) =
        clock.or_else(|| (year.or(day.map(i16::from)).is_some() || month.is_some()).then_some((0, 0, 0)))?;
    let month = month.unwrap_or(if year.is_some() { 1 } else { first.month() });
    let day = day.unwrap_or(if year.is_some() || clock.is_none() { 1 } else { first.day() });
    let time = DateTime::new(year.unwrap_or(first.year()), month, day, hour, minute, second, 0).ok()?;
    Some(Stamp { seconds: zone.seconds(time)?, nanoseconds })
}
