//! Which instances of an operand are wanted.

use regex::bytes::Regex;

use super::ere;

/// `[instance]` or the pattern of `matchinst`.
#[derive(Clone, Debug)]
pub(crate) enum Filter {
    Instance(Box<str>),
    Pattern { regex: Regex, invert: bool },
}

impl Filter {
    pub(crate) fn instance(name: String) -> Filter {
        Filter::Instance(name.into())
    }

    /// The reason is regerror(3)'s text.
    pub(crate) fn pattern(pattern: &str, invert: bool) -> Result<Filter, &'static str> {
        Ok(Filter::Pattern { regex: ere::compile(pattern)?, invert })
    }
}
