//! Selection of an operand's instances.

use regex::bytes::Regex;

use super::ere;

/// Selection by `[instance]` or by the pattern of `matchinst`.
#[derive(Clone, Debug)]
pub(crate) enum Filter {
    Instance(Box<str>),
    Pattern { regex: Regex, invert: bool },
}

impl Filter {
    pub(crate) fn instance(name: String) -> Filter {
        Filter::Instance(name.into())
    }

    /// Compiles a pattern. The error is a text of regerror(3).
    pub(crate) fn pattern(pattern: &str, invert: bool) -> Result<Filter, &'static str> {
        Ok(Filter::Pattern { regex: ere::compile(pattern)?, invert })
    }
}
