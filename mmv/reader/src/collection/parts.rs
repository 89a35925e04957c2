//! The name space in independent parts.

use pmapi::Item;

use super::Collection;
use super::tables::Tables;

/// A part of the name space that shares no names with other parts. Data derived from its names stays valid until its
/// [`version`](Part::version) changes.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    tables: &'a Tables,
    version: u64,
}

impl Collection {
    /// Returns the components directly below the prefix, in the order of the files, each with the part that contains
    /// it.
    pub fn heads(&self) -> impl DoubleEndedIterator<Item = (&str, Part<'_>)> {
        self.groups.files().flat_map(|(group, place)| {
            let tables = group.tables(&self.prefix);
            tables.heads_of(place).map(move |head| (head, Part { tables, version: group.version }))
        })
    }

    /// Returns the part that may contain a full name, and the names below it.
    pub fn part(&self, name: &str) -> Option<Part<'_>> {
        let group = self.group_of(name)?;
        Some(Part { tables: group.tables(&self.prefix), version: group.version })
    }

    /// Returns the versions of all parts.
    pub fn versions(&self) -> impl Iterator<Item = u64> {
        self.groups.all().iter().map(|group| group.version)
    }
}

impl<'a> Part<'a> {
    /// Returns the version: a number that was never used for a part with other files.
    pub fn version(self) -> u64 {
        self.version
    }

    /// Returns whether the part has a single component directly below the prefix, and the metrics below any node are
    /// adjacent.
    pub fn is_in_order(self) -> bool {
        self.tables.head_count() == 1 && self.tables.names().are_in_order()
    }

    /// Returns the names and identifiers of the metrics, in the order of the files.
    pub fn metrics(self) -> impl DoubleEndedIterator<Item = (&'a str, Item)> {
        self.tables.metrics().iter().map(move |entry| (self.tables.name(entry), entry.item))
    }
}
