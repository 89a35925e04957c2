//! Time zones in the form of POSIX, read as leniently as the C library reads them.

use jiff::tz::TimeZone;

/// Rules of a zone whose text has a name of daylight saving time but no rules, as in the C library. Where the library
/// finds a file `posixrules`, it uses that file, whose rules are others before 2007.
const RULES: &str = ",M3.2.0,M11.1.0";

const MINUTE: u32 = 60;
const HOUR: u32 = 60 * MINUTE;
/// Largest time of a rule. The C library accepts more.
const LATEST: u32 = 167 * HOUR;

/// Returns the zone of a text such as `CET-1CEST,M3.5.0,M10.5.0/3`; `None` for another text. What follows a valid
/// offset is ignored if it is invalid.
pub(crate) fn zone(text: &str) -> Option<TimeZone> {
    let mut rest = after_name(text.as_bytes())?;
    let standard = offset(&mut rest)?;
    // Names are never shown.
    let plain = format!("STD{}", shown(standard));
    let summer = after_name(rest).map(|mut rest| {
        let daylight = offset(&mut rest).unwrap_or(standard - i64::from(HOUR));
        let rules = if matches!(rest, b"" | b",") { Some(RULES.to_owned()) } else { rules(rest) };
        rules.map(|rules| format!("{plain}DST{}{rules}", shown(daylight)))
    });
    let summer = summer.flatten().and_then(|text| TimeZone::posix(&text).ok());
    summer.or_else(|| TimeZone::posix(&plain).ok())
}

/// Returns what follows the name of a zone: at least three letters, or other characters in angle brackets.
fn after_name(text: &[u8]) -> Option<&[u8]> {
    let len = |text: &[u8], is_part: fn(&u8) -> bool| text.iter().take_while(|b| is_part(b)).count();
    let letters = len(text, u8::is_ascii_alphabetic);
    if letters >= 3 {
        return text.get(letters..);
    }
    let quoted = text.strip_prefix(b"<")?;
    let inside = len(quoted, |b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-'));
    quoted.get(inside..)?.strip_prefix(b">").filter(|_| inside >= 3)
}

/// Takes an offset, and returns it in seconds west of Greenwich. Its parts are at most 24:59:59.
fn offset(text: &mut &[u8]) -> Option<i64> {
    let (negative, rest) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, *text),
    };
    let mut after = rest;
    let [hours, minutes, seconds] = clock(&mut after)?;
    *text = after;
    let total = i64::from(hours.min(24) * HOUR + minutes.min(59) * MINUTE + seconds.min(59));
    Some(if negative { -total } else { total })
}

/// Takes hours, minutes and seconds, of which only the hours must be there.
fn clock(text: &mut &[u8]) -> Option<[u32; 3]> {
    let mut parts = [number(text)?, 0, 0];
    for part in &mut parts[1..] {
        let Some(mut rest) = text.strip_prefix(b":") else { break };
        let Some(found) = number(&mut rest) else { break };
        (*part, *text) = (found, rest);
    }
    Some(parts)
}

/// Takes a decimal number, which saturates at a value beyond all ranges here.
fn number(text: &mut &[u8]) -> Option<u32> {
    let len = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let (digits, rest) = text.split_at_checked(len).filter(|_| len > 0)?;
    *text = rest;
    let add = |sum: u32, digit: &u8| (sum * 10 + u32::from(digit - b'0')).min(10_000);
    Some(digits.iter().fold(0, add))
}

/// Returns the two rules of a text in the form that jiff reads; `None` if one is invalid.
fn rules(mut text: &[u8]) -> Option<String> {
    let first = rule(&mut text)?;
    let second = rule(&mut text)?;
    Some(format!("{first}{second}"))
}

fn rule(text: &mut &[u8]) -> Option<String> {
    let mut rest = text.strip_prefix(b",").unwrap_or(text);
    let day = match rest.first()? {
        b'M' => {
            let mut parts = [0; 3];
            for (part, before) in parts.iter_mut().zip(b"M..") {
                rest = rest.strip_prefix(&[*before])?;
                *part = number(&mut rest)?;
            }
            let [month, week, day] = parts;
            ((1..=12).contains(&month) && (1..=5).contains(&week) && day <= 6).then(|| format!("M{month}.{week}.{day}"))
        }
        b'J' => {
            rest = rest.get(1..)?;
            number(&mut rest).filter(|day| (1..=365).contains(day)).map(|day| format!("J{day}"))
        }
        _ => number(&mut rest).filter(|day| *day <= 365).map(|day| day.to_string()),
    }?;
    let mut seconds = i64::from(2 * HOUR);
    if let Some(time) = rest.strip_prefix(b"/") {
        let (negative, mut after) = time.strip_prefix(b"-").map_or((false, time), |after| (true, after));
        // The C library changes at two o'clock if there is no number.
        let [hours, minutes, past] = clock(&mut after).unwrap_or([2, 0, 0]);
        let total = i64::from((hours * HOUR).saturating_add(minutes * MINUTE + past).min(LATEST));
        (seconds, rest) = (if negative { -total } else { total }, after);
    }
    *text = rest;
    Some(format!(",{day}/{}", shown(seconds)))
}

/// Returns seconds as hours, minutes and seconds.
fn shown(seconds: i64) -> String {
    let (sign, total) = (if seconds < 0 { "-" } else { "" }, seconds.unsigned_abs());
    format!("{sign}{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    /// Returns the offsets east of UTC in seconds, in January and July 2018.
    fn offsets(text: &str) -> Option<(i32, i32)> {
        let zone = zone(text)?;
        let at = |seconds| zone.to_offset(Timestamp::from_second(seconds).unwrap()).seconds();
        Some((at(1_516_060_800), at(1_531_699_200)))
    }

    /// The offsets are those of glibc 2.36.
    #[test]
    fn texts_as_the_c_library_reads_them() {
        for (text, winter, summer) in [
            ("CET-1", 3600, 3600),
            ("CET-1CEST", 3600, 7200),
            ("CET-1CEST,", 3600, 7200),
            ("CET-1CEST,M3.5.0,M10.5.0/3", 3600, 7200),
            ("EST+5EDT", -18_000, -14_400),
            ("EST5EDT4,M3.2.0/-167,M11.1.0/167", -18_000, -14_400),
            ("EST-11EST-10,89/2:00,299/2:00", 39_600, 36_000),
            ("<+03>-3", 10_800, 10_800),
            ("<abc>5<def>,J60,J300", -18_000, -14_400),
            ("UTC+25", -86_400, -86_400),
            ("UTC+99999999999", -86_400, -86_400),
            ("UTC+1:2:3", -3723, -3723),
            ("UTC+1:60", -7140, -7140),
            ("UTC+1:", -3600, -3600),
            ("CET-1CEST,J0,J366", 3600, 3600),
            ("CET-1CEST,M13.6.8,M0.0.0", 3600, 3600),
        ] {
            assert_eq!(offsets(text), Some((winter, summer)), "{text}");
        }
        for text in ["", "X", "XY5", "CET", "5", "+5", "<a>5", "<abc5", "UTC+", "UTC,", "A1B2C3"] {
            assert_eq!(offsets(text), None, "{text}");
        }
    }
}
