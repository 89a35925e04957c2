//! Files that have nothing to do with each other, apart: what one of them changes concerns no other.

use std::cell::OnceCell;

use hashbrown::HashMap;
use pmapi::Serial;

use super::source::Source;
use super::tables::Tables;

/// Files that may have names, identifiers or instance domains in common, and what they have together.
#[derive(Debug)]
pub(super) struct Group {
    /// In the order of their names.
    pub sources: Vec<Source>,
    /// Made when somebody asks.
    tables: OnceCell<Tables>,
    /// What the tables were made from.
    stamps: Vec<u64>,
    /// A number that no group has had that was made of other files.
    pub version: u64,
    /// The request in which the files were looked at last.
    begun: u64,
    /// Whether those who have brought the files together were charged for that.
    is_settled: bool,
}

/// All files.
#[derive(Debug, Default)]
pub(super) struct Groups {
    all: Vec<Group>,
    /// Where each file is, in the order of their names: its group, and its place there.
    order: Vec<(u32, u32)>,
    /// What they are, in the same order.
    stamps: Vec<u64>,
    /// Groups by class; [`NONE`] where there is none.
    classes: Vec<u32>,
    /// Groups by the first components of the names that there may be.
    heads: HashMap<Box<str>, u32>,
    /// The stamp or version that was given last.
    stamp: u64,
}

/// Instance domains have the numbers of a cluster, modulo this, so that clusters of the same class can meet there.
const CLASSES: u16 = 1 << 11;

/// No group.
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

    /// A request begins, unless it has already: whether all files are still what was read, and may be shown.
    pub(super) fn begin(&mut self, request: u64, buffer: &mut Vec<u8>) -> bool {
        if self.begun == request {
            return true;
        }
        self.begun = request;
        // Each of them: what it has read for the last request is old.
        let valid = self.sources.iter_mut().map(|source| source.begin(buffer));
        valid.filter(|valid| !valid).count() == 0
    }

    pub(super) fn parts_mut(&mut self, prefix: &str) -> (&mut [Source], &Tables) {
        let tables = self.tables.get_or_init(|| Tables::build(prefix, &self.sources));
        (&mut self.sources, tables)
    }
}

impl Groups {
    /// How many files there are.
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

    /// The group with the names that begin so.
    pub(super) fn of_head(&self, head: &str) -> Option<&Group> {
        self.all.get(*self.heads.get(head)? as usize)
    }

    /// Each file in the order of their names, by its place in its group.
    pub(super) fn files(&self) -> impl DoubleEndedIterator<Item = (&Group, u32)> {
        self.order.iter().filter_map(|(group, place)| Some((self.all.get(*group as usize)?, *place)))
    }

    /// Takes the files out. What they had together is kept for those that are put back.
    pub(super) fn take_sources(&mut self) -> Vec<Source> {
        self.all.iter_mut().flat_map(|group| std::mem::take(&mut group.sources)).collect()
    }

    /// Puts files in, in the order of their names. Groups of the same files as before stay as they were.
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

    /// Tells the users of files that were put into another group how many records that group has.
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

/// The number of the group of each file, in the order in which groups appear.
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

/// Disjoint sets of numbers: each has a smaller one of its set, the smallest itself.
pub(super) struct Sets(Vec<usize>);

impl Sets {
    /// Each number is a set.
    pub(super) fn new(count: usize) -> Sets {
        Sets((0..count).collect())
    }

    /// The smallest of a number's set.
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
