//! Reading records forward and back.

use std::sync::Arc;

use pcp_pdu::event::Stamp;
use pcp_pdu::result::ValueSets;
use pmapi::Error;

use crate::archive::Archive;
use crate::decode::record::{self, Record};
use crate::error::{ArchiveError, Bad, Result};
use crate::log::Log;
use crate::scan::scan;
use crate::window::{Extent, LEN, Span, Window};

/// Direction of reading.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// Toward the end (`PM_MODE_FORW`).
    Forward,
    /// Toward the start (`PM_MODE_BACK`).
    Backward,
}

impl Direction {
    pub(crate) fn opposite(self) -> Direction {
        match self {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        }
    }
}

/// Position in an archive, and the reader of its records.
#[derive(Debug)]
pub struct Cursor<'a> {
    archive: Holder<'a>,
    /// Number of the archive in the list.
    log: usize,
    volume: u32,
    /// Open volume; `None` before the first read.
    window: Option<Window>,
    offset: u64,
    /// Time of the last record, or that of the last [`Cursor::seek`].
    origin: Stamp,
    /// Whether the position must be found by the time.
    is_lost: bool,
    /// Whether the `<mark>` at this boundary between two archives has been returned.
    is_marked: bool,
    /// Whether the rest of this archive is left out, because it is damaged.
    is_left: bool,
    /// Direction of the last search.
    heading: Direction,
    /// Time of the damage that reading backward passes next, and reports as a `<mark>`.
    damaged_at: Option<Stamp>,
    /// Where reading backward went on before damage: archive, volume and offset.
    retreat: Option<(usize, u32, u64)>,
}

/// Archive that a cursor reads.
#[derive(Clone, Debug)]
enum Holder<'a> {
    Borrowed(&'a Archive),
    Shared(Arc<Archive>),
}

impl std::ops::Deref for Holder<'_> {
    type Target = Archive;

    fn deref(&self) -> &Archive {
        match self {
            Holder::Borrowed(archive) => archive,
            Holder::Shared(archive) => archive,
        }
    }
}

impl Holder<'_> {
    fn log(&self, nth: usize) -> &Log {
        // The position is always within the list.
        self.logs.get(nth).unwrap_or(&self.logs[0])
    }
}

/// Result of one step.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    Record(Span, Stamp),
    /// `<mark>` between two archives.
    Mark(Stamp),
    End,
}

/// Time between a `<mark>` and the end of the archive before it, or the start of the archive after it, in nanoseconds.
const MARK: u32 = 1_000_000;
const SECOND: u32 = 1_000_000_000;

impl Archive {
    /// Returns a cursor at the start.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor::new(Holder::Borrowed(self))
    }

    /// Returns a cursor at the start that keeps the archive open.
    pub fn shared_cursor(self: Arc<Self>) -> Cursor<'static> {
        Cursor::new(Holder::Shared(self))
    }
}

impl<'a> Cursor<'a> {
    fn new(archive: Holder<'a>) -> Cursor<'a> {
        let origin = archive.label().start;
        Cursor {
            archive,
            log: 0,
            volume: 0,
            window: None,
            offset: 0,
            origin,
            is_lost: true,
            is_marked: false,
            is_left: false,
            heading: Direction::Forward,
            damaged_at: None,
            retreat: None,
        }
    }

    /// Returns another cursor of the same archive, at the start.
    pub(crate) fn another(&self) -> Cursor<'a> {
        Cursor::new(self.archive.clone())
    }

    pub(crate) fn holder(&self) -> impl std::ops::Deref<Target = Archive> + use<'a> {
        self.archive.clone()
    }

    /// Returns the archive that the cursor reads.
    pub fn archive(&self) -> &Archive {
        &self.archive
    }

    /// Returns the time of the last record, or that of the last [`Cursor::seek`]. This is also the time for which the
    /// values' metadata must be requested.
    pub fn time(&self) -> Stamp {
        self.origin
    }

    /// Sets the position (pmSetMode(3)). Reading forward begins with the first record of this time or later, reading
    /// backward with the last one of this time or earlier.
    pub fn seek(&mut self, time: Stamp) {
        (self.origin, self.is_lost, self.is_marked, self.is_left) = (time, true, false, false);
        (self.damaged_at, self.retreat) = (None, None);
    }

    /// Returns the next record, `<mark>`s included (pmFetchArchive(3) in mode `PM_MODE_FORW`); `None` at the end, after
    /// which more may follow in an archive that grows. Records whose time goes back are skipped.
    ///
    /// # Errors
    /// `PM_ERR_LOGREC` for a damaged record, `PM_ERR_LOGOVERLAP` for archives that overlap in time, `-errno` for a
    /// failed read. The position does not change then. If several archives are open as one, damage is no error: what is
    /// behind it in the same archive is left out ([`Archive::take_skipped`]), and a `<mark>` follows.
    pub fn forward(&mut self) -> Result<Option<Record<'_>>> {
        self.next(Direction::Forward)
    }

    /// Returns the record before, `<mark>`s included (pmFetchArchive(3) in mode `PM_MODE_BACK`); `None` at the start.
    ///
    /// # Errors
    /// Errors of [`Cursor::forward`].
    pub fn backward(&mut self) -> Result<Option<Record<'_>>> {
        self.next(Direction::Backward)
    }

    /// Returns the next record in a direction: [`Cursor::forward`] or [`Cursor::backward`].
    ///
    /// # Errors
    /// Errors of [`Cursor::forward`].
    pub fn next(&mut self, direction: Direction) -> Result<Option<Record<'_>>> {
        let (span, time) = loop {
            let before = self.offset;
            match self.find(direction, Extent::Whole)? {
                Step::Record(span, time) => match self.check(span) {
                    Ok(()) => break (span, time),
                    Err(e) => {
                        if direction == Direction::Forward || !self.archive.skips(&e) {
                            self.offset = before;
                        }
                        self.leave(e)?;
                    }
                },
                Step::Mark(time) => return Ok(Some(Record { time, values: ValueSets::empty(), len: 0 })),
                Step::End => return Ok(None),
            }
        };
        Ok(Some(Record { time, values: self.sets(span)?, len: span.len }))
    }

    /// Finds the next record at the origin or beyond it, with respect to the direction.
    pub(crate) fn find(&mut self, direction: Direction, extent: Extent) -> Result<Step> {
        self.heading = direction;
        loop {
            let found = if self.is_lost {
                self.is_lost = false;
                self.locate(direction).inspect_err(|e| self.is_lost = !self.archive.skips(e))
            } else {
                Ok(())
            };
            let step = match found.and_then(|()| self.step(direction, extent)) {
                Ok(step) => step,
                Err(e) => {
                    self.leave(e)?;
                    continue;
                }
            };
            let (Step::Record(_, time) | Step::Mark(time)) = step else { return Ok(step) };
            let is_passed = match direction {
                Direction::Forward => time < self.origin,
                Direction::Backward => time > self.origin,
            };
            if !is_passed {
                self.origin = time;
                return Ok(step);
            }
        }
    }

    /// Leaves out the rest of the archive at the position because of damage in it. Backward, the records before the
    /// first damage follow, after a `<mark>`.
    ///
    /// # Errors
    /// The same error for a single archive, and one that is no damage.
    pub(crate) fn leave(&mut self, e: ArchiveError) -> Result {
        if !self.archive.skips(&e) {
            return Err(e);
        }
        self.log().skip_rest(e);
        self.is_left = self.heading == Direction::Forward || !self.retreats();
        Ok(())
    }

    /// Goes back to the end of the records before the first damage, which is before the position. Returns false if it is
    /// not, or if there is none.
    fn retreats(&mut self) -> bool {
        let is_last = self.log + 1 == self.archive.logs.len();
        let Some(end) = self.log().readable(is_last) else { return false };
        let place = (self.log, end.volume, end.offset);
        if (end.volume, end.offset) > (self.volume, self.offset) || self.retreat == Some(place) {
            return false;
        }
        let Ok(Some((volume, window))) = self.log().window_before(end.volume.saturating_add(1)) else { return false };
        if volume != end.volume {
            return false;
        }
        self.open(self.log, (volume, window), end.offset);
        self.retreat = Some(place);
        self.damaged_at = Some(after(end.time));
        true
    }

    /// Checks the whole of a record that was found by the last search.
    fn check(&mut self, span: Span) -> Result {
        let version = self.log().label.version;
        let Some(window) = &mut self.window else { return Ok(()) };
        let (bytes, path) = window.bytes(span)?;
        record::record(version, bytes).map(|_| ()).map_err(|e| ArchiveError::at(path, span.at, e))
    }

    /// Returns the value sets of a record that was found by the last search, without checking sets that the search has
    /// not read.
    ///
    /// # Errors
    /// `PM_ERR_LOGREC` for a record that is too short.
    pub(crate) fn sets(&mut self, span: Span) -> Result<ValueSets<'_>> {
        let version = self.log().label.version;
        let Some(window) = &mut self.window else { return Ok(ValueSets::empty()) };
        let (bytes, path) = window.found(span)?;
        record::sets(version, bytes, span.len).map_err(|e| ArchiveError::at(path, span.at, e))
    }

    /// Searches a record that was found by the last search for value sets, with the arguments of [`scan`]. Returns the
    /// number of the record's sets. Reads only the needed parts of a long record.
    ///
    /// # Errors
    /// `PM_ERR_LOGREC` for a damaged record.
    pub(crate) fn look(&mut self, span: Span, most: usize, take: impl FnMut(u32, usize) -> bool) -> Result<usize> {
        let version = self.log().label.version;
        let Some(window) = &mut self.window else { return Ok(0) };
        let (bytes, path) = window.head(span)?;
        let sets = record::sets(version, bytes, span.len).map_err(|e| ArchiveError::at(path, span.at, e))?;
        let (count, start) = (sets.len(), record::first_set(version));
        let found = match window.parts(span) {
            Some(mut parts) => scan(&mut parts, start, count, most, take)?,
            None => {
                let (bytes, _) = window.bytes(span)?;
                let mut bytes = bytes.get(..bytes.len().saturating_sub(LEN)).unwrap_or_default();
                scan(&mut bytes, start, count, most, take)?
            }
        };
        found.map(|()| count).map_err(|reason| self.damage(span, reason))
    }

    /// Returns the error for damage in a record that was found by the last search.
    pub(crate) fn damage(&self, span: Span, reason: impl Into<std::borrow::Cow<'static, str>>) -> ArchiveError {
        let path = self.window.as_ref().map_or(&*self.log().files.base, |window| window.source().path());
        ArchiveError::at(path, span.at, Bad::record(0, reason))
    }

    fn log(&self) -> &Log {
        self.archive.log(self.log)
    }

    fn open(&mut self, log: usize, (volume, window): (u32, Window), offset: u64) {
        (self.log, self.volume, self.offset, self.is_left) = (log, volume, offset, false);
        self.window = Some(window);
    }

    fn first_offset(&self) -> u64 {
        self.log().label.version.label_len() as u64
    }

    fn no_volume(&self) -> ArchiveError {
        ArchiveError::file(&self.log().files.base, Error::LOGFILE, "no volume can be opened")
    }

    /// Moves to a position near the origin from which no record in the direction is missed.
    fn locate(&mut self, direction: Direction) -> Result {
        let archive = self.archive.clone();
        let logs = &archive.logs;
        let later = logs.partition_point(|log| match direction {
            Direction::Forward => log.label.start < self.origin,
            // The `<mark>` before the archive is not later than the origin.
            Direction::Backward => before(log.label.start) <= self.origin,
        });
        self.log = later.saturating_sub(1);
        self.is_marked = false;
        let log = archive.log(self.log);
        if log.index.is_empty() && direction == Direction::Backward {
            return self.go_to_end(self.log);
        }
        let (volume, offset) = self.indexed(direction).unwrap_or((0, self.first_offset()));
        let first = self.first_offset();
        let found = match log.window_from(volume)? {
            Some(found) => found,
            None => log.window_before(u32::MAX)?.ok_or_else(|| self.no_volume())?,
        };
        let offset = if found.0 == volume { offset.max(first) } else { first };
        self.open(self.log, found, offset);
        if direction == Direction::Backward {
            // Moves forward until a later time: no earlier record has a later time.
            let mut last = None;
            loop {
                let (log, volume, offset) = (self.log, self.volume, self.offset);
                let damage = match self.step(Direction::Forward, Extent::Few) {
                    Ok(Step::Record(_, time)) if time <= self.origin => {
                        last = Some(time);
                        continue;
                    }
                    Ok(Step::Record(..)) => break,
                    Ok(Step::Mark(_) | Step::End) => None,
                    Err(e) => Some(e).filter(|e| self.archive.skips(e)),
                };
                let is_here = (self.log, self.volume) == (log, volume);
                self.offset = if is_here { offset } else { self.offset };
                if let Some(e) = damage {
                    self.log().skip_rest(e);
                    self.damaged_at = Some(last.map_or(self.origin, after));
                }
                break;
            }
            self.is_marked = false;
        }
        Ok(())
    }

    /// Returns the position in the last index entry before the origin. When reading backward, an entry at the origin
    /// counts too.
    fn indexed(&self, direction: Direction) -> Option<(u32, u64)> {
        let log = self.log();
        let after = log.index.iter().position(|entry| match direction {
            Direction::Forward => entry.time >= self.origin,
            Direction::Backward => entry.time > self.origin,
        });
        let after = after.unwrap_or(log.index.len());
        let entries = log.index.get(..after).unwrap_or_default();
        entries.iter().rev().find_map(|entry| {
            let (volume, at) = u32::try_from(entry.volume).ok().zip(u64::try_from(entry.data).ok())?;
            let is_there =
                log.files.volumes.contains_key(&volume) && log.len_of(Some(volume)).is_ok_and(|len| at <= len);
            is_there.then_some((volume, at))
        })
    }

    /// Moves to the end of an archive.
    fn go_to_end(&mut self, log: usize) -> Result {
        self.log = log;
        let found = self.log().window_before(u32::MAX)?.ok_or_else(|| self.no_volume())?;
        let end = found.1.source().len()?;
        self.open(log, found, end);
        Ok(())
    }

    /// Moves over one record.
    fn step(&mut self, direction: Direction, extent: Extent) -> Result<Step> {
        if let Some(time) = self.damaged_at.take().filter(|_| direction == Direction::Backward) {
            return Ok(Step::Mark(time));
        }
        loop {
            if self.is_left {
                return self.boundary(direction, extent);
            }
            let version = self.log().label.version;
            let offset = self.offset;
            let Some(window) = &mut self.window else { return Ok(Step::End) };
            let span = match direction {
                Direction::Forward => window.after(offset, extent)?,
                Direction::Backward => window.before(offset)?,
            };
            if let Some(span) = span {
                let (bytes, path) = window.head(span)?;
                let bytes = bytes.get(record::SLACK..).unwrap_or_default();
                let time = record::time(version, bytes).map_err(|e| ArchiveError::at(path, span.at, e))?;
                self.is_marked = false;
                self.offset = if direction == Direction::Forward { span.end() } else { span.at };
                return Ok(Step::Record(span, time));
            }
            if self.turn(direction)? {
                continue;
            }
            return self.boundary(direction, extent);
        }
    }

    /// Moves to the next volume; returns whether there is one.
    fn turn(&mut self, direction: Direction) -> Result<bool> {
        let log = self.log();
        let found = match direction {
            Direction::Forward => match self.volume.checked_add(1) {
                Some(number) => log.window_from(number)?,
                None => None,
            },
            Direction::Backward => log.window_before(self.volume)?,
        };
        let Some(found) = found else { return Ok(false) };
        let offset = match direction {
            Direction::Forward => self.first_offset(),
            Direction::Backward => found.1.source().len()?,
        };
        self.open(self.log, found, offset);
        Ok(true)
    }

    /// Returns the `<mark>` between two archives, and then moves to the next archive.
    fn boundary(&mut self, direction: Direction, extent: Extent) -> Result<Step> {
        let next = match direction {
            Direction::Forward => Some(self.log + 1).filter(|log| *log < self.archive.logs.len()),
            Direction::Backward => self.log.checked_sub(1),
        };
        let Some(next) = next else {
            // What is damaged may be a record that is still being written.
            self.is_left = false;
            return Ok(Step::End);
        };
        if !self.is_marked {
            self.is_marked = true;
            return Ok(Step::Mark(match direction {
                Direction::Forward if self.is_left => after(self.origin),
                Direction::Backward if self.is_left => before(self.origin),
                Direction::Forward => after(self.log().fixed_end()),
                Direction::Backward => before(self.log().label.start),
            }));
        }
        let (earlier, later) = if direction == Direction::Forward { (self.log, next) } else { (next, self.log) };
        let (end, later) = (self.archive.log(earlier).fixed_end(), self.archive.log(later));
        if !self.is_left && end > later.label.start {
            let reason = "the archive begins before the end of the one before it";
            return Err(ArchiveError::file(&later.files.base, Error::LOGOVERLAP, reason));
        }
        match direction {
            Direction::Forward => {
                self.log = next;
                let found = self.log().window_from(0)?.ok_or_else(|| self.no_volume())?;
                let first = self.first_offset();
                self.open(next, found, first);
            }
            Direction::Backward => self.go_to_end(next)?,
        }
        self.is_marked = false;
        self.step(direction, extent)
    }
}

impl Archive {
    /// Returns whether a time is between two archives. Metrics have no values then, although a cursor that goes backward
    /// from this time meets no `<mark>` before the records of the earlier archive.
    ///
    /// # Errors
    /// Errors of [`Archive::end`].
    pub fn is_gap(&self, time: Stamp) -> Result<bool> {
        self.mark_behind(time, Direction::Forward).map(|mark| mark.is_some())
    }

    /// Returns the `<mark>` between two archives that reading in a direction from a time must have passed: the time is
    /// in the gap between them, and the cursor skips the `<mark>` because it is on the other side of the time.
    pub(crate) fn mark_behind(&self, time: Stamp, direction: Direction) -> Result<Option<Stamp>> {
        let later = self.logs.partition_point(|log| log.label.start <= time);
        let earlier = later.checked_sub(1).and_then(|nth| self.logs.get(nth));
        let (Some(earlier), Some(later)) = (earlier, self.logs.get(later)) else { return Ok(None) };
        let end = earlier.fixed_end();
        Ok(Some(match direction {
            Direction::Forward => after(end),
            Direction::Backward => before(later.label.start),
        })
        .filter(|mark| match direction {
            Direction::Forward => *mark < time,
            Direction::Backward => time > end && *mark > time,
        }))
    }
}

fn after(time: Stamp) -> Stamp {
    let nanoseconds = time.nanoseconds.saturating_add(MARK);
    match nanoseconds.checked_sub(SECOND) {
        Some(rest) => Stamp { seconds: time.seconds.saturating_add(1), nanoseconds: rest },
        None => Stamp { nanoseconds, ..time },
    }
}

fn before(time: Stamp) -> Stamp {
    match time.nanoseconds.checked_sub(MARK) {
        Some(nanoseconds) => Stamp { nanoseconds, ..time },
        None => Stamp { seconds: time.seconds.saturating_sub(1), nanoseconds: SECOND - MARK + time.nanoseconds },
    }
}
