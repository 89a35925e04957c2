//! Files that other processes have left in the directory, and files of other registries of this process.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use pmapi::Item;

use crate::directory::{Directory, digits, has_ended, header, temporary_start};
use crate::format::{
    Bytes, HEADER_LEN, Header, MAX_METRICS, MetricRecord, STRING_LEN, Section, TOC_LEN, Toc, Version, process_exists,
};
use crate::ids;
use crate::names::truncated;
use crate::os::forks::Process;

/// Returns the cluster for a file: its previous one, or one derived from its name that no other file uses.
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
    let count = u64::from(LAST - FIRST) + 1;
    let number = ids::probe(ids::hash(name), count, |number| {
        let cluster = FIRST + number as u16;
        // Instance domains of the second one would have the same numbers.
        used.contains(&cluster) || used.contains(&(cluster + LAST + 1))
    });
    FIRST + number as u16
}

/// Lower clusters are left to files that request none. The agent gives those the lowest free cluster, even one that
/// another file requests; of two metrics with the same identifier, one is hidden.
const FIRST: u16 = 256;
/// Clusters above share the numbers of their instance domains with those below. The agent puts the cluster beside the
/// 11 bits of a serial number. The highest bit of the cluster does not fit into the 22 bits of the result.
const LAST: u16 = (1 << 11) - 1;

/// The contents of a file that another process has left.
#[derive(Debug, Default)]
pub(super) struct Before {
    /// The process that wrote the file, if the file depends on it and it still runs.
    pub owner: Option<i32>,
    pub cluster: Option<u16>,
    pub items: HashMap<Box<str>, u16>,
}

impl Before {
    /// Reads a file, at most as much of it as a registry would have written. The items of a file are ignored unless
    /// root or this user owns it: another user's file could mislead this process.
    pub(super) fn read(file: &File) -> Before {
        let trusted = file.metadata().is_ok_and(|file| [0, geteuid().as_raw()].contains(&file.uid()));
        let Some(header) = header(file) else { return Before::default() };
        Before {
            owner: header.owner().filter(|process| process_exists(*process)),
            cluster: u16::try_from(header.cluster).ok().filter(|cluster| trusted && *cluster <= Item::MAX_CLUSTER),
            items: if trusted { items(file, &header).unwrap_or_default() } else { HashMap::default() },
        }
    }
}

/// Returns the metrics' items by name.
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

/// Returns the name of this process's file, for a program that runs in several processes.
pub(super) fn name_of_process(name: &str) -> String {
    let ending = format!("{OF_PROCESS}{}", Process::own().number());
    format!("{}{ending}", truncated(name, 255 - ending.len()).trim_end_matches('.'))
}

/// Separator of a registry's name and the number of its process, in the name of a file.
const OF_PROCESS: &str = ".p";

/// Removes leftovers of ended processes of this user: temporary files of this registry, and files of other processes that
/// have the name with a process.
pub(super) fn remove_leftovers(directory: &Directory, path: &Path, name: &str) {
    let start = temporary_start(name);
    let base = name.rsplit_once(OF_PROCESS).filter(|(_, number)| digits::<u32>(number).is_some()).map(|(base, _)| base);
    for left in candidates(directory, path) {
        let temporary = left.strip_prefix(&*start).and_then(|rest| rest.rsplit_once('.'));
        let is_temporary =
            temporary.is_some_and(|(process, count)| digits::<u32>(count).is_some() && has_ended(process));
        let of_process = || {
            let process = digits(left.strip_prefix(base?)?.strip_prefix(OF_PROCESS)?)?;
            let owner = header(&directory.read(&left).ok()?)?.owner();
            owner.filter(|owner| *owner == process && !process_exists(process))
        };
        if (is_temporary || of_process().is_some()) && directory.is_own(&left) {
            directory.remove(&left);
        }
    }
}

/// Returns names that may be leftovers. The directory is read at most once in ten seconds, for the sake of processes
/// with many registries.
fn candidates(directory: &Directory, path: &Path) -> Vec<String> {
    type Seen = Option<(Process, PathBuf, Instant, Vec<String>)>;
    static SEEN: Mutex<Seen> = Mutex::new(None);
    const FRESH: Duration = Duration::from_secs(10);
    // In a forked child, a lock may stay locked.
    let mut seen = SEEN.try_lock().ok();
    let process = Process::own();
    let is_fresh = |(by, of, at, _): &&(Process, PathBuf, Instant, Vec<String>)| {
        *by == process && of == path && at.elapsed() < FRESH
    };
    let fresh = seen.as_ref().and_then(|seen| seen.as_ref()).filter(is_fresh);
    fresh.map(|(_, _, _, names)| names.clone()).unwrap_or_else(|| {
        let names = directory.names(|name| {
            let (_, last) = name.rsplit_once('.').unwrap_or_default();
            digits::<u64>(last.strip_prefix('p').unwrap_or(last)).is_some()
        });
        if let Some(seen) = &mut seen {
            **seen = Some((process, path.to_owned(), Instant::now(), names.clone()));
        }
        names
    })
}

/// Reserves a file for one registry of this process. Two registries with the same file would replace each other's file
/// at each registration. The child of a fork can claim the files of its parent.
#[derive(Debug)]
pub(super) struct Claim(Process, PathBuf);

impl Claim {
    /// Claims a file. Returns `None` if another registry of the process has it.
    pub(super) fn new(path: &Path) -> Option<Claim> {
        let (process, path) = (Process::own(), path.to_owned());
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

/// Locks the set of claims. Returns `None` in a forked child if a thread of the parent held the lock at the fork: it is
/// never released there.
fn claimed() -> Option<MutexGuard<'static, BTreeSet<(Process, PathBuf)>>> {
    static CLAIMED: Mutex<BTreeSet<(Process, PathBuf)>> = Mutex::new(BTreeSet::new());
    for _ in 0..1000 {
        match CLAIMED.try_lock() {
            Ok(claimed) => return Some(claimed),
            Err(TryLockError::Poisoned(claimed)) => return Some(claimed.into_inner()),
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_micros(50)),
        }
    }
    None
}
