//! Labels by time.

use std::collections::{BTreeMap, HashSet};

use pcp_pdu::event::Stamp;
use pmapi::{Error, LabelLevel, LabelSet, RawLabel, Result};

use super::Metadata;
use crate::decode::meta::LabelSpan;

#[derive(Debug, Default)]
pub(super) struct Labels {
    /// Records by level and identifier, in the order of time.
    by_subject: BTreeMap<(u32, u32), Vec<Stored>>,
}

#[derive(Debug)]
struct Stored {
    time: Stamp,
    file: u32,
    sets: Vec<LabelSpan>,
}

/// Level of the labels of a host; they have no identifier.
const CONTEXT: u32 = 1;

/// Label sets of a subject from a time on.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LabelRecord<'a> {
    /// Code of the level (`PM_LABEL_*`).
    pub level: u32,
    /// What has the labels: the word of a domain, cluster, metric or instance domain; all ones for the host.
    pub ident: u32,
    /// Time from which on the labels exist.
    pub time: Stamp,
    file: &'a [u8],
    sets: &'a [LabelSpan],
}

/// Label set of a record.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LabelSetView<'a> {
    /// Instance that the labels describe; all ones on other levels.
    pub inst: u32,
    /// Error in place of labels.
    pub error: Option<Error>,
    /// JSON text of the labels.
    pub json: &'a [u8],
    file: &'a [u8],
    span: LabelSpan,
}

impl<'a> LabelRecord<'a> {
    /// Iterates over the label sets. Only the level of instances has more than one.
    pub fn sets(&self) -> impl ExactSizeIterator<Item = LabelSetView<'a>> + use<'a> {
        let file = self.file;
        self.sets.iter().map(move |span| LabelSetView {
            inst: span.inst,
            error: Error::from_code(span.labels),
            json: span.json(file),
            file,
            span: *span,
        })
    }
}

impl<'a> LabelSetView<'a> {
    /// Iterates over the labels.
    pub fn labels(&self) -> impl ExactSizeIterator<Item = RawLabel> + use<'a> {
        self.span.spans(self.file)
    }

    /// Returns the labels as a set.
    ///
    /// # Errors
    /// The error in place of labels; `PM_ERR_LOGREC` for JSON that is not UTF-8, or an index that points outside of it.
    pub fn label_set(&self) -> Result<LabelSet> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let json = std::str::from_utf8(self.json).map_err(|_| Error::LOGREC)?;
        LabelSet::from_raw(json.to_owned(), self.labels()).map_err(|_| Error::LOGREC)
    }
}

impl Labels {
    /// Adds a record. [`Labels::finish`] must follow.
    pub(super) fn add(&mut self, file: u32, level: u32, ident: u32, time: Stamp, sets: Vec<LabelSpan>) {
        let ident = if level == CONTEXT { u32::MAX } else { ident };
        let records = self.by_subject.entry((level, ident)).or_insert_with(|| Vec::with_capacity(1));
        records.push(Stored { time, file, sets });
    }

    /// Sorts the records by time, and removes sets that equal those in the record before. Labels of instances are
    /// removed only if all sets of a record equal those before: instances come and go (since PCP 6.3.4).
    pub(super) fn finish(&mut self, files: &[Vec<u8>]) {
        for ((level, _), records) in &mut self.by_subject {
            let is_whole = *level == LabelLevel::Instances.code();
            // Among records of the same time, libpcp treats the first one as the newest.
            records.reverse();
            records.sort_by_key(|record| record.time);
            let mut before = Vec::new();
            for record in records.iter_mut() {
                let file = files.get(record.file as usize).map_or(&[][..], Vec::as_slice);
                let keys: Vec<_> = record.sets.iter().map(|set| key(file, *set)).collect();
                if is_whole {
                    if keys == before {
                        record.sets.clear();
                    }
                } else {
                    let before: HashSet<_> = before.iter().collect();
                    let mut each = keys.iter();
                    record.sets.retain(|_| each.next().is_none_or(|key| !before.contains(key)));
                }
                before = keys;
            }
            // The oldest record stays, as in libpcp, even if it has no sets.
            let mut is_first = true;
            records.retain(|record| std::mem::take(&mut is_first) || !record.sets.is_empty());
        }
    }
}

type Key<'a> = (u32, i32, Vec<(&'a [u8], &'a [u8])>);

/// Returns the key by which label sets are compared: instance, number of labels, and labels in any order.
fn key(file: &[u8], set: LabelSpan) -> Key<'_> {
    let json = set.json(file);
    let mut pairs: Vec<_> = set
        .spans(file)
        .map(|label| (label.name_in(json).unwrap_or_default(), label.value_in(json).unwrap_or_default()))
        .collect();
    pairs.sort_unstable();
    (set.inst, set.labels, pairs)
}

impl Metadata {
    /// Returns the label sets of a subject as of a time (pmLookupLabels(3) without the levels above).
    ///
    /// # Errors
    /// `PM_ERR_NOLABELS` for a subject without labels. This includes times before the first record of labels.
    pub fn labels(&self, level: LabelLevel, ident: u32, time: Stamp) -> Result<Option<LabelRecord<'_>>> {
        let ident = if level == LabelLevel::Context { u32::MAX } else { ident };
        let key = (level.code(), ident);
        let records = self.labels.by_subject.get(&key).ok_or(Error::NOLABELS)?;
        let before = records.partition_point(|record| record.time <= time);
        // Of several records of the same time, the first one of the file is the last one here, and counts.
        let found = before.checked_sub(1).and_then(|at| records.get(at));
        Ok(found.map(|record| self.label_record(key, record)))
    }

    /// Iterates over all label records, by level, identifier and time.
    pub fn label_records(&self) -> impl Iterator<Item = LabelRecord<'_>> {
        let records = self.labels.by_subject.iter();
        records.flat_map(|(key, records)| records.iter().map(|record| self.label_record(*key, record)))
    }

    fn label_record<'a>(&'a self, (level, ident): (u32, u32), stored: &'a Stored) -> LabelRecord<'a> {
        LabelRecord { level, ident, time: stored.time, file: self.file(stored.file), sets: &stored.sets }
    }
}
