//! Groups of files: a change of a file affects no other group.
//!
//! Two files are in the same group if they belong to one user and share a class of clusters or instance domains, or a
//! first component of names. Groups of several users may claim the same metrics or instance domains. Each lookup then
//! finds the claim of the file with the highest [`Rank`], so that no user's change requires new tables for another
//! user.

use std::cell::{Cell, OnceCell};
use std::ffi::OsStr;

use hashbrown::{HashMap, HashSet};
use pmapi::{Item, Serial};

use super::build::Builder;
use super::limits::{Tariff, thread_time};
use super::names::head;
use super::numbers::{CLASSES, class_of_cluster, class_of_indom};
use super::opening::Opening;
use super::partition::partition;
use super::source::{GroupSize, Source, building_time};
use super::tables::Tables;

/// Files of a user that may have names, identifiers or instance domains in common, and their combined tables.
#[derive(Debug)]
pub(super) struct Group {
    /// The files, in the order of their names.
    pub sources: Vec<Source>,
    /// Built at the first access.
    tables: OnceCell<Tables>,
    tariff: Tariff,
    /// Nanoseconds spent on building the tables and data derived from them, until they are charged.
    work: Cell<u64>,
    /// The stamps of the files from which the tables were built.
    stamps: Vec<u64>,
    /// A number that no group of other files has ever had.
    pub version: u64,
    /// Whether no other group shares a class or a first component of names with this one.
    is_alone: bool,
    /// Whether another group shares a first component of names with this one.
    shares_heads: bool,
    /// Number of the last request that checked the files.
    begun: u64,
    /// Index of the file with which the next check begins.
    next: usize,
    /// Whether the last check left some files unchecked.
    is_cut: bool,
}

/// All groups of files of a directory.
#[derive(Debug, Default)]
pub(super) struct Groups {
    all: Vec<Group>,
    /// Group of each file and index in the group, in the order of the files' names.
    order: Vec<(u32, u32)>,
    /// Stamp of each file, in the same order as `order`.
    stamps: Vec<u64>,
    /// The groups with each class.
    classes: Vec<Numbers>,
    /// The groups by the first component of their names.
    heads: HashMap<Box<str>, Numbers>,
    /// The last stamp or version that was assigned.
    stamp: u64,
    /// Number of look-ups in tables of other groups that the present request may still do to hide names, times [`CHEAP`].
    checks: Cell<usize>,
}

/// Indexes of groups, in ascending order. Several groups belong to different users.
#[derive(Clone, Debug, Default)]
enum Numbers {
    #[default]
    None,
    One(u32),
    Many(Vec<u32>),
}

impl Numbers {
    #[inline]
    fn as_slice(&self) -> &[u32] {
        match self {
            Numbers::None => &[],
            Numbers::One(number) => std::slice::from_ref(number),
            Numbers::Many(numbers) => numbers,
        }
    }

    /// Adds the index of a group, which must not be lower than those already in the set.
    fn push(&mut self, number: u32) {
        match self {
            _ if self.as_slice().last() == Some(&number) => {}
            Numbers::None => *self = Numbers::One(number),
            Numbers::One(first) => *self = Numbers::Many(vec![*first, number]),
            Numbers::Many(numbers) => numbers.push(number),
        }
    }
}

/// Complete tables of groups that do not exist yet, by the stamps of their files.
pub(super) type Ready = HashMap<Vec<u64>, Tables>;

/// Precedence of a file over those of other users. The lowest rank comes first: root's files, then the files that have
/// been in the directory longest, then the first file by name.
type Rank<'a> = (bool, u64, &'a OsStr);

/// Number of look-ups in tables of other groups that one request does to hide names which it lists, or to count metrics.
/// They take 1 to 2 ms.
const CHECKS: usize = 4_096;

/// Number of names whose first component and cluster no other group has, the check of which takes as long as a look-up.
const CHEAP: usize = 8;

/// Longest time for the tables that a later request builds, in nanoseconds.
const LATER: u64 = 8_000_000;

impl Group {
    #[inline]
    pub(super) fn tables(&self, prefix: &str) -> &Tables {
        self.tables.get_or_init(|| self.build(prefix))
    }

    #[cold]
    fn build(&self, prefix: &str) -> Tables {
        self.charged(|| Builder::build(prefix, &self.sources))
    }

    /// Performs work, and charges its time to the user of the files.
    pub(super) fn charged<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.tariff == Tariff::Free {
            return work();
        }
        let start = thread_time();
        let done = work();
        self.work.set(self.work.get().saturating_add(thread_time().saturating_sub(start)));
        done
    }

    /// Returns whether no other user's files share names, clusters or instance domains with these.
    pub(super) fn is_alone(&self) -> bool {
        self.is_alone
    }

    fn rank(&self, source: usize) -> Option<Rank<'_>> {
        self.sources.get(source).map(|source| (source.uid != 0, source.since, &*source.name))
    }

    /// Prepares all files for a request, once, and checks them as far as the limits of the request allow. Returns
    /// whether all checked files are unchanged and may be shown.
    pub(super) fn begin(&mut self, request: u64, opening: &mut Opening, buffer: &mut Vec<u8>) -> bool {
        if self.begun == request {
            return true;
        }
        self.begun = request;
        let (mut are_valid, mut first_left) = (true, None);
        let first = if self.next < self.sources.len() { self.next } else { 0 };
        let (before, after) = self.sources.split_at_mut(first);
        for (index, source) in (first..).zip(after).chain((0..).zip(before)) {
            // All files are prepared, whatever the result of the others: each must discard the values of the last
            // request.
            if opening.allows_check(source.uid, source.is_open()) {
                are_valid &= source.begin(buffer);
            } else {
                source.begin_unchecked();
                first_left = first_left.or(Some(index));
            }
        }
        self.next = first_left.unwrap_or_default();
        self.is_cut = first_left.is_some();
        are_valid
    }

    /// Returns whether the present request has left some files unchecked.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    pub(super) fn parts_mut(&mut self, prefix: &str) -> (&mut [Source], &Tables) {
        if self.tables.get().is_none() {
            self.tables = OnceCell::from(self.build(prefix));
        }
        let tables = self.tables.get_or_init(Tables::default);
        (&mut self.sources, tables)
    }
}

impl Groups {
    /// Returns the number of files.
    pub(super) fn file_count(&self) -> usize {
        self.order.len()
    }

    pub(super) fn all(&self) -> &[Group] {
        &self.all
    }

    pub(super) fn all_mut(&mut self) -> &mut [Group] {
        &mut self.all
    }

    pub(super) fn get(&self, number: u32) -> Option<&Group> {
        self.all.get(number as usize)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Group> {
        self.all.get_mut(number as usize)
    }

    /// Returns the group whose metric with this identifier is exported, if any metric is.
    #[inline]
    pub(super) fn of_item(&self, prefix: &str, item: Item) -> Option<u32> {
        match self.of_class(class_of_cluster(item.cluster())) {
            [number] if self.get(*number)?.is_alone => Some(*number),
            numbers => self.of_shared_item(prefix, item, numbers),
        }
    }

    #[inline(never)]
    fn of_shared_item(&self, prefix: &str, item: Item, numbers: &[u32]) -> Option<u32> {
        let claims = numbers.iter().filter_map(|number| {
            let group = self.get(*number)?;
            let entry = group.tables(prefix).metric(item)?;
            Some((group.rank(entry.source as usize)?, *number, group.tables(prefix).name(entry)))
        });
        let (rank, first, name) = claims.min()?;
        // A metric is exported only if both its identifier and its name belong to its group.
        let owner = self.claims(prefix, name).min()?;
        ((rank, first) == (owner.0, owner.1)).then_some(first)
    }

    /// Returns the group whose metric with this name is exported, if any metric is, and the metric's identifier.
    pub(super) fn of_name(&self, prefix: &str, name: &str) -> Option<(u32, Item)> {
        let (_, number, item) = self.claims(prefix, name).min()?;
        (self.of_item(prefix, item)? == number).then_some((number, item))
    }

    /// Returns the metrics with this name: the rank of the file, the group and the identifier.
    fn claims(&self, prefix: &str, name: &str) -> impl Iterator<Item = (Rank<'_>, u32, Item)> {
        self.of_head(own_head(prefix, name)).iter().filter_map(move |number| {
            let group = self.get(*number)?;
            let tables = group.tables(prefix);
            let item = tables.item(name)?;
            Some((group.rank(tables.metric(item)?.source as usize)?, *number, item))
        })
    }

    /// Allows a new request [`CHECKS`] look-ups.
    pub(super) fn begin(&self) {
        self.checks.set(CHECKS * CHEAP);
    }

    /// Returns whether a group's metric is exported. A request for very many names that several users claim has a
    /// limited time: after [`CHECKS`] look-ups, this returns true, so that the list of names has some names twice.
    pub(super) fn exports(&self, prefix: &str, number: u32, name: &str, item: Item) -> bool {
        let Some(group) = self.get(number).filter(|group| !group.is_alone) else { return true };
        if self.checks.get() == 0 {
            return true;
        }
        let heads = if group.shares_heads { self.of_head(own_head(prefix, name)).len() } else { 1 };
        let classes = self.of_class(class_of_cluster(item.cluster())).len();
        let is_own = heads <= 1 && classes <= 1;
        let cost = if is_own { 1 } else { (heads + classes) * CHEAP };
        match self.checks.get().checked_sub(cost) {
            Some(left) => {
                self.checks.set(left);
                is_own || self.of_item(prefix, item) == Some(number)
            }
            None => {
                self.checks.set(0);
                true
            }
        }
    }

    /// Returns the group whose instance domain with this number is exported.
    pub(super) fn of_indom(&self, prefix: &str, serial: Serial) -> Option<u32> {
        let numbers = self.of_class(class_of_indom(serial));
        if let [number] = numbers {
            return Some(*number);
        }
        let claims = numbers.iter().filter_map(|number| {
            let group = self.get(*number)?;
            let (source, _) = group.tables(prefix).indoms.get(&serial)?.parts.first()?;
            Some((group.rank(*source)?, *number))
        });
        claims.min().map(|(_, number)| number)
    }

    /// Returns whether a group's metric has instances of a domain that another group exports.
    #[inline]
    pub(super) fn has_foreign_instances(&self, prefix: &str, number: u32, item: Item) -> bool {
        self.get(number).is_some_and(|group| {
            !group.is_alone && {
                let entry = group.tables(prefix).metric(item);
                let indom = entry.and_then(|entry| entry.desc(&group.sources)?.indom);
                indom.is_some_and(|serial| self.of_indom(prefix, serial).is_some_and(|owner| owner != number))
            }
        })
    }

    /// Returns the group whose labels of a cluster are exported.
    pub(super) fn of_cluster(&self, cluster: u16) -> Option<u32> {
        let numbers = self.of_class(class_of_cluster(cluster));
        if let [number] = numbers {
            return Some(*number);
        }
        let claims = numbers.iter().filter_map(|number| {
            let group = self.get(*number)?;
            let ranks = (0..).zip(&group.sources).filter(|(_, source)| source.cluster == cluster);
            Some((ranks.filter_map(|(place, _)| group.rank(place)).min()?, *number))
        });
        claims.min().map(|(_, number)| number)
    }

    #[inline]
    fn of_class(&self, class: u16) -> &[u32] {
        self.classes.get(usize::from(class)).map(Numbers::as_slice).unwrap_or_default()
    }

    /// Returns the groups with names that begin with this component.
    pub(super) fn of_head(&self, head: &str) -> &[u32] {
        self.heads.get(head).map(Numbers::as_slice).unwrap_or_default()
    }

    /// Returns all files in the order of their names: the group of each, its number, and the file's index there.
    pub(super) fn files(&self) -> impl DoubleEndedIterator<Item = (&Group, u32, u32)> {
        self.order.iter().filter_map(|(number, place)| Some((self.get(*number)?, *number, *place)))
    }

    /// Removes all files. The groups' tables are kept for [`put_sources`](Groups::put_sources).
    pub(super) fn take_sources(&mut self) -> Vec<Source> {
        let mut sources = Vec::with_capacity(self.file_count());
        self.all.iter_mut().for_each(|group| sources.append(&mut group.sources));
        sources
    }

    /// Sets the files, which must be sorted by name. Groups of the same files as before are kept. `tariff` determines whether
    /// users are charged for the tables of new groups. `ready` has tables that are complete, by the stamps of the files.
    pub(super) fn put_sources(&mut self, mut sources: Vec<Source>, tariff: Tariff, ready: Ready) {
        sources.iter_mut().for_each(|source| self.mark(source));
        if sources.iter().map(|source| source.stamp).eq(self.stamps.iter().copied()) {
            for (source, (group, _)) in sources.into_iter().zip(&self.order) {
                self.all[*group as usize].sources.push(source);
            }
            return;
        }
        let numbers = partition(&sources.iter().collect::<Vec<_>>());
        self.put(numbers, sources, tariff, ready);
    }

    /// Assigns a stamp to a file, unless it has one.
    pub(super) fn mark(&mut self, source: &mut Source) {
        if source.stamp == 0 {
            self.stamp += 1;
            source.stamp = self.stamp;
        }
    }

    /// Returns all files.
    pub(super) fn sources(&self) -> impl Iterator<Item = &Source> {
        self.all.iter().flat_map(|group| &group.sources)
    }

    /// Returns whether there is a group of files with these stamps.
    pub(super) fn has(&self, stamps: &[u64]) -> bool {
        self.all.iter().any(|group| group.stamps == stamps)
    }

    /// Puts all files into one group.
    #[cfg(test)]
    pub(super) fn join(&mut self) {
        let mut sources = self.take_sources();
        sources.sort_by(|a, b| a.name.cmp(&b.name));
        self.all.clear();
        self.put(vec![0; sources.len()], sources, Tariff::Free, Ready::new());
    }

    /// Calls `charge` with the users of groups whose tables have been built since the last call, and the nanoseconds
    /// spent.
    pub(super) fn take_work(&mut self, mut charge: impl FnMut(u32, u64)) {
        for group in &mut self.all {
            let work = group.work.take();
            if let Some(first) = group.sources.first().filter(|_| work > 0) {
                charge(first.uid, work);
            }
        }
    }

    fn put(&mut self, numbers: Vec<usize>, sources: Vec<Source>, tariff: Tariff, mut ready: Ready) {
        let mut old: HashMap<Vec<u64>, Group> =
            std::mem::take(&mut self.all).into_iter().map(|group| (group.stamps.clone(), group)).collect();
        self.order.clear();
        self.stamps = sources.iter().map(|source| source.stamp).collect();
        let mut sizes = vec![0; numbers.iter().max().map_or(0, |last| last + 1)];
        numbers.iter().for_each(|number| sizes[*number] += 1);
        let mut parts: Vec<Vec<Source>> = Vec::new();
        for (number, source) in numbers.into_iter().zip(sources) {
            if number == parts.len() {
                parts.push(Vec::with_capacity(sizes.get(number).copied().unwrap_or_default()));
            }
            if let Some(part) = parts.get_mut(number) {
                self.order.push((number as u32, part.len() as u32));
                part.push(source);
            }
        }
        for sources in parts {
            let stamps: Vec<u64> = sources.iter().map(|source| source.stamp).collect();
            let group = match old.remove(&stamps) {
                Some(group) => Group { sources, ..group },
                None => {
                    let tables = ready.remove(&stamps).map(OnceCell::from).unwrap_or_default();
                    self.new_group(sources, stamps, tariff, tables)
                }
            };
            self.all.push(group);
        }
        self.index();
    }

    fn new_group(
        &mut self,
        mut sources: Vec<Source>,
        stamps: Vec<u64>,
        tariff: Tariff,
        tables: OnceCell<Tables>,
    ) -> Group {
        self.stamp += 1;
        let (work, version) = (Cell::new(0), self.stamp);
        let group = GroupSize { records: sources.iter().map(|source| source.records).sum(), version };
        sources.iter_mut().for_each(|source| source.group = group);
        Group {
            sources,
            tables,
            work,
            tariff,
            stamps,
            version,
            is_alone: true,
            shares_heads: false,
            begun: 0,
            next: 0,
            is_cut: false,
        }
    }

    /// Builds the tables of new groups now, because a single later request might need many of them. After files were
    /// read without a time limit, does so only if all tables together take long. Otherwise each table is built by the
    /// request that needs it.
    pub(super) fn build(&self, prefix: &str) {
        let is_later = |group: &Group| group.tariff == Tariff::Free && group.tables.get().is_none();
        let records = self.all.iter().filter(|group| is_later(group)).flat_map(|group| &group.sources);
        let are_few = building_time(records.map(|source| source.records).sum()) <= LATER;
        self.all.iter().filter(|group| !(are_few && is_later(group))).for_each(|group| _ = group.tables(prefix));
    }

    fn index(&mut self) {
        self.begin();
        self.classes.clear();
        self.classes.resize(usize::from(CLASSES), Numbers::None);
        self.heads.clear();
        for (number, group) in (0..).zip(&self.all) {
            for source in &group.sources {
                source.classes().for_each(|class| self.classes[usize::from(class)].push(number));
                for head in source.heads() {
                    match self.heads.get_mut(head) {
                        Some(numbers) => numbers.push(number),
                        None => _ = self.heads.insert(head.into(), Numbers::One(number)),
                    }
                }
            }
        }
        let (heads, classes) = (shared(self.heads.values()), shared(self.classes.iter()));
        for (number, group) in (0..).zip(&mut self.all) {
            group.shares_heads = heads.contains(&number);
            group.is_alone = !group.shares_heads && !classes.contains(&number);
        }
    }
}

/// Returns the groups that are in a set with others.
fn shared<'a>(sets: impl Iterator<Item = &'a Numbers>) -> HashSet<u32> {
    sets.map(Numbers::as_slice).filter(|all| all.len() > 1).flatten().copied().collect()
}

/// Returns the first component of a full name after the prefix.
pub(super) fn own_head<'a>(prefix: &str, name: &'a str) -> &'a str {
    head(name.strip_prefix(prefix).and_then(|own| own.strip_prefix('.')).unwrap_or_default())
}
