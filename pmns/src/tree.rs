//! The tree, with an index by name and an index by PMID.

mod node;

pub use node::{Children, Leaves, Node};

use crate::{is_dynamic_name, is_dynamic_root, is_name};
use compact_str::CompactString;
use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use pmapi::PmId;
use std::hash::BuildHasher;
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};
use std::sync::OnceLock;

/// A name space: a tree whose leaves are metrics, each with a PMID. Siblings keep the order of insertion.
///
/// # Examples
///
/// ```
/// use pmapi::{Domain, Item, PmId};
///
/// let pmid = PmId::new(Domain::new(253).unwrap(), Item::new(1, 2));
/// let mut names = pmns::Tree::new();
/// names.insert("simple.time.user", pmid)?;
/// assert_eq!(names.lookup("simple.time.user"), Ok(pmid));
/// assert_eq!(names.names(pmid).next().as_deref(), Some("simple.time.user"));
/// # Ok::<(), pmns::InsertError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tree {
    /// Never empty: the first node is the root.
    nodes: Vec<Data>,
    /// Removed nodes, for reuse. No other node refers to them.
    free: Vec<Id>,
    /// Every node except the root, by parent and name.
    by_name: HashTable<Id>,
    hasher: DefaultHashBuilder,
    /// Leaves sorted by PMID. Leaves with the same PMID are in traversal order. Built at the first use after a change.
    by_pmid: OnceLock<Box<[(PmId, Id)]>>,
}

/// Index of a node in the tree's list, plus 1. `Option<Id>` then has four bytes, and a node fits into one cache line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Id(NonZeroU32);

impl Id {
    pub(crate) const ROOT: Id = Id(NonZeroU32::MIN);

    /// Returns the identifier of the node that is added after `nodes` others.
    fn after(nodes: usize) -> Id {
        Id(Id::ROOT.0.saturating_add(u32::try_from(nodes).unwrap_or(u32::MAX)))
    }

    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Data {
    pub(crate) name: CompactString,
    pub(crate) pmid: Option<PmId>,
    /// The root is its own parent.
    pub(crate) parent: Id,
    pub(crate) first: Option<Id>,
    pub(crate) last: Option<Id>,
    pub(crate) next: Option<Id>,
    pub(crate) previous: Option<Id>,
}

impl Data {
    fn new(name: &str, parent: Id) -> Data {
        Data { name: name.into(), pmid: None, parent, first: None, last: None, next: None, previous: None }
    }
}

/// Why a name was not inserted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InsertError {
    /// The name breaks the rules of [`is_name`], or of [`is_dynamic_name`] for [`Tree::insert_dynamic`].
    #[error("{0:?} is not the name of a metric")]
    Name(String),
    /// The name already has another PMID, or is an inner node.
    #[error("{name} is already {}, so it cannot be {new}", match present { Some(pmid) => pmid.to_string(), None => "an inner node".into() })]
    Pmid {
        /// The whole name.
        name: String,
        /// PMID in the tree; `None` for an inner node.
        present: Option<PmId>,
        /// PMID that was to be inserted.
        new: PmId,
    },
    /// A leading part of the name is a metric, and a metric has no names below it.
    #[error("{name} would be below {metric}, which is a metric ({pmid})")]
    BelowMetric {
        /// The whole name.
        name: String,
        /// The part of it that is a metric.
        metric: String,
        /// PMID of that metric.
        pmid: PmId,
    },
}

impl Default for Tree {
    fn default() -> Self {
        Tree::new()
    }
}

impl Tree {
    /// Creates an empty name space.
    pub fn new() -> Tree {
        Tree {
            nodes: vec![Data::new("root", Id::ROOT)],
            free: Vec::new(),
            by_name: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            by_pmid: OnceLock::new(),
        }
    }

    /// Creates an empty name space with room for a number of nodes: metrics, and names above them.
    pub fn with_capacity(nodes: usize) -> Tree {
        let mut tree = Tree::new();
        tree.nodes.reserve(nodes);
        let Tree { by_name, .. } = &mut tree;
        by_name.reserve(nodes, |_| 0);
        tree
    }

    /// Adds a metric after its siblings, and the inner nodes that lead to it.
    ///
    /// A name that is already present with the same PMID is kept unchanged. Several names may have the same PMID.
    ///
    /// # Errors
    ///
    /// [`InsertError`], with the tree unchanged:
    /// - `Name` when [`is_name`] does not hold,
    /// - `Pmid` when the name has another PMID or is an inner node,
    /// - `BelowMetric` when a leading part of the name is a metric.
    pub fn insert(&mut self, name: &str, pmid: PmId) -> Result<(), InsertError> {
        self.insert_if(is_name(name), name, pmid)
    }

    /// Adds a metric whose name only has to satisfy [`is_dynamic_name`]; otherwise like [`Tree::insert`].
    ///
    /// # Errors
    ///
    /// [`InsertError`] as for [`Tree::insert`], but `Name` when [`is_dynamic_name`] does not hold.
    pub fn insert_dynamic(&mut self, name: &str, pmid: PmId) -> Result<(), InsertError> {
        self.insert_if(is_dynamic_name(name), name, pmid)
    }

    fn insert_if(&mut self, valid: bool, name: &str, pmid: PmId) -> Result<(), InsertError> {
        if !valid {
            return Err(InsertError::Name(name.into()));
        }
        let mut id = Id::ROOT;
        let mut is_new = false;
        for component in name.split('.') {
            if let Some(pmid) = self[id].pmid {
                let metric = Node::new(self, id).path();
                return Err(InsertError::BelowMetric { name: name.into(), metric, pmid });
            }
            (id, is_new) = self.child_or_new(id, component);
        }
        let present = self[id].pmid;
        if !is_new && present != Some(pmid) {
            return Err(InsertError::Pmid { name: name.into(), present, new: pmid });
        }
        self[id].pmid = Some(pmid);
        self.by_pmid.take();
        Ok(())
    }

    /// Inserts the metrics of another tree in the order of pmnsmerge(1): the metrics directly below a node come before
    /// those of deeper nodes.
    ///
    /// Returns one error for each metric that was not inserted.
    pub fn merge(&mut self, other: &Tree) -> Vec<InsertError> {
        let inner = other.root().subtree().filter(|node| node.pmid().is_none());
        let leaves = inner.flat_map(|node| node.children().filter_map(|child| Some((child, child.pmid()?))));
        leaves.filter_map(|(node, pmid)| self.insert(&node.path(), pmid).err()).collect()
    }

    /// Returns the root. Its children are the top-level names.
    pub fn root(&self) -> Node<'_> {
        Node::new(self, Id::ROOT)
    }

    /// Returns the node with a certain name; `None` when the name does not exist. The empty name is that of the root.
    pub fn node(&self, name: &str) -> Option<Node<'_>> {
        self.find(name).map(|id| Node::new(self, id))
    }

    /// Returns the PMID of a metric, as pmLookupName(3) does.
    ///
    /// Every name below a root of dynamic names has the PMID of that root: only the agent knows the PMID of the metric
    /// itself.
    ///
    /// # Errors
    ///
    /// - `PM_ERR_NAME` when the name does not exist,
    /// - `PM_ERR_NONLEAF` when it is an inner node.
    pub fn lookup(&self, name: &str) -> Result<PmId, pmapi::Error> {
        let mut id = Id::ROOT;
        for component in name.split('.') {
            match self.child(id, component) {
                Some(child) => id = child,
                None => {
                    return self[id].pmid.filter(|pmid| is_dynamic_root(*pmid)).ok_or(pmapi::Error::NAME);
                }
            }
        }
        self[id].pmid.ok_or(pmapi::Error::NONLEAF)
    }

    /// Returns the metrics that have `pmid`, in traversal order.
    pub fn nodes(&self, pmid: PmId) -> impl DoubleEndedIterator<Item = Node<'_>> {
        let by_pmid = self.by_pmid.get_or_init(|| {
            let mut leaves: Vec<_> = self.root().leaves().filter_map(|node| Some((node.pmid()?, node.id()))).collect();
            // The sort is stable, which keeps the traversal order.
            leaves.sort_by_key(|(pmid, _)| *pmid);
            leaves.into()
        });
        let start = by_pmid.partition_point(|(other, _)| *other < pmid);
        let end = by_pmid.partition_point(|(other, _)| *other <= pmid);
        by_pmid.get(start..end).unwrap_or_default().iter().map(|(_, id)| Node::new(self, *id))
    }

    /// Returns the names of the metrics that have `pmid`, in the order of pmNameAll(3). The first one is the name that
    /// pmNameID(3) returns.
    pub fn names(&self, pmid: PmId) -> impl Iterator<Item = String> {
        self.nodes(pmid).rev().map(|node| node.path())
    }

    /// Removes a name, everything below it, and inner nodes above it that have no other children.
    ///
    /// Returns false when the name does not exist, or is empty: the root cannot be removed.
    pub fn remove(&mut self, name: &str) -> bool {
        let Some(mut id) = self.find(name).filter(|id| *id != Id::ROOT) else {
            return false;
        };
        let mut removed: Vec<Id> = Node::new(self, id).subtree().map(|node| node.id()).collect();
        loop {
            let parent = self[id].parent;
            self.unlink(id);
            if parent == Id::ROOT || self[parent].first.is_some() {
                break;
            }
            removed.push(parent);
            id = parent;
        }
        removed.iter().for_each(|node| self.forget(*node));
        self.free.append(&mut removed);
        self.by_pmid.take();
        true
    }

    fn find(&self, name: &str) -> Option<Id> {
        let mut id = Id::ROOT;
        for component in name.split('.').filter(|_| !name.is_empty()) {
            id = self.child(id, component)?;
        }
        Some(id)
    }

    pub(crate) fn child(&self, parent: Id, name: &str) -> Option<Id> {
        let hash = self.hash(parent, name);
        self.by_name.find(hash, |id| self[*id].parent == parent && &*self[*id].name == name).copied()
    }

    /// Returns the child with this name, and whether it was added after its siblings by this call. The name must be a
    /// single component.
    pub(crate) fn child_or_new(&mut self, parent: Id, name: &str) -> (Id, bool) {
        let hash = self.hash(parent, name);
        let Tree { nodes, free, hasher, by_name, .. } = self;
        let data = |id: &Id| &nodes[id.index()];
        let entry = by_name.entry(
            hash,
            |id| data(id).parent == parent && &*data(id).name == name,
            |id| hasher.hash_one((data(id).parent.0, &*data(id).name)),
        );
        let id = match entry {
            Entry::Occupied(entry) => return (*entry.get(), false),
            Entry::Vacant(entry) => {
                let id = free.pop().unwrap_or(Id::after(nodes.len()));
                entry.insert(id);
                id
            }
        };
        let last = self[parent].last.replace(id);
        match last {
            Some(last) => self[last].next = Some(id),
            None => self[parent].first = Some(id),
        }
        let data = Data { previous: last, ..Data::new(name, parent) };
        match self.nodes.get_mut(id.index()) {
            Some(reused) => *reused = data,
            None => self.nodes.push(data),
        }
        (id, true)
    }

    fn forget(&mut self, id: Id) {
        let hash = self.hash(self[id].parent, &self[id].name);
        if let Ok(entry) = self.by_name.find_entry(hash, |other| *other == id) {
            entry.remove();
        }
    }

    /// Removes a node from the list of its parent's children.
    fn unlink(&mut self, id: Id) {
        let Data { parent, next, previous, .. } = self[id];
        match previous {
            Some(previous) => self[previous].next = next,
            None => self[parent].first = next,
        }
        match next {
            Some(next) => self[next].previous = previous,
            None => self[parent].last = previous,
        }
    }

    fn hash(&self, parent: Id, name: &str) -> u64 {
        self.hasher.hash_one((parent.0, name))
    }
}

impl Index<Id> for Tree {
    type Output = Data;

    fn index(&self, id: Id) -> &Data {
        &self.nodes[id.index()]
    }
}

impl IndexMut<Id> for Tree {
    fn index_mut(&mut self, id: Id) -> &mut Data {
        &mut self.nodes[id.index()]
    }
}
