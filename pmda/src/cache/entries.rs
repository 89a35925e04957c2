//! Names and keys of the entries of a cache, packed in memory.

/// An entry without its number and value.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Entry<'a> {
    pub(super) name: &'a str,
    /// Key from which the number was made (pmdaCacheStoreKey(3)). Empty if there is none.
    pub(super) key: &'a [u8],
    /// Seconds since the epoch when the instance was last seen; 0 until the file is written.
    pub(super) stamp: u32,
}

/// Entries by their index.
///
/// All names share one allocation, and all keys another one. Single allocations would take twice the memory of their
/// content.
#[derive(Default, Debug)]
pub(super) struct Entries {
    records: Vec<Record>,
    names: String,
    keys: Vec<u8>,
    /// Number of bytes of names and keys to which no record refers any more.
    unused: usize,
}

#[derive(Clone, Copy, Default, Debug)]
struct Record {
    name: Span,
    key: Span,
    stamp: u32,
}

#[derive(Clone, Copy, Default, Debug)]
struct Span {
    start: u32,
    len: u32,
}

/// Largest number of unused bytes that never causes a compaction.
const SLACK: usize = 4096;

impl Entries {
    pub(super) fn get(&self, at: usize) -> Option<Entry<'_>> {
        self.records.get(at).map(|record| self.entry(record))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        self.records.iter().map(|record| self.entry(record))
    }

    fn entry(&self, record: &Record) -> Entry<'_> {
        Entry {
            name: self.names.get(record.name.range()).unwrap_or_default(),
            key: self.keys.get(record.key.range()).unwrap_or_default(),
            stamp: record.stamp,
        }
    }

    /// Returns whether there is no room for another entry. All names, and all keys, take 4 GiB at most.
    pub(super) fn is_full(&self, entry: Entry<'_>) -> bool {
        let full = |used: usize, more: usize| u32::try_from(used.saturating_add(more)).is_err();
        full(self.names.len(), entry.name.len()) || full(self.keys.len(), entry.key.len())
    }

    pub(super) fn push(&mut self, entry: Entry<'_>) {
        let record = self.record(entry);
        self.records.push(record);
    }

    /// Replaces the entry at an index.
    pub(super) fn set(&mut self, at: usize, entry: Entry<'_>) {
        let record = self.record(entry);
        let Some(old) = self.records.get_mut(at) else { return };
        let old = std::mem::replace(old, record);
        self.unused += old.name.len as usize + old.key.len as usize;
        if self.unused > SLACK && self.unused > (self.names.len() + self.keys.len()) / 2 {
            self.compact();
        }
    }

    pub(super) fn set_stamp(&mut self, at: usize, stamp: u32) {
        if let Some(record) = self.records.get_mut(at) {
            record.stamp = stamp;
        }
    }

    /// Stamps the entries that have no stamp.
    pub(super) fn stamp(&mut self, now: u32) {
        self.records.iter_mut().filter(|record| record.stamp == 0).for_each(|record| record.stamp = now);
    }

    fn record(&mut self, entry: Entry<'_>) -> Record {
        let name = Span::new(self.names.len(), entry.name.len());
        let key = Span::new(self.keys.len(), entry.key.len());
        self.names.push_str(entry.name);
        self.keys.extend_from_slice(entry.key);
        Record { name, key, stamp: entry.stamp }
    }

    fn compact(&mut self) {
        let mut fresh = Entries { records: Vec::with_capacity(self.records.len()), ..Entries::default() };
        self.iter().for_each(|entry| fresh.push(entry));
        *self = fresh;
    }
}

impl Span {
    /// Creates a range. The caller has checked [`Entries::is_full`], so both numbers fit into 32 bits.
    fn new(start: usize, len: usize) -> Span {
        Span { start: start as u32, len: len as u32 }
    }

    fn range(self) -> std::ops::Range<usize> {
        let start = self.start as usize;
        start..start + self.len as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_that_of_the_entries() {
        let mut entries = Entries::default();
        let key = [7; 10];
        (0..100).for_each(|i| entries.push(Entry { name: &format!("name {i}"), key: &key, stamp: i }));
        for round in 0..10_000 {
            entries.set(round % 100, Entry { name: &format!("name {round}"), key: &key, stamp: round as u32 });
            let used = entries.names.len() + entries.keys.len();
            assert!(used - entries.unused <= 100 * 19 && used <= 2 * SLACK + 100 * 19, "{used}");
        }
        for (at, entry) in entries.iter().enumerate() {
            assert_eq!(
                (entry.name, entry.key, entry.stamp),
                (&*format!("name {}", 9900 + at), &key[..], 9900 + at as u32)
            );
        }
        assert!(entries.get(100).is_none() && !entries.is_full(Entry::default()));
    }
}
