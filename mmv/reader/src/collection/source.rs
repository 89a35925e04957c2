//! A file of the directory, and what a request reads of it.

use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, OnceLock};
use std::{fmt, fs, io};

use pmapi::Serial;

use super::limits::{Cost, Uid};
use super::names::{Front, FullNames};
use crate::format::{STRING_LEN, VALUE_LEN, ValueRecord, Version};
use crate::reader::{Directory, File, Identity, Problem, Process, ReadError, Stamp, ValueOf, is_temporary, read_at};

/// An exported file: its parsed contents, which never change, and the open file.
#[derive(Debug)]
pub(super) struct Source {
    pub name: OsString,
    /// The user who is charged for the file.
    pub uid: Uid,
    /// Number of the scan that found the first file of this user with this name.
    pub since: u64,
    pub identity: Identity,
    /// The user who owns the file.
    pub owner: u32,
    pub cost: Cost,
    pub file: File,
    pub names: FullNames,
    directory: Arc<Directory>,
    handle: OnceLock<fs::File>,
    process: Option<Process>,
    /// Whether a request has found that the file has changed or cannot be read.
    pub is_stale: AtomicBool,
    /// Whether the log says which parts contradict other files.
    pub is_reported: AtomicBool,
    /// Number of log lines about the file's contents.
    logged: AtomicU32,
}

/// Largest number of log lines about the contents of a file.
const LINES: u32 = 8;

/// Weight of a string value in [`Cost::values`]: reading it takes a system call.
const TEXT_VALUES: u64 = 20;

/// Weight of a label in [`Cost::values`]: it is parsed.
const LABEL_VALUES: u64 = 40;

/// Memory per file, beside that of its contents, in bytes.
const SOURCE_COST: usize = 2048;

impl Source {
    /// Opens and reads a file of at most `most` bytes. `uid` is the user to charge; `buffer` is scratch space. Returns the
    /// file, which [`keep_open`](Source::keep_open) accepts.
    pub(super) fn load(
        prefix: &str,
        directory: &Arc<Directory>,
        name: &OsStr,
        (uid, since): (Uid, u64),
        most: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<(Source, fs::File), ReadError> {
        let handle = directory.read(name)?;
        let metadata = handle.metadata()?;
        let file = File::read_lean(&handle, &metadata, most, buffer)?;
        let process = match file.header().owner() {
            Some(owner) => Some(Process::find(owner).ok_or(ReadError::Owner(owner))?),
            None => None,
        };
        let instances: usize = file.indoms().iter().map(|indom| 1 + indom.instances().len()).sum();
        let cost = Cost {
            memory: file.memory(file.nodes()) + SOURCE_COST as u64,
            values: file.weighted_values(TEXT_VALUES) + instances as u64 + file.labels().len() as u64 * LABEL_VALUES,
        };
        let Stamp { identity, owner, .. } = Stamp::new(&metadata);
        let source = Source {
            name: name.to_owned(),
            uid,
            since,
            identity,
            owner,
            cost,
            names: FullNames::of(prefix, name, &file),
            file,
            directory: Arc::clone(directory),
            handle: OnceLock::new(),
            process,
            is_stale: AtomicBool::new(false),
            is_reported: AtomicBool::new(false),
            logged: AtomicU32::new(0),
        };
        Ok((source, handle))
    }

    /// Lets the file stay open.
    pub(super) fn keep_open(&self, handle: fs::File) {
        _ = self.handle.set(handle);
    }

    pub(super) fn is_open(&self) -> bool {
        self.handle.get().is_some()
    }

    /// Opens the file again, unless another file has its name now.
    ///
    /// # Errors
    /// `NotFound` if another file has the name, and the errors of opening it.
    pub(super) fn open(&self) -> io::Result<fs::File> {
        let handle = self.directory.read(&self.name)?;
        let is_same = Stamp::new(&handle.metadata()?).identity == self.identity;
        if is_same { Ok(handle) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// Returns whether the file has the generation that was read, and its process still exists. Only the `start` of a
    /// process shows whether another one has its identifier, but reading that takes long.
    pub(super) fn is_current(&self, start: bool) -> bool {
        let front = match self.handle.get() {
            Some(handle) => self.file.read_front(handle, &mut []),
            None => self.open().and_then(|handle| self.file.read_front(&handle, &mut [])),
        };
        let is_valid = front.map_or_else(|e| is_temporary(&e), |front| front.is_current);
        let lives = |process: &Process| if start { process.lives() } else { process.exists() };
        is_valid && self.process.as_ref().is_none_or(lives)
    }

    /// Logs a line about the contents of the file, unless there have been too many lines.
    pub(super) fn log(&self, prefix: &str, text: fmt::Arguments<'_>) {
        let (file, uid) = (Path::new(&self.name).display(), self.uid);
        match self.logged.fetch_add(1, Relaxed).cmp(&LINES) {
            Ordering::Less => tracing::error!(source = %uid, "{prefix}: {file}: {text}"),
            Ordering::Equal => tracing::error!(source = %uid, "{prefix}: {file}: more problems are not logged"),
            Ordering::Greater => self.logged.store(LINES + 1, Relaxed),
        }
    }

    /// Logs the parts that are left out, unless the previous file of this name had the same problems.
    pub(super) fn report(&self, prefix: &str, before: Option<&Source>) {
        let (file, problems) = (Path::new(&self.name).display(), self.file.problems());
        if let Some(before) = before.filter(|before| before.file.problems().first() == problems.first()) {
            self.logged.store(before.logged.load(Relaxed), Relaxed);
            self.is_reported.store(before.is_reported.load(Relaxed), Relaxed);
            return;
        }
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
                        source = %uid,
                        "MMV: verify_metric_item{kind}: invalid item {item} ({name}) in {file}, ignored"
                    );
                }
                _ => self.log(prefix, format_args!("{problem}")),
            }
        }
        let more = problems.count().saturating_sub(LINES.into());
        if more > 0 {
            self.logged.store(LINES, Relaxed);
            self.log(prefix, format_args!("{more} more problems"));
        }
    }
}

/// The file that a request has opened last, of those that do not stay open.
#[derive(Debug, Default)]
pub(super) struct Opened(Option<(OsString, fs::File)>);

impl Opened {
    fn of<'a>(&'a mut self, source: &'a Source) -> io::Result<&'a fs::File> {
        if let Some(handle) = source.handle.get() {
            return Ok(handle);
        }
        let opened = match self.0.take() {
            Some(opened) if opened.0 == source.name => opened,
            _ => (source.name.clone(), source.open()?),
        };
        Ok(&self.0.insert(opened).1)
    }

    /// Closes the file.
    pub(super) fn close(&mut self) {
        self.0 = None;
    }
}

/// The values of a file that the present request has read.
#[derive(Debug, Default)]
pub(super) struct Values {
    /// Number of the request that has checked the file.
    request: u64,
    /// Why the values cannot be read.
    failed: Option<io::ErrorKind>,
    /// The runs that this request has read.
    read: Vec<bool>,
    bytes: Vec<u8>,
}

impl Values {
    /// Checks whether the file is still the one that was read, once a request. Returns false if it is to be read again.
    #[inline]
    pub(super) fn check(&mut self, source: &Source, request: u64, opened: &mut Opened) -> bool {
        if self.request != request {
            self.begin(source, request, opened);
        }
        !source.is_stale.load(Relaxed)
    }

    #[inline(never)]
    fn begin(&mut self, source: &Source, request: u64, opened: &mut Opened) {
        self.request = request;
        let runs = source.file.runs();
        let count = runs.last().map_or(0, |last| (last.slot + last.count) as usize);
        self.bytes.resize(count * VALUE_LEN, 0);
        self.read.clear();
        self.read.resize(runs.len(), false);
        let front = opened.of(source).and_then(|handle| source.file.read_front(handle, &mut self.bytes));
        let is_current = match front {
            Ok(front) => {
                if front.has_values {
                    self.read.fill(true);
                }
                self.failed = None;
                front.is_current && source.process.as_ref().is_none_or(Process::exists)
            }
            Err(e) => {
                self.failed = Some(e.kind());
                is_temporary(&e)
            }
        };
        if !is_current {
            self.failed = Some(self.failed.unwrap_or(io::ErrorKind::NotFound));
            source.is_stale.store(true, Relaxed);
        }
    }

    /// Returns a present value.
    ///
    /// # Errors
    /// `NotFound` if the file has changed, and the errors of reading it.
    #[inline]
    pub(super) fn get(
        &mut self,
        source: &Source,
        slot: u32,
        request: u64,
        opened: &mut Opened,
    ) -> io::Result<ValueRecord> {
        if self.request != request {
            self.begin(source, request, opened);
        }
        if let Some(kind) = self.failed {
            return Err(kind.into());
        }
        let runs = source.file.runs();
        let index = if runs.len() == 1 { 0 } else { runs.partition_point(|run| run.slot <= slot).saturating_sub(1) };
        if self.read.get(index) != Some(&true) {
            self.read_run(source, index, opened).inspect_err(|e| {
                self.failed = Some(e.kind());
                source.is_stale.store(true, Relaxed);
            })?;
        }
        let at = slot as usize * VALUE_LEN;
        self.bytes.get(at..).and_then(ValueRecord::of).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Reads all values. Returns whether the file has the generation that was read.
    pub(super) fn read_all(&mut self, source: &Source, opened: &mut Opened) -> io::Result<bool> {
        self.begin(source, 0, opened);
        for index in 0..self.read.len() {
            if self.read.get(index) == Some(&false) {
                self.read_run(source, index, opened)?;
            }
        }
        match self.failed {
            Some(kind) if kind != io::ErrorKind::NotFound => Err(kind.into()),
            failed => Ok(failed.is_none()),
        }
    }

    /// Returns a value that was read.
    pub(super) fn at(&self, slot: u32) -> Option<ValueRecord> {
        self.bytes.get(slot as usize * VALUE_LEN..).and_then(ValueRecord::of)
    }

    #[inline(never)]
    fn read_run(&mut self, source: &Source, index: usize, opened: &mut Opened) -> io::Result<()> {
        let run = *source.file.runs().get(index).ok_or(io::ErrorKind::UnexpectedEof)?;
        source.file.read_run(opened.of(source)?, run, &mut self.bytes)?;
        if let Some(read) = self.read.get_mut(index) {
            *read = true;
        }
        Ok(())
    }
}

/// Reads the present string of a value, up to its NUL.
///
/// # Errors
/// `InvalidInput` if the string is outside of the file as it was read. Only the application can correct that. Otherwise
/// `UnexpectedEof` if the file has become shorter, and the errors of reading it.
pub(super) fn read_string<'b>(
    source: &Source,
    value: &ValueRecord,
    opened: &mut Opened,
    text: &'b mut [u8; STRING_LEN],
) -> io::Result<&'b [u8]> {
    let at = u64::try_from(value.extra).ok();
    let at = at
        .filter(|at| at.checked_add(STRING_LEN as u64).is_some_and(|end| end <= source.identity.len))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "its text is not in the file"))?;
    if read_at(opened.of(source)?, text, at)? < STRING_LEN {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(text.split(|byte| *byte == 0).next().unwrap_or_default())
}

/// Returns the exported number of a file's instance domain.
pub(super) fn exported_serial(cluster: u16, serial: u32) -> Serial {
    let number = (u32::from(cluster) << 11 | serial) & Serial::MAX;
    Serial::try_new(number).unwrap_or(const { Serial::new(0) })
}

/// A file of a collection, as a scan has read it. It stays readable when the collection no longer has it, if it
/// [stays open](super::Collection::keep_open).
#[derive(Clone, Debug)]
pub struct CollectedFile(Arc<Source>);

impl CollectedFile {
    pub(super) fn new(source: Arc<Source>) -> CollectedFile {
        CollectedFile(source)
    }

    /// Returns the name of the file in the directory.
    pub fn name(&self) -> &OsStr {
        &self.0.name
    }

    /// Returns the file's device and inode numbers.
    pub fn id(&self) -> (u64, u64) {
        (self.0.identity.device, self.0.identity.inode)
    }

    /// Returns the user identifier of the file's owner.
    pub fn owner(&self) -> u32 {
        self.0.owner
    }

    /// Returns the user identifier of the user who is charged for the file: see
    /// [`charge`](super::Collection::charge).
    pub fn account(&self) -> u32 {
        self.0.uid.0
    }

    /// Returns the contents, as the scan has read them.
    pub fn contents(&self) -> &File {
        &self.0.file
    }

    /// Returns whether both are the same contents of the same file.
    pub fn is_same(&self, other: &CollectedFile) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Reads the present values, and returns them with whether the application has not changed the file's metrics and
    /// instances since the scan.
    ///
    /// # Errors
    /// `NotFound` if the file does not stay open, and another one has its name; `UnexpectedEof` if it has become shorter;
    /// other errors of reading it.
    pub fn read(&self) -> io::Result<(PresentValues<'_>, bool)> {
        let (mut values, mut opened) = (Values::default(), Opened::default());
        let is_current = values.read_all(&self.0, &mut opened)?;
        Ok((PresentValues { file: self, values }, is_current))
    }
}

/// The values of a file at a time: [`CollectedFile::read`].
#[derive(Debug)]
pub struct PresentValues<'a> {
    file: &'a CollectedFile,
    values: Values,
}

impl PresentValues<'_> {
    /// Returns a value of one of the file's metrics.
    pub fn get(&self, value: ValueOf) -> Option<ValueRecord> {
        self.values.at(self.file.0.file.slot(value))
    }
}
