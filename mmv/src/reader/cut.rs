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

    /// Drops what is in this range, of a file that is whole.
    pub(super) fn drop(&mut self, range: Range<u64>) {
        let (Ok(start), Ok(end)) = (usize::try_from(range.start), usize::try_from(range.end)) else { return };
        if self.start == u64::MAX && start <= end && end <= self.front.len() {
            self.back = self.front.split_off(end);
            self.start = range.end;
            self.front.truncate(start);
            self.front.shrink_to_fit();
        }
    }
}

impl File {
    /// Drops the records of the metrics, most of many files, from memory: all that they say is known. They stay where
    /// something else lies in them.
    pub(crate) fn drop_records(&mut self) {
        let size = |table: Table, size: usize| u64::from(table.count) * size as u64;
        let gap = self.records.at..self.records.at + size(self.records, self.version.metric_len());
        let apart = |at: u64, len: u64| at >= gap.end || at.saturating_add(len) <= gap.start;
        let help = |HelpAt { short, long }: HelpAt| {
            [short, long].into_iter().all(|at| at == 0 || apart(at.into(), STRING_LEN as u64))
        };
        let mut instances = self.indoms.iter().flat_map(|indom| &indom.instances).map(|instance| instance.name);
        let apart = apart(self.values.at, size(self.values, VALUE_LEN))
            && self.metrics.iter().map(|metric| metric.help).all(help)
            && self.indoms.iter().map(|indom| indom.help).all(help)
            && instances.all(|name| apart(name.at, name.room as u64))
            && self.labels.iter().all(|label| apart(label.payload.at, label.payload.room as u64));
        if apart {
            self.bytes.drop(gap);
        }
    }
}
