//! The name space in parts.

use pmapi::Item;

use super::Collection;
use super::group::Group;

/// A part of the name space, with metrics that no other part has anything to do with: what is made of their names stays
/// right until the part has another [`version`](Part::version).
#[derive(Clone, Copy, Debug)]
pub struct Part<'a>(&'a Group);

impl Collection {
    /// The components right below the prefix, in the order of the files, and the parts that have the names there.
    pub fn heads(&self) -> impl DoubleEndedIterator<Item = (&str, Part<'_>)> {
        self.groups.heads().map(|(head, group)| (head, Part(group)))
    }

    /// The part that has a name and what is below it, if there is any; a name below the prefix.
    pub fn part(&self, name: &str) -> Option<Part<'_>> {
        self.group_of(name).map(Part)
    }
}

impl<'a> Part<'a> {
    /// A number that no part has had that was made of other files.
    pub fn version(self) -> u64 {
        self.0.version
    }

    /// Whether the metrics below any name come one after the other, and all are below one component.
    pub fn is_in_order(self) -> bool {
        self.0.heads.len() == 1 && self.0.tables.names().are_in_order()
    }

    /// Its metrics, in the order of the files.
    pub fn metrics(self) -> impl DoubleEndedIterator<Item = (&'a str, Item)> {
        let tables = &self.0.tables;
        tables.metrics().iter().map(|entry| (tables.name(entry), entry.item))
    }
}
