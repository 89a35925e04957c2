//! Names of metrics.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;

use hashbrown::HashTable;
use pmapi::{Error, PmId, Result};

/// Name space of an archive: a tree whose leaves are metrics.
#[derive(Clone, Debug)]
pub struct Names {
    /// Nodes; the first is the root.
    nodes: Vec<Node>,
    /// Nodes by parent and component of the name.
    children: HashTable<u32>,
    hasher: RandomState,
    /// Components of names, to which the nodes point.
    parts: Vec<u8>,
    /// Names of each metric, in the order of metrics.
    by_pmid: Vec<Named>,
    /// Full names, to which `by_pmid` points.
    full: Vec<u8>,
    /// Estimated memory of the nodes, in bytes.
    cost: usize,
    /// Name that was added last, and its nodes. Names often begin as the one before.
    last: Vec<u8>,
    path: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    parent: u32,
    /// Neighbours among the children of the parent; the root for none.
    older: u32,
    newer: u32,
    /// First and last child; the root for none.
    oldest: u32,
    newest: u32,
    pmid: Option<PmId>,
    name: Text,
    /// Hash of the parent and the component.
    hash: u64,
}

/// Place of a text.
#[derive(Clone, Copy, Debug, Default)]
struct Text {
    start: usize,
    len: usize,
}

impl Text {
    /// Appends a text to others, and returns its place.
    fn push(text: &[u8], to: &mut Vec<u8>) -> Text {
        let start = to.len();
        to.extend_from_slice(text);
        Text { start, len: text.len() }
    }

    fn of(self, texts: &[u8]) -> &[u8] {
        texts.get(self.start..self.start + self.len).unwrap_or_default()
    }
}

/// Name of a metric.
#[derive(Clone, Copy, Debug)]
struct Named {
    pmid: PmId,
    name: Text,
}

impl Default for Names {
    fn default() -> Names {
        Names {
            nodes: vec![Node::default()],
            children: HashTable::new(),
            hasher: RandomState::new(),
            parts: Vec::new(),
            by_pmid: Vec::new(),
            full: Vec::new(),
            cost: 0,
            last: Vec::new(),
            path: Vec::new(),
        }
    }
}

/// Largest number of components of a name. Deeper names are not stored.
const DEPTH: usize = 256;

/// Approximate memory of a node without its name, in bytes: the node, its entry in the table, and the space into which
/// both may grow.
const NODE: usize = 160;

impl Names {
    /// Adds the name of a metric. Ignores a name that another metric or an inner node already has. Returns whether all
    /// names together need at most `limit` bytes of memory. Short components need far more memory than their length.
    #[must_use]
    pub(super) fn add(&mut self, name: &[u8], pmid: Option<PmId>, limit: usize) -> bool {
        if name.split(|b| *b == b'.').count() > DEPTH {
            return true;
        }
        let parts = || name.split(|b| *b == b'.');
        let same = parts().zip(self.last.split(|b| *b == b'.')).take_while(|(new, last)| new == last).count();
        self.path.truncate(same);
        let known = self.path.len();
        let (mut at, mut is_new) = (self.path.last().copied().unwrap_or(0), false);
        for part in parts().skip(known) {
            (at, is_new) = self.child(at, part);
            self.path.push(at);
        }
        self.last.clear();
        self.last.extend_from_slice(name);
        if let Some(node) = self.nodes.get_mut(at as usize).filter(|_| is_new) {
            node.pmid = pmid;
        }
        self.cost <= limit
    }

    /// Returns the child of a node with a component of a name, and whether it is new.
    fn child(&mut self, parent: u32, part: &[u8]) -> (u32, bool) {
        let hash = self.hash(parent, part);
        if let Some(found) = self.find_hashed(parent, part, hash) {
            return (found, false);
        }
        let Names { nodes, children, parts, cost, .. } = self;
        let new = nodes.len() as u32;
        let older = nodes.get(parent as usize).map_or(0, |parent| parent.newest);
        nodes.push(Node { parent, older, name: Text::push(part, parts), hash, ..Node::default() });
        if let Some(older) = nodes.get_mut(older as usize).filter(|_| older != 0) {
            older.newer = new;
        }
        if let Some(parent) = nodes.get_mut(parent as usize) {
            parent.newest = new;
            if older == 0 {
                parent.oldest = new;
            }
        }
        children.insert_unique(hash, new, |node| nodes.get(*node as usize).map_or(0, |node| node.hash));
        *cost += NODE + part.len();
        (new, true)
    }

    fn hash(&self, parent: u32, part: &[u8]) -> u64 {
        self.hasher.hash_one((parent, part))
    }

    fn find(&self, parent: u32, part: &[u8]) -> Option<u32> {
        self.find_hashed(parent, part, self.hash(parent, part))
    }

    fn find_hashed(&self, parent: u32, part: &[u8], hash: u64) -> Option<u32> {
        let is_wanted = |node: &u32| {
            let found = self.nodes.get(*node as usize);
            found.is_some_and(|node| node.parent == parent && node.name.of(&self.parts) == part)
        };
        self.children.find(hash, is_wanted).copied()
    }

    /// Makes the table of names by metric, in libpcp's order.
    pub(super) fn finish(&mut self) {
        let (mut by_pmid, mut full) = (Vec::new(), Vec::new());
        self.walk(0, &mut Vec::new(), Order::OldestFirst, &mut |name, pmid| {
            by_pmid.push(Named { pmid, name: Text::push(name, &mut full) });
        });
        by_pmid.sort_by_key(|named| named.pmid);
        (self.by_pmid, self.full) = (by_pmid, full);
    }

    fn walk(&self, node: u32, path: &mut Vec<u8>, order: Order, visit: &mut dyn FnMut(&[u8], PmId)) {
        let Some(found) = self.nodes.get(node as usize) else { return };
        let (len, pmid) = (path.len(), found.pmid);
        if node != 0 {
            if len > 0 {
                path.push(b'.');
            }
            path.extend_from_slice(found.name.of(&self.parts));
        }
        match order {
            Order::OldestFirst => {
                let after = |child: &u32| self.nodes.get(*child as usize).map(|child| child.newer);
                Names::children_from(found.oldest, after).for_each(|child| self.walk(child, path, order, visit));
                if let Some(pmid) = pmid {
                    visit(path, pmid);
                }
            }
            Order::NewestFirst => {
                // libpcp reports only the leaves.
                if let Some(pmid) = pmid.filter(|_| found.oldest == 0) {
                    visit(path, pmid);
                }
                let before = |child: &u32| self.nodes.get(*child as usize).map(|child| child.older);
                Names::children_from(found.newest, before).for_each(|child| self.walk(child, path, order, visit));
            }
        }
        path.truncate(len);
    }

    /// Iterates over children from one on; `next` returns the neighbour of each, or the root for none.
    fn children_from(first: u32, next: impl Fn(&u32) -> Option<u32>) -> impl Iterator<Item = u32> {
        let is_child = |child: &u32| *child != 0;
        std::iter::successors(Some(first).filter(is_child), move |child| next(child).filter(is_child))
    }

    fn node(&self, name: &[u8]) -> Option<u32> {
        let mut parts = name.split(|b| *b == b'.');
        parts.try_fold(0, |at, part| self.find(at, part))
    }

    /// Returns the metric with a name (pmLookupName(3)).
    ///
    /// # Errors
    /// `PM_ERR_NAME` for an unknown name, `PM_ERR_NONLEAF` for an inner node of the tree.
    pub fn pmid(&self, name: &[u8]) -> Result<PmId> {
        let node = self.node(name).and_then(|node| self.nodes.get(node as usize)).ok_or(Error::NAME)?;
        node.pmid.ok_or(Error::NONLEAF)
    }

    /// Returns the names of a metric (pmNameAll(3)).
    pub fn names(&self, pmid: PmId) -> impl ExactSizeIterator<Item = &[u8]> {
        let first = self.by_pmid.partition_point(|named| named.pmid < pmid);
        let rest = self.by_pmid.get(first..).unwrap_or_default();
        let count = rest.iter().take_while(|named| named.pmid == pmid).count();
        rest.iter().take(count).map(|named| named.name.of(&self.full))
    }

    /// Returns the metrics below a node of the tree, with their names (pmTraversePMNS(3)). An empty name means the
    /// whole tree.
    ///
    /// # Errors
    /// `PM_ERR_NAME` for an unknown name.
    pub fn below(&self, name: &[u8]) -> Result<Vec<(Vec<u8>, PmId)>> {
        let (root, mut path) = match name {
            b"" => (0, Vec::new()),
            _ => (self.node(name).ok_or(Error::NAME)?, name.to_vec()),
        };
        // The walk appends the node's own component.
        path.truncate(name.iter().rposition(|b| *b == b'.').unwrap_or(0));
        let mut found = Vec::new();
        self.walk(root, &mut path, Order::NewestFirst, &mut |name, pmid| found.push((name.to_vec(), pmid)));
        Ok(found)
    }
}

/// Order in which the children of a node are visited.
#[derive(Clone, Copy)]
enum Order {
    /// Children in the order in which they were added, each node after its children.
    OldestFirst,
    /// Children in the opposite order, each node before its children.
    NewestFirst,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_have_a_limit() {
        let mut names = Names::default();
        let deep = |first: u32| format!("{first}{}", ".a".repeat(DEPTH - 1));
        let added = (0..1000).take_while(|first| names.add(deep(*first).as_bytes(), None, 1 << 20)).count();
        assert!((20..30).contains(&added), "{added}");
    }

    #[test]
    fn a_tree() {
        let pmid = |item| PmId::from_word(item);
        let mut names = Names::default();
        let all = [("a.b", 1), ("a.c.d", 2), ("e", 3), ("x.b", 1), ("a.b", 9), ("a.b", 9), ("a", 9), ("a.bc", 4)];
        for (name, item) in all {
            assert!(names.add(name.as_bytes(), pmid(item), 10_000));
        }
        names.finish();
        assert_eq!(names.pmid(b"a.c.d").ok(), pmid(2));
        assert_eq!(names.pmid(b"a.b").ok(), pmid(1));
        assert_eq!(names.pmid(b"a"), Err(Error::NONLEAF));
        assert_eq!(names.pmid(b"a.d"), Err(Error::NAME));
        let one = pmid(1).map(|pmid| names.names(pmid).map(<[u8]>::to_vec).collect::<Vec<_>>());
        assert_eq!(one, Some(vec![b"a.b".to_vec(), b"x.b".to_vec()]));
        let below =
            |name: &[u8]| names.below(name).map(|all| all.into_iter().map(|(name, _)| name).collect::<Vec<_>>());
        assert_eq!(below(b"a"), Ok(vec![b"a.bc".to_vec(), b"a.c.d".to_vec(), b"a.b".to_vec()]));
        assert_eq!(below(b"").map(|all| all.len()), Ok(5));
        assert_eq!(below(b"q"), Err(Error::NAME));
    }
}
