//! Names and descriptors of the metrics of files.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use mmv::collection::{Collection, MetricDesc, Part};
use pmda::pmapi::{Desc, InDom, PmId};
use pmda::prelude::*;
use pmns::Tree;

use crate::Files;

impl<const DOMAIN: u16> Catalog for Files<DOMAIN> {
    fn version(&self) -> u64 {
        self.version
    }

    fn desc(&self, pmid: PmId) -> Option<Desc> {
        let MetricDesc { item, ty, indom, semantics, units } = self.files.desc(self.item(pmid)?).ok()?;
        let pmid = PmId::new(self.domain, item);
        let indom = indom.map(|serial| InDom::new(self.domain, serial));
        Some(Desc { pmid, ty: ty.exported(), indom, semantics, units })
    }

    fn lookup(&self, name: &str) -> Option<PmId> {
        Some(PmId::new(self.domain, self.files.item(name).ok()?))
    }

    fn name(&self, pmid: PmId) -> Option<&str> {
        self.files.name(self.item(pmid)?).ok()
    }

    fn children(&self, name: &str, give: &mut dyn FnMut(&str, bool)) -> Option<()> {
        if name == self.prefix {
            for (head, _) in self.files.heads().rev().filter(|(head, _)| *head != CONTROL) {
                give(head, self.files.item(&format!("{name}.{head}")).is_ok());
            }
            return Some(());
        }
        let tree = self.trees.of(self.files.part(name)?, self.domain);
        tree.node(name)?.children().rev().for_each(|node| give(node.name(), node.pmid().is_some()));
        Some(())
    }

    fn traverse(&self, name: &str, give: &mut dyn FnMut(&str)) -> Option<()> {
        if name != self.prefix {
            self.trees.of(self.files.part(name)?, self.domain).node(name)?.each_name(give);
            return Some(());
        }
        // The node that the agent's own metrics are below has been there from the start.
        let control = self.files.heads().filter(|(head, _)| *head == CONTROL);
        let others = self.files.heads().rev().filter(|(head, _)| *head != CONTROL);
        for (head, part) in others.chain(control) {
            if part.is_in_order() {
                part.metrics().rev().for_each(|(name, _)| give(name));
                continue;
            }
            let tree = self.trees.of(part, self.domain);
            tree.node(&format!("{name}.{head}"))?.each_name(give);
        }
        Some(())
    }
}

/// The component of the agent's own metrics.
const CONTROL: &str = "control";

impl<const DOMAIN: u16> Files<DOMAIN> {
    /// Files have been looked at.
    pub(crate) fn take_note(&mut self, changed: bool) {
        if changed {
            self.version += 1;
            self.trees.keep(&self.files);
            self.domains.clear();
            tracing::debug!("{}: {} files", self.prefix, self.files.file_count());
        }
    }

    fn item(&self, pmid: PmId) -> Option<Item> {
        (pmid.domain() == self.domain).then(|| pmid.item())
    }
}

/// The trees of the parts that somebody has looked into.
#[derive(Debug, Default)]
pub(crate) struct Trees(RefCell<HashMap<u64, Rc<Tree>>>);

impl Trees {
    /// Keeps the trees of parts that are as they were.
    pub(crate) fn keep(&self, files: &Collection) {
        let versions: HashSet<u64> = files.versions().collect();
        self.0.borrow_mut().retain(|version, _| versions.contains(version));
    }

    fn of(&self, part: Part<'_>, domain: pmda::pmapi::Domain) -> Rc<Tree> {
        let mut trees = self.0.borrow_mut();
        Rc::clone(trees.entry(part.version()).or_insert_with(|| {
            let mut tree = Tree::new();
            for (name, item) in part.metrics() {
                // The collection has let only names pass that a tree takes.
                if let Err(e) = tree.insert_dynamic(name, PmId::new(domain, item)) {
                    tracing::error!("{e}");
                }
            }
            Rc::new(tree)
        }))
    }
}
