//! Names and descriptors of exported metrics.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::rc::Rc;
use std::time::Duration;

use mmv_reader::collection::{Collection, MetricDesc, Part};
use pmda::pmapi::{Desc, InDom, PmId};
use pmda::prelude::*;
use pmda::{MetricInfo, Version};
use pmns::Tree;

use crate::{CONTROL_CLUSTER, Files, limits};

impl<const DOMAIN: u16> Catalog for Files<DOMAIN> {
    fn version(&self) -> Version {
        Version { names: self.version, labels: 0 }
    }

    fn metric(&self, pmid: PmId) -> Option<MetricInfo> {
        if pmid.item().cluster() == CONTROL_CLUSTER {
            return self.item(pmid).and_then(|_| limits::desc(pmid)).map(MetricInfo::from);
        }
        let MetricDesc { item, ty, indom, semantics, units, .. } = self.files.desc(self.item(pmid)?).ok()?;
        let pmid = PmId::new(self.domain, item);
        let indom = indom.map(|serial| InDom::new(self.domain, serial));
        Some(Desc { pmid, ty: ty.exported(), indom, semantics, units }.into())
    }

    fn lookup(&self, name: &str) -> Option<PmId> {
        let limit = self.limits.iter().position(|limit| limit == name).map(limits::item);
        Some(PmId::new(self.domain, limit.or_else(|| self.files.item(name).ok())?))
    }

    fn names(&self, pmid: PmId, give: &mut dyn FnMut(&str)) -> Option<()> {
        let item = self.item(pmid)?;
        let limit = limits::index(item).and_then(|index| self.limits.get(index)).map(String::as_str);
        limit.or_else(|| self.files.name(item).ok()).map(give)
    }

    fn children(&self, name: &str, give: &mut dyn FnMut(&str, bool)) -> Option<()> {
        if self.is_limits(name) {
            let all = self.limits.iter().filter_map(|limit| limit.rsplit('.').next());
            all.for_each(|last| give(last, true));
            return Some(());
        }
        let mut seen = Seen::default();
        if name == self.prefix {
            for (head, part) in self.files.heads().rev().filter(|(head, _)| *head != CONTROL) {
                if seen.is_first(part, head) {
                    give(head, self.files.item(&format!("{name}.{head}")).is_ok());
                }
            }
            return Some(());
        }
        let mut found = None;
        for part in self.files.parts(name) {
            let mut child = |component: &str, item: Option<Item>| {
                // All names below the node begin with the same component.
                let is_hidden = item.is_some_and(|item| !part.exports(name, item));
                if !is_hidden && seen.is_first(part, component) {
                    give(component, item.is_some());
                }
            };
            let is_node = if let Some(tree) = self.trees.at_hand(part, self.domain) {
                let children = tree.node(name).map(|node| node.children().rev());
                children.map(|all| all.for_each(|node| child(node.name(), node.pmid().map(PmId::item))))
            } else {
                children_of(part, name).map(|all| all.iter().rev().for_each(|(name, item)| child(name, *item)))
            };
            found = found.or(is_node);
        }
        found
    }

    fn traverse(&self, name: &str, give: &mut dyn FnMut(&str)) -> Option<()> {
        if self.is_limits(name) || self.limits.iter().any(|limit| limit == name) {
            self.limits.iter().filter(|limit| limit.starts_with(name)).for_each(|limit| give(limit));
            return Some(());
        }
        if name != self.prefix {
            let parts = self.files.parts(name).map(|part| self.traverse_part(part, name, give));
            return parts.fold(None, Option::or);
        }
        // The node `control` was registered first, so it comes last here.
        let control = self.files.heads().filter(|(head, _)| *head == CONTROL);
        let others = self.files.heads().rev().filter(|(head, _)| *head != CONTROL);
        let mut whole = HashSet::new();
        for (head, part) in others.chain(control) {
            if !part.is_in_order() && self.trees.at_hand(part, self.domain).is_some() {
                self.traverse_part(part, &format!("{name}.{head}"), give);
            } else if whole.insert(part.version()) {
                let metrics = part.metrics().rev().filter(|(name, item)| part.exports(name, *item));
                metrics.for_each(|(name, _)| give(name));
            }
        }
        Some(())
    }
}

/// The component above the agent's own metrics.
const CONTROL: &str = "control";

impl<const DOMAIN: u16> Files<DOMAIN> {
    /// Updates the agent after a check of the files.
    pub(crate) fn take_note(&mut self, changed: bool) {
        self.budgets.count(&self.files.take_left_out());
        if self.budgets.is_any_exceeded() {
            self.show_limits();
        }
        if changed {
            self.version += 1;
            self.trees.keep(&self.files);
            self.domains.clear();
            tracing::debug!("{}: {} files", self.prefix, self.files.file_count());
        }
    }

    /// Calls `give` with the exported names of a part at or below a node. Returns `None` if the node does not exist.
    fn traverse_part(&self, part: Part<'_>, name: &str, give: &mut dyn FnMut(&str)) -> Option<()> {
        if !part.is_in_order() {
            if let Some(tree) = self.trees.at_hand(part, self.domain) {
                let mut give = |name: &str| {
                    if part.is_alone() || exports(part, name) {
                        give(name);
                    }
                };
                return tree.node(name).map(|node| node.each_name(&mut give));
            }
        }
        let mut found = None;
        for (full, item) in part.metrics().rev().filter(|(full, _)| below(full, name).is_some()) {
            found = Some(());
            if part.exports(full, item) {
                give(full);
            }
        }
        found
    }

    /// Returns whether a name is that of the node above the limits' metrics, and these metrics are not listed yet.
    fn is_limits(&self, name: &str) -> bool {
        !self.limits.is_empty()
            && name.strip_prefix(&*self.prefix).and_then(|name| name.strip_prefix('.')) == Some(limits::NODE)
    }

    fn item(&self, pmid: PmId) -> Option<Item> {
        (pmid.domain() == self.domain).then(|| pmid.item())
    }
}

/// Components that parts share, and that have been passed to the caller already, as hashes with a random key. There may
/// be very many long ones.
#[derive(Default)]
struct Seen {
    hasher: RandomState,
    hashes: HashSet<u64>,
}

impl Seen {
    /// Returns whether a component has not been passed to the caller yet.
    fn is_first(&mut self, part: Part<'_>, component: &str) -> bool {
        part.is_alone() || self.hashes.insert(self.hasher.hash_one(component))
    }
}

/// Trees of the parts that requests have used.
#[derive(Debug, Default)]
pub(crate) struct Trees {
    trees: RefCell<HashMap<u64, Rc<Tree>>>,
    /// Number of metrics in the trees that the present request may still build.
    left: Cell<usize>,
}

impl Trees {
    /// Begins a new request, which has spent some processor time on changes of files.
    pub(crate) fn begin(&self, spent: Duration) {
        self.left.set(if spent > LONG { MANY / 4 } else { MANY });
    }

    /// Drops the trees of parts that have changed or no longer exist.
    pub(crate) fn keep(&self, files: &Collection) {
        let versions: HashSet<u64> = files.versions().collect();
        self.trees.borrow_mut().retain(|version, _| versions.contains(version));
    }

    /// Returns the tree of a part, unless it has yet to be built and that would take long.
    fn at_hand(&self, part: Part<'_>, domain: pmda::pmapi::Domain) -> Option<Rc<Tree>> {
        let mut trees = self.trees.borrow_mut();
        if let Some(tree) = trees.get(&part.version()) {
            return Some(Rc::clone(tree));
        }
        self.left.set(self.left.get().checked_sub(count(part))?);
        let tree = part.derive(|| Rc::new(tree(part, domain)));
        trees.insert(part.version(), Rc::clone(&tree));
        Some(tree)
    }
}

/// Largest number of metrics for which one request builds trees, which takes some milliseconds. For a few nodes of a
/// larger part, a search through the names is faster. A traversal of such a part returns the names in the order of the
/// files.
const MANY: usize = 8192;

/// Processor time that a request has spent on changes of files if it may build trees of a quarter of the metrics only.
const LONG: Duration = Duration::from_millis(2);

fn count(part: Part<'_>) -> usize {
    part.metrics().size_hint().0
}

fn tree(part: Part<'_>, domain: pmda::pmapi::Domain) -> Tree {
    let mut tree = Tree::with_capacity(count(part));
    for (name, item) in part.metrics() {
        // The collection accepts only names that a tree accepts.
        if let Err(e) = tree.insert_dynamic(name, PmId::new(domain, item)) {
            tracing::error!(source = "names of files", "{e}");
        }
    }
    tree
}

/// Returns whether a metric of a part, given by its name, is exported.
fn exports(part: Part<'_>, name: &str) -> bool {
    part.item(name).is_some_and(|item| part.exports(name, item))
}

/// Returns the part of a full name below a node. It is empty for the node itself.
fn below<'a>(full: &'a str, node: &str) -> Option<&'a str> {
    let rest = full.strip_prefix(node)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('.') }
}

/// Returns the children of a node without a tree, in the order that a tree would have, and the items of those that are
/// metrics.
fn children_of<'a>(part: Part<'a>, node: &str) -> Option<Vec<(&'a str, Option<Item>)>> {
    let (mut found, mut children, mut inner) = (None, Vec::new(), HashSet::new());
    for (rest, item) in part.metrics().filter_map(|(full, item)| Some((below(full, node)?, item))) {
        found = Some(());
        match rest.split_once('.') {
            Some((component, _)) if inner.insert(component) => children.push((component, None)),
            None if !rest.is_empty() => children.push((rest, Some(item))),
            _ => {}
        }
    }
    found.map(|()| children)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use pmda::pmapi::Domain;

    #[test]
    fn children_are_the_same_with_and_without_a_tree() {
        let dir = tempfile::tempdir().unwrap();
        let registry = mmv::Registry::builder("app").directory(dir.path()).build().unwrap();
        let names = ["a.x", "b", "a.y.p", "c.d.e.f", "a.y.q", "ab.x", "c.z", "a.y2", "c.d.e.g", "ba"];
        names.iter().for_each(|name| {
            let _: mmv::Counter = registry.counter(name).register().unwrap();
        });
        registry.try_start().unwrap();
        let mut files = Collection::new("mmv", dir.path());
        files.refresh();
        let (_, part) = files.heads().next().unwrap();
        let tree = tree(part, Domain::new(70).unwrap());
        let nodes =
            ["", ".a", ".a.x", ".a.y", ".b", ".c", ".c.d", ".c.d.e", ".c.d.e.f", ".ab", ".z", ".a.", ".a.x.p", "x"];
        for node in nodes.map(|node| format!("mmv.app{node}")) {
            let expected = tree.node(&node).map(|node| {
                let children = node.children().map(|child| (child.name().to_owned(), child.pmid().is_some()));
                children.collect::<Vec<_>>()
            });
            let found = children_of(part, &node);
            let found =
                found.map(|all| all.into_iter().map(|(name, item)| (name.to_owned(), item.is_some())).collect());
            assert_eq!(found, expected, "{node}");
        }
        assert_eq!(children_of(part, "mmv.app").map(|all| all.len()), Some(5));
    }
}
