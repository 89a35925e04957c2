//! One archive: its files, label, temporal index and end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use pcp_pdu::event::Stamp;
use pmapi::Error;

use crate::decode::index::{IndexEntry, entry, entry_len};
use crate::decode::label::Label;
use crate::decode::meta::{self, Meta};
use crate::decode::{Version, record};
use crate::error::{ArchiveError, Bad, Result};
use crate::file::find::Files;
use crate::file::{Source, Stream};
use crate::meta::{Metadata, no_metric};
use crate::skipped::Skipped;
use crate::window::{Extent, Span, Window};

/// Volume number in the label of the temporal index, which is not a volume.
const INDEX: i64 = -2;
/// Volume number in the label of the metadata, which is not a volume.
const META: i64 = -1;
/// Largest size of compressed metadata, or of a compressed index, after decompression in bytes: valid records are kept
/// in memory.
pub(crate) const IN_MEMORY: u64 = 1 << 30;
/// Length of the longest label record (version 3), in bytes.
const LABEL: usize = 808;

/// Files, label and index of one archive.
#[derive(Debug)]
pub(crate) struct Log {
    /// Name by which the archive was opened.
    pub(crate) name: PathBuf,
    pub(crate) files: Files,
    /// Index of the metadata file in [`Metadata`].
    pub(crate) file: u32,
    pub(crate) label: Label,
    pub(crate) index: Vec<IndexEntry>,
    limit: u64,
    /// Volumes that cannot be opened.
    skipped: Arc<Skipped>,
    /// Volumes that a cursor has open.
    open: Mutex<BTreeMap<u32, Weak<Source>>>,
    /// The end, once [`Log::fixed_end`] has searched for it.
    fixed_end: OnceLock<Stamp>,
    /// The end of the records before damage, once [`Log::readable`] has searched for it.
    readable: OnceLock<Option<End>>,
}

/// Decodes the label of a file that has more than the bytes of `start`, or `len` bytes.
fn check_label(path: &Path, start: &[u8], len: u64) -> Result<Label> {
    let label = Label::decode(start).map_err(|e| ArchiveError::at(path, 0, e))?;
    if len == label.version.label_len() as u64 {
        return Err(ArchiveError::file(path, Error::NODATA, "there is nothing after the label"));
    }
    Ok(label)
}

fn check_volume(path: &Path, label: &Label, volume: i64) -> Result {
    if i64::from(label.volume) == volume {
        return Ok(());
    }
    let reason = format!("the label is that of volume {}, not {volume}", label.volume).into();
    Err(ArchiveError::at(path, 0, Bad { at: 0, code: Error::LABEL, reason }))
}

fn check_same(path: &Path, label: &Label, other: &Label) -> Result {
    let field = match () {
        () if label.version != other.version => "version",
        () if label.pid != other.pid => "process identifier",
        () if label.host != other.host => "host name",
        () => return Ok(()),
    };
    Err(ArchiveError::file(
        path,
        Error::LABEL,
        format!("the {field} in the label differs from that of the first volume"),
    ))
}

/// Opens the metadata or the index, and checks its label against that of the volume.
fn open_labelled(path: &Path, limit: u64, volume: i64, other: &Label) -> Result<Stream> {
    let mut file = Stream::open(path, limit.min(IN_MEMORY))?;
    file.fill(LABEL + 1)?;
    let label = check_label(path, file.bytes(), file.bytes().len() as u64)?;
    check_volume(path, &label, volume)?;
    check_same(path, other, &label)?;
    Ok(file)
}

/// Archives that are opened together.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    /// Largest size of a compressed file after decompression, in bytes.
    pub(crate) limit: u64,
    /// Whether a damaged archive is left out.
    pub(crate) is_list: bool,
    /// Host of the archives that have been opened.
    pub(crate) host: Option<Vec<u8>>,
    pub(crate) meta: Metadata,
    pub(crate) skipped: Arc<Skipped>,
}

/// Largest record of compressed metadata, in bytes. So much memory is needed before an invalid record is noticed.
const RECORD: usize = 32 << 20;

/// Reads the metadata, whose records begin at `start`. Compressed metadata is read up to the first damaged record, so
/// that memory holds valid records only. With `must_check`, plain metadata is checked, too.
fn records(mut file: Stream, start: usize, must_check: bool) -> Result<Vec<u8>> {
    if !file.is_compressed() && !must_check {
        return Ok(file.into_bytes());
    }
    let (mut at, mut metrics) = (start, 0);
    loop {
        let next = meta::next(file.bytes(), at);
        if let Ok(Some((record, next))) = next {
            metrics += usize::from(matches!(record, Meta::Desc { .. }));
            at = next;
            continue;
        }
        let next = next.map(|_| ());
        if file.is_compressed() {
            match meta::cut(file.bytes(), at) {
                Some(len) if len > RECORD => {
                    let reason = format!("metadata record of {len} bytes, more than {RECORD} in a compressed file");
                    return Err(ArchiveError::at(file.path(), at as u64, Bad::record(0, reason)));
                }
                Some(_) if file.more()? => continue,
                _ => (),
            }
        }
        next.map_err(|e| ArchiveError::at(file.path(), at as u64, e))?;
        break;
    }
    if metrics == 0 {
        return Err(no_metric(file.path()));
    }
    Ok(file.into_bytes())
}

/// Reads the entries of an index.
fn entries(mut file: Stream, version: Version) -> Result<Vec<IndexEntry>> {
    let (first, len) = (version.label_len() as i64, entry_len(version));
    let (mut found, mut offset) = (Vec::new(), version.label_len());
    file.discard(offset);
    loop {
        // An incomplete entry at the end is still being written.
        for bytes in file.bytes().chunks_exact(len) {
            let entry = entry(version, bytes).map_err(|e| ArchiveError::at(file.path(), offset as u64, e))?;
            if file.is_compressed() && (entry.meta < first || entry.data < first) {
                let bad = Bad::record(0, "entry of the index whose offsets are not behind the labels");
                return Err(ArchiveError::at(file.path(), offset as u64, bad));
            }
            found.push(entry);
            offset += len;
        }
        file.discard(file.bytes().len() / len * len);
        if !file.more()? {
            return Ok(found);
        }
    }
}

/// End of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) volume: u32,
    pub(crate) offset: u64,
    /// Latest time of the records up to here.
    pub(crate) time: Stamp,
}

impl Log {
    /// Opens an archive, and adds its metadata to that of the others. After an error about damage, the others'
    /// metadata is unchanged if the archive belongs to a list.
    pub(crate) fn open(name: PathBuf, files: Files, to: &mut Opening) -> Result<Log> {
        let (first, path) = files
            .volumes
            .first_key_value()
            .ok_or_else(|| ArchiveError::file(&files.base, Error::LOGFILE, "the archive has no volume of values"))?;
        let source = Arc::new(Source::open(path, to.limit)?);
        let label = Self::label_of(&source)?;
        check_volume(path, &label, (*first).into())?;
        let open = Mutex::new(BTreeMap::from([(*first, Arc::downgrade(&source))]));
        let index = files.index.as_ref().map(|path| open_labelled(path, to.limit, INDEX, &label)).transpose()?;
        let meta = open_labelled(&files.meta, to.limit, META, &label)?;
        if to.host.as_ref().is_some_and(|host| *host != label.host) {
            let reason = "the archive is of another host than the first one";
            return Err(ArchiveError::file(&files.meta, Error::LOGHOST, reason));
        }
        let meta = records(meta, label.version.label_len(), to.is_list)?;
        let index = index.map(|file| entries(file, label.version)).transpose()?.unwrap_or_default();
        let file = to.meta.load(&files.meta, meta, label.version.label_len())?;
        to.host = Some(label.host.clone());
        let (limit, skipped) = (to.limit, Arc::clone(&to.skipped));
        Ok(Log {
            name,
            files,
            file,
            label,
            index,
            limit,
            skipped,
            open,
            fixed_end: OnceLock::new(),
            readable: OnceLock::new(),
        })
    }

    fn label_of(source: &Source) -> Result<Label> {
        let mut start = [0; LABEL];
        let read = source.read_at(&mut start, 0)?;
        check_label(source.path(), start.get(..read).unwrap_or_default(), source.len()?)
    }

    /// Opens a volume. If a cursor has it open, returns that file.
    fn volume(&self, number: u32) -> Result<Arc<Source>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(source) = open.get(&number).and_then(Weak::upgrade) {
            return Ok(source);
        }
        let Some(path) = self.files.volumes.get(&number) else {
            return Err(ArchiveError::file(&self.files.base, Error::LOGFILE, format!("volume {number} is missing")));
        };
        let source = Arc::new(Source::open(path, self.limit)?);
        open.insert(number, Arc::downgrade(&source));
        Ok(source)
    }

    /// Opens a volume and checks its label.
    pub(crate) fn window(&self, number: u32) -> Result<Window> {
        let source = self.volume(number)?;
        let label = Self::label_of(&source)?;
        if label.version != self.label.version {
            let reason = format!(
                "the volume is of version {}, the archive of version {}",
                label.version.number(),
                self.label.version.number()
            );
            return Err(ArchiveError::file(source.path(), Error::LOGREC, reason));
        }
        check_volume(source.path(), &label, number.into())?;
        Ok(Window::new(source, label.version))
    }

    /// Opens the first volume from `number` on, in ascending order, that can be opened.
    ///
    /// # Errors
    /// `PM_ERR_LOGREC` for a volume of another version, and for damaged compressed data.
    pub(crate) fn window_from(&self, number: u32) -> Result<Option<(u32, Window)>> {
        self.first_of(self.files.volumes.range(number..).map(|(number, _)| *number))
    }

    /// Opens the first volume before `number`, in descending order, that can be opened.
    ///
    /// # Errors
    /// Errors of [`Log::window_from`].
    pub(crate) fn window_before(&self, number: u32) -> Result<Option<(u32, Window)>> {
        self.first_of(self.files.volumes.range(..number).rev().map(|(number, _)| *number))
    }

    fn first_of(&self, mut numbers: impl Iterator<Item = u32>) -> Result<Option<(u32, Window)>> {
        let found = numbers.find_map(|number| match self.window(number) {
            Ok(window) => Some(Ok((number, window))),
            Err(e) if e.code() == Error::LOGREC => Some(Err(e)),
            // As libpcp does, skips a volume that is empty or cannot be opened.
            Err(e) => {
                self.skipped.add(e.path().to_owned(), e.skipping("the volume"));
                None
            }
        });
        found.transpose()
    }

    /// Returns the length of a volume, or of the metadata, after decompression.
    pub(crate) fn len_of(&self, volume: Option<u32>) -> Result<u64> {
        match volume {
            Some(number) => self.volume(number)?.len(),
            None => Source::open(&self.files.meta, self.limit)?.len(),
        }
    }

    /// Returns the time of the last complete record (pmGetArchiveEnd(3)).
    pub(crate) fn end(&self) -> Result<Stamp> {
        let mut last = None;
        for number in self.files.volumes.keys().rev() {
            let Ok(mut window) = self.window(*number) else { continue };
            match self.end_of(*number, &mut window) {
                Ok(Some(time)) => return Ok(time),
                Ok(None) => (),
                Err(e) => {
                    last = Some(e);
                    break;
                }
            }
        }
        Err(last
            .unwrap_or_else(|| ArchiveError::file(&self.files.base, Error::LOGREC, "no volume has a complete record")))
    }

    /// Returns the end of an archive that is no longer written, because another one follows it: [`Log::end`], or after
    /// damage [`Log::readable_end`]. Searching for it may decompress a volume, so that is done once.
    pub(crate) fn fixed_end(&self) -> Stamp {
        *self.fixed_end.get_or_init(|| self.end().or_else(|e| self.readable_end(e)).unwrap_or(self.label.start))
    }

    /// Notes that the rest of the archive is left out because of damage.
    pub(crate) fn skip_rest(&self, error: ArchiveError) {
        self.skipped.add(self.files.base.clone(), error.skipping("the rest of the archive"));
    }

    /// Returns the time of the last complete record before damage, because of which there is no other end.
    ///
    /// # Errors
    /// The error of the damage without such a record.
    pub(crate) fn readable_end(&self, damage: ArchiveError) -> Result<Stamp> {
        let (found, met) = self.read_from_start();
        let damage = met.unwrap_or(damage);
        self.skip_rest(damage.clone());
        found.map(|end| end.time).ok_or(damage)
    }

    /// Returns the end of the records before the first damage; `None` without such records. Of an archive that is still
    /// written (`is_last`), it is searched for each time.
    pub(crate) fn readable(&self, is_last: bool) -> Option<End> {
        let search = || self.read_from_start().0;
        if is_last { search() } else { *self.readable.get_or_init(search) }
    }

    /// Reads all records from the start on. Returns the end of the last complete one, and the error after it.
    fn read_from_start(&self) -> (Option<End>, Option<ArchiveError>) {
        let mut found: Option<End> = None;
        for number in self.files.volumes.keys() {
            let Ok(mut window) = self.window(*number) else { continue };
            let mut at = self.label.version.label_len() as u64;
            loop {
                match window.after(at, Extent::Whole).and_then(|span| self.whole_record(&mut window, span)) {
                    Ok(Some((span, time))) => {
                        at = span.end();
                        let time = found.map_or(time, |last| last.time.max(time));
                        found = Some(End { volume: *number, offset: at, time });
                    }
                    Ok(None) => break,
                    Err(e) => return (found, Some(e)),
                }
            }
        }
        (found, None)
    }

    /// Returns the time of the last complete record of a volume. Returns `None` if the previous volume has to be
    /// searched.
    fn end_of(&self, number: u32, window: &mut Window) -> Result<Option<Stamp>> {
        let (len, first) = (window.source().len()?, self.label.version.label_len() as u64);
        if len <= first {
            return Ok(None);
        }
        if let Ok(Some((_, time))) = window.before(len).and_then(|span| self.whole_record(window, span)) {
            return Ok(Some(time));
        }
        // The end of the volume is incomplete or damaged. The index has the last position that is known to be good.
        let Some(mut at) = self
            .index
            .iter()
            .rev()
            .filter(|entry| i64::from(number) == i64::from(entry.volume))
            .find_map(|entry| u64::try_from(entry.data).ok().filter(|at| *at <= len))
        else {
            return Ok(None);
        };
        if at < first {
            return Ok(None);
        }
        let mut found = None;
        if at > first {
            let span = window.before(at)?;
            found = self.whole_record(window, span)?.map(|(_, time)| time);
        }
        while let Ok(Some((span, time))) =
            window.after(at, Extent::Whole).and_then(|span| self.whole_record(window, span))
        {
            (found, at) = (Some(time), span.end());
        }
        Ok(found)
    }

    /// Checks a record completely.
    fn whole_record(&self, window: &mut Window, span: Option<Span>) -> Result<Option<(Span, Stamp)>> {
        let Some(span) = span else { return Ok(None) };
        let version = self.label.version;
        let (bytes, path) = window.bytes(span)?;
        let found = record::record(version, bytes).map_err(|e| ArchiveError::at(path, span.at, e))?;
        if found.is_mark() && span.len != record::shortest(version) {
            return Err(ArchiveError::at(
                path,
                span.at,
                Bad::record(0, "bytes after the number of metrics, which is 0"),
            ));
        }
        Ok(Some((span, found.time)))
    }
}
