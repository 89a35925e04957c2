//! Metrics and instance domains as an agent declares them.

use pcp_pdu::handshake::Flags;
use pmapi::label::{LabelError, LabelSet};
use pmapi::{Desc, Domain, InDom, Item, PmId, Semantics, Serial, Type, Units};
use serde::Serialize;

use super::{Mistake, Served};
use crate::indom::Fixed;

/// Labels, or what is wrong with them.
pub(super) type Labels = Result<LabelSet, String>;

/// A metric of an agent: declared with [`Setup::metric`](super::Setup::metric), or added while the
/// agent runs with [`Dynamic::insert`](crate::Dynamic::insert).
#[derive(Clone, Debug)]
pub struct Metric {
    pub(super) name: String,
    pub(super) item: Item,
    pub(super) ty: Type,
    pub(super) indom: Option<Serial>,
    pub(super) semantics: Semantics,
    pub(super) units: Units,
    pub(super) oneline: String,
    pub(super) text: String,
    pub(super) storable: bool,
    pub(super) restricted: bool,
    pub(super) parameter: bool,
    pub(super) labels: Labels,
}

/// An instance domain of an agent: declared with [`Setup::indom`](super::Setup::indom), or added
/// while the agent runs with [`Dynamic::insert_indom`](crate::Dynamic::insert_indom).
#[derive(Clone, Debug)]
pub struct Indom {
    pub(super) serial: Serial,
    pub(super) instances: Fixed,
    pub(super) oneline: String,
    pub(super) text: String,
    pub(super) labels: Labels,
}

/// Adds labels to those that are there, if all are in order.
pub(super) fn add(labels: &mut Labels, more: impl FnOnce(&mut LabelSet) -> Result<(), LabelError>) {
    if let Ok(set) = labels
        && let Err(e) = more(set)
    {
        *labels = Err(e.to_string());
    }
}

impl Metric {
    /// A metric by its full name, for instance `simple.color`: singular, instantaneous, without units.
    pub fn new(name: impl Into<String>, item: Item, ty: Type) -> Metric {
        Metric {
            name: name.into(),
            item,
            ty,
            indom: None,
            semantics: Semantics::Instant,
            units: Units::NONE,
            oneline: String::new(),
            text: String::new(),
            storable: false,
            restricted: false,
            parameter: false,
            labels: Ok(LabelSet::new()),
        }
    }

    /// The instance domain of the values. Without one the metric is singular.
    pub fn indom(&mut self, indom: Serial) -> &mut Self {
        self.indom = Some(indom);
        self
    }

    /// Values count up, never down (`PM_SEM_COUNTER`).
    pub fn counter(&mut self) -> &mut Self {
        self.semantics = Semantics::Counter;
        self
    }

    /// Values change seldom or in steps (`PM_SEM_DISCRETE`). Without this and without
    /// [`Metric::counter`] they are instantaneous (`PM_SEM_INSTANT`).
    pub fn discrete(&mut self) -> &mut Self {
        self.semantics = Semantics::Discrete;
        self
    }

    /// Dimension and scale of the values. Without them they have none.
    pub fn units(&mut self, units: Units) -> &mut Self {
        self.units = units;
        self
    }

    /// Help: one line, and a text of any length.
    pub fn help(&mut self, oneline: impl Into<String>, text: impl Into<String>) -> &mut Self {
        self.oneline = oneline.into();
        self.text = text.into();
        self
    }

    /// A parameter of events: the agent is not asked for values, and there are none outside of events.
    pub fn parameter(&mut self) -> &mut Self {
        self.parameter = true;
        self
    }

    /// Clients may store values: [`Agent::store`](crate::Agent::store) is called.
    pub fn storable(&mut self) -> &mut Self {
        self.storable = true;
        self
    }

    /// Administrators may store values: root, PCP's user, and the user that the agent runs as. Everybody else gets
    /// `PM_ERR_PERMISSION`, and so does a client that pmcd does not know the user of, unless the agent was started with
    /// `--open-control` or has `PMDA_OPEN_CONTROL` in its environment or in pcp.conf. For what changes the agent for all its clients.
    ///
    /// [`Agent::WANTS`](crate::Agent::WANTS) has to have [`Flags::AUTHORIZE`](pcp_pdu::handshake::Flags::AUTHORIZE).
    pub fn restricted(&mut self) -> &mut Self {
        self.storable = true;
        self.restricted = true;
        self
    }

    /// Labels of the metric: a value that serializes to an object, for instance `json!({"a": 1})`, or
    /// the JSON text of one (pmdaAddLabels(3)).
    pub fn labels(&mut self, labels: impl Serialize) -> &mut Self {
        add(&mut self.labels, |set| set.add(labels));
        self
    }

    /// Labels that do not identify the metric (pmdaAddNotes(3)).
    pub fn notes(&mut self, notes: impl Serialize) -> &mut Self {
        add(&mut self.labels, |set| set.add_notes(notes));
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Cluster and item.
    pub fn item(&self) -> Item {
        self.item
    }

    /// The help in one line.
    pub fn oneline(&self) -> &str {
        &self.oneline
    }

    /// The full help.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The descriptor in a domain.
    pub fn desc(&self, domain: Domain) -> Desc {
        Desc {
            pmid: PmId::new(domain, self.item),
            ty: self.ty,
            indom: self.indom.map(|serial| InDom::new(domain, serial)),
            semantics: self.semantics,
            units: self.units,
        }
    }

    pub(crate) fn served(&self, domain: Domain) -> Served {
        let Metric { item, storable, restricted, parameter, .. } = *self;
        Served { desc: self.desc(domain), item, storable, restricted, parameter }
    }

    pub(crate) fn label_set(&self) -> Labels {
        self.labels.clone()
    }

    /// Returns the mistake of restricting stores without asking who clients are.
    pub(crate) fn check_restriction(&self, wants: Flags) -> Result<(), Mistake> {
        let known = !self.restricted || wants.contains(Flags::AUTHORIZE);
        if known { Ok(()) } else { Err(Mistake::Restricted(self.name.clone())) }
    }
}

impl Indom {
    /// An instance domain without instances, help and labels.
    pub fn new(serial: Serial) -> Indom {
        let labels = Ok(LabelSet::new());
        Indom { serial, instances: Fixed::default(), oneline: String::new(), text: String::new(), labels }
    }

    /// The instances, when they are known from the start. A domain that changes is given by
    /// [`Agent::instances`](crate::Agent::instances) instead.
    pub fn instances(&mut self, instances: impl IntoIterator<Item = (u32, impl AsRef<str>)>) -> &mut Self {
        self.instances = instances.into_iter().collect();
        self
    }

    /// Help: one line, and a text of any length.
    pub fn help(&mut self, oneline: impl Into<String>, text: impl Into<String>) -> &mut Self {
        self.oneline = oneline.into();
        self.text = text.into();
        self
    }

    /// Labels of the domain, as [`Metric::labels`].
    pub fn labels(&mut self, labels: impl Serialize) -> &mut Self {
        add(&mut self.labels, |set| set.add(labels));
        self
    }

    /// Labels that do not identify the domain, as [`Metric::notes`].
    pub fn notes(&mut self, notes: impl Serialize) -> &mut Self {
        add(&mut self.labels, |set| set.add_notes(notes));
        self
    }

    /// The number.
    pub fn serial(&self) -> Serial {
        self.serial
    }

    /// The help in one line.
    pub fn oneline(&self) -> &str {
        &self.oneline
    }

    /// The full help.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn label_set(&self) -> Labels {
        self.labels.clone()
    }

    pub(crate) fn fixed(&self) -> &Fixed {
        &self.instances
    }
}
