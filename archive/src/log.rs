//! One archive: its files, label, temporal index and end.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use pcp_pdu::event::Stamp;
use pmapi::Error;

use crate::decode::index::{IndexEntry, entry, entry_len};
use crate::decode::label::Label;
use crate::decode::record;
use crate::error::{ArchiveError, Bad, Result};
use crate::file::find::Files;
use crate::file::{Source, whole};
use crate::meta::Metadata;
use crate::window::{Extent, Span, Window};

/// Volume number in the label of the temporal index, which is not a volume.
const INDEX: i64 = -2;
/// Volume number in the label of the metadata, which is not a volume.
const META: i64 = -1;
/// Largest size of compressed metadata, or of a compressed index, after decompression in bytes: both are kept in
/// memory.
const IN_MEMORY: u64 = 1 << 30;
/// Length of the longest label record (version 3), in bytes.
const LABEL: usize = 808;

/// Files, label and index of one archive.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) files: Files,
    pub(crate) label: Label,
    pub(crate) index: Vec<IndexEntry>,
    limit: u64,
    /// Volumes that a cursor has open.
    open: Mutex<BTreeMap<u32, Weak<Source>>>,
    /// The end, once [`Log::fixed_end`] has searched for it.
    fixed_end: OnceLock<Stamp>,
}

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

impl Log {
    /// Opens an archive, and adds its metadata to `meta`. `host` is the host of the archives that were opened before.
    pub(crate) fn open(files: Files, limit: u64, host: Option<&[u8]>, meta: &mut Metadata) -> Result<Log> {
        let (first, path) = files
            .volumes
            .first_key_value()
            .ok_or_else(|| ArchiveError::file(&files.base, Error::LOGFILE, "the archive has no volume of values"))?;
        let source = Arc::new(Source::open(path, limit)?);
        let label = Self::label_of(&source)?;
        check_volume(path, &label, (*first).into())?;
        let open = Mutex::new(BTreeMap::from([(*first, Arc::downgrade(&source))]));
        let mut log = Log { files, label, index: Vec::new(), limit, open, fixed_end: OnceLock::new() };
        let index = match &log.files.index {
            Some(path) => {
                let bytes = whole(path, limit.min(IN_MEMORY))?;
                let label = check_label(path, &bytes, bytes.len() as u64)?;
                check_volume(path, &label, INDEX)?;
                check_same(path, &log.label, &label)?;
                Some((path.clone(), bytes))
            }
            None => None,
        };
        let path = log.files.meta.clone();
        let bytes = whole(&path, limit.min(IN_MEMORY))?;
        let label = check_label(&path, &bytes, bytes.len() as u64)?;
        check_volume(&path, &label, META)?;
        check_same(&path, &log.label, &label)?;
        if host.is_some_and(|host| host != log.label.host) {
            return Err(ArchiveError::file(&path, Error::LOGHOST, "the archive is of another host than the first one"));
        }
        meta.load(&path, bytes, label.version.label_len())?;
        if let Some((path, bytes)) = index {
            log.load_index(&path, &bytes)?;
        }
        Ok(log)
    }

    fn load_index(&mut self, path: &Path, bytes: &[u8]) -> Result {
        let version = self.label.version;
        let entries = bytes.get(version.label_len()..).unwrap_or_default();
        // An incomplete entry at the end is still being written.
        for (nth, bytes) in entries.chunks_exact(entry_len(version)).enumerate() {
            let offset = version.label_len() + nth * entry_len(version);
            self.index.push(entry(version, bytes).map_err(|e| ArchiveError::at(path, offset as u64, e))?);
        }
        Ok(())
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
            Err(_) => None,
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

    /// Returns the end of an archive that is no longer written, because another one follows it. Searching for it may
    /// decompress a volume, so that is done once.
    pub(crate) fn fixed_end(&self) -> Result<Stamp> {
        if let Some(end) = self.fixed_end.get() {
            return Ok(*end);
        }
        let end = self.end()?;
        Ok(*self.fixed_end.get_or_init(|| end))
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
