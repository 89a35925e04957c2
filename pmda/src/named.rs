//! Metrics in log lines and errors: a name with its PMID.

use std::fmt;

use pmapi::PmId;

/// A metric for the log: its name with the PMID in parentheses, or only the PMID if it has no name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    pmid: PmId,
    name: Option<String>,
}

impl Named {
    pub(crate) fn new(pmid: PmId, name: Option<String>) -> Named {
        Named { pmid, name }
    }

    /// Returns the name.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} ({})", self.pmid),
            None => write!(f, "metric {}", self.pmid),
        }
    }
}
