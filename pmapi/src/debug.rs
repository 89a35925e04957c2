//! Debug options: the argument of `-D` (pmSetDebug(3), pmdbg(1)).

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Names of all options, in the order of pmdbg(1).
pub const OPTIONS: [&str; 53] = [
    "pdu",
    "fetch",
    "profile",
    "value",
    "context",
    "indom",
    "pdubuf",
    "log",
    "logmeta",
    "optfetch",
    "af",
    "appl0",
    "appl1",
    "appl2",
    "pmns",
    "libpmda",
    "timecontrol",
    "pmc",
    "derive",
    "lock",
    "interp",
    "config",
    "pmapi",
    "fault",
    "auth",
    "discovery",
    "attr",
    "http",
    "desperate",
    "deprecated",
    "exec",
    "labels",
    "series",
    "libweb",
    "alloc",
    "services",
    "appl3",
    "appl4",
    "appl5",
    "access",
    "qa",
    "search",
    "query",
    "compress",
    "dev0",
    "dev1",
    "dev2",
    "pmlc",
    "appl6",
    "appl7",
    "appl8",
    "appl9",
    "tls",
];

/// Number of options that a bit of a number stands for: the first ones of [`OPTIONS`], each with the bit of its index.
/// Besides these, only `desperate` has a bit.
const WITH_BITS: usize = 28;

/// Returns the bit of an option in a number (`DBG_TRACE_*`), if it has one.
fn bit(at: usize) -> i32 {
    match OPTIONS[at] {
        _ if at < WITH_BITS => 1 << at,
        "desperate" => 1 << 30,
        _ => 0,
    }
}

/// Set of debug options.
///
/// Parsed from words separated by commas: names in upper or lower case, `all`, or a number whose bits stand for the
/// older options, -1 for all of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Debug(u64);

/// Argument of `-D` with a word that is not a name, `all` or a number.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("unrecognized debug options specification ({0})")]
pub struct UnknownOption(String);

impl Debug {
    /// Empty set.
    pub const NONE: Debug = Debug(0);
    /// Set of all options.
    pub const ALL: Debug = Debug((1 << OPTIONS.len()) - 1);

    /// Returns whether the option `name` is set.
    pub fn has(self, name: &str) -> bool {
        self.names().any(|known| known == name)
    }

    /// Returns whether no option is set.
    pub fn is_empty(self) -> bool {
        self == Debug::NONE
    }

    /// Returns the names of the options that are set, in the order of [`OPTIONS`].
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        OPTIONS.into_iter().enumerate().filter(move |(at, _)| self.0 >> at & 1 != 0).map(|(_, name)| name)
    }

    /// Adds the options of `other` (pmSetDebug(3)).
    pub fn set(&mut self, other: Debug) {
        self.0 |= other.0;
    }

    /// Removes the options of `other` (pmClearDebug(3)).
    pub fn clear(&mut self, other: Debug) {
        self.0 &= !other.0;
    }

    /// Returns the options whose bits are set in a number.
    fn of_bits(bits: i32) -> Debug {
        let bits = if bits == -1 { i32::MAX } else { bits };
        Debug((0..OPTIONS.len()).filter(|at| bits & bit(*at) != 0).map(|at| 1 << at).sum())
    }

    fn of_word(word: &str) -> Option<Debug> {
        if word.eq_ignore_ascii_case("all") {
            return Some(Debug::ALL);
        }
        match OPTIONS.iter().position(|name| name.eq_ignore_ascii_case(word)) {
            Some(at) => Some(Debug(1 << at)),
            // As in C, the lower 32 bits count.
            None => word.trim_start().parse::<i64>().ok().map(|bits| Debug::of_bits(bits as i32)),
        }
    }
}

/// Names separated by commas, in the order of [`OPTIONS`] (pmGetDebug(3)).
impl fmt::Display for Debug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(","))
    }
}

impl FromStr for Debug {
    type Err = UnknownOption;

    fn from_str(spec: &str) -> Result<Self, Self::Err> {
        let mut set = Debug::NONE;
        let words = spec.strip_suffix(',').unwrap_or(spec);
        for word in words.split(',').filter(|_| !spec.is_empty()) {
            set.set(Debug::of_word(word).ok_or_else(|| UnknownOption(spec.to_owned()))?);
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_bits() {
        let names = |spec: &str| spec.parse::<Debug>().map(|debug| debug.to_string()).map_err(|e| e.to_string());
        for (spec, wanted) in [
            ("PDU,libpmda", "pdu,libpmda"),
            ("pdu,", "pdu"),
            ("", ""),
            ("0", ""),
            ("5", "pdu,profile"),
            ("1,fetch,+4", "pdu,fetch,profile"),
            ("fetch,pdu,fetch", "pdu,fetch"),
            ("1073741824", "desperate"),
            ("268435456", ""),
            ("4294967297", "pdu"),
        ] {
            assert_eq!(names(spec), Ok(wanted.to_owned()), "{spec}");
        }
        assert_eq!("ALL".parse(), Ok(Debug::ALL));
        assert_eq!(Debug::ALL.names().collect::<Vec<_>>(), OPTIONS);
        let older: Debug = "-1".parse().unwrap();
        assert_eq!(older.names().collect::<Vec<_>>(), OPTIONS[..29]);
        for wrong in ["pdu,,", ",", ",pdu", "fetch,nonsense", "0x1", "1x", " "] {
            assert_eq!(names(wrong), Err(format!("unrecognized debug options specification ({wrong})")));
        }
    }

    #[test]
    fn set_and_clear() {
        let mut debug = Debug::NONE;
        debug.set("pdu,fetch".parse().unwrap());
        debug.clear("fetch,indom".parse().unwrap());
        assert!(debug.has("pdu") && !debug.has("fetch"));
        debug.clear(Debug::ALL);
        assert!(debug.is_empty());
    }
}
