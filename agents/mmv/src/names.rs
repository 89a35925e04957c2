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
            let tree = self.trees.of(part, self.domain);
            let Some(node) = tree.node(name) else { continue };
            found = Some(());
            for child in node.children().rev() {
                let is_leaf = child.pmid().is_some();
                let is_hidden = is_leaf && !part.is_alone() && !part.exports(&format!("{name}.{}", child.name()));
                if !is_hidden && seen.is_first(part, child.name()) {
                    give(child.name(), is_leaf);
                }
            }
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
        self.trees.of(part, self.domain).node(name)?.each_name(&mut |name| {
            if part.exports(name) {
                give(name);
            }
        });
        Some(())
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

    fn of(&self, part: Part<'_>, domain: pmda::pmapi::Domain) -> Rc<Tree> {
        let mut trees = self.0.borrow_mut();
        let tree = trees.entry(part.version()).or_insert_with(|| part.derive(|| Rc::new(tree(part, domain))));
        Rc::clone(tree)
    }
}

fn tree(part: Part<'_>, domain: pmda::pmapi::Domain) -> Tree {
    let mut tree = Tree::new();
    for (name, item) in part.metrics() {
        // The collection accepts only names that a tree accepts.
        if let Err(e) = tree.insert_dynamic(name, PmId::new(domain, item)) {
            tracing::error!(source = "names of files", "{e}");
        }
    }
    tree
}
