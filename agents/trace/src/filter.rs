//! Filters with which clients of pmcd select event records.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use pmda::Event;
use pmda::limits::{Quota, Refused};
use pmda::prelude::*;
use regex::bytes::{Regex, RegexBuilder};

use crate::fields::Fields;
use crate::limits::Account;
use crate::records::{DURATION, KIND, PROCESS, TAG};

/// Longest text of a filter, in bytes.
const MAX_LEN: usize = 1024;
/// Largest number of conditions of a filter, and of those that are regular expressions.
const MAX_CONDITIONS: usize = 16;
const MAX_PATTERNS: usize = 4;
/// Largest number of bytes of a compiled regular expression (POSIX extended). The time of a match is proportional to it
/// and to the length of the text: about 1 ms at most for the fields of a record.
const PATTERN_SIZE: usize = 48 << 10;
/// Largest number of bytes of the cache of a regular expression during matching. A smaller one makes matches slower.
const CACHE_SIZE: usize = 256 << 10;

/// Filter: a record must meet all conditions.
#[derive(Debug)]
pub(crate) struct Filter {
    conditions: Vec<(Key, Test)>,
    _token: Token,
}

/// Reservation of a filter in the quota of its account, released on drop.
#[derive(Debug)]
pub(crate) struct Token {
    filters: Rc<RefCell<Quota<Account>>>,
    account: Account,
}

impl Token {
    /// Reserves a filter.
    ///
    /// # Errors
    /// The account has no room for another filter.
    pub(crate) fn new(filters: &Rc<RefCell<Quota<Account>>>, account: Account) -> Result<Token, Refused> {
        filters.borrow_mut().try_add(&account, 1)?;
        Ok(Token { filters: Rc::clone(filters), account })
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.filters.borrow_mut().remove(&self.account, 1);
    }
}

/// The part of a record that a condition tests.
#[derive(Debug)]
enum Key {
    Tag,
    Kind,
    Process,
    Longer,
    /// A field by its key. The field may have no metric yet.
    Field(Box<str>),
}

#[derive(Debug)]
enum Test {
    Text(Box<str>),
    Pattern(Regex),
    Number(u64),
    /// Shortest duration, in nanoseconds.
    AtLeast(u64),
}

impl Filter {
    /// Parses conditions separated by semicolons, such as `tag=look up; longer=0.01; user~^a`.
    pub(crate) fn parse(text: &str, token: Token) -> Result<Filter, String> {
        if text.len() > MAX_LEN {
            return Err(format!("filter of {} bytes: at most {MAX_LEN} are allowed", text.len()));
        }
        let conditions = text.split(';').filter(|condition| !condition.trim().is_empty());
        let conditions: Vec<_> = conditions.map(|condition| parse(condition.trim())).collect::<Result<_, _>>()?;
        let patterns = conditions.iter().filter(|(_, test)| matches!(test, Test::Pattern(_))).count();
        if conditions.len() > MAX_CONDITIONS || patterns > MAX_PATTERNS {
            let most = format!("at most {MAX_CONDITIONS} and {MAX_PATTERNS} are allowed");
            return Err(format!("{} conditions and {patterns} regular expressions: {most}", conditions.len()));
        }
        Ok(Filter { conditions, _token: token })
    }

    /// Returns whether a record meets all conditions.
    pub(crate) fn passes(&self, event: &Event, fields: &Fields) -> bool {
        let item = |key: &Key| match key {
            Key::Tag => Some(TAG),
            Key::Kind => Some(KIND),
            Key::Process => Some(PROCESS),
            Key::Longer => Some(DURATION),
            Key::Field(key) => fields.find(key),
        };
        self.conditions.iter().all(|(key, test)| {
            let value = item(key).and_then(|item| event.param(item));
            value.is_some_and(|value| test.passes(&value))
        })
    }
}

fn parse(condition: &str) -> Result<(Key, Test), String> {
    let at =
        condition.find(['=', '~']).filter(|at| *at > 0).ok_or_else(|| format!("{condition}: = or ~ is missing"))?;
    let (key, value) = condition.split_at(at);
    let (is_pattern, value) = (value.starts_with('~'), value.get(1..).unwrap_or_default().trim());
    let key = match key.trim() {
        "tag" => Key::Tag,
        "kind" => Key::Kind,
        "process" => Key::Process,
        "longer" => Key::Longer,
        other => Key::Field(other.into()),
    };
    let test = match key {
        Key::Process => Test::Number(value.parse().map_err(|e| format!("process {value}: {e}"))?),
        Key::Longer => {
            let seconds = value.parse().map_err(|e| format!("longer {value}: {e}"))?;
            let time = Duration::try_from_secs_f64(seconds).map_err(|e| format!("longer {value}: {e}"))?;
            Test::AtLeast(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
        }
        _ if is_pattern => Test::Pattern(pattern(value)?),
        _ => Test::Text(value.into()),
    };
    Ok((key, test))
}

fn pattern(text: &str) -> Result<Regex, String> {
    let mut builder = RegexBuilder::new(&pcp_ere::translate_ascii(text).map_err(|e| format!("{text}: {e}"))?);
    builder.size_limit(PATTERN_SIZE).dfa_size_limit(CACHE_SIZE).nest_limit(50);
    builder.build().map_err(|_| format!("{text}: {}", pcp_ere::TOO_BIG))
}

impl Test {
    fn passes(&self, value: &Atom<'_>) -> bool {
        match (self, value) {
            (Test::Text(text), Atom::String(value)) => text.as_bytes() == *value,
            (Test::Pattern(pattern), Atom::String(value)) => pattern.is_match(value),
            (Test::Number(number), Atom::U32(value)) => *number == u64::from(*value),
            (Test::AtLeast(least), Atom::U64(value)) => least <= value,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, filters: &Rc<RefCell<Quota<Account>>>) -> Result<Filter, String> {
        Filter::parse(text, Token::new(filters, Account::User(1)).unwrap())
    }

    #[test]
    fn conditions() {
        let filters = Rc::new(RefCell::new(crate::limits::quota("filters", 10, 20)));
        let filter = parse("tag=look up; longer=0.01;user~^\\w+$;process=7", &filters).unwrap();
        assert_eq!((filter.conditions.len(), filters.borrow().used()), (4, 1));
        for bad in ["tag", "=x", "process=x", "longer=-1", "tag~("] {
            assert!(parse(bad, &filters).is_err(), "{bad}");
        }
        // Patterns are POSIX extended regular expressions. Other dialects would interpret these differently, or refuse
        // them.
        for (pattern, text, passes) in
            [("^[]a]+$", "]a", true), ("^(?a)", "a", false), ("^\\d$", "d", true), ("^a{,2}$", "aa", true)]
        {
            let filter = parse(&format!("tag~{pattern}"), &filters);
            let matches = filter.is_ok_and(|filter| filter.conditions[0].1.passes(&Atom::String(text.as_bytes())));
            assert_eq!(matches, passes, "{pattern}");
        }
        drop(filter);
        // Filters that were dropped, or that could not be parsed, are released.
        assert_eq!(filters.borrow().used(), 0);
    }

    #[test]
    fn filters_that_would_cost_much() {
        let filters = Rc::new(RefCell::new(crate::limits::quota("filters", 10, 20)));
        for bad in [
            &"tag=x;".repeat(17),
            &format!("tag={}", "x".repeat(1024)),
            "tag~a;tag~b;tag~c;tag~d;tag~e",
            "tag~(((a{100}){100}){100})",
            "tag~.{3000}",
            // A match of one of these took 50 ms.
            "tag~(a|b|ab|ba){400}c",
            "tag~a[ab]{800}c",
            &format!("tag~{}{}", "(".repeat(200), ")".repeat(200)),
        ] {
            assert!(parse(bad, &filters).is_err(), "{bad}");
        }
    }
}
