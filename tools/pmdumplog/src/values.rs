//! Values of a record.

use std::io::{self, Write as _};

use pcp_archive::{InstanceNames, Metadata, Record};
use pcp_base::escape::TerminalWriter;
use pcp_pdu::event::{EventFlags, Layout, Record as Event, Stamp, records};
use pcp_pdu::print::Print;
use pcp_pdu::result::{BLOCK_HEAD, Format, RawValue, ValueSet};
use pmapi::{Atom, Error, InDom, Inst, OptionWord as _, OrNull, PmId, Type};

use crate::names::Names;
use crate::out::{FULL, Out, identifier, integer, put};
use crate::zone::Stamps;

/// Writer of values.
pub(crate) struct Values<'a> {
    meta: &'a Metadata,
    names: &'a Names<'a>,
    stamps: &'a Stamps,
    instances: InstanceNames<'a>,
}

/// The value sets of a record that the user wants to see.
pub(crate) enum Sets<'r> {
    All(Record<'r>),
    Some(Vec<ValueSet<'r>>),
}

impl Sets<'_> {
    fn len(&self) -> usize {
        match self {
            Sets::All(record) => record.values.len(),
            Sets::Some(sets) => sets.len(),
        }
    }

    /// Returns the length of a record with these value sets, in bytes.
    fn size(&self, stamps: &Stamps) -> usize {
        let head = if stamps.version.number() == 3 { 24 } else { 20 };
        match self {
            Sets::All(record) if record.is_mark() => head,
            Sets::All(record) => record.len,
            Sets::Some(sets) => head + sets.iter().map(size).sum::<usize>(),
        }
    }
}

/// Returns the length of a value set with its blocks, in bytes.
fn size(set: &ValueSet<'_>) -> usize {
    if set.is_empty() {
        return 8;
    }
    let mut bytes = 12 + 8 * set.len();
    if set.format() != Format::InSitu {
        let payloads = set.values().map(|(_, value)| match value {
            RawValue::Block(_, payload) => (BLOCK_HEAD + payload.len()).next_multiple_of(4),
            RawValue::InSitu(_) => 0,
        });
        bytes += payloads.sum::<usize>();
    }
    bytes
}

impl<'a> Values<'a> {
    pub(crate) fn new(meta: &'a Metadata, names: &'a Names<'a>, stamps: &'a Stamps) -> Values<'a> {
        Values { meta, names, stamps, instances: meta.instance_names() }
    }

    /// Writes a record: its length if it is to be shown, its time and its values.
    pub(crate) fn record(&mut self, out: &mut Out, time: Stamp, sets: &Sets<'_>, has_size: Size) -> io::Result<()> {
        if has_size == Size::Shown {
            out.text.push(b'[');
            integer(&mut out.text, sets.size(self.stamps));
            out.text.extend_from_slice(b" bytes]\n");
        }
        self.stamps.full(&mut out.text, time);
        let count = sets.len();
        if count == 0 {
            out.text.extend_from_slice(b"  <mark>\n");
            return out.pass();
        }
        out.text.push(b' ');
        integer(&mut out.text, count);
        out.text.extend_from_slice(if count > 1 { b" metrics\n" } else { b" metric\n" });
        match sets {
            Sets::All(record) => record.values.iter().try_for_each(|set| self.set(out, time, &set)),
            Sets::Some(sets) => sets.iter().try_for_each(|set| self.set(out, time, set)),
        }
    }

    /// Writes a record to standard error, as libpcp's debugging option `pdu` shows one that is read.
    pub(crate) fn debug(&mut self, record: Record<'_>) {
        let out = &mut Vec::new();
        let time = record.time;
        put!(*out, "__pmResult dump from archive timestamp: {}.{:09} ", time.seconds, time.nanoseconds);
        self.stamps.high_res_event(out, time);
        put!(*out, " numpmid: {}\n", record.values.len());
        for set in record.values.iter() {
            put!(*out, "  ");
            self.title(out, set.pmid);
            match set.error {
                None => put!(*out, "): numval: {}", set.len()),
                Some(error) => put!(*out, "): {error}"),
            }
            if !set.is_empty() {
                put!(*out, " valfmt: {} vlist[]:", set.format().code());
            }
            out.push(b'\n');
            let (ty, indom) = self.kind(set.pmid).unwrap_or_default();
            for (inst, value) in set.values() {
                out.extend_from_slice(if indom.is_some() { b"   " } else { b"  " });
                self.value(out, time, indom, inst, value.print(ty, 1));
                if out.len() >= FULL {
                    say(out);
                }
            }
        }
        say(out);
    }

    /// Appends the identifier and the names of a metric.
    fn title(&self, out: &mut Vec<u8>, pmid: Option<PmId>) {
        match pmid {
            Some(pmid) => identifier(out, pmid),
            None => put!(*out, "{}", OrNull(pmid)),
        }
        out.extend_from_slice(b" (");
        if !pmid.is_some_and(|pmid| self.names.append_joined(pmid, out)) {
            out.extend_from_slice(b"<nonames>");
        }
    }

    /// Returns the type and the instance domain of a metric, `None` without a descriptor.
    fn kind(&self, pmid: Option<PmId>) -> Option<(Option<Type>, Option<InDom>)> {
        let desc = self.meta.raw_desc(pmid?).ok()?;
        Some((Type::from_code(desc.ty).ok(), desc.indom))
    }

    /// Appends number and name of an instance.
    fn instance(&mut self, out: &mut Vec<u8>, time: Stamp, indom: InDom, inst: u32) {
        integer(out, inst as i32);
        match self.instances.name(indom, inst, time) {
            Err(_) => out.extend_from_slice(b" or ???"),
            Ok(name) => {
                out.extend_from_slice(b" or \"");
                out.extend_from_slice(name);
                out.push(b'"');
            }
        }
    }

    /// Appends a value with its instance, if the metric has an instance domain, and a newline.
    fn value(&mut self, out: &mut Vec<u8>, time: Stamp, indom: Option<InDom>, inst: Option<Inst>, value: Print<'_>) {
        if let Some(indom) = indom {
            out.extend_from_slice(b" inst [");
            self.instance(out, time, indom, inst.word());
            out.push(b']');
        }
        out.extend_from_slice(b" value ");
        value.append_to(out);
        out.push(b'\n');
    }

    fn set(&mut self, out: &mut Out, time: Stamp, set: &ValueSet<'_>) -> io::Result<()> {
        out.text.extend_from_slice(b"    ");
        self.title(&mut out.text, set.pmid);
        if set.is_empty() {
            match set.error {
                None => out.text.extend_from_slice(b"): No values returned!\n"),
                Some(error) => put!(out.text, "): {error}\n"),
            }
            return out.pass();
        }
        let unknown = if set.format() == Format::InSitu { Type::I32 } else { Type::Aggregate };
        let (ty, indom) = self.kind(set.pmid).unwrap_or((Some(unknown), None));
        match ty {
            Some(Type::Event) => return self.event_set(out, time, indom, set, Layout::Micro),
            Some(Type::HighResEvent) => return self.event_set(out, time, indom, set, Layout::Nano),
            _ => {}
        }
        // A single value is in the line of the metric.
        let (end, indent) = if set.len() == 1 { ("):", "") } else { ("):\n", "       ") };
        out.text.extend_from_slice(end.as_bytes());
        for (inst, value) in set.values() {
            out.text.extend_from_slice(indent.as_bytes());
            self.value(&mut out.text, time, indom, inst, value.print(ty, 1));
            out.pass()?;
        }
        Ok(())
    }

    /// Appends the rest of a set of event records, whose title is there.
    fn event_set(
        &mut self,
        out: &mut Out,
        time: Stamp,
        indom: Option<InDom>,
        set: &ValueSet<'_>,
        layout: Layout,
    ) -> io::Result<()> {
        for (nth, (inst, value)) in set.values().enumerate() {
            if nth > 0 {
                out.text.extend_from_slice(b"    ");
                self.title(&mut out.text, set.pmid);
            }
            if let Some(indom) = indom {
                out.text.push(b'[');
                self.instance(&mut out.text, time, indom, inst.word());
                out.text.push(b']');
            }
            out.text.extend_from_slice(b"): ");
            self.events(out, value, layout)?;
            out.pass()?;
        }
        Ok(())
    }

    fn events(&mut self, out: &mut Out, value: RawValue<'_>, layout: Layout) -> io::Result<()> {
        let RawValue::Block(_, payload) = value else { return Ok(()) };
        let Ok(events) = records(payload, layout).map(Iterator::collect::<Vec<Event<'_>>>) else {
            return Ok(());
        };
        if events.is_empty() {
            out.text.extend_from_slice(b"No event records\n");
            return Ok(());
        }
        let missed: u32 = events.iter().map(|event| event.missed).fold(0, u32::wrapping_add);
        put!(out.text, "{}", events.len());
        if missed as i32 > 0 {
            put!(out.text, " (and {missed} missed)");
        }
        let is_one = events.len() as u64 + u64::from(missed) == 1;
        out.text.extend_from_slice(if is_one { b" event record\n" } else { b" event records\n" });
        for (nth, event) in events.iter().enumerate() {
            put!(out.text, "        --- event record [{nth}] timestamp ");
            match layout {
                Layout::Micro => self.stamps.event(&mut out.text, event.time),
                Layout::Nano => self.stamps.high_res_event(&mut out.text, event.time),
            }
            self.event(out, event)?;
        }
        Ok(())
    }

    fn event(&self, out: &mut Out, event: &Event<'_>) -> io::Result<()> {
        let text = &mut out.text;
        let mut params = event.params().peekable();
        if !event.flags.is_empty() {
            put!(*text, " flags {:#x} ({}) ---\n", event.flags.bits(), event.flags);
        } else if params.peek().is_none() {
            text.extend_from_slice(b" ---\n\t          No parameters\n");
        } else if params.peek().is_some_and(|(pmid, _)| pmid.is_some_and(|pmid| self.names.has(pmid))) {
            text.extend_from_slice(b" ---\n");
        }
        if event.flags.contains(EventFlags::MISSED) {
            put!(*text, "        ==> {} missed event records\n", event.missed as i32);
        }
        for (pmid, value) in params {
            self.parameter(&mut out.text, pmid, value);
            // Events may have many parameters with long names.
            out.pass()?;
        }
        out.pass()
    }

    fn parameter(&self, out: &mut Vec<u8>, pmid: Option<PmId>, value: Atom<'_>) {
        let start = out.len();
        put!(*out, "        {} (", OrNull(pmid));
        if pmid.is_some_and(|pmid| self.names.append_joined(pmid, out)) {
            out.extend_from_slice(b"):");
        } else {
            out.truncate(start);
            put!(*out, "        PMID: {}:", OrNull(pmid));
        }
        match pmid.ok_or(Error::PMID_LOG).and_then(|pmid| self.meta.raw_desc(pmid)) {
            Err(error) => put!(*out, " pmLookupDesc: {error}\n"),
            Ok(_) => {
                out.extend_from_slice(b" value ");
                Print::new(value, 1).append_to(out);
                out.push(b'\n');
            }
        }
    }
}

/// Writes a text to standard error, and empties it.
fn say(text: &mut Vec<u8>) {
    // A diagnostic that nobody can read is no reason to stop.
    _ = TerminalWriter::new(io::stderr()).write_all(text);
    text.clear();
}

/// Whether the lengths of records are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    Hidden,
    Shown,
}
