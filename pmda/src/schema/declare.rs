//! Metrics and instance domains as an agent declares them.

use pmapi::{Desc, Domain, InDom, Inst, Item, PmId, Semantics, Serial, Type, Units};

/// A declared metric.
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
    pub(super) labels: Option<serde_json::Value>,
}

/// A declared instance domain.
#[derive(Clone, Debug)]
pub struct Indom {
    pub(super) serial: Serial,
    pub(super) instances: Vec<(Inst, String)>,
    pub(super) oneline: String,
    pub(super) text: String,
    pub(super) labels: Option<serde_json::Value>,
}

impl Metric {
    pub(super) fn new(name: String, item: Item, ty: Type) -> Metric {
        Metric {
            name,
            item,
            ty,
            indom: None,
            semantics: Semantics::Instant,
            units: Units::NONE,
            oneline: String::new(),
            text: String::new(),
            storable: false,
            labels: None,
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

    /// Clients may store values: [`Agent::store`](crate::Agent::store) is called.
    pub fn storable(&mut self) -> &mut Self {
        self.storable = true;
        self
    }

    /// Labels of the metric: an object of names and values, for instance `json!({"a": 1})`.
    pub fn labels(&mut self, labels: serde_json::Value) -> &mut Self {
        self.labels = Some(labels);
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
}

impl Indom {
    pub(super) fn new(serial: Serial) -> Indom {
        Indom { serial, instances: Vec::new(), oneline: String::new(), text: String::new(), labels: None }
    }

    /// The instances, when they are known from the start. A domain that changes is given by
    /// [`Agent::instances`](crate::Agent::instances) instead.
    pub fn instances<'a>(&mut self, instances: impl IntoIterator<Item = (u32, &'a str)>) -> &mut Self {
        // PM_IN_NULL cannot be an instance; as a large number it fails as a mistake, not silently.
        let inst = |id: u32| Inst::from_word(id).unwrap_or(Inst::new(u32::MAX - 1));
        self.instances = instances.into_iter().map(|(id, name)| (inst(id), name.to_owned())).collect();
        self
    }

    /// Help: one line, and a text of any length.
    pub fn help(&mut self, oneline: impl Into<String>, text: impl Into<String>) -> &mut Self {
        self.oneline = oneline.into();
        self.text = text.into();
        self
    }

    /// Labels of the domain: an object of names and values, for instance `json!({"a": 1})`.
    pub fn labels(&mut self, labels: serde_json::Value) -> &mut Self {
        self.labels = Some(labels);
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
}
