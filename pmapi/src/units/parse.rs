//! Parsing of units (pmParseUnitsStr(3)).

use std::str::FromStr;

use super::{DIM_COUNT, DIM_SPACE, DIM_TIME, EXTRA_SCALE, EXTRA_UNIT, SCALE_COUNT, SCALE_SPACE, SCALE_TIME};
use super::{ExtraUnit, Field, SpaceScale, TimeScale, Units};
use crate::Error;
use crate::cnum::{self, is_space};

/// Error in a text of units. `Display` gives libpcp's messages. libpcp has no messages for the last three errors: it
/// loops, aborts, or returns the factor to its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParseUnitsError {
    /// Number out of range, or not a number.
    #[error("invalid floating point literal")]
    Number,
    /// Unknown unit, or a dimension that occurs twice on one side.
    #[error("unrecognized or duplicate base unit")]
    Unit,
    /// Dimension of space that is not in -8 to 7.
    #[error("space dimension out of bounds")]
    SpaceDimension,
    /// Dimension of time that is not in -8 to 7.
    #[error("time dimension out of bounds")]
    TimeDimension,
    /// Dimension of count that is not in -8 to 7.
    #[error("count dimension out of bounds")]
    CountDimension,
    /// Two extra units on one side of the slash.
    #[error("multiple extra units not allowed")]
    ManyExtraUnits,
    /// Extra units on both sides of the slash.
    #[error("extra units cannot appear in both dividend and divisor")]
    ExtraUnitsOnBothSides,
    /// Meaningless scale of time that has to be converted.
    #[error("time scale out of bounds")]
    TimeScale,
    /// Factor in a text that is parsed as [`Units`], without a factor.
    #[error("a factor is not allowed here")]
    Factor,
}

impl From<ParseUnitsError> for Error {
    fn from(_: ParseUnitsError) -> Error {
        Error::CONV
    }
}

impl Units {
    /// Parses units and the factor that converts a value in these units to the units of the text (pmParseUnitsStr(3)):
    /// "2.5 kbyte / sec" gives `Kbyte / sec` and 0.4.
    ///
    /// Each side of a slash is a sequence of numbers and units in any order and case. A unit may have an exponent
    /// ("sec^2"). The output of `Display` can be parsed, except for a scale of count without its dimension and for
    /// extra units without meaning.
    ///
    /// # Errors
    /// [`ParseUnitsError`] for an unknown unit, an invalid number, a repeated dimension or a dimension out of range.
    pub fn parse(text: &str) -> Result<(Units, f64), ParseUnitsError> {
        let (dividend, divisor) = text.split_once('/').unwrap_or((text, ""));
        let dividend = Side::parse(dividend)?;
        let divisor = Side::parse(divisor)?;
        quotient(&dividend, &divisor)
    }
}

/// Parses units as [`Units::parse`] does; a factor is an error.
impl FromStr for Units {
    type Err = ParseUnitsError;

    fn from_str(text: &str) -> Result<Units, ParseUnitsError> {
        match Self::parse(text)? {
            (units, 1.0) => Ok(units),
            _ => Err(ParseUnitsError::Factor),
        }
    }
}

/// Exponent and scale on one side of the slash. Exponents may exceed the fields of [`Units`].
#[derive(Clone, Copy, Default)]
struct Dim {
    exponent: i32,
    scale: i32,
}

struct Side {
    space: Dim,
    time: Dim,
    count: Dim,
    extra: Option<ExtraUnit>,
    number: f64,
}

impl Side {
    fn parse(text: &str) -> Result<Side, ParseUnitsError> {
        let mut side =
            Side { space: Dim::default(), time: Dim::default(), count: Dim::default(), extra: None, number: 1.0 };
        let mut rest = skip_space(text);
        while !rest.is_empty() {
            if let Some((unit, tail)) = take_extra(rest) {
                if side.extra.replace(unit).is_some() {
                    return Err(ParseUnitsError::ManyExtraUnits);
                }
                rest = tail;
            } else if rest.starts_with(|c: char| c == '-' || c == '.' || c.is_ascii_digit()) {
                let number = cnum::scan(rest).filter(|n| !n.out_of_range).ok_or(ParseUnitsError::Number)?;
                side.number *= number.value;
                rest = rest.get(number.len..).unwrap_or_default();
            } else {
                rest = side.unit(rest).ok_or(ParseUnitsError::Unit)?;
            }
            rest = skip_space(rest);
        }
        Ok(side)
    }

    /// Consumes a unit and its exponent. Does not recognize a unit if this side already has its dimension.
    fn unit<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        let (dim, scale, rest) = if let Some((scale, rest)) = free(&self.time).and_then(|()| take_time(text)) {
            (&mut self.time, scale, rest)
        } else if let Some((scale, rest)) = free(&self.space).and_then(|()| take_space(text)) {
            (&mut self.space, scale, rest)
        } else {
            let (scale, rest) = free(&self.count).and_then(|()| take_count(text))?;
            (&mut self.count, scale, rest)
        };
        dim.scale = scale;
        if rest.is_empty() || rest.starts_with(is_space_char) {
            dim.exponent = 1;
            return Some(rest);
        }
        let (exponent, rest) = EXPONENTS.find_map(|(word, exponent)| Some((exponent, take_word(rest, word)?)))?;
        dim.exponent = exponent;
        Some(rest)
    }
}

fn free(dim: &Dim) -> Option<()> {
    (dim.exponent == 0).then_some(())
}

struct Exponents;
const EXPONENTS: Exponents = Exponents;

impl Exponents {
    fn find_map<T>(self, find: impl FnMut((&'static str, i32)) -> Option<T>) -> Option<T> {
        const WORDS: [&str; 24] = [
            "^-8", "^-7", "^-6", "^-5", "^-4", "^-3", "^-2", "^-1", "^0", "^1", "^2", "^3", "^4", "^5", "^6", "^7",
            "^8", "^9", "^10", "^11", "^12", "^13", "^14", "^15",
        ];
        WORDS.into_iter().zip(-8..).find_map(find)
    }
}

fn quotient(dividend: &Side, divisor: &Side) -> Result<(Units, f64), ParseUnitsError> {
    let mut factor = divisor.number / dividend.number;
    let mut word = 0;
    // The last bit of the factor depends on the order of the multiplications, which is libpcp's.
    let mut combine =
        |a: &Dim, b: &Dim, fields: (Field, Field), canonical: i32, weight: &dyn Fn(i32) -> Option<f64>| {
            let exponent = a.exponent - b.exponent;
            let scale = match (a.exponent != 0, b.exponent != 0) {
                (false, true) => b.scale,
                (true, false) => a.scale,
                _ => {
                    factor *= weight(a.scale)?.powf(-f64::from(a.exponent));
                    factor *= weight(b.scale)?.powf(f64::from(b.exponent));
                    if exponent == 0 { 0 } else { canonical }
                }
            };
            word = fields.0.set(fields.1.set(word, scale), exponent);
            Some(())
        };
    for (a, b, dim, error) in [
        (&dividend.space, &divisor.space, DIM_SPACE, ParseUnitsError::SpaceDimension),
        (&dividend.time, &divisor.time, DIM_TIME, ParseUnitsError::TimeDimension),
        (&dividend.count, &divisor.count, DIM_COUNT, ParseUnitsError::CountDimension),
    ] {
        if !dim.fits_signed(a.exponent - b.exponent) {
            return Err(error);
        }
    }
    combine(&dividend.space, &divisor.space, (DIM_SPACE, SCALE_SPACE), 0, &|scale| Some(2_f64.powi(10 * scale)));
    combine(&dividend.count, &divisor.count, (DIM_COUNT, SCALE_COUNT), 0, &|scale| {
        POWERS_OF_TEN.get(usize::try_from(scale + 8).ok()?).copied()
    });
    let seconds = (DIM_TIME, SCALE_TIME);
    combine(&dividend.time, &divisor.time, seconds, TimeScale::Sec as i32, &time_weight)
        .ok_or(ParseUnitsError::TimeScale)?;
    let word = match (dividend.extra, divisor.extra) {
        (Some(_), Some(_)) => return Err(ParseUnitsError::ExtraUnitsOnBothSides),
        (Some(unit), None) => with_extra(word, unit, 1),
        (None, Some(unit)) => with_extra(word, unit, -1),
        (None, None) => word,
    };
    Ok((Units(word), factor))
}

fn with_extra(word: u32, unit: ExtraUnit, exponent: i32) -> u32 {
    EXTRA_UNIT.set(EXTRA_SCALE.set(word, unit.scale().into()), unit.quantity() as i32 * exponent)
}

/// Powers of ten for scales of -8 to 7.
const POWERS_OF_TEN: [f64; 16] =
    [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7];

/// Returns the seconds of a scale of time.
fn time_weight(scale: i32) -> Option<f64> {
    Some(match TimeScale::from_code(u8::try_from(scale).ok()?)? {
        TimeScale::Nsec => 0.000_000_001,
        TimeScale::Usec => 0.000_001,
        TimeScale::Msec => 0.001,
        TimeScale::Sec => 1.0,
        TimeScale::Min => 60.0,
        TimeScale::Hour => 3600.0,
    })
}

fn is_space_char(c: char) -> bool {
    u8::try_from(c).is_ok_and(is_space)
}

fn skip_space(text: &str) -> &str {
    text.trim_start_matches(is_space_char)
}

fn take_prefix<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Consumes a word that white space, `^` or the end follows.
fn take_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    take_prefix(text, word).filter(|rest| rest.is_empty() || rest.starts_with(|c: char| c == '^' || is_space_char(c)))
}

fn take_any<'a>(text: &'a str, words: &[&str]) -> Option<&'a str> {
    words.iter().find_map(|word| take_word(text, word))
}

/// Consumes a scale by its code, such as `time-9`, whether or not the scale has a name.
fn take_code<'a>(text: &'a str, prefix: &str) -> Option<(i32, &'a str)> {
    (0..16).find_map(|code| Some((code, take_word(text, &format!("{prefix}-{code}"))?)))
}

fn take_time(text: &str) -> Option<(i32, &str)> {
    const NAMES: [(TimeScale, &[&str]); 6] = [
        (TimeScale::Nsec, &["nanoseconds", "nanosecond", "nanosec", "ns"]),
        (TimeScale::Usec, &["microseconds", "microsecond", "microsec", "us"]),
        (TimeScale::Msec, &["milliseconds", "millisecond", "millisec", "ms"]),
        (TimeScale::Sec, &["seconds", "second", "sec", "s"]),
        (TimeScale::Min, &["minutes", "minute", "min"]),
        (TimeScale::Hour, &["hours", "hour", "hr", "h"]),
    ];
    let named = NAMES.iter().find_map(|(scale, names)| Some((*scale as i32, take_any(text, names)?)));
    named.or_else(|| take_code(text, "time"))
}

fn take_space(text: &str) -> Option<(i32, &str)> {
    // Each name has a plural. Decimal prefixes mean the same as binary ones.
    const PREFIXES: [(&str, &str); 9] = [
        ("", ""),
        ("kibi", "kilo"),
        ("mebi", "mega"),
        ("gibi", "giga"),
        ("tebi", "tera"),
        ("pebi", "peta"),
        ("exbi", "exa"),
        ("zebi", "zetta"),
        ("yobi", "yotta"),
    ];
    SpaceScale::ALL
        .into_iter()
        .zip(PREFIXES)
        .find_map(|(scale, (iec, si))| {
            let name = scale.name();
            let plural = format!("{name}s");
            let rest = if scale == SpaceScale::Byte {
                take_any(text, &[name, &plural])
            } else {
                let letter = name.get(..1)?;
                let short = [format!("{letter}B"), format!("{letter}iB")];
                let long = [iec, si].map(|prefix| format!("{prefix}byte"));
                let longs = [iec, si].map(|prefix| format!("{prefix}bytes"));
                let [a, b] = &short;
                let ([c, d], [e, f]) = (&long, &longs);
                take_any(text, &[name, &plural, a, b, c, d, e, f])
            };
            Some((scale as i32, rest?))
        })
        .or_else(|| take_code(text, "space"))
}

fn take_count(text: &str) -> Option<(i32, &str)> {
    let scaled = (-8..=7).filter(|scale| !matches!(scale, 0 | 1));
    scaled
        .into_iter()
        .find_map(|scale| Some((scale, take_word(text, &format!("count x 10^{scale}"))?)))
        .or_else(|| Some((1, take_word(text, "count x 10")?)))
        .or_else(|| Some((0, take_any(text, &["counts", "count"])?)))
}

/// Consumes an extra unit, such as `temperature (C)`, after which no white space is needed.
fn take_extra(text: &str) -> Option<(ExtraUnit, &str)> {
    ExtraUnit::ALL.into_iter().find_map(|unit| {
        let rest = take_prefix(text, unit.quantity().name())?.strip_prefix(" (")?;
        Some((unit, take_prefix(rest, unit.symbol())?.strip_prefix(')')?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<(String, f64), String> {
        Units::parse(text).map(|(units, factor)| (units.to_string(), factor)).map_err(|e| e.to_string())
    }

    #[test]
    fn extra_units() {
        assert_eq!(parsed("temperature (c)"), Ok(("temperature (C)".into(), 1.0)));
        assert_eq!(parsed("2 power (kW)byte / sec"), Ok(("power (kW) byte / sec".into(), 0.5)));
        assert_eq!(parsed("count / voltage (uV)"), Ok(("count / voltage (uV)".into(), 1.0)));
        assert_eq!(parsed("power (W) power (W)"), Err("multiple extra units not allowed".into()));
        assert_eq!(
            parsed("power (W) / power (W)"),
            Err("extra units cannot appear in both dividend and divisor".into())
        );
        // libpcp loops forever here.
        assert_eq!(parsed("temperature (C) foo"), Err("unrecognized or duplicate base unit".into()));
        assert_eq!(parsed("temperature (V)"), Err("unrecognized or duplicate base unit".into()));
    }

    #[test]
    fn time_scales_without_meaning() {
        assert_eq!(parsed("time-9"), Ok(("time-9".into(), 1.0)));
        // libpcp aborts here.
        assert_eq!(parsed("time-9 / time-9"), Err("time scale out of bounds".into()));
        assert_eq!(parsed("time-9^0"), Err("time scale out of bounds".into()));
    }

    #[test]
    fn numbers() {
        assert_eq!(parsed("1e999 byte"), Err("invalid floating point literal".into()));
        assert_eq!(parsed(". byte"), Err("invalid floating point literal".into()));
        assert_eq!("2 byte".parse::<Units>(), Err(ParseUnitsError::Factor));
        assert_eq!("2 byte / 2 sec".parse(), Ok(Units::BYTES.per(Units::SECONDS)));
        assert_eq!("\u{a0}byte".parse::<Units>(), Err(ParseUnitsError::Unit));
    }
}
