//! A file's bytes without some of them.

use std::ops::Range;

use super::{File, HelpAt, Table};
use crate::format::{Bytes, STRING_LEN, VALUE_LEN};

/// The bytes of a file, of which a part may have been dropped.
#[derive(Debug, Default)]
pub(super) struct Cut {
    /// From the beginning on.
    front: Vec<u8>,
    /// From `start` on.
    back: Vec<u8>,
    start: u64,
}

impl From<Vec<u8>> for Cut {
    fn from(bytes: Vec<u8>) -> Self {
        Cut { front: bytes, back: Vec::new(), start: u64::MAX }
    }
}

impl Cut {
    /// A copy without this range, if there is one, which is in the file.
    pub(super) fn new(bytes: &[u8], without: Option<Range<usize>>) -> Cut {
        match without.and_then(|Range { start, end }| Some((bytes.get(..start)?, bytes.get(end..)?, end))) {
            Some((front, back, end)) => Cut { front: front.to_vec(), back: back.to_vec(), start: end as u64 },
            None => Cut::from(bytes.to_vec()),
        }
    }

    /// The bytes with those at an offset in the file, and where these are.
    #[inline]
    pub(super) fn at(&self, at: u64) -> (Bytes<'_>, u64) {
        match at.checked_sub(self.start) {
            None => (Bytes::new(&self.front), at),
            Some(at) => (Bytes::new(&self.back), at),
        }
    }

    pub(super) fn range_mut(&mut self, at: u64, len: usize) -> Option<&mut [u8]> {
        let (bytes, at) = match at.checked_sub(self.start) {
            None => (&mut self.front, at),
            Some(at) => (&mut self.back, at),
        };
        let at = usize::try_from(at).ok()?;
        bytes.get_mut(at..at.checked_add(len)?)
    }
}

impl File {
    /// Where the records of the metrics are, most of many files: all that they say is known. Nothing when something else
    /// lies in them, or is to be said about them.
    pub(super) fn dispensable(&self) -> Option<Range<usize>> {
        let size = |table: Table, size: usize| u64::from(table.count) * size as u64;
        let gap = self.records.at..self.records.at + size(self.records, self.version.metric_len());
        let apart = |at: u64, len: u64| at >= gap.end || at.saturating_add(len) <= gap.start;
        let help = |HelpAt { short, long }: HelpAt| {
            [short, long].into_iter().all(|at| at == 0 || apart(at.into(), STRING_LEN as u64))
        };
        let mut instances = self.indoms.iter().flat_map(|indom| &indom.instances).map(|instance| instance.name);
        let all_apart = self.problems.count() == 0
            && apart(self.values.at, size(self.values, VALUE_LEN))
            && self.metrics.iter().map(|metric| metric.help).all(help)
            && self.indoms.iter().map(|indom| indom.help).all(help)
            && instances.all(|name| apart(name.at, name.room as u64))
            && self.labels.iter().all(|label| apart(label.payload.at, label.payload.room as u64));
        all_apart.then_some(())?;
        Some(usize::try_from(gap.start).ok()?..usize::try_from(gap.end).ok()?)
    }
}
