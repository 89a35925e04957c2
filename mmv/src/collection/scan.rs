//! Which files there are.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use hashbrown::{HashMap, HashSet};
use pmapi::Item;

use super::Collection;
use super::source::{Identity, Source};
use crate::reader::ReadError;

/// A directory as it was when it was looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    state: State,
    /// Changed so shortly before that another change could show the same time.
    racy: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    Unknown,
    /// Why it cannot be looked at.
    Error(std::io::ErrorKind),
    /// Device, inode and time of change.
    There(u64, u64, i64, i64),
}

/// Coarser than any clock that file systems take their times from.
const COARSE: Duration = Duration::from_millis(50);

impl Directory {
    pub(super) fn look(path: &Path) -> Directory {
        match fs::metadata(path) {
            Err(e) => Directory { state: State::Error(e.kind()), racy: false },
            Ok(m) => {
                // A change that seems to come is as recent as one can be.
                let age = m.modified().ok().and_then(|changed| SystemTime::now().duration_since(changed).ok());
                let state = State::There(m.dev(), m.ino(), m.mtime(), m.mtime_nsec());
                Directory { state, racy: age.is_none_or(|age| age < COARSE) }
            }
        }
    }

    /// Whether it may have changed since.
    pub(super) fn may_differ(&self, now: &Directory) -> bool {
        self.racy || self.state != now.state
    }
}

impl Collection {
    /// Reads the files that are new, keeps those that are the same unless `all` are to be read, and
    /// says whether anything has changed.
    pub(super) fn scan(&mut self, all: bool) -> bool {
        let mut known: HashMap<OsString, Source> =
            self.groups.take_sources().into_iter().map(|s| (s.name.clone(), s)).collect();
        let before = known.len();
        let mut changed = all;
        (self.reload, self.pending) = (0, false);
        let skipped = std::mem::take(&mut self.skipped);
        let (mut sources, mut buffer) = (Vec::new(), Vec::new());
        let mut handles = self.open;
        for name in list(&self.directory) {
            let path = self.directory.join(&name);
            let same = |source: &Source| Identity::of(&path).is_some_and(|now| now == source.identity);
            let kept = known.remove(&name).filter(|source| !all && same(source) && source.is_valid());
            let is_new = kept.is_none();
            let source = match kept {
                Some(source) => Ok(source),
                None => load(&path, &name, &mut buffer),
            };
            match source {
                Ok(mut source) => {
                    changed |= is_new;
                    if is_new {
                        source.report(&self.prefix);
                    }
                    source.keep_open(handles > 0);
                    handles = handles.saturating_sub(1);
                    sources.push(source);
                }
                Err(e) => {
                    let identity = Identity::of(&path);
                    if skipped.get(&name) != Some(&identity) {
                        report(&self.prefix, &name, &e);
                    }
                    self.pending |= e.is_temporary();
                    self.skipped.insert(name, identity);
                }
            }
        }
        changed |= before != sources.len();
        assign_clusters(&mut sources);
        self.groups.put_sources(sources);
        changed
    }
}

/// Reads a file. When it is no longer valid once it is open, another one may have taken its place
/// meanwhile: then that one.
fn load(path: &Path, name: &OsStr, buffer: &mut Vec<u8>) -> Result<Source, ReadError> {
    let mut failed = None;
    for _ in 0..REPLACED {
        match Source::load(path, name, buffer) {
            Err(e) if e.is_temporary() => {
                let now = Identity::of(path);
                if now == failed {
                    return Err(e);
                }
                failed = now;
            }
            loaded => return loaded,
        }
    }
    Source::load(path, name, buffer)
}

/// How often in a row a file may be replaced while it is read.
const REPLACED: usize = 4;

/// Logs that a file is skipped: loudly if it is one of ours.
fn report(prefix: &str, name: &OsString, e: &ReadError) {
    let name = name.display();
    match e {
        ReadError::TooShort { .. } | ReadError::Magic(_) | ReadError::InFlux { .. } => {
            tracing::debug!("{prefix}: {name}: {e}");
        }
        _ => tracing::error!("{prefix}: {name}: {e}"),
    }
}

/// The names of the regular files, but for those that begin with a dot, in their order.
fn list(directory: &Path) -> Vec<OsString> {
    let is_file = |entry: &fs::DirEntry| match entry.file_type() {
        Ok(ty) if ty.is_symlink() => fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_file()),
        ty => ty.is_ok_and(|ty| ty.is_file()),
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let files = entries.filter(|entry| !entry.file_name().as_bytes().starts_with(b".") && is_file(entry));
    let mut names: Vec<OsString> = files.map(|entry| entry.file_name()).collect();
    names.sort_unstable();
    names
}

/// A file that asks for a cluster gets it, whoever has it too. The others get the lowest that no
/// file before them has.
fn assign_clusters(sources: &mut Vec<Source>) {
    let mut used = HashSet::new();
    let mut clusters = (1..=Item::MAX_CLUSTER).peekable();
    sources.retain_mut(|source| {
        let wanted = u16::try_from(source.file.header().cluster).unwrap_or_default();
        let free = || {
            while clusters.next_if(|cluster| used.contains(cluster)).is_some() {}
            clusters.peek().copied()
        };
        let Some(cluster) = Some(wanted).filter(|c| *c != 0).or_else(free) else {
            tracing::error!("{}: no cluster is free", source.name.display());
            return false;
        };
        used.insert(cluster);
        source.set_cluster(cluster);
        true
    });
}
