//! Names of metrics.

use std::ffi::OsStr;
use std::hash::BuildHasher;
use std::str;

use hashbrown::{DefaultHashBuilder, HashTable};
use pmapi::Item;
use pmapi::names::is_at_or_below;

use crate::format::{Flags, MAX_COMPONENTS};
use crate::reader::File;

/// Reason for leaving a metric out of the name space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum NameError {
    #[error("must be letters, digits and underscores between single dots")]
    Syntax,
    #[error("is reserved for the agent")]
    Reserved,
    #[error("belongs to another metric")]
    InUse,
    #[error("is an inner node of the name space, or below a metric")]
    Leaf,
    #[error("is too long, has over {MAX_COMPONENTS} components, or exceeds the room for names")]
    TooMuch,
}

/// The agent's own metrics, without prefix.
const CONTROL: [&str; 5] = ["control.reload", "control.debug", "control.files", "control.metrics", "control.limits"];

/// What the full names of a file's metrics have in common.
#[derive(Debug)]
pub(super) struct Front {
    /// The front of each name, including a dot.
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

    /// Appends the full name of a metric to a text.
    pub(super) fn append(&self, name: &[u8], text: &mut String) -> Result<(), NameError> {
        let name = str::from_utf8(name).ok().filter(|name| are_components(name.as_bytes())).ok_or(NameError::Syntax)?;
        // A shorter name has fewer components.
        if name.len() >= 2 * MAX_COMPONENTS && name.split('.').count() > MAX_COMPONENTS {
            return Err(NameError::TooMuch);
        }
        if is_reserved(self.text.get(self.prefix..).unwrap_or_default(), name) {
            return Err(NameError::Reserved);
        }
        text.push_str(&self.text);
        text.push_str(name);
        Ok(())
    }
}

/// The full names of a file's metrics.
#[derive(Debug, Default)]
pub(super) struct FullNames {
    text: String,
    /// The end of each name, or the reason for leaving the metric out.
    ends: Vec<Result<u32, NameError>>,
}

impl FullNames {
    pub(super) fn of(prefix: &str, name: &OsStr, file: &File) -> FullNames {
        let front = Front::new(prefix, name, file);
        let mut text = String::new();
        let ends = file.metrics().iter().map(|metric| {
            front.as_ref().map_err(|e| *e)?.append(file.name(metric), &mut text)?;
            u32::try_from(text.len()).map_err(|_| NameError::TooMuch)
        });
        let ends = ends.collect();
        text.shrink_to_fit();
        FullNames { text, ends }
    }

    /// Returns the names, in the order of the metrics.
    pub(super) fn iter(&self) -> impl Iterator<Item = Result<&str, NameError>> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let end = (*end)? as usize;
            self.text.get(std::mem::replace(&mut start, end)..end).ok_or(NameError::TooMuch)
        })
    }
}

/// Returns whether a name follows the C agent's rule, and has no empty component.
fn are_components(name: &[u8]) -> bool {
    let mut before = b'.';
    let mut good = |b: &u8| match std::mem::replace(&mut before, *b) {
        b'.' if *b == b'.' => false,
        _ => b.is_ascii_alphanumeric() || *b == b'_' || *b == b'.',
    };
    name.iter().all(&mut good) && before != b'.'
}

/// Returns whether a name without prefix, given in two parts, is one of the agent's own, below one, or their common
/// node.
fn is_reserved(front: &str, name: &str) -> bool {
    let is_own = |own: &str| own == "control" || CONTROL.iter().any(|control| is_at_or_below(own, control));
    match front {
        "" => name.starts_with("control") && is_own(name),
        "control." => is_own(&format!("{front}{name}")),
        _ => false,
    }
}

/// Returns the first component of a name without prefix.
pub(super) fn head(own: &str) -> &str {
    own.split_once('.').map_or(own, |(head, _)| head)
}

/// Names of a group's metrics. The texts of all names are in one allocation.
#[derive(Debug, Default)]
pub(super) struct Names {
    text: String,
    /// The metrics, and the inner nodes above them.
    nodes: HashTable<Node>,
    hasher: DefaultHashBuilder,
    /// The parent of the last metric.
    above: String,
    /// Whether a node has got a metric after another node did, so the metrics below it are not adjacent.
    mixed: bool,
}

/// Position of a name in the text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Name {
    start: u32,
    len: u16,
}

impl Name {
    fn of(self, text: &str) -> &str {
        let start = self.start as usize;
        text.get(start..start + usize::from(self.len)).unwrap_or_default()
    }
}

#[derive(Debug)]
struct Node {
    name: Name,
    /// The metric, or `None` for an inner node.
    item: Option<Item>,
}

impl Names {
    pub(super) fn with_capacity(metrics: usize) -> Names {
        Names { nodes: HashTable::with_capacity(metrics), ..Names::default() }
    }

    pub(super) fn item(&self, name: &str) -> Option<Item> {
        self.node(name)?.item
    }

    pub(super) fn text(&self, name: Name) -> &str {
        name.of(&self.text)
    }

    /// Returns whether the metrics below any node were added consecutively.
    pub(super) fn are_in_order(&self) -> bool {
        !self.mixed
    }

    /// Adds a metric. After an error nothing has changed.
    pub(super) fn insert(&mut self, name: &str, item: Item) -> Result<Name, NameError> {
        let hash = self.hasher.hash_one(name);
        match self.find(hash, name) {
            Some(Node { item: Some(_), .. }) => return Err(NameError::InUse),
            Some(_) => return Err(NameError::Leaf),
            None => {}
        }
        // Faster than `rsplit_once` for short names.
        let above = name.bytes().rposition(|byte| byte == b'.').and_then(|dot| name.get(..dot)).unwrap_or_default();
        // Most metrics of a file are next to their siblings.
        let (mut new, mut mixed) = (Vec::new(), self.mixed);
        if above != self.above {
            for (dot, _) in name.rmatch_indices('.') {
                let node = name.get(..dot).unwrap_or_default();
                match self.node(node) {
                    None => new.push(dot),
                    Some(Node { item: Some(_), .. }) => return Err(NameError::Leaf),
                    // All nodes above an inner node are inner nodes.
                    Some(_) => {
                        mixed |= !is_at_or_below(&self.above, node);
                        break;
                    }
                }
            }
        }
        let start = u32::try_from(self.text.len()).map_err(|_| NameError::TooMuch)?;
        let part = |len| u16::try_from(len).map(|len| Name { start, len }).map_err(|_| NameError::TooMuch);
        let whole = part(name.len())?;
        self.text.push_str(name);
        for len in new {
            let node = part(len)?;
            self.add(self.hasher.hash_one(self.text(node)), Node { name: node, item: None });
        }
        self.add(hash, Node { name: whole, item: Some(item) });
        self.mixed = mixed;
        if above != self.above {
            self.above.clear();
            self.above.push_str(above);
        }
        Ok(whole)
    }

    fn node(&self, name: &str) -> Option<&Node> {
        self.find(self.hasher.hash_one(name), name)
    }

    fn find(&self, hash: u64, name: &str) -> Option<&Node> {
        self.nodes.find(hash, |node| self.text(node.name) == name)
    }

    fn add(&mut self, hash: u64, node: Node) {
        let Names { text, nodes, hasher, .. } = self;
        nodes.insert_unique(hash, node, |node| hasher.hash_one(node.name.of(text)));
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
            assert!(is_reserved("", own), "{own}");
        }
        for own in ["files", "files.a"] {
            assert!(is_reserved("control.", own), "control.{own}");
        }
        for other in ["control.a", "control.files2", "controls", "a.control"] {
            assert!(!is_reserved("", other), "{other}");
        }
        for (front, other) in
            [("control.", "a"), ("control.", "files2"), ("a.", "control.files"), ("control2.", "files")]
        {
            assert!(!is_reserved(front, other), "{front}{other}");
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
            // The failed insertion has left no node.
            ("mmv.c.d", Err(NameError::Leaf)),
            ("mmv.a.c", Ok(())),
            ("mmv.a.bc", Ok(())),
            ("mmv.d.e.f", Ok(())),
            ("mmv.d", Err(NameError::Leaf)),
            ("mmv.d.e.f.g", Err(NameError::Leaf)),
        ] {
            let added = names.insert(name, Item::new(1, 1));
            assert_eq!(added.map(|_| ()), outcome, "{name}");
            assert!(added.is_err() || names.text(added.unwrap()) == name);
        }
        assert_eq!(names.item("mmv.d.e.f"), Some(Item::new(1, 1)));
        assert_eq!(names.item("mmv.d"), None);
    }

    #[test]
    fn order() {
        for (list, expected) in [
            (&["m.a.b", "m.a.c", "m.b", "m.c.d.e"][..], true),
            (&["m.a.b", "m.b", "m.a.c"], false),
            (&["m.a.b.c", "m.a.d"], true),
            (&["m.a.b.c", "m.a.d", "m.a.b.e"], false),
        ] {
            let mut names = Names::default();
            list.iter().for_each(|name| _ = names.insert(name, Item::new(1, 1)).unwrap());
            assert_eq!(names.are_in_order(), expected, "{list:?}");
        }
    }
}
