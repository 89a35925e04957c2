//! The name space in parts.

use pmapi::Item;

use super::Collection;
use super::group::{Group, Groups, own_head};

/// Names of a group of files. Data derived from them stays valid until the [`version`](Part::version) changes.
///
/// Parts of different users may share first components, and even full names. Each shared name is
/// [exported](Part::exports) by only one part.
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
    /// A component that several parts contain occurs once for each part.
    pub fn heads(&self) -> impl DoubleEndedIterator<Item = (&str, Part<'_>)> {
        self.groups.files().flat_map(|(group, number, place)| {
            let part = Part { prefix: &self.prefix, groups: &self.groups, group, number };
            group.tables(&self.prefix).heads_of(place).map(move |head| (head, part))
        })
    }

    /// Returns the parts that may contain a full name or names below it.
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
    /// Returns the version: a number that no part with other files has ever had.
    pub fn version(self) -> u64 {
        self.group.version
    }

    /// Derives data from the part. The time is charged to the user of its files, like that of reading them
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

    /// Returns whether all names of the part are exported, and its first components occur in no other part.
    pub fn is_alone(self) -> bool {
        self.group.is_alone()
    }

    /// Returns whether a metric of the part, given by its name and identifier, is exported.
    ///
    /// A request looks up a limited number of names that other parts may claim. Beyond that, returns true.
    pub fn exports(self, name: &str, item: Item) -> bool {
        self.groups.exports(self.prefix, self.number, name, item)
    }

    /// Returns the identifier of the part's metric with this name, whether it is exported or not.
    pub fn item(self, name: &str) -> Option<Item> {
        self.group.tables(self.prefix).item(name)
    }

    /// Returns the names and identifiers of the metrics, in the order of the files.
    pub fn metrics(self) -> impl DoubleEndedIterator<Item = (&'a str, Item)> {
        let tables = self.group.tables(self.prefix);
        tables.metrics().iter().map(move |entry| (tables.name(entry), entry.item))
    }
}
