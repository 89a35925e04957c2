//! What other processes have left in the directory, and what other registries of this process have there.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use hashbrown::{HashMap, HashSet};
use nix::unistd::geteuid;
use pmapi::Item;

use super::directory::{Directory, Process, digits, header, temporary_start};
use crate::format::{Bytes, HEADER_LEN, Header, MAX_METRICS, MetricRecord, STRING_LEN, Section, TOC_LEN, Toc, Version};
use crate::ids;
use crate::map::fork;
use crate::names::truncated;
use crate::reader::process_exists;

/// The cluster for a file: the one that it had, or the one that its name leads to, away from those
/// of other files.
pub(super) fn choose_cluster(directory: &Directory, name: &str, before: Option<u16>) -> u16 {
    let headers = directory.headers(name);
    let cluster = |header: &Header| {
        let cluster = u16::try_from(header.cluster).ok().filter(|cluster| *cluster != 0)?;
        header.owner().is_none_or(process_exists).then_some(cluster)
    };
    let used: HashSet<u16> = headers.iter().filter_map(cluster).collect();
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

/// What another process has left in the file.
#[derive(Debug, Default)]
pub(super) struct Before {
    /// Process that wrote the file, if the file is valid only while that process lives, and it does.
    pub owner: Option<i32>,
    pub cluster: Option<u16>,
    pub items: HashMap<Box<str>, u16>,
}

impl Before {
    /// What a file says, of which no more is read than a registry would have written. Nothing if it is neither root's
    /// nor this user's, who could be misled by it.
    pub(super) fn read(file: &File) -> Before {
        let trusted = file.metadata().is_ok_and(|file| [0, geteuid().as_raw()].contains(&file.uid()));
        let Some(header) = header(file) else { return Before::default() };
        Before {
            owner: header.owner().filter(|process| process_exists(*process)),
            cluster: u16::try_from(header.cluster).ok(),
            items: if trusted { items(file, &header).unwrap_or_default() } else { HashMap::new() },
        }
    }
}

/// The metrics' items by their names.
fn items(file: &File, header: &Header) -> Option<HashMap<Box<str>, u16>> {
    let version = Version::from_code(header.version)?;
    let mut head = [0; HEADER_LEN + 6 * TOC_LEN];
    file.read_exact_at(&mut head, 0).ok()?;
    let tocs = (0..6.min(usize::try_from(header.tocs).ok()?)).filter_map(|i| Toc::read(Bytes::new(&head), i));
    let metrics = tocs.into_iter().find(|toc| toc.section == Section::Metrics as u32)?;
    let count = usize::try_from(metrics.count).ok().filter(|count| *count <= MAX_METRICS)?;
    let mut records = vec![0; count * version.metric_len()];
    file.read_exact_at(&mut records, metrics.offset).ok()?;
    let records = Bytes::new(&records);
    let item = |index: usize| {
        let metric = MetricRecord::read(records, (index * version.metric_len()) as u64, version)?;
        let item = u16::try_from(metric.item).ok().filter(|item| *item <= Item::MAX_ITEM)?;
        let mut string = [0; STRING_LEN];
        let name = if version == Version::V1 {
            metric.name.text(records)?
        } else {
            file.read_exact_at(&mut string, metric.name.at).ok()?;
            Bytes::new(&string).string(0)?
        };
        Some((str::from_utf8(name).ok()?.into(), item))
    };
    Some((0..count).filter_map(item).collect())
}

/// The name of the file of a child that was forked, beside its parent's. Metrics have it as a prefix.
pub(super) fn name_of_child(name: &str, process: u32) -> String {
    let ending = format!(".p{process}");
    format!("{}{ending}", truncated(name, 255 - ending.len()).trim_end_matches('.'))
}

/// Removes the temporary files that processes of this user have left which wrote the file of this name and ended
/// meanwhile, and the files of their children.
pub(super) fn remove_leftovers(directory: &Directory, path: &Path, name: &str) {
    let start = temporary_start(name);
    let child = name_of_child(name, 0);
    let child = child.trim_end_matches('0');
    for left in candidates(directory, path) {
        let temporary = || {
            let (process, count) = left.strip_prefix(&*start)?.rsplit_once('.')?;
            digits::<u32>(count)?;
            Process::parse(process).filter(|process| process.is_gone())
        };
        let child = || {
            let process = digits(left.strip_prefix(child)?).filter(|process| !process_exists(*process))?;
            let owner = header(&directory.read(&left).ok()?)?.owner();
            owner.filter(|owner| *owner == process)
        };
        if (temporary().is_some() || child().is_some()) && directory.is_own(&left) {
            directory.remove(&left);
        }
    }
}

/// Names that may be those of leftovers. A process that starts a thousand registries looks for them once.
fn candidates(directory: &Directory, path: &Path) -> Vec<String> {
    type Seen = Option<(PathBuf, Instant, Vec<String>)>;
    static SEEN: Mutex<Seen> = Mutex::new(None);
    const FRESH: Duration = Duration::from_secs(10);
    // Another thread may have held it when this process was forked.
    let mut seen = SEEN.try_lock().ok();
    let fresh = seen.as_ref().and_then(|seen| seen.as_ref()).filter(|(of, at, _)| of == path && at.elapsed() < FRESH);
    fresh.map(|(_, _, names)| names.clone()).unwrap_or_else(|| {
        let ends_in_number = |name: &str| {
            let (_, last) = name.rsplit_once('.').unwrap_or_default();
            digits::<u64>(last.strip_prefix('p').unwrap_or(last)).is_some()
        };
        let names = directory.names(ends_in_number);
        if let Some(seen) = &mut seen {
            **seen = Some((path.to_owned(), Instant::now(), names.clone()));
        }
        names
    })
}

/// A file that is one registry's alone in this process, while this lives: two would take its name away
/// from each other with every metric that is added. What a parent has claimed is free for its fork.
#[derive(Debug)]
pub(super) struct Claim(u32, PathBuf);

impl Claim {
    /// Nothing when another registry has the file.
    pub(super) fn new(path: &Path) -> Option<Claim> {
        let (process, path) = (std::process::id(), path.to_owned());
        claimed().is_none_or(|mut claimed| claimed.insert((process, path.clone()))).then(|| Claim(process, path))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(mut claimed) = claimed() {
            claimed.remove(&(self.0, std::mem::take(&mut self.1)));
        }
    }
}

/// All claims, or `None` in a forked child if a thread of the parent held the lock at the fork: it is never released there.
fn claimed() -> Option<MutexGuard<'static, BTreeSet<(u32, PathBuf)>>> {
    static CLAIMED: Mutex<BTreeSet<(u32, PathBuf)>> = Mutex::new(BTreeSet::new());
    if fork::count() == 0 {
        return Some(CLAIMED.lock().unwrap_or_else(PoisonError::into_inner));
    }
    for _ in 0..1000 {
        match CLAIMED.try_lock() {
            Ok(claimed) => return Some(claimed),
            Err(TryLockError::Poisoned(claimed)) => return Some(claimed.into_inner()),
            Err(TryLockError::WouldBlock) => thread::yield_now(),
        }
    }
    None
}
