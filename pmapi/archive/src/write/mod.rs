//! Writing of archives.

mod append;
mod create;
mod describe;
mod encode;
mod out;
mod state;
mod values;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use pcp_pdu::event::Stamp;
use pcp_pdu::result::{Changes, ValueSets};
use pcp_pdu::result_writer::ResultWriter;
use pmapi::Error;

pub use create::Create;

use crate::decode::Version;
use crate::decode::index::IndexEntry;
use crate::decode::label::Label;
use crate::decode::record::SLACK;
use crate::error::{ArchiveError, Result, Shown};
use out::Out;
use state::{EINVAL, Refused, State};
use values::adapt;

/// Volume number in the label of the temporal index, which is not a volume.
const INDEX: i32 = -2;
/// Volume number in the label of the metadata, which is not a volume.
const META: i32 = -1;
/// Number of bytes of values between entries of the temporal index, as in pmlogger(1).
const INDEXED: u64 = 100_000;
/// Number of pending bytes at which they are written to the files.
const PENDING: usize = 1 << 18;
/// Largest file of version 2, whose index has offsets of 31 bits.
const MAX_V2: u64 = i32::MAX as u64;
/// Largest record, whose length has 31 bits.
const MAX_RECORD: usize = i32::MAX as usize;

/// Writer of an archive, the counterpart of pmlogger(1).
///
/// Metrics, instance domains, labels and texts are written when they are new; a caller may repeat them before every
/// record. Times must not go back. Records go to the files in groups: [`Writer::flush`] writes all pending records,
/// metadata before the values that need it. So readers may follow a growing archive, and a killed writer leaves a valid
/// one. [`Writer::finish`] completes the index and waits until the files are on their device.
///
/// ```
/// use pcp_archive::{Archive, Create};
/// use pcp_pdu::event::Stamp;
/// use pcp_pdu::result_writer::ResultWriter;
/// use pmapi::{Atom, Desc, PmId, Semantics, Type, Units};
///
/// let dir = tempfile::tempdir()?;
/// let mut writer = Create::new("localhost").create(dir.path().join("a"))?;
/// let pmid: PmId = "253.0.1".parse()?;
/// let desc = Desc { pmid, ty: Type::U32, indom: None, semantics: Semantics::Counter, units: Units::COUNT };
/// writer.metric(&desc.into(), &[b"my.metric"])?;
/// let mut values = ResultWriter::new();
/// for second in 0..10 {
///     values.begin();
///     values.begin_set(Some(pmid));
///     values.push(None, Type::U32, Atom::U32(second))?;
///     values.end_set(Ok(()));
///     writer.values(Stamp { seconds: 1_700_000_000 + i64::from(second), nanoseconds: 0 }, &mut values)?;
/// }
/// writer.finish()?;
/// assert_eq!(Archive::open(dir.path().join("a"))?.end()?.seconds, 1_700_000_009);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Writer {
    base: PathBuf,
    label: Label,
    /// Whether the labels contain the start of the archive, so that the files may be written.
    is_started: bool,
    volume: u32,
    volume_size: u64,
    /// Whether the next record must be in a new volume.
    is_volume_full: bool,
    meta: Out,
    index: Out,
    data: Out,
    /// Volumes before `data` that are not yet on their device.
    ended: VecDeque<Out>,
    state: State,
    /// Length of the metadata at the last record.
    meta_known: u64,
    /// Length of the volume after which a record has an entry in the index; 0 for the first record of a volume.
    next_entry: u64,
    last: Option<Stamp>,
    last_meta: Option<Stamp>,
    is_finished: bool,
    /// Files of a new archive; empty for one to which records are appended.
    created: Vec<PathBuf>,
}

fn file(base: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(base);
    name.push(".");
    name.push(suffix);
    name.into()
}

/// Checks that a version has a time.
fn fits(version: Version, time: Stamp) -> Result<(), Refused> {
    let reason = match version {
        _ if time.nanoseconds >= 1_000_000_000 => format!("{} nanoseconds are over a second", time.nanoseconds),
        _ if time.seconds < 0 => "the time is before 1970".to_owned(),
        Version::V2 if i32::try_from(time.seconds).is_err() => {
            "archives of version 2 have no time after 19 January 2038".to_owned()
        }
        _ => return Ok(()),
    };
    Err((EINVAL, reason))
}

fn refuse(out: &Out, (code, reason): Refused) -> ArchiveError {
    ArchiveError::refusal(out.path(), code, reason)
}

impl Writer {
    /// Opens an existing archive by its base name or the name of one of its files, to append records. All metadata, the
    /// index and the last volume are checked first. Records must not be earlier than the end of the archive.
    /// [`Writer::mark`] separates values that are not related to earlier ones.
    ///
    /// # Errors
    /// Errors of [`Archive::open`](crate::Archive::open). `PM_ERR_LOGREC` for an archive whose last volume or index
    /// ends in the middle of a record, `PM_ERR_LOGFILE` for one without an index, `-EINVAL` for one whose last volume,
    /// metadata or index is compressed.
    pub fn append(base: impl AsRef<Path>) -> Result<Writer> {
        append::append(base.as_ref())
    }

    fn create(base: &Path, options: &Create) -> Result<Writer> {
        let label = options.label.clone();
        let mut created: Vec<Out> = Vec::new();
        for (suffix, number) in [("meta", META), ("index", INDEX), ("0", 0)] {
            let made = Out::create(&file(base, suffix)).map(|mut out| {
                out.pending = encode::label(&label, number);
                out
            });
            match made {
                Ok(out) => created.push(out),
                Err(e) => {
                    created.iter().for_each(|out| _ = std::fs::remove_file(out.path()));
                    return Err(e);
                }
            }
        }
        let Ok([meta, index, data]) = <[Out; 3]>::try_from(created) else {
            return Err(ArchiveError::file(base, EINVAL, "an archive has three files"));
        };
        let mut writer = Writer::with(base, label, 0, [meta, index, data], State::default());
        writer.created = [&writer.meta, &writer.index, &writer.data].map(|out| out.path().to_owned()).into();
        (writer.is_started, writer.volume_size, writer.next_entry) = (false, options.volume_size, 0);
        if options.has_start {
            writer.start(options.label.start)?;
        }
        Ok(writer)
    }

    fn with(base: &Path, label: Label, volume: u32, [meta, index, data]: [Out; 3], state: State) -> Writer {
        let (meta_known, next_entry) = (meta.len(), data.len() + INDEXED);
        Writer {
            base: base.to_owned(),
            label,
            is_started: true,
            volume,
            volume_size: u64::MAX,
            is_volume_full: false,
            meta,
            index,
            data,
            ended: VecDeque::new(),
            state,
            meta_known,
            next_entry,
            last: None,
            last_meta: None,
            is_finished: false,
            created: Vec::new(),
        }
    }

    /// Returns the label; its start is that of the first record, and 0 before it.
    pub fn label(&self) -> &Label {
        &self.label
    }

    /// Returns the time of the last record; `None` before the first one.
    pub fn last(&self) -> Option<Stamp> {
        self.last
    }

    /// Returns the number of the volume that is written.
    pub fn volume(&self) -> u32 {
        self.volume
    }

    /// Writes the start into the labels, which were written with another start.
    fn start(&mut self, time: Stamp) -> Result {
        self.fits(time)?;
        self.label.start = time;
        for (out, number) in [(&mut self.meta, META), (&mut self.index, INDEX), (&mut self.data, 0)] {
            let label = encode::label(&self.label, number);
            if let Some(start) = out.pending.get_mut(..label.len()) {
                start.copy_from_slice(&label);
            }
        }
        self.is_started = true;
        Ok(())
    }

    /// Checks that the version has a time.
    fn fits(&self, time: Stamp) -> Result {
        fits(self.label.version, time).map_err(|refused| refuse(&self.data, refused))
    }

    /// Writes a record of values that are decoded from a PDU or from another archive.
    ///
    /// # Errors
    /// `-EINVAL` for a time before that of the record before it, and for values that are not encoded as their metric's
    /// type requires; `PM_ERR_PMID_LOG` for a metric that is not described; `PM_ERR_TOOBIG` for more than 2 GiB;
    /// `-EEXIST` for the file of a new volume, and `-errno` for a failed write. After `-EEXIST` and a failed write the
    /// record is still pending, and written at the next attempt: the caller must not repeat it. A new volume is created
    /// together with its first record.
    pub fn record(&mut self, time: Stamp, values: ValueSets<'_>) -> Result {
        let start = values.offsets().next().unwrap_or(values.pdu().len());
        self.put(time, values.len(), start, &[values.pdu().get(start..).unwrap_or_default()])
    }

    /// Writes a record of the values in a writer of PDUs, which has been begun and whose last set has been ended.
    ///
    /// # Errors
    /// Errors of [`Writer::record`].
    pub fn values(&mut self, time: Stamp, values: &mut ResultWriter) -> Result {
        let (head, tail) = values
            .seal(0, Changes::empty())
            .map_err(|e| refuse(&self.data, (e, "the values are too long for a record".to_owned())))?;
        let count = head.get(RESULT_SETS - 4..RESULT_SETS).and_then(|count| count.first_chunk().copied());
        let count = u32::from_be_bytes(count.unwrap_or_default()) as usize;
        self.put(time, count, RESULT_SETS, &[head.get(RESULT_SETS..).unwrap_or_default(), tail])
    }

    /// Writes a `<mark>`: values before and after it must not be related.
    ///
    /// # Errors
    /// `-EINVAL` for a time before that of the record before it; errors of a failed write, as in [`Writer::record`].
    pub fn mark(&mut self, time: Stamp) -> Result {
        self.put(time, 0, 0, &[])
    }

    /// Writes a record. `sets` is the list of parts of the value sets. References to value blocks count from `from`
    /// bytes before the first part.
    fn put(&mut self, time: Stamp, count: usize, from: usize, sets: &[&[u8]]) -> Result {
        self.fits(time)?;
        if !self.is_started {
            self.start(time)?;
        }
        let earliest = self.last.unwrap_or(self.label.start);
        if time < earliest {
            let reason = format!("the time of the record, {}, is before {}", Shown(time), Shown(earliest));
            return Err(refuse(&self.data, (EINVAL, reason)));
        }
        let len = sets.iter().map(|part| part.len()).sum::<usize>() + self.label.version.stamp_len() + 12;
        let largest = if self.label.version == Version::V2 { MAX_V2 as usize - 132 } else { MAX_RECORD };
        if len > largest {
            let reason = format!("a record of {len} bytes is too large: at most {largest} fit into a volume");
            return Err(refuse(&self.data, (Error::TOOBIG, reason)));
        }
        let is_over = self.is_over(len as u64);
        let start = self.data.pending.len();
        encode::record_head(&mut self.data.pending, self.label.version, time, count);
        let head = self.data.pending.len();
        sets.iter().for_each(|part| self.data.pending.extend_from_slice(part));
        let distance = (head - start + SLACK) as i64 / 4 - from as i64 / 4;
        let bytes = self.data.pending.get_mut(head..).unwrap_or_default();
        if let Err(refused) = adapt(bytes, count, distance as u32, &self.state) {
            self.data.pending.truncate(start);
            return Err(refuse(&self.data, refused));
        }
        encode::record_end(&mut self.data.pending, start);
        if is_over {
            self.turn(start);
        }
        let (at, end) = (self.data.len() - len as u64, self.data.len());
        if self.meta.len() != self.meta_known || end > self.next_entry {
            self.entry(time, self.meta_known, at);
            self.next_entry = at + INDEXED;
        }
        self.meta_known = self.meta.len();
        self.last = Some(time);
        self.write_when_full()
    }

    /// Adds an entry to the index, unless an offset is too large for version 2.
    fn entry(&mut self, time: Stamp, meta: u64, data: u64) {
        if self.label.version == Version::V2 && meta.max(data) > MAX_V2 {
            return;
        }
        let entry = IndexEntry { time, volume: self.volume as i32, meta: meta as i64, data: data as i64 };
        encode::index(&mut self.index.pending, self.label.version, &entry);
    }

    /// Ends the volume. The next record is written to a new volume, whose file must not exist. A volume has at least
    /// one record.
    pub fn next_volume(&mut self) {
        self.is_volume_full = self.has_records();
    }

    fn has_records(&self) -> bool {
        self.data.len() > self.label.version.label_len() as u64
    }

    /// Returns whether a record must not be in this volume, or does not fit into it.
    fn is_over(&self, record: u64) -> bool {
        let limit = if self.label.version == Version::V2 { MAX_V2.min(self.volume_size) } else { self.volume_size };
        self.is_volume_full || self.has_records() && self.data.len() + record > limit
    }

    /// Starts a new volume with the pending record that begins at `start`. Changes no file: whatever fails later, the
    /// record is pending.
    fn turn(&mut self, start: usize) {
        self.volume += 1;
        let record = self.data.pending.split_off(start);
        let pending = [encode::label(&self.label, self.volume as i32), record].concat();
        let data = Out::later(file(&self.base, &self.volume.to_string()), pending);
        self.ended.push_back(std::mem::replace(&mut self.data, data));
        (self.next_entry, self.is_volume_full) = (0, false);
    }

    /// Writes what is pending if it is much, or if a volume has ended.
    fn write_when_full(&mut self) -> Result {
        let pending = self.meta.pending.len() + self.data.pending.len();
        let is_due = pending >= PENDING || !self.ended.is_empty() || !self.data.is_created();
        if is_due { self.flush() } else { Ok(()) }
    }

    /// Writes the pending records of all volumes. A volume is on its device before the next one is created.
    fn flush_volumes(&mut self) -> Result {
        loop {
            let volume = self.ended.front_mut().unwrap_or(&mut self.data);
            volume.flush()?;
            if self.created.last().is_some_and(|last| last != volume.path()) {
                self.created.push(volume.path().to_owned());
            }
            let Some(ended) = self.ended.front_mut() else { return Ok(()) };
            ended.sync()?;
            self.ended.pop_front();
        }
    }

    /// Writes the pending records to the files, metadata first: readers see all records then.
    ///
    /// # Errors
    /// `-EEXIST` for the file of a new volume, and `-errno` for a failed write. What could not be written is still
    /// pending.
    pub fn flush(&mut self) -> Result {
        if !self.is_started {
            return Ok(());
        }
        self.meta.flush()?;
        self.flush_volumes()?;
        self.index.flush()
    }

    /// Writes the pending records, and waits until the files are on their devices (fsync(2)).
    ///
    /// # Errors
    /// Errors of [`Writer::flush`].
    pub fn sync(&mut self) -> Result {
        if !self.is_started {
            return Ok(());
        }
        self.flush()?;
        [&mut self.meta, &mut self.data, &mut self.index].into_iter().try_for_each(Out::sync)
    }

    /// Completes the index, and waits until the files are on their devices. Dropping a writer does the same without the
    /// wait, and ignores errors.
    ///
    /// # Errors
    /// Errors of [`Writer::flush`].
    pub fn finish(mut self) -> Result {
        self.complete();
        self.sync()
    }

    /// Completes a new archive as [`Writer::finish`] does, but leaves all records or no files.
    ///
    /// # Errors
    /// Errors of [`Writer::finish`], after which the files are removed; `-errno` for one that cannot be removed.
    pub fn finish_or_discard(mut self) -> Result {
        self.complete();
        self.sync().or_else(|e| self.remove().and(Err(e)))
    }

    /// Removes the files of a new archive, for instance because its records could not all be written. An archive that
    /// was opened by [`Writer::append`] stays, without the pending records.
    ///
    /// # Errors
    /// `-errno` for a file that cannot be removed.
    pub fn discard(mut self) -> Result {
        self.remove()
    }

    fn remove(&mut self) -> Result {
        self.is_finished = true;
        self.ended.clear();
        [&mut self.meta, &mut self.index, &mut self.data].into_iter().for_each(|out| out.pending.clear());
        let removed = std::mem::take(&mut self.created).into_iter();
        let removed = removed.map(|path| std::fs::remove_file(&path).map_err(|e| ArchiveError::io(&path, &e)));
        // The other files are removed even if one of them cannot be.
        removed.fold(Ok(()), Result::and)
    }

    fn complete(&mut self) {
        if let Some(last) = self.last.filter(|_| !std::mem::replace(&mut self.is_finished, true)) {
            self.entry(last, self.meta.len(), self.data.len());
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.complete();
        _ = self.flush();
    }
}

/// Offset of the value sets in a RESULT PDU.
const RESULT_SETS: usize = 24;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::Archive;
    use pcp_pdu::desc::RawDesc;

    #[test]
    fn a_volume_that_cannot_be_synchronized_costs_no_record() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("a");
        let at = |seconds| Stamp { seconds, nanoseconds: 0 };
        let mut writer = Create::new("host").create(&base).unwrap();
        let desc = RawDesc { pmid: pmapi::PmId::from_word(1), ty: 0, indom: None, semantics: 3, units: 0 };
        writer.metric(&desc, &[b"a"]).unwrap();
        writer.mark(at(1)).unwrap();
        writer.flush().unwrap();
        // The kernel refuses fsync(2) of this device.
        let mut device = std::fs::File::options().write(true).open("/dev/null").ok();
        writer.data.swap_file(&mut device);
        writer.next_volume();
        let error = writer.mark(at(2)).unwrap_err();
        assert_eq!((error.code(), file(&base, "1").exists()), (EINVAL, false), "{error}");
        assert_eq!(writer.mark(at(3)).unwrap_err().code(), EINVAL);
        writer.ended.front_mut().unwrap().swap_file(&mut device);
        writer.finish().unwrap();
        let archive = Archive::open(&base).unwrap();
        let mut cursor = archive.cursor();
        for second in 1..4 {
            assert_eq!(cursor.forward().unwrap().unwrap().time, at(second));
        }
        assert!(cursor.forward().unwrap().is_none());
        assert_eq!(Writer::append(&base).unwrap().volume(), 1);
    }
}
