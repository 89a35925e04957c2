//! Names of metrics.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use pmapi::Item;

use super::source::Source;
use crate::format::Flags;

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
    #[error("is too long, has over {MOST_COMPONENTS} components, or exceeds the room for names")]
    TooMuch,
}

/// Most components of a name in a file. Each one is a node, which is looked up when the name is added.
const MOST_COMPONENTS: usize = 24;

/// The agent's own metrics, without prefix.
const CONTROL: [&str; 5] = ["control.reload", "control.debug", "control.files", "control.metrics", "control.limits"];

/// A builder of full metric names, one at a time, for the metrics of a file.
#[derive(Debug)]
pub(super) struct FullName {
    text: String,
    /// Length of the part that all names of the file have in common.
    front: usize,
    /// Offset of the name without prefix.
    own: usize,
}

impl FullName {
    pub(super) fn new(prefix: &str, source: &Source) -> Result<FullName, NameError> {
        let mut text = format!("{prefix}.");
        if !source.file.header().flags.contains(Flags::NO_PREFIX) {
            text.extend([source.name.to_str().ok_or(NameError::Syntax)?, "."]);
        }
        let front = text.strip_suffix('.').unwrap_or_default();
        if !are_components(front.as_bytes()) || !front.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Err(NameError::Syntax);
        }
        Ok(FullName { front: text.len(), own: prefix.len() + 1, text })
    }

    /// Returns the full name of a metric.
    pub(super) fn of(&mut self, name: &[u8]) -> Result<&str, NameError> {
        let name = str::from_utf8(name).ok().filter(|name| are_components(name.as_bytes())).ok_or(NameError::Syntax)?;
        // A shorter name has fewer components.
        if name.len() >= 2 * MOST_COMPONENTS && name.split('.').count() > MOST_COMPONENTS {
            return Err(NameError::TooMuch);
        }
        self.text.truncate(self.front);
        self.text.push_str(name);
        let own = self.text.get(self.own..).filter(|own| own.starts_with("control"));
        if own.is_some_and(is_reserved) { Err(NameError::Reserved) } else { Ok(&self.text) }
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

/// Returns whether a name without prefix is one of the agent's own, below one, or their common node.
fn is_reserved(own: &str) -> bool {
    own == "control" || CONTROL.iter().any(|control| is_at_or_below(own, control))
}

fn is_at_or_below(name: &str, node: &str) -> bool {
    name.strip_prefix(node).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
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
    above: Name,
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
        let above = name.rfind('.').unwrap_or(0);
        // Most metrics of a file are next to their siblings.
        let (mut new, mut mixed) = (Vec::new(), self.mixed);
        if name.get(..above) != Some(self.text(self.above)) {
            for (dot, _) in name.rmatch_indices('.') {
                let node = name.get(..dot).unwrap_or_default();
                match self.node(node) {
                    None => new.push(dot),
                    Some(Node { item: Some(_), .. }) => return Err(NameError::Leaf),
                    // All nodes above an inner node are inner nodes.
                    Some(_) => {
                        mixed |= !is_at_or_below(self.text(self.above), node);
                        break;
                    }
                }
            }
        }
        let start = u32::try_from(self.text.len()).map_err(|_| NameError::TooMuch)?;
        let part = |len| u16::try_from(len).map(|len| Name { start, len }).map_err(|_| NameError::TooMuch);
        let (whole, above) = (part(name.len())?, part(above)?);
        self.text.push_str(name);
        for len in new {
            let node = part(len)?;
            self.add(self.hasher.hash_one(self.text(node)), Node { name: node, item: None });
        }
        self.add(hash, Node { name: whole, item: Some(item) });
        (self.above, self.mixed) = (above, mixed);
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
            assert!(is_reserved(own), "{own}");
        }
        for other in ["control.a", "control.files2", "controls", "a.control"] {
            assert!(!is_reserved(other), "{other}");
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
