//! Directories that cost a reader of files most, for the benchmarks of the reader and of agent mmv.
#![allow(dead_code, unused_imports, reason = "each benchmark uses a part")]

mod contents;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, chown};
use std::path::{Path, PathBuf};

pub(crate) use contents::{application, files, one_group};
use contents::{heads, labels, rows, strings};

/// Kinds of directories.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Full quotas of metrics, of 1 or 7 inner nodes for each file, 40 users with 20 small files each, and 100,000 other
    /// names.
    Quotas(usize),
    /// 110,000 names below one component, of which one file changes.
    Component,
    /// Files to which bytes are appended, until they are written again.
    Growing,
    /// Files that are incomplete at every other request, written in place.
    Flickering,
    /// Files, of several users if there are, that exchange their names.
    Swapped,
    /// Files with damage in their headers, tables of contents and records.
    Damaged,
    /// Files of a tebibyte without data, and large ones with data, that claim to have as many records as possible.
    Huge,
    /// Full quotas of labels, for a few metrics, instances and domains.
    Labels,
    /// Full quotas of labels whose names are nested, one for each instance.
    Nested,
    /// Full quotas of strings, in the instances of a metric.
    Strings,
    /// The same, in an order in which no two strings can be read together.
    Scattered,
    /// Full quotas of instances of one domain, which change.
    Instances,
    /// Full quotas of instances of one domain with long names of this character, which change.
    Texts(char),
    /// Full quotas of metrics with long names, one of whose files changes.
    LongNames,
    /// Full quotas of first components of names.
    Heads,
    /// 1,000 small files, whose names share a first component.
    Small,
    /// Names that come and go, without valid files.
    Names,
}

/// All kinds.
pub(crate) const KINDS: [Kind; 20] = [
    Kind::Quotas(1),
    Kind::Quotas(7),
    Kind::Component,
    Kind::Growing,
    Kind::Flickering,
    Kind::Swapped,
    Kind::Damaged,
    Kind::Huge,
    Kind::Labels,
    Kind::Nested,
    Kind::Strings,
    Kind::Scattered,
    Kind::Instances,
    Kind::Texts('x'),
    Kind::Texts('\u{444}'),
    Kind::Texts('\u{1}'),
    Kind::LongNames,
    Kind::Heads,
    Kind::Small,
    Kind::Names,
];

/// First hostile user.
const USER: u32 = 5001;
/// Number of changes before a request.
const CHANGES: usize = 20;

/// A directory of hostile users.
pub(crate) struct Hostile {
    kind: Kind,
    path: PathBuf,
    kept: Vec<Kept>,
    generation: u64,
    random: u64,
}

/// A file that is written repeatedly, with its owner.
struct Kept {
    uid: u32,
    name: String,
    bytes: Vec<u8>,
}

impl Hostile {
    /// Fills a directory with hostile files of `users` users. Needs root, for the owners.
    pub(crate) fn fill(kind: Kind, users: u32, path: &Path) -> Hostile {
        let mut hostile = Hostile { kind, path: path.to_owned(), kept: Vec::new(), generation: 1, random: 1 };
        let contents = match kind {
            Kind::Quotas(nodes) => one_group(nodes),
            Kind::Component | Kind::Flickering => one_group(1),
            Kind::Growing | Kind::Swapped => one_group(7),
            Kind::Damaged => [one_group(7), rows(6), heads(7)].concat(),
            Kind::Huge => contents::huge(),
            Kind::Labels => labels(11),
            Kind::Nested => contents::nested_labels(11),
            Kind::Strings => strings(),
            Kind::Scattered => contents::scattered_strings(),
            Kind::Instances => rows(6),
            Kind::Texts(fill) => contents::long_rows(60, fill),
            Kind::LongNames => contents::long_names(60),
            Kind::Heads => heads(7),
            Kind::Small => contents::small(),
            Kind::Names => Vec::new(),
        };
        for uid in USER..USER + users {
            let files = (0..).zip(contents.iter().cloned());
            hostile.kept.extend(files.map(|(n, bytes)| Kept { uid, name: format!("large{uid}_{n}"), bytes }));
        }
        if matches!(kind, Kind::Quotas(_)) {
            hostile.small(800);
        }
        if matches!(kind, Kind::Quotas(_) | Kind::Names) {
            (0..100_000).for_each(|n| hostile.other(n));
        }
        (0..hostile.kept.len()).for_each(|file| hostile.put(file));
        hostile
    }

    /// Adds small files of 40 users.
    fn small(&mut self, count: u32) {
        let small = files(1, 1, 0);
        let bytes = fs::read(small.path().join("file0")).unwrap();
        let files = (0..count).map(|n| (USER + 1000 + n % 40, format!("small{n}"), bytes.clone()));
        self.kept.extend(files.map(|(uid, name, bytes)| Kept { uid, name, bytes }));
    }

    /// Creates a file, of one of 40 users, that is not valid.
    fn other(&mut self, n: u32) {
        let path = self.path.join(format!("none{n}"));
        fs::write(&path, "MMV?").unwrap();
        own(&path, USER + 1000 + n % 40);
    }

    /// Returns a random number below `end`.
    fn below(&mut self, end: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) as usize % end
    }

    /// Changes the directory before a request.
    pub(crate) fn change(&mut self) {
        self.generation += 1;
        match self.kind {
            Kind::Component | Kind::LongNames => self.put(50),
            Kind::Names => (0..CHANGES).for_each(|_| self.come_or_go()),
            Kind::Huge
            | Kind::Labels
            | Kind::Nested
            | Kind::Strings
            | Kind::Scattered
            | Kind::Instances
            | Kind::Texts(_) => self.change_one(),
            _ => (0..CHANGES).for_each(|_| self.change_one()),
        }
    }

    fn change_one(&mut self) {
        let file = self.below(self.kept.len());
        let kind = self.kind;
        match kind {
            Kind::Quotas(_) if self.kept[file].name.starts_with("small") && self.below(4) == 0 => {
                // Large files stay, so that the quotas stay full.
                _ = fs::remove_file(self.path.join(&self.kept[file].name));
            }
            Kind::Growing => self.grow(file),
            Kind::Flickering => {
                let path = self.path.join(&self.kept[file].name);
                let open = File::options().write(true).open(path).unwrap();
                let generation = if self.generation % 2 == 0 { 0 } else { self.generation };
                open.write_all_at(&generation.to_ne_bytes(), 16).unwrap();
                open.write_all_at(&self.generation.to_ne_bytes(), 8).unwrap();
            }
            Kind::Swapped => {
                let other = self.below(self.kept.len());
                let [one, other] = [file, other].map(|file| self.path.join(&self.kept[file].name));
                let spare = self.path.join(".spare");
                // The pairs are of different users most of the time.
                fs::rename(&one, &spare).unwrap();
                _ = fs::rename(&other, &one);
                fs::rename(&spare, &other).unwrap();
            }
            _ => self.put(file),
        }
    }

    /// Appends bytes to a file, or writes it again.
    fn grow(&mut self, file: usize) {
        let path = self.path.join(&self.kept[file].name);
        let len = fs::metadata(&path).map_or(0, |file| file.len());
        if self.below(2) == 0 && len < 4 << 20 {
            let open = File::options().write(true).open(path).unwrap();
            open.write_all_at(&[0; 4096], len).unwrap();
        } else {
            self.put(file);
        }
    }

    fn come_or_go(&mut self) {
        let n = self.below(100_000) as u32;
        if self.below(2) == 0 {
            self.other(n);
        } else {
            _ = fs::remove_file(self.path.join(format!("none{n}")));
        }
    }

    /// Writes the next generation of a file.
    fn put(&mut self, file: usize) {
        let mut bytes = self.kept[file].bytes.clone();
        let generation = self.generation.to_ne_bytes();
        bytes[8..16].copy_from_slice(&generation);
        bytes[16..24].copy_from_slice(&generation);
        // Each file gets a cluster of its own, unless the directory is about the domains of one cluster.
        if !matches!(self.kind, Kind::Instances | Kind::Texts(_) | Kind::Labels | Kind::Nested) {
            bytes[36..40].fill(0);
        }
        if self.kind == Kind::Damaged {
            self.damage(&mut bytes);
        }
        let new = self.path.join(".new");
        fs::write(&new, &bytes).unwrap();
        if self.kind == Kind::Huge && file % 2 == 0 {
            File::options().write(true).open(&new).unwrap().set_len(1 << 40).unwrap();
        }
        let Kept { uid, name, .. } = &self.kept[file];
        own(&new, *uid);
        fs::rename(&new, self.path.join(name)).unwrap();
    }

    /// Changes words of the table of contents or of the records.
    fn damage(&mut self, bytes: &mut [u8]) {
        for _ in 0..1 + self.below(4) {
            let end = if self.below(2) == 0 { 40 + 6 * 16 } else { bytes.len() - 8 };
            let at = 24 + self.below(end - 24) / 4 * 4;
            let word = [0, 1, 40, i32::MAX, -1, self.random as i32][self.below(6)];
            bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
    }
}

fn own(path: &Path, uid: u32) {
    chown(path, Some(uid), Some(uid)).unwrap();
}
