//! Fourth pass: the records of the volumes.

use std::collections::HashMap;
use std::path::PathBuf;

use pcp_pdu::desc::RawDesc;
use pcp_pdu::event::Stamp;
use pcp_pdu::result::{Format, RawValue, ValueSet};
use pmapi::{Atom, Converted, InDom, Inst, OptionWord as _, PmId, Semantics, Type};

use super::{Findings, Place, Weight};
use crate::archive::Archive;
use crate::decode::record::record;
use crate::error::{ArchiveError, Result, Shown};
use crate::log::Log;
use crate::meta::Metadata;
use crate::window::Extent;

/// Metric whose values are checked.
struct Checked {
    ty: Type,
    desc: RawDesc,
    format: Format,
    instances: HashMap<u32, Last>,
}

/// Last value of an instance.
struct Last {
    value: f64,
    time: Stamp,
    /// Number of `<mark>`s before the value.
    marks: u64,
}

/// State of the pass.
struct Values<'a> {
    meta: &'a Metadata,
    /// State of each metric. `None` for a metric that is not described or not checked.
    metrics: HashMap<PmId, Option<Checked>>,
    /// Instances of domains in which a counter has gone back.
    names: HashMap<InDom, HashMap<u32, &'a [u8]>>,
    path: PathBuf,
    time: Stamp,
    /// Number of `<mark>`s so far.
    marks: u64,
}

/// Checks the records of all volumes between two times.
pub(super) fn check(
    archive: &Archive,
    log: &Log,
    (start, finish): (Option<Stamp>, Option<Stamp>),
    to: &mut Findings<'_>,
) {
    let finish = finish.or_else(|| log.end().ok()).unwrap_or(Stamp { seconds: i64::MAX, nanoseconds: 0 });
    let mut values = Values {
        meta: archive.metadata(),
        metrics: HashMap::new(),
        names: HashMap::new(),
        path: PathBuf::new(),
        time: Stamp::default(),
        marks: 0,
    };
    let mut last = start.unwrap_or_default();
    for volume in log.files.volumes.keys() {
        match check_volume(log, *volume, (start.unwrap_or_default(), finish), &mut last, &mut values, to) {
            Ok(true) => (),
            Ok(false) => return,
            Err(e) => return to.error(&e),
        }
    }
}

/// Checks a volume. Returns whether the next volume must be checked too.
fn check_volume(
    log: &Log,
    volume: u32,
    (start, finish): (Stamp, Stamp),
    last: &mut Stamp,
    values: &mut Values<'_>,
    to: &mut Findings<'_>,
) -> Result<bool> {
    // A volume with a label alone has nothing to check.
    let Ok(mut window) = log.window(volume) else { return Ok(true) };
    values.path = window.source().path().to_owned();
    let mut at = log.label.version.label_len() as u64;
    while let Some(span) = window.after(at, Extent::Whole)? {
        at = span.end();
        let found = record(log.label.version, window.bytes(span)?.0);
        let found = found.map_err(|e| ArchiveError::at(&values.path, span.at, e))?;
        let time = found.time;
        if time < start {
            continue;
        }
        let place = Place::Time(time);
        if time.nanoseconds > 999_999_999 {
            to.warn(&values.path, place, format!("the time has {} nanoseconds, over a second", time.nanoseconds));
        }
        if time < log.label.start {
            let reason = format!("the time is before that of the label, {}", Shown(log.label.start));
            to.warn(&values.path, place, reason);
        }
        if time < *last {
            to.warn(&values.path, place, format!("the time is before that of the previous record, {}", Shown(*last)));
        }
        *last = time;
        if time > finish {
            return Ok(false);
        }
        values.time = time;
        values.marks += u64::from(found.is_mark());
        for set in found.values.iter().filter(|set| !set.is_empty()) {
            values.check(&set, to);
        }
    }
    Ok(true)
}

impl Values<'_> {
    fn name(&self, pmid: PmId) -> String {
        self.meta
            .names()
            .names(pmid)
            .next()
            .map_or_else(|| pmid.to_string(), |name| String::from_utf8_lossy(name).into_owned())
    }

    fn warn(&self, pmid: PmId, reason: impl std::fmt::Display, to: &mut Findings<'_>) {
        to.warn(&self.path, Place::Time(self.time), format!("metric {}: {reason}", self.name(pmid)));
    }

    fn check(&mut self, set: &ValueSet<'_>, to: &mut Findings<'_>) {
        let Some(pmid) = set.pmid else {
            to.warn(&self.path, Place::Time(self.time), "values of a metric without identifier");
            return;
        };
        let mut metric = match self.metrics.remove(&pmid) {
            Some(known) => known,
            None => match self.meta.raw_desc(pmid) {
                Ok(desc) => checked(desc, set),
                Err(e) => {
                    self.warn(pmid, e, to);
                    None
                }
            },
        };
        if let Some(metric) = &mut metric {
            if metric.format == set.format() {
                set.values().for_each(|(inst, value)| self.value(pmid, metric, (inst, value), to));
            } else {
                let (found, first) = (set.format().code(), metric.format.code());
                self.warn(pmid, format_args!("values of format {found}, but of {first} before"), to);
            }
        }
        self.metrics.insert(pmid, metric);
    }

    fn value(
        &mut self,
        pmid: PmId,
        metric: &mut Checked,
        (inst, value): (Option<Inst>, RawValue<'_>),
        to: &mut Findings<'_>,
    ) {
        let number = match value.extract(metric.ty, Type::Double) {
            Ok(Converted::Atom(Atom::Double(number))) => number,
            Ok(_) => return,
            Err(e) => {
                // All values of a metric must be encoded like the first one.
                let weight = if metric.instances.contains_key(&inst.word()) { Weight::Warning } else { Weight::Fatal };
                let reason =
                    format!("metric {}: the encoding of a value does not match its type: {e}", self.name(pmid));
                return to.add(&self.path, Place::Time(self.time), weight, reason);
            }
        };
        let new = Last { value: number, time: self.time, marks: self.marks };
        let Some(last) = metric.instances.get_mut(&inst.word()) else {
            metric.instances.insert(inst.word(), new);
            return;
        };
        let last = std::mem::replace(last, new);
        let is_counter = metric.desc.semantics == Semantics::Counter.code();
        let is_integer = matches!(metric.ty, Type::I32 | Type::U32 | Type::I64 | Type::U64);
        let is_next = last.marks == self.marks && last.time < self.time;
        if is_counter && is_integer && is_next && number < last.value {
            let instance = inst.map(|inst| self.instance(metric, inst)).unwrap_or_default();
            let (name, ty, before, time) = (self.name(pmid), metric.ty, last.value, Shown(last.time));
            let reason = format!("counter {name}{instance} of type {ty} went back from {before} at {time} to {number}");
            to.add(&self.path, Place::Time(self.time), Weight::Wrap, reason);
        }
    }

    fn instance(&mut self, metric: &Checked, inst: Inst) -> String {
        let Some(indom) = metric.desc.indom else { return String::new() };
        let meta = self.meta;
        let names = self.names.entry(indom).or_insert_with(|| {
            let all = meta.instances_ever(indom).unwrap_or_default();
            all.into_iter().map(|instance| (instance.inst, instance.name)).collect()
        });
        let name = names.get(&inst.word()).map(|name| String::from_utf8_lossy(name));
        format!("[{}]", name.unwrap_or_else(|| inst.word().to_string().into()))
    }
}

fn checked(desc: &RawDesc, set: &ValueSet<'_>) -> Option<Checked> {
    let ty = Type::from_code(desc.ty).ok().filter(|ty| ty.is_numeric())?;
    Some(Checked { ty, desc: *desc, format: set.format(), instances: HashMap::new() })
}
