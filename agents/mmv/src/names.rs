//! Names and descriptors of exported metrics.

use mmv_reader::collection::MetricDesc;
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
        let item = self.item(pmid)?;
        if item.cluster() == CONTROL_CLUSTER {
            return limits::desc(pmid).map(MetricInfo::from);
        }
        let MetricDesc { item, ty, indom, semantics, units, .. } = self.files.desc(item).ok()?;
        let pmid = PmId::new(self.domain, item);
        let indom = indom.map(|serial| InDom::new(self.domain, serial));
        Some(Desc { pmid, ty: ty.exported(), indom, semantics, units }.into())
    }

    fn lookup(&self, name: &str) -> Option<PmId> {
        let hidden = self.hidden.as_ref().and_then(|hidden| hidden.node(name)?.pmid());
        hidden.or_else(|| Some(PmId::new(self.domain, self.files.item(name).ok()?)))
    }

    fn names(&self, pmid: PmId, give: &mut dyn FnMut(&str)) -> Option<()> {
        let hidden = self.hidden.as_ref().and_then(|hidden| hidden.names(pmid).next());
        hidden.or_else(|| self.files.name(self.item(pmid)?).ok()).map(|name| give(&name))
    }

    fn children(&self, name: &str, give: &mut dyn FnMut(&str, bool)) -> Option<()> {
        let children = self.tree_of(name).node(name)?.children().rev();
        // The agent's own metrics have this node, too.
        let shown = children.filter(|child| name != self.prefix || child.name() != CONTROL);
        shown.for_each(|child| give(child.name(), child.pmid().is_some()));
        Some(())
    }

    fn traverse(&self, name: &str, give: &mut dyn FnMut(&str)) -> Option<()> {
        let node = self.tree_of(name).node(name)?;
        if name != self.prefix {
            node.each_name(give);
            return Some(());
        }
        // The node `control` was registered first, so it comes last here.
        let (control, others): (Vec<_>, Vec<_>) = node.children().rev().partition(|child| child.name() == CONTROL);
        others.into_iter().chain(control).for_each(|child| child.each_name(give));
        Some(())
    }
}

/// The component above the agent's own metrics.
const CONTROL: &str = "control";

impl<const DOMAIN: u16> Files<DOMAIN> {
    /// Updates the agent after a check of the files.
    pub(crate) fn take_note(&mut self, changed: bool) {
        if self.hidden.is_some() && limits::is_any_exceeded(&self.files) {
            self.show_limits();
        }
        if changed {
            self.version += 1;
            self.domains.clear();
            tracing::debug!("{}: {} files", self.prefix, self.files.file_count());
        }
    }

    /// Returns the names of the limits' metrics.
    pub(crate) fn hidden(prefix: &str, domain: pmda::pmapi::Domain) -> Tree {
        let mut tree = Tree::new();
        for metric in limits::METRICS.metrics(prefix) {
            if let Err(e) = tree.insert_dynamic(metric.name(), PmId::new(domain, metric.item())) {
                tracing::error!("{prefix}: {e}");
            }
        }
        tree
    }

    /// Returns the tree that has a name: that of hidden metrics for the node of the limits and below.
    fn tree_of(&self, name: &str) -> &Tree {
        let below = name.strip_prefix(&*self.prefix).and_then(|name| name.strip_prefix('.')).unwrap_or_default();
        let is_of_limits =
            below.strip_prefix(limits::NODE).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        self.hidden.as_ref().filter(|_| is_of_limits).unwrap_or_else(|| self.files.names())
    }

    fn item(&self, pmid: PmId) -> Option<Item> {
        (pmid.domain() == self.domain).then(|| pmid.item())
    }
}
