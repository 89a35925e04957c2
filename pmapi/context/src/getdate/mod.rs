//! Dates in words, such as "yesterday 5 pm", "next month" or "16-Apr-2018 10:30 UTC".
//!
//! The language is that of Usenet's getdate, which pmParseTimeWindow(3) accepts beside the words of ctime(3). In this
//! language "next" means "second": "next tuesday" is the second Tuesday from now on.

mod words;

use self::words::{DAY, HOUR, Half, MINUTE, Token, Unit, tokens};
use pmapi::zone::{Zone, utc};

/// Whether a time is daylight saving time.
#[derive(Clone, Copy, Debug)]
enum Summer {
    Is,
    IsNot,
    /// As in the user's time zone at this time.
    Local,
}

/// Items of a text: date, time, zone and relative times.
#[derive(Debug)]
struct Date {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    half: Half,
    /// Minutes west of UTC of standard time.
    west: i64,
    summer: Summer,
    /// Ordinal and day of the week, such as 2 and 2 for "next tuesday".
    weekday: (i64, i64),
    months: i64,
    seconds: i64,
    // Number of items of a kind.
    times: u32,
    zones: u32,
    dates: u32,
    weekdays: u32,
    relatives: u32,
    dated: u32,
}

struct Parser<'t> {
    tokens: std::iter::Peekable<std::slice::Iter<'t, Token>>,
    date: Date,
}

impl Parser<'_> {
    fn next(&mut self) -> Option<Token> {
        self.tokens.next().copied()
    }

    /// Accepts the next token if a function returns something for it.
    fn accept<T>(&mut self, f: impl Fn(Token) -> Option<T>) -> Option<T> {
        let found = f(**self.tokens.peek()?)?;
        self.tokens.next();
        Some(found)
    }

    fn sign(&mut self, sign: u8) -> bool {
        self.accept(|token| (token == Token::Sign(sign)).then_some(())).is_some()
    }

    fn number(&mut self) -> Option<i64> {
        match self.next()? {
            Token::Number(number) => Some(number),
            _ => None,
        }
    }

    fn signed(&mut self) -> Option<i64> {
        self.accept(|token| if let Token::Signed(number) = token { Some(number) } else { None })
    }

    /// Parses one item. `None` for a mistake.
    fn item(&mut self, first: Token) -> Option<()> {
        match first {
            Token::Number(number) => return self.after_number(number),
            Token::Signed(number) => match self.next()? {
                Token::Unit(unit) => return self.relative(number, unit),
                _ => return None,
            },
            Token::Unit(unit) => return self.relative(1, unit),
            Token::Zone(west, is_summer) => {
                let is_summer = is_summer || self.accept(|token| (token == Token::Dst).then_some(())).is_some();
                self.date.west = west;
                self.date.summer = if is_summer { Summer::Is } else { Summer::IsNot };
                self.date.zones += 1;
            }
            Token::Day(day) => {
                self.sign(b',');
                self.date.weekday = (0, day);
                self.date.weekdays += 1;
            }
            Token::Month(month) => {
                let day = self.number()?;
                let year = if self.sign(b',') { Some(self.number()?) } else { None };
                self.dated(year, month, day);
            }
            Token::Half(_) | Token::Dst | Token::Ago | Token::Sign(_) => return None,
        }
        Some(())
    }

    /// Parses what follows a number without a sign.
    fn after_number(&mut self, number: i64) -> Option<()> {
        let Some(next) = self.tokens.peek().map(|token| **token) else {
            self.lone(number);
            return Some(());
        };
        if !matches!(next, Token::Number(_) | Token::Zone(..) | Token::Dst | Token::Ago | Token::Sign(b',')) {
            self.tokens.next();
        }
        match next {
            Token::Half(half) => self.timed(number, 0, 0, half),
            Token::Sign(b':') => return self.clock(number),
            Token::Day(day) => {
                self.date.weekday = (number, day);
                self.date.weekdays += 1;
            }
            Token::Sign(b'/') => {
                let second = self.number()?;
                let third = if self.sign(b'/') { Some(self.number()?) } else { None };
                match third {
                    Some(day) if number >= 100 => self.dated(Some(number), second, day),
                    year => self.dated(year, number, second),
                }
            }
            Token::Signed(month) => {
                let day = self.signed()?;
                self.dated(Some(number), -month, -day);
            }
            Token::Month(month) => {
                let year = self.accept(|token| match token {
                    Token::Signed(year) => Some(-year),
                    Token::Number(year) => Some(year),
                    _ => None,
                });
                self.dated(year, month, number);
            }
            Token::Unit(unit) => return self.relative(number, unit),
            _ => self.lone(number),
        }
        Some(())
    }

    /// Parses the minutes and what follows them.
    fn clock(&mut self, hour: i64) -> Option<()> {
        let minute = self.number()?;
        let second = if self.sign(b':') { self.number()? } else { 0 };
        if let Some(east) = self.signed() {
            self.timed(hour, minute, second, Half::None);
            self.date.summer = Summer::IsNot;
            self.date.west = -(east % 100 + east / 100 * 60);
            return Some(());
        }
        let half = self.accept(|token| if let Token::Half(half) = token { Some(half) } else { None });
        self.timed(hour, minute, second, half.unwrap_or(Half::None));
        Some(())
    }

    fn timed(&mut self, hour: i64, minute: i64, second: i64, half: Half) {
        let date = &mut self.date;
        (date.hour, date.minute, date.second, date.half) = (hour, minute, second, half);
        date.times += 1;
    }

    fn dated(&mut self, year: Option<i64>, month: i64, day: i64) {
        let date = &mut self.date;
        (date.year, date.month, date.day) = (year.unwrap_or(date.year), month, day);
        date.dates += 1;
    }

    /// Adds a number that no other word belongs to: a year, a date or a time of day.
    fn lone(&mut self, number: i64) {
        let date = &self.date;
        if date.times > 0 && date.dates > 0 && date.relatives == 0 {
            self.date.year = number;
        } else if number > 10_000 {
            self.dated(Some(number / 10_000), number / 100 % 100, number % 100);
        } else if number < 100 {
            self.timed(number, 0, 0, Half::None);
        } else {
            self.timed(number / 100, number % 100, 0, Half::None);
        }
    }

    /// Adds units. The word `ago` negates all units before it.
    fn relative(&mut self, count: i64, unit: Unit) -> Option<()> {
        let date = &mut self.date;
        match unit {
            Unit::Seconds(seconds) | Unit::Dated(seconds) => {
                date.seconds = date.seconds.checked_add(count.checked_mul(seconds)?)?;
            }
            Unit::Months(months) => date.months = date.months.checked_add(count.checked_mul(months)?)?,
        }
        date.dated += u32::from(matches!(unit, Unit::Dated(_)));
        date.relatives += 1;
        if self.accept(|token| (token == Token::Ago).then_some(())).is_some() {
            self.date.seconds = self.date.seconds.checked_neg()?;
            self.date.months = self.date.months.checked_neg()?;
        }
        Some(())
    }
}

/// Largest absolute time that is converted to local time, in seconds. It leaves room for the offset of a zone.
const LAST: i64 = 253_402_000_000;

impl Date {
    fn new(now: i64, zone: &Zone) -> Date {
        let local = zone.local(now);
        let west = i64::from(-local.offset / 60) + if zone.is_summer(now) { 60 } else { 0 };
        Date {
            year: local.year.into(),
            month: local.month.into(),
            day: local.day.into(),
            hour: 0,
            minute: 0,
            second: 0,
            half: Half::None,
            west,
            summer: Summer::Local,
            weekday: (0, 0),
            months: 0,
            seconds: 0,
            times: 0,
            zones: 0,
            dates: 0,
            weekdays: 0,
            relatives: 0,
            dated: 0,
        }
    }

    /// Returns the seconds from midnight to the time of the day, or `None` if it is not valid.
    fn seconds_of_day(&self) -> Option<i64> {
        let hours = if self.half == Half::None { 0..=23 } else { 1..=12 };
        if !hours.contains(&self.hour) || !(0..60).contains(&self.minute) || !(0..60).contains(&self.second) {
            return None;
        }
        let hour = match self.half {
            Half::None => self.hour,
            Half::Am => self.hour % 12,
            Half::Pm => self.hour % 12 + 12,
        };
        Some(hour * HOUR + self.minute * MINUTE + self.second)
    }

    /// Returns a time in seconds since the epoch, from a day and the seconds since its start. `None` before 1970, and
    /// for an offset from UTC that leads beyond 64 bits: as in libpcp, an offset may be larger than a day.
    fn seconds(&self, (year, month, day): (i64, i64, i64), of_day: i64, summer: Summer, zone: &Zone) -> Option<i64> {
        let year = match year.checked_abs()? {
            year @ ..69 => year + 2000,
            year @ ..100 => year + 1900,
            year => year,
        };
        let start = utc(year, month, day).filter(|_| year >= 1970)? + of_day;
        let time = start.checked_add(self.west.checked_mul(MINUTE)?)?;
        let is_summer = match summer {
            Summer::Is => true,
            Summer::IsNot => false,
            Summer::Local => zone.is_summer(time),
        };
        time.checked_sub(if is_summer { HOUR } else { 0 })
    }

    /// Returns the time that the items describe.
    fn time(&self, now: i64, zone: &Zone) -> Option<i64> {
        let inside = |time: &i64| (-LAST..LAST).contains(time);
        let mut time = match self.dates + self.times + self.weekdays + self.dated {
            0 if self.relatives > 0 => now,
            0 => {
                let local = zone.local(now);
                let of_day = i64::from(local.hour) * HOUR + i64::from(local.minute) * MINUTE + i64::from(local.second);
                now.checked_sub(of_day)?
            }
            _ => {
                let day = (self.year, self.month, self.day);
                self.seconds(day, self.seconds_of_day()?, self.summer, zone).filter(|time| *time >= 0)?
            }
        };
        time = time.checked_add(self.seconds).filter(inside)?;
        if self.months != 0 {
            let local = zone.local(time);
            let months = self.months.checked_add(i64::from(local.year) * 12 + i64::from(local.month) - 1)?;
            let of_day = i64::from(local.hour) * HOUR + i64::from(local.minute) * MINUTE + i64::from(local.second);
            let day = (months / 12, months % 12 + 1, local.day.into());
            let future = self.seconds(day, of_day, Summer::Local, zone).filter(inside)?;
            time = same_hour(time, future, zone);
        }
        if self.weekdays > 0 && self.dates == 0 {
            let (ordinal, weekday) = self.weekday;
            let days = (weekday - i64::from(zone.local(time).weekday) + 7) % 7;
            let weeks = if ordinal <= 0 { ordinal } else { ordinal - 1 };
            let future = weeks.checked_mul(7 * DAY)?.checked_add(time + days * DAY).filter(inside)?;
            time = same_hour(time, future, zone);
        }
        Some(time).filter(inside)
    }
}

/// Returns the time `future`, corrected by the hour by which the clock is changed between `time` and `future`.
fn same_hour(time: i64, future: i64, zone: &Zone) -> i64 {
    let hour = |time| i64::from((zone.local(time).hour + 1) % 24);
    future + (hour(time) - hour(future)) * HOUR
}

/// Returns the time that a text describes, in seconds since the epoch. Relative times count from `now`. Returns `None`
/// for an invalid text, and for a time before 1970.
pub(crate) fn parse(text: &str, now: i64, zone: &Zone) -> Option<i64> {
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens: tokens.iter().peekable(), date: Date::new(now, zone) };
    while let Some(first) = parser.next() {
        parser.item(first)?;
    }
    let date = parser.date;
    let most = date.times.max(date.zones).max(date.dates).max(date.weekdays).max(date.dated);
    if most > 1 { None } else { date.time(now, zone) }
}
