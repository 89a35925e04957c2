//! Metrics that come and go while an agent runs.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use help::Target;
use pcp_pdu::handshake::Flags;
use pcp_pdu::metadata::TextKind;
use pmapi::label::LabelSet;
use pmapi::{Domain, Item, PmId, Serial};
use pmns::{InsertError, Node, Tree};

use crate::indom::{Fixed, Instances};
use crate::schema::{ByPmid, Indom, Metric, Mistake, Served, check_help};

/// Metrics and instance domains that an agent adds and removes while it runs (pmdaDynamicPMNS(3),
/// pmdaTreeCreate(3)).
///
/// [`Setup::dynamic`](crate::Setup::dynamic) makes one and declares below which names its metrics
/// are; the agent owns it and shows it with [`Agent::dynamic`](crate::Agent::dynamic). pmcd then asks
/// the agent for the names there, and clients are told of changes with the next values
/// (`PMDA_EXT_NAMES_CHANGE`). Everything else about these metrics is as with declared ones: values
/// come from [`Agent::fetch`](crate::Agent::fetch).
///
/// ```
/// # use pmda::prelude::*;
/// # struct Files { names: Dynamic }
/// # impl Agent for Files {
/// #     const NAME: &'static str = "files";
/// #     const DOMAIN: u16 = 400;
/// fn new(setup: &mut Setup) -> Start<Self> {
///     let mut names = setup.dynamic(["files.open"]);
///     names.insert(Metric::new("files.open.log", Item::new(1, 0), Type::U64).counter().units(Units::BYTES))?;
///     Ok(Files { names })
/// }
///
/// fn dynamic(&self) -> Option<&Dynamic> {
///     Some(&self.names)
/// }
/// #     fn fetch(&mut self, _: Item, out: &mut Values<'_>) -> Result {
/// #         out.put(1u64)
/// #     }
/// # }
/// # assert_eq!(pmda::Local::<Files>::collector()?.pmid("files.open.log")?.item(), Item::new(1, 0));
/// # Ok::<(), pmda::Failure>(())
/// ```
///
/// Adding, removing and finding a metric takes time for its own name only, however many there are.
#[derive(Debug)]
pub struct Dynamic {
    scope: Scope,
    tree: Tree,
    served: ByPmid,
    metrics: HashMap<Item, Entry>,
    indoms: HashMap<Serial, Domains>,
    changes: Version,
}

/// Which names and items are free for dynamic metrics.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) own_name: &'static str,
    /// What the agent is told of its clients.
    pub(crate) wants: Flags,
    pub(crate) name: String,
    pub(crate) domain: Domain,
    /// The names, in the agent's own terms, below which dynamic metrics are.
    pub(crate) roots: Vec<String>,
    /// The metrics that are always there, sorted by item; known when the declaration ends.
    pub(crate) declared: Arc<OnceLock<Vec<(Item, String)>>>,
}

/// How often names and labels have changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Version {
    pub(crate) names: u64,
    pub(crate) labels: u64,
}

#[derive(Debug)]
struct Entry {
    pmid: PmId,
    names: Names,
    text: Help,
    labels: Option<Box<LabelSet>>,
}

#[derive(Debug)]
struct Domains {
    instances: Fixed,
    text: Help,
    labels: Option<Box<LabelSet>>,
}

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
            served: ByPmid::default(),
            metrics: HashMap::new(),
            indoms: HashMap::new(),
            changes: Version::default(),
        }
    }

    /// Lets metrics be at or below a further name. Clients see them when pmcd's name space has it as well.
    pub fn add_root(&mut self, name: &str) {
        if !self.scope.covers(&self.scope.full_name(name)) {
            self.scope.roots.push(name.to_owned());
        }
    }

    /// Adds a metric (pmdaTreeInsert(3)). Nothing has changed after an error.
    ///
    /// Whether its instance domain is known is not checked: the agent may give it with
    /// [`Agent::instances`](crate::Agent::instances) alone.
    pub fn insert(&mut self, metric: &Metric) -> Result<(), Mistake> {
        let name = self.scope.full_name(metric.name());
        self.check_scope(&name)?;
        let item = metric.item();
        if let Some(other) = self.name_of(item) {
            self.check_name(&name)?;
            return Err(Mistake::SameItem(other.to_owned(), name.into(), item));
        }
        check_help(&name, metric.oneline(), metric.text())?;
        metric.check_restriction(self.scope.wants)?;
        let labels = metric.label_set().map_err(|e| Mistake::Labels(format!("metric {name}"), e))?;
        let served = metric.served(self.scope.domain);
        self.tree.insert_dynamic(&name, served.desc.pmid).map_err(mistake)?;
        let entry = Entry {
            pmid: served.desc.pmid,
            names: Names::new(name.into()),
            text: Help::new(metric.oneline(), metric.text()),
            labels: boxed(labels),
        };
        self.metrics.insert(item, entry);
        self.served.insert(served);
        self.changes.names += 1;
        Ok(())
    }

    /// Gives a metric another name. Nothing has changed after an error.
    pub fn alias(&mut self, name: &str, item: Item) -> Result<(), Mistake> {
        let name = self.scope.full_name(name);
        self.check_scope(&name)?;
        self.check_name(&name)?;
        let entry = self.metrics.get_mut(&item).ok_or_else(|| Mistake::NoMetric(name.clone().into_owned(), item))?;
        self.tree.insert_dynamic(&name, entry.pmid).map_err(mistake)?;
        entry.names.push(name.into());
        self.changes.names += 1;
        Ok(())
    }

    /// Removes a name and all names below it; how many were metrics'. A metric whose last name is
    /// removed is gone.
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
                self.served.remove(*pmid);
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
            self.served.clear();
            self.changes.names += 1;
        }
    }

    /// Replaces the labels of a metric, as [`Metric::labels`] gives them; `None` when there is no such
    /// metric. Clients are told with the next values (`PMDA_EXT_LABEL_CHANGE`).
    pub fn set_labels(&mut self, item: Item, labels: LabelSet) -> Option<()> {
        self.metrics.get_mut(&item)?.labels = boxed(labels);
        self.changes.labels += 1;
        Some(())
    }

    /// Adds an instance domain, or replaces it: its help, labels and, unless
    /// [`Agent::instances`](crate::Agent::instances) gives them, instances.
    pub fn insert_indom(&mut self, indom: &Indom) -> Result<(), Mistake> {
        let serial = indom.serial();
        let mut mistakes = Vec::new();
        indom.check(&mut mistakes);
        mistakes.into_iter().next().map_or(Ok(()), Err)?;
        let labels = indom.label_set().map_err(|e| Mistake::Labels(format!("instance domain {serial}"), e))?;
        let text = Help::new(indom.oneline(), indom.text());
        let domain = Domains { instances: indom.fixed().clone(), text, labels: boxed(labels) };
        let new = domain.labels.clone();
        let old = self.indoms.insert(serial, domain).and_then(|old| old.labels);
        self.changes.labels += u64::from(old != new);
        Ok(())
    }

    /// Removes an instance domain; whether it was there.
    pub fn remove_indom(&mut self, serial: Serial) -> bool {
        self.indoms.remove(&serial).is_some()
    }

    /// The metric of a name.
    pub fn item(&self, name: &str) -> Option<Item> {
        Some(self.node(&self.scope.full_name(name))?.pmid()?.item())
    }

    /// The names of a metric, the newest first; none when there is no such metric.
    pub fn names(&self, item: Item) -> impl Iterator<Item = &str> + Clone {
        self.metrics.get(&item).into_iter().flat_map(|entry| entry.names.iter())
    }

    /// The metrics, in no order.
    pub fn items(&self) -> impl Iterator<Item = Item> {
        self.metrics.keys().copied()
    }

    /// How many metrics there are.
    pub fn len(&self) -> usize {
        self.metrics.len()
    }

    /// Whether there is no metric.
    pub fn is_empty(&self) -> bool {
        self.metrics.is_empty()
    }

    /// A name that may be dynamic.
    fn check_scope(&self, name: &str) -> Result<(), Mistake> {
        if self.scope.covers(name) { Ok(()) } else { Err(Mistake::NotDynamic(name.to_owned())) }
    }

    /// A name that is free.
    fn check_name(&self, name: &str) -> Result<(), Mistake> {
        match self.node(name) {
            None => Ok(()),
            Some(node) if node.pmid().is_some() => Err(Mistake::Twice(name.to_owned())),
            Some(_) => Err(Mistake::Inner(name.to_owned())),
        }
    }

    /// The name of the metric that has an item already.
    fn name_of(&self, item: Item) -> Option<&str> {
        let declared = || self.scope.declared.get()?.binary_search_by_key(&item, |(item, _)| *item).ok();
        let declared = || Some(self.scope.declared.get()?.get(declared()?)?.1.as_str());
        self.names(item).next().or_else(declared)
    }

    fn node(&self, name: &str) -> Option<Node<'_>> {
        // The empty name is that of the root, which no client can name.
        self.tree.node(name).filter(|node| node.parent().is_some())
    }
}

/// What the engine asks.
impl Dynamic {
    pub(crate) fn version(&self) -> Version {
        self.changes
    }

    pub(crate) fn find(&self, pmid: PmId) -> Option<&Served> {
        self.served.find(pmid)
    }

    pub(crate) fn instances(&self, serial: Serial) -> Option<&dyn Instances> {
        self.indoms.get(&serial).map(|domain| &domain.instances as &dyn Instances)
    }

    pub(crate) fn text(&self, target: Target, kind: TextKind) -> Option<&[u8]> {
        let help = match target {
            Target::Metric(pmid) => &self.metrics.get(&self.find(pmid)?.item)?.text,
            Target::InDom(indom) if indom.domain() == self.scope.domain => &self.indoms.get(&indom.serial())?.text,
            Target::InDom(_) => return None,
        };
        help.of(kind)
    }

    pub(crate) fn labels(&self, item: Item) -> Option<&LabelSet> {
        self.metrics.get(&item)?.labels.as_deref()
    }

    pub(crate) fn indom_labels(&self, serial: Serial) -> Option<&LabelSet> {
        self.indoms.get(&serial)?.labels.as_deref()
    }

    /// The names of a PMID, the newest first (pmdaTreeName(3)).
    pub(crate) fn names_of(&self, pmid: PmId) -> Option<impl Iterator<Item = &str>> {
        let entry = self.metrics.get(&pmid.item()).filter(|entry| entry.pmid == pmid)?;
        Some(entry.names.iter())
    }

    /// The metric of a name (pmdaTreePMID(3)).
    pub(crate) fn lookup(&self, name: &str) -> Option<PmId> {
        self.node(name)?.pmid()
    }

    /// The nodes directly below a name, the newest first (pmdaTreeChildren(3)).
    pub(crate) fn children(&self, name: &str) -> Option<impl Iterator<Item = Node<'_>>> {
        Some(self.node(name)?.children().rev())
    }

    /// The metrics at or below a name.
    pub(crate) fn items_below(&self, name: &str) -> Option<impl Iterator<Item = Item>> {
        Some(self.node(name)?.leaves().filter_map(|leaf| Some(leaf.pmid()?.item())))
    }

    /// Gives the names of the metrics at or below a name, the newest first at each node (pmdaTreeChildren(3)).
    pub(crate) fn traverse(&self, name: &str, give: &mut dyn FnMut(&str)) -> Option<()> {
        self.node(name)?.each_name(give);
        Some(())
    }
}

/// The names of a metric, of which there is always one.
#[derive(Debug)]
struct Names {
    newest: Box<str>,
    /// The oldest first.
    others: Vec<Box<str>>,
}

impl Names {
    fn new(name: Box<str>) -> Names {
        Names { newest: name, others: Vec::new() }
    }

    fn push(&mut self, name: Box<str>) {
        self.others.push(std::mem::replace(&mut self.newest, name));
    }

    /// Removes a name; false when it is the last one, which stays.
    fn remove(&mut self, name: &str) -> bool {
        if *self.newest != *name {
            self.others.retain(|other| **other != *name);
            return true;
        }
        self.others.pop().map(|newest| self.newest = newest).is_some()
    }

    /// The newest first.
    fn iter(&self) -> impl Iterator<Item = &str> + Clone {
        std::iter::once(&self.newest).chain(self.others.iter().rev()).map(|name| &**name)
    }
}

impl Help {
    fn new(oneline: &str, text: &str) -> Help {
        Help { oneline: oneline.into(), text: text.into() }
    }

    fn of(&self, kind: TextKind) -> Option<&[u8]> {
        let none = self.oneline.is_empty() && self.text.is_empty();
        let text = match kind {
            TextKind::OneLine => &self.oneline,
            TextKind::Help => &self.text,
        };
        (!none).then_some(text.as_bytes())
    }
}

impl Scope {
    /// A name under the agent's name in PCP.
    fn full_name<'a>(&self, name: &'a str) -> Cow<'a, str> {
        match name.strip_prefix(self.own_name) {
            Some(rest) if self.name != self.own_name && (rest.is_empty() || rest.starts_with('.')) => {
                Cow::Owned(format!("{}{rest}", self.name))
            }
            _ => Cow::Borrowed(name),
        }
    }

    /// Whether a full name is at or below one of the roots.
    fn covers(&self, name: &str) -> bool {
        self.roots.iter().any(|root| {
            let rest = name.strip_prefix(&*self.full_name(root));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
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
