//! Values of chosen metrics.

use hashbrown::HashMap;
use pcp_pdu::event::Stamp;
use pcp_pdu::profile::{Profile, Selection};
use pcp_pdu::result::{RawValue, ValueSet};
use pmapi::{Error, Inst, PmId};

use crate::cursor::{Cursor, Direction, Step};
use crate::error::Result;
use crate::meta::Metadata;
use crate::window::Extent;

/// Values of chosen metrics from one record.
#[derive(Debug)]
#[non_exhaustive]
pub struct Fetched<'r> {
    /// Time of the record.
    pub time: Stamp,
    sets: Vec<FetchedSet<'r>>,
}

/// Values of one metric, of the instances in the profile.
#[derive(Clone, Copy, Debug)]
pub struct FetchedSet<'r> {
    pmid: PmId,
    /// Values; `None` for a metric that is not in the record.
    set: Option<ValueSet<'r>>,
    selection: Selection<'r>,
}

impl<'r> Fetched<'r> {
    /// Returns the metrics in the order of the request.
    pub fn sets(&self) -> &[FetchedSet<'r>] {
        &self.sets
    }
}

impl<'r> FetchedSet<'r> {
    /// Returns the metric.
    pub fn pmid(&self) -> PmId {
        self.pmid
    }

    /// Returns whether the record has the metric, perhaps with an error or without values.
    pub fn is_recorded(&self) -> bool {
        self.set.is_some()
    }

    /// Returns the error in place of values.
    pub fn error(&self) -> Option<Error> {
        self.set.and_then(|set| set.error)
    }

    /// Iterates over the instances and their values. The instance is `None` for a singular metric.
    pub fn values(&self) -> impl Iterator<Item = (Option<Inst>, RawValue<'r>)> + use<'r> {
        let selection = self.selection;
        let values = self.set.into_iter().flat_map(|set| set.values());
        values.filter(move |(inst, _)| inst.is_none_or(|inst| selection.includes(inst)))
    }
}

impl Cursor<'_> {
    /// Returns the values of metrics from the next record that has at least one of them (pmFetch(3) in the modes
    /// `PM_MODE_FORW` and `PM_MODE_BACK`); `None` at the end. A metric that is not in that record has no values.
    /// `<mark>`s are skipped. The instances are those of the profile.
    ///
    /// # Errors
    /// Errors of [`Cursor::forward`].
    pub fn fetch<'r>(
        &'r mut self,
        direction: Direction,
        pmids: &[PmId],
        profile: &'r Profile,
    ) -> Result<Option<Fetched<'r>>> {
        if pmids.is_empty() {
            return Ok(None);
        }
        let wanted = Wanted::new(pmids);
        let mut places: Vec<Option<usize>> = Vec::new();
        let span = loop {
            match self.find(direction, Extent::Few)? {
                Step::Record(span, _) => {
                    let (len, most) = wanted.lens();
                    places.clear();
                    places.resize(len, None);
                    // If a record has several value sets of a metric, the first one counts.
                    let looked = self.look(span, most, |word, at| {
                        let place = wanted.index(word).and_then(|nth| places.get_mut(nth)).filter(|p| p.is_none());
                        place.map(|place| *place = Some(at)).is_some()
                    });
                    if let Err(e) = looked {
                        self.leave(e)?;
                        continue;
                    }
                    if places.iter().any(Option::is_some) {
                        break span;
                    }
                }
                Step::Mark(_) => (),
                Step::End => return Ok(None),
            }
        };
        let time = self.time();
        let archive = self.holder();
        let selections: Vec<_> = pmids.iter().map(|pmid| selection(archive.metadata(), *pmid, profile)).collect();
        let pdu = self.sets(span)?.pdu();
        let sets = pmids.iter().zip(selections).map(|(pmid, selection)| {
            let place = wanted.index(pmid.word()).and_then(|at| places.get(at).copied().flatten());
            FetchedSet { pmid: *pmid, set: place.and_then(|at| Some(ValueSet::at(pdu, at)?.0)), selection }
        });
        Ok(Some(Fetched { time, sets: sets.collect() }))
    }
}

fn selection<'p>(meta: &Metadata, pmid: PmId, profile: &'p Profile) -> Selection<'p> {
    let indom = meta.raw_desc(pmid).ok().and_then(|desc| desc.indom);
    indom.map_or(Selection::ALL, |indom| profile.selection(indom))
}

/// Requested metrics.
enum Wanted<'w> {
    Few(&'w [PmId]),
    /// Index of the first request of each metric, by the word of its PMID.
    Many(HashMap<u32, usize>, usize),
}

/// Number of metrics up to which a linear search is faster than a hash table.
const FEW: usize = 4;

impl<'w> Wanted<'w> {
    fn new(pmids: &'w [PmId]) -> Wanted<'w> {
        if pmids.len() <= FEW {
            return Wanted::Few(pmids);
        }
        let mut indexes = HashMap::with_capacity(pmids.len());
        pmids.iter().enumerate().for_each(|(at, pmid)| _ = indexes.entry(pmid.word()).or_insert(at));
        Wanted::Many(indexes, pmids.len())
    }

    fn index(&self, word: u32) -> Option<usize> {
        match self {
            Wanted::Few(pmids) => pmids.iter().position(|other| other.word() == word),
            Wanted::Many(indexes, _) => indexes.get(&word).copied(),
        }
    }

    /// Returns the number of requested metrics, and the number of distinct ones.
    fn lens(&self) -> (usize, usize) {
        match self {
            Wanted::Few(pmids) => (pmids.len(), pmids.len()),
            Wanted::Many(indexes, len) => (*len, indexes.len()),
        }
    }
}
