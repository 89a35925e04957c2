//! Metrics that an agent adds and removes while it runs.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use pcp_pdu::handshake::Features;
use pcp_pdu::metadata::{Subject, TextKind};
use pmapi::names::{is_at_or_below, strip_node};
use pmapi::{Domain, Item, LabelSet, PmId, Serial};
use pmns::{InsertError, Node, Tree};

use crate::catalog::{Catalog, LabelSubject, MetricInfo, Version};
use crate::indom::{Fixed, Instances};
use crate::schema::{InDomDef, MetricDef, Mistake, check_help};

/// Metrics and instance domains that an agent adds and removes while it runs (pmdaDynamicPMNS(3),
/// pmdaTreeCreate(3)).
///
/// [`Setup::dynamic`](crate::Setup::dynamic) creates it and declares the names below which its metrics are. The agent
/// owns it and returns it from [`Agent::catalogs`](crate::Agent::catalogs). pmcd then asks the agent for the names
/// below them. Clients are notified of changes with the next values (`PMDA_EXT_NAMES_CHANGE`). Otherwise dynamic
/// metrics work like declared ones: values come from [`Agent::fetch`](crate::Agent::fetch).
///
/// ```
/// # use pmda::prelude::*;
/// # struct Files { names: Dynamic }
/// # impl Agent for Files {
/// #     const NAME: &'static str = "files";
/// #     const DOMAIN: u16 = 400;
/// fn new(setup: &mut Setup) -> Result<Self, BoxError> {
///     let mut names = setup.dynamic(["files.open"]);
///     names.insert(MetricDef::new("files.open.log", Item::new(1, 0), Type::U64).counter().units(Units::BYTES))?;
///     Ok(Files { names })
/// }
///
/// fn catalogs(&self) -> impl IntoIterator<Item = &dyn Catalog> {
///     [&self.names as &dyn Catalog]
/// }
/// #     fn fetch(&mut self, _: Item, out: &mut Values<'_>) -> Result {
/// #         out.put(1u64)
/// #     }
/// # }
/// # assert_eq!(pcp_collector::Local::<Files>::collector()?.pmid("files.open.log")?.item(), Item::new(1, 0));
/// # Ok::<(), pmda::BoxError>(())
/// ```
///
/// The time to add, remove or find a metric does not depend on the number of metrics.
#[derive(Debug)]
pub struct Dynamic {
    scope: Scope,
    tree: Tree,
    metrics: HashMap<Item, Entry>,
    indoms: HashMap<Serial, Domains>,
    changes: Version,
}

/// The names and items that dynamic metrics may have.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) own_name: &'static str,
    /// Client attributes that the agent asks for.
    pub(crate) wants: Features,
    pub(crate) name: String,
    pub(crate) domain: Domain,
    /// Names below which dynamic metrics are, in the agent's own terms.
    pub(crate) roots: Vec<String>,
    /// Declared metrics, sorted by item; set when the declarations are complete.
    pub(crate) declared: Arc<OnceLock<Vec<(Item, String)>>>,
}

/// A metric with its names, help and labels. Short, because an agent may have very many metrics, most of them with one name and
/// with help and labels that the agent itself returns.
#[derive(Debug)]
struct Entry {
    info: MetricInfo,
    names: Names,
    text: Option<Box<Help>>,
    labels: Option<Box<LabelSet>>,
}

#[derive(Debug)]
struct Domains {
    instances: Fixed,
    text: Option<Box<Help>>,
    labels: Option<Box<LabelSet>>,
}

/// Help that is not empty.
#[derive(Debug)]
struct Help {
    oneline: Box<str>,
    text: Box<str>,
}

impl Dynamic {
    pub(crate) fn new(scope: Scope) -> Dynamic {
        Dynamic {
            scope,
            tree: Tree::new(),
            metrics: HashMap::new(),
            indoms: HashMap::new(),
            changes: Version::default(),
        }
    }

    /// Allows metrics at or below another name. Clients see them when pmcd's name space has the name as well.
    pub fn add_root(&mut self, name: &str) {
        if !self.scope.covers(&self.scope.full_name(name)) {
            self.scope.roots.push(name.to_owned());
        }
    }

    /// Adds a metric (pmdaTreeInsert(3)).
    ///
    /// The agent need not have declared its instance domain: [`Agent::instances`](crate::Agent::instances) may supply
    /// it.
    ///
    /// # Errors
    /// A [`Mistake`] for a name that is invalid, in use or not below a dynamic name, for an item in use, or for invalid
    /// help, labels or restriction. After an error, nothing has changed.
    pub fn insert(&mut self, metric: &MetricDef) -> Result<(), Mistake> {
        let name = self.scope.full_name(metric.name());
        self.check_scope(&name)?;
        let item = metric.item();
        if let Some(other) = self.name_of(item) {
            self.check_name(&name)?;
            return Err(Mistake::SameItem { first: other.to_owned(), second: name.into(), item });
        }
        check_help(&name, metric.oneline(), metric.text())?;
        metric.check_restriction(self.scope.wants)?;
        metric.check_no_getter()?;
        let labels = metric.label_set().map_err(|reason| Mistake::Labels { of: format!("metric {name}"), reason })?;
        let info = metric.info(self.scope.domain);
        self.tree.insert_dynamic(&name, info.desc.pmid).map_err(mistake)?;
        let entry = Entry {
            info,
            names: Names::new(name.into()),
            text: Help::new(metric.oneline(), metric.text()),
            labels: boxed(labels),
        };
        self.metrics.insert(item, entry);
        self.changes.names += 1;
        Ok(())
    }

    /// Gives a metric another name.
    ///
    /// # Errors
    /// [`Mistake::NoMetric`] for an unknown item; another [`Mistake`] when the name is invalid, in use or not below a
    /// dynamic name. After an error, nothing has changed.
    pub fn alias(&mut self, name: &str, item: Item) -> Result<(), Mistake> {
        let name = self.scope.full_name(name);
        self.check_scope(&name)?;
        self.check_name(&name)?;
        let entry =
            self.metrics.get_mut(&item).ok_or_else(|| Mistake::NoMetric { alias: name.clone().into_owned(), item })?;
        self.tree.insert_dynamic(&name, PmId::new(self.scope.domain, item)).map_err(mistake)?;
        entry.names.push(name.into());
        self.changes.names += 1;
        Ok(())
    }

    /// Removes a name and all names below it, and returns how many of them were names of metrics. A metric without a
    /// name is removed as well.
    pub fn remove(&mut self, name: &str) -> usize {
        let name = self.scope.full_name(name);
        let removed: Vec<(String, PmId)> = match self.node(&name) {
            Some(node) => node.leaves().filter_map(|leaf| Some((leaf.path(), leaf.pmid()?))).collect(),
            None => return 0,
        };
        self.tree.remove(&name);
        for (name, pmid) in &removed {
            if self.metrics.get_mut(&pmid.item()).is_some_and(|entry| !entry.names.remove(name)) {
                self.metrics.remove(&pmid.item());
            }
        }
        self.changes.names += 1;
        removed.len()
    }

    /// Removes all metrics.
    pub fn clear(&mut self) {
        if !self.is_empty() {
            self.tree = Tree::new();
            self.metrics.clear();
            self.changes.names += 1;
        }
    }

    /// Replaces the labels of a metric (see [`MetricDef::labels`]); `None` for an unknown metric. Clients are notified
    /// with the next values (`PMDA_EXT_LABEL_CHANGE`).
    pub fn set_labels(&mut self, item: Item, labels: LabelSet) -> Option<()> {
        self.metrics.get_mut(&item)?.labels = boxed(labels);
        self.changes.labels += 1;
        Some(())
    }

    /// Adds or replaces an instance domain, with its help, labels and instances.
    /// [`Agent::instances`](crate::Agent::instances) takes precedence for the instances.
    ///
    /// # Errors
    /// The first [`Mistake`] in its instances, help or labels. After an error, nothing has changed.
    pub fn insert_indom(&mut self, indom: &InDomDef) -> Result<(), Mistake> {
        let serial = indom.serial();
        let mut mistakes = Vec::new();
        indom.check(&mut mistakes);
        mistakes.into_iter().next().map_or(Ok(()), Err)?;
        let labels =
            indom.label_set().map_err(|reason| Mistake::Labels { of: format!("instance domain {serial}"), reason })?;
        let text = Help::new(indom.oneline(), indom.text());
        let domain = Domains { instances: indom.fixed().clone(), text, labels: boxed(labels) };
        let new = domain.labels.clone();
        let old = self.indoms.insert(serial, domain).and_then(|old| old.labels);
        self.changes.labels += u64::from(old != new);
        Ok(())
    }

    /// Removes an instance domain, and returns whether it existed.
    pub fn remove_indom(&mut self, serial: Serial) -> bool {
        let old = self.indoms.remove(&serial);
        self.changes.labels += u64::from(old.as_ref().is_some_and(|old| old.labels.is_some()));
        old.is_some()
    }

    /// Finds a metric by its name.
    pub fn item(&self, name: &str) -> Option<Item> {
        Some(self.node(&self.scope.full_name(name))?.pmid()?.item())
    }

    /// Iterates over the names of a metric, the newest first. Returns an empty iterator for an unknown metric.
    pub fn names(&self, item: Item) -> impl Iterator<Item = &str> + Clone {
        self.metrics.get(&item).into_iter().flat_map(|entry| entry.names.iter())
    }

    /// Iterates over the metrics at or below a name, for instance that of [`Request::Names`](crate::Request::Names).
    pub fn items_below(&self, name: &str) -> impl Iterator<Item = Item> {
        let leaves = self.node(&self.scope.full_name(name)).into_iter().flat_map(Node::leaves);
        leaves.filter_map(|leaf| Some(leaf.pmid()?.item()))
    }

    /// Iterates over the metrics, in no particular order.
    pub fn items(&self) -> impl Iterator<Item = Item> {
        self.metrics.keys().copied()
    }

    /// Returns the number of metrics.
    pub fn len(&self) -> usize {
        self.metrics.len()
    }

    /// Returns whether there are no metrics.
    pub fn is_empty(&self) -> bool {
        self.metrics.is_empty()
    }

    /// Checks that a name may be dynamic.
    fn check_scope(&self, name: &str) -> Result<(), Mistake> {
        if self.scope.covers(name) { Ok(()) } else { Err(Mistake::NotDynamic(name.to_owned())) }
    }

    /// Checks that a name is free.
    fn check_name(&self, name: &str) -> Result<(), Mistake> {
        match self.node(name) {
            None => Ok(()),
            Some(node) if node.pmid().is_some() => Err(Mistake::Twice(name.to_owned())),
            Some(_) => Err(Mistake::Inner(name.to_owned())),
        }
    }

    /// Returns a name of the metric that has this item, dynamic or declared.
    fn name_of(&self, item: Item) -> Option<&str> {
        let declared = || self.scope.declared.get()?.binary_search_by_key(&item, |(item, _)| *item).ok();
        let declared = || Some(self.scope.declared.get()?.get(declared()?)?.1.as_str());
        self.names(item).next().or_else(declared)
    }

    fn entry(&self, pmid: PmId) -> Option<&Entry> {
        self.metrics.get(&pmid.item()).filter(|_| pmid.domain() == self.scope.domain)
    }

    fn node(&self, name: &str) -> Option<Node<'_>> {
        // The empty name is that of the root, which no client can request.
        self.tree.node(name).filter(|node| node.parent().is_some())
    }
}

impl Catalog for Dynamic {
    fn version(&self) -> Version {
        self.changes
    }

    fn metric(&self, pmid: PmId) -> Option<MetricInfo> {
        self.entry(pmid).map(|entry| entry.info)
    }

    fn lookup(&self, name: &str) -> Option<PmId> {
        self.node(name)?.pmid()
    }

    fn names(&self, pmid: PmId, give: &mut dyn FnMut(&str)) -> Option<()> {
        self.entry(pmid)?.names.iter().for_each(give);
        Some(())
    }

    fn children(&self, name: &str, give: &mut dyn FnMut(&str, bool)) -> Option<()> {
        self.node(name)?.children().rev().for_each(|child| give(child.name(), child.pmid().is_some()));
        Some(())
    }

    fn traverse(&self, name: &str, give: &mut dyn FnMut(&str)) -> Option<()> {
        self.node(name)?.each_name(give);
        Some(())
    }

    fn instances(&self, serial: Serial) -> Option<&dyn Instances> {
        self.indoms.get(&serial).map(|domain| &domain.instances as &dyn Instances)
    }

    fn text(&self, of: Subject, kind: TextKind) -> Option<&[u8]> {
        let help = match of {
            Subject::Metric(pmid) => &self.entry(pmid)?.text,
            Subject::InDom(indom) if indom.domain() == self.scope.domain => &self.indoms.get(&indom.serial())?.text,
            Subject::InDom(_) => return None,
        };
        Some(help.as_ref()?.of(kind))
    }

    fn labels(&self, of: LabelSubject) -> Option<&LabelSet> {
        match of {
            LabelSubject::Item(item) => self.metrics.get(&item)?.labels.as_deref(),
            LabelSubject::InDom(serial) => self.indoms.get(&serial)?.labels.as_deref(),
            _ => None,
        }
    }
}

/// The names of a metric, at least one.
#[derive(Debug)]
struct Names {
    newest: Box<str>,
    /// Other names, the oldest first. Few metrics have any.
    others: Option<Box<Others>>,
}

#[derive(Debug, Default)]
struct Others(Vec<Box<str>>);

impl Names {
    fn new(name: Box<str>) -> Names {
        Names { newest: name, others: None }
    }

    fn push(&mut self, name: Box<str>) {
        self.others.get_or_insert_default().0.push(std::mem::replace(&mut self.newest, name));
    }

    /// Removes a name. Returns false for the last name, which is not removed.
    fn remove(&mut self, name: &str) -> bool {
        if *self.newest != *name {
            self.others.iter_mut().for_each(|others| others.0.retain(|other| **other != *name));
            return true;
        }
        self.others.as_mut().and_then(|others| others.0.pop()).map(|newest| self.newest = newest).is_some()
    }

    /// Iterates over the names, the newest first.
    fn iter(&self) -> impl Iterator<Item = &str> + Clone {
        let others = self.others.iter().flat_map(|others| others.0.iter().rev());
        std::iter::once(&self.newest).chain(others).map(|name| &**name)
    }
}

impl Help {
    fn new(oneline: &str, text: &str) -> Option<Box<Help>> {
        let is_empty = oneline.is_empty() && text.is_empty();
        (!is_empty).then(|| Box::new(Help { oneline: oneline.into(), text: text.into() }))
    }

    fn of(&self, kind: TextKind) -> &[u8] {
        match kind {
            TextKind::OneLine => self.oneline.as_bytes(),
            TextKind::Help => self.text.as_bytes(),
        }
    }
}

impl Scope {
    /// Returns the full name, in which the agent's name in PCP replaces its own name.
    fn full_name<'a>(&self, name: &'a str) -> Cow<'a, str> {
        match strip_node(name, self.own_name) {
            Some(rest) if self.name != self.own_name => Cow::Owned(format!("{}{rest}", self.name)),
            _ => Cow::Borrowed(name),
        }
    }

    /// Returns whether a full name is at or below one of the roots.
    fn covers(&self, name: &str) -> bool {
        self.roots.iter().any(|root| is_at_or_below(name, &self.full_name(root)))
    }
}

fn boxed(labels: LabelSet) -> Option<Box<LabelSet>> {
    Some(labels).filter(|labels| !labels.is_empty()).map(Box::new)
}

fn mistake(e: InsertError) -> Mistake {
    match e {
        InsertError::Name(name) => Mistake::Name(name),
        InsertError::Pmid { name, present: Some(_), .. } => Mistake::Twice(name),
        InsertError::Pmid { name, present: None, .. } => Mistake::Inner(name),
        InsertError::BelowMetric { metric, .. } => Mistake::Inner(metric),
    }
}
