//! Names of metrics.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
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

/// Puts the full name of a metric into `full`.
pub(super) fn full_name(prefix: &str, source: &Source, name: &[u8], full: &mut String) -> Result<(), NameError> {
    let name = str::from_utf8(name).map_err(|_| NameError::Syntax)?;
    full.clear();
    full.extend([prefix, "."]);
    if !source.file.header().flags.contains(Flags::NO_PREFIX) {
        full.extend([source.name.to_str().ok_or(NameError::Syntax)?, "."]);
    }
    full.push_str(name);
    check(full)?;
    let own = full.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('.'));
    if own.is_some_and(|own| CONTROL.contains(&own)) { Err(NameError::Reserved) } else { Ok(()) }
}

/// The C agent's rule, and that no component is empty.
fn check(name: &str) -> Result<(), NameError> {
    let mut before = b'.';
    let mut good = |b: u8| match std::mem::replace(&mut before, b) {
        b'.' if b == b'.' => false,
        _ => b.is_ascii_alphanumeric() || b == b'_' || b == b'.',
    };
    let syntax = name.bytes().all(&mut good) && before != b'.' && name.starts_with(|c: char| c.is_ascii_alphabetic());
    if syntax { Ok(()) } else { Err(NameError::Syntax) }
}

/// The name space.
#[derive(Debug, Default)]
pub(super) struct Names {
    metrics: HashMap<Arc<str>, Item>,
    /// The names of all nodes that metrics are below.
    inner: HashSet<Box<str>>,
}

impl Names {
    pub(super) fn with_capacity(metrics: usize) -> Names {
        Names { metrics: HashMap::with_capacity(metrics), inner: HashSet::new() }
    }

    pub(super) fn item(&self, name: &str) -> Option<Item> {
        self.metrics.get(name).copied()
    }

    /// Adds a metric. Nothing has changed after an error.
    pub(super) fn insert(&mut self, name: &str, item: Item) -> Result<Arc<str>, NameError> {
        if self.metrics.contains_key(name) {
            return Err(NameError::InUse);
        }
        if self.inner.contains(name) {
            return Err(NameError::Leaf);
        }
        // What is above an inner node is inner already.
        let ancestors = name.rmatch_indices('.').filter_map(|(dot, _)| name.get(..dot));
        let new = ancestors.take_while(|ancestor| !self.inner.contains(*ancestor));
        let new: Vec<&str> = new.collect();
        if new.iter().any(|ancestor| self.metrics.contains_key(*ancestor)) {
            return Err(NameError::Leaf);
        }
        self.inner.extend(new.into_iter().map(Box::from));
        let name = Arc::from(name);
        self.metrics.insert(Arc::clone(&name), item);
        Ok(name)
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
        let mut names = Names::default();
        for (name, outcome) in [
            ("mmv.a.b", Ok(())),
            ("mmv.c", Ok(())),
            ("mmv.a.b", Err(NameError::InUse)),
            ("mmv.a", Err(NameError::Leaf)),
            ("mmv.c.d", Err(NameError::Leaf)),
            ("mmv.c.d.e", Err(NameError::Leaf)),
            // What was refused has left no node.
            ("mmv.c.d", Err(NameError::Leaf)),
            ("mmv.a.c", Ok(())),
            ("mmv.a.bc", Ok(())),
            ("mmv.d.e.f", Ok(())),
            ("mmv.d", Err(NameError::Leaf)),
        ] {
            assert_eq!(names.insert(name, Item::new(1, 1)).map(|_| ()), outcome, "{name}");
        }
        assert_eq!(names.item("mmv.d.e.f"), Some(Item::new(1, 1)));
        assert_eq!(names.item("mmv.d"), None);
    }
}
