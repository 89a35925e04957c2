//! The directory that registries share.

use std::collections::BTreeSet;
use std::fs::{self, DirEntry, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::{HashMap, HashSet};
use pmapi::Item;

use crate::format::{Bytes, HEADER_LEN, Header, MAGIC};
use crate::ids;
use crate::reader::{self, process_exists};

/// The cluster for a file: the one that it had, or the one that its name leads to, away from those
/// of other files.
pub(super) fn choose_cluster(directory: &Path, name: &str, before: Option<u16>) -> u16 {
    let used = clusters(directory, name);
    if let Some(before) = before.filter(|cluster| *cluster != 0 && !used.contains(cluster)) {
        return before;
    }
    let indoms_clash = |cluster| used.contains(&cluster) || used.contains(&(cluster + LAST + 1));
    let count = u64::from(LAST - FIRST) + 1;
    FIRST + ids::probe(ids::hash(name), count, |number| indoms_clash(FIRST + number as u16)) as u16
}

/// Clusters below this one are left to the files that ask for none: they get the lowest, whoever asks
/// for it, and then one of two metrics with an identifier is hidden.
const FIRST: u16 = 256;
/// Clusters above this one share the numbers of their instance domains with those below: the agent
/// puts the cluster beside 11 bits, and the 22 bits that there are lose the highest of it.
const LAST: u16 = (1 << 11) - 1;

/// Clusters that the other files of the directory ask for.
fn clusters(directory: &Path, own: &str) -> HashSet<u16> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let others = entries.filter(|e| e.file_name() != own && !e.file_name().as_encoded_bytes().starts_with(b"."));
    others.filter_map(|e| cluster(&e)).collect()
}

/// There can be thousands of files, so that each costs as few system calls as can be.
fn cluster(entry: &DirEntry) -> Option<u16> {
    let (ty, path) = (entry.file_type().ok()?, entry.path());
    let regular = ty.is_file() || ty.is_symlink() && path.is_file();
    if !regular {
        return None;
    }
    let mut bytes = [0; HEADER_LEN];
    File::open(path).ok()?.read_exact_at(&mut bytes, 0).ok()?;
    let header = Header::read(Bytes::new(&bytes)).filter(|h| h.magic == MAGIC)?;
    let cluster = u16::try_from(header.cluster).ok().filter(|cluster| *cluster != 0)?;
    header.owner().is_none_or(process_exists).then_some(cluster)
}

/// What another process has left in the file.
#[derive(Debug, Default)]
pub(super) struct Before {
    /// That process, if the file depends on it and it lives.
    pub owner: Option<i32>,
    pub cluster: Option<u16>,
    pub items: HashMap<Box<str>, u16>,
}

impl Before {
    pub(super) fn read(path: &Path) -> Before {
        let Ok(file) = reader::File::open(path) else { return Before::default() };
        let item = |m: &reader::Metric| {
            let name = str::from_utf8(file.name(m)).ok()?;
            Some((name.into(), u16::try_from(m.item).ok().filter(|item| *item <= Item::MAX_ITEM)?))
        };
        Before {
            owner: file.header().owner().filter(|process| process_exists(*process)),
            cluster: u16::try_from(file.header().cluster).ok(),
            items: file.metrics().iter().filter_map(item).collect(),
        }
    }
}

/// A file that is one registry's alone in this process, while this lives: two would take its name away
/// from each other with every metric that is added. What a parent has claimed is free for its fork.
#[derive(Debug)]
pub(super) struct Claim(u32, PathBuf);

impl Claim {
    /// Nothing when another registry has the file.
    pub(super) fn new(path: &Path) -> Option<Claim> {
        let (process, path) = (std::process::id(), path.to_owned());
        claimed().insert((process, path.clone())).then(|| Claim(process, path))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        claimed().remove(&(self.0, std::mem::take(&mut self.1)));
    }
}

fn claimed() -> MutexGuard<'static, BTreeSet<(u32, PathBuf)>> {
    static CLAIMED: Mutex<BTreeSet<(u32, PathBuf)>> = Mutex::new(BTreeSet::new());
    CLAIMED.lock().unwrap_or_else(PoisonError::into_inner)
}
