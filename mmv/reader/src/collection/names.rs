//! Names of metrics.

use std::ffi::OsStr;
use std::str;

use pmapi::names::is_at_or_below;
use pmns::InsertError;

use crate::format::{Flags, MAX_COMPONENTS};
use crate::reader::{File, Metric};

/// Reason for leaving a metric out of the name space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum NameError {
    #[error("must be letters, digits and underscores between single dots")]
    Syntax,
    #[error("is reserved for the agent")]
    Reserved,
    #[error("belongs to a metric of another file")]
    InUse,
    #[error("belongs to another metric of the file")]
    Twice,
    #[error("is an inner node of the name space, or below a metric")]
    Leaf,
    #[error("has over {MAX_COMPONENTS} components")]
    TooMuch,
}

impl From<InsertError> for NameError {
    fn from(e: InsertError) -> NameError {
        match e {
            InsertError::Name(_) => NameError::Syntax,
            InsertError::Pmid { present: Some(_), .. } => NameError::InUse,
            InsertError::Pmid { present: None, .. } | InsertError::BelowMetric { .. } => NameError::Leaf,
        }
    }
}

/// The agent's own metrics, without prefix.
const CONTROL: [&str; 5] = ["control.reload", "control.debug", "control.files", "control.metrics", "control.limits"];

/// Common prefix of the full names of a file's metrics.
#[derive(Debug)]
pub(super) struct Front {
    /// The prefix, including a dot.
    text: String,
    /// Length of the prefix of all files, including a dot.
    prefix: usize,
}

impl Front {
    pub(super) fn new(prefix: &str, name: &OsStr, file: &File) -> Result<Front, NameError> {
        let mut text = format!("{prefix}.");
        if !file.header().flags.contains(Flags::NO_PREFIX) {
            text.extend([name.to_str().ok_or(NameError::Syntax)?, "."]);
        }
        let front = text.strip_suffix('.').unwrap_or_default();
        if !are_components(front.as_bytes()) || !front.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Err(NameError::Syntax);
        }
        Ok(Front { prefix: prefix.len() + 1, text })
    }

    /// Returns the name of a metric without the front.
    ///
    /// # Errors
    /// The reason for leaving the metric out.
    fn own<'n>(&self, name: &'n [u8]) -> Result<&'n str, NameError> {
        self.check(name)?;
        str::from_utf8(name).map_err(|_| NameError::Syntax)
    }

    fn check(&self, name: &[u8]) -> Result<(), NameError> {
        if !are_components(name) {
            return Err(NameError::Syntax);
        }
        // A shorter name has fewer components.
        if name.len() >= 2 * MAX_COMPONENTS && name.split(|byte| *byte == b'.').count() > MAX_COMPONENTS {
            return Err(NameError::TooMuch);
        }
        if is_reserved(self.text.get(self.prefix..).unwrap_or_default(), name) {
            return Err(NameError::Reserved);
        }
        Ok(())
    }

    /// Appends the full name of a metric to a text.
    pub(super) fn append(&self, name: &[u8], text: &mut String) -> Result<(), NameError> {
        let own = self.own(name)?;
        text.extend([&*self.text, own]);
        Ok(())
    }
}

/// Metrics of a file that have a name in the name space.
#[derive(Debug)]
pub(super) struct FullNames {
    front: Result<Front, NameError>,
    /// The metrics to leave out, with the reasons, ascending.
    refused: Vec<(u32, NameError)>,
}

impl FullNames {
    pub(super) fn of(prefix: &str, name: &OsStr, file: &File) -> FullNames {
        let front = Front::new(prefix, name, file);
        let mut refused = Vec::new();
        if let Ok(front) = &front {
            let checked = (0..).zip(file.metrics()).map(|(number, metric)| (number, front.check(file.name(metric))));
            refused.extend(checked.filter_map(|(number, checked)| Some((number, checked.err()?))));
        }
        FullNames { front, refused }
    }

    /// Returns the full name of a metric that has one.
    pub(super) fn full(&self, file: &File, metric: &Metric) -> String {
        let front = self.front.as_ref().map(|front| &*front.text).unwrap_or_default();
        format!("{front}{}", String::from_utf8_lossy(file.name(metric)))
    }

    /// Calls `each` with the index of each metric, and its full name or the reason for leaving it out.
    pub(super) fn each(&self, file: &File, mut each: impl FnMut(u32, &Metric, Result<&str, NameError>)) {
        let mut refused = self.refused.iter().copied().peekable();
        let front = self.front.as_ref().map_err(|e| *e);
        let mut text = front.map(|front| front.text.clone()).unwrap_or_default();
        let len = text.len();
        for (number, metric) in (0..).zip(file.metrics()) {
            let name = match (front, refused.next_if(|(at, _)| *at == number)) {
                (Err(e), _) | (_, Some((_, e))) => Err(e),
                (Ok(_), None) => str::from_utf8(file.name(metric)).map_err(|_| NameError::Syntax).map(|own| {
                    text.truncate(len);
                    text.push_str(own);
                    &*text
                }),
            };
            each(number, metric, name);
        }
    }
}

/// Returns whether a name follows the C agent's rule, and has no empty component.
fn are_components(name: &[u8]) -> bool {
    let is_word = |byte: &u8| WORD.get(usize::from(*byte)) == Some(&true);
    // Most names have no dot.
    if name.iter().all(is_word) {
        return !name.is_empty();
    }
    name.split(|byte| *byte == b'.').all(|part| !part.is_empty() && part.iter().all(is_word))
}

/// The bytes that a component of a name may have.
static WORD: [bool; 256] = {
    let mut word = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        word[byte] = (byte as u8).is_ascii_alphanumeric() || byte as u8 == b'_';
        byte += 1;
    }
    word
};

/// Returns whether a name without prefix, given in two parts, is reserved for the agent's own metrics: the name of one
/// of them, a name below it, or their common node.
fn is_reserved(front: &str, name: &[u8]) -> bool {
    let is_own = |own: &str| own == "control" || CONTROL.iter().any(|control| is_at_or_below(own, control));
    match front {
        "" => name.starts_with(b"control") && str::from_utf8(name).is_ok_and(is_own),
        "control." => is_own(&format!("{front}{}", String::from_utf8_lossy(name))),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syntax() {
        for good in ["mmv.a", "mmv.a.b_9", "mmv.9", "9.a"] {
            assert!(are_components(good.as_bytes()), "{good}");
        }
        for bad in ["", "mmv.client-123.a", "mmv..a", "mmv.a.", ".a", "mmv.a b", "mmv.é"] {
            assert!(!are_components(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn the_agents_own() {
        for own in ["control", "control.files", "control.files.a"] {
            assert!(is_reserved("", own.as_bytes()), "{own}");
        }
        for own in ["files", "files.a"] {
            assert!(is_reserved("control.", own.as_bytes()), "control.{own}");
        }
        for other in ["control.a", "control.files2", "controls", "a.control"] {
            assert!(!is_reserved("", other.as_bytes()), "{other}");
        }
        for (front, other) in
            [("control.", "a"), ("control.", "files2"), ("a.", "control.files"), ("control2.", "files")]
        {
            assert!(!is_reserved(front, other.as_bytes()), "{front}{other}");
        }
    }
}
