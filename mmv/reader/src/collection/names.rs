//! Names of metrics.

use std::ffi::OsStr;
use std::hash::BuildHasher;
use std::str;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use pmapi::Item;
use pmapi::names::is_at_or_below;

use crate::format::{Flags, MAX_COMPONENTS};
use crate::reader::{File, Metric};

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
    /// Whether metrics below some node are not adjacent, because they were added after metrics of other nodes.
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
    pub(super) fn with_capacity(nodes: usize) -> Names {
        Names { nodes: HashTable::with_capacity(nodes), ..Names::default() }
    }

    pub(super) fn item(&self, name: &str) -> Option<Item> {
        self.node(name)?.item
    }

    pub(super) fn text(&self, name: Name) -> &str {
        name.of(&self.text)
    }

    /// Returns whether the metrics below each node were added one after the other.
    pub(super) fn are_in_order(&self) -> bool {
        !self.mixed
    }

    /// Adds a metric. After an error nothing has changed.
    pub(super) fn insert(&mut self, name: &str, item: Item) -> Result<Name, NameError> {
        // Faster than `rsplit_once` for short names.
        let above = name.bytes().rposition(|byte| byte == b'.').and_then(|dot| name.get(..dot)).unwrap_or_default();
        // Most metrics of a file are next to their siblings.
        let (mut new, mut mixed, is_sibling) = (Vec::new(), self.mixed, above == self.above);
        if !is_sibling {
            for (dot, _) in name.rmatch_indices('.') {
                let node = name.get(..dot).unwrap_or_default();
                match self.node(node) {
                    None => new.push(dot),
                    Some(Node { item: Some(_), .. }) => return Err(NameError::Leaf),
                    // All nodes above an inner node are known to be inner nodes.
                    Some(_) => {
                        mixed |= !is_at_or_below(&self.above, node);
                        break;
                    }
                }
            }
        }
        let start = u32::try_from(self.text.len()).map_err(|_| NameError::TooMuch)?;
        // The nodes above have shorter names.
        let whole = u16::try_from(name.len()).map(|len| Name { start, len }).map_err(|_| NameError::TooMuch)?;
        let Names { text, nodes, hasher, .. } = self;
        match nodes.entry(
            hasher.hash_one(name),
            |node| node.name.of(text) == name,
            |node| hasher.hash_one(node.name.of(text)),
        ) {
            Entry::Occupied(found) if found.get().item.is_some() => return Err(NameError::InUse),
            Entry::Occupied(_) => return Err(NameError::Leaf),
            Entry::Vacant(vacant) => _ = vacant.insert(Node { name: whole, item: Some(item) }),
        }
        self.text.push_str(name);
        for dot in new {
            let node = Name { start, len: dot as u16 };
            self.add(self.hasher.hash_one(self.text(node)), Node { name: node, item: None });
        }
        self.mixed = mixed;
        if !is_sibling {
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
