//! Values of a record.

use std::collections::HashMap;

use pcp_archive::{InstanceNames, Metadata};
use pcp_pdu::event::{EventFlags, Layout, Record as Event, Stamp, records};
use pcp_pdu::print::Print;
use pcp_pdu::result::{BLOCK_HEAD, Format, RawValue, ValueSet};
use pmapi::{Atom, Error, InDom, Inst, OptionWord as _, OrNull, PmId, Type};

use crate::names::Names;
use crate::out::put;
use crate::zone::Stamps;

/// Writer of values, with the texts of all metrics so far.
pub(crate) struct Values<'a> {
    meta: &'a Metadata,
    names: &'a Names<'a>,
    stamps: &'a Stamps,
    instances: InstanceNames<'a>,
    metrics: HashMap<Option<PmId>, Metric>,
}

/// What is shown of a metric.
#[derive(Clone)]
struct Metric {
    /// Identifier and names: `    253.0.1 (name`.
    title: Vec<u8>,
    /// Type and instance domain; `None` without a descriptor.
    desc: Option<(Option<Type>, Option<InDom>)>,
}

/// Returns the length of a record with these value sets, in bytes.
fn size<'v>(stamps: &Stamps, sets: impl Iterator<Item = ValueSet<'v>>) -> usize {
    let mut bytes = if stamps.version.number() == 3 { 24 } else { 20 };
    for set in sets {
        bytes += 8 + if set.is_empty() { 0 } else { 4 + 8 * set.len() };
        if set.format() != Format::InSitu {
            let payloads = set.values().map(|(_, value)| match value {
                RawValue::Block(_, payload) => (BLOCK_HEAD + payload.len()).next_multiple_of(4),
                RawValue::InSitu(_) => 0,
            });
            bytes += payloads.sum::<usize>();
        }
    }
    bytes
}

impl<'a> Values<'a> {
    pub(crate) fn new(meta: &'a Metadata, names: &'a Names<'a>, stamps: &'a Stamps) -> Values<'a> {
        Values { meta, names, stamps, instances: meta.instance_names(), metrics: HashMap::new() }
    }

    /// Appends a record: its length if it is to be shown, its time and its values.
    pub(crate) fn record(&mut self, out: &mut Vec<u8>, time: Stamp, sets: &[ValueSet<'_>], has_size: Size) {
        if has_size == Size::Shown {
            put!(*out, "[{} bytes]\n", size(self.stamps, sets.iter().copied()));
        }
        self.stamps.full(out, time);
        if sets.is_empty() {
            out.extend_from_slice(b"  <mark>\n");
            return;
        }
        put!(*out, " {} metric{}\n", sets.len(), if sets.len() > 1 { "s" } else { "" });
        for set in sets {
            self.set(out, time, set);
        }
    }

    fn metric(&mut self, pmid: Option<PmId>) -> Metric {
        let (meta, names) = (self.meta, self.names);
        let metric = self.metrics.entry(pmid).or_insert_with(|| {
            let mut title = format!("    {} (", OrNull(pmid)).into_bytes();
            let joined = pmid.and_then(|pmid| names.joined(pmid));
            title.extend_from_slice(joined.as_deref().unwrap_or(b"<nonames>"));
            let desc = pmid.and_then(|pmid| meta.raw_desc(pmid).ok());
            Metric { title, desc: desc.map(|desc| (Type::from_code(desc.ty).ok(), desc.indom)) }
        });
        metric.clone()
    }

    fn set(&mut self, out: &mut Vec<u8>, time: Stamp, set: &ValueSet<'_>) {
        let metric = self.metric(set.pmid);
        if set.is_empty() {
            out.extend_from_slice(&metric.title);
            match set.error {
                None => out.extend_from_slice(b"): No values returned!\n"),
                Some(error) => put!(*out, "): {error}\n"),
            }
            return;
        }
        let unknown = if set.format() == Format::InSitu { Type::I32 } else { Type::Aggregate };
        let (ty, indom) = metric.desc.unwrap_or((Some(unknown), None));
        let layout = match ty {
            Some(Type::Event) => Some(Layout::Micro),
            Some(Type::HighResEvent) => Some(Layout::Nano),
            _ => None,
        };
        let values = set.values();
        if let Some(layout) = layout {
            for (inst, value) in values {
                out.extend_from_slice(&metric.title);
                self.event_instance(out, time, indom, inst);
                self.events(out, value, layout);
            }
            return;
        }
        out.extend_from_slice(&metric.title);
        out.extend_from_slice(if set.len() > 1 { b"):\n       " } else { b"):" });
        for (nth, (inst, value)) in values.enumerate() {
            if nth > 0 {
                out.extend_from_slice(b"       ");
            }
            if let Some(indom) = indom {
                out.extend_from_slice(b" inst [");
                self.instance(out, time, indom, inst);
                out.push(b']');
            }
            out.extend_from_slice(b" value ");
            show(out, value, ty);
            out.push(b'\n');
        }
    }

    fn instance(&mut self, out: &mut Vec<u8>, time: Stamp, indom: InDom, inst: Option<Inst>) {
        integer(out, (inst.word() as i32).into());
        match self.instances.name(indom, inst.word(), time) {
            Err(_) => out.extend_from_slice(b" or ???"),
            Ok(name) => {
                out.extend_from_slice(b" or \"");
                out.extend_from_slice(name);
                out.push(b'"');
            }
        }
    }

    fn event_instance(&mut self, out: &mut Vec<u8>, time: Stamp, indom: Option<InDom>, inst: Option<Inst>) {
        if let Some(indom) = indom {
            out.push(b'[');
            self.instance(out, time, indom, inst);
            out.push(b']');
        }
        out.extend_from_slice(b"): ");
    }

    fn events(&mut self, out: &mut Vec<u8>, value: RawValue<'_>, layout: Layout) {
        let RawValue::Block(_, payload) = value else { return };
        let Ok(events) = records(payload, layout).map(Iterator::collect::<Vec<Event<'_>>>) else { return };
        if events.is_empty() {
            out.extend_from_slice(b"No event records\n");
            return;
        }
        let missed: u32 = events.iter().map(|event| event.missed).fold(0, u32::wrapping_add);
        put!(*out, "{}", events.len());
        if missed as i32 > 0 {
            put!(*out, " (and {missed} missed)");
        }
        let is_one = events.len() as u64 + u64::from(missed) == 1;
        out.extend_from_slice(if is_one { b" event record\n" } else { b" event records\n" });
        for (nth, event) in events.iter().enumerate() {
            put!(*out, "        --- event record [{nth}] timestamp ");
            match layout {
                Layout::Micro => self.stamps.event(out, event.time),
                Layout::Nano => self.stamps.high_res_event(out, event.time),
            }
            self.event(out, event);
        }
    }

    fn event(&self, out: &mut Vec<u8>, event: &Event<'_>) {
        let mut params = event.params().peekable();
        if !event.flags.is_empty() {
            put!(*out, " flags {:#x} ({}) ---\n", event.flags.bits(), event.flags);
        } else if params.peek().is_none() {
            out.extend_from_slice(b" ---\n\t          No parameters\n");
        } else if params.peek().is_some_and(|(pmid, _)| pmid.is_some_and(|pmid| self.names.joined(pmid).is_some())) {
            out.extend_from_slice(b" ---\n");
        }
        if event.flags.contains(EventFlags::MISSED) {
            put!(*out, "        ==> {} missed event records\n", event.missed as i32);
        }
        for (pmid, value) in params {
            self.parameter(out, pmid, value);
        }
    }

    fn parameter(&self, out: &mut Vec<u8>, pmid: Option<PmId>, value: Atom<'_>) {
        match pmid.and_then(|pmid| self.names.joined(pmid)) {
            Some(names) => {
                put!(*out, "        {} (", OrNull(pmid));
                out.extend_from_slice(&names);
                out.extend_from_slice(b"):");
            }
            None => put!(*out, "        PMID: {}:", OrNull(pmid)),
        }
        match pmid.ok_or(Error::PMID_LOG).and_then(|pmid| self.meta.raw_desc(pmid)) {
            Err(error) => put!(*out, " pmLookupDesc: {error}\n"),
            Ok(_) => {
                out.extend_from_slice(b" value ");
                out.extend_from_slice(&Print::new(value, 1).to_bytes());
                out.push(b'\n');
            }
        }
    }
}

/// Whether the lengths of records are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    Hidden,
    Shown,
}

fn show(out: &mut Vec<u8>, value: RawValue<'_>, ty: Option<Type>) {
    let atom = match (value, ty) {
        (RawValue::InSitu(word), Some(Type::I32)) => Atom::I32(word as i32),
        (RawValue::InSitu(word), Some(Type::U32)) => Atom::U32(word),
        (RawValue::Block(..), Some(ty @ (Type::I64 | Type::U64))) => match value.atom(ty) {
            Ok(atom) => atom,
            Err(_) => return out.extend_from_slice(&value.print(Some(ty), 1).to_bytes()),
        },
        _ => return out.extend_from_slice(&value.print(ty, 1).to_bytes()),
    };
    match atom {
        Atom::I32(v) => integer(out, v.into()),
        Atom::U32(v) => integer(out, v.into()),
        Atom::I64(v) => integer(out, v.into()),
        Atom::U64(v) => integer(out, v.into()),
        other => out.extend_from_slice(&Print::new(other, 1).to_bytes()),
    }
}

/// Appends a decimal number; several times as fast as `write!`.
fn integer(out: &mut Vec<u8>, number: i128) {
    if number < 0 {
        out.push(b'-');
    }
    let (mut rest, mut digits, mut at) = (number.unsigned_abs() as u64, [0; 20], 20);
    loop {
        at -= 1;
        if let Some(digit) = digits.get_mut(at) {
            *digit = b'0' + (rest % 10) as u8;
        }
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(at..).unwrap_or_default());
}
