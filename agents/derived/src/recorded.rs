//! Values of operands from an archive.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use pcp_archive::{Archive, ArchiveError, Cursor, InstanceNames};
use pcp_derive::{Load, Metadata, Missing, Operand, Source};
use pcp_pdu::event::Stamp;
use pcp_pdu::result::ValueSet;
use pmapi::{Desc, Error, InDom, Inst, PmId};

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
}

/// Kind of the next record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A record with at least one of the wanted metrics.
    Values,
    /// A `<mark>`: no rate or delta is computed across it.
    Mark,
    End,
}

impl<'a> Recorded<'a> {
    /// Begins at the start of an archive.
    pub(crate) fn new(archive: &'a Archive) -> Recorded<'a> {
        let start = archive.label().start;
        let names = archive.metadata().instance_names();
        Recorded { cursor: archive.cursor(), names, start, time: start, bytes: Vec::new(), places: HashMap::new() }
    }

    /// Reads the next `<mark>`, or the next record with wanted metrics.
    pub(crate) fn next(&mut self, wanted: &HashSet<PmId>) -> Result<Step, ArchiveError> {
        self.places.clear();
        while let Some(record) = self.cursor.forward()? {
            self.time = record.time;
            if record.is_mark() {
                return Ok(Step::Mark);
            }
            let heads = record.values.heads();
            let wanted = heads
                .filter_map(|(at, word)| Some((PmId::from_word(word)?, at)))
                .filter(|(pmid, _)| wanted.contains(pmid));
            // If a record has several value sets of a metric, the first one counts.
            wanted.for_each(|(pmid, at)| _ = self.places.entry(pmid).or_insert(at));
            if !self.places.is_empty() {
                self.bytes.clear();
                self.bytes.extend_from_slice(record.values.pdu());
                return Ok(Step::Values);
            }
        }
        Ok(Step::End)
    }

    /// Returns whether the record has a metric.
    pub(crate) fn has(&self, pmid: PmId) -> bool {
        self.places.contains_key(&pmid)
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
}

impl Source for Recorded<'_> {
    fn values(&mut self, operand: &Operand, load: &mut Load<'_>) -> Result<(), Error> {
        // A metric that is not in the record has no values.
        let Some(place) = self.places.get(&operand.desc.pmid) else { return Ok(()) };
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
