//! A file of the directory.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hashbrown::HashSet;
use pmapi::label::LabelLevel;

use super::group::{class_of_cluster, class_of_indom};
use super::names::{FullName, head};
use super::tables::exported_serial;
use crate::format::{Flags, ValueRecord, Version};
use crate::reader::{self, File, Problem, ReadError};

/// A file and what was in it.
#[derive(Debug)]
pub(super) struct Source {
    pub name: OsString,
    pub identity: Identity,
    pub file: File,
    /// The cluster that its metrics have.
    pub cluster: u16,
    /// A number for what it is, with this cluster, that no other has ever had; 0 when it has none yet.
    pub stamp: u64,
    /// The first components of its names.
    heads: Vec<Box<str>>,
    /// The numbers of instance domains that may be those of other clusters.
    far: Vec<u32>,
    path: PathBuf,
    handle: Option<fs::File>,
    /// The values that were read since the request began.
    fresh: Fresh,
    /// Whether something that was in the file could not be read any more.
    broken: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fresh {
    Nothing,
    Metric(usize),
    All,
}

/// What tells one file from another of the same name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    len: u64,
}

impl Identity {
    /// That of the file with this name now.
    pub(super) fn of(path: &Path) -> Option<Identity> {
        fs::metadata(path).ok().map(|metadata| Identity::new(&metadata))
    }

    fn new(metadata: &fs::Metadata) -> Identity {
        Identity { device: metadata.dev(), inode: metadata.ino(), len: metadata.len() }
    }
}

/// Up to this many values are read together when one of them is asked for.
const FEW_VALUES: u32 = 4096;

impl Source {
    /// Opens and reads a file. `buffer` is for the time being.
    pub(super) fn load(path: &Path, name: &OsStr, buffer: &mut Vec<u8>) -> Result<Source, ReadError> {
        let handle = reader::open(path)?;
        let metadata = handle.metadata()?;
        let file = File::read_lean(&handle, &metadata, buffer)?;
        if let Some(owner) = file.header().owner().filter(|owner| !reader::process_exists(*owner)) {
            return Err(ReadError::Owner(owner));
        }
        Ok(Source {
            name: name.to_owned(),
            identity: Identity::new(&metadata),
            heads: heads(name, &file),
            far: far_indoms(&file),
            file,
            cluster: 0,
            stamp: 0,
            path: path.to_owned(),
            handle: Some(handle),
            fresh: Fresh::Nothing,
            broken: false,
        })
    }

    pub(super) fn set_cluster(&mut self, cluster: u16) {
        if self.cluster != cluster {
            (self.cluster, self.stamp) = (cluster, 0);
        }
    }

    /// The classes of its cluster and its instance domains.
    pub(super) fn classes(&self) -> impl Iterator<Item = u16> {
        let far = self.far.iter().map(|serial| class_of_indom(exported_serial(self.cluster, *serial)));
        std::iter::once(class_of_cluster(self.cluster)).chain(far)
    }

    /// The first components of its names.
    pub(super) fn heads(&self) -> impl Iterator<Item = &str> {
        self.heads.iter().map(|head| &**head)
    }

    /// Logs what is left out.
    pub(super) fn report(&self, prefix: &str) {
        let (file, problems) = (self.name.display(), self.file.problems());
        let mut names = FullName::new(prefix, self).ok();
        for problem in problems.first() {
            let Problem::Item { index, item } = *problem else {
                tracing::error!("{prefix}: {file}: {problem}");
                continue;
            };
            match names.as_mut().and_then(|names| names.of(self.file.record_name(index)).ok()) {
                // The C agent's words, which PCP's tests look for.
                Some(name) => {
                    let kind = if self.file.version() == Version::V1 { "" } else { "2" };
                    tracing::warn!("MMV: verify_metric_item{kind}: invalid item {item} ({name}) in {file}, ignored");
                }
                None => tracing::error!("{prefix}: {file}: {problem}"),
            }
        }
        let more = problems.count().saturating_sub(problems.first().len() as u64);
        if more > 0 {
            tracing::error!("{prefix}: {file}: {more} problems more");
        }
    }

    pub(super) fn keep_open(&mut self, open: bool) {
        if !open {
            self.handle = None;
        }
    }

    /// A request begins, and values may have changed: whether the file is still the one that was read,
    /// and may be shown. `buffer` is for the time being.
    pub(super) fn begin(&mut self, buffer: &mut Vec<u8>) -> bool {
        let front = match &self.handle {
            Some(handle) => self.file.reread_front(handle, buffer),
            None => self.reopen().and_then(|handle| self.file.reread_front(&handle, buffer)),
        };
        self.fresh = if front.as_ref().is_ok_and(|(_, all)| *all) { Fresh::All } else { Fresh::Nothing };
        front.is_ok_and(|(generations, _)| self.shows(generations))
    }

    /// As [`begin`](Source::begin), for a file that is found again in the directory.
    pub(super) fn is_valid(&self) -> bool {
        let generations = self.with_handle(|handle| reader::generations(handle).map_err(io::Error::other));
        generations.is_ok_and(|generations| self.shows(generations))
    }

    fn shows(&self, (g1, g2): (u64, u64)) -> bool {
        let generation = self.file.header().g1;
        g1 == generation && g2 == generation && self.file.header().owner().is_none_or(reader::process_exists)
    }

    /// Whether something could not be read since it was asked last.
    pub(super) fn take_broken(&mut self) -> bool {
        std::mem::take(&mut self.broken)
    }

    /// Does something with the open file.
    fn with_handle<T>(&self, work: impl FnOnce(&fs::File) -> io::Result<T>) -> io::Result<T> {
        match &self.handle {
            Some(handle) => work(handle),
            None => work(&self.reopen()?),
        }
    }

    fn reopen(&self) -> io::Result<fs::File> {
        let handle = reader::open(&self.path)?;
        if Identity::new(&handle.metadata()?) == self.identity {
            Ok(handle)
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    /// A request could not read what it expected: the next one looks whether it is another file.
    pub(super) fn set_broken(&mut self) {
        self.broken = true;
    }

    /// Reads a metric's values as they are now, unless this request has done that already.
    #[inline]
    pub(super) fn reread(&mut self, metric: usize) -> io::Result<()> {
        let is_fresh = self.fresh == Fresh::All || self.fresh == Fresh::Metric(metric);
        if is_fresh { Ok(()) } else { self.reread_metric(metric) }
    }

    fn reread_metric(&mut self, metric: usize) -> io::Result<()> {
        let all = self.file.value_count();
        let values = self.file.metrics().get(metric).map_or(&[][..], reader::Metric::values);
        let (Some(first), Some(last)) = (values.iter().map(|v| v.index).min(), values.iter().map(|v| v.index).max())
        else {
            return Ok(());
        };
        let (first, count) = if all <= FEW_VALUES { (0, all) } else { (first, last - first + 1) };
        match &self.handle {
            Some(handle) => self.file.reread_values(handle, first, count)?,
            None => {
                let handle = self.reopen()?;
                self.file.reread_values(&handle, first, count)?;
            }
        }
        self.fresh = if count == all { Fresh::All } else { Fresh::Metric(metric) };
        Ok(())
    }

    /// Reads the string of a value as it is now.
    pub(super) fn reread_string(&self, value: &ValueRecord, buffer: &mut Vec<u8>) -> io::Result<()> {
        let at = u64::try_from(value.extra).map_err(io::Error::other)?;
        self.with_handle(|handle| self.file.reread_string(handle, at, buffer))
    }
}

fn heads(name: &OsStr, file: &File) -> Vec<Box<str>> {
    if !file.header().flags.contains(Flags::NO_PREFIX) {
        return name.to_str().map(|name| head(name).into()).into_iter().collect();
    }
    let names = file.metrics().iter().filter_map(|metric| str::from_utf8(file.name(metric)).ok());
    let heads: HashSet<&str> = names.map(head).collect();
    heads.into_iter().map(Box::from).collect()
}

fn far_indoms(file: &File) -> Vec<u32> {
    let of_labels = LabelLevel::InDom.code() | LabelLevel::Instances.code();
    let labels = file.labels().iter().filter(|label| label.flags & of_labels != 0).map(|label| label.identity);
    let metrics = file.metrics().iter().filter_map(|metric| metric.indom);
    let all = file.indoms().iter().map(|indom| indom.serial).chain(metrics).chain(labels);
    let mut far: Vec<u32> = all.filter(|serial| *serial >= NEAR).collect();
    far.sort_unstable();
    far.dedup();
    far
}

/// Lower numbers of instance domains are in the file's own class.
const NEAR: u32 = 1 << 11;
