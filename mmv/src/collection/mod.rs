//! All files of a directory as one name space: what PCP's agent pmdammv(1) exports.
//!
//! A [`Collection`] is refreshed before every request, and then asked. It follows the rules of the C
//! agent for names, clusters and instance domains, so that a metric has the same identifiers under
//! both; where C goes wrong with files that are not valid, or that contradict each other, the part
//! concerned is left out and logged.

mod fetch;
mod labels;
mod names;
mod scan;
mod source;
mod tables;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use hashbrown::HashMap;
use pmapi::{Error, Inst, Item, Semantics, Serial, Units};

pub use labels::Labelled;

pub use crate::reader::Help;

use crate::format::ValueType;
use scan::Directory;
use source::{Identity, Source};
use tables::{Entry, Tables};

/// The files of a directory.
#[derive(Debug)]
pub struct Collection {
    prefix: String,
    directory: PathBuf,
    /// In the order of their names.
    sources: Vec<Source>,
    tables: Tables,
    seen: Directory,
    /// How many files stay open.
    open: usize,
    /// What was stored in the control metric.
    reload: i32,
    /// Files that are skipped.
    skipped: HashMap<OsString, Identity>,
    /// Whether one of them is being written.
    pending: bool,
    buffer: Vec<u8>,
}

/// What a metric is, without the agent's domain (`pmDesc`). An elapsed time is a counter of
/// microseconds, whatever the file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetricDesc {
    /// Its identifier.
    pub item: Item,
    /// Its type in the file; [`ValueType::exported`] is the one for clients.
    pub ty: ValueType,
    /// Its instance domain, if it has one.
    pub indom: Option<Serial>,
    /// Its semantics.
    pub semantics: Semantics,
    /// Dimension and scale.
    pub units: Units,
}

impl Collection {
    /// The files of a directory; the names of their metrics begin with `prefix` (`mmv`; also
    /// `pmproxy`). Nothing is read before the first [`refresh`](Collection::refresh).
    pub fn new(prefix: &str, directory: impl Into<PathBuf>) -> Collection {
        Collection {
            prefix: prefix.to_owned(),
            directory: directory.into(),
            sources: Vec::new(),
            tables: Tables::default(),
            seen: Directory::default(),
            open: Self::OPEN_FILES,
            reload: 0,
            skipped: HashMap::new(),
            pending: false,
            buffer: Vec::new(),
        }
    }

    /// How many files stay open unless [`keep_open`](Collection::keep_open) says otherwise.
    pub const OPEN_FILES: usize = 256;

    /// How many files stay open from now on; the others are opened whenever they are looked at.
    pub fn keep_open(&mut self, files: usize) {
        self.open = files;
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Sees what has changed, and says whether names, instances or labels may have.
    ///
    /// Files are read again when that was asked for, one of them was being written, a generation
    /// has changed, a process is gone or the directory has changed.
    pub fn refresh(&mut self) -> bool {
        let buffer = &mut self.buffer;
        let valid = self.sources.iter_mut().map(|source| source.begin(buffer)).filter(|valid| *valid).count();
        let forced = self.reload != 0;
        let broken = self.sources.iter_mut().any(Source::take_broken);
        let directory = Directory::look(&self.directory);
        let same = !forced && !broken && !self.pending && !self.seen.may_differ(&directory);
        let same = same && valid == self.sources.len();
        if same {
            return false;
        }
        let changed = self.scan(forced);
        self.seen = directory;
        if changed {
            self.tables = Tables::build(&self.prefix, &self.sources);
        }
        changed
    }

    /// What the control metric `reload` shows: also 1 while a file is being written.
    pub fn reload(&self) -> i32 {
        if self.reload == 0 { self.pending.into() } else { self.reload }
    }

    /// What a store to the control metric `reload` does: anything but 0 has all files read again.
    pub fn set_reload(&mut self, value: i32) {
        self.reload = value;
    }

    /// How many files are exported.
    pub fn file_count(&self) -> usize {
        self.sources.len()
    }

    /// How many metrics are exported.
    pub fn metric_count(&self) -> usize {
        self.tables.metrics.len()
    }

    /// The metrics, in the order of the files.
    pub fn metrics(&self) -> impl Iterator<Item = (&str, MetricDesc)> {
        self.tables.metrics.iter().map(|entry| (&*entry.name, entry.desc))
    }

    /// The metric of a name.
    pub fn item(&self, name: &str) -> Result<Item, Error> {
        self.tables.names.item(name).ok_or(Error::NAME)
    }

    /// The name of a metric.
    pub fn name(&self, item: Item) -> Result<&str, Error> {
        Ok(&self.entry(item)?.name)
    }

    /// What a metric is.
    pub fn desc(&self, item: Item) -> Result<MetricDesc, Error> {
        Ok(self.entry(item)?.desc)
    }

    /// The instance domains.
    pub fn indoms(&self) -> impl Iterator<Item = Serial> {
        self.tables.indoms.keys().copied()
    }

    /// The instances of a domain, in the order of the files.
    pub fn instances(&self, indom: Serial) -> Result<impl ExactSizeIterator<Item = (Inst, &[u8])>, Error> {
        let indom = self.tables.indoms.get(&indom).ok_or(Error::INDOM)?;
        Ok(indom
            .instances
            .iter()
            .map(|i| (i.id, self.source(i.source).map_or(&[][..], |s| s.file.instance_name(&i.name)))))
    }

    /// A metric's help. As under PCP's agent there is no such metric when it has no type.
    pub fn help(&self, item: Item, which: Help) -> Result<&[u8], Error> {
        let entry = self.entry(item).ok().filter(|entry| entry.desc.ty != ValueType::NoSupport).ok_or(Error::PMID)?;
        let source = self.source(entry.source).ok_or(Error::TEXT)?;
        let metric = source.file.metrics().get(entry.metric).ok_or(Error::TEXT)?;
        source.file.help(metric, which).ok_or(Error::TEXT)
    }

    /// An instance domain's help: that of the first file that has one.
    pub fn indom_help(&self, indom: Serial, which: Help) -> Result<&[u8], Error> {
        let entry = self.tables.indoms.get(&indom).ok_or(Error::INDOM)?;
        let of = |&(source, index): &(usize, usize)| {
            let file = &self.source(source)?.file;
            file.indom_help(file.indoms().get(index)?, which)
        };
        entry.parts.iter().find_map(of).ok_or(Error::TEXT)
    }

    fn entry(&self, item: Item) -> Result<&Entry, Error> {
        self.tables.metric(item).ok_or(Error::PMID)
    }

    fn source(&self, index: usize) -> Option<&Source> {
        self.sources.get(index)
    }
}
