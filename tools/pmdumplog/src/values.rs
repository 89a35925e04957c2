//! Values of a record.

use std::io::{self, Write as _};

use hashbrown::HashMap;
use pcp_archive::{Metadata, Record};
use pcp_pdu::event::{EventFlags, Layout, Record as Event, Stamp, records};
use pcp_pdu::print::Print;
use pcp_pdu::result::{BLOCK_HEAD, Format, RawValue, ValueSet};
use pmapi::cnum::append_general;
use pmapi::escape::TerminalWriter;
use pmapi::{Atom, Error, InDom, Inst, OptionWord as _, OrNull, PmId, Type};

use crate::domains::{Domains, INDENT, View};
use crate::names::Names;
use crate::out::{LARGE, Out, PIECE, Text, identifier, integer, number_line, put};
use crate::repeat::{Left, Repeat};
use crate::zone::Stamps;

/// Writer of values, which caches the texts of metrics.
pub(crate) struct Values<'a> {
    meta: &'a Metadata,
    names: &'a Names<'a>,
    stamps: &'a Stamps,
    domains: Domains<'a>,
    metrics: Metrics<'a>,
    left: Left,
}

/// Metrics that have been printed.
struct Metrics<'a> {
    meta: &'a Metadata,
    names: &'a Names<'a>,
    titles: Titles,
    list: Vec<Metric>,
    by_pmid: HashMap<Option<PmId>, usize>,
    /// Index of the last metric.
    at: usize,
}

/// Texts that are printed with each value of a metric.
struct Metric {
    pmid: Option<PmId>,
    /// Index of the metric that came after this one in the record before. Records often have the same metrics in the same
    /// order.
    next: usize,
    title: Title,
    /// Type and index of the instance domain; `None` without a descriptor.
    desc: Option<(Option<Type>, Option<usize>)>,
    repeat: Repeat,
}

/// Starts of the lines of all metrics: `    253.0.1 (name): value `.
struct Titles {
    /// The texts, and then [`PIECE`] bytes.
    texts: Vec<u8>,
}

/// Place of a metric's title.
#[derive(Clone, Copy)]
struct Title {
    start: usize,
    /// Length of the identifier and the names.
    len: usize,
}

/// Bytes by which diagnostics are less indented.
const SHIFT: usize = 2;

/// Text after the names of a metric that has no instances, before its value.
const VALUE: &[u8] = b"): value ";

impl Titles {
    fn new() -> Titles {
        Titles { texts: vec![0; PIECE] }
    }

    /// Adds the title of a metric.
    fn add(&mut self, pmid: Option<PmId>, names: &Names<'_>) -> Title {
        let start = self.texts.len() - PIECE;
        self.texts.truncate(start);
        self.texts.extend_from_slice(b"    ");
        match pmid {
            Some(pmid) => identifier(&mut self.texts, pmid),
            None => put!(self.texts, "{}", OrNull(pmid)),
        }
        self.texts.extend_from_slice(b" (");
        if !pmid.is_some_and(|pmid| names.append_joined(pmid, &mut self.texts)) {
            self.texts.extend_from_slice(b"<nonames>");
        }
        let len = self.texts.len() - start;
        self.texts.extend_from_slice(VALUE);
        self.texts.resize(self.texts.len() + PIECE, 0);
        Title { start, len }
    }

    #[inline(always)]
    fn text(&self, start: usize, len: usize) -> Text<'_> {
        Text::new(self.texts.get(start..).unwrap_or_default(), len)
    }

    /// Returns the identifier and the names.
    #[inline]
    fn names(&self, title: Title) -> Text<'_> {
        self.text(title.start, title.len)
    }

    /// Returns the identifier and the names, less indented.
    fn for_debugging(&self, title: Title) -> Text<'_> {
        self.text(title.start + SHIFT, title.len - SHIFT)
    }

    /// Returns the line of a metric without instances, up to its value.
    #[inline]
    fn before_value(&self, title: Title) -> Text<'_> {
        self.text(title.start, title.len + VALUE.len())
    }
}

impl Metrics<'_> {
    /// Returns a metric and the titles of all.
    #[inline]
    fn get(&mut self, pmid: Option<PmId>, domains: &mut Domains<'_>) -> (&mut Metric, &Titles) {
        let next = self.list.get(self.at).map_or(0, |metric| metric.next);
        let is_next = self.list.get(next).is_some_and(|metric| metric.pmid == pmid);
        let found = if is_next { next } else { self.find(pmid, domains) };
        self.at = found;
        // The list has at least this metric.
        (&mut self.list[found], &self.titles)
    }

    /// Returns the index of a metric. The next record is expected to have this metric after the one that was printed last.
    #[inline(never)]
    fn find(&mut self, pmid: Option<PmId>, domains: &mut Domains<'_>) -> usize {
        let Metrics { meta, names, titles, list, by_pmid, at } = self;
        let found = *by_pmid.entry(pmid).or_insert_with(|| {
            let title = titles.add(pmid, names);
            let desc = pmid.and_then(|pmid| meta.raw_desc(pmid).ok());
            let indom = desc.and_then(|desc| desc.indom).map(|indom| domains.index(indom));
            let desc = desc.map(|desc| (Type::from_code(desc.ty).ok(), indom));
            list.push(Metric { pmid, next: 0, title, desc, repeat: Repeat::default() });
            list.len() - 1
        });
        if let Some(last) = list.get_mut(*at) {
            last.next = found;
        }
        found
    }
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
        // Without copies of a list that grows.
        let list = Vec::with_capacity(meta.descs().len());
        let metrics = Metrics { meta, names, titles: Titles::new(), list, by_pmid: HashMap::new(), at: 0 };
        Values { meta, names, stamps, domains: Domains::new(meta), metrics, left: Left::default() }
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
            let (metric, titles) = self.metrics.get(set.pmid, &mut self.domains);
            titles.for_debugging(metric.title).append_to(out);
            match set.error {
                None => put!(*out, "): numval: {}", set.len()),
                Some(error) => put!(*out, "): {error}"),
            }
            if !set.is_empty() {
                put!(*out, " valfmt: {} vlist[]:", set.format().code());
            }
            out.push(b'\n');
            let (ty, indom) = metric.desc.unwrap_or_default();
            let mut domain = indom.and_then(|indom| self.domains.at(indom, time));
            for (inst, value) in set.values() {
                let skipped = if domain.is_some() { 2 * SHIFT } else { 2 * SHIFT + 1 };
                before_value(out, domain.as_mut(), inst.word(), skipped);
                show_line(out, value, ty);
                say_large(out);
            }
            say_large(out);
        }
        say(out);
    }

    fn set(&mut self, out: &mut Out, time: Stamp, set: &ValueSet<'_>) -> io::Result<()> {
        let text = &mut out.text;
        let (metric, titles) = self.metrics.get(set.pmid, &mut self.domains);
        let unknown = if set.format() == Format::InSitu { Type::I32 } else { Type::Aggregate };
        let (ty, indom) = metric.desc.unwrap_or((Some(unknown), None));
        // The most frequent sets. Their numbers are written faster than they are compared.
        if set.len() == 1 && indom.is_none() {
            if let Some(number) = set.values().next().and_then(|(_, value)| number(value, ty)) {
                titles.before_value(metric.title).append_to(text);
                number_line(text, number);
                return out.pass();
            }
        }
        titles.names(metric.title).append_to(text);
        if set.is_empty() {
            match set.error {
                None => text.extend_from_slice(b"): No values returned!\n"),
                Some(error) => put!(*text, "): {error}\n"),
            }
            return out.pass();
        }
        match ty {
            Some(Type::Event) => self.event_set(out, time, set, Layout::Micro)?,
            Some(Type::HighResEvent) => self.event_set(out, time, set, Layout::Nano)?,
            _ => {
                let domain = indom.and_then(|indom| self.domains.at(indom, time));
                let names = domain.as_ref().and_then(View::record);
                if set.len() == 1 && ty.is_some_and(is_integer) {
                    plain_set(out, set, ty, domain)?;
                } else {
                    metric.repeat.append(out, set, names, &mut self.left, |out| plain_set(out, set, ty, domain))?;
                }
            }
        }
        out.pass()
    }

    /// Appends the rest of a set of event records, whose title is there.
    fn event_set(&mut self, out: &mut Out, time: Stamp, set: &ValueSet<'_>, layout: Layout) -> io::Result<()> {
        let indom = set.pmid.and_then(|pmid| self.meta.raw_desc(pmid).ok()?.indom);
        for (nth, (inst, value)) in set.values().enumerate() {
            if nth > 0 {
                let (metric, titles) = self.metrics.get(set.pmid, &mut self.domains);
                titles.names(metric.title).append_to(&mut out.text);
            }
            self.event_instance(&mut out.text, time, indom, inst);
            self.events(out, value, layout)?;
            out.pass_large()?;
        }
        Ok(())
    }

    fn event_instance(&mut self, out: &mut Vec<u8>, time: Stamp, indom: Option<InDom>, inst: Option<Inst>) {
        if let Some(indom) = indom {
            out.push(b'[');
            self.domains.name(out, time, indom, inst.word());
            out.push(b']');
        }
        out.extend_from_slice(b"): ");
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
            out.pass_large()?;
        }
        out.pass_large()
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

/// Appends the rest of a set of values that are no event records, whose title is there.
fn plain_set(out: &mut Out, set: &ValueSet<'_>, ty: Option<Type>, mut domain: Option<View<'_, '_>>) -> io::Result<()> {
    // A single value is in the line of the metric.
    let is_single = set.len() == 1;
    out.text.extend_from_slice(if is_single { b"):" } else { b"):\n" });
    let skipped = if is_single { INDENT.len() } else { 0 };
    for (inst, value) in set.values() {
        let text = &mut out.text;
        before_value(text, domain.as_mut(), inst.word(), skipped);
        show_line(text, value, ty);
        out.pass_large()?;
    }
    Ok(())
}

/// Appends the text before the value of an instance without its first `skipped` bytes.
#[inline(always)]
fn before_value(out: &mut Vec<u8>, domain: Option<&mut View<'_, '_>>, inst: u32, skipped: usize) {
    match domain {
        Some(domain) => domain.before_value(out, inst, skipped),
        None => {
            out.extend_from_slice(INDENT.get(skipped..).unwrap_or_default());
            out.extend_from_slice(b" value ");
        }
    }
}

/// Appends a value and a newline.
#[inline(always)]
fn show_line(out: &mut Vec<u8>, value: RawValue<'_>, ty: Option<Type>) {
    match number(value, ty) {
        Some(number) => number_line(out, number),
        None => {
            show(out, value, ty);
            out.push(b'\n');
        }
    }
}

/// Writes a very large text to standard error, and empties it.
fn say_large(text: &mut Vec<u8>) {
    if text.len() >= LARGE {
        say(text);
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

fn is_integer(ty: Type) -> bool {
    matches!(ty, Type::I32 | Type::U32 | Type::I64 | Type::U64)
}

/// Returns the magnitude of an integer, and whether it is negative; `None` for another value, and for one that is not
/// encoded as its type requires.
#[inline(always)]
fn number(value: RawValue<'_>, ty: Option<Type>) -> Option<(u64, bool)> {
    Some(match (value, ty?) {
        (RawValue::InSitu(word), Type::U32) => (word.into(), false),
        (RawValue::InSitu(word), Type::I32) => ((word as i32).unsigned_abs().into(), (word as i32) < 0),
        (RawValue::Block(code, payload), ty @ (Type::U64 | Type::I64)) if i32::from(code) == ty.code() => {
            let bits = u64::from_be_bytes(payload.try_into().ok()?);
            if ty == Type::U64 { (bits, false) } else { ((bits as i64).unsigned_abs(), (bits as i64) < 0) }
        }
        _ => return None,
    })
}

fn show(out: &mut Vec<u8>, value: RawValue<'_>, ty: Option<Type>) {
    let atom = match (value, ty) {
        (RawValue::Block(..), Some(ty @ (Type::Float | Type::Double | Type::String))) => value.atom(ty).ok(),
        _ => None,
    };
    match atom {
        Some(Atom::Double(v)) => append_general(out, v, 16),
        // An empty text is the same in every format.
        Some(Atom::String(b"")) => out.extend_from_slice(b"\"\""),
        Some(atom) => Print::new(atom, 1).append_to(out),
        None => value.print(ty, 1).append_to(out),
    }
}
