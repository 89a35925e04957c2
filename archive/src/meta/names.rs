//! Names of metrics.

use std::collections::{BTreeMap, HashMap};

use pmapi::{Error, PmId, Result};

/// Name space of an archive: a tree whose leaves are metrics.
#[derive(Clone, Debug)]
pub struct Names {
    /// Nodes; the first is the root.
    nodes: Vec<Node>,
    /// Node by parent and component of the name.
    children: HashMap<(u32, Box<[u8]>), u32>,
    /// Names of each metric.
    by_pmid: BTreeMap<PmId, Vec<Box<[u8]>>>,
    /// Memory of the nodes, about, in bytes.
    cost: usize,
}

#[derive(Clone, Debug, Default)]
struct Node {
    name: Box<[u8]>,
    pmid: Option<PmId>,
    /// Children, the newest last.
    children: Vec<u32>,
}

impl Default for Names {
    fn default() -> Names {
        Names { nodes: vec![Node::default()], children: HashMap::new(), by_pmid: BTreeMap::new(), cost: 0 }
    }
}

/// Most components of a name: deeper ones are not stored.
const DEPTH: usize = 256;

/// Memory of a node without its name, about, in bytes: itself, its place among its parent's children and in the table.
const NODE: usize = 160;

impl Names {
    /// Adds the name of a metric. A name that another metric or an inner node has already remains with that. Returns
    /// whether all names together need at most `limit` bytes: many short components need far more memory than they have
    /// bytes.
    #[must_use]
    pub(super) fn add(&mut self, name: &[u8], pmid: Option<PmId>, limit: usize) -> bool {
        if name.split(|b| *b == b'.').count() > DEPTH {
            return true;
        }
        let (mut at, mut is_new) = (0, false);
        for part in name.split(|b| *b == b'.') {
            let new = self.nodes.len() as u32;
            at = *self.children.entry((at, part.into())).or_insert_with(|| {
                if let Some(parent) = self.nodes.get_mut(at as usize) {
                    parent.children.push(new);
                }
                new
            });
            is_new = at == new;
            if is_new {
                self.nodes.push(Node { name: part.into(), ..Node::default() });
                self.cost += NODE + 2 * part.len();
            }
        }
        if let Some(node) = self.nodes.get_mut(at as usize).filter(|_| is_new) {
            node.pmid = pmid;
        }
        self.cost <= limit
    }

    /// Makes the table of names by metric, in libpcp's order.
    pub(super) fn finish(&mut self) {
        let mut by_pmid: BTreeMap<PmId, Vec<Box<[u8]>>> = BTreeMap::new();
        self.walk(0, &mut Vec::new(), Order::OldestFirst, &mut |name, pmid| {
            by_pmid.entry(pmid).or_default().push(name.into());
        });
        self.by_pmid = by_pmid;
    }

    fn walk(&self, node: u32, path: &mut Vec<u8>, order: Order, visit: &mut dyn FnMut(&[u8], PmId)) {
        let Some(found) = self.nodes.get(node as usize) else { return };
        let (len, pmid) = (path.len(), found.pmid);
        if node != 0 {
            if len > 0 {
                path.push(b'.');
            }
            path.extend_from_slice(&found.name);
        }
        match order {
            Order::OldestFirst => {
                found.children.iter().for_each(|child| self.walk(*child, path, order, visit));
                if let Some(pmid) = pmid {
                    visit(path, pmid);
                }
            }
            Order::NewestFirst => {
                // libpcp reports only the leaves.
                if let Some(pmid) = pmid.filter(|_| found.children.is_empty()) {
                    visit(path, pmid);
                }
                found.children.iter().rev().for_each(|child| self.walk(*child, path, order, visit));
            }
        }
        path.truncate(len);
    }

    fn node(&self, name: &[u8]) -> Option<u32> {
        let mut parts = name.split(|b| *b == b'.');
        parts.try_fold(0, |at, part| self.children.get(&(at, part.into())).copied())
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
        self.by_pmid.get(&pmid).map_or(&[][..], Vec::as_slice).iter().map(|name| &**name)
    }

    /// Returns the metrics below a node of the tree, with their names; of the whole tree for an empty name
    /// (pmTraversePMNS(3)).
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
        for (name, item) in [("a.b", 1), ("a.c.d", 2), ("e", 3), ("x.b", 1), ("a.b", 9), ("a", 9)] {
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
        assert_eq!(below(b"a"), Ok(vec![b"a.c.d".to_vec(), b"a.b".to_vec()]));
        assert_eq!(below(b"").map(|all| all.len()), Ok(4));
        assert_eq!(below(b"q"), Err(Error::NAME));
    }
}
