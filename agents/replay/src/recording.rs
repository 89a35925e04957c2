//! Values and instances as of a position in the archive.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use pcp_archive::{Archive, ArchiveError, Cursor, InstanceNames};
use pcp_pdu::event::Stamp;
use pcp_pdu::result::{RawValue, ValueSet};
use pmapi::{Atom, Error, InDom, Inst, PmId, Semantics, Type};
use pmda::prelude::Instances;

use crate::clock::Position;
use crate::metrics::Metrics;

/// Records that are searched for the values as of a time.
const SEARCHED: usize = 500;
/// Rounds of the recording that are added up one by one.
const ROUNDS: u64 = 10;

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

    /// Decodes the value. Archives of old have floats in place, and blocks without a type.
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
    /// Times between which they are these.
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
    /// What is added to each counter since the recording has begun anew.
    carried: HashMap<Key, Atom<'static>>,
    /// Last values of counters before the recording has begun anew.
    ended: HashMap<Key, Atom<'static>>,
}

pub(crate) fn plus(time: Stamp, by: Duration) -> Stamp {
    let nanoseconds = time.nanoseconds.saturating_add(by.subsec_nanos());
    let seconds = i64::try_from(by.as_secs()).unwrap_or(i64::MAX).saturating_add((nanoseconds / 1_000_000_000).into());
    Stamp { seconds: time.seconds.saturating_add(seconds), nanoseconds: nanoseconds % 1_000_000_000 }
}

/// Returns the time from one stamp to a later one.
fn between(from: Stamp, to: Stamp) -> Duration {
    let nanoseconds = |time: Stamp| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
    u64::try_from(nanoseconds(to) - nanoseconds(from)).map(Duration::from_nanos).unwrap_or_default()
}

impl Recording {
    /// Opens an archive for the metrics that are served. It stays open as long as the process lives.
    ///
    /// # Errors
    /// Those of [`Archive::end`].
    pub(crate) fn new(archive: &'static Archive, metrics: &Metrics) -> Result<Recording, ArchiveError> {
        let meta = archive.metadata();
        let counter = |(pmid, served): (&PmId, &crate::metrics::Served)| {
            let is_counter = served.desc.semantics == Semantics::Counter && served.desc.ty.is_numeric();
            is_counter.then_some((*pmid, served.desc.ty))
        };
        Ok(Recording {
            archive,
            cursor: archive.cursor(),
            names: meta.instance_names(),
            start: archive.label().start,
            end: archive.end()?,
            wanted: metrics.by_pmid.keys().copied().collect(),
            counters: metrics.by_pmid.iter().filter_map(counter).collect(),
            values: HashMap::new(),
            instances: HashMap::new(),
            position: None,
            carried: HashMap::new(),
            ended: HashMap::new(),
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

    /// Moves to a position.
    ///
    /// # Errors
    /// Those of [`Cursor::backward`].
    pub(crate) fn go(&mut self, to: Position) -> Result<(), ArchiveError> {
        let from = self.position.replace(to);
        let mut since = from.map(|from| self.time(from));
        if let Some(from) = from.filter(|from| from.round < to.round) {
            for _ in from.round..to.round.min(from.round + ROUNDS) {
                self.collect(since, self.end)?;
                self.finish_round();
                self.collect(None, self.start)?;
                since = Some(self.start);
            }
        }
        self.collect(since, self.time(to))
    }

    /// Notes the values at the end, which the counters go on from.
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

    /// Takes the latest values as of a time: from the records since another one, or from as many as are needed.
    fn collect(&mut self, from: Option<Stamp>, to: Stamp) -> Result<(), ArchiveError> {
        let from = from.filter(|from| *from <= to);
        if from.is_none() {
            self.values.clear();
        }
        self.cursor.seek(to);
        let mut seen: HashMap<PmId, Readings> = HashMap::new();
        for _ in 0..SEARCHED {
            let Some(record) = self.cursor.backward()? else { break };
            if from.is_some_and(|from| record.time <= from) {
                break;
            }
            if record.is_mark() {
                self.values.clear();
                break;
            }
            for set in record.values.iter() {
                let Some(pmid) = set.pmid.filter(|pmid| self.wanted.contains(pmid)) else { continue };
                seen.entry(pmid).or_insert_with(|| readings(&set));
            }
            if seen.len() >= self.wanted.len() {
                break;
            }
        }
        for (pmid, readings) in seen {
            self.carry_on(pmid, &readings);
            self.values.insert(pmid, readings);
        }
        Ok(())
    }

    /// Makes counters that have begun anew go on from their last values.
    fn carry_on(&mut self, pmid: PmId, readings: &Readings) {
        let Some(ty) = self.counters.get(&pmid).filter(|_| !self.ended.is_empty()) else { return };
        for (inst, held) in readings.iter().flatten() {
            if let (Some(last), Ok(first)) = (self.ended.remove(&(pmid, *inst)), held.atom(*ty)) {
                self.carried.extend(minus(last, first).map(|more| ((pmid, *inst), more)));
            }
        }
    }

    /// Calls `put` for each value of a metric.
    ///
    /// # Errors
    /// The error that is recorded in place of values, and those of `put`.
    pub(crate) fn values(
        &self,
        pmid: PmId,
        ty: Type,
        mut put: impl FnMut(Option<Inst>, Atom<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(readings) = self.values.get(&pmid) else { return Ok(()) };
        for (inst, held) in readings.as_ref().map_err(|e| *e)? {
            let atom = held.atom(ty)?;
            let carried = self.carried.get(&(pmid, *inst)).and_then(|more| add(atom, *more));
            put(*inst, carried.unwrap_or(atom))?;
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
        let name = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        named.list = list.iter().map(|one| (Inst::new(one.inst), name(one.name))).collect();
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

/// Returns a number without what it borrows.
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
mod tests {
    use super::*;
    use pcp_archive::Create;
    use pcp_pdu::result_writer::ResultWriter;
    use pmapi::{Desc, Domain, Units};

    fn pmid(item: u32) -> PmId {
        PmId::from_word(60 << 22 | item).unwrap()
    }

    fn at(seconds: u32) -> Stamp {
        Stamp { seconds: seconds.into(), nanoseconds: 0 }
    }

    /// Writes a counter that is twice the seconds from 100 to 110, of one instance, and of another one from 105 on.
    fn recording(dir: &std::path::Path) -> Recording {
        let mut writer = Create::new("host").create(dir.join("a")).unwrap();
        let indom = InDom::from_word(60 << 22 | 1).unwrap();
        let (ty, semantics) = (Type::U32, Semantics::Counter);
        let desc = Desc { pmid: pmid(1), ty, indom: Some(indom), semantics, units: Units::NONE };
        writer.metric(&desc.into(), &[b"a.twice"]).unwrap();
        let mut values = ResultWriter::new();
        for second in 100..=110_u32 {
            let names: [(Inst, &[u8]); 2] = [(Inst::new(0), b"zero"), (Inst::new(1), b"one")];
            let names = if second < 105 { &names[..1] } else { &names };
            writer.instances(at(second), indom, names).unwrap();
            values.begin();
            values.begin_set(Some(pmid(1)));
            for (inst, _) in names {
                values.push(Some(*inst), Type::U32, Atom::U32(2 * second)).unwrap();
            }
            values.end_set(Ok(()));
            writer.values(at(second), &mut values).unwrap();
        }
        writer.finish().unwrap();
        let archive: &'static Archive = Box::leak(Box::new(Archive::open(dir.join("a")).unwrap()));
        let metrics = Metrics::original(archive.metadata(), Domain::new(60).unwrap());
        Recording::new(archive, &metrics).unwrap()
    }

    fn values(recording: &mut Recording, round: u64, seconds: u64) -> Vec<u32> {
        recording.go(Position { round, offset: Duration::from_secs(seconds) }).unwrap();
        let mut found = Vec::new();
        let put = |_, atom: Atom<'_>| {
            found.extend(u32::try_from(atom));
            Ok(())
        };
        recording.values(pmid(1), Type::U32, put).unwrap();
        found
    }

    #[test]
    fn counters_go_on_when_it_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        let mut recording = recording(dir.path());
        assert_eq!(recording.length(), Duration::from_secs(10));
        assert_eq!(values(&mut recording, 0, 0), [200]);
        assert_eq!(values(&mut recording, 0, 3), [206]);
        assert_eq!(values(&mut recording, 0, 7), [214, 214]);
        // The end was 220, and the start is 200.
        assert_eq!(values(&mut recording, 1, 3), [226]);
        // The other instance goes on from 220 when it is there again.
        assert_eq!(values(&mut recording, 1, 5), [230, 220]);
        assert_eq!(values(&mut recording, 3, 4), [268]);
        // A position that a client has stored begins no round.
        assert_eq!(values(&mut recording, 3, 1), [262]);
    }

    #[test]
    fn instances_are_those_of_the_time() {
        let dir = tempfile::tempdir().unwrap();
        let mut recording = recording(dir.path());
        let indom = InDom::from_word(60 << 22 | 1).unwrap();
        for (seconds, expected) in [(0, &["zero"][..]), (4, &["zero"]), (5, &["zero", "one"]), (2, &["zero"])] {
            values(&mut recording, 0, seconds);
            recording.update_instances(indom);
            let mut names = Vec::new();
            recording.instances(indom).unwrap().each(&mut |_, name| names.push(name.to_owned()));
            assert_eq!(names, expected, "{seconds}");
        }
        assert_eq!(recording.instances(indom).unwrap().name(Inst::new(1)), None);
    }
}
