//! All files of a directory as one name space, as PCP's agent pmdammv(1) exports them.
//!
//! A [`Collection`] is refreshed before every request, which then reads from it. It follows the C agent's rules for
//! names, clusters and instance domains, so a metric has the same identifiers under both. Where the C agent mishandles
//! files that are invalid or contradict each other, the affected part is left out and logged.
//!
//! ```text
//! directory ── scan ──▶ files: known, waiting, bad, refused      (a thread, after Collection::watch)
//!                         │ build
//!                         ▼
//!                      snapshot: one immutable table ──▶ Collection: values, read by each request
//! ```

mod limits;
mod names;
mod scan;
mod snapshot;
mod source;
#[cfg(test)]
mod tests;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{io, mem};

use pmapi::{Atom, Error, Inst, Item, LabelSet, Semantics, Serial, Units};
use pmns::Tree;

pub use limits::{Limit, Limits};
pub use snapshot::LabelSubject;
pub use source::{CollectedFile, PresentValues};

use crate::format::{Flags, STRING_LEN, ValueRecord, ValueType};
use pmda::TextKind;
use scan::{Extent, Look, Scanner, Seen};
use snapshot::{DomainEntry, Entry, Place, Snapshot, ValuesOf};
use source::{Opened, Source, Values, read_string};
use watch::Watch;

/// The files of a directory, as one name space.
#[derive(Debug)]
pub struct Collection {
    prefix: String,
    directory: PathBuf,
    scans: Scans,
    snapshot: Arc<Snapshot>,
    /// What the last scan has found.
    seen: Seen,
    /// The values of each source, as the present request has read them.
    values: Vec<Values>,
    opened: Opened,
    /// Number of the present request.
    request: u64,
    /// The value of the control metric `reload`.
    reload: i32,
}

/// Who scans the directory.
#[derive(Debug)]
enum Scans {
    /// The requests.
    Own { scanner: Box<Scanner>, checked: Option<Instant> },
    /// A thread.
    Thread(Watch),
}

/// Time between two checks of files that no request checks.
const PERIOD: Duration = Duration::from_secs(1);

/// Description of a metric, without the agent's domain (`pmDesc`). Elapsed times are counters of microseconds,
/// regardless of the file's semantics and units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MetricDesc {
    /// The metric's identifier.
    pub item: Item,
    /// Type of the values in the file; [`ValueType::exported`] returns the type for clients.
    pub ty: ValueType,
    /// The instance domain, if there is one.
    pub indom: Option<Serial>,
    /// Semantics of the values.
    pub semantics: Semantics,
    /// Dimension and scale of the values.
    pub units: Units,
}

impl Collection {
    /// Creates a collection of the files in a directory. The names of their metrics begin with `prefix`, for instance
    /// `mmv` or `pmproxy`. Nothing is read before the first [`refresh`](Collection::refresh).
    pub fn new(prefix: &str, directory: impl Into<PathBuf>) -> Collection {
        let directory = directory.into();
        let scanner = Box::new(Scanner::new(prefix, directory.clone()));
        Collection {
            prefix: prefix.to_owned(),
            directory,
            scans: Scans::Own { scanner, checked: None },
            snapshot: Arc::default(),
            seen: Seen::default(),
            values: Vec::new(),
            opened: Opened::default(),
            request: 0,
            reload: 0,
        }
    }

    /// Creates a collection of the files in a directory without a name space: it has only [`files`](Collection::files). Log
    /// lines begin with `prefix`.
    pub fn of_files(prefix: &str, directory: impl Into<PathBuf>) -> Collection {
        let mut collection = Collection::new(prefix, directory);
        if let Scans::Own { scanner, .. } = &mut collection.scans {
            scanner.only_files = true;
        }
        collection
    }

    /// Number of files that stay open by default.
    pub const OPEN_FILES: usize = 256;

    /// Sets the number of files that stay open. Other files are opened for each access. Like the limits, this must be
    /// set before [`watch`](Collection::watch).
    pub fn keep_open(&mut self, files: usize) {
        if let Scans::Own { scanner, .. } = &mut self.scans {
            scanner.set_limits(scanner.limits, files as u64);
        }
    }

    /// Sets the limits on what files may cost. All files are read again.
    pub fn set_limits(&mut self, limits: Limits) {
        if let Scans::Own { scanner, .. } = &mut self.scans {
            scanner.set_limits(limits, scanner.open_files());
        }
    }

    /// Sets the function that returns the user to charge for a user's files. For a subordinate uid, that is the user to
    /// whom it is delegated.
    pub fn charge(&mut self, payer: impl FnMut(u32) -> u32 + Send + 'static) {
        if let Scans::Own { scanner, .. } = &mut self.scans {
            scanner.charge(payer);
        }
    }

    /// Lets a thread watch the directory from now on. It ends when the collection is dropped.
    ///
    /// A request that finds the directory or a file changed waits for the thread, 100 ms at most. If the directory changes
    /// all the time, requests wait a fiftieth of the time, and show changes later.
    ///
    /// # Errors
    /// The error of eventfd(2), pipe(2), or of the creation of the thread. Requests then read the files.
    pub fn watch(&mut self) -> io::Result<()> {
        let own = Scans::Own { scanner: Box::new(Scanner::new(&self.prefix, PathBuf::new())), checked: None };
        match mem::replace(&mut self.scans, own) {
            Scans::Own { scanner, checked } => match Watch::start(scanner) {
                Ok(watch) => self.scans = Scans::Thread(watch),
                Err((scanner, e)) => {
                    self.scans = Scans::Own { scanner, checked };
                    return Err(e);
                }
            },
            watched => self.scans = watched,
        }
        Ok(())
    }

    /// Returns the number of files that a limit has left out since the start.
    pub fn left_out(&self, limit: Limit) -> u64 {
        let index = Limit::ALL.iter().position(|other| *other == limit);
        index.and_then(|index| self.seen.refused.get(index)).copied().unwrap_or_default()
    }

    /// Returns the path of the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Detects changes, and returns whether names, instances or labels may have changed.
    ///
    /// Files are read again if [`set_reload`](Collection::set_reload) requested it, a file was being written, a
    /// generation number has changed, a process has ended, or the directory has changed.
    pub fn refresh(&mut self) -> bool {
        self.refresh_all(&mut std::iter::empty())
    }

    /// Detects changes as [`refresh`](Collection::refresh) does, with a check of the files that have these metrics. If a
    /// thread watches the directory, closed files without these metrics are left to it.
    pub fn refresh_all(&mut self, items: &mut dyn Iterator<Item = Item>) -> bool {
        self.begin();
        let checks_closed = matches!(self.scans, Scans::Own { .. });
        let mut are_current = true;
        for (source, values) in self.snapshot.sources.iter().zip(&mut self.values) {
            if checks_closed || source.is_open() {
                are_current &= values.check(source, self.request, &mut self.opened);
            }
        }
        let of_items = self.check_for(items);
        self.scan_unless(are_current && of_items)
    }

    /// Detects changes for a fetch of some metrics, and returns whether names, instances or labels may have changed. Of
    /// the known files, only those that contribute to these metrics are checked.
    pub fn refresh_for(&mut self, items: &mut dyn Iterator<Item = Item>) -> bool {
        self.begin();
        let are_current = self.check_for(items);
        self.scan_unless(are_current)
    }

    /// Detects changes of the directory, and of files that [`CollectedFile::read`] has found changed. Returns whether
    /// [`files`](Collection::files) may have changed.
    pub fn refresh_files(&mut self) -> bool {
        self.begin();
        let are_current = self.snapshot.sources.iter().all(|source| !source.is_stale.load(Relaxed));
        self.scan_unless(are_current)
    }

    fn begin(&mut self) {
        self.request += 1;
    }

    /// Checks the files that contribute to some metrics. Returns whether all of them are unchanged.
    fn check_for(&mut self, items: &mut dyn Iterator<Item = Item>) -> bool {
        let Collection { snapshot, values, opened, request, .. } = self;
        let mut are_current = true;
        let mut check = |index: u32| {
            let source = snapshot.source(index).zip(values.get_mut(index as usize));
            are_current &= source.is_none_or(|(source, values)| values.check(source, *request, opened));
        };
        for found in items.filter_map(|item| snapshot.values(item)) {
            match found.only {
                Some(only) => check(only),
                None => found.places.iter().for_each(|place| check(place.source)),
            }
        }
        are_current
    }

    /// Scans the directory, unless all checked files are current and nothing else requires it. Returns whether there is
    /// another table now.
    fn scan_unless(&mut self, are_current: bool) -> bool {
        self.opened.close();
        let is_forced = self.reload != 0;
        let differs = |seen: &Seen| {
            seen.is_waiting || Look::at(&self.directory, &seen.look).is_ok_and(|look| seen.look.may_differ(&look))
        };
        let is_due = is_forced || !are_current;
        let scanned = match &mut self.scans {
            Scans::Own { scanner, checked } => {
                let is_time = checked.is_none_or(|checked| checked.elapsed() >= PERIOD);
                if !is_due && !is_time && !differs(&self.seen) {
                    return false;
                }
                if is_time {
                    *checked = Some(Instant::now());
                }
                let extent = if is_time { Extent::All } else { Extent::Due };
                let is_changed = scanner.scan(if is_forced { Extent::Again } else { extent });
                self.seen = scanner.seen();
                is_changed.then(|| Arc::new(scanner.build()))
            }
            Scans::Thread(watch) => {
                self.seen = watch.seen();
                if is_due || differs(&self.seen) {
                    watch.scan(if is_forced { Extent::Again } else { Extent::Due });
                    self.seen = watch.seen();
                }
                watch.newer(&self.snapshot)
            }
        };
        if is_forced {
            self.reload = 0;
        }
        let Some(snapshot) = scanned else { return false };
        self.snapshot = snapshot;
        self.values.clear();
        self.values.resize_with(self.snapshot.sources.len(), Values::default);
        if let Scans::Thread(watch) = &self.scans {
            watch.wake();
        }
        true
    }

    /// Returns the value of the control metric `reload`, which is also 1 while a file is being written.
    pub fn reload(&self) -> i32 {
        if self.reload == 0 { self.seen.is_in_flux.into() } else { self.reload }
    }

    /// Stores a value in the control metric `reload`. Any value but 0 makes the next request read all files again.
    pub fn set_reload(&mut self, value: i32) {
        self.reload = value;
    }

    /// Returns the files as the last scan has read them.
    pub fn files(&self) -> impl Iterator<Item = CollectedFile> {
        self.snapshot.sources.iter().map(|source| CollectedFile::new(Arc::clone(source)))
    }

    /// Returns the number of files so far that were skipped because they are not valid.
    pub fn bad_files(&self) -> u64 {
        self.seen.bad
    }

    /// Returns the number of exported files.
    pub fn file_count(&self) -> usize {
        self.snapshot.sources.len()
    }

    /// Returns the number of exported metrics.
    pub fn metric_count(&self) -> usize {
        self.snapshot.metrics.len()
    }

    /// Returns the names and descriptions of the metrics, in the order of the files.
    pub fn metrics(&self) -> impl Iterator<Item = (String, MetricDesc)> {
        let all = self.snapshot.metrics.iter();
        all.filter_map(|entry| Some((self.snapshot.name(entry), self.snapshot.desc(entry)?)))
    }

    /// Returns the names of the metrics. Of the identifiers in the tree, only the items have a meaning.
    pub fn names(&self) -> &Tree {
        &self.snapshot.names
    }

    /// Returns the identifier of a metric (`pmLookupName(3)`).
    ///
    /// # Errors
    /// `PM_ERR_NAME` if no metric has the name.
    pub fn item(&self, name: &str) -> Result<Item, Error> {
        self.snapshot.item(name).ok_or(Error::NAME)
    }

    /// Returns the name of a metric (`pmNameID(3)`).
    ///
    /// # Errors
    /// `PM_ERR_PMID` if there is no such metric.
    pub fn name(&self, item: Item) -> Result<String, Error> {
        Ok(self.snapshot.name(self.entry(item)?))
    }

    /// Returns the description of a metric (`pmLookupDesc(3)`).
    ///
    /// # Errors
    /// `PM_ERR_PMID` if there is no such metric.
    pub fn desc(&self, item: Item) -> Result<MetricDesc, Error> {
        self.snapshot.desc(self.entry(item)?).ok_or(Error::PMID)
    }

    /// Returns the identifiers of the instance domains, in ascending order.
    pub fn indoms(&self) -> impl Iterator<Item = Serial> {
        self.snapshot.domains.keys().copied()
    }

    /// Returns the instances of a domain (`pmGetInDom(3)`), in the order of the files.
    ///
    /// # Errors
    /// `PM_ERR_INDOM` if there is no such domain.
    pub fn instances(&self, indom: Serial) -> Result<impl ExactSizeIterator<Item = (Inst, &[u8])>, Error> {
        Ok(self.domain(indom)?.instances.iter().map(|instance| {
            let source = self.snapshot.source(instance.source);
            (instance.id, source.map_or(&[][..], |source| source.file.instance_name(&instance.name)))
        }))
    }

    /// Returns a metric's help text (`pmLookupText(3)`).
    ///
    /// # Errors
    /// `PM_ERR_TEXT` if the metric has none. `PM_ERR_PMID` if there is no such metric or, as under PCP's agent, it has
    /// no type.
    pub fn help(&self, item: Item, kind: TextKind) -> Result<&[u8], Error> {
        let entry = self.entry(item)?;
        let file = &self.snapshot.source(entry.source).ok_or(Error::TEXT)?.file;
        let metric = file.metrics().get(entry.metric as usize).ok_or(Error::TEXT)?;
        if metric.ty == ValueType::NoSupport {
            return Err(Error::PMID);
        }
        file.help(metric, kind).ok_or(Error::TEXT)
    }

    /// Returns an instance domain's help text (`pmLookupInDomText(3)`), from the first file that has one.
    ///
    /// # Errors
    /// `PM_ERR_TEXT` if no file has one, `PM_ERR_INDOM` if there is no such domain.
    pub fn indom_help(&self, indom: Serial, kind: TextKind) -> Result<&[u8], Error> {
        let mut texts = self.domain(indom)?.parts.iter().filter_map(|(source, index)| {
            let file = &self.snapshot.source(*source)?.file;
            file.indom_help(file.indoms().get(*index as usize)?, kind)
        });
        texts.next().ok_or(Error::TEXT)
    }

    /// Returns the labels of a subject, or `None` if it has none.
    pub fn labels(&self, of: LabelSubject) -> Option<&LabelSet> {
        self.snapshot.labels.get(of, &self.prefix, &self.snapshot.sources)
    }

    fn entry(&self, item: Item) -> Result<&Entry, Error> {
        self.snapshot.metric(item).ok_or(Error::PMID)
    }

    fn domain(&self, indom: Serial) -> Result<&DomainEntry, Error> {
        self.snapshot.domains.get(&indom).ok_or(Error::INDOM)
    }

    /// Calls `out` with the present values of a metric, in the order of the instances. `wants` selects the instances.
    /// Instances without a value get an error: `PM_ERR_INST`, `PM_ERR_PMID` or, after a failed read, `PM_ERR_GENERIC`.
    ///
    /// For a value that the application has not set, in a file with sentinels, `out` is not called.
    ///
    /// # Errors
    /// `PM_ERR_PMID` if there is no such metric, `PM_ERR_APPVERSION` if it has no type.
    pub fn fetch(
        &mut self,
        item: Item,
        wants: impl Fn(Inst) -> bool,
        mut out: impl FnMut(Option<Inst>, Result<Atom<'_>, Error>),
    ) -> Result<(), Error> {
        let Collection { snapshot, values, opened, prefix, request, .. } = self;
        let ValuesOf { ty, places, missing, .. } = snapshot.values(item).ok_or(Error::PMID)?;
        if ty == ValueType::NoSupport {
            return Err(Error::APPVERSION);
        }
        let now = match ty {
            ValueType::Elapsed => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            _ => Duration::ZERO,
        };
        let mut text = [0; STRING_LEN];
        let mut give = |inst: Option<Inst>, place: Option<&Place>| {
            let Some(place) = place else { return out(inst, Err(missing.unwrap_or(Error::INST))) };
            let found = snapshot.source(place.source).zip(values.get_mut(place.source as usize));
            let Some((source, values)) = found else { return };
            let value = values.get(source, place.slot, *request, opened);
            match value.and_then(|value| atom(source, &value, ty, now, (&mut *opened, &mut text))) {
                Ok(Some(atom)) => out(inst, Ok(atom)),
                Ok(None) => {}
                Err(e) => {
                    fail(prefix, source, snapshot, item, &e);
                    out(inst, Err(Error::GENERIC));
                }
            }
        };
        let instances = if missing.is_some() { snapshot.instances_of(item) } else { &[] };
        if instances.is_empty() {
            places.iter().filter(|place| place.inst.is_none_or(&wants)).for_each(|place| give(place.inst, Some(place)));
            if missing.is_some() {
                give(None, None);
            }
        }
        let mut places = places.iter().peekable();
        for inst in instances.iter().map(|instance| instance.id) {
            let place = places.next_if(|place| place.inst == Some(inst));
            if wants(inst) {
                give(Some(inst), place);
            }
        }
        opened.close();
        Ok(())
    }
}

/// Logs that a value could not be read, and marks the file for a check.
#[cold]
#[inline(never)]
fn fail(prefix: &str, source: &Source, snapshot: &Snapshot, item: Item, e: &io::Error) {
    let name = snapshot.metric(item).map(|entry| snapshot.name(entry)).unwrap_or_default();
    source.log(prefix, format_args!("{name}: {e}"));
    if e.kind() != io::ErrorKind::InvalidInput {
        source.is_stale.store(true, Relaxed);
    }
}

/// Returns a value, or `None` if the application has not set it.
#[inline]
fn atom<'b>(
    source: &Source,
    value: &ValueRecord,
    ty: ValueType,
    now: Duration,
    (opened, text): (&mut Opened, &'b mut [u8; STRING_LEN]),
) -> io::Result<Option<Atom<'b>>> {
    let sentinel = source.file.header().flags.contains(Flags::SENTINEL);
    if sentinel && is_no_value(value, ty) {
        return Ok(None);
    }
    Ok(Some(match ty {
        ValueType::I32 => Atom::I32(value.half() as i32),
        ValueType::U32 => Atom::U32(value.half()),
        ValueType::I64 => Atom::I64(value.word as i64),
        ValueType::U64 => Atom::U64(value.word),
        ValueType::Float => Atom::Float(f32::from_bits(value.half())),
        ValueType::Double => Atom::Double(f64::from_bits(value.word)),
        ValueType::Elapsed => Atom::I64(value.elapsed(now)),
        ValueType::String => {
            let text = read_string(source, value, opened, text)?;
            if sentinel && text.is_empty() {
                return Ok(None);
            }
            Atom::String(text)
        }
        ValueType::NoSupport => return Ok(None),
    }))
}

/// Returns whether a value of a file with sentinels means "no value".
fn is_no_value(value: &ValueRecord, ty: ValueType) -> bool {
    match ty {
        ValueType::Float => f32::from_bits(value.half()).is_nan(),
        ValueType::Double => f64::from_bits(value.word).is_nan(),
        ValueType::String | ValueType::NoSupport => false,
        ValueType::I32 | ValueType::U32 | ValueType::I64 | ValueType::U64 | ValueType::Elapsed => {
            value.word == u64::MAX
        }
    }
}
