//! Names of metrics.

use std::collections::BTreeMap;

use pmapi::Item;

use super::source::Source;
use crate::format::Flags;

/// Why a metric has no place in the name space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum NameError {
    #[error("not a letter and then letters, digits, underscores and single dots")]
    Syntax,
    #[error("is the agent's own")]
    Reserved,
    #[error("is another metric's")]
    InUse,
    #[error("is a node of the name space, or below a metric")]
    Leaf,
}

/// The agent's own metrics.
const CONTROL: [&str; 4] = ["control.reload", "control.debug", "control.files", "control.metrics"];

/// The full name of a metric.
pub(super) fn full_name(prefix: &str, source: &Source, name: &[u8]) -> Result<String, NameError> {
    let name = str::from_utf8(name).map_err(|_| NameError::Syntax)?;
    let full = if source.file.header().flags.contains(Flags::NO_PREFIX) {
        format!("{prefix}.{name}")
    } else {
        format!("{prefix}.{}.{name}", source.name.to_str().ok_or(NameError::Syntax)?)
    };
    check(&full)?;
    let own = full.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('.'));
    if own.is_some_and(|own| CONTROL.contains(&own)) { Err(NameError::Reserved) } else { Ok(full) }
}

/// The C agent's rule, and that no component is empty.
fn check(name: &str) -> Result<(), NameError> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'.';
    let syntax = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(good)
        && name.split('.').all(|component| !component.is_empty());
    if syntax { Ok(()) } else { Err(NameError::Syntax) }
}

/// Sees that a name can be added to the others.
pub(super) fn check_place(names: &BTreeMap<String, Item>, name: &str) -> Result<(), NameError> {
    if names.contains_key(name) {
        return Err(NameError::InUse);
    }
    let mut ancestors = name.match_indices('.').filter_map(|(dot, _)| name.get(..dot));
    if ancestors.any(|ancestor| names.contains_key(ancestor)) {
        return Err(NameError::Leaf);
    }
    let below = format!("{name}.");
    match names.range(below.clone()..).next() {
        Some((next, _)) if next.starts_with(&below) => Err(NameError::Leaf),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syntax() {
        for good in ["mmv.a", "mmv.a.b_9", "mmv.9"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in ["", "9.a", "mmv.client-123.a", "mmv..a", "mmv.a.", "mmv.a b", "mmv.é"] {
            assert_eq!(check(bad), Err(NameError::Syntax), "{bad}");
        }
    }

    #[test]
    fn places() {
        let names: BTreeMap<String, Item> = ["mmv.a.b", "mmv.c"].map(|n| (n.to_owned(), Item::new(1, 1))).into();
        assert_eq!(check_place(&names, "mmv.a.c"), Ok(()));
        assert_eq!(check_place(&names, "mmv.a.bc"), Ok(()));
        assert_eq!(check_place(&names, "mmv.a.b"), Err(NameError::InUse));
        assert_eq!(check_place(&names, "mmv.a"), Err(NameError::Leaf));
        assert_eq!(check_place(&names, "mmv.c.d"), Err(NameError::Leaf));
    }
}
