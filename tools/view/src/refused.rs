//! Metadata of an agent that the archive of a recording refuses.

use std::collections::HashSet;
use std::fmt::Display;

use pcp_archive::ArchiveError;
use pcp_pdu::metadata::{Subject, TextKind};
use pmapi::{InDom, LabelLevel, PmId};

/// Largest number of warnings about one agent or host.
const MOST_WARNINGS: usize = 10;

/// Largest number of characters of a warning that are kept at its start, and also at its end. A name may have 64 KiB.
const KEPT: usize = 250;

/// Subject that the archive has refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Refused {
    Metric(PmId),
    Text(Subject, TextKind),
    Instances(InDom),
    Labels(LabelLevel, u32),
    Mark,
    Sample,
}

impl Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::Metric(pmid) => write!(f, "metric {pmid}"),
            Refused::Text(Subject::Metric(pmid), _) => write!(f, "a help text of metric {pmid}"),
            Refused::Text(Subject::InDom(indom), _) => write!(f, "a help text of instance domain {indom}"),
            Refused::Instances(indom) => write!(f, "a change of instance domain {indom}"),
            Refused::Labels(level, ident) => write!(f, "labels of level {level:?} and identifier {ident}"),
            Refused::Mark => write!(f, "a mark"),
            Refused::Sample => write!(f, "a sample"),
        }
    }
}

/// Refusals of one agent or host. Each subject has one warning.
#[derive(Debug)]
pub(crate) struct Refusals {
    agent: String,
    /// Subjects of the warnings.
    subjects: HashSet<Refused>,
    /// Warnings that have not been printed.
    pending: Vec<String>,
    has_said_last: bool,
}

impl Refusals {
    /// Creates an empty list for an agent or host of this name.
    pub(crate) fn new(agent: &str) -> Refusals {
        Refusals { agent: agent.to_owned(), subjects: HashSet::new(), pending: Vec::new(), has_said_last: false }
    }

    /// Returns whether the archive has accepted a subject. A refusal adds a warning.
    ///
    /// # Errors
    /// An error that is not a refusal, such as a failed write.
    pub(crate) fn check(&mut self, subject: Refused, written: Result<(), ArchiveError>) -> Result<bool, ArchiveError> {
        match written {
            Ok(()) => Ok(true),
            Err(e) if e.is_refusal() => {
                self.warn(subject, &e);
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }

    fn warn(&mut self, subject: Refused, reason: &ArchiveError) {
        if self.has_said_last || self.subjects.contains(&subject) {
            return;
        }
        let agent = &self.agent;
        if self.subjects.len() == MOST_WARNINGS {
            self.has_said_last = true;
            self.pending.push(format!("{agent}: the recording leaves out more, without further warnings"));
            return;
        }
        self.subjects.insert(subject);
        self.pending.push(abridged(&format!("{agent}: the recording leaves out {subject}: {reason}")));
    }

    /// Returns the warnings since the last call.
    pub(crate) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.pending)
    }
}

/// Removes the middle of a long text.
fn abridged(text: &str) -> String {
    let (start, end) = (text.char_indices().nth(KEPT), text.char_indices().nth_back(KEPT - 1));
    match (start, end) {
        (Some((start, _)), Some((end, _))) if start < end => format!("{} ... {}", &text[..start], &text[end..]),
        _ => text.to_owned(),
    }
}
