//! Changed files of a user with so many metrics that building their tables takes longer than one request may.
//!
//! Until the tables are complete, which takes several requests, the earlier contents of the files stay exported, and
//! the user's further changes wait.

use hashbrown::{HashMap, HashSet};
use pmapi::Item;

use super::build::Builder;
use super::group::{Groups, Ready};
use super::limits::thread_time;
use super::partition::partition;
use super::source::Source;

/// Number of records from which on tables are built in parts: about 2 ms of work.
pub(super) const LARGE: u64 = 32_768;

/// The next state of a user's files.
#[derive(Debug)]
pub(super) struct Draft {
    pub uid: u32,
    /// New files, and the new contents of others.
    sources: Vec<Source>,
    /// Stamps of the exported contents that are replaced or removed.
    replaced: HashSet<u64>,
    /// The tables of the groups that will be new, with the stamps of their files.
    groups: Vec<(Vec<u64>, Builder)>,
    /// Files are removed to make room for those of other users.
    makes_room: bool,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Files are added.
    Open,
    Building,
    Complete,
}

/// Result of a complete draft: the files, the stamps of the contents that they replace, and the tables.
pub(super) type Outcome = (Vec<Source>, HashSet<u64>, Ready);

impl Draft {
    pub(super) fn new(uid: u32) -> Draft {
        let (sources, replaced, groups) = (Vec::new(), HashSet::new(), Vec::new());
        Draft { uid, sources, replaced, groups, makes_room: false, stage: Stage::Open }
    }

    pub(super) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    pub(super) fn is_complete(&self) -> bool {
        self.stage == Stage::Complete
    }

    /// Returns the new files, and the new contents of others.
    pub(super) fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// Adds a file that has been read, in place of the exported contents `before`.
    pub(super) fn add(&mut self, mut source: Source, before: Option<&Source>) {
        if let Some(before) = before {
            source.cluster = before.cluster;
            self.replaced.insert(before.stamp);
        }
        self.sources.push(source);
    }

    /// Removes an exported file.
    pub(super) fn remove(&mut self, before: &Source) {
        self.replaced.insert(before.stamp);
    }

    /// Removes an exported file to make room for those of other users.
    pub(super) fn make_room(&mut self, before: &Source) {
        self.makes_room = true;
        self.remove(before);
    }

    /// Returns the user if the draft makes room for other users. In the request that adopts the draft, the user must
    /// not use this room again.
    pub(super) fn yields(&self) -> Option<u32> {
        Some(self.uid).filter(|_| self.makes_room)
    }

    /// Returns whether exported contents are replaced or removed.
    pub(super) fn replaces(&self, source: &Source) -> bool {
        self.replaced.contains(&source.stamp)
    }

    /// Begins to build the tables. `groups` has the exported files, including those that are replaced.
    pub(super) fn begin(&mut self, groups: &mut Groups) {
        self.assign_clusters(groups);
        self.sources.iter_mut().for_each(|source| groups.mark(source));
        let sources = self.future(groups);
        let mut parts: Vec<Vec<&Source>> = Vec::new();
        for (number, source) in partition(&sources).into_iter().zip(&sources) {
            if number == parts.len() {
                parts.push(Vec::new());
            }
            if let Some(part) = parts.get_mut(number) {
                part.push(source);
            }
        }
        let all = parts.iter().map(|part| (part.iter().map(|source| source.stamp).collect::<Vec<u64>>(), part));
        let new = all.filter(|(stamps, _)| !groups.has(stamps));
        let new = new.map(|(stamps, part)| (stamps, Builder::new(part))).collect();
        self.groups = new;
        self.stage = Stage::Building;
    }

    /// Assigns a cluster to each new file: the one that it requests, or the lowest free one.
    fn assign_clusters(&mut self, groups: &Groups) {
        let mut used: HashSet<u16> = groups.sources().chain(&self.sources).map(|source| source.cluster).collect();
        let mut clusters = 1..=Item::MAX_CLUSTER;
        self.sources.retain_mut(|source| {
            let wanted = u16::try_from(source.file.header().cluster).unwrap_or_default();
            if wanted != 0 || source.cluster == 0 {
                let free = || clusters.find(|cluster| !used.contains(cluster));
                let Some(cluster) = Some(wanted).filter(|wanted| *wanted != 0).or_else(free) else {
                    source.log("mmv", format_args!("is left out: no cluster is free"));
                    return false;
                };
                source.cluster = cluster;
                used.insert(cluster);
            }
            true
        });
    }

    /// Returns the user's files as they will be, in the order of their names.
    fn future<'a>(&'a self, groups: &'a Groups) -> Vec<&'a Source> {
        let kept = groups.sources().filter(|source| source.uid == self.uid && !self.replaces(source));
        let mut sources: Vec<&Source> = kept.chain(&self.sources).collect();
        sources.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        sources
    }

    /// Continues building until the processor time `until` of this thread, but does at least one step. Returns false if
    /// the files are no longer those with which the work has begun.
    pub(super) fn go_on(&mut self, prefix: &str, groups: &Groups, until: u64) -> bool {
        if self.stage != Stage::Building {
            return true;
        }
        let mut builders = std::mem::take(&mut self.groups);
        let done = self.go_on_with(&mut builders, prefix, groups, until);
        self.groups = builders;
        if done == Some(true) {
            self.stage = Stage::Complete;
        }
        done.is_some()
    }

    /// Returns whether the tables are complete, or `None` if a file is missing.
    fn go_on_with(
        &self,
        builders: &mut [(Vec<u64>, Builder)],
        prefix: &str,
        groups: &Groups,
        until: u64,
    ) -> Option<bool> {
        let future = self.future(groups).into_iter();
        let sources: HashMap<u64, &Source> = future.map(|source| (source.stamp, source)).collect();
        for (stamps, builder) in builders {
            let part: Vec<&Source> = stamps.iter().map(|stamp| sources.get(stamp).copied()).collect::<Option<_>>()?;
            if !builder.go_on(prefix, &part, || thread_time() > until) {
                return Some(false);
            }
        }
        Some(true)
    }

    /// Returns the new state.
    pub(super) fn finish(self) -> Outcome {
        let tables = self.groups.into_iter().map(|(stamps, builder)| (stamps, builder.into_tables()));
        (self.sources, self.replaced, tables.collect())
    }
}
