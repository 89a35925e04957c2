//! An exported file of the directory.

use std::cell::{Cell, OnceCell};
use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;
use std::{fmt, fs, io, str};

use hashbrown::HashSet;
use pmapi::LabelLevel;

use super::limits::Cost;
use super::names::{Front, FullNames, head};
use super::numbers::{class_of_cluster, class_of_indom, exported_serial};
use super::opening::Opening;
use super::texts::Texts;
use crate::format::{Flags, STRING_LEN, VALUE_LEN, ValueRecord, ValueType, Version};
use crate::reader::{self, Directory, File, Identity, Problem, Process, ReadError, Slot, Stamp};

/// Size of a file's group when its tables were built: the group's version and the number of its records.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct GroupSize {
    pub records: u64,
    pub version: u64,
}

/// A file and its parsed contents. Boxed, because each change of the directory moves all of them several times.
pub(super) type Source = Box<SourceFile>;

/// A file and its parsed contents.
#[derive(Debug)]
pub(super) struct SourceFile {
    pub name: OsString,
    pub identity: Identity,
    /// Attributes of the file when it was read.
    pub seen: Stamp,
    /// The user who is charged for the file.
    pub uid: u32,
    pub cost: Cost,
    /// Number of the request that read the file.
    pub loaded: u64,
    /// Number of the request that read the first file of this user with this name.
    pub since: u64,
    /// Whether the file was unchanged when the last request checked it.
    pub is_valid: bool,
    pub file: File,
    /// The cluster of its metrics.
    pub cluster: u16,
    /// A unique number for these contents in this cluster, or 0 if no number has been assigned.
    pub stamp: u64,
    /// Number of the file's records that are used in tables.
    pub records: u64,
    /// Expected number of inner nodes of the name space above the file's metrics.
    pub nodes: usize,
    /// The group of the file.
    pub group: GroupSize,
    /// The first components of the file's metric names, without prefix.
    heads: Vec<Box<str>>,
    /// Metrics that have a full name. Set at the first access.
    names: OnceCell<FullNames>,
    /// Serial numbers of the file's instance domains that may clash with those of other clusters.
    far: Vec<u32>,
    directory: Arc<Directory>,
    handle: Slot,
    /// Whether the file is open only for the strings of the metric that is being fetched.
    is_borrowed: bool,
    /// Whether the present request checks the file only when it reads values.
    is_unchecked: bool,
    process: Option<Process>,
    /// The values that the present request has read.
    fresh: Fresh,
    /// Number of values that the present request has read, counting repetitions.
    reread: u32,
    /// Whether a read of the file has failed.
    broken: bool,
    /// Number of log lines about the file's contents.
    logged: Cell<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fresh {
    Nothing,
    Metric(usize),
    All,
    /// The values of this metric could not be read.
    Failed(usize, io::ErrorKind),
}

/// Largest number of values of a file for which all of them are read when one is fetched.
const FEW_VALUES: u32 = 4096;

/// Largest number of log lines about the contents of a file.
const LINES: u32 = 8;

/// Weight of a string value in [`Cost::values`]: reading it takes a system call.
const TEXT_VALUES: u64 = 20;

/// Weight of a label in [`Cost::values`]: it is parsed.
const LABEL_VALUES: u64 = 40;

impl SourceFile {
    /// Opens and reads a file of at most `most` bytes. `uid` is the user to charge; `buffer` is scratch space.
    pub(super) fn load(
        directory: &Arc<Directory>,
        name: &OsStr,
        uid: u32,
        most: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<Source, ReadError> {
        let handle = directory.read(name)?;
        let metadata = handle.metadata()?;
        let seen = Stamp::new(&metadata);
        let file = File::read_lean(&handle, &metadata, most, buffer)?;
        let process = match file.header().owner() {
            Some(owner) => Some(Process::find(owner).ok_or(ReadError::Owner(owner))?),
            None => None,
        };
        let (heads, far) = (heads(name, &file), far_indoms(&file));
        let texts = heads.iter().map(|head| head.len() + HEAD_COST).sum::<usize>();
        let names =
            file.metrics().iter().map(|metric| FULL_NAME_COST + name.len() + file.name(metric).len()).sum::<usize>();
        let nodes = file.nodes();
        let memory = file.memory(nodes) + (SOURCE_COST + texts + names) as u64;
        Ok(Box::new(SourceFile {
            name: name.to_owned(),
            identity: seen.identity,
            seen,
            uid,
            cost: Cost {
                memory,
                values: values(&file) + (head_values(heads.len()) + nodes + texts_of(name, &file)) as u64,
            },
            loaded: 0,
            since: 0,
            is_valid: true,
            records: records(&file) + nodes as u64,
            nodes,
            group: GroupSize::default(),
            heads,
            names: OnceCell::new(),
            far,
            file,
            cluster: 0,
            stamp: 0,
            directory: Arc::clone(directory),
            handle: Slot::new(handle),
            is_borrowed: false,
            is_unchecked: false,
            process,
            fresh: Fresh::Nothing,
            reread: 0,
            broken: false,
            logged: Cell::new(0),
        }))
    }

    /// Returns the group without this file.
    pub(super) fn rest(&self) -> GroupSize {
        let GroupSize { records, version } = self.group;
        GroupSize { records: records.saturating_sub(self.records), version }
    }

    /// Logs a line about the contents of the file, unless there have been too many lines.
    pub(super) fn log(&self, prefix: &str, text: fmt::Arguments<'_>) {
        let (file, uid, logged) = (Path::new(&self.name).display(), self.uid, self.logged.get());
        self.logged.set(logged.saturating_add(1));
        match logged.cmp(&LINES) {
            Ordering::Less => tracing::error!(source = %format_args!("uid {uid}"), "{prefix}: {file}: {text}"),
            Ordering::Equal => {
                tracing::error!(source = %format_args!("uid {uid}"), "{prefix}: {file}: more problems are not logged");
            }
            Ordering::Greater => {}
        }
    }

    /// Returns whether the previous file of this name had the same problems, which are then already in the log. If so,
    /// adopts its count of log lines.
    pub(super) fn is_known_from(&self, before: &SourceFile) -> bool {
        let (now, then) = (self.file.problems(), before.file.problems());
        if now.first() == then.first() {
            self.logged.set(before.logged.get());
        }
        now.first() == then.first()
    }

    pub(super) fn set_cluster(&mut self, cluster: u16) {
        if self.cluster != cluster {
            (self.cluster, self.stamp) = (cluster, 0);
        }
    }

    /// Returns the classes of its cluster and its instance domains.
    pub(super) fn classes(&self) -> impl Iterator<Item = u16> {
        let far = self.far.iter().map(|serial| class_of_indom(exported_serial(self.cluster, *serial)));
        std::iter::once(class_of_cluster(self.cluster)).chain(far)
    }

    /// Returns the first components of its metric names, without prefix.
    pub(super) fn heads(&self) -> impl Iterator<Item = &str> {
        self.heads.iter().map(|head| &**head)
    }

    /// Returns which metrics have a full name.
    pub(super) fn names(&self, prefix: &str) -> &FullNames {
        self.names.get_or_init(|| FullNames::of(prefix, &self.name, &self.file))
    }

    /// Logs the parts that are left out.
    pub(super) fn report(&self, prefix: &str) {
        let (file, problems) = (Path::new(&self.name).display(), self.file.problems());
        let front = Front::new(prefix, &self.name, &self.file).ok();
        for problem in problems.first().iter().take(LINES as usize) {
            let Problem::Item { index, item } = *problem else {
                self.log(prefix, format_args!("{problem}"));
                continue;
            };
            let mut name = String::new();
            match front.as_ref().map(|front| front.append(self.file.record_name(index), &mut name)) {
                // The C agent's text, which PCP's tests look for.
                Some(Ok(())) => {
                    let (kind, uid) = (if self.file.version() == Version::V1 { "" } else { "2" }, self.uid);
                    tracing::warn!(
                        source = %format_args!("uid {uid}"),
                        "MMV: verify_metric_item{kind}: invalid item {item} ({name}) in {file}, ignored"
                    );
                }
                _ => self.log(prefix, format_args!("{problem}")),
            }
        }
        let more = problems.count().saturating_sub(LINES.into());
        if more > 0 {
            self.logged.set(LINES);
            self.log(prefix, format_args!("{more} more problems"));
        }
    }

    /// Sets the directory through which the file is opened.
    pub(super) fn set_directory(&mut self, directory: &Arc<Directory>) {
        if !Arc::ptr_eq(&self.directory, directory) {
            self.directory = Arc::clone(directory);
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.handle.get().is_some()
    }

    pub(super) fn keep_open(&mut self, open: bool) {
        if !open {
            self.handle.close();
        }
    }

    /// Prepares the file for a request. Returns whether it is still the file that was read, and may be shown. If that
    /// cannot be determined, repeats the last result. `buffer` is scratch space.
    pub(super) fn begin(&mut self, buffer: &mut Vec<u8>) -> bool {
        let front = match self.handle.get() {
            Some(handle) => self.file.reread_front(handle, buffer),
            None => self.reopen().and_then(|handle| self.file.reread_front(&handle, buffer)),
        };
        self.fresh = if front.as_ref().is_ok_and(|(_, all)| *all) { Fresh::All } else { Fresh::Nothing };
        self.reread = 0;
        self.is_unchecked = false;
        let generation = self.file.header().g1;
        self.is_valid = match front {
            Ok(((g1, g2), _)) => {
                g1 == generation && g2 == generation && self.process.as_mut().is_none_or(Process::lives)
            }
            Err(e) => self.is_valid && reader::is_temporary(&e),
        };
        self.is_valid
    }

    /// Prepares the file for a request that checks it only when it reads values.
    pub(super) fn begin_unchecked(&mut self) {
        (self.fresh, self.reread, self.is_unchecked) = (Fresh::Nothing, 0, true);
    }

    /// Returns whether a read has failed since the last call.
    pub(super) fn take_broken(&mut self) -> bool {
        std::mem::take(&mut self.broken)
    }

    /// Closes the file if it was opened for the strings of a metric.
    pub(super) fn close_borrowed(&mut self) {
        if std::mem::take(&mut self.is_borrowed) {
            self.handle.close();
        }
    }

    fn reopen(&self) -> io::Result<fs::File> {
        reopen(&self.directory, &self.name, self.identity)
    }

    /// Marks the file for a check by the next request, after a failed read.
    pub(super) fn set_broken(&mut self) {
        self.broken = true;
    }

    /// Reads a metric's present values, unless this request has read them already. `buffer` is scratch space.
    ///
    /// # Errors
    /// `WouldBlock` if the request may open no further file of the user. `NotFound` if the file has changed.
    #[inline]
    pub(super) fn reread(&mut self, metric: usize, opening: &mut Opening, buffer: &mut Vec<u8>) -> io::Result<()> {
        let is_fresh = self.fresh == Fresh::All || self.fresh == Fresh::Metric(metric);
        if is_fresh { Ok(()) } else { self.reread_once(metric, opening, buffer) }
    }

    /// Reads a metric's present values, unless that has just failed. The metric may have very many values, and each of
    /// them would try it again.
    #[inline(never)]
    fn reread_once(&mut self, metric: usize, opening: &mut Opening, buffer: &mut Vec<u8>) -> io::Result<()> {
        match self.fresh {
            Fresh::Failed(failed, kind) if failed == metric => Err(kind.into()),
            _ => {
                let read = self.reread_metric(metric, opening, buffer);
                read.inspect_err(|e| self.fresh = Fresh::Failed(metric, e.kind()))
            }
        }
    }

    fn reread_metric(&mut self, metric: usize, opening: &mut Opening, buffer: &mut Vec<u8>) -> io::Result<()> {
        if self.is_unchecked {
            if !self.is_open() {
                opening.count(self.uid)?;
            }
            if !self.begin(buffer) {
                return Err(io::ErrorKind::NotFound.into());
            }
            if self.fresh == Fresh::All {
                return Ok(());
            }
        }
        let opened;
        let handle = match self.handle.get() {
            Some(handle) => handle,
            None => {
                opening.count(self.uid)?;
                opened = self.reopen()?;
                &opened
            }
        };
        // A request that has already read as many values as the file has reads all of them.
        let all = self.file.value_count();
        if all <= FEW_VALUES || u64::from(self.reread) * VALUE_LEN as u64 >= self.file.data_len() {
            self.file.reread_values(handle, 0, all)?;
            self.fresh = Fresh::All;
        } else {
            let count = self.file.reread_metric(handle, metric)?;
            self.reread = self.reread.saturating_add(count);
            self.fresh = Fresh::Metric(metric);
        }
        Ok(())
    }

    /// Reads the present string of a value. Leaves the file open for the next one, until
    /// [`close_borrowed`](SourceFile::close_borrowed).
    ///
    /// # Errors
    /// `InvalidInput` if the string is outside of the file as it was read. Only the application can correct that.
    /// `WouldBlock` if the request may open no further file of the user.
    pub(super) fn reread_string<'b>(
        &mut self,
        value: &ValueRecord,
        opening: &mut Opening,
        texts: &'b mut Texts,
    ) -> io::Result<&'b [u8]> {
        let at = u64::try_from(value.extra).ok();
        let at = at
            .filter(|at| at.checked_add(STRING_LEN as u64).is_some_and(|end| end <= self.identity.len))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "its text is not in the file"))?;
        let SourceFile { directory, name, identity, uid, is_borrowed, handle, .. } = self;
        let handle = handle.get_or_open(|| {
            opening.count(*uid)?;
            let opened = reopen(directory, name, *identity)?;
            *is_borrowed = true;
            Ok::<_, io::Error>(opened)
        })?;
        texts.read(handle, at, identity.len)
    }
}

/// Opens a file that was closed, unless another file has its name now.
fn reopen(directory: &Directory, name: &OsStr, identity: Identity) -> io::Result<fs::File> {
    let handle = directory.read(name)?;
    if Stamp::new(&handle.metadata()?).identity == identity { Ok(handle) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// Memory per file, beside that of its contents, in bytes.
const SOURCE_COST: usize = 2048;
/// Memory per full name of a metric, in bytes, beside its text.
const FULL_NAME_COST: usize = 8;
/// Memory per first component of names, in bytes.
const HEAD_COST: usize = 160;

/// Expected nanoseconds for each record of a group whose tables have to be built again.
const RECORD: u64 = 60;

/// Returns the expected time for building tables again, in nanoseconds.
pub(super) fn building_time(records: u64) -> u64 {
    records.saturating_mul(RECORD)
}

/// Returns the weighted number of values of a file, as for [`Limits::user_values`](super::Limits::user_values).
fn values(file: &File) -> u64 {
    let values = file.metrics().iter().map(|metric| {
        let weight = if metric.ty == ValueType::String { TEXT_VALUES } else { 1 };
        // A metric without values takes work, too.
        metric.values().len().max(1) as u64 * weight
    });
    let instances: usize = file.indoms().iter().map(|indom| 1 + indom.instances().len()).sum();
    values.sum::<u64>() + instances as u64 + file.labels().len() as u64 * LABEL_VALUES
}

/// Returns what first components of names add to [`Cost::values`]. They count because each change of any file searches for
/// them.
fn head_values(heads: usize) -> usize {
    // In most files, the name of the file is the only first component.
    heads.min(1) * 4 + heads.saturating_sub(1) * 16
}

/// Returns what long names add to [`Cost::values`]. They count because a list of names takes time for each byte.
fn texts_of(name: &OsStr, file: &File) -> usize {
    let is_prefixed = !file.header().flags.contains(Flags::NO_PREFIX);
    file.long_texts(if is_prefixed { name.len() } else { 0 })
}

/// Returns the number of records that tables are built of. A metric counts as two, because of its name.
fn records(file: &File) -> u64 {
    let of_metrics: usize = file.metrics().iter().map(|metric| 2 + metric.values().len()).sum();
    let of_indoms: usize = file.indoms().iter().map(|indom| 1 + indom.instances().len()).sum();
    (of_metrics + of_indoms + 2 * file.labels().len()) as u64
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

/// Instance domains with lower serial numbers are in the class of the file's cluster.
const NEAR: u32 = 1 << 11;
