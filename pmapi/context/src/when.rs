//! Times of options.

use pcp_pdu::event::Stamp;
use pmapi::cnum::{self, is_space};
use pmapi::spec::SpecError;

use crate::getdate;
use pmapi::zone::{Fields, Zone};

/// Times from which relative times count.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) start: Stamp,
    pub(crate) end: Option<Stamp>,
    /// Current time, for words such as "yesterday".
    pub(crate) now: Stamp,
}

const SECOND: i128 = 1_000_000_000;
const UNEXPECTED: &str = "unexpected value";

/// Parses a time.
///
/// # Errors
/// [`SpecError`] with libpcp's message.
pub(crate) fn parse(text: &str, bounds: Bounds, zone: &Zone) -> Result<Stamp, SpecError> {
    let trimmed = text.trim_start_matches(|c| u8::try_from(c).is_ok_and(is_space));
    let relative = |base: Stamp, sign: i128, text: &str| {
        let interval = i128::try_from(pmapi::interval::parse(text)?.as_nanos()).unwrap_or(i128::MAX / 4);
        let time = i128::from(base.seconds) * SECOND + i128::from(base.nanoseconds) + sign * interval;
        let seconds = i64::try_from(time.div_euclid(SECOND)).unwrap_or(if sign < 0 { i64::MIN } else { i64::MAX });
        Ok(Stamp { seconds, nanoseconds: time.rem_euclid(SECOND) as u32 })
    };
    let (found, rest) = match (trimmed.strip_prefix('@'), trimmed.strip_prefix('-'), bounds.end) {
        (Some(rest), ..) => (Calendar::parse(rest).and_then(|time| time.stamp(bounds.start, zone, rest)), rest),
        (_, Some(rest), Some(end)) => (relative(end, -1, rest), rest),
        _ => {
            let rest = trimmed.strip_prefix('+').unwrap_or(trimmed);
            (relative(bounds.start, 1, rest), rest)
        }
    };
    found.or_else(|e| {
        let iso = zone.iso(rest.trim()).map(|(seconds, nanoseconds)| Stamp { seconds, nanoseconds });
        iso.or_else(|| words(rest, bounds, zone)).ok_or(e)
    })
}

/// Parses words of getdate. Words that count units are relative to a bound of the window, all others to the present.
fn words(text: &str, bounds: Bounds, zone: &Zone) -> Option<Stamp> {
    const UNITS: [&str; 8] = [" year", " month", " fortnight", " week", " day", " hour", " min", " sec"];
    let text = text.trim_start_matches(|c| u8::try_from(c).is_ok_and(is_space));
    let text = text.strip_prefix('@').unwrap_or(text).trim_start_matches(|c| u8::try_from(c).is_ok_and(is_space));
    let lower = text.to_ascii_lowercase();
    let is_back = lower.contains("last") || lower.contains("ago") || lower.starts_with('-');
    let base = if UNITS.iter().any(|unit| lower.contains(unit)) {
        bounds.end.filter(|_| is_back).unwrap_or(bounds.start)
    } else {
        bounds.now
    };
    let seconds = getdate::parse(text, base.seconds, zone)?;
    Some(Stamp { seconds, nanoseconds: 0 })
}

/// Calendar time in the format of ctime(3), of which any field may be missing.
#[derive(Clone, Copy, Debug, Default)]
struct Calendar {
    year: Option<i32>,
    /// Month: 0 is January.
    month: Option<i32>,
    day: Option<i64>,
    hour: Option<i64>,
    minute: Option<i64>,
    second: Option<i64>,
    nanoseconds: u32,
}

const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// Reader of words. It does not consume text that it does not recognize.
struct Scan<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Scan<'t> {
    fn rest(&mut self) -> &'t str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let trimmed = rest.trim_start_matches(|c| u8::try_from(c).is_ok_and(is_space));
        self.at = self.text.len() - trimmed.len();
        trimmed
    }

    /// Recognizes a word of up to three letters, and returns its index.
    fn word(&mut self, words: &[&str]) -> Option<usize> {
        let rest = self.rest();
        let len = rest.bytes().take(3).take_while(u8::is_ascii_alphabetic).count();
        let found = rest.get(..len)?;
        let at = words.iter().position(|word| word.eq_ignore_ascii_case(found))?;
        self.at += len;
        Some(at)
    }

    fn sign(&mut self, sign: char) -> bool {
        let is_found = self.rest().starts_with(sign);
        self.at += usize::from(is_found);
        is_found
    }

    /// Returns whether a character comes next, without white space before it.
    fn follows(&self, sign: char) -> bool {
        self.text.get(self.at..).unwrap_or_default().starts_with(sign)
    }

    fn integer(&mut self, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
        let rest = self.rest();
        let start = usize::from(rest.starts_with(['+', '-']));
        let digits = rest.bytes().skip(start).take_while(u8::is_ascii_digit).count();
        let value = rest.get(..start + digits)?.parse().ok().filter(|value| range.contains(value))?;
        self.at += start + digits;
        Some(value)
    }

    fn seconds(&mut self) -> Option<f64> {
        let number = cnum::scan(self.rest()).filter(|number| (0.0..=61.0).contains(&number.value))?;
        self.at += number.len;
        Some(number.value)
    }
}

impl Calendar {
    fn parse(text: &str) -> Result<Calendar, SpecError> {
        let mut scan = Scan { text, at: 0 };
        let mut time = Calendar::default();
        let weekday = scan.word(&DAYS);
        time.month = scan.word(&MONTHS).map(|month| month as i32);
        time.day = scan.integer(0..=31);
        time.hour = scan.integer(0..=23);
        if time.day == Some(0) && time.hour.is_some() {
            time.day = None;
        }
        let is_hour = time.day.is_some_and(|day| day <= 23) && (time.month.is_none() || scan.follows(':'));
        if time.hour.is_none() && is_hour {
            time.hour = time.day.take();
        }
        if scan.sign(':') {
            time.hour = time.hour.or(Some(0));
            time.minute = scan.integer(0..=59).or(Some(0));
            if scan.sign(':') {
                if let Some(seconds) = scan.seconds() {
                    time.second = Some(seconds as i64);
                    time.nanoseconds = ((seconds - seconds.trunc()) * 1e9) as u32;
                }
            }
        }
        let before = scan.at;
        if let Some(half) = scan.word(&["am", "pm"]) {
            match (time.hour, half) {
                (None | Some(13..), _) => scan.at = before,
                (Some(hour @ 0..12), 1) => time.hour = Some(hour + 12),
                (Some(12), 0) => time.hour = Some(0),
                _ => (),
            }
        }
        time.year = scan.integer(1900..=9999).map(|year| year as i32);
        if !scan.rest().is_empty() {
            return Err(SpecError::new(text, scan.at, UNEXPECTED));
        }
        let is_hour_only = time.hour.is_some() && time.minute.is_none() && time.day.is_none();
        let is_vague = weekday.is_some() && time.month.is_none() && time.day.is_none();
        if is_vague || (is_hour_only && time.month.is_none() && time.year.is_none()) {
            return Err(SpecError::new(text, scan.at, "more information expected"));
        }
        Ok(time.filled())
    }

    /// Fills in missing fields to the right of fields that are present.
    fn filled(mut self) -> Calendar {
        let mut is_left = self.year.is_some();
        let mut fill = |field: &mut Option<i64>, default| {
            is_left |= field.is_some();
            if is_left {
                *field = field.or(Some(default));
            }
        };
        let mut month = self.month.map(i64::from);
        fill(&mut month, 0);
        self.month = month.map(|month| month as i32);
        fill(&mut self.day, 1);
        fill(&mut self.hour, 0);
        fill(&mut self.minute, 0);
        fill(&mut self.second, 0);
        self
    }

    /// Returns the time. Fields missing on the left are those of `start`. If the result is before `start`, the last of
    /// these fields is increased by one.
    fn stamp(self, start: Stamp, zone: &Zone, text: &str) -> Result<Stamp, SpecError> {
        let Some(second) = self.second else {
            // An empty text is the start itself.
            return Ok(start);
        };
        let local = zone.local(start.seconds);
        let (mut year, mut month) = (i64::from(local.year), i64::from(local.month) - 1);
        let (mut day, mut hour, mut minute) = (local.day.into(), local.hour.into(), local.minute.into());
        let set = |field: &mut i64, new: i64, above: &mut i64| {
            *above += i64::from(new < *field);
            *field = new;
        };
        // Only the leftmost field that is present may advance the field to its left.
        match (self.year, self.month, self.day, self.hour, self.minute) {
            (Some(new), ..) => year = new.into(),
            (_, Some(new), ..) => set(&mut month, new.into(), &mut year),
            (_, _, Some(new), ..) => set(&mut day, new, &mut month),
            (.., Some(new), _) => set(&mut hour, new, &mut day),
            (.., Some(new)) => set(&mut minute, new, &mut hour),
            _ => set(&mut i64::from(local.second), second, &mut minute),
        }
        let fields = Fields {
            year: year as i32,
            month: self.month.unwrap_or(month as i32) + 1,
            day: self.day.unwrap_or(day),
            hour: self.hour.unwrap_or(hour),
            minute: self.minute.unwrap_or(minute),
            second,
        };
        let seconds = zone.seconds(&fields).ok_or_else(|| SpecError::new(text, 0, UNEXPECTED))?;
        Ok(Stamp { seconds, nanoseconds: self.nanoseconds })
    }
}
