//! The words of dates.

/// Half of the day of an hour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Half {
    Am,
    Pm,
    /// Hours 0 to 23.
    None,
}

/// Word, number or sign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token {
    Number(i64),
    /// Number with `+` or `-`.
    Signed(i64),
    Half(Half),
    /// Day of the week, 0 for Sunday.
    Day(i64),
    /// Month, 1 for January.
    Month(i64),
    Unit(Unit),
    /// Zone, in minutes west of UTC; and whether daylight saving time is meant.
    Zone(i64, bool),
    Dst,
    Ago,
    Sign(u8),
}

/// Unit that a number counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    Seconds(i64),
    Months(i64),
    /// Seconds from the start of a day.
    Dated(i64),
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const DAYS: [&str; 7] = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];
/// Abbreviations other than those of three letters.
const SHORT: [(&str, Token); 5] = [
    ("sept", Token::Month(9)),
    ("tues", Token::Day(2)),
    ("wednes", Token::Day(3)),
    ("thur", Token::Day(4)),
    ("thurs", Token::Day(4)),
];
pub(super) const MINUTE: i64 = 60;
pub(super) const HOUR: i64 = 60 * MINUTE;
pub(super) const DAY: i64 = 24 * HOUR;
const UNITS: [(&str, Unit); 10] = [
    ("year", Unit::Months(12)),
    ("month", Unit::Months(1)),
    ("fortnight", Unit::Seconds(14 * DAY)),
    ("week", Unit::Seconds(7 * DAY)),
    ("day", Unit::Seconds(DAY)),
    ("hour", Unit::Seconds(HOUR)),
    ("minute", Unit::Seconds(MINUTE)),
    ("min", Unit::Seconds(MINUTE)),
    ("second", Unit::Seconds(1)),
    ("sec", Unit::Seconds(1)),
];
const OTHERS: [(&str, Token); 18] = [
    ("tomorrow", Token::Unit(Unit::Dated(DAY))),
    ("yesterday", Token::Unit(Unit::Dated(-DAY))),
    ("today", Token::Unit(Unit::Dated(0))),
    ("now", Token::Unit(Unit::Seconds(0))),
    ("this", Token::Unit(Unit::Seconds(0))),
    ("last", Token::Number(-1)),
    ("next", Token::Number(2)),
    ("first", Token::Number(1)),
    ("third", Token::Number(3)),
    ("fourth", Token::Number(4)),
    ("fifth", Token::Number(5)),
    ("sixth", Token::Number(6)),
    ("seventh", Token::Number(7)),
    ("eighth", Token::Number(8)),
    ("ninth", Token::Number(9)),
    ("tenth", Token::Number(10)),
    ("eleventh", Token::Number(11)),
    ("twelfth", Token::Number(12)),
];
/// Names of zones, with their hours west of UTC.
const ZONES: &str = "gmt 0 ut 0 utc 0 wet 0 wat 1 at 2 ast 4 est 5 cst 6 mst 7 pst 8 yst 9 hst 10 cat 10 ahst 10 nt 11 \
    idlw 12 cet -1 met -1 mewt -1 swt -1 fwt -1 eet -2 bt -3 wast -7 cct -8 jst -9 \
    east -10 gst -10 nzt -12 nzst -12 idle -12";
/// Names of zones with daylight saving time, with the hours west of UTC of their standard time.
const SUMMER_ZONES: &str =
    "bst 0 adt 4 edt 5 cdt 6 mdt 7 pdt 8 ydt 9 hdt 10 mest -1 sst -1 fst -1 wadt -7 eadt -10 nzdt -12";

fn of<T: Copy>(table: &[(&str, T)], word: &str) -> Option<T> {
    table.iter().find(|(name, _)| *name == word).map(|(_, value)| *value)
}

fn zone(word: &str) -> Option<Token> {
    let is_in = |zones: &str| {
        let mut fields = zones.split(' ').skip_while(|field| *field != word);
        fields.nth(1).and_then(|west| west.parse::<i64>().ok())
    };
    let (west, is_summer) = match is_in(ZONES) {
        Some(west) => (west, false),
        None => (is_in(SUMMER_ZONES)?, true),
    };
    Some(Token::Zone(west * 60, is_summer))
}

/// Returns the zone of a letter in the military notation.
fn military(word: &str) -> Option<Token> {
    let [letter] = *word.as_bytes() else { return None };
    let west = match letter {
        b'a'..=b'i' => i64::from(letter - b'a') + 1,
        b'k'..=b'm' => i64::from(letter - b'k') + 10,
        b'n'..=b'y' => -i64::from(letter - b'n') - 1,
        b'z' => 0,
        _ => return None,
    };
    Some(Token::Zone(west * 60, false))
}

/// Returns the token of a word in lower case, which may have periods.
fn word(word: &str) -> Option<Token> {
    let is_dotted = word.len() == 4 && word.ends_with('.');
    let short = if is_dotted { &word[..3] } else { word };
    let numbered = |names: &[&str]| {
        names
            .iter()
            .position(|name| if short.len() == 3 { name.starts_with(short) } else { **name == *short })
            .map(|at| at as i64)
    };
    let unit = |word: &str| of(&UNITS, word).map(Token::Unit);
    match word {
        "am" | "a.m." => Some(Token::Half(Half::Am)),
        "pm" | "p.m." => Some(Token::Half(Half::Pm)),
        "dst" => Some(Token::Dst),
        "ago" => Some(Token::Ago),
        _ => numbered(&MONTHS)
            .map(|at| Token::Month(at + 1))
            .or_else(|| numbered(&DAYS).map(Token::Day))
            .or_else(|| of(&SHORT, short))
            .or_else(|| zone(short))
            .or_else(|| unit(short))
            .or_else(|| unit(short.strip_suffix('s')?))
            .or_else(|| of(&OTHERS, short))
            .or_else(|| military(short))
            .or_else(|| zone(&short.replace('.', "")).filter(|_| short.contains('.'))),
    }
}

/// Splits a text into tokens. `None` for a word or character that the language does not have.
pub(super) fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut rest = text;
    let mut tokens = Vec::new();
    while let Some(first) = rest.bytes().next() {
        let count = |is: fn(&u8) -> bool, text: &str| text.bytes().take_while(is).count();
        let len = match first {
            b'+' | b'-' | b'0'..=b'9' => {
                let sign = usize::from(!first.is_ascii_digit());
                let digits = count(u8::is_ascii_digit, &rest[sign..]);
                if digits > 0 {
                    let number = rest[sign..sign + digits].parse::<i64>().ok()?;
                    tokens.push(match first {
                        b'-' => Token::Signed(-number),
                        b'+' => Token::Signed(number),
                        _ => Token::Number(number),
                    });
                }
                // A sign without a number is skipped.
                sign + digits
            }
            _ if first.is_ascii_alphabetic() => {
                let len = count(|byte| byte.is_ascii_alphabetic() || *byte == b'.', rest);
                tokens.push(word(&rest[..len].to_ascii_lowercase())?);
                len
            }
            // A comment may be open at the end.
            b'(' => comment(rest),
            b':' | b'/' | b',' => {
                tokens.push(Token::Sign(first));
                1
            }
            _ if pmapi::cnum::is_space(first) => 1,
            _ => return None,
        };
        rest = &rest[len..];
    }
    Some(tokens)
}

/// Returns the length of a comment in parentheses.
fn comment(text: &str) -> usize {
    let mut depth = 0;
    let end = text.bytes().position(|byte| {
        depth += i32::from(byte == b'(') - i32::from(byte == b')');
        depth == 0
    });
    end.map_or(text.len(), |at| at + 1)
}
