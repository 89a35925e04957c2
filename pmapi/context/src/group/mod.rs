//! Fetch groups: metrics that are fetched together, with their values converted.

mod convert;
mod error;
mod metric;

use std::collections::HashMap;

use pcp_client::Sample;
use pcp_pdu::event::Stamp;
use pcp_pdu::result::Changes;
use pmapi::{Error, InDom, Inst, PmId, Type};

use crate::context::Context;
use crate::error::ContextError;

pub use convert::{CounterWrap, Value};
pub use error::GroupError;

use convert::Conversion;
use metric::{All, Events, Metric, Samples, Single};

/// Metrics that are fetched together, and converted to the rates, scales and types that a program wants
/// (pmFetchGroup(3)).
///
/// As in libpcp, a scale is one of:
///
/// * `None`: a counter becomes a rate per second, other values are unchanged;
/// * `"rate"`: the difference from the previous sample, per second;
/// * `"instant"`: the value, unchanged;
/// * units such as "Mbyte" or "Kbyte / hour": the value in these units, or its rate if their dimension of time is one
///   less than the metric's.
///
/// ```no_run
/// use pcp_context::{Context, FetchGroup};
/// use pmapi::Type;
///
/// let mut group = FetchGroup::new(Context::connect("local:")?);
/// let load = group.item("kernel.all.load", Some("1 minute"), None, Type::Double)?;
/// let disks = group.indom("disk.dev.read_bytes", Some("Mbyte / s"), Type::Double)?;
/// for _ in 0..10 {
///     group.fetch()?;
///     println!("{:?} load {:?}", group.time(), group.value(load));
///     for disk in group.values(disks)? {
///         println!("{:?} {:?}", disk.name, disk.value);
///     }
///     std::thread::sleep(std::time::Duration::from_secs(1));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Two environment variables have an effect. With `$PCP_COUNTER_WRAP`, a counter that falls counts as having passed the
/// largest number of its type. With `$PCP_DISCRETE_ONCE`, a metric with discrete semantics has a value only in samples
/// that contain one. Otherwise it keeps its last value.
#[derive(Debug)]
pub struct FetchGroup {
    context: Context,
    wrap: CounterWrap,
    discrete: Discrete,
    pmids: Vec<PmId>,
    singles: Vec<Single>,
    all: Vec<All>,
    events: Vec<Events>,
    names: HashMap<InDom, HashMap<Inst, Vec<u8>>>,
    /// The last sample that was fetched, from which rates of the next one are computed.
    last: Option<Sample>,
    time: Option<Stamp>,
}

/// Value of a metric with discrete semantics in a sample that does not contain one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Discrete {
    /// The values of the previous sample.
    #[default]
    Kept,
    /// No values (`$PCP_DISCRETE_ONCE`).
    Once,
}

/// Handle of a value, from [`FetchGroup::item`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ItemHandle(usize);

/// Handle of the values of all instances, from [`FetchGroup::indom`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct InDomHandle(usize);

/// Handle of the fields of events, from [`FetchGroup::event`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EventHandle(usize);

/// Value of one instance in a sample, from [`FetchGroup::values`].
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct InstanceValue {
    /// Instance; `None` for a singular metric.
    pub inst: Option<Inst>,
    /// Name of the instance, if the source has one.
    pub name: Option<Vec<u8>>,
    /// Value, or the reason why there is none.
    pub value: Result<Value, Error>,
}

/// Value of the field in one event, from [`FetchGroup::fields`].
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct EventField {
    /// Time of the event.
    pub time: Stamp,
    /// Value, or the reason why there is none.
    pub value: Result<Value, Error>,
}

impl FetchGroup {
    /// Creates a group without metrics for a context (pmCreateFetchGroup(3)).
    pub fn new(context: Context) -> FetchGroup {
        let is_set = |name| std::env::var_os(name).is_some();
        FetchGroup {
            context,
            wrap: if is_set("PCP_COUNTER_WRAP") { CounterWrap::Once } else { CounterWrap::Refused },
            discrete: if is_set("PCP_DISCRETE_ONCE") { Discrete::Once } else { Discrete::Kept },
            pmids: Vec::new(),
            singles: Vec::new(),
            all: Vec::new(),
            events: Vec::new(),
            names: HashMap::new(),
            last: None,
            time: None,
        }
    }

    /// Sets the meaning of a decrease of a counter.
    pub fn set_counter_wrap(&mut self, wrap: CounterWrap) {
        self.wrap = wrap;
    }

    /// Sets the value of metrics with discrete semantics in samples that do not contain one.
    pub fn set_discrete(&mut self, discrete: Discrete) {
        self.discrete = discrete;
    }

    /// Returns the context, for instance to set its mode (pmGetFetchGroupContext(3)). The profile must keep the
    /// instances of the group's metrics.
    pub fn context(&mut self) -> &mut Context {
        &mut self.context
    }

    /// Adds the value of a singular metric or of an instance (`pmExtendFetchGroup_item`). `scale` is explained at
    /// [`FetchGroup`].
    ///
    /// An instance of an archive may exist at any time, not only at the position of the context. If several have the
    /// name, the one at the position counts, otherwise the latest.
    ///
    /// # Errors
    /// [`GroupError`]; [`GroupError::code`] is that of libpcp.
    pub fn item(
        &mut self,
        metric: &str,
        instance: Option<&str>,
        scale: Option<&str>,
        ty: Type,
    ) -> Result<ItemHandle, GroupError> {
        let (desc, inst) = metric::instance(&mut self.context, metric, instance)?;
        let conversion = Conversion::new(desc, scale, ty).map_err(|e| GroupError::of(e, metric, scale))?;
        let metric = Metric { at: self.place(desc.pmid), desc, conversion };
        self.singles.push(Single::new(metric, inst));
        Ok(ItemHandle(self.singles.len() - 1))
    }

    /// Adds the values of all instances of a metric, or that of a singular metric (`pmExtendFetchGroup_indom`). `scale`
    /// is explained at [`FetchGroup`].
    ///
    /// # Errors
    /// [`GroupError`]; [`GroupError::code`] is that of libpcp.
    pub fn indom(&mut self, metric: &str, scale: Option<&str>, ty: Type) -> Result<InDomHandle, GroupError> {
        let desc = metric::desc(&mut self.context, metric)?;
        if let Some(indom) = desc.indom {
            self.context.profile_mut().add(indom, &[]);
        }
        let conversion = Conversion::new(desc, scale, ty).map_err(|e| GroupError::of(e, metric, scale))?;
        let metric = Metric { at: self.place(desc.pmid), desc, conversion };
        self.all.push(All::new(metric));
        Ok(InDomHandle(self.all.len() - 1))
    }

    /// Adds a field of the events of a metric (`pmExtendFetchGroup_event`): all values that an event has for the
    /// parameter `field`, event by event. A scale that makes a rate is refused.
    ///
    /// # Errors
    /// [`GroupError`]; [`GroupError::code`] is that of libpcp.
    pub fn event(
        &mut self,
        metric: &str,
        instance: Option<&str>,
        field: &str,
        scale: Option<&str>,
        ty: Type,
    ) -> Result<EventHandle, GroupError> {
        let (desc, inst) = metric::instance(&mut self.context, metric, instance)?;
        let field_desc = metric::field(&mut self.context, field)?;
        if !matches!(desc.ty, Type::Event | Type::HighResEvent) {
            return Err(GroupError::NoEvents { metric: metric.to_owned(), ty: desc.ty });
        }
        let conversion = Conversion::new(field_desc, scale, ty).map_err(|e| GroupError::of(e, field, scale))?;
        if conversion.is_rate {
            return Err(GroupError::EventRate { field: field.to_owned() });
        }
        let metric = Metric { at: self.place(desc.pmid), desc, conversion };
        self.events.push(Events::new(metric, inst, field_desc));
        Ok(EventHandle(self.events.len() - 1))
    }

    /// Returns the index of a metric in the list of fetched metrics, and adds it if necessary.
    fn place(&mut self, pmid: PmId) -> usize {
        self.pmids.iter().position(|known| *known == pmid).unwrap_or_else(|| {
            self.pmids.push(pmid);
            self.pmids.len() - 1
        })
    }

    /// Fetches all metrics of the group (pmFetchGroup(3)), and returns the changes in pmcd.
    ///
    /// # Errors
    /// Errors of [`Context::fetch`]: `PM_ERR_EOL` at the end of an archive, `PM_ERR_TOOSMALL` for a group without
    /// metrics. After an error there are no values, and the next rates are still computed from the last sample.
    pub fn fetch(&mut self) -> Result<Changes, ContextError> {
        let fetched = self.context.fetch(&self.pmids).map(|mut sample| {
            sample.sort_instances();
            sample
        });
        let samples = Samples {
            now: fetched.as_ref().ok(),
            before: self.last.as_ref(),
            wrap: self.wrap,
            discrete: self.discrete,
        };
        self.time = samples.now.map(Sample::time);
        for single in &mut self.singles {
            single.update(&samples);
        }
        for all in &mut self.all {
            all.update(&samples, &mut self.names, &mut self.context);
        }
        for events in &mut self.events {
            events.update(&samples);
        }
        let sample = fetched?;
        let changes = sample.changes();
        self.last = Some(sample);
        Ok(changes)
    }

    /// Returns the time of the sample (`pmExtendFetchGroup_timespec`), or `None` before the first sample and after a
    /// failure. libpcp returns the current time after a failure.
    pub fn time(&self) -> Option<Stamp> {
        self.time
    }

    /// Returns a value of the sample.
    ///
    /// # Errors
    /// `PM_ERR_AGAIN` for a rate without a previous sample. `PM_ERR_VALUE` without a value, before the first sample,
    /// and for the handle of another group. Errors of the conversion: `PM_ERR_CONV`, `PM_ERR_SIGN`, `PM_ERR_TRUNC`,
    /// `PM_ERR_TYPE` or `-ERANGE` for text that is not a number. The error of the metric.
    pub fn value(&self, item: ItemHandle) -> Result<&Value, Error> {
        self.singles.get(item.0).map_or(Err(Error::VALUE), |single| single.value.as_ref().map_err(|e| *e))
    }

    /// Returns the values of all instances of the sample, by instance.
    ///
    /// # Errors
    /// The error of the metric; `PM_ERR_VALUE` before the first sample, and for the handle of another group. The error
    /// of a single instance is in its value, as that of [`FetchGroup::value`].
    pub fn values(&self, indom: InDomHandle) -> Result<&[InstanceValue], Error> {
        self.all.get(indom.0).map_or(Err(Error::VALUE), |all| all.status.map(|()| all.values.as_slice()))
    }

    /// Returns the fields of the events of the sample, in the order of the events.
    ///
    /// # Errors
    /// The error of the metric, `PM_ERR_CONV` for damaged events; `PM_ERR_VALUE` before the first sample, and for the
    /// handle of another group. The error of a single field is in its value.
    pub fn fields(&self, event: EventHandle) -> Result<&[EventField], Error> {
        self.events.get(event.0).map_or(Err(Error::VALUE), |events| events.status.map(|()| events.fields.as_slice()))
    }

    /// Removes all metrics (pmClearFetchGroup(3)). Their handles then have no values, or those of metrics that are
    /// added later.
    pub fn clear(&mut self) {
        self.pmids.clear();
        self.singles.clear();
        self.all.clear();
        self.events.clear();
        self.names.clear();
        (self.last, self.time) = (None, None);
        *self.context.profile_mut() = pcp_pdu::profile::Profile::default();
    }

    /// Returns the context, without the group (pmDestroyFetchGroup(3) ends both).
    pub fn into_context(self) -> Context {
        self.context
    }
}
