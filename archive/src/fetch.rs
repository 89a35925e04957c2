//! Values of chosen metrics.

use std::collections::{HashMap, HashSet};

use pcp_pdu::event::Stamp;
use pcp_pdu::profile::{Profile, Selection};
use pcp_pdu::result::{RawValue, ValueSet, ValueSets};
use pmapi::{Error, Inst, PmId};

use crate::cursor::{Cursor, Direction, Step};
use crate::error::Result;

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

    /// Returns the error in place of values.
    pub fn error(&self) -> Option<Error> {
        self.set.and_then(|set| set.error)
    }

    /// Iterates over the instances, `None` for a singular metric, and their values.
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
        let wanted: HashSet<PmId> = pmids.iter().copied().collect();
        let span = loop {
            match self.find(direction)? {
                Step::Record(span, _) => {
                    let values = self.record(span)?.values;
                    if values.iter().any(|set| set.pmid.is_some_and(|pmid| wanted.contains(&pmid))) {
                        break span;
                    }
                }
                Step::Mark(_) => (),
                Step::End => return Ok(None),
            }
        };
        let meta = self.archive().metadata();
        let record = self.record(span)?;
        let found = by_pmid(record.values, &wanted);
        let sets = pmids.iter().map(|pmid| {
            let indom = meta.raw_desc(*pmid).ok().and_then(|desc| desc.indom);
            let selection = indom.map_or(Selection::ALL, |indom| profile.selection(indom));
            FetchedSet { pmid: *pmid, set: found.get(pmid).copied(), selection }
        });
        Ok(Some(Fetched { time: record.time, sets: sets.collect() }))
    }
}

fn by_pmid<'r>(values: ValueSets<'r>, wanted: &HashSet<PmId>) -> HashMap<PmId, ValueSet<'r>> {
    let mut found = HashMap::new();
    for set in values.iter() {
        if let Some(pmid) = set.pmid.filter(|pmid| wanted.contains(pmid)) {
            found.entry(pmid).or_insert(set);
        }
    }
    found
}
