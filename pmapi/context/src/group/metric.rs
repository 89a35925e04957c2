//! Members of a fetch group.

use std::collections::HashMap;

use pcp_client::Sample;
use pcp_pdu::event::Stamp;
use pcp_pdu::result::{RawValue, ValueSet};
use pmapi::{Atom, Converted, Desc, Error, InDom, Inst, Result, Semantics, Type};

use super::convert::{Before, Conversion, CounterWrap, Value};
use super::{Discrete, EventField, GroupError, InstanceValue};
use crate::context::Context;
use crate::events::unpack_events;

/// Returns the descriptor of a metric.
pub(super) fn desc(context: &mut Context, metric: &str) -> Result<Desc, GroupError> {
    let found = context.lookup_name(metric).and_then(|pmid| context.lookup_desc(pmid));
    found.map_err(|error| GroupError::Metric { metric: metric.to_owned(), error })
}

/// Returns the descriptor of a metric and the identifier of an instance, and adds the instance to the profile. An
/// instance of an archive may exist at any time.
pub(super) fn instance(
    context: &mut Context,
    metric: &str,
    instance: Option<&str>,
) -> Result<(Desc, Option<Inst>), GroupError> {
    let desc = desc(context, metric)?;
    let (indom, instance) = match (desc.indom, instance) {
        (None, None) => return Ok((desc, None)),
        (Some(_), None) => return Err(GroupError::NoInstance { metric: metric.to_owned() }),
        (None, Some(instance)) => {
            return Err(GroupError::Singular { metric: metric.to_owned(), instance: instance.to_owned() });
        }
        (Some(indom), Some(instance)) => (indom, instance),
    };
    let found = context.lookup_indom(indom, instance.as_bytes());
    let found = found.or_else(|e| match context.lookup_indom_ever(indom, instance.as_bytes()) {
        Err(Error::NOTARCHIVE) => Err(e),
        found => found,
    });
    let inst = found.map_err(|error| GroupError::Instance {
        metric: metric.to_owned(),
        instance: instance.to_owned(),
        error,
    })?;
    context.profile_mut().add(indom, &[inst]);
    Ok((desc, Some(inst)))
}

/// Returns the descriptor of a field of events.
pub(super) fn field(context: &mut Context, field: &str) -> Result<Desc, GroupError> {
    let desc = desc(context, field)?;
    match desc.indom {
        None => Ok(desc),
        Some(_) => Err(GroupError::FieldInstances { field: field.to_owned() }),
    }
}

/// Metric of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Metric {
    /// Index of the metric's value set in samples.
    pub(super) at: usize,
    pub(super) desc: Desc,
    pub(super) conversion: Conversion,
}

/// Samples that values are computed from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Samples<'s> {
    /// The current sample, or `None` if the fetch has failed.
    pub(super) now: Option<&'s Sample>,
    pub(super) before: Option<&'s Sample>,
    pub(super) wrap: CounterWrap,
    pub(super) discrete: Discrete,
}

impl<'s> Samples<'s> {
    fn set(&self, metric: &Metric) -> Result<ValueSet<'s>> {
        checked(self.now.and_then(|sample| sample.set(metric.at)))
    }

    /// Returns the metric's value set in the previous sample, or `None` without a previous sample.
    fn set_before(&self, metric: &Metric) -> Option<Result<ValueSet<'s>>> {
        Some(checked(self.before?.set(metric.at)))
    }

    /// Returns whether the metric keeps its values from the previous sample.
    fn keeps(&self, metric: &Metric) -> bool {
        let is_kept = metric.desc.semantics == Semantics::Discrete && self.discrete == Discrete::Kept;
        is_kept && self.set(metric).is_ok_and(|set| set.is_empty())
    }

    /// Returns the seconds between the samples.
    fn seconds(&self) -> f64 {
        let nanoseconds = |time: Stamp| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
        let between =
            self.now.zip(self.before).map(|(now, before)| nanoseconds(now.time()) - nanoseconds(before.time()));
        between.map_or(0.0, |between| between as f64 / 1e9)
    }

    fn since(&self, value: Result<Atom<'s>>) -> Before<'s> {
        Before { seconds: self.seconds(), value, wrap: self.wrap }
    }
}

fn checked(set: Option<ValueSet<'_>>) -> Result<ValueSet<'_>> {
    let set = set.ok_or(Error::VALUE)?;
    set.error.map_or(Ok(set), Err)
}

/// Decodes a value of a metric.
fn atom(raw: RawValue<'_>, ty: Type) -> Result<Atom<'_>> {
    match raw.extract(ty, ty)? {
        Converted::Atom(atom) => Ok(atom),
        Converted::Text(_) => Err(Error::CONV),
    }
}

/// Returns the value of an instance, or the first one of a singular metric.
fn value<'s>(set: Result<ValueSet<'s>>, metric: &Metric, inst: Option<Inst>) -> Result<Atom<'s>> {
    let mut values = set?.values();
    let found = values.find(|(other, _)| metric.desc.indom.is_none() || *other == inst).ok_or(Error::VALUE)?;
    atom(found.1, metric.desc.ty)
}

/// A singular metric, or an instance.
#[derive(Debug)]
pub(super) struct Single {
    metric: Metric,
    inst: Option<Inst>,
    pub(super) value: Result<Value>,
}

impl Single {
    pub(super) fn new(metric: Metric, inst: Option<Inst>) -> Single {
        Single { metric, inst, value: Err(Error::VALUE) }
    }

    pub(super) fn update(&mut self, samples: &Samples<'_>) {
        if !samples.keeps(&self.metric) {
            self.value = self.converted(samples);
        }
    }

    fn converted(&self, samples: &Samples<'_>) -> Result<Value> {
        let now = value(samples.set(&self.metric), &self.metric, self.inst)?;
        let before = if self.metric.conversion.is_rate {
            samples.set_before(&self.metric).map(|set| samples.since(value(set, &self.metric, self.inst)))
        } else {
            None
        };
        self.metric.conversion.convert(now, before)
    }
}

/// Names of instances by domain.
type Names = HashMap<InDom, HashMap<Inst, Vec<u8>>>;

/// A metric with all instances.
#[derive(Debug)]
pub(super) struct All {
    metric: Metric,
    pub(super) values: Vec<InstanceValue>,
    pub(super) status: Result<()>,
}

impl All {
    pub(super) fn new(metric: Metric) -> All {
        All { metric, values: Vec::new(), status: Err(Error::VALUE) }
    }

    pub(super) fn update(&mut self, samples: &Samples<'_>, names: &mut Names, context: &mut Context) {
        if samples.keeps(&self.metric) {
            return;
        }
        self.values.clear();
        self.status = samples.set(&self.metric).map(|set| self.fill(samples, set, names, context));
    }

    fn fill(&mut self, samples: &Samples<'_>, set: ValueSet<'_>, names: &mut Names, context: &mut Context) {
        let metric = self.metric;
        let names = metric.desc.indom.map(|indom| known(indom, &set, names, context));
        let before = samples.set_before(&metric).filter(|_| metric.conversion.is_rate);
        // If a damaged sample has several values of an instance, the first one counts.
        let values_before: Option<Result<HashMap<_, _>>> = before.map(|set| {
            let mut values = HashMap::new();
            for (inst, raw) in set?.values() {
                values.entry(inst).or_insert(raw);
            }
            Ok(values)
        });
        self.values.extend(set.values().map(|(inst, raw)| {
            let before = values_before.as_ref().map(|values| {
                let found = values.as_ref().map_err(|e| *e).and_then(|values| values.get(&inst).ok_or(Error::VALUE));
                samples.since(found.and_then(|raw| atom(*raw, metric.desc.ty)))
            });
            let name = inst.zip(names).and_then(|(inst, names)| names.get(&inst).cloned());
            let value = atom(raw, metric.desc.ty).and_then(|now| metric.conversion.convert(now, before));
            InstanceValue { inst, name, value }
        }));
    }
}

/// Returns the names of a domain's instances. Requests them again if a sample has an unknown instance.
fn known<'n>(
    indom: InDom,
    set: &ValueSet<'_>,
    names: &'n mut Names,
    context: &mut Context,
) -> &'n HashMap<Inst, Vec<u8>> {
    let is_known = names.get(&indom).is_some_and(|names| {
        let mut instances = set.values().filter_map(|(inst, _)| inst);
        instances.all(|inst| names.contains_key(&inst))
    });
    if !is_known {
        // Values have no names then.
        let list = context.indom(indom).unwrap_or_default();
        names.insert(indom, list.into_iter().collect());
    }
    names.entry(indom).or_default()
}

/// Fields of events.
#[derive(Debug)]
pub(super) struct Events {
    metric: Metric,
    inst: Option<Inst>,
    field: Desc,
    pub(super) fields: Vec<EventField>,
    pub(super) status: Result<()>,
}

impl Events {
    pub(super) fn new(metric: Metric, inst: Option<Inst>, field: Desc) -> Events {
        Events { metric, inst, field, fields: Vec::new(), status: Err(Error::VALUE) }
    }

    pub(super) fn update(&mut self, samples: &Samples<'_>) {
        self.fields.clear();
        self.status = self.fill(samples);
    }

    fn fill(&mut self, samples: &Samples<'_>) -> Result<()> {
        let set = samples.set(&self.metric)?;
        let is_singular = self.metric.desc.indom.is_none();
        // Without a value there are no events.
        let Some((_, raw)) = set.values().find(|(inst, _)| is_singular || *inst == self.inst) else { return Ok(()) };
        for record in unpack_events(raw.atom(self.metric.desc.ty)?)? {
            for (pmid, value) in record.parameters {
                if pmid == Some(self.field.pmid) {
                    let value = of_type(value, self.field.ty).and_then(|now| self.metric.conversion.convert(now, None));
                    self.fields.push(EventField { time: record.time, value });
                }
            }
        }
        Ok(())
    }
}

/// Returns the value of a parameter in its metric's type. Event and metric may disagree on whether 32-bit integers are
/// signed.
fn of_type(value: Atom<'_>, ty: Type) -> Result<Atom<'_>> {
    match (value, ty) {
        (Atom::U32(word), Type::I32) => Ok(Atom::I32(word as i32)),
        (Atom::I32(word), Type::U32) => Ok(Atom::U32(word as u32)),
        _ if value.ty() == ty => Ok(value),
        _ => Err(Error::CONV),
    }
}
