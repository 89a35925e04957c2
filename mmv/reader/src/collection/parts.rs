//! The name space in parts.

use pmapi::Item;

use super::Collection;
use super::group::{Group, Groups, own_head};

/// Names of a group of files. Data derived from them stays valid until the [`version`](Part::version) changes.
///
/// Parts of different users may have first components, and even full names, in common. Of each such name, one part
/// [`exports`](Part::exports) it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Part<'a> {
    prefix: &'a str,
    groups: &'a Groups,
    group: &'a Group,
    number: u32,
}

impl Collection {
    /// Returns the components directly below the prefix, in the order of the files, each with a part that contains it.
    /// A component that several parts contain occurs as many times.
    pub fn heads(&self) -> impl DoubleEndedIterator<Item = (&str, Part<'_>)> {
        self.groups.files().flat_map(|(group, number, place)| {
            let part = Part { prefix: &self.prefix, groups: &self.groups, group, number };
            group.tables(&self.prefix).heads_of(place).map(move |head| (head, part))
        })
    }

    /// Returns the parts that may contain a full name, and the names below it.
    pub fn parts(&self, name: &str) -> impl Iterator<Item = Part<'_>> {
        let (prefix, groups) = (&*self.prefix, &self.groups);
        let numbers = groups.of_head(own_head(prefix, name)).iter().copied();
        numbers.filter_map(move |number| Some(Part { prefix, groups, group: groups.get(number)?, number }))
    }

    /// Returns the versions of all parts.
    pub fn versions(&self) -> impl Iterator<Item = u64> {
        self.groups.all().iter().map(|group| group.version)
    }
}

impl<'a> Part<'a> {
    /// Returns the version: a number that was never used for a part with other files.
    pub fn version(self) -> u64 {
        self.group.version
    }

    /// Makes data of the part, and charges the time to the user of its files like that of reading them
    /// ([`Limits::user_work`](super::Limits::user_work)).
    pub fn derive<T>(self, make: impl FnOnce() -> T) -> T {
        self.group.charged(make)
    }

    /// Returns whether the part has a single component directly below the prefix, and the metrics below any node are
    /// adjacent.
    pub fn is_in_order(self) -> bool {
        let tables = self.group.tables(self.prefix);
        tables.head_count() == 1 && tables.names().are_in_order()
    }

    /// Returns whether all names of the part are exported, and no other part has its first components.
    pub fn is_alone(self) -> bool {
        self.group.is_alone()
    }

    /// Returns whether a metric of the part, given by its name, is exported.
    pub fn exports(self, name: &str) -> bool {
        self.is_alone() || self.groups.of_name(self.prefix, name).is_some_and(|(number, _)| number == self.number)
    }

    /// Returns the names and identifiers of the metrics, in the order of the files.
    pub fn metrics(self) -> impl DoubleEndedIterator<Item = (&'a str, Item)> {
        let tables = self.group.tables(self.prefix);
        tables.metrics().iter().map(move |entry| (tables.name(entry), entry.item))
    }
}
