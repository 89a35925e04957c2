//! Instance domains and the metrics over them.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use pmapi::LabelFlags;
use serde::Serialize;

use super::Inner;
use super::inner::State;
use crate::Error;
use crate::handle::Handle;
use crate::model::{Counts, Kind, Label, Model, Subject};

/// Builder of an instance domain (`mmv_stats_add_indom(3)`).
#[derive(Debug)]
#[must_use = "an instance domain exists once it is registered"]
pub struct InstanceDomainBuilder<'n> {
    inner: &'n Arc<Inner>,
    name: &'n str,
    serial: Option<u32>,
    help: [&'n str; 2],
    instances: Vec<(&'n str, Option<u32>)>,
    labels: Vec<Result<Label, Error>>,
}

impl<'n> InstanceDomainBuilder<'n> {
    pub(super) fn new(inner: &'n Arc<Inner>, name: &'n str) -> InstanceDomainBuilder<'n> {
        InstanceDomainBuilder { inner, name, serial: None, help: [""; 2], instances: Vec::new(), labels: Vec::new() }
    }

    /// Sets the serial number, 1 to 2047. The default is derived from the name.
    pub fn serial(mut self, serial: u32) -> Self {
        self.serial = Some(serial);
        self
    }

    /// Sets the one-line help text.
    pub fn help(mut self, line: &'n str) -> Self {
        self.help[0] = line;
        self
    }

    /// Sets the full help text.
    pub fn long_help(mut self, text: &'n str) -> Self {
        self.help[1] = text;
        self
    }

    /// Adds instances. Their identifiers are derived from their names.
    pub fn instances(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.instances.extend(names.into_iter().map(|name| (name, None)));
        self
    }

    /// Adds instances with explicit identifiers, 0 to 2147483647.
    pub fn numbered(mut self, instances: impl IntoIterator<Item = (u32, &'n str)>) -> Self {
        self.instances.extend(instances.into_iter().map(|(id, name)| (name, Some(id))));
        self
    }

    /// Adds a label to the domain (`mmv_stats_add_indom_label(3)`).
    pub fn label(mut self, name: &str, value: impl Serialize) -> Self {
        // The domain's number is not known yet. `add_labels` sets the subject.
        self.labels.push(Label::new(Subject::Registry, LabelFlags::empty(), name, value));
        self
    }

    /// Registers the domain with its instances. After an error there is no such domain, and it can be registered again.
    ///
    /// # Errors
    /// * [`Error::InUse`] for the name or serial number of another domain
    /// * [`Error::Range`] for a serial number outside of 1 to 2047, or after 2,047 domains
    /// * [`Error::Name`] for help text with a NUL byte, [`Error::TooLong`] for help text over 255 bytes
    /// * the errors of [`InstanceDomain::add_numbered`] for its instances and of
    ///   [`Registry::label`](crate::Registry::label) for its labels
    pub fn register(self) -> Result<InstanceDomain, Error> {
        let InstanceDomainBuilder { inner, name, serial, help: [short, long], instances, labels } = self;
        let labels = labels.into_iter().collect::<Result<Vec<_>, _>>()?;
        let (indoms, count) = (1, instances.len());
        let texts = [short, long].iter().filter(|text| !text.is_empty()).count();
        let needs =
            Counts { indoms, instances: count, labels: labels.len(), strings: count + texts, ..Counts::default() };
        inner.change(
            |_| needs,
            |state| {
                state.model.check_labels(&labels, None)?;
                let help = state.model.help(short, long)?;
                let index = state.model.add_indom(name, serial, help, &instances)?;
                state.model.add_labels(labels, Subject::Indom(index));
                Ok(index)
            },
            |_, index| InstanceDomain { inner: Arc::clone(inner), index },
        )
    }
}

/// A registered instance domain. A metric over it has a value for each of its instances.
#[derive(Clone, Debug)]
pub struct InstanceDomain {
    inner: Arc<Inner>,
    index: usize,
}

impl InstanceDomain {
    /// Adds an instance, and a value for it to every metric over the domain (`mmv_stats_add_instance(3)`). The
    /// identifier is derived from the name.
    ///
    /// # Errors
    /// * [`Error::Name`] for a name that is empty, begins with a space or has control characters
    /// * [`Error::TooLong`] for a name over 255 bytes, [`Error::InUse`] for the name of another instance
    /// * [`Error::Io`] if there is no memory for the values
    /// * [`Error::Full`] if the file has no room for it, [`Error::Forked`] in a forked child
    pub fn add(&self, instance: &str) -> Result<(), Error> {
        self.change(0, |state| state.model.add_instance(self.index, instance, None).map(drop))
    }

    /// Adds an instance with an explicit identifier, 0 to 2147483647.
    ///
    /// # Errors
    /// [`Error::Range`] for a larger identifier, [`Error::InUse`] for that of another instance, and the errors of
    /// [`InstanceDomain::add`].
    pub fn add_numbered(&self, id: u32, instance: &str) -> Result<(), Error> {
        self.change(0, |state| state.model.add_instance(self.index, instance, Some(id)).map(drop))
    }

    /// Adds a label to an instance (`mmv_stats_add_instance_label(3)`). An instance that does not exist is added.
    ///
    /// # Errors
    /// The errors of [`Registry::label`](crate::Registry::label) and [`InstanceDomain::add`].
    pub fn label_instance(&self, instance: &str, name: &str, value: impl Serialize) -> Result<(), Error> {
        self.label_instance_all(instance, vec![Label::new(Subject::Registry, LabelFlags::empty(), name, value)])
    }

    /// Adds several labels to an instance, or none of them after an error. If several labels share a record of the
    /// file, PCP's agent shows only the first one.
    pub(crate) fn label_instance_all(&self, instance: &str, labels: Vec<Result<Label, Error>>) -> Result<(), Error> {
        let labels = labels.into_iter().collect::<Result<Vec<_>, _>>()?;
        self.change(labels.len(), |state| {
            let known = state.model.indom(self.index).instance(instance);
            state.model.check_labels(&labels, known.map(|index| Subject::Instance(self.index, index)))?;
            let index = match known {
                Some(index) => index,
                None => state.model.add_instance(self.index, instance, None)?,
            };
            state.model.add_labels(labels, Subject::Instance(self.index, index));
            Ok(())
        })
    }

    /// Makes a change that may add an instance, and labels.
    fn change(&self, labels: usize, change: impl FnOnce(&mut State) -> Result<(), Error>) -> Result<(), Error> {
        let needs = |model: &Model| {
            let metrics = model.indom(self.index).metrics();
            let texts = metrics.iter().filter(|metric| model.metric(**metric).kind == Kind::Text).count();
            Counts { instances: 1, strings: 1, labels, values: metrics.len(), texts, ..Counts::default() }
        };
        self.inner.change(needs, change, |_, ()| ())
    }

    /// Returns the names of the instances.
    pub fn names(&self) -> Vec<String> {
        let Some(state) = self.inner.lock() else { return Vec::new() };
        state.model.indom(self.index).instances().map(|(name, _)| name.to_owned()).collect()
    }

    /// Returns the name of the domain, which is not part of the file.
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
/// Finding an instance costs a lock and a hash: keep the handles of instances that are updated often. It waits while
/// another thread writes the file: see [disks that hang](crate::Registry#disks-that-hang).
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

    /// Returns the handle for an instance. An instance that does not exist is added to the domain.
    ///
    /// Instances are never removed, and each takes memory and a part of the file. Clients of the application may choose
    /// their names, so this function adds no new instance once a domain has 10,000, or the number set by
    /// [`RegistryBuilder::most_instances`](crate::RegistryBuilder::most_instances).
    ///
    /// # Errors
    /// [`Error::TooManyInstances`] for a new instance beyond that limit, the errors of [`InstanceDomain::add`], and
    /// [`Error::InUse`] for a second handle of a value with a single writer.
    pub fn instance(&self, name: &str) -> Result<H, Error> {
        self.instance_up_to(name, self.inner.options.most_instances)
    }

    /// Returns the handle for an instance. Adds the instance unless the domain already has `max`.
    pub(crate) fn instance_up_to(&self, name: &str, max: usize) -> Result<H, Error> {
        let state = self.inner.lock().ok_or(Error::FORKED)?;
        let indom = state.model.indom(self.indom);
        let is_new = indom.instance(name).is_none();
        if is_new && indom.instances().len() >= max {
            let indom = state.model.indom_name(self.indom).to_owned();
            return Err(Error::TooManyInstances { indom, max });
        }
        drop(state);
        if is_new {
            let indom = InstanceDomain { inner: Arc::clone(&self.inner), index: self.indom };
            match indom.add(name) {
                // Another thread has added it in the meantime.
                Ok(()) | Err(Error::InUse { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        self.find(name).unwrap_or_else(|| Err(Error::InUse { what: "instance", name: name.to_owned() }))
    }

    /// Returns the handle for an instance, or `None` if the instance does not exist, or its single writer has a handle.
    pub fn get(&self, name: &str) -> Option<H> {
        self.find(name)?.ok()
    }

    fn find(&self, name: &str) -> Option<Result<H, Error>> {
        let mut state = self.inner.lock()?;
        let instance = state.model.indom(self.indom).instance(name)?;
        let value = state.model.values().find(self.metric, instance)?;
        let handle = self.inner.handle(&mut state, value);
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
