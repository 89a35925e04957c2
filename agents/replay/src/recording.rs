//! Values and instances as of a position in the archive.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use pcp_archive::{Archive, ArchiveError, Cursor, InstanceNames};
use pcp_base::escape::exported_name;
use pcp_pdu::event::Stamp;
use pcp_pdu::result::{RawValue, ValueSet};
use pmapi::{Atom, Error, InDom, Inst, PmId, Semantics, Type};
use pmda::prelude::Instances;

use crate::clock::Position;
use crate::metrics::Metrics;

/// Number of records that are searched for the values as of a time.
const SEARCHED: usize = 500;
/// Number of bytes of records after which the search ends too: pmcd waits for a few seconds only, and the archive may be
/// compressed.
const SEARCHED_BYTES: usize = 64 << 20;

/// Value with its memory.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Held {
    InSitu(u32),
    Block(u8, Box<[u8]>),
}

impl Held {
    fn new(value: RawValue<'_>) -> Held {
        match value {
            RawValue::InSitu(word) => Held::InSitu(word),
            RawValue::Block(code, payload) => Held::Block(code, payload.into()),
        }
    }

    fn raw(&self) -> RawValue<'_> {
        match self {
            Held::InSitu(word) => RawValue::InSitu(*word),
            Held::Block(code, payload) => RawValue::Block(*code, payload),
        }
    }

    /// Decodes the value. Old archives have floats in place, and blocks without a type.
    fn atom(&self, ty: Type) -> Result<Atom<'_>, Error> {
        match (self.raw(), ty) {
            (RawValue::InSitu(word), Type::Float) => Ok(Atom::Float(f32::from_bits(word))),
            (RawValue::Block(0, payload), _) => RawValue::Block(ty.code() as u8, payload).atom(ty),
            (raw, _) => raw.atom(ty),
        }
    }
}

/// Values of a metric.
type Readings = Result<Vec<(Option<Inst>, Held)>, Error>;
/// Instance of a counter.
type Key = (PmId, Option<Inst>);

/// Instances of a domain as of a time.
#[derive(Debug, Default)]
pub(crate) struct Named {
    list: Vec<(Inst, String)>,
    /// Start and end of the time in which the domain has these instances.
    from: Option<Stamp>,
    until: Option<Stamp>,
}

impl Instances for Named {
    fn each<'a>(&'a self, f: &mut dyn FnMut(Inst, &'a str)) {
        self.list.iter().for_each(|(inst, name)| f(*inst, name));
    }

    fn name(&self, inst: Inst) -> Option<&str> {
        let at = self.list.binary_search_by_key(&inst.word(), |(inst, _)| inst.word()).ok()?;
        self.list.get(at).map(|(_, name)| name.as_str())
    }
}

/// The archive at a position.
#[derive(Debug)]
pub(crate) struct Recording {
    archive: &'static Archive,
    cursor: Cursor<'static>,
    names: InstanceNames<'static>,
    start: Stamp,
    end: Stamp,
    wanted: HashSet<PmId>,
    counters: HashMap<PmId, Type>,
    values: HashMap<PmId, Readings>,
    instances: HashMap<InDom, Named>,
    /// Position of the values; `None` before the first request.
    position: Option<Position>,
    /// Amount added to each counter because the recording has started over.
    carried: HashMap<Key, Atom<'static>>,
    /// Last values of counters before the recording started over.
    ended: HashMap<Key, Atom<'static>>,
    /// Values as of the end and the start of the recording, which do not change. `None` before the recording has started
    /// over.
    edges: [Option<HashMap<PmId, Readings>>; 2],
}

/// A time whose values do not change while the recording is replayed.
#[derive(Clone, Copy)]
enum Edge {
    End,
    Start,
}

pub(crate) fn plus(time: Stamp, by: Duration) -> Stamp {
    let nanoseconds = time.nanoseconds.saturating_add(by.subsec_nanos());
    let seconds = i64::try_from(by.as_secs()).unwrap_or(i64::MAX).saturating_add((nanoseconds / 1_000_000_000).into());
    Stamp { seconds: time.seconds.saturating_add(seconds), nanoseconds: nanoseconds % 1_000_000_000 }
}

/// Returns the time from `from` to `to`, or zero if `to` is earlier.
fn between(from: Stamp, to: Stamp) -> Duration {
    const SECOND: i128 = 1_000_000_000;
    let nanoseconds = |time: Stamp| i128::from(time.seconds) * SECOND + i128::from(time.nanoseconds);
    let total = (nanoseconds(to) - nanoseconds(from)).max(0);
    // The times have 64 bits, and the rest is below a second.
    Duration::new(u64::try_from(total / SECOND).unwrap_or(u64::MAX), (total % SECOND) as u32)
}

impl Recording {
    /// Opens an archive for the metrics that are served. It stays open until the process ends.
    ///
    /// # Errors
    /// Errors of [`Archive::end`].
    pub(crate) fn new(archive: &'static Archive, metrics: &Metrics) -> Result<Recording, ArchiveError> {
        let meta = archive.metadata();
        Ok(Recording {
            archive,
            cursor: archive.cursor(),
            names: meta.instance_names(),
            start: archive.label().start,
            end: archive.end()?,
            wanted: metrics.by_pmid.keys().copied().collect(),
            counters: metrics
                .by_pmid
                .iter()
                .filter_map(|(pmid, served)| {
                    let is_counter = served.desc.semantics == Semantics::Counter && served.desc.ty.is_numeric();
                    is_counter.then_some((*pmid, served.desc.ty))
                })
                .collect(),
            values: HashMap::new(),
            instances: HashMap::new(),
            position: None,
            carried: HashMap::new(),
            ended: HashMap::new(),
            edges: [None, None],
        })
    }

    /// Returns the time from the start to the end.
    pub(crate) fn length(&self) -> Duration {
        between(self.start, self.end)
    }

    /// Returns the time of a position.
    pub(crate) fn time(&self, position: Position) -> Stamp {
        plus(self.start, position.offset).min(self.end)
    }

    pub(crate) fn archive(&self) -> &'static Archive {
        self.archive
    }

    /// Moves to a position. After an error, only metrics in records after the damage have values.
    ///
    /// # Errors
    /// Errors of [`Cursor::backward`].
    pub(crate) fn go(&mut self, to: Position) -> Result<(), ArchiveError> {
        let from = self.position.replace(to);
        let (mut since, mut outcome) = (from.map(|from| self.time(from)), Ok(()));
        if let Some(rounds) = from.and_then(|from| to.round.checked_sub(from.round)).filter(|rounds| *rounds > 0) {
            outcome = outcome.and(self.go_to_edge(Edge::End)).and(self.start_over());
            if rounds > 1 {
                let before = self.carried.clone();
                outcome = outcome.and(self.go_to_edge(Edge::End)).and(self.start_over());
                // Every other round adds as much.
                self.add_rounds(&before, rounds - 2);
            }
            since = Some(self.start);
        }
        outcome.and(self.collect(since, self.time(to)))
    }

    /// Goes from the end of the recording to its start.
    fn start_over(&mut self) -> Result<(), ArchiveError> {
        self.finish_round();
        self.go_to_edge(Edge::Start)
    }

    /// Adds the increase of each counter since `before`, which is that of a round, for `rounds` rounds.
    fn add_rounds(&mut self, before: &HashMap<Key, Atom<'static>>, rounds: u64) {
        for (key, carried) in &mut self.carried {
            let more = before.get(key).and_then(|before| times(minus(*carried, *before)?, rounds));
            *carried = more.and_then(|more| add(*carried, more)).unwrap_or(*carried);
        }
    }

    /// Collects the values as of an edge of the recording. They are read once.
    fn go_to_edge(&mut self, edge: Edge) -> Result<(), ArchiveError> {
        if let Some(values) = self.edges.get(edge as usize).cloned().flatten() {
            values.iter().for_each(|(pmid, readings)| self.carry_on(*pmid, readings));
            self.values = values;
            return Ok(());
        }
        self.collect(None, if let Edge::End = edge { self.end } else { self.start })?;
        self.edges[edge as usize] = Some(self.values.clone());
        Ok(())
    }

    /// Stores the values at the end, from which the counters continue.
    fn finish_round(&mut self) {
        for (pmid, ty) in &self.counters {
            for (inst, held) in self.values.get(pmid).into_iter().flatten().flatten() {
                if let Ok(atom) = held.atom(*ty) {
                    let last = self.carried.get(&(*pmid, *inst)).map_or_else(|| number(atom), |more| add(atom, *more));
                    self.ended.extend(last.map(|last| ((*pmid, *inst), last)));
                }
            }
        }
    }

    /// Collects the latest values as of a time: from the records since `from`, or without it from as many records as
    /// needed.
    fn collect(&mut self, from: Option<Stamp>, to: Stamp) -> Result<(), ArchiveError> {
        let from = from.filter(|from| *from <= to);
        if from.is_none() {
            self.values.clear();
        }
        let mut seen: HashMap<PmId, Readings> = HashMap::new();
        let outcome = self.search(from, to, &mut seen);
        // What follows the values before a damaged record is unknown.
        if !matches!(outcome, Ok(true)) {
            self.values.clear();
        }
        for (pmid, readings) in seen {
            self.carry_on(pmid, &readings);
            self.values.insert(pmid, readings);
        }
        outcome.map(drop)
    }

    /// Searches the records before a time, back to another one. Returns whether earlier values are still valid: all
    /// records have been searched, and there is no mark.
    fn search(
        &mut self,
        from: Option<Stamp>,
        to: Stamp,
        seen: &mut HashMap<PmId, Readings>,
    ) -> Result<bool, ArchiveError> {
        if self.archive.is_gap(to)? {
            return Ok(false);
        }
        self.cursor.seek(to);
        let mut left = SEARCHED_BYTES;
        for _ in 0..SEARCHED {
            let Some(record) = self.cursor.backward()? else { return Ok(true) };
            if from.is_some_and(|from| record.time <= from) {
                return Ok(true);
            }
            if record.is_mark() {
                return Ok(false);
            }
            for set in record.values.iter() {
                let Some(pmid) = set.pmid.filter(|pmid| self.wanted.contains(pmid)) else { continue };
                seen.entry(pmid).or_insert_with(|| readings(&set));
            }
            if seen.len() >= self.wanted.len() {
                return Ok(true);
            }
            left = left.saturating_sub(record.len);
            if left == 0 {
                break;
            }
        }
        Ok(false)
    }

    /// Makes counters continue from their last values after the recording has started over.
    fn carry_on(&mut self, pmid: PmId, readings: &Readings) {
        let Some(ty) = self.counters.get(&pmid).filter(|_| !self.ended.is_empty()) else { return };
        for (inst, held) in readings.iter().flatten() {
            if let (Some(last), Ok(first)) = (self.ended.remove(&(pmid, *inst)), held.atom(*ty)) {
                self.carried.extend(minus(last, first).map(|more| ((pmid, *inst), more)));
            }
        }
    }

    /// Returns whether a metric has values, or a recorded error.
    pub(crate) fn has(&self, pmid: PmId) -> bool {
        self.values.contains_key(&pmid)
    }

    /// Calls `put` for each value of a metric, with an error for one that is not encoded as the metric's type requires.
    ///
    /// # Errors
    /// The error that is recorded in place of values, and those of `put`.
    pub(crate) fn values(
        &self,
        pmid: PmId,
        ty: Type,
        mut put: impl FnMut(Option<Inst>, Result<Atom<'_>, Error>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(readings) = self.values.get(&pmid) else { return Ok(()) };
        for (inst, held) in readings.as_ref().map_err(|e| *e)? {
            let atom = held.atom(ty).map(|atom| {
                let carried = self.carried.get(&(pmid, *inst)).and_then(|more| add(atom, *more));
                carried.unwrap_or(atom)
            });
            put(*inst, atom)?;
        }
        Ok(())
    }

    /// Brings the instances of a domain to the position.
    pub(crate) fn update_instances(&mut self, indom: InDom) {
        let Some(position) = self.position else { return };
        let time = self.time(position);
        let named = self.instances.entry(indom).or_default();
        let is_known = named.from.is_some_and(|from| from <= time) && named.until.is_none_or(|until| time < until);
        if is_known {
            return;
        }
        let list = self.names.instances(indom, time).unwrap_or_default();
        named.list = list.iter().map(|one| (Inst::new(one.inst), exported_name(one.name).into_owned())).collect();
        (named.from, named.until) = (None, None);
        for record in self.archive.metadata().indom_records(indom).into_iter().flatten() {
            if record.time > time {
                named.until = Some(record.time);
                break;
            }
            named.from = Some(record.time);
        }
    }

    pub(crate) fn instances(&self, indom: InDom) -> Option<&Named> {
        self.instances.get(&indom)
    }
}

fn readings(set: &ValueSet<'_>) -> Readings {
    match set.error {
        Some(error) => Err(error),
        None => Ok(set.values().map(|(inst, value)| (inst, Held::new(value))).collect()),
    }
}

/// Returns a number without borrowed data, or `None` for other values.
fn number(atom: Atom<'_>) -> Option<Atom<'static>> {
    Some(match atom {
        Atom::I32(v) => Atom::I32(v),
        Atom::U32(v) => Atom::U32(v),
        Atom::I64(v) => Atom::I64(v),
        Atom::U64(v) => Atom::U64(v),
        Atom::Float(v) => Atom::Float(v),
        Atom::Double(v) => Atom::Double(v),
        _ => return None,
    })
}

/// Adds numbers of the same type; integers wrap, as counters do.
fn add(a: Atom<'_>, b: Atom<'_>) -> Option<Atom<'static>> {
    Some(match (a, b) {
        (Atom::I32(a), Atom::I32(b)) => Atom::I32(a.wrapping_add(b)),
        (Atom::U32(a), Atom::U32(b)) => Atom::U32(a.wrapping_add(b)),
        (Atom::I64(a), Atom::I64(b)) => Atom::I64(a.wrapping_add(b)),
        (Atom::U64(a), Atom::U64(b)) => Atom::U64(a.wrapping_add(b)),
        (Atom::Float(a), Atom::Float(b)) => Atom::Float(a + b),
        (Atom::Double(a), Atom::Double(b)) => Atom::Double(a + b),
        _ => return None,
    })
}

/// Multiplies a number; integers wrap.
fn times(a: Atom<'_>, by: u64) -> Option<Atom<'static>> {
    Some(match a {
        Atom::I32(v) => Atom::I32(v.wrapping_mul(by as i32)),
        Atom::U32(v) => Atom::U32(v.wrapping_mul(by as u32)),
        Atom::I64(v) => Atom::I64(v.wrapping_mul(by as i64)),
        Atom::U64(v) => Atom::U64(v.wrapping_mul(by)),
        Atom::Float(v) => Atom::Float(v * by as f32),
        Atom::Double(v) => Atom::Double(v * by as f64),
        _ => return None,
    })
}

fn minus(a: Atom<'_>, b: Atom<'_>) -> Option<Atom<'static>> {
    let negative = match b {
        Atom::I32(v) => Atom::I32(v.wrapping_neg()),
        Atom::U32(v) => Atom::U32(v.wrapping_neg()),
        Atom::I64(v) => Atom::I64(v.wrapping_neg()),
        Atom::U64(v) => Atom::U64(v.wrapping_neg()),
        Atom::Float(v) => Atom::Float(-v),
        Atom::Double(v) => Atom::Double(-v),
        _ => return None,
    };
    add(a, negative)
}

#[cfg(test)]
mod tests;
