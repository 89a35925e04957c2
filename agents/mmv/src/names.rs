//! Names and descriptors of exported metrics.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

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
            let mut child = |component: &str, is_leaf: bool| {
                let is_hidden = is_leaf && !part.is_alone() && !part.exports(&format!("{name}.{component}"));
                if !is_hidden && seen.is_first(part, component) {
                    give(component, is_leaf);
                }
            };
            let is_node = if let Some(tree) = self.trees.at_hand(part, self.domain) {
                let children = tree.node(name).map(|node| node.children().rev());
                children.map(|all| all.for_each(|node| child(node.name(), node.pmid().is_some())))
            } else {
                children_of(part, name).map(|all| all.iter().rev().for_each(|(name, is_leaf)| child(name, *is_leaf)))
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
        for (head, part) in others.chain(control) {
            if part.is_in_order() {
                let names = part.metrics().rev().map(|(name, _)| name);
                names.filter(|name| part.exports(name)).for_each(&mut *give);
            } else {
                self.traverse_part(part, &format!("{name}.{head}"), give);
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

    /// Gives the exported names of a part that are at or below a name, if there is such a node.
    fn traverse_part(&self, part: Part<'_>, name: &str, give: &mut dyn FnMut(&str)) -> Option<()> {
        let mut give = |name: &str| {
            if part.exports(name) {
                give(name);
            }
        };
        if !part.is_in_order() {
            return self.trees.of(part, self.domain).node(name).map(|node| node.each_name(&mut give));
        }
        let mut found = None;
        for (full, _) in part.metrics().rev().filter(|(full, _)| below(full, name).is_some()) {
            found = Some(());
            give(full);
        }
        found
    }

    /// Returns whether a name is the node above the limits' metrics, while these are not listed.
    fn is_limits(&self, name: &str) -> bool {
        !self.limits.is_empty()
            && name.strip_prefix(&*self.prefix).and_then(|name| name.strip_prefix('.')) == Some(limits::NODE)
    }

    fn item(&self, pmid: PmId) -> Option<Item> {
        (pmid.domain() == self.domain).then(|| pmid.item())
    }
}

/// Components that were given, of parts that share components with others.
#[derive(Default)]
struct Seen(HashSet<String>);

impl Seen {
    /// Returns whether no other part has given a component.
    fn is_first(&mut self, part: Part<'_>, component: &str) -> bool {
        part.is_alone() || self.0.insert(component.to_owned())
    }
}

/// The trees of the parts that requests have used.
#[derive(Debug, Default)]
pub(crate) struct Trees(RefCell<HashMap<u64, Rc<Tree>>>);

impl Trees {
    /// Keeps the trees of unchanged parts.
    pub(crate) fn keep(&self, files: &Collection) {
        let versions: HashSet<u64> = files.versions().collect();
        self.0.borrow_mut().retain(|version, _| versions.contains(version));
    }

    /// Returns the tree of a part, unless it has to be made and that takes long.
    fn at_hand(&self, part: Part<'_>, domain: pmda::pmapi::Domain) -> Option<Rc<Tree>> {
        let has_tree = count(part) <= MANY || self.0.borrow().contains_key(&part.version());
        has_tree.then(|| self.of(part, domain))
    }

    fn of(&self, part: Part<'_>, domain: pmda::pmapi::Domain) -> Rc<Tree> {
        let mut trees = self.0.borrow_mut();
        let tree = trees.entry(part.version()).or_insert_with(|| part.derive(|| Rc::new(tree(part, domain))));
        Rc::clone(tree)
    }
}

/// Number of metrics whose tree takes some milliseconds. It takes less time to look through the names for a few nodes.
const MANY: usize = 8192;

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

/// Returns the rest of a full name below a node, empty for the node itself.
fn below<'a>(full: &'a str, node: &str) -> Option<&'a str> {
    let rest = full.strip_prefix(node)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('.') }
}

/// Finds the children of a node without a tree, in the order of a tree, and whether each is a metric.
fn children_of<'a>(part: Part<'a>, node: &str) -> Option<Vec<(&'a str, bool)>> {
    let (mut found, mut children, mut inner) = (None, Vec::new(), HashSet::new());
    for rest in part.metrics().filter_map(|(full, _)| below(full, node)) {
        found = Some(());
        match rest.split_once('.') {
            Some((component, _)) if inner.insert(component) => children.push((component, false)),
            None if !rest.is_empty() => children.push((rest, true)),
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
            let found = found.map(|all| all.into_iter().map(|(name, is_leaf)| (name.to_owned(), is_leaf)).collect());
            assert_eq!(found, expected, "{node}");
        }
        assert_eq!(children_of(part, "mmv.app").map(|all| all.len()), Some(5));
    }
}
