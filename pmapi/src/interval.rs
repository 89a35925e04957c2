//! Intervals of time (pmParseInterval(3)).

use std::time::Duration;

use crate::cnum::{self, is_space};
use crate::spec::SpecError;

/// Unit names without their plural, with the divisor and the multiplier that give seconds.
const UNITS: [(&str, f64, f64); 17] = [
    ("nanosecond", 1e9, 1.0),
    ("microsecond", 1e6, 1.0),
    ("millisecond", 1e3, 1.0),
    ("second", 1.0, 1.0),
    ("minute", 1.0, 60.0),
    ("hour", 1.0, 3600.0),
    ("day", 1.0, 86400.0),
    ("msec", 1e3, 1.0),
    ("usec", 1e6, 1.0),
    ("nsec", 1e9, 1.0),
    ("sec", 1.0, 1.0),
    ("min", 1.0, 60.0),
    ("hr", 1.0, 3600.0),
    ("s", 1.0, 1.0),
    ("m", 1.0, 60.0),
    ("h", 1.0, 3600.0),
    ("d", 1.0, 86400.0),
];

const UNEXPECTED: &str = "unexpected value";

/// Largest number, the largest `time_t`.
const MAX_NUMBER: f64 = i64::MAX as f64;

/// Largest number of seconds whose fraction has nanoseconds. Above it libpcp has microseconds.
const NANOSECONDS_UP_TO: u64 = 999_999;

/// Parses an interval of time: the sum of numbers with units, so that "2min 30s" is 150 seconds (pmParseInterval(3)). A
/// number without a unit means seconds.
///
/// # Errors
/// [`SpecError`] with libpcp's message for a syntax error. Also for NaN, and for a sum that does not fit into seconds
/// of 64 bits, whose result is undefined in C.
pub fn parse(text: &str) -> Result<Duration, SpecError> {
    if text.is_empty() {
        return Err(SpecError::new("", 0, "Null or empty specification"));
    }
    let mut seconds = 0.0;
    let mut rest = skip_space(text);
    let error = |rest: &str| SpecError::new(text, text.len() - rest.len(), UNEXPECTED);
    while !rest.is_empty() {
        // A NaN passes here and makes the sum NaN, which `duration` refuses.
        let number =
            cnum::scan(rest).filter(|n| !(n.value < 0.0 || n.value > MAX_NUMBER)).ok_or_else(|| error(rest))?;
        let unit = skip_space(rest.get(number.len..).unwrap_or_default());
        let (name, tail) = unit.split_at(unit.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unit.len()));
        let (divisor, multiplier) = unit_named(name).ok_or_else(|| error(unit))?;
        seconds += number.value / divisor * multiplier;
        rest = skip_space(tail);
    }
    duration(seconds).ok_or_else(|| error(rest))
}

fn unit_named(name: &str) -> Option<(f64, f64)> {
    if name.is_empty() {
        return Some((1.0, 1.0));
    }
    let singular = name.strip_suffix(['s', 'S']).filter(|n| !n.is_empty()).unwrap_or(name);
    UNITS.iter().find(|unit| unit.0.eq_ignore_ascii_case(singular)).map(|unit| (unit.1, unit.2))
}

fn duration(seconds: f64) -> Option<Duration> {
    if !(0.0..MAX_NUMBER).contains(&seconds) {
        return None;
    }
    let whole = seconds.trunc();
    let (steps, nanoseconds) = if whole as u64 <= NANOSECONDS_UP_TO { (1e9, 1) } else { (1e6, 1000) };
    let fraction = rounded_product(seconds - whole, steps);
    Duration::from_secs(whole as u64).checked_add(Duration::from_nanos(fraction * nanoseconds))
}

/// Multiplies a fraction below 1 by a whole number and rounds half up, with more precision than `f64` has.
fn rounded_product(fraction: f64, factor: f64) -> u64 {
    // As a multiple of 2^-96 the fraction is exact, except for bits far below the result's last digit.
    let scaled = (fraction * 2_f64.powi(96)) as u128;
    ((scaled * factor as u128 + (1 << 95)) >> 96) as u64
}

fn skip_space(text: &str) -> &str {
    text.trim_start_matches(|c| u8::try_from(c).is_ok_and(is_space))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsed() {
        let nanoseconds = |text: &str| parse(text).unwrap().as_nanos();
        assert_eq!(nanoseconds("2min 30s"), 150_000_000_000);
        assert_eq!(nanoseconds(" 1.5 Hours"), 5_400_000_000_000);
        assert_eq!(nanoseconds("1 2"), 3_000_000_000);
        assert_eq!(nanoseconds("250msec"), 250_000_000);
        assert_eq!(nanoseconds("0.1"), 100_000_000);
        // "1s" and "2m" with a plural "s", not milliseconds.
        assert_eq!(nanoseconds("1s2ms"), 121_000_000_000);
        assert_eq!(nanoseconds(" "), 0);
    }

    #[test]
    fn refused() {
        let refused = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(refused("4minutes 30mumble"), "4minutes 30mumble\n           ^ -- unexpected value");
        assert_eq!(refused(""), "\n^ -- Null or empty specification");
        assert_eq!(refused("-1"), "-1\n^ -- unexpected value");
        for text in ["nan", "inf", "1e400", "9e18d", "1:2", "1us", "é", "1é"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
