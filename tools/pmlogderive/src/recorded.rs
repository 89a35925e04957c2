//! Values of operands from an archive.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use pcp_archive::{Archive, ArchiveError, Cursor, InstanceNames};
use pcp_derived::{Evaluator, Load, Metadata, Missing, Operand, Plan, Presence, Source};
use pcp_pdu::event::Stamp;
use pcp_pdu::result::ValueSet;
use pmapi::{Desc, Error, InDom, Inst, PmId, Semantics};

/// Names and descriptors of an archive.
pub(crate) struct Descs<'a>(pub(crate) &'a Archive);

impl Metadata for Descs<'_> {
    fn lookup(&mut self, name: &str) -> Result<Desc, Missing> {
        let meta = self.0.metadata();
        let pmid = meta.names().pmid(name.as_bytes()).map_err(|_| Missing::Name)?;
        meta.desc(pmid).map_err(|_| Missing::Desc)
    }
}

/// Records of an archive, one after the other.
pub(crate) struct Recorded<'a> {
    cursor: Cursor<'a>,
    names: InstanceNames<'a>,
    start: Stamp,
    time: Stamp,
    /// Bytes of the record, and the offsets of its value sets.
    bytes: Vec<u8>,
    places: HashMap<PmId, usize>,
    /// Wanted metrics since the last `<mark>`.
    seen: HashSet<PmId>,
}

/// Metrics whose records are wanted.
#[derive(Default)]
pub(crate) struct Wanted {
    metrics: HashSet<PmId>,
    /// Whether a definition has no operands, and therefore a value in each record.
    every: bool,
}

impl Wanted {
    /// Adds what a plan needs.
    pub(crate) fn add(&mut self, evaluator: &Evaluator, plan: &Plan) {
        self.metrics.extend(evaluator.operands_of(plan).map(|operand| operand.desc.pmid));
        self.every |= evaluator.has_constant(plan);
    }
}

/// Kind of the next record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A wanted record.
    Values,
    /// A `<mark>`: no rate or delta is computed across it, and no value is kept.
    Mark,
    End,
}

impl<'a> Recorded<'a> {
    /// Begins at the start of an archive.
    pub(crate) fn new(archive: &'a Archive) -> Recorded<'a> {
        let start = archive.label().start;
        let names = archive.metadata().instance_names();
        Recorded {
            cursor: archive.cursor(),
            names,
            start,
            time: start,
            bytes: Vec::new(),
            places: HashMap::new(),
            seen: HashSet::new(),
        }
    }

    /// Reads the next `<mark>`, or the next record that is wanted.
    pub(crate) fn next(&mut self, wanted: &Wanted) -> Result<Step, ArchiveError> {
        self.places.clear();
        while let Some(record) = self.cursor.forward()? {
            self.time = record.time;
            if record.is_mark() {
                self.seen.clear();
                return Ok(Step::Mark);
            }
            let heads = record.values.heads();
            let found = heads
                .filter_map(|(at, word)| Some((PmId::from_word(word)?, at)))
                .filter(|(pmid, _)| wanted.metrics.contains(pmid));
            // If a record has several value sets of a metric, the first one counts.
            found.for_each(|(pmid, at)| _ = self.places.entry(pmid).or_insert(at));
            if wanted.every || !self.places.is_empty() {
                self.seen.extend(self.places.keys());
                self.bytes.clear();
                self.bytes.extend_from_slice(record.values.pdu());
                return Ok(Step::Values);
            }
        }
        Ok(Step::End)
    }

    /// Returns the time of the record.
    pub(crate) fn time(&self) -> Stamp {
        self.time
    }

    /// Returns the time of the record since the start of the archive.
    pub(crate) fn elapsed(&self) -> Duration {
        let nanoseconds = |time: Stamp| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
        Duration::from_nanos(u64::try_from(nanoseconds(self.time) - nanoseconds(self.start)).unwrap_or_default())
    }

    /// Sets the time of the instances' names: that of an earlier record, by its [`elapsed`](Self::elapsed) time.
    pub(crate) fn go_back(&mut self, elapsed: Duration) {
        let nanoseconds = u64::from(self.start.nanoseconds) + u64::from(elapsed.subsec_nanos());
        let seconds = elapsed.as_secs().saturating_add(nanoseconds / 1_000_000_000);
        self.time = Stamp {
            seconds: self.start.seconds.saturating_add_unsigned(seconds),
            nanoseconds: (nanoseconds % 1_000_000_000) as u32,
        };
    }
}

impl Source for Recorded<'_> {
    /// A metric that does not change is logged once, and holds until its next record.
    fn presence(&mut self, operand: &Operand) -> Presence {
        let Desc { pmid, semantics, .. } = &operand.desc;
        match self.places.contains_key(pmid) {
            true => Presence::Sampled,
            false if *semantics == Semantics::Discrete && self.seen.contains(pmid) => Presence::Kept,
            false => Presence::Absent,
        }
    }

    fn values(&mut self, operand: &Operand, load: &mut Load<'_>) -> Result<(), Error> {
        let Some(place) = self.places.get(&operand.desc.pmid) else { return Err(Error::VALUE) };
        let (set, _) = ValueSet::at(&self.bytes, *place).ok_or(Error::LOGREC)?;
        set.error.map_or(Ok(()), Err)?;
        let ty = load.ty();
        for (inst, value) in set.values() {
            load.push(inst, value.atom(ty)?);
        }
        Ok(())
    }

    fn instances(&mut self, indom: InDom, list: &mut Vec<Inst>) -> Result<(), Error> {
        list.extend(self.names.instances(indom, self.time)?.iter().map(|instance| Inst::new(instance.inst)));
        Ok(())
    }

    fn instance_name(&mut self, indom: InDom, inst: Inst, name: &mut Vec<u8>) -> Result<(), Error> {
        name.extend_from_slice(self.names.name(indom, inst.word(), self.time)?);
        Ok(())
    }

    fn instance_id(&mut self, indom: InDom, name: &str) -> Result<Inst, Error> {
        Ok(Inst::new(self.names.lookup(indom, name.as_bytes(), self.time)?))
    }
}
