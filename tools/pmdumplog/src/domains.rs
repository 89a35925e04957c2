//! Instances with the texts that are printed before their values.

use hashbrown::HashMap;
use pcp_archive::{InDomRecord, InstanceNames, Metadata};
use pcp_pdu::event::Stamp;
use pmapi::InDom;

use crate::out::{PIECE, Text, integer};

/// Largest size of the texts of all domains together, in bytes. Texts beyond it are made for each value.
const MOST: usize = 32 << 20;

/// Instance domains as of the time of a record.
pub(crate) struct Domains<'a> {
    meta: &'a Metadata,
    names: InstanceNames<'a>,
    domains: Vec<Domain>,
    by_id: HashMap<InDom, usize>,
    /// Bytes that texts may still use.
    left: usize,
}

/// Texts of an instance domain as of a time.
struct Domain {
    indom: InDom,
    records: Vec<InDomRecord>,
    /// Time for which `at` is known.
    time: Option<Stamp>,
    /// Number of the record whose instances are in the table.
    at: Option<usize>,
    /// Instances with texts, by number.
    insts: Vec<Known>,
    /// Texts, and then [`PIECE`] bytes, so that a piece can be copied from the start of any text.
    texts: Vec<u8>,
    state: State,
    /// Place after the last instance that was found. Values are usually in the order of instances.
    next: usize,
}

/// Instance and the position of its text.
struct Known {
    inst: u32,
    start: u32,
    len: u32,
}

/// Which instances of a domain have a text in memory.
#[derive(Default)]
enum State {
    /// None yet. The number is that of further names to look up one by one, before the texts of all instances are made at
    /// once. A large domain may change with each record, and few of its names may be printed.
    Waiting(usize),
    All,
    /// None, because they are too long, or because the domain does not exist yet.
    #[default]
    None,
}

/// Instance domain as of a time, with the archive's names.
pub(crate) struct View<'d, 'a> {
    domain: &'d mut Domain,
    names: &'d mut InstanceNames<'a>,
    left: &'d mut usize,
    time: Stamp,
}

/// Appends number and name of an instance.
fn named(out: &mut Vec<u8>, inst: u32, name: Option<&[u8]>) {
    integer(out, inst as i32);
    match name {
        None => out.extend_from_slice(b" or ???"),
        Some(name) => {
            out.extend_from_slice(b" or \"");
            out.extend_from_slice(name);
            out.push(b'"');
        }
    }
}

/// Indentation of the lines of a metric with several values.
pub(crate) const INDENT: &[u8] = b"       ";

/// Appends the indentation and the text before a value.
fn before_value(out: &mut Vec<u8>, inst: u32, name: Option<&[u8]>) {
    out.extend_from_slice(INDENT);
    out.extend_from_slice(b" inst [");
    named(out, inst, name);
    out.extend_from_slice(b"] value ");
}

impl<'a> Domains<'a> {
    pub(crate) fn new(meta: &'a Metadata) -> Domains<'a> {
        let names = meta.instance_names();
        Domains { meta, names, domains: Vec::new(), by_id: HashMap::new(), left: MOST }
    }

    /// Returns the index of a domain, for [`Domains::at`].
    pub(crate) fn index(&mut self, indom: InDom) -> usize {
        let Domains { meta, domains, by_id, .. } = self;
        *by_id.entry(indom).or_insert_with(|| {
            let records = meta.indom_records(indom).into_iter().flatten().collect();
            domains.push(Domain {
                indom,
                records,
                time: None,
                at: None,
                insts: Vec::new(),
                texts: Vec::new(),
                state: State::None,
                next: 0,
            });
            domains.len() - 1
        })
    }

    /// Returns a domain as of a time.
    #[inline]
    pub(crate) fn at(&mut self, index: usize, time: Stamp) -> Option<View<'_, 'a>> {
        let Domains { names, domains, left, .. } = self;
        let domain = domains.get_mut(index)?;
        if domain.time != Some(time) {
            *left += domain.go(time);
        }
        Some(View { domain, names, left, time })
    }

    /// Appends number and name of an instance.
    pub(crate) fn name(&mut self, out: &mut Vec<u8>, time: Stamp, indom: InDom, inst: u32) {
        named(out, inst, self.names.name(indom, inst, time).ok());
    }
}

impl Domain {
    /// Goes to a time, and returns the length of the texts that are dropped.
    fn go(&mut self, time: Stamp) -> usize {
        self.time = Some(time);
        let (at, len) = (self.record_at(time), self.texts.len());
        if at == self.at {
            return 0;
        }
        self.at = at;
        self.texts.clear();
        self.state = at.map_or(State::None, |_| State::Waiting(self.insts.len() / 4));
        len
    }

    /// Returns the number of the last record up to a time.
    fn record_at(&self, time: Stamp) -> Option<usize> {
        let is_now = |at: usize| {
            let starts = |at: usize| self.records.get(at).is_some_and(|record| record.time <= time);
            starts(at) && !starts(at + 1)
        };
        // Records are usually read in the order of time.
        match self.at {
            Some(at) if is_now(at) => Some(at),
            Some(at) if is_now(at + 1) => Some(at + 1),
            _ => self.records.partition_point(|record| record.time <= time).checked_sub(1),
        }
    }

    /// Makes the texts of the present record, if they fit.
    fn fill(&mut self, names: &mut InstanceNames<'_>, left: &mut usize) {
        self.insts.clear();
        (self.state, self.next) = (State::None, 0);
        let Some(record) = self.at.and_then(|at| self.records.get(at)) else { return };
        let (mut last, mut start) = (None, 0);
        for instance in names.instances_of(self.indom, *record) {
            // Of several entries of an instance, the first one counts.
            if last == Some(instance.inst) {
                continue;
            }
            last = Some(instance.inst);
            before_value(&mut self.texts, instance.inst, Some(instance.name));
            let end = self.texts.len();
            if end + PIECE > *left {
                self.texts.clear();
                return;
            }
            // The limit of all texts is far below 4 GiB.
            self.insts.push(Known { inst: instance.inst, start: start as u32, len: (end - start) as u32 });
            start = end;
        }
        self.texts.resize(start + PIECE, 0);
        *left = left.saturating_sub(self.texts.len());
        self.state = State::All;
    }

    /// Returns the text of an instance without its first `skipped` bytes.
    #[inline(always)]
    fn text(&mut self, inst: u32, skipped: usize) -> Option<Text<'_>> {
        let known = match self.insts.get(self.next) {
            Some(known) if known.inst == inst => known,
            _ => {
                self.next = self.insts.binary_search_by_key(&inst, |known| known.inst).ok()?;
                self.insts.get(self.next)?
            }
        };
        self.next += 1;
        let (start, len) = (known.start as usize + skipped, (known.len as usize).saturating_sub(skipped));
        Some(Text::new(self.texts.get(start..).unwrap_or_default(), len))
    }
}

impl View<'_, '_> {
    /// Returns the number of the domain's record with its instances.
    pub(crate) fn record(&self) -> Option<usize> {
        self.domain.at
    }

    /// Appends the text between the name of a metric and the value of an instance, without its first `skipped` bytes.
    #[inline(always)]
    pub(crate) fn before_value(&mut self, out: &mut Vec<u8>, inst: u32, skipped: usize) {
        if matches!(self.domain.state, State::All) {
            if let Some(text) = self.domain.text(inst, skipped) {
                return text.append_to(out);
            }
        }
        self.make(out, inst, skipped);
    }

    /// Appends a text that is not kept.
    #[inline(never)]
    fn make(&mut self, out: &mut Vec<u8>, inst: u32, skipped: usize) {
        match &mut self.domain.state {
            State::Waiting(0) => self.domain.fill(self.names, self.left),
            State::Waiting(left) => *left -= 1,
            State::All | State::None => (),
        }
        let name = self.names.name(self.domain.indom, inst, self.time).ok();
        let start = out.len();
        before_value(out, inst, name);
        out.drain(start..start + skipped);
    }
}
