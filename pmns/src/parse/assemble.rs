//! Assembly of the blocks into the tree.

use super::{Blocks, Name};
use crate::error::{Error, Pass, Problem};
use crate::tree::Id;
use crate::{Node, Tree, is_dynamic_root};
use pmapi::PmId;
use std::collections::HashMap;

const ROOT: &str = "root";
/// Largest number of problems. A file may have millions of blocks, and a problem takes 100 times the memory of one.
const MOST_PROBLEMS: usize = 1_000;

/// Inner node that has no children yet.
struct Inner<'a> {
    id: Id,
    /// Path of its parent.
    prefix: &'a str,
    name: Name,
}

/// Blocks by path, without those that are already part of the tree.
struct Unused<'a> {
    by_path: HashMap<&'a str, usize>,
    is_used: Vec<bool>,
}

impl<'a> Unused<'a> {
    fn new(blocks: &'a Blocks) -> Unused<'a> {
        // If several blocks have the same path, the last one is used. The others are reported as disconnected.
        let mut by_path = HashMap::with_capacity(blocks.blocks.len());
        by_path.extend(blocks.blocks.iter().enumerate().map(|(at, block)| (blocks.name(block.path), at)));
        Unused { by_path, is_used: vec![false; blocks.blocks.len()] }
    }

    fn take(&mut self, path: &str) -> Option<usize> {
        let at = self.by_path.remove(path)?;
        if let Some(used) = self.is_used.get_mut(at) {
            *used = true;
        }
        Some(at)
    }
}

impl Blocks {
    /// Builds the tree. Every block must be reachable from the block `root`.
    pub(super) fn assemble(&self, unique: bool) -> Result<Tree, Error> {
        let mut unused = Unused::new(self);
        let root = unused.take(ROOT).ok_or_else(|| self.problem(None, "No name space entry for \"root\"".into()))?;
        self.refuse_second_root(root)?;

        let mut tree = Tree::with_capacity(self.entries.len());
        let mut places = Vec::with_capacity(if unique { self.entries.len() } else { 0 });
        let mut path = String::new();
        // Inner nodes still to be filled. The next one is the last.
        let mut inner = Vec::new();
        let mut next = Some((Id::ROOT, "", root));
        while let Some((id, prefix, block)) = next {
            let first = inner.len();
            for entry in self.entries(block) {
                let name = self.name(entry.name);
                let (child, is_new) = tree.child_or_new(id, name);
                if !is_new {
                    // The caller replaces this problem by the one of `duplicate_name`.
                    return Err(self.problem(Some(entry.name), format!("Duplicate name \"{name}\"")));
                }
                tree[child].pmid = entry.pmid;
                if entry.pmid.is_none() {
                    inner.push(Inner { id: child, prefix, name: entry.name });
                } else if unique {
                    places.push((child, entry.name));
                }
            }
            inner.get_mut(first..).unwrap_or_default().reverse();
            next = inner.pop().map(|node| self.block_of(&node, &mut unused, &mut path)).transpose()?;
        }

        self.refuse_unused(&unused.is_used)?;
        if unique { self.check_unique(&tree, places) } else { Ok(()) }?;
        Ok(tree)
    }

    /// Returns an inner node with the path of its block, and the block. `path` is scratch space.
    fn block_of<'a>(
        &'a self,
        node: &Inner<'_>,
        unused: &mut Unused<'_>,
        path: &mut String,
    ) -> Result<(Id, &'a str, usize), Error> {
        path.clear();
        path.push_str(node.prefix);
        path.push_str(if node.prefix.is_empty() { "" } else { "." });
        path.push_str(self.name(node.name));
        let Some(block) = unused.take(path) else {
            let reason = format!("Cannot find definition for non-terminal node \"{path}\" in name space");
            return Err(self.problem(Some(node.name), reason));
        };
        Ok((node.id, self.blocks.get(block).map_or("", |block| self.name(block.path)), block))
    }

    fn refuse_second_root(&self, root: usize) -> Result<(), Error> {
        let mut roots = self.blocks.iter().enumerate().filter(|(_, block)| self.name(block.path) == ROOT);
        match roots.find(|(at, _)| *at != root) {
            None => Ok(()),
            Some((_, block)) => Err(self.problem(Some(block.path), "Multiple name space entries for \"root\"".into())),
        }
    }

    fn refuse_unused(&self, is_used: &[bool]) -> Result<(), Error> {
        let mut problems = Vec::new();
        let unused = self.blocks.iter().zip(is_used).rev().filter(|(_, used)| !**used);
        for (block, _) in unused.take(MOST_PROBLEMS) {
            let reason = format!("Disconnected subtree (\"{}\") in name space", self.name(block.path));
            problems.push(self.one_problem(Some(block.path), reason));
        }
        if problems.is_empty() { Ok(()) } else { Err(Error::Problems(problems)) }
    }

    /// Returns the problem of the first name that occurs twice in a block.
    pub(super) fn duplicate_name(&self) -> Option<Problem> {
        for (at, block) in self.blocks.iter().enumerate().filter(|(_, block)| block.end.line > 0) {
            let mut count: HashMap<&str, u32> = HashMap::new();
            for entry in self.entries(at) {
                *count.entry(self.name(entry.name)).or_default() += 1;
            }
            let mut entries = self.entries(at).iter().map(|entry| self.name(entry.name));
            if let Some(name) = entries.find(|name| count.get(name).is_some_and(|count| *count > 1)) {
                let reason = format!("Duplicate name \"{name}\" in subtree for \"{}\"", self.name(block.path));
                return Some(Problem { place: self.place(block.end), reason, pass: Pass::Duplicate });
            }
        }
        None
    }

    fn check_unique(&self, tree: &Tree, places: Vec<(Id, Name)>) -> Result<(), Error> {
        let places: HashMap<Id, Name> = places.into_iter().collect();
        let mut seen: HashMap<PmId, Node<'_>> = HashMap::new();
        for node in tree.root().leaves() {
            let Some(pmid) = node.pmid().filter(|pmid| !is_dynamic_root(*pmid)) else {
                continue;
            };
            if let Some(other) = seen.insert(pmid, node) {
                let reason = format!(
                    "Duplicate metric id ({pmid}) in name space for metrics \"{}\" and \"{}\"",
                    node.path(),
                    other.path()
                );
                let problem = self.one_problem(places.get(&node.id()).copied(), reason);
                return Err(Problem { pass: Pass::DuplicateId, ..problem }.into());
            }
        }
        Ok(())
    }

    pub(super) fn problem(&self, name: Option<Name>, reason: String) -> Error {
        self.one_problem(name, reason).into()
    }

    /// Creates a problem with a name, or with the whole text.
    fn one_problem(&self, name: Option<Name>, reason: String) -> Problem {
        let at = name.map(|name| name.at).unwrap_or_default();
        Problem { place: self.place(at), reason, pass: Pass::Assemble }
    }
}
