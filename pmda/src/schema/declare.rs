//! Declarations of metrics and instance domains.

use pcp_pdu::handshake::Features;
use pmapi::{Desc, Domain, InDom, Item, LabelError, LabelSet, PmId, Semantics, Serial, Type, Units};
use serde::Serialize;

use super::Mistake;
use crate::catalog::MetricInfo;
use crate::fixed_limit::FixedLimit;
use crate::indom::Fixed;
use crate::values::{Erased, Value};

/// Labels, or the reason why they are invalid.
pub(crate) type LabelResult = Result<LabelSet, String>;

/// Declaration of a metric: with [`Setup::metric`](crate::Setup::metric), or with
/// [`Dynamic::insert`](crate::Dynamic::insert) while the agent runs.
///
/// A declaration is also a value, which [`Setup::add`](crate::Setup::add) declares. The methods return the declaration
/// that they have changed, so that a function for many similar metrics ends with `clone()`:
///
/// ```
/// # use pmda::prelude::*;
/// # fn declare(setup: &mut Setup) {
/// const DISK: Serial = Serial::new(0);
/// let metric = |name: &str, item| {
///     let name = format!("disk.{name}");
///     MetricDef::new(name, Item::new(0, item), Type::U64).indom(DISK).units(Units::COUNT).clone()
/// };
/// setup.add(metric("reads", 0).counter().help("Reads", "Since the host has started."));
/// setup.add(metric("queue", 1).help("Requests that wait", "Now."));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MetricDef {
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
    /// Whether the metric has no values outside of events.
    pub(super) parameter: bool,
    pub(super) labels: LabelResult,
    pub(super) getter: Option<Erased>,
}

/// Declaration of an instance domain: with [`Setup::indom`](crate::Setup::indom), or with
/// [`Dynamic::insert_indom`](crate::Dynamic::insert_indom) while the agent runs.
#[derive(Clone, Debug)]
pub struct InDomDef {
    pub(super) serial: Serial,
    pub(super) instances: Fixed,
    pub(super) oneline: String,
    pub(super) text: String,
    pub(super) labels: LabelResult,
}

/// Adds labels, unless earlier ones were invalid.
pub(crate) fn add(labels: &mut LabelResult, more: impl FnOnce(&mut LabelSet) -> Result<(), LabelError>) {
    if let Ok(set) = labels {
        if let Err(e) = more(set) {
            *labels = Err(e.to_string());
        }
    }
}

impl MetricDef {
    /// A metric with a full name, for instance `simple.color`. It is singular, instantaneous and without units.
    pub fn new(name: impl Into<String>, item: Item, ty: Type) -> MetricDef {
        MetricDef {
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
            getter: None,
        }
    }

    /// Creates the metric of a limit of the framework, whose value is [`FixedLimit::exceeded`]. Its name is that of
    /// the limit below `prefix`, such as `AGENT.control.limits`.
    pub fn of_limit(limit: FixedLimit, prefix: &str, item: Item) -> MetricDef {
        let mut metric = MetricDef::new(format!("{prefix}.{}", limit.name()), item, Type::U64);
        metric.counter().units(Units::COUNT).help("What a limit of the framework has left out", limit.help());
        metric
    }

    /// Sets the instance domain. Without one the metric is singular.
    pub fn indom(&mut self, indom: Serial) -> &mut Self {
        self.indom = Some(indom);
        self
    }

    /// Removes the instance domain.
    pub(crate) fn singular(&mut self) -> &mut Self {
        self.indom = None;
        self
    }

    /// Declares that values only count up (`PM_SEM_COUNTER`).
    pub fn counter(&mut self) -> &mut Self {
        self.semantics = Semantics::Counter;
        self
    }

    /// Declares that values change seldom or in steps (`PM_SEM_DISCRETE`). By default they are instantaneous
    /// (`PM_SEM_INSTANT`).
    pub fn discrete(&mut self) -> &mut Self {
        self.semantics = Semantics::Discrete;
        self
    }

    /// Sets how values behave over time (`PM_SEM_*`), like [`MetricDef::counter`] and [`MetricDef::discrete`].
    pub fn semantics(&mut self, semantics: Semantics) -> &mut Self {
        self.semantics = semantics;
        self
    }

    /// Sets the getter of a metric without instances: the function that returns its value. It takes the place of
    /// [`Agent::fetch`](crate::Agent::fetch) for this metric. `A` is the type of the agent.
    ///
    /// Usually [`Setup::counter`](crate::Setup::counter), `gauge`, `discrete` or `string` declare a metric with a getter,
    /// and with the type of what the getter returns.
    pub fn getter<A: 'static, V: Value>(&mut self, getter: impl Fn(&A) -> V + Send + Sync + 'static) -> &mut Self {
        self.put_by(Erased::put(move |agent: &A, out| out.put(getter(agent))))
    }

    pub(crate) fn put_by(&mut self, getter: Erased) -> &mut Self {
        self.getter = Some(getter);
        self
    }

    /// Sets dimension and scale of the values. By default, values have no dimension.
    pub fn units(&mut self, units: Units) -> &mut Self {
        self.units = units;
        self
    }

    /// Sets the help: one line, and a text of any length.
    pub fn help(&mut self, oneline: impl Into<String>, text: impl Into<String>) -> &mut Self {
        self.oneline = oneline.into();
        self.text = text.into();
        self
    }

    /// Declares a parameter of events. It has values only in events, and the engine does not call
    /// [`Agent::fetch`](crate::Agent::fetch) for it.
    pub fn parameter(&mut self) -> &mut Self {
        self.parameter = true;
        self
    }

    /// Declares that the metric has no values, instead of an error. A metric of type [`Type::NoSupport`] otherwise
    /// answers `PM_ERR_APPVERSION`, and its clients show an error. The engine does not call
    /// [`Agent::fetch`](crate::Agent::fetch) for it.
    pub fn no_values(&mut self) -> &mut Self {
        self.parameter = true;
        self
    }

    /// Lets clients store values, with [`Agent::store`](crate::Agent::store).
    pub fn storable(&mut self) -> &mut Self {
        self.storable = true;
        self
    }

    /// Allows only administrators to store values: root, PCP's user, and the user as whom the agent runs. Use it for
    /// metrics that change the agent for all its clients.
    ///
    /// Other clients get `PM_ERR_PERMISSION`, including those whose user pmcd does not know. The option
    /// `--open-control` lifts the restriction, as does `PMDA_OPEN_CONTROL` in the environment or in `pcp.conf`.
    ///
    /// [`Agent::WANTS`](crate::Agent::WANTS) must have [`Features::AUTHORIZE`](pcp_pdu::handshake::Features::AUTHORIZE).
    pub fn restricted(&mut self) -> &mut Self {
        self.storable = true;
        self.restricted = true;
        self
    }

    /// Adds labels: a value that serializes to an object, for instance `json!({"a": 1})`, or the JSON text of an object
    /// (pmdaAddLabels(3)).
    pub fn labels(&mut self, labels: impl Serialize) -> &mut Self {
        add(&mut self.labels, |set| set.add(labels));
        self
    }

    /// Adds labels that do not identify the metric (pmdaAddNotes(3)).
    pub fn notes(&mut self, notes: impl Serialize) -> &mut Self {
        add(&mut self.labels, |set| set.add_notes(notes));
        self
    }

    /// Returns the full name of the metric.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns cluster and item number.
    pub fn item(&self) -> Item {
        self.item
    }

    /// Returns the one-line help.
    pub fn oneline(&self) -> &str {
        &self.oneline
    }

    /// Returns the full help.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the descriptor for an agent with this domain.
    pub fn desc(&self, domain: Domain) -> Desc {
        Desc {
            pmid: PmId::new(domain, self.item),
            ty: self.ty,
            indom: self.indom.map(|serial| InDom::new(domain, serial)),
            semantics: self.semantics,
            units: self.units,
        }
    }

    pub(crate) fn info(&self, domain: Domain) -> MetricInfo {
        let MetricDef { storable, restricted, parameter, .. } = *self;
        MetricInfo { desc: self.desc(domain), storable, restricted, parameter, getter: None }
    }

    pub(crate) fn label_set(&self) -> LabelResult {
        self.labels.clone()
    }

    /// Checks that a dynamic metric has no getter.
    pub(crate) fn check_no_getter(&self) -> Result<(), Mistake> {
        if self.getter.is_none() { Ok(()) } else { Err(Mistake::DynamicGetter(self.name.clone())) }
    }

    /// Checks that an agent with a restricted metric asks for the identity of its clients.
    pub(crate) fn check_restriction(&self, wants: Features) -> Result<(), Mistake> {
        let known = !self.restricted || wants.contains(Features::AUTHORIZE);
        if known { Ok(()) } else { Err(Mistake::Restricted(self.name.clone())) }
    }
}

/// Copies a declaration at the end of its chain of methods.
impl From<&mut MetricDef> for MetricDef {
    fn from(metric: &mut MetricDef) -> Self {
        metric.clone()
    }
}

impl InDomDef {
    /// An instance domain without instances, help and labels.
    pub fn new(serial: Serial) -> InDomDef {
        let labels = Ok(LabelSet::new());
        InDomDef { serial, instances: Fixed::default(), oneline: String::new(), text: String::new(), labels }
    }

    /// Sets the instances of a fixed domain. For a domain that changes, use
    /// [`Agent::instances`](crate::Agent::instances) instead.
    pub fn instances(&mut self, instances: impl IntoIterator<Item = (u32, impl AsRef<str>)>) -> &mut Self {
        self.instances = instances.into_iter().collect();
        self
    }

    /// Sets the help: one line, and a text of any length.
    pub fn help(&mut self, oneline: impl Into<String>, text: impl Into<String>) -> &mut Self {
        self.oneline = oneline.into();
        self.text = text.into();
        self
    }

    /// Adds labels of the domain; see [`MetricDef::labels`].
    pub fn labels(&mut self, labels: impl Serialize) -> &mut Self {
        add(&mut self.labels, |set| set.add(labels));
        self
    }

    /// Adds labels that do not identify the domain; see [`MetricDef::notes`].
    pub fn notes(&mut self, notes: impl Serialize) -> &mut Self {
        add(&mut self.labels, |set| set.add_notes(notes));
        self
    }

    /// Returns the serial number.
    pub fn serial(&self) -> Serial {
        self.serial
    }

    /// Returns the one-line help.
    pub fn oneline(&self) -> &str {
        &self.oneline
    }

    /// Returns the full help.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn label_set(&self) -> LabelResult {
        self.labels.clone()
    }

    pub(crate) fn fixed(&self) -> &Fixed {
        &self.instances
    }
}
