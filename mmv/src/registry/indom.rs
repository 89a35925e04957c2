//! Instance domains and the metrics over them.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;

use super::Inner;
use super::inner::State;
use super::metric::all;
use crate::Error;
use crate::handle::Handle;
use crate::model::{Label, Model, Subject};

/// An instance domain about to be registered (`mmv_stats_add_indom(3)`).
#[derive(Debug)]
#[must_use = "an instance domain exists once it is registered"]
pub struct InDomBuilder<'n> {
    inner: &'n Arc<Inner>,
    name: &'n str,
    serial: Option<u32>,
    help: [&'n str; 2],
    instances: Vec<(&'n str, Option<u32>)>,
    labels: Vec<Result<Label, Error>>,
}

impl<'n> InDomBuilder<'n> {
    pub(super) fn new(inner: &'n Arc<Inner>, name: &'n str) -> InDomBuilder<'n> {
        InDomBuilder { inner, name, serial: None, help: [""; 2], instances: Vec::new(), labels: Vec::new() }
    }

    /// Its number, 1 to 2047. Without this it follows from the name.
    pub fn serial(mut self, serial: u32) -> Self {
        self.serial = Some(serial);
        self
    }

    /// One line of help.
    pub fn help(mut self, line: &'n str) -> Self {
        self.help[0] = line;
        self
    }

    /// The whole help text.
    pub fn long_help(mut self, text: &'n str) -> Self {
        self.help[1] = text;
        self
    }

    /// Instances that there are from the beginning; their identifiers follow from their names.
    pub fn instances(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.instances.extend(names.into_iter().map(|name| (name, None)));
        self
    }

    /// Instances that there are from the beginning, with their identifiers.
    pub fn numbered(mut self, instances: impl IntoIterator<Item = (u32, &'n str)>) -> Self {
        self.instances.extend(instances.into_iter().map(|(id, name)| (name, Some(id))));
        self
    }

    /// Labels the domain (`mmv_stats_add_indom_label(3)`).
    pub fn label(mut self, name: &str, value: impl Serialize) -> Self {
        // The number of the domain is not known yet.
        self.labels.push(Label::new(Subject::Registry, false, name, value));
        self
    }

    /// Registers the domain.
    ///
    /// [`Error::InUse`] for its name or number, [`Error::Range`] for its number or after 2,047 domains,
    /// [`Error::TooLong`] for its help, and the errors of [`InDom::add`] and
    /// [`Registry::label`](crate::Registry::label).
    pub fn register(self) -> Result<InDom, Error> {
        let InDomBuilder { inner, name, serial, help: [short, long], instances, labels } = self;
        let labels = all(labels)?;
        let add = |state: &mut State| {
            state.room_for_labels(labels.len())?;
            let help = state.model.help(short, long)?;
            let index = state.model.add_indom(name, serial, help)?;
            state.model.reserve_instances(index, instances.len());
            instances.iter().try_for_each(|(name, id)| state.model.add_instance(index, name, *id).map(drop))?;
            state.add_labels(labels, Subject::Indom(index))?;
            Ok(index)
        };
        inner.change(|_| 0, add, |_, index| InDom { inner: Arc::clone(inner), index })
    }
}

/// A registered instance domain: the things that metrics have a value for each of.
#[derive(Clone, Debug)]
pub struct InDom {
    inner: Arc<Inner>,
    index: usize,
}

impl InDom {
    /// Adds an instance, and a value for it to every metric over the domain
    /// (`mmv_stats_add_instance(3)`). Its identifier follows from its name.
    ///
    /// [`Error::Name`] for a name that is empty, begins with a space or has control characters, [`Error::TooLong`]
    /// for more than 255 bytes, [`Error::InUse`] for one that there is.
    pub fn add(&self, instance: &str) -> Result<(), Error> {
        self.change(|state| state.model.add_instance(self.index, instance, None).map(drop))
    }

    /// Adds an instance with an identifier, 0 to 2147483647; errors as from [`InDom::add`], and [`Error::Range`].
    pub fn add_numbered(&self, id: u32, instance: &str) -> Result<(), Error> {
        self.change(|state| state.model.add_instance(self.index, instance, Some(id)).map(drop))
    }

    /// Labels an instance, which is added if there is none of the name
    /// (`mmv_stats_add_instance_label(3)`); errors as from [`Registry::label`](crate::Registry::label) and
    /// [`InDom::add`].
    pub fn label_instance(&self, instance: &str, name: &str, value: impl Serialize) -> Result<(), Error> {
        self.label_instance_all(instance, vec![Label::new(Subject::Registry, false, name, value)])
    }

    /// As [`InDom::label_instance`] with several labels, all of them or none. PCP's agent shows only the
    /// first of those that share a place in the file.
    pub(crate) fn label_instance_all(&self, instance: &str, labels: Vec<Result<Label, Error>>) -> Result<(), Error> {
        let labels = all(labels)?;
        let label = |state: &mut State| {
            state.room_for_labels(labels.len())?;
            let index = match state.model.indom(self.index).instance(instance) {
                Some(index) => index,
                None => state.model.add_instance(self.index, instance, None)?,
            };
            state.add_labels(labels, Subject::Instance(self.index, index))
        };
        self.change(label)
    }

    /// Makes a change that may add an instance.
    fn change(&self, change: impl FnOnce(&mut State) -> Result<(), Error>) -> Result<(), Error> {
        self.inner.change(|model| model.indom(self.index).values(), change, |_, ()| ())
    }

    /// The names of the instances.
    pub fn names(&self) -> Vec<String> {
        let names = |model: &Model| model.indom(self.index).instances().map(|(name, _)| name.to_owned()).collect();
        self.inner.lock().map(|state| names(&state.model)).unwrap_or_default()
    }

    /// The name under which it was registered.
    pub fn name(&self) -> String {
        self.inner.lock().map(|state| state.model.indom_name(self.index).to_owned()).unwrap_or_default()
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }
}

/// A metric with a value for each instance of a domain.
///
/// Looking an instance up costs a lock and a hash: keep the handles of what is updated often.
pub struct Family<H> {
    inner: Arc<Inner>,
    metric: usize,
    indom: usize,
    handle: PhantomData<fn() -> H>,
}

impl<H: Handle> Family<H> {
    pub(super) fn new(inner: Arc<Inner>, metric: usize, indom: usize) -> Family<H> {
        Family { inner, metric, indom, handle: PhantomData }
    }

    /// The handle for an instance, which is added to the domain if there is none of the name; errors as
    /// from [`InDom::add`]. The only writer of a value can be had once, and is [`Error::InUse`] then.
    pub fn instance(&self, name: &str) -> Result<H, Error> {
        let state = self.inner.lock().ok_or(Error::TORN)?;
        let is_new = state.model.indom(self.indom).instance(name).is_none();
        drop(state);
        if is_new {
            let indom = InDom { inner: Arc::clone(&self.inner), index: self.indom };
            match indom.add(name) {
                // Another thread was faster.
                Ok(()) | Err(Error::InUse { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        self.find(name).unwrap_or_else(|| Err(Error::InUse { what: "instance", name: name.to_owned() }))
    }

    /// The handle for an instance, if there is one of the name.
    pub fn get(&self, name: &str) -> Option<H> {
        self.find(name)?.ok()
    }

    fn find(&self, name: &str) -> Option<Result<H, Error>> {
        let mut state = self.inner.lock()?;
        let instance = state.model.indom(self.indom).instance(name)?;
        let value = state.model.values().find(self.metric, instance)?;
        let handle = self.inner.seat(&mut state, value);
        let no_thread = self.inner.ensure_thread(&mut state);
        drop(state);
        self.inner.log_no_thread(no_thread);
        Some(handle)
    }
}

impl<H> Clone for Family<H> {
    fn clone(&self) -> Self {
        Family { inner: Arc::clone(&self.inner), metric: self.metric, indom: self.indom, handle: PhantomData }
    }
}

impl<H> fmt::Debug for Family<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family").field("metric", &self.metric).finish_non_exhaustive()
    }
}
