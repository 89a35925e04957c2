//! Nodes of the tree, and the iterators over them.

use super::{Id, Tree};
use pmapi::PmId;
use std::fmt;

/// A node of a [`Tree`]: a metric with a PMID, or an inner node without one.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    tree: &'a Tree,
    id: Id,
}

impl<'a> Node<'a> {
    pub(crate) fn new(tree: &'a Tree, id: Id) -> Self {
        Node { tree, id }
    }

    pub(crate) fn id(self) -> Id {
        self.id
    }

    /// Returns the last component of the node's name; `root` for the root.
    pub fn name(self) -> &'a str {
        &self.tree[self.id].name
    }

    /// Returns the PMID of a metric; `None` for an inner node.
    pub fn pmid(self) -> Option<PmId> {
        self.tree[self.id].pmid
    }

    /// Returns the parent; `None` for the root.
    pub fn parent(self) -> Option<Node<'a>> {
        (self.id != Id::ROOT).then(|| Node::new(self.tree, self.tree[self.id].parent))
    }

    /// Returns the whole name, components separated by dots; empty for the root.
    pub fn path(self) -> String {
        let mut components = Vec::new();
        let mut node = self;
        while let Some(parent) = node.parent() {
            components.push(node.name());
            node = parent;
        }
        components.reverse();
        components.join(".")
    }

    /// Returns the nodes directly below, in the order of insertion (pmGetChildren(3)).
    pub fn children(self) -> Children<'a> {
        let data = &self.tree[self.id];
        Children { tree: self.tree, ends: data.first.zip(data.last) }
    }

    /// Returns whether the node has children.
    pub fn has_children(self) -> bool {
        self.tree[self.id].first.is_some()
    }

    /// Returns the metrics at and below the node, depth first (pmTraversePMNS(3)).
    pub fn leaves(self) -> Leaves<'a> {
        Leaves(Subtree { top: self, next: Some(self) })
    }

    /// Calls `give` with the whole name of each metric at and below the node. Children come in the reverse order of
    /// insertion, as with pmdaTreeChildren(3).
    pub fn each_name(self, give: &mut dyn FnMut(&str)) {
        let mut path = self.path();
        if self.pmid().is_some() {
            give(&path);
        }
        let mut levels = vec![(self.children().rev(), path.len())];
        while let Some((children, len)) = levels.last_mut() {
            path.truncate(*len);
            match children.next() {
                None => _ = levels.pop(),
                Some(node) => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(node.name());
                    match node.pmid() {
                        Some(_) => give(&path),
                        None => levels.push((node.children().rev(), path.len())),
                    }
                }
            }
        }
    }

    /// Returns the node and all nodes below it, each before its children.
    pub(crate) fn subtree(self) -> Subtree<'a> {
        Subtree { top: self, next: Some(self) }
    }

    pub(crate) fn next_sibling(self) -> Option<Node<'a>> {
        self.tree[self.id].next.map(|id| Node::new(self.tree, id))
    }
}

impl fmt::Debug for Node<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pmid() {
            Some(pmid) => write!(f, "Node({} {pmid})", self.path()),
            None => write!(f, "Node({})", self.path()),
        }
    }
}

/// Iterator of [`Node::children`].
#[derive(Clone)]
pub struct Children<'a> {
    tree: &'a Tree,
    /// First and last of the remaining children.
    ends: Option<(Id, Id)>,
}

impl<'a> Iterator for Children<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Node<'a>> {
        let (first, last) = self.ends?;
        self.ends = self.tree[first].next.filter(|_| first != last).map(|next| (next, last));
        Some(Node::new(self.tree, first))
    }
}

impl DoubleEndedIterator for Children<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let (first, last) = self.ends?;
        self.ends = self.tree[last].previous.filter(|_| first != last).map(|previous| (first, previous));
        Some(Node::new(self.tree, last))
    }
}

/// Iterator of [`Node::leaves`].
#[derive(Clone)]
pub struct Leaves<'a>(Subtree<'a>);

impl<'a> Iterator for Leaves<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Node<'a>> {
        self.0.by_ref().find(|node| node.pmid().is_some())
    }
}

/// Iterator of [`Node::subtree`].
#[derive(Clone)]
pub(crate) struct Subtree<'a> {
    top: Node<'a>,
    next: Option<Node<'a>>,
}

impl<'a> Iterator for Subtree<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Node<'a>> {
        let node = self.next?;
        self.next = node.children().next().or_else(|| {
            let mut up = node;
            while up.id != self.top.id {
                if let Some(sibling) = up.next_sibling() {
                    return Some(sibling);
                }
                up = up.parent()?;
            }
            None
        });
        Some(node)
    }
}
