//! Debug options: the argument of `-D` (pmSetDebug(3), pmdbg(1)).

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Names of all options, in the order of their bits.
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

/// Set of debug options.
///
/// Parsed from words separated by commas: names in upper or lower case, `all`, or a number whose bits stand for the
/// first 32 options.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Debug(Vec<&'static str>);

/// Argument of `-D` with a word that is no name, `all` or number.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("unrecognized debug options specification ({0})")]
pub struct UnknownOption(String);

impl Debug {
    /// Empty set.
    pub const NONE: Debug = Debug(Vec::new());

    /// Returns whether the option `name` is set.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains(&name)
    }

    /// Returns whether no option is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names of the options that are set, in the order given; a name given twice occurs twice.
    pub fn names(&self) -> &[&'static str] {
        &self.0
    }

    /// Adds the options of `other`.
    pub fn merge(&mut self, other: Debug) {
        self.0.extend(other.0);
    }
}

/// Names separated by commas, in the order of their bits (pmGetDebug(3)).
impl fmt::Display for Debug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = OPTIONS.into_iter().filter(|name| self.has(name)).collect();
        f.write_str(&names.join(","))
    }
}

impl FromStr for Debug {
    type Err = UnknownOption;

    fn from_str(spec: &str) -> Result<Self, Self::Err> {
        let mut set = Vec::new();
        let words = spec.strip_suffix(',').unwrap_or(spec);
        for word in words.split(',').filter(|_| !spec.is_empty()) {
            if let Some(name) = OPTIONS.iter().find(|name| name.eq_ignore_ascii_case(word)) {
                set.push(*name);
            } else if word.eq_ignore_ascii_case("all") {
                set.extend(OPTIONS);
            } else if let Ok(bits) = word.parse::<i64>() {
                set.extend((0..32).zip(OPTIONS).filter(|(bit, _)| bits >> bit & 1 != 0).map(|(_, name)| name));
            } else {
                return Err(UnknownOption(spec.to_owned()));
            }
        }
        Ok(Debug(set))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_bits() {
        let names = |spec: &str| spec.parse::<Debug>().map(|debug| debug.0).map_err(|e| e.to_string());
        assert_eq!(names("PDU,libpmda"), Ok(vec!["pdu", "libpmda"]));
        assert_eq!(names("pdu,"), Ok(vec!["pdu"]));
        assert_eq!(names("ALL"), Ok(OPTIONS.to_vec()));
        assert_eq!(names(""), Ok(vec![]));
        assert_eq!(names("0"), Ok(vec![]));
        assert_eq!(names("5"), Ok(vec!["pdu", "profile"]));
        assert_eq!(names("1,fetch,+4"), Ok(vec!["pdu", "fetch", "profile"]));
        assert_eq!("fetch,pdu,fetch".parse::<Debug>().unwrap().to_string(), "pdu,fetch");
        assert_eq!(Debug::NONE.to_string(), "");
        assert_eq!(names("-1"), Ok(OPTIONS[..32].to_vec()));
        assert_eq!(names("3000000000").map(|names| names.len()), Ok(12));
        for wrong in ["pdu,,", ",", ",pdu", "fetch,nonsense", "0x1", "1x", " "] {
            assert_eq!(names(wrong), Err(format!("unrecognized debug options specification ({wrong})")));
        }
    }
}
