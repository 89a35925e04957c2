//! Selection of an operand's instances.

use regex::bytes::{Regex, RegexBuilder};

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
        let mut builder = RegexBuilder::new(&pcp_ere::translate(pattern).map_err(|e| e.0)?);
        let regex = builder.size_limit(1 << 22).dfa_size_limit(1 << 20).build().map_err(|_| pcp_ere::TOO_BIG)?;
        Ok(Filter::Pattern { regex, invert })
    }
}
