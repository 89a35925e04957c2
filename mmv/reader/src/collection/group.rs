//! Groups of files: a change of a file affects no other group.
//!
//! Two files are in one group if they share a class of clusters or instance domains, or a first component of names.

use std::cell::OnceCell;

use hashbrown::HashMap;
use pmapi::Serial;

use super::source::Source;
use super::tables::Tables;

/// Files that may have names, identifiers or instance domains in common, and their combined tables.
#[derive(Debug)]
pub(super) struct Group {
    /// The files, in the order of their names.
    pub sources: Vec<Source>,
    /// Built at the first access.
    tables: OnceCell<Tables>,
    /// The stamps of the files that the tables are made of.
    stamps: Vec<u64>,
    /// A number that was never used for a group of other files.
    pub version: u64,
    /// Number of the request that checked the files last.
    begun: u64,
    /// Whether the users whose files formed the group were charged for that.
    is_settled: bool,
}

/// All groups.
#[derive(Debug, Default)]
pub(super) struct Groups {
    all: Vec<Group>,
    /// Group of each file and index in the group, in the order of the files' names.
    order: Vec<(u32, u32)>,
    /// Stamp of each file, in the same order.
    stamps: Vec<u64>,
    /// Index of the group for each class, or [`NONE`].
    classes: Vec<u32>,
    /// Index of the group for each first component of names.
    heads: HashMap<Box<str>, u32>,
    /// The last stamp or version that was assigned.
    stamp: u64,
}

/// Number of classes. The exported number of an instance domain contains the cluster modulo this, so clusters of one
/// class can have domains in common.
const CLASSES: u16 = 1 << 11;

/// Index of no group.
const NONE: u32 = u32::MAX;

pub(super) fn class_of_cluster(cluster: u16) -> u16 {
    cluster % CLASSES
}

pub(super) fn class_of_indom(serial: Serial) -> u16 {
    (serial.get() >> 11) as u16 % CLASSES
}

impl Group {
    pub(super) fn tables(&self, prefix: &str) -> &Tables {
        self.tables.get_or_init(|| Tables::build(prefix, &self.sources))
    }

    /// Prepares all files for a request, once. Returns whether all of them are unchanged and may be shown.
    pub(super) fn begin(&mut self, request: u64, buffer: &mut Vec<u8>) -> bool {
        if self.begun == request {
            return true;
        }
        self.begun = request;
        // No short circuit: each file must discard the values of the last request.
        let valid = self.sources.iter_mut().map(|source| source.begin(buffer));
        valid.filter(|valid| !valid).count() == 0
    }

    pub(super) fn parts_mut(&mut self, prefix: &str) -> (&mut [Source], &Tables) {
        let tables = self.tables.get_or_init(|| Tables::build(prefix, &self.sources));
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

    #[inline]
    pub(super) fn of_cluster(&self, cluster: u16) -> Option<&Group> {
        self.all.get(*self.classes.get(usize::from(class_of_cluster(cluster)))? as usize)
    }

    #[inline]
    pub(super) fn of_cluster_mut(&mut self, cluster: u16) -> Option<&mut Group> {
        self.all.get_mut(*self.classes.get(usize::from(class_of_cluster(cluster)))? as usize)
    }

    pub(super) fn of_indom(&self, serial: Serial) -> Option<&Group> {
        self.all.get(*self.classes.get(usize::from(class_of_indom(serial)))? as usize)
    }

    /// Returns the group with the names that begin with this component.
    pub(super) fn of_head(&self, head: &str) -> Option<&Group> {
        self.all.get(*self.heads.get(head)? as usize)
    }

    /// Returns all files in the order of their names: the group of each, and its index there.
    pub(super) fn files(&self) -> impl DoubleEndedIterator<Item = (&Group, u32)> {
        self.order.iter().filter_map(|(group, place)| Some((self.all.get(*group as usize)?, *place)))
    }

    /// Removes all files. The groups' tables are kept for [`put_sources`](Groups::put_sources).
    pub(super) fn take_sources(&mut self) -> Vec<Source> {
        self.all.iter_mut().flat_map(|group| std::mem::take(&mut group.sources)).collect()
    }

    /// Sets the files, which must be sorted by name. Groups of the same files as before are kept.
    pub(super) fn put_sources(&mut self, mut sources: Vec<Source>) {
        for source in sources.iter_mut().filter(|source| source.stamp == 0) {
            self.stamp += 1;
            source.stamp = self.stamp;
        }
        if sources.iter().map(|source| source.stamp).eq(self.stamps.iter().copied()) {
            for (source, (group, _)) in sources.into_iter().zip(&self.order) {
                self.all[*group as usize].sources.push(source);
            }
            return;
        }
        self.put(partition(&sources), sources);
    }

    /// Puts all files into one group.
    #[cfg(test)]
    pub(super) fn join(&mut self) {
        let mut sources = self.take_sources();
        sources.sort_by(|a, b| a.name.cmp(&b.name));
        self.all.clear();
        self.put(vec![0; sources.len()], sources);
    }

    /// Calls `charge` for the users of files that were added to a group, with the number of the group's records.
    pub(super) fn settle(&mut self, mut charge: impl FnMut(u32, u64)) {
        for group in self.all.iter_mut().filter(|group| !group.is_settled) {
            group.is_settled = true;
            let records = group.sources.iter().map(|source| source.cost.values).sum();
            for source in &mut group.sources {
                if source.company == 0 {
                    charge(source.uid, records);
                }
                source.company = records;
            }
        }
    }

    fn put(&mut self, numbers: Vec<usize>, sources: Vec<Source>) {
        let mut old: HashMap<Vec<u64>, Group> =
            std::mem::take(&mut self.all).into_iter().map(|group| (group.stamps.clone(), group)).collect();
        self.order.clear();
        self.stamps = sources.iter().map(|source| source.stamp).collect();
        let mut parts: Vec<Vec<Source>> = Vec::new();
        for (number, source) in numbers.into_iter().zip(sources) {
            if number == parts.len() {
                parts.push(Vec::new());
            }
            if let Some(part) = parts.get_mut(number) {
                self.order.push((number as u32, part.len() as u32));
                part.push(source);
            }
        }
        for sources in parts {
            let stamps: Vec<u64> = sources.iter().map(|source| source.stamp).collect();
            self.all.push(match old.remove(&stamps) {
                Some(group) => Group { sources, ..group },
                None => {
                    self.stamp += 1;
                    Group { sources, tables: OnceCell::new(), stamps, version: self.stamp, begun: 0, is_settled: false }
                }
            });
        }
        self.index();
    }

    fn index(&mut self) {
        self.classes.clear();
        self.classes.resize(usize::from(CLASSES), NONE);
        self.heads.clear();
        for (number, group) in (0..).zip(&self.all) {
            for source in &group.sources {
                source.classes().for_each(|class| self.classes[usize::from(class)] = number);
                for head in source.heads() {
                    if !self.heads.contains_key(head) {
                        self.heads.insert(head.into(), number);
                    }
                }
            }
        }
    }
}

/// Returns the number of each file's group. Groups are numbered in the order in which they appear.
fn partition(sources: &[Source]) -> Vec<usize> {
    let mut sets = Sets::new(sources.len());
    let (mut classes, mut heads) = (HashMap::new(), HashMap::new());
    for (index, source) in sources.iter().enumerate() {
        source.classes().for_each(|class| sets.join(*classes.entry(class).or_insert(index), index));
        source.heads().for_each(|head| sets.join(*heads.entry(head).or_insert(index), index));
    }
    let mut numbers: Vec<usize> = Vec::with_capacity(sources.len());
    let mut groups = 0..;
    for index in 0..sources.len() {
        let number = numbers.get(sets.first(index)).copied().or_else(|| groups.next());
        numbers.extend(number);
    }
    numbers
}

/// Disjoint sets of numbers. Each element refers to a smaller one of its set; the smallest refers to itself.
pub(super) struct Sets(Vec<usize>);

impl Sets {
    /// Creates a set for each number below `count`.
    pub(super) fn new(count: usize) -> Sets {
        Sets((0..count).collect())
    }

    /// Returns the smallest number of a set.
    pub(super) fn first(&mut self, mut number: usize) -> usize {
        while self.0[number] != number {
            self.0[number] = self.0[self.0[number]];
            number = self.0[number];
        }
        number
    }

    pub(super) fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.first(a), self.first(b));
        self.0[a.max(b)] = a.min(b);
    }
}
