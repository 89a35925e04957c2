//! The name space in parts.

use pmapi::Item;

use super::Collection;
use super::tables::Tables;

/// A part of the name space, with metrics that no other part has anything to do with: what is made of their names stays
/// right until the part has another [`version`](Part::version).
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    tables: &'a Tables,
    version: u64,
}

impl Collection {
    /// The components right below the prefix, in the order of the files, and the parts that have the names there.
    pub fn heads(&self) -> impl DoubleEndedIterator<Item = (&str, Part<'_>)> {
        self.groups.files().flat_map(|(group, place)| {
            let tables = group.tables(&self.prefix);
            tables.heads_of(place).map(move |head| (head, Part { tables, version: group.version }))
        })
    }

    /// The part that has a name and what is below it, if there is any; a name below the prefix.
    pub fn part(&self, name: &str) -> Option<Part<'_>> {
        let group = self.group_of(name)?;
        Some(Part { tables: group.tables(&self.prefix), version: group.version })
    }

    /// The versions of all parts.
    pub fn versions(&self) -> impl Iterator<Item = u64> {
        self.groups.all().iter().map(|group| group.version)
    }
}

impl<'a> Part<'a> {
    /// A number that no part has had that was made of other files.
    pub fn version(self) -> u64 {
        self.version
    }

    /// Whether the metrics below any name come one after the other, and all are below one component.
    pub fn is_in_order(self) -> bool {
        self.tables.head_count() == 1 && self.tables.names().are_in_order()
    }

    /// Its metrics, in the order of the files.
    pub fn metrics(self) -> impl DoubleEndedIterator<Item = (&'a str, Item)> {
        self.tables.metrics().iter().map(move |entry| (self.tables.name(entry), entry.item))
    }
}
